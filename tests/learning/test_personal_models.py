"""Personal models: conformance, messages of clients, learning, and invalid settings."""

from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest
import torch

import turnout as tn
from turnout.core.errors import ParameterError, UnsupportedError
from turnout.learning.examples import Examples
from turnout.learning.gradients import LocalTraining
from turnout.learning.holdings import Holdings
from turnout.learning.models import logistic
from turnout.learning.optimizers import SGD
from turnout.learning.personal import AdaPeD, Alone, PersonalTask, Ridge, judged_on_own_classes
from turnout.randomness import SimulationStreams
from turnout.simulation import FileCheckpoints, Simulation, clients
from turnout.testing import assert_algorithm

EACH, CLASSES = 4, 3
KINDS = (AdaPeD, Ridge)
DATA = [0.3, -1.0, 0.7, 2.0]
LAWS = (tn.CheckIn(window=2, windows=3), tn.PoissonSampling(0.5, 6), tn.EveryStep(4))


def personal(kind, data=DATA, **settings):
    """Algorithm on clients whose inputs have different centres; half of the clients swap labels."""
    own = np.asarray(data, dtype=np.float64)
    points = np.linspace(-1, 1, EACH)[None, :, None] * [1.0, 0.5] + own[:, None, None]
    labels = (np.arange(EACH) // 2 + np.arange(own.size)[:, None]) % 2
    examples = Examples(points.reshape(-1, 2), labels.reshape(-1), "class")
    held = Holdings(np.arange(0, own.size * EACH + 1, EACH), np.arange(own.size * EACH))
    task = PersonalTask(logistic((2,), CLASSES), examples, examples, holdings=held, tested=held)
    settings.setdefault("local", LocalTraining(3, 0.5))
    return kind(task, SGD(0.5), 1.0, **settings)


def simulated(algorithm, law=LAWS[0], noise=1.0):
    scheme = tn.Scheme(tn.GaussianNoise(noise), law, "add-remove")
    return Simulation(scheme, algorithm, seed=3, evaluate_every=2)


@pytest.mark.parametrize("kind", KINDS)
def test_personal_algorithms_pass_the_conformance_suite(kind):
    once = LocalTraining(1, 0.5)  # the tests below take several steps
    assert_algorithm(lambda data: personal(kind, data, local=once), DATA, [np.nan, 1e30, -1e12])


class Leaking(AdaPeD):
    """Faulty algorithm: the server also receives ψ without noise."""

    bare: ClassVar[list] = []

    def client_updates(self, sent, states, clients):
        messages, after = super().client_updates(sent, states, clients)
        self.bare.extend(messages[:, -1])
        return messages, after

    def server_update(self, state, direction, move):
        moved = super().server_update(state, direction, move)
        return {**moved, "psi": moved["psi"] - np.sum(self.bare)}


def test_a_personal_algorithm_that_releases_psi_without_noise_is_detected():
    Leaking.bare.clear()
    with pytest.raises(AssertionError):
        assert_algorithm(lambda data: personal(Leaking, data), DATA, [1e30])


def _sums(algorithm, monkeypatch, clip):
    """Sums of the messages of one step, with and without client 0."""
    with monkeypatch.context() as patched:
        if clip is not None:
            patched.setattr(clients, "clipped", clip)
        run = clients.Clients.of(
            algorithm,
            tn.Scheme(tn.GaussianNoise(1.0), LAWS[2], "add-remove"),
            SimulationStreams(1),
        )
        sent = algorithm.sent(algorithm.init(np.random.default_rng(0)))
        return [run.updates(sent, np.arange(first, 4), 0, {})[0].total for first in (0, 1)]


def test_model_and_psi_update_of_a_client_together_have_at_most_the_clip_norm(monkeypatch):
    algorithm = personal(AdaPeD, psi_rate=1.0, psi_weight=50.0, shared_rate=20.0)
    with_it, without = _sums(algorithm, monkeypatch, None)
    assert 0.99 <= np.linalg.norm(with_it - without) <= 1 + 1e-9
    assert 0 < abs(with_it[-1] - without[-1]) < 1

    def bare(update, bound):
        total = whole(update, bound).copy()
        total[-1] = update[-1]
        return total

    whole = clients.clipped
    with_it, without = _sums(algorithm, monkeypatch, bare)
    assert np.linalg.norm(with_it - without) > 2


@pytest.mark.parametrize(
    ("kind", "law"), [*((AdaPeD, law) for law in LAWS), (Ridge, LAWS[0]), (Alone, LAWS[2])]
)
def test_personal_models_learn_and_a_resumed_run_gives_the_same_bits(kind, law, tmp_path):
    store = FileCheckpoints(tmp_path / "run.npz")
    whole = simulated(personal(kind), law).run()

    def halt(progress):
        if progress.step == 3:
            raise KeyboardInterrupt

    simulated(personal(kind), law).run(checkpoints=store, on_progress=halt)
    rest = simulated(personal(kind), law).run(from_checkpoint=store.load())
    assert rest.clients
    assert rest.clients.keys() == whole.clients.keys()
    for client, state in rest.clients.items():
        assert np.array_equal(state["model"], whole.clients[client]["model"])
    assert np.array_equal(rest.parameters, whole.parameters)
    assert whole.history.metrics["loss"][-1] < whole.history.metrics["loss"][0]


def test_personal_models_without_a_shared_model_do_not_depend_on_the_noise():
    run = simulated(personal(Alone), LAWS[2], noise=100.0).run()
    assert not run.parameters.any()
    quiet = simulated(personal(Alone), LAWS[2], noise=0.01).run()
    for client, state in run.clients.items():
        assert np.array_equal(state["model"], quiet.clients[client]["model"])


def test_personal_models_learn_permuted_labels_better_than_the_shared_model():
    metrics = {}
    for kind in (AdaPeD, Ridge):
        algorithm = personal(kind, [0.0] * 4, local=LocalTraining(25, 2.0))
        metrics[kind] = simulated(algorithm, tn.EveryStep(4), noise=0.01).run().history.metrics
    for kind, columns in metrics.items():
        assert columns["personal_accuracy"][-1] >= columns["shared_accuracy"][-1] + 0.2, kind


def test_a_distillation_step_agrees_with_numerical_gradients():
    algorithm = personal(AdaPeD, local=LocalTraining(1, 0.5), shared_rate=0.25, psi=2.0)
    rng = np.random.default_rng(1)
    shared, own = rng.normal(size=(2, CLASSES * 3)).astype(np.float32)
    state = {"model": own, "steps": np.array(1)}
    sent = np.append(shared, np.float32(2.0))
    update, after = algorithm.client_update(sent, state, 0, rng)

    def gap(theta, mu):
        mine, theirs = _answers(algorithm, theta), _answers(algorithm, mu)
        return (np.exp(theirs) * (theirs - mine)).sum(-1).mean()

    def fit(theta):
        answers = _answers(algorithm, theta)
        return -answers[np.arange(EACH), np.arange(EACH) // 2].mean()

    objective = lambda theta: fit(theta) + gap(theta, shared) / 4  # noqa: E731
    assert after["model"] == pytest.approx(own - 0.5 * _slope(objective, own), abs=2e-5)
    pull = _slope(lambda mu: gap(own, mu) / 4, shared)
    assert update[:-1] == pytest.approx(0.25 * pull, abs=2e-5)
    slope = 1 / 4 - gap(own, shared) / 8
    assert update[-1] == pytest.approx(0.05 * slope, abs=1e-5)


@pytest.mark.parametrize("kind", [*KINDS, Alone])
def test_steps_of_a_personal_model_lower_the_objective_of_its_client(kind):
    moving = {"psi": 0.5, "shared_rate": 50.0}
    settings = {AdaPeD: moving, Ridge: {"strength": 2.0}, Alone: {}}[kind]
    algorithm = personal(kind, finish=2, local=LocalTraining(1, 0.25), **settings)
    shared = np.random.default_rng(1).normal(size=CLASSES * 3).astype(np.float32)
    own = shared.astype(np.float64)

    def objective(theta):
        mine, theirs = _answers(algorithm, theta), _answers(algorithm, shared)
        drawn = {
            AdaPeD: (np.exp(theirs) * (theirs - mine)).sum(-1).mean(),
            Ridge: np.square(theta - shared).sum(),
            Alone: 0.0,
        }
        return drawn[kind] - mine[np.arange(EACH), np.arange(EACH) // 2].mean()

    for _ in range(2):
        own = own - 0.25 * _slope(objective, own)
    sent = torch.tensor(np.append(shared, np.float32(0.5)) if kind is AdaPeD else shared)
    begun, expected = torch.tensor(shared)[None], pytest.approx(own, abs=2e-5)
    assert algorithm._finished(begun, sent, np.array([0]))[0].numpy() == expected
    if kind is AdaPeD:  # a copy of the shared model that moves leads elsewhere
        while_it_moves = replace(algorithm, local=LocalTraining(2, 0.25))
        assert while_it_moves._worked(begun, sent, np.array([0]))[0][0].numpy() != expected


def _answers(algorithm, parameters):
    """Logarithms of the predicted probabilities for client 0, in double precision."""
    logits = algorithm.task.model.logits(
        torch.tensor(np.asarray(parameters, np.float64)),
        algorithm.task.held(np.array([0])).inputs[0].double(),
    )
    return logits.log_softmax(-1).numpy()


def _slope(function, at):
    """Gradient of a function by central differences."""
    steps = 1e-5 * np.eye(at.size)
    at = at.astype(np.float64)
    return np.array([(function(at + step) - function(at - step)) / 2e-5 for step in steps])


@pytest.mark.parametrize(
    ("kind", "settings", "name"),
    [
        (AdaPeD, {"psi": 0.0}, "psi"),
        (AdaPeD, {"psi": 0.01}, "psi"),
        (AdaPeD, {"psi": float("nan")}, "psi"),
        (AdaPeD, {"psi_rate": -1.0}, "psi_rate"),
        (AdaPeD, {"shared_rate": 0.0}, "shared_rate"),
        (AdaPeD, {"finish": -1}, "finish"),
        (Ridge, {"strength": 0.0}, "strength"),
    ],
)
def test_settings_of_personal_algorithms_out_of_range_are_refused(kind, settings, name):
    with pytest.raises(ParameterError, match=name):
        personal(kind, **settings)
    with pytest.raises(ParameterError, match="steps"):
        LocalTraining(0, 1.0)
    with pytest.raises(ParameterError, match="clip_norm"):
        replace(personal(kind), clip_norm=0.0)


@pytest.mark.parametrize("law", [tn.KSubset(4, 2), tn.FixedSize(2, 4, 4)])
def test_participations_without_an_analysis_of_client_states_are_refused(law):
    with pytest.raises(UnsupportedError, match="remember earlier steps"):
        simulated(personal(AdaPeD), law)


def test_personal_algorithms_refuse_clients_without_examples():
    task = personal(AdaPeD).task
    empty = Holdings(np.array([0, 0, 2, 3, 4]), np.arange(4))
    with pytest.raises(ParameterError, match="tested"):
        PersonalTask(
            task.model, task._examples, task._held_out, holdings=task._holdings, tested=empty
        )
    with pytest.raises(ParameterError, match="held_out"):
        judged_on_own_classes(
            task._examples.labels, task._holdings, np.full(3, 9), 2, np.random.default_rng(0)
        )
