"""The engine clips the updates of single clients and keeps the states of clients apart."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from numpy_task import MeanTask, MemoryCheckpoints, Momentum
from simulation_cases import LAWS, POPULATION, same_run, simulation

from turnout.core.errors import LocalProtocolError, ParameterError, UnsupportedError
from turnout.learning.algorithm import FedSGD
from turnout.protocol.mechanisms import Clipping
from turnout.schemes import EveryStep, FixedAssignment, ReleaseRule
from turnout.simulation import FileCheckpoints
from turnout.simulation.clients import clipped

COVERED = ["every step", "poisson", "self-sampling", "check-in", "sliding", "availability"]
OTHERS = ["fixed size", "k-subset"]


@dataclass(frozen=True)
class Counting:
    """Algorithm whose clients send their point times the number of their participations."""

    points: np.ndarray
    clip_norm: float = 1.0
    remembers: bool = True

    @property
    def population(self):
        return len(self.points)

    @property
    def dimension(self):
        return self.points.shape[1]

    def init(self, generator):
        return {"model": np.zeros(self.dimension)}

    def sent(self, state):
        return state["model"]

    model = sent

    def init_client(self, client):
        return {"count": np.array(0), "drawn": np.zeros(2)} if self.remembers else None

    def client_update(self, sent, client_state, client, generator):
        if not self.remembers:
            return self.points[client], None
        count, drawn = client_state["count"] + 1, generator.random(2)
        return 0.01 * count * self.points[client] + drawn[0], {"count": count, "drawn": drawn}

    def server_update(self, state, direction, move):
        return {"model": state["model"] + direction}

    def evaluate(self, state, clients=None):
        return {"steps": sum(int(own["count"]) for own in (clients or {}).values())}


def counting(kind=Counting, **fields):
    return kind(np.random.default_rng(0).normal(size=(POPULATION, 3)), **fields)


@pytest.mark.parametrize("law", COVERED)
def test_a_resumed_run_restores_the_states_of_all_clients(law, tmp_path):
    store, file = MemoryCheckpoints(), FileCheckpoints(tmp_path / "run.npz")
    whole = simulation(LAWS[law], algorithm=counting()).run(checkpoints=store)
    assert whole.history.metrics["steps"][-1] == whole.history.participations
    counts = {client: int(own["count"]) for client, own in whole.clients.items()}
    assert sum(counts.values()) == whole.history.served.sum()
    for checkpoint in store.kept[::5]:
        file.save(checkpoint)
        again = simulation(LAWS[law], algorithm=counting())
        assert same_run(whole, again.run(from_checkpoint=file.load()))


def test_a_run_resumed_without_the_states_of_clients_is_detected():
    store = MemoryCheckpoints()
    whole = simulation(LAWS["poisson"], algorithm=counting()).run(checkpoints=store)
    forgotten = replace(store.kept[6], clients={})
    again = simulation(LAWS["poisson"], algorithm=counting()).run(from_checkpoint=forgotten)
    with pytest.raises(AssertionError):
        same_run(whole, again)


def test_a_custom_store_of_client_states_is_cleared_and_used():
    mine = {3: {"count": np.array(99), "drawn": np.zeros(2)}}
    run = simulation(EveryStep(3), algorithm=counting())
    result = run.run(client_store=mine)
    assert same_run(result, run.run())
    assert {int(own["count"]) for own in result.clients.values()} == {3}
    assert mine.keys() == result.clients.keys()


def test_ctrl_c_within_a_step_keeps_the_client_states_of_the_previous_step():
    class Stopping(Counting):
        def client_update(self, sent, client_state, client, generator):
            if client == 40 and client_state["count"] == 2:
                raise KeyboardInterrupt
            return super().client_update(sent, client_state, client, generator)

    part = simulation(EveryStep(5), algorithm=counting(Stopping)).run()
    assert (part.finished, part.steps_done) == (False, 2)
    assert {int(own["count"]) for own in part.clients.values()} == {2}


@pytest.mark.parametrize("law", OTHERS)
def test_participations_without_an_analysis_refuse_clients_with_states(law):
    with pytest.raises(UnsupportedError, match="remember earlier steps is not known for"):
        simulation(LAWS[law], algorithm=counting())
    assert simulation(LAWS[law], algorithm=counting(remembers=False)).run().finished


@pytest.mark.parametrize("release", [ReleaseRule.ONE_CLIENT, ReleaseRule.AVERAGED])
def test_other_release_rules_refuse_clients_with_states(release):
    with pytest.raises(UnsupportedError, match=f"not known for {release.value} releases"):
        simulation(LAWS["check-in"], release, algorithm=counting())


def test_clients_with_states_are_accepted_under_fixed_assignment():
    assert simulation(FixedAssignment(4, 3, 0.5), algorithm=counting()).run().finished


def test_client_states_whose_layout_changes_are_refused():
    class Longer(Counting):
        def client_update(self, sent, client_state, client, generator):
            update, after = super().client_update(sent, client_state, client, generator)
            return update, after | {"drawn": np.zeros(2 + client)}

    class Some(Counting):
        def init_client(self, client):
            return None if client else super().init_client(client)

    class Late(Counting):
        def init_client(self, client):
            return None

        def client_update(self, sent, client_state, client, generator):
            return sent, {"count": np.array(1)}

    for kind in (Longer, Some, Late):
        with pytest.raises(LocalProtocolError, match=r"client \d+'s state has other names"):
            simulation(EveryStep(2), algorithm=counting(kind)).run()


def test_a_batched_algorithm_with_client_states_is_refused():
    class Both(FedSGD):
        def init_client(self, client):
            return {"count": np.array(0)}

    with pytest.raises(ParameterError, match="without clipped_sum"):
        simulation(EveryStep(2), algorithm=Both(MeanTask(), Momentum(), 1.0))


@pytest.mark.parametrize("size", [1e-3, 1.0, 7.0, 1e150])
def test_the_engine_clips_the_update_of_each_client(size):
    update = size * np.array([0.6, 0.0, -0.8])
    found = clipped(update, Clipping(3, 2.0))
    np.testing.assert_allclose(found, update * min(1.0, 2.0 / size), rtol=1e-12)
    assert np.array_equal(found, update) or size > 2.0


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e200])
def test_an_update_that_is_not_finite_is_replaced_by_zero(value):
    assert not clipped(np.array([1.0, value]), Clipping(2, 2.0)).any()


def test_an_update_of_another_length_is_refused():
    with pytest.raises(LocalProtocolError, match="3 finite numbers"):
        clipped(np.zeros(2), Clipping(3, 1.0))


def test_updates_that_an_algorithm_did_not_clip_are_clipped_by_the_engine():
    """With tiny σ the first model is the mean of the clipped points."""
    algorithm = counting(remembers=False, clip_norm=0.01)
    result = simulation(EveryStep(1), algorithm=algorithm, sigma=1e-9).run()
    units = algorithm.points / np.linalg.norm(algorithm.points, axis=1, keepdims=True)
    np.testing.assert_allclose(result.parameters, 0.01 * units.mean(axis=0), atol=1e-9)


def test_metrics_whose_names_change_between_evaluations_are_refused():
    class Renaming(Counting):
        def evaluate(self, state, clients=None):
            return {f"after {len(clients)}": 1.0}

    with pytest.raises(LocalProtocolError, match="metrics are after"):
        simulation(EveryStep(6), algorithm=counting(Renaming)).run()
