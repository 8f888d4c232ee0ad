"""Messages that clients randomize themselves: their means, and settings that are refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import turnout as tn
from turnout.core.errors import (
    ParameterError,
    RemoteProtocolError,
    StorageError,
    UnsupportedError,
)
from turnout.learning.algorithm import FedSGD, RecordSGD
from turnout.learning.examples import Examples
from turnout.learning.holdings import Holdings
from turnout.learning.local_updates import LocalTraining, SingleUpdates, VmappedUpdates
from turnout.learning.models import build_model
from turnout.learning.optimizers import SGD
from turnout.learning.tasks import SupervisedTask
from turnout.protocol.randomized import Randomized
from turnout.randomizers.vectors import (
    L1Randomizer,
    L2Randomizer,
    LInfRandomizer,
    PrivUnit,
    SphericalCode,
    VectorRandomizer,
)
from turnout.randomness import SimulationStreams
from turnout.schemes import RepeatedMessages, Scheme
from turnout.schemes.scheme import shuffled
from turnout.simulation import FileCheckpoints, Simulation
from turnout.simulation.clients import MessagingClients

CLIENTS, FEATURES, CLASSES = 40, 3, 2
DIMENSION = (FEATURES + 1) * CLASSES
KINDS: dict[str, Any] = {
    "l1": L1Randomizer,
    "l2": L2Randomizer.rotated,
    "linf": LInfRandomizer,
    "privunit": PrivUnit,
}
ROUNDS = 300


def learned(radius: float, holdings: Holdings | None = None) -> FedSGD:
    random = np.random.default_rng(3)
    inputs = random.normal(size=(CLIENTS, FEATURES)).astype(np.float32)
    examples = Examples(inputs, (inputs[:, 0] > 0).astype(np.int64))
    model = build_model("logistic", (FEATURES,), CLASSES)
    task = SupervisedTask(model, examples, examples, holdings=holdings)
    return FedSGD(task, SGD(0.5), radius)


def scheme(randomizer: VectorRandomizer, rounds: int = 1) -> Scheme:
    return shuffled(randomizer.priced_as, CLIENTS, rounds)


def simulation(randomizer: VectorRandomizer, rounds: int = 4, **changes: Any) -> Simulation:
    settings: dict[str, Any] = {
        "scheme": scheme(randomizer, rounds),
        "algorithm": learned(randomizer.radius),
        "messages": randomizer,
        "seed": 1,
        "evaluate_every": 2,
    }
    return Simulation(**(settings | changes))


def rows_of(algorithm: FedSGD, sent: np.ndarray, ids: np.ndarray) -> np.ndarray:
    return np.concatenate(list(algorithm.updates(sent, ids, lambda first, rows: rows)))


@pytest.mark.parametrize("kind", KINDS)
def test_the_mean_of_decoded_messages_is_the_clipped_sum(kind):
    randomizer = KINDS[kind](DIMENSION, 3.0, 0.2)
    algorithm, ids = learned(0.2), np.arange(CLIENTS)
    sent = np.zeros(DIMENSION, np.float32)
    clients = MessagingClients.of(algorithm, scheme(randomizer), randomizer, SimulationStreams(1))
    mechanism = Randomized(randomizer, CLIENTS)
    sums = np.array(
        [
            mechanism.release(clients.updates(sent, ids, k, {})[0], {}, k, no_noise)[0].direction
            for k in range(ROUNDS)
        ]
    )
    values = randomizer.constrained(rows_of(algorithm, sent, ids))
    errors = sums.std(axis=0) / np.sqrt(len(sums))
    bias = np.abs(randomizer.bias(values))
    assert (np.abs(sums.mean(axis=0) - values.mean(axis=0)) < 5 * errors + bias).all()
    wrong = np.abs(sums.mean(axis=0) - 2 * values.mean(axis=0)) > 5 * errors + bias
    assert wrong.any()  # negative control: a sum of another scale would have been seen


def no_noise(deviation: float, dimension: int) -> np.ndarray:
    raise AssertionError("the coordinator adds no noise to messages")


@pytest.mark.parametrize(
    ("norm", "kind"), [(1, L1Randomizer), (2, PrivUnit), (np.inf, LInfRandomizer)]
)
def test_updates_are_clipped_in_the_norm_of_the_randomizer(norm, kind):
    random, randomizer = np.random.default_rng(1), kind(6, 1.0, 0.5)
    rows = random.normal(size=(50, 6)) * np.geomspace(1e-3, 1e100, 50)[:, None]
    found = randomizer.constrained(rows)
    norms = np.linalg.norm(found, ord=norm, axis=1)
    assert (norms <= 0.5 * (1 + 1e-12)).all()
    small = np.linalg.norm(rows, ord=norm, axis=1) <= 0.5
    assert small.any()
    assert (found[small] == rows[small]).all()
    broken = rows.copy()
    broken[3, 2], broken[7, 1] = np.nan, np.inf
    again = randomizer.constrained(broken)
    assert not again[[3, 7]].any()
    assert (np.delete(again, [3, 7], axis=0) == np.delete(found, [3, 7], axis=0)).all()


@pytest.mark.parametrize("samples", [1, 2])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_clipping_only_the_sampled_coordinates_gives_the_same_messages(samples, dtype):
    """The messages have the bits of messages of clipped updates; some updates are not finite."""
    randomizer = LInfRandomizer(6, 2.0, 0.3, samples=samples, levels=2)
    rows = np.random.default_rng(2).normal(size=(400, 6)).astype(dtype)
    rows[3, 2], rows[7, 1], rows[9, 5] = np.nan, np.inf, -np.inf
    rows[11] = np.finfo(np.float32).max  # finite, but its sum in float32 is not
    source = SimulationStreams(3).source
    found = randomizer.encode_updates(rows, source("message", 1))
    whole = randomizer.encode(randomizer.constrained(rows), source("message", 1))
    assert (found == whole).all()
    unclipped = randomizer.bits.encode(
        np.nan_to_num(rows, posinf=0, neginf=0), source("message", 1)
    )
    assert (unclipped != whole).any()  # negative control: the radius matters
    with pytest.raises(ParameterError, match=r"clients, 6"):
        randomizer.encode_updates(rows[:, :5], source("message", 1))


def test_randomizers_refuse_updates_that_were_clipped_in_another_norm():
    """A vector with an ℓ∞ norm below the radius may have a larger ℓ2 norm."""
    with pytest.raises(ParameterError, match="norms of at most"):
        PrivUnit(6, 1.0, 0.5).encode(
            LInfRandomizer(6, 1.0, 0.5).constrained(np.ones((1, 6))),
            SimulationStreams(1).source("message"),
        )


@pytest.mark.parametrize("kind", [VmappedUpdates, SingleUpdates, None])
def test_updates_of_single_clients_add_up_to_the_sum(kind):
    owners = np.repeat(np.arange(CLIENTS // 2), 2)
    holdings = Holdings.from_owners(owners, CLIENTS)
    algorithm = learned(1e6, holdings)
    task = algorithm.task
    assert isinstance(task, SupervisedTask)
    if kind is not None:
        loss = VmappedUpdates(task.model, LocalTraining()).loss
        task._updates = kind(task.model, LocalTraining(), loss)
    at, ids = np.full(DIMENSION, 0.1, np.float32), np.arange(5, 30)
    rows = rows_of(algorithm, at, ids)
    assert rows.shape == (15, DIMENSION)  # ten clients have no examples
    assert np.allclose(rows.sum(axis=0), algorithm.clipped_sum(at, ids).total, atol=1e-5)


def test_clients_without_records_also_send_messages():
    owners = np.repeat(np.arange(CLIENTS // 2), 2)
    algorithm = learned(0.2, Holdings.from_owners(owners, CLIENTS))
    randomizer = LInfRandomizer(DIMENSION, 2.0, 0.2)
    clients = MessagingClients.of(algorithm, scheme(randomizer), randomizer, SimulationStreams(1))
    sent = np.zeros(DIMENSION, np.float32)
    total, _ = clients.updates(sent, np.arange(CLIENTS), 0, {})
    assert total.count == total.noised == CLIENTS


def test_a_sum_with_an_update_that_is_not_randomized_is_refused():
    mechanism = Randomized(LInfRandomizer(DIMENSION, 2.0, 0.2), 1.0)
    total = mechanism.encode(np.zeros(DIMENSION), SimulationStreams(1).source("message"))
    mechanism.require(total)
    with pytest.raises(RemoteProtocolError, match="not randomized by its client"):
        mechanism.require(total + type(total)(np.zeros(DIMENSION), 1))
    with pytest.raises(RemoteProtocolError, match="not a sum of randomized messages"):
        mechanism.require(type(total)(np.zeros(DIMENSION + 1), 1, 1))


def test_a_resumed_simulation_with_messages_has_the_same_bits(tmp_path):
    randomizer = LInfRandomizer(DIMENSION, 2.0, 0.2)
    whole = simulation(randomizer).run()
    store = FileCheckpoints(tmp_path / "run.npz")

    def stop(progress: Any) -> None:
        if progress.step == 2:
            raise KeyboardInterrupt

    simulation(randomizer).run(on_progress=stop, checkpoints=store)
    checkpoint = store.load()
    assert checkpoint is not None
    assert checkpoint.step == 2
    again = simulation(randomizer).run(from_checkpoint=checkpoint)
    assert (again.parameters == whole.parameters).all()
    other = LInfRandomizer(DIMENSION, 2.0, 0.2, variant="as-printed")
    with pytest.raises(StorageError, match="settings"):
        simulation(replace(other, epsilon=1.0)).run(from_checkpoint=checkpoint)


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"scheme": replace(scheme(PrivUnit(8, 1.0)), trust="central")}, "trust = 'central'"),
        ({"scheme": scheme(PrivUnit(DIMENSION, 1.0))}, "randomizer = "),
        ({"algorithm": learned(0.3)}, "messages.radius = 0.2: expected 0.3"),
        ({"messages": LInfRandomizer(9, 2.0, 0.2)}, "randomizer = |messages.dimension = 9"),
    ],
)
def test_messages_that_do_not_fit_the_scheme_raise_a_one_line_error(changes, line):
    with pytest.raises(ParameterError, match=line) as caught:
        simulation(LInfRandomizer(DIMENSION, 2.0, 0.2), **changes)
    assert "\n" not in str(caught.value)


def test_public_randomness_that_depends_on_the_number_of_a_client_is_refused():
    with pytest.raises(UnsupportedError, match="depends on the client's number"):
        simulation(SphericalCode(DIMENSION, 2.0, 0.2))
    public = LInfRandomizer(DIMENSION, 2.0, 0.2, public_seed=3)
    with pytest.raises(UnsupportedError, match="depends on the client's number"):
        simulation(public)


def test_every_client_sends_messages_and_the_scheme_has_an_epsilon():
    randomizer = LInfRandomizer(DIMENSION, 2.0, 0.2)
    run = tn.simulate(
        scheme(randomizer, 6), algorithm=learned(0.2), messages=randomizer, evaluate_every=6
    )
    assert (run.check_ins == CLIENTS).all()
    price = tn.price(scheme(randomizer, 6), delta=1e-3)
    assert 0 < price.epsilon.upper < 6 * 2.0


def test_messages_under_local_trust_have_more_epsilon_than_shuffled_messages():
    randomizer = LInfRandomizer(DIMENSION, 2.0, 0.2)
    mixed = scheme(randomizer, 4)
    local = replace(mixed, trust="local")
    one, other = (
        tn.simulate(each, algorithm=learned(0.2), messages=randomizer, evaluate_every=4)
        for each in (mixed, local)
    )
    assert (one.parameters == other.parameters).all()
    shuffled_price, local_price = (tn.price(each, delta=1e-3).epsilon for each in (mixed, local))
    assert shuffled_price.upper < 0.5 * local_price.lower
    assert local_price.upper <= 4 * 2.0


def of_records(radius: float, each: int = 4) -> RecordSGD:
    holdings = Holdings.from_owners(np.arange(CLIENTS) // each, CLIENTS // each)
    whole = learned(radius, holdings)
    return RecordSGD(whole.task, whole.optimizer, whole.clip_norm)


def test_the_records_drawn_for_messages_are_a_uniform_subset():
    holdings = Holdings.from_owners(np.array([0, 1, 1, 1, 1, 2, 2]), 3)
    generator = np.random.default_rng(1)
    drawn = holdings.sampled(np.full(24_000, 1), 2, generator)
    places, counts = np.unique(drawn, axis=0, return_counts=True)
    assert len(places) == 12  # ordered pairs of different ones
    assert ((counts - 2000) ** 2 / 2000).sum() < 40  # χ² with 11 degrees of freedom
    shifted = np.unique(np.sort(drawn, axis=1), axis=0, return_counts=True)[1]
    assert ((shifted - 2000) ** 2 / 2000).sum() > 40  # negative control: unordered pairs
    both = holdings.sampled(np.array([2, 1, 2]), 2, generator)
    assert set(both[0]) == set(both[2]) == {5, 6}
    with pytest.raises(ParameterError, match="at most 1"):
        holdings.sampled(np.array([1, 0]), 2, generator)


def test_the_update_for_a_drawn_record_depends_only_on_that_record():
    algorithm, alone = of_records(5.0), learned(5.0)
    sent, ids = np.full(DIMENSION, 0.1, np.float32), np.array([3, 0, 7])
    rows = rows_of(alone, sent, np.arange(CLIENTS))
    found = list(
        algorithm.record_updates(sent, ids, 4, np.random.default_rng(2), lambda j, _, each: each)
    )
    together = np.concatenate(found).reshape(4, 3, DIMENSION)
    for place, client in enumerate(ids):
        own = rows[4 * client : 4 * client + 4]
        order = [int(np.abs(own - each).sum(axis=1).argmin()) for each in together[:, place]]
        assert sorted(order) == [0, 1, 2, 3]
        np.testing.assert_allclose(together[:, place], own[order], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("of", [learned, of_records])
def test_several_messages_of_a_client_have_the_same_mean_and_less_variance(of):
    algorithm, sent = of(0.2), np.zeros(DIMENSION, np.float32)
    randomizer = LInfRandomizer(DIMENSION, 3.0, 0.2)
    ids = np.arange(algorithm.population)
    spread = {}
    for messages in (1, 4):
        law = (
            RepeatedMessages.of(randomizer.priced_as, messages)
            if messages > 1
            else randomizer.priced_as
        )
        scheme = shuffled(law, algorithm.population, 1)
        clients = MessagingClients.of(algorithm, scheme, randomizer, SimulationStreams(1))
        mechanism = Randomized(randomizer, ids.size, messages)
        assert mechanism.priced_as == law
        sums = np.array(
            [
                mechanism.release(clients.updates(sent, ids, k, {})[0], {}, k, no_noise)[
                    0
                ].direction
                for k in range(ROUNDS)
            ]
        )
        values = randomizer.constrained(rows_of(learned(0.2), sent, np.arange(CLIENTS)))
        errors = sums.std(axis=0) / np.sqrt(len(sums))
        assert (np.abs(sums.mean(axis=0) - values.mean(axis=0)) < 5 * errors).all()
        spread[messages] = sums.var(axis=0).sum()
    assert 3 < spread[1] / spread[4] < 5.4


def test_a_resumed_simulation_with_several_messages_has_the_same_bits(tmp_path):
    randomizer = LInfRandomizer(DIMENSION, 3.0, 0.2)
    law = RepeatedMessages.of(randomizer.priced_as, 2)
    settings = {"scheme": shuffled(law, CLIENTS // 4, 4), "algorithm": of_records(0.2)}
    store = FileCheckpoints(tmp_path / "run")
    whole = simulation(randomizer, **settings).run()

    def stop(progress):
        if progress.step == 2:
            raise KeyboardInterrupt

    simulation(randomizer, **settings).run(checkpoints=store, on_progress=stop)
    again = simulation(randomizer, **settings).run(from_checkpoint=store.load())
    assert np.array_equal(again.parameters, whole.parameters)
    fewer = settings | {"scheme": shuffled(randomizer.priced_as, CLIENTS // 4, 4)}
    with pytest.raises(StorageError):
        simulation(randomizer, **fewer).run(from_checkpoint=store.load())


def test_more_messages_than_records_of_a_client_are_refused():
    randomizer = LInfRandomizer(DIMENSION, 3.0, 0.2)
    scheme = shuffled(RepeatedMessages.of(randomizer.priced_as, 5), CLIENTS // 4, 1)
    with pytest.raises(ParameterError, match="at most 4, the smallest number of records"):
        simulation(randomizer, scheme=scheme, algorithm=of_records(0.2))
