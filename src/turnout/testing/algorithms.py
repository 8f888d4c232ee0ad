"""Conformance test of a federated algorithm: all properties on which the engine relies.

`assert_algorithm` is the test. A few clients and a model of a few numbers are enough.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from turnout.learning.algorithm import Algorithm, Batched, ClientState, ServerState
from turnout.randomness import SimulationStreams
from turnout.schemes import CheckIn, GaussianNoise, Relation, Scheme
from turnout.simulation import FileCheckpoints, Simulation, SimulationResult

Data = TypeVar("Data")
_Make = Callable[[Sequence[Data]], Algorithm]
_LAW = CheckIn(window=3, windows=3)
_SEED, _SLACK = 1, 1e-5
_STREAMS = SimulationStreams(_SEED)


def assert_algorithm(make: _Make[Data], data: Sequence[Data], hostile: Sequence[Data]) -> None:
    """Fail unless an algorithm has all properties of `turnout.learning.algorithm.Algorithm`.

    Args:
        make: function that returns the algorithm, given the clients' data, one entry per client.
        data: data of at least two clients, all different.
        hostile: data that a malicious client might hold, such as huge, non-finite or negative
            numbers. Each entry in turn is the data of client 0.

    Raises:
        AssertionError: the algorithm lacks a property, which the message names.
    """
    algorithm = make(data)
    population = algorithm.population
    assert population == len(data) >= 2, f"population = {population}: expected {len(data)}"
    _assert_nothing_is_changed(algorithm)
    _assert_clipped(make, data, hostile)
    _assert_own_data_only(make, data)
    _assert_server_sees_no_data(make, data, hostile)
    _assert_batches(algorithm)
    _assert_no_direction(algorithm)
    _assert_repeatable(make, data)


def _started(algorithm: Algorithm) -> ServerState:
    """Initial server state, from a fixed seed."""
    return algorithm.init(_STREAMS.generator("init"))


def _updated(algorithm: Algorithm, client: int) -> tuple[NDArray[Any], ClientState | None]:
    """Update and new state of a client in its first step or, if clients have states, its second."""
    sent, state = algorithm.sent(_started(algorithm)), algorithm.init_client(client)
    if state is not None:
        first = _STREAMS.generator("client", client, 0)
        _, state = algorithm.client_update(sent, state, client, first)
    second = _STREAMS.generator("client", client, 1)
    update, state = algorithm.client_update(sent, state, client, second)
    return np.asarray(update), state


def _same(one: Any, other: Any) -> bool:
    """Whether two results have the same names, shapes, types and bits."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, tuple):
        return all(map(_same, one, other))
    if one is None or other is None:
        return one is other
    first, second = np.asarray(one), np.asarray(other)
    return (first.dtype, first.shape) == (second.dtype, second.shape) and (
        first.tobytes() == second.tobytes()
    )


def _assert_nothing_is_changed(algorithm: Algorithm) -> None:
    """Require that each method leaves the given states unchanged."""
    state, clients = _started(algorithm), {0: algorithm.init_client(0)}
    kept = {name: np.array(array) for name, array in state.items()}
    own = None if clients[0] is None else {k: np.array(v) for k, v in clients[0].items()}
    sent = algorithm.sent(state)
    algorithm.client_update(sent, clients[0], 0, _STREAMS.generator("client", 0, 0))
    assert _same(own, clients[0]), "client_update changes the given client state in place"
    algorithm.server_update(state, np.ones(algorithm.dimension), 0)
    algorithm.evaluate(state, {})
    assert _same(kept, state), "a method changes the given server state in place"


def _assert_clipped(make: _Make[Data], data: Sequence[Data], hostile: Sequence[Data]) -> None:
    """Require that a client changes a sum by at most C, also with hostile data."""
    for held in hostile:
        algorithm = make([held, *data[1:]])
        limit = algorithm.clip_norm * (1 + _SLACK)
        assert 0 < limit < math.inf, f"clip_norm = {algorithm.clip_norm}: expected above 0, finite"
        if isinstance(algorithm, Batched):
            sent, everybody = algorithm.sent(_started(algorithm)), np.arange(len(data))
            alone = algorithm.clipped_sum(sent, everybody[:1]).total
            others = algorithm.clipped_sum(sent, everybody[1:]).total
            moved = algorithm.clipped_sum(sent, everybody).total - others
            norms = [float(np.linalg.norm(alone)), float(np.linalg.norm(moved))]
            assert max(norms) <= limit * (1 + _SLACK), (
                f"an update moves the sum by {max(norms)}: expected at most clip_norm"
            )
            assert np.isfinite(norms).all(), "an update is NaN or infinite"
        with np.errstate(all="ignore"):  # hostile numbers may overflow in their client's update
            result = _simulation(algorithm).run()
        assert np.isfinite(result.parameters).all(), (
            f"data {held} lead to a model that is not finite"
        )


def _assert_own_data_only(make: _Make[Data], data: Sequence[Data]) -> None:
    """Require that a client's update and state do not depend on other clients' data."""
    first, last = make(data), make([*data[:1], *data[2:], data[1]])
    same = _same(first.init_client(0), last.init_client(0))
    assert same, "a client's state depends on other clients' data"
    same = _same(_updated(first, 0), _updated(last, 0))
    assert same, "a client's update depends on other clients' data"
    moved = _updated(make([data[1], *data[1:]]), 0)
    assert not _same(_updated(first, 0), moved), "an update does not depend on the client's data"


def _assert_server_sees_no_data(
    make: _Make[Data], data: Sequence[Data], hostile: Sequence[Data]
) -> None:
    """Require that the server's results do not depend on clients' data."""
    direction = _STREAMS.generator("direction").normal(size=make(data).dimension)
    seen: list[tuple[object, ...]] = []
    for held in (data, [*data[1:], data[0]], [hostile[0], *data[1:]]):
        algorithm = make(held)
        state = _started(algorithm)
        after = algorithm.server_update(state, direction, 0)
        seen.append((state, after, algorithm.sent(after), algorithm.model(after)))
    assert all(_same(seen[0], other) for other in seen[1:]), "the server's results depend on data"


def _assert_batches(algorithm: Algorithm) -> None:
    """Require that the sum of a batch equals the sum of its clients' clipped updates."""
    if not isinstance(algorithm, Batched):
        return
    assert algorithm.init_client(0) is None, "clients have states, but updates come in batches"
    everybody = np.arange(algorithm.population)
    sent = algorithm.sent(_started(algorithm))
    alone = np.array([_updated(algorithm, client)[0] for client in everybody.tolist()])
    norms = np.linalg.norm(alone, axis=1, keepdims=True)
    expected = (alone * np.minimum(1, algorithm.clip_norm / np.maximum(norms, 1e-300))).sum(axis=0)
    found = algorithm.clipped_sum(sent, everybody)
    gap = float(np.linalg.norm(found.total - expected))
    assert found.count == everybody.size, "the sum of clipped_sum has a wrong number of clients"
    limit = _SLACK * algorithm.clip_norm * everybody.size
    assert gap <= limit, f"clipped_sum differs by {gap} from the sum of single clients' updates"


def _assert_no_direction(algorithm: Algorithm) -> None:
    """Require that a zero direction leads to a finite state of the same names, shapes and types."""
    state = _started(algorithm)
    for move in range(2):
        after = algorithm.server_update(state, np.zeros(algorithm.dimension), move)
        assert after.keys() == state.keys(), "server_update changes the names of the state"
        for name, array in after.items():
            like = (np.shape(state[name]), np.asarray(state[name]).dtype)
            same = (np.shape(array), np.asarray(array).dtype) == like
            assert same, f"server_update changes the shape or type of the state {name!r}"
            finite = np.isfinite(array).all()
            assert finite, f"the state {name!r} is not finite after a direction of zero"
        state = after


def _simulation(algorithm: Algorithm) -> Simulation:
    """Simulation of an algorithm under a short check-in scheme, from a fixed seed."""
    scheme = Scheme(GaussianNoise(1.0), _LAW, Relation.ADD_REMOVE)
    return Simulation(scheme, algorithm, seed=_SEED, evaluate_every=4)


def _assert_repeatable(make: _Make[Data], data: Sequence[Data]) -> None:
    """Require the same bits in a repeated run and in runs that are stopped and resumed."""
    with tempfile.TemporaryDirectory() as folder:
        whole = _simulation(make(data)).run()
        assert _same_run(whole, _simulation(make(data)).run()), (
            "a second run of one seed gives other bits"
        )
        for stop in range(0, _LAW.steps, 2):
            store = FileCheckpoints(Path(folder) / f"{stop}.npz")
            _stopped(_simulation(make(data)), store, stop)
            rest = _simulation(make(data)).run(from_checkpoint=store.load())
            assert _same_run(whole, rest), f"a run resumed after step {stop} gives other bits"


def _stopped(run: Simulation, store: FileCheckpoints, stop: int) -> None:
    """Run until a step is done, with checkpoints, and stop there."""

    def halt(progress: Any) -> None:
        if progress.step == stop:
            raise KeyboardInterrupt

    run.run(checkpoints=store, on_progress=halt)


def _same_run(one: SimulationResult, other: SimulationResult) -> bool:
    """Whether models, clients' states and histories are equal, running times aside."""
    columns = [dict(result.history.columns(), seconds=None) for result in (one, other)]
    return (
        _same(one.parameters, other.parameters)
        and _same(one.clients, other.clients)
        and _same(*columns)
    )
