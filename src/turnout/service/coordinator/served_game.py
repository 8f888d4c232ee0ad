"""Distinguishing game that audits a served task: engine, storage, messages and restarts.

`ServedGame` creates a task with a given charter in a temporary database; the clients of this task
upload the same bytes as devices. Many canaries (clients whose participation or update differs
between the two worlds of the game) share a task. Each canary changes a coordinate that no other
client changes, so each canary is one trial. In randomly drawn steps the coordinator stops between
the first and the second half of the uploads; a new coordinator then opens the database, and every
device repeats its uploads.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turnout.auditing.canaries import require_independent
from turnout.auditing.confidence import Statistics, merged_scores
from turnout.auditing.releases import canary_steps, drawn_blocks, whole_noise
from turnout.core.aggregates import Noise
from turnout.core.arrays import FloatArray
from turnout.core.errors import LocalProtocolError
from turnout.participation.schedule import Schedule
from turnout.protocol.lattice import Lattice
from turnout.randomness import SimulationStreams, Source
from turnout.schemes import Relation
from turnout.service.contract.charter import Charter
from turnout.service.contract.wire import WireAnswer
from turnout.service.coordinator import releases
from turnout.service.coordinator.engine import Engine
from turnout.service.coordinator.new_task import invite
from turnout.service.coordinator.releases import Learner
from turnout.service.storage.database import Storage
from turnout.service.storage.opening import open_storage

CANARIES = 512
"""Number of trials that share a task."""
_RESTARTED = 0.1
"""Probability that the coordinator restarts in a step."""


@dataclass(frozen=True, eq=False)
class ServedGame:
    """Distinguishing game: runs of a served task with and without the canary.

    Args:
        charter: terms of the task. The coordinator must add Gaussian noise, releases must be
            aggregated, and all clients must draw their steps in the same way. The charter's noise,
            participation, divisor, lattice and budget are used unchanged; the model gets one
            coordinate for each canary.
        engine: class of the engine; tests pass a class with a defect.
        noise: function that makes the noise of releases from a generator.
        tell: function that receives the number of runs since its last call.

    Raises:
        UnsupportedError: the charter's scheme does not meet the conditions of ``charter``.
    """

    charter: Charter
    engine: type[Engine] = Engine
    noise: Callable[[np.random.Generator], Noise] = whole_noise
    tell: Callable[[int], None] = lambda played: None

    def __post_init__(self) -> None:
        require_independent(self.charter.scheme)

    def scores(
        self, world: int, trials: int, streams: SimulationStreams, *name: str | int
    ) -> dict[str, FloatArray]:
        """Test statistics of ``trials`` runs by name, each of shape ``(trials,)``, as in `Game`.

        Args:
            world: 0 with the canary, 1 without it.
            trials: number of runs.
            streams: randomness of the simulation.
            name: names of the streams.
        """
        return merged_scores(
            self._group(world, min(CANARIES, trials - start), streams, (*name, world, start))
            for start in range(0, trials, CANARIES)
        )

    def _group(
        self, world: int, trials: int, streams: SimulationStreams, name: tuple[str | int, ...]
    ) -> dict[str, FloatArray]:
        """Test statistics of all canaries of one task, by name."""
        # Randomness of this group, and what the canaries send in this world.
        scheme, charter = self.charter.scheme, self._charter_for(trials)
        source = streams.source("audit", "participation", *name)
        noise = self.noise(streams.generator("audit", "noise", *name))
        statistics = Statistics(scheme, trials)
        present = world == 0 or scheme.relation is not Relation.ADD_REMOVE
        sent = _sent(scheme.relation, world)
        # The canaries' draws, and the sums that the task releases in their blocks.
        with _served(charter, self.engine, noise, source) as task:
            for draw, block, first_step in drawn_blocks(scheme):
                schedule = canary_steps(draw, trials, block, source, first_step)
                steps = range(block.first_step, block.first_step + block.steps)
                seen = [task.step(_participants(schedule, step, present), sent) for step in steps]
                statistics.add(draw, np.stack(seen))
        self.tell(trials)
        return statistics.by_name()

    def _charter_for(self, canaries: int) -> Charter:
        """Charter of a task whose model has one coordinate per canary."""
        lattice = self.charter.encoding
        assert isinstance(lattice, Lattice)
        return replace(
            self.charter,
            population=canaries,
            encoding=replace(lattice, dimension=canaries),
            initial_model=hashlib.sha256(_model(canaries)).digest(),
        )


def _sent(relation: Relation, world: int) -> float:
    """Update of a canary along its own coordinate, in units of the clip norm C."""
    if world == 0:
        return 1.0
    return -1.0 if relation is Relation.REPLACE_ONE else 0.0


def _participants(schedule: Schedule, step: int, present: bool) -> NDArray[np.integer]:
    """Canaries that participate in one step."""
    return schedule.at(step) if present else np.zeros(0, np.int64)


def _model(canaries: int) -> bytes:
    """Initial model, all zeros, as bytes."""
    return releases.to_bytes(np.zeros(canaries, np.float32))


def _key(client: int) -> bytes:
    """Placeholder of a device's public key, since requests of the game are not signed."""
    return client.to_bytes(32, "little")


class _RecordingLearner(Learner):
    """Optimizer stub that records the last released direction and keeps the model unchanged."""

    def __init__(self) -> None:
        self.direction: FloatArray | None = None

    def init(self, parameters: NDArray[np.float32]) -> releases.State:
        """Optimizer state, which is empty."""
        return {}

    def moved(
        self,
        parameters: NDArray[np.float32],
        state: releases.State,
        direction: FloatArray,
        move: int,
    ) -> tuple[NDArray[np.float32], releases.State]:
        """Unchanged parameters and state; the direction is recorded."""
        self.direction = direction
        return parameters, state

    def released(self, parameters: NDArray[np.float32], state: releases.State) -> Any:
        """Unchanged parameters."""
        return parameters


@contextmanager
def _served(
    charter: Charter, engine: type[Engine], noise: Noise, source: Source
) -> Iterator[_Task]:
    """Context with a served task in a temporary database."""
    with TemporaryDirectory(prefix="turnout-audit-") as folder:
        task = _Task(charter, Path(folder) / "task.db", engine, noise, source)
        try:
            yield task
        finally:
            task.storage.close()


class _Task:
    """Served task together with the simulated devices of all canaries."""

    def __init__(
        self, charter: Charter, path: Path, engine: type[Engine], noise: Noise, source: Source
    ) -> None:
        self._charter, self._path, self._engine_class = charter, path, engine
        self._noise, self._source, self._learner = noise, source, _RecordingLearner()
        self.storage: Storage = open_storage(path, serving=True)
        with self.storage.transaction() as tx:
            tx.create_task(charter.canonical(), bytes(32), _model(charter.population))
        self._engine = self._opened()
        self._enrol()

    def _opened(self) -> Engine:
        """New engine that reads its state from the database."""
        return self._engine_class.open(
            self.storage, lambda _: self._learner, source=self._source, noise=self._noise
        )

    def _enrol(self) -> None:
        """Enrol the device of every canary."""
        with self.storage.transaction() as tx:
            for each in invite(tx, self._charter, self._charter.population):
                self._engine.enrol(tx, each.client, each.secret, _key(each.client))

    def _restart(self) -> None:
        """Simulate a restart: close the database and open it with a new engine."""
        self.storage.close()
        self.storage = open_storage(self._path, serving=True)
        self._engine = self._opened()

    def step(self, clients: NDArray[np.integer], sent: float) -> FloatArray:
        """Released sum of one step in units of the clip norm C, shape ``(canaries,)``.

        Args:
            clients: canaries that participate in the step.
            sent: update of each canary along its own coordinate, in units of C.
        """
        step, half = self._engine.step, clients.size // 2
        self._upload(step, clients[:half], sent)
        if self._source.bernoulli(_RESTARTED, 1)[0]:
            self._restart()
            self._upload(step, clients[:half], sent)
        self._upload(step, clients[half:], sent)
        with self.storage.transaction() as tx:
            self._engine.close_step(tx)
        self._engine.publish()
        return self._released()

    def _upload(self, step: int, clients: NDArray[np.integer], sent: float) -> None:
        """Upload the updates of the given clients; the task must accept each of them."""
        encoding, length = self._charter.encoding, sent * self._charter.encoding.clip_norm
        update = np.zeros(self._charter.population)
        with self.storage.transaction() as tx:
            for client in clients.tolist():
                update[client] = length
                upload = self._engine.inspect(encoding.packed(update, self._source))
                update[client] = 0.0
                receipt = self._engine.update(tx, client, step, upload)
                if receipt.answer is not WireAnswer.ACCEPTED:
                    raise LocalProtocolError(
                        f"the task refuses the update of a canary: {receipt.detail}"
                    )

    def _released(self) -> FloatArray:
        """Last released sum in units of the clip norm: divisor times released direction."""
        direction, divisor = self._learner.direction, self._charter.expected_check_ins
        assert direction is not None
        assert divisor is not None
        return direction * (divisor / self._charter.encoding.clip_norm)
