"""Step after step of one run: the part of the engine that changes."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from turnout.core.aggregates import UpdateSum
from turnout.core.errors import LocalProtocolError
from turnout.participation import Schedule, blocks, draw_run
from turnout.protocol import CheckIns, Clipping, Coordinator, Fleet, Noise, Release, Updates
from turnout.protocol.mechanisms import Mechanism, State, mechanism_for
from turnout.protocol.mechanisms.gaussian import CLIP_SLACK
from turnout.randomness import SimulationStreams
from turnout.simulation.checkpoints import Checkpoint
from turnout.simulation.fingerprint import RunIdentity
from turnout.simulation.history import History, Recorder
from turnout.spec import Scheme

if TYPE_CHECKING:
    from turnout.learning import Evaluation, Optimizer, Task

ASKED_ALONE = 8
"""Clients at most whose updates are looked at one by one, between two evaluations."""


@dataclass(frozen=True, slots=True, eq=False)
class Setup:
    """What stays the same during a run; `turnout.simulation.Simulation` explains the fields."""

    scheme: Scheme
    task: Task
    optimizer: Optimizer
    clip_norm: float
    expected_check_ins: float | None
    minibatch: int
    streams: SimulationStreams
    evaluate_every: int

    @property
    def steps(self) -> int:
        """Steps of the whole run."""
        return self.scheme.participation.steps

    @property
    def mechanism(self) -> Mechanism:
        """What a step does with updates."""
        return mechanism_for(
            self.scheme,
            Clipping(self.task.dimension, self.clip_norm),
            expected_check_ins=self.expected_check_ins,
            minibatch=self.minibatch,
        )

    def coordinator(
        self,
        first_step: int = 0,
        mechanism_state: State | None = None,
        admitted: Iterable[CheckIns] = (),
    ) -> Coordinator:
        """A coordinator that begins at a step."""
        return Coordinator(
            self.scheme.participation,
            self.mechanism,
            capacity=self.task.population,
            first_step=first_step,
            mechanism_state=mechanism_state,
            admitted=admitted,
        )

    def noise(self, step: int) -> Noise:
        """The Gaussian noise of a step, from the stream of that step."""
        generator = self.streams.generator("noise", step)
        return lambda std, dimension: std * generator.standard_normal(dimension)


@dataclass(frozen=True, slots=True, eq=False)
class _State:
    """What a step reads and replaces. One assignment commits a step, so whatever interrupts
    it leaves the step before, whole.
    """

    step: int
    parameters: NDArray[np.floating]
    optimizer_state: dict[str, NDArray[Any]]
    mechanism_state: State | None
    evaluations: int
    check_ins: int
    participations: int


class Stepper:
    """One run, from its beginning or a checkpoint on.

    Args:
        setup: what stays the same.
        checkpoint: where to go on, or None; of the same run.
    """

    def __init__(self, setup: Setup, checkpoint: Checkpoint | None) -> None:
        self._setup = setup
        evaluations = 2 + setup.steps // setup.evaluate_every
        self._recorder = Recorder(setup.steps, evaluations)
        self._earlier_seconds, self._started = 0.0, time.perf_counter()
        self._clipping_due = True
        if checkpoint is None:
            self._state = self._beginning()
        else:
            self._state = self._continuation(checkpoint)

    def _beginning(self) -> _State:
        task = self._setup.task
        parameters = task.initial_parameters(self._setup.streams.generator("initial parameters"))
        optimizer_state = self._setup.optimizer.init(parameters)
        return _State(0, parameters, optimizer_state, None, 0, 0, 0)

    def _continuation(self, checkpoint: Checkpoint) -> _State:
        self._recorder.restore(checkpoint.history)
        self._earlier_seconds = checkpoint.seconds
        return _State(
            checkpoint.step,
            checkpoint.parameters,
            checkpoint.optimizer_state,
            checkpoint.mechanism_state,
            checkpoint.history.step.size,
            int(checkpoint.history.check_ins[-1:].sum()),
            checkpoint.history.participations,
        )

    @property
    def step(self) -> int:
        """Steps done."""
        return self._state.step

    @property
    def parameters(self) -> NDArray[np.floating]:
        """The model after these steps, as the optimiser hands it out."""
        return self._released(self._state)

    @property
    def check_ins(self) -> int:
        """Clients accepted in the last step done."""
        return self._state.check_ins

    @property
    def participations(self) -> int:
        """Check-ins so far."""
        return self._state.participations

    @property
    def seconds(self) -> float:
        """Running time, earlier parts included."""
        return self._earlier_seconds + time.perf_counter() - self._started

    def history(self) -> History:
        """The columns of the steps done."""
        return self._recorder.until(self._state.step, self._state.evaluations)

    def checkpoint(self, run: RunIdentity) -> Checkpoint:
        """Everything from which the run goes on after the last step done."""
        state = self._state
        return Checkpoint(
            run=run,
            step=state.step,
            parameters=state.parameters,
            optimizer_state=state.optimizer_state,
            mechanism_state=state.mechanism_state,
            history=self.history(),
            seconds=self.seconds,
        )

    def remaining(self) -> Iterator[Evaluation | None]:
        """Do what is left, yielding after each step, with its evaluation if it has one.

        A new run first evaluates the untrained model and yields that, with no step done.
        """
        if self._state.evaluations == 0:
            yield self._commit(self._state, evaluate=True)
        coordinator = None
        for schedule in self._schedules():
            coordinator = coordinator or self._coordinator(schedule)
            fleet = Fleet(schedule)
            while self._state.step < fleet.end_step:
                yield self._advance(coordinator, fleet)

    def _schedules(self) -> Iterator[Schedule]:
        """The blocks that are not over, drawn one after the other."""
        setup, done = self._setup, self._state.step
        if done == setup.steps:
            return iter(())
        law = setup.scheme.participation
        block = bisect_right(blocks(law), done, key=lambda b: b.first_step) - 1
        return draw_run(law, setup.task.population, setup.streams, block)

    def _coordinator(self, schedule: Schedule) -> Coordinator:
        """The coordinator of the run; where it goes on, it knows who came earlier in this block.

        Quotas count over a block, so it needs to know no more.
        """
        earlier = range(schedule.first_step, self._state.step)
        admitted = (CheckIns(step, schedule.at(step)) for step in earlier)
        return self._setup.coordinator(self._state.step, self._state.mechanism_state, admitted)

    def _advance(self, coordinator: Coordinator, fleet: Fleet) -> Evaluation | None:
        """One step, from check-ins to the new model."""
        setup, state = self._setup, self._state
        release = self._exchange(coordinator, fleet)
        parameters, optimizer_state = state.parameters, state.optimizer_state
        if release.direction is not None:
            # What happens to a release is postprocessing: rounding it costs no privacy.
            direction = release.direction.astype(parameters.dtype)
            parameters, optimizer_state = setup.optimizer.update(
                parameters, optimizer_state, direction, release.step // setup.minibatch
            )
        self._recorder.note_release(release)
        done = release.step + 1
        after = _State(
            done,
            parameters,
            optimizer_state,
            coordinator.mechanism_state,
            state.evaluations,
            release.checked_in,
            state.participations + release.checked_in,
        )
        return self._commit(after, done % setup.evaluate_every == 0 or done == setup.steps)

    def _exchange(self, coordinator: Coordinator, fleet: Fleet) -> Release:
        """The messages of one step."""
        setup, step = self._setup, self._state.step
        receipt = coordinator.check_in(fleet.on_step(coordinator.open_step()))
        fleet.on_refusal(step, receipt.refused)
        request = coordinator.close_check_ins(setup.streams.source("selection", step))
        clients = fleet.on_request(request)
        if clients.size:
            ids = clients.astype(np.int64, copy=False)
            coordinator.receive(Updates(step, clients, self._clipped_sum(ids)))
        fleet.on_close(step)
        return coordinator.close_step(setup.noise(step))

    def _clipped_sum(self, ids: NDArray[np.int64]) -> UpdateSum:
        """The sum of these clients' updates, of a task that was seen to clip them.

        The coordinator sees a sum, and updates of 2C that point apart have one below n·C. So, once
        between two evaluations, some of the clients' updates are computed alone as well.
        """
        task, parameters = self._setup.task, self._state.parameters
        if task.clip_norm != self._setup.clip_norm:
            raise LocalProtocolError(
                f"the task's clip norm is {task.clip_norm}, but the run began with "
                f"{self._setup.clip_norm}, by which its noise is scaled"
            )
        total = task.clipped_sum(parameters, ids)
        if self._clipping_due and ids.size > 1:
            for client in ids[:: -(-ids.size // ASKED_ALONE)]:
                alone = task.clipped_sum(parameters, np.array([client]))
                _require_clipped(alone, int(client), self._setup.clip_norm)
            self._clipping_due = False
        return total

    def _commit(self, state: _State, evaluate: bool) -> Evaluation | None:
        """Make this the state, evaluated first where that is due."""
        if not evaluate:
            self._state = state
            return None
        self._clipping_due = True
        evaluation = self._setup.task.evaluate(self._released(state))
        self._recorder.note_evaluation(
            state.evaluations, state.step, evaluation.accuracy, evaluation.loss, self.seconds
        )
        self._state = replace(state, evaluations=state.evaluations + 1)
        return evaluation

    def _released(self, state: _State) -> NDArray[np.floating]:
        """The last iterate, or an average of iterates."""
        return self._setup.optimizer.released(state.parameters, state.optimizer_state)


def _require_clipped(update: UpdateSum, client: int, clip_norm: float) -> None:
    """Refuses a task whose update of one client is longer than the task says. NaN fails too."""
    norm = float(np.sqrt(np.square(update.total).sum()))
    if not norm <= clip_norm * (1 + CLIP_SLACK):
        raise LocalProtocolError(
            f"the task says that it clips to norm {clip_norm:g}, but client {client}'s update has "
            f"norm {norm:g}"
        )
