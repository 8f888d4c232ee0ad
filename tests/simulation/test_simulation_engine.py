"""The engine runs the steps of a scheme, and refuses algorithms that break its rules."""

import numpy as np
import pytest
from numpy_task import MeanTask, Momentum
from simulation_cases import LAWS, POPULATION, same_run, simulation

from turnout.core.aggregates import UpdateSum
from turnout.core.errors import LocalProtocolError, ParameterError, RemoteProtocolError
from turnout.learning.algorithm import FedSGD
from turnout.participation.drawing import draw_run, expected_check_ins
from turnout.randomness import SimulationStreams
from turnout.schemes import (
    CheckIn,
    EveryStep,
    FixedSize,
    GaussianNoise,
    PoissonSampling,
    Relation,
    ReleaseRule,
    Scheme,
)
from turnout.simulation import Simulation

AGGREGATED, ONE_CLIENT, AVERAGED = ReleaseRule


@pytest.mark.parametrize("release", ReleaseRule)
@pytest.mark.parametrize("law", LAWS)
def test_every_participation_runs_with_every_release_rule(law, release):
    result = simulation(LAWS[law], release).run()
    history = result.history
    assert result.finished
    assert result.steps_done == LAWS[law].steps == history.check_ins.size
    schedule_counts = np.concatenate(
        [s.counts() for s in draw_run(LAWS[law], POPULATION, SimulationStreams(1))]
    )
    np.testing.assert_array_equal(history.check_ins, schedule_counts)
    empty = schedule_counts == 0
    served = np.minimum(schedule_counts, 1) if release is ONE_CLIENT else schedule_counts
    np.testing.assert_array_equal(history.served, served)
    np.testing.assert_array_equal(history.skipped, empty & (release is AVERAGED))
    np.testing.assert_array_equal(history.dummy, empty & (release is not AVERAGED))
    assert history.participations == schedule_counts.sum()
    assert history.dummy_steps + history.skipped_steps == empty.sum()
    assert np.isfinite(result.parameters).all()


def test_equal_arguments_give_the_same_bits_and_another_seed_gives_other_bits():
    law = LAWS["check-in"]
    first = simulation(law).run()
    assert same_run(first, simulation(law).run())
    assert not np.array_equal(first.parameters, simulation(law, seed=2).run().parameters)


def test_updates_are_computed_only_for_participating_clients():
    task = MeanTask(POPULATION)
    law = LAWS["check-in"]
    simulation(law, task=task).run()
    came = [
        s.at(step).tolist()
        for s in draw_run(law, POPULATION, SimulationStreams(1))
        for step in range(s.first_step, s.first_step + s.steps)
    ]
    together = [clients for clients in came if clients]
    assert [clients for clients in task.asked if len(clients) > 1] == [
        clients for clients in together if len(clients) > 1
    ]
    alone = {client for clients in task.asked if len(clients) == 1 for client in clients}
    assert alone <= {client for clients in together for client in clients}


def test_a_simulation_with_little_noise_learns():
    result = simulation(CheckIn(window=5, windows=30), sigma=0.01).run()
    assert result.history.metrics["loss"][-1] < 0.1 * result.history.metrics["loss"][0]


def test_one_simulated_step_agrees_with_a_computation_by_hand():
    """One step gives w − rate · (Σ clipped + σC z) / n̄, with z from the stream of noise."""
    task = MeanTask(8)
    result = simulation(
        FixedSize(3, 8, 1), sigma=2.0, task=task, expected_check_ins=4.0, evaluate_every=1
    ).run()
    streams = SimulationStreams(1)
    start = task.initial_parameters(streams.generator("initial parameters"))
    noise = 2.0 * streams.generator("noise", 0).standard_normal(3)
    total = task.clipped_sum(start, np.array(task.asked[0]), 1.0).total
    expected = start - np.float32(0.3) * ((total + noise) / 4.0).astype(np.float32)
    np.testing.assert_array_equal(result.parameters, expected.astype(np.float32))


def test_the_model_changes_only_at_the_end_of_a_minibatch():
    law = CheckIn(window=5, windows=2)
    task = MeanTask(POPULATION)
    run = simulation(law, ONE_CLIENT, minibatch=4, task=task, evaluate_every=1).run()
    loss = run.history.metrics["loss"]
    moved = (np.diff(loss) != 0).tolist()
    assert moved == [False, False, False, True] * 2 + [False, False]


class Told(Momentum):
    """Optimizer that records the argument ``step`` of each update."""

    def update(self, parameters, state, direction, step):
        TOLD.append(step)
        return super().update(parameters, state, direction, step)


TOLD = []


def test_the_optimizer_receives_the_number_of_earlier_model_updates():
    TOLD.clear()
    run = simulation(CheckIn(window=11), ONE_CLIENT, minibatch=2, optimizer=Told())
    run.run()
    assert TOLD == list(range(run.moves)) == [0, 1, 2, 3, 4]


def test_evaluation_uses_the_parameters_that_would_be_released():
    law, task = CheckIn(window=6), MeanTask(POPULATION)
    seen = []
    task.evaluate = lambda parameters: (
        seen.append(parameters.copy()) or MeanTask.evaluate(task, parameters)
    )
    averaged = simulation(law, task=task, optimizer=Momentum(average=True), evaluate_every=1).run()
    plain = simulation(law, evaluate_every=1).run()
    np.testing.assert_array_equal(averaged.parameters, seen[-1])
    assert not np.array_equal(averaged.parameters, plain.parameters)
    assert averaged.history.metrics["loss"][-1] != plain.history.metrics["loss"][-1]


def test_evaluation_runs_at_the_start_every_k_steps_and_at_the_end():
    history = simulation(CheckIn(window=12), evaluate_every=5).run().history
    assert history.step.tolist() == [0, 5, 10, 12]
    history = simulation(CheckIn(window=10), evaluate_every=5).run().history
    assert history.step.tolist() == [0, 5, 10]
    assert (np.diff(history.seconds) >= 0).all()


def test_progress_is_reported_after_every_step():
    seen = []
    law = CheckIn(window=4)
    result = simulation(law, evaluate_every=3).run(on_progress=seen.append)
    assert [p.step for p in seen] == [0, 1, 2, 3, 4]
    assert [p.evaluation is not None for p in seen] == [True, False, False, True, True]
    assert [p.check_ins for p in seen[1:]] == result.history.check_ins.tolist()
    assert seen[-1].participations == result.history.participations
    assert {p.steps for p in seen} == {4}


def test_the_divisor_defaults_to_the_mean_expected_number_of_check_ins():
    law = LAWS["availability"]
    explicit = float(expected_check_ins(law, POPULATION).mean())
    by_default = simulation(law).run()
    assert same_run(by_default, simulation(law, expected_check_ins=explicit).run())


class UnclippedTask(MeanTask):
    """Faulty task that clips single clients but not groups, so only a check of sums detects it."""

    def clipped_sum(self, parameters, clients, clip_norm):
        factor = 0.1 if clients.size == 1 else 10.0
        return UpdateSum(np.full(self.dimension, factor * clients.size), clients.size)


def test_a_task_that_does_not_clip_is_stopped():
    with pytest.raises(RemoteProtocolError, match="not clipped"):
        simulation(CheckIn(window=3), task=UnclippedTask()).run()


class TwiceAsLong(MeanTask):
    """Faulty task that clips to twice the clip norm, with updates of opposite directions."""

    def clipped_sum(self, parameters, clients, clip_norm):
        signs = np.where(clients % 2, 1.0, -1.0)
        updates = np.zeros((clients.size, self.dimension))
        updates[:, 0] = 2 * clip_norm * signs
        return UpdateSum(updates.sum(axis=0), clients.size)


class Unchecked(FedSGD):
    """Federated SGD without a check of the clip norm."""

    def __post_init__(self):
        pass


def test_the_engine_uses_the_clip_norm_of_the_algorithm_and_accepts_no_other():
    """With clip norm 0.5 and noise for 0.25, the reported ε would be 3.37 in place of 13.4."""
    scheme = Scheme(GaussianNoise(1.0), CheckIn(window=3), Relation.ADD_REMOVE)
    algorithm = FedSGD(MeanTask(POPULATION), Momentum(), 0.5)
    with pytest.raises(TypeError, match="clip_norm"):
        Simulation(scheme, algorithm, clip_norm=0.25, seed=1, evaluate_every=5)
    built = Simulation(scheme, algorithm, seed=1, evaluate_every=5)
    assert built._setup.mechanism.deviation == 0.5


def test_a_task_that_exceeds_its_clip_norm_is_stopped():
    law = EveryStep(2)
    task = TwiceAsLong(POPULATION)
    everybody = task.clipped_sum(np.zeros(task.dimension), np.arange(POPULATION), 1.0)
    assert np.linalg.norm(everybody.total) < POPULATION  # so a check of the sum cannot detect it
    with pytest.raises(LocalProtocolError, match="client 0's update has norm 2"):
        simulation(law, task=task).run()


def test_a_clip_norm_that_changes_during_the_run_is_refused():
    class Growing(FedSGD):
        def evaluate(self, state, clients=None):
            object.__setattr__(self, "clip_norm", 2 * self.clip_norm)
            return super().evaluate(state, clients)

    with pytest.raises(LocalProtocolError, match=r"2\.0, but the noise of the run is scaled by 1"):
        simulation(EveryStep(2), algorithm=Growing(MeanTask(), Momentum(), 1.0)).run()


def test_the_clip_norm_of_single_clients_is_checked_between_evaluations():
    task = MeanTask(POPULATION)
    simulation(EveryStep(10), task=task, evaluate_every=5).run()
    alone = [len(clients) for clients in task.asked]
    assert alone == [POPULATION, *[1] * 8, *[POPULATION] * 4] * 2


@pytest.mark.parametrize("clip_norm", [0.0, -1.0, np.nan, np.inf, None, "1.0", True])
def test_an_algorithm_without_a_clip_norm_is_refused(clip_norm):
    with pytest.raises(ParameterError, match="clip_norm"):
        simulation(EveryStep(2), clip_norm=clip_norm)
    with pytest.raises(ParameterError, match="clip_norm"):
        simulation(EveryStep(2), algorithm=Unchecked(MeanTask(), Momentum(), clip_norm))


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"expected_check_ins": 0.0}, "expected_check_ins"),
        ({"expected_check_ins": np.inf}, "expected_check_ins"),
        ({"expected_check_ins": "5"}, "expected_check_ins"),
        ({"expected_check_ins": True}, "expected_check_ins"),
        ({"minibatch": 0}, "minibatch"),
        ({"minibatch": 3}, "minibatch"),
        ({"evaluate_every": 0}, "evaluate_every"),
        ({"seed": -1}, "seed"),
    ],
)
def test_invalid_settings_of_a_simulation_are_refused_before_the_run(options, name):
    with pytest.raises(ParameterError, match=name):
        simulation(CheckIn(window=3), **options)


def test_a_participation_for_another_population_is_refused():
    for release in ReleaseRule:
        with pytest.raises(ParameterError, match="population"):
            simulation(FixedSize(3, POPULATION + 1, 2), release)


def test_the_cost_of_a_simulation_does_not_grow_with_the_population():
    """Of a billion clients only a few take part, and no array has the population's size."""

    class Crowd(MeanTask):
        def __init__(self):
            super().__init__(population=10)
            self.population = 10**9

        def clipped_sum(self, parameters, clients, clip_norm):
            return super().clipped_sum(parameters, clients % 10, clip_norm)

    result = simulation(PoissonSampling(5e-9, 6), task=Crowd()).run()
    assert result.finished
    assert result.history.participations < 200
