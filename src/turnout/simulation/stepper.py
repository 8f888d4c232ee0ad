"""Step after step of one run: the part of the engine that changes."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from turnout.core.aggregates import Noise
from turnout.participation.drawing import draw_run
from turnout.participation.schedule import Schedule, blocks
from turnout.protocol.coordinator import Coordinator
from turnout.protocol.fleet import Fleet
from turnout.protocol.mechanisms import Mechanism, State, mechanism_for
from turnout.protocol.mechanisms.randomized import Randomized
from turnout.protocol.messages import CheckIns, Release, Updates
from turnout.randomness import SimulationStreams
from turnout.simulation.checkpoints import Checkpoint, RunIdentity
from turnout.simulation.clients import Clients
from turnout.simulation.history import History, Recorder
from turnout.simulation.messages import MessagingClients
from turnout.spec import Scheme

if TYPE_CHECKING:
    from turnout.learning.algorithm import Algorithm, ClientStates, ClientStore, ServerState
    from turnout.randomizers.vectors import VectorRandomizer


@dataclass(frozen=True, slots=True, eq=False)
class Setup:
    """The constants of a run; `turnout.simulation.Simulation` explains the fields."""

    scheme: Scheme
    algorithm: Algorithm
    clients: Clients | MessagingClients
    expected_check_ins: float | None
    minibatch: int
    streams: SimulationStreams
    evaluate_every: int

    @property
    def messages(self) -> VectorRandomizer | None:
        """The randomizer of clients' messages, if they send any."""
        return getattr(self.clients, "randomizer", None)

    @property
    def steps(self) -> int:
        """Steps of the whole run."""
        return self.scheme.participation.steps

    @property
    def mechanism(self) -> Mechanism:
        """The mechanism of a step."""
        if isinstance(self.clients, MessagingClients):
            assert self.expected_check_ins is not None
            messages, expected = self.clients.messages, self.expected_check_ins
            return Randomized(self.clients.randomizer, expected, messages)
        return mechanism_for(
            self.scheme,
            self.clients.bound,
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
            capacity=self.algorithm.population,
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
    """The state that a step reads and replaces. One assignment commits a step, so whatever
    interrupts it leaves the step before, whole.

    Of the clients' states it has those that the last step changed, which go to the store when the
    next one begins.
    """

    step: int
    server: ServerState
    changed: ClientStates
    mechanism_state: State | None
    evaluations: int
    check_ins: int
    participations: int


class Stepper:
    """One run, from its beginning or a checkpoint of it on; the clients' store is emptied first."""

    def __init__(self, setup: Setup, checkpoint: Checkpoint | None, store: ClientStore) -> None:
        self._setup, self._store = setup, store
        store.clear()  # whatever an earlier part of the run left behind
        evaluations = 2 + setup.steps // setup.evaluate_every
        self._recorder = Recorder(setup.steps, evaluations)
        self._earlier_seconds, self._started = 0.0, time.perf_counter()
        self._clipping_due = True
        if checkpoint is None:
            server = setup.algorithm.init(setup.streams.generator("initial parameters"))
            self._state = _State(0, server, {}, None, 0, 0, 0)
            return
        self._recorder.restore(checkpoint.history)
        self._earlier_seconds = checkpoint.seconds
        self._state = _State(
            checkpoint.step,
            checkpoint.server,
            checkpoint.clients,
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
    def done(self) -> int:
        """Steps done, as a unit of `turnout.simulation.driving`."""
        return self._state.step

    @property
    def total(self) -> int:
        """Steps of the whole run."""
        return self._setup.steps

    @property
    def model(self) -> NDArray[np.floating]:
        """The model after these steps, as the algorithm hands it out."""
        return self._setup.algorithm.model(self._state.server)

    @property
    def sent(self) -> NDArray[np.floating]:
        """The parameters that clients would be sent next: the last iterate."""
        return self._setup.algorithm.sent(self._state.server)

    @property
    def clients(self) -> ClientStates:
        """The states of the clients that took part in these steps."""
        return dict(self._clients(self._state))

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
            server=state.server,
            clients=self.clients,
            mechanism_state=state.mechanism_state,
            history=self.history(),
            seconds=self.seconds,
        )

    def remaining(self) -> Iterator[Mapping[str, float] | None]:
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
        return draw_run(law, setup.algorithm.population, setup.streams, block)

    def _coordinator(self, schedule: Schedule) -> Coordinator:
        """The coordinator of the run; where it goes on, it knows who came earlier in this block.

        Quotas count over a block, so it needs to know no more.
        """
        earlier = range(schedule.first_step, self._state.step)
        admitted = (CheckIns(step, schedule.at(step)) for step in earlier)
        return self._setup.coordinator(self._state.step, self._state.mechanism_state, admitted)

    def _advance(self, coordinator: Coordinator, fleet: Fleet) -> Mapping[str, float] | None:
        """One step, from check-ins to the new model."""
        setup, state = self._setup, self._state
        self._store.update(state.changed)
        release, changed = self._exchange(coordinator, fleet)
        server = state.server
        if release.direction is not None:
            move = release.step // setup.minibatch
            server = setup.algorithm.server_update(server, release.direction, move)
        self._recorder.note_release(release)
        done = release.step + 1
        after = _State(
            done,
            server,
            changed,
            coordinator.mechanism_state,
            state.evaluations,
            release.checked_in,
            state.participations + release.checked_in,
        )
        return self._commit(after, done % setup.evaluate_every == 0 or done == setup.steps)

    def _exchange(self, coordinator: Coordinator, fleet: Fleet) -> tuple[Release, ClientStates]:
        """The messages of one step, and the clients' states that it changed."""
        setup, step = self._setup, self._state.step
        receipt = coordinator.check_in(fleet.on_step(coordinator.open_step()))
        fleet.on_refusal(step, receipt.refused)
        request = coordinator.close_check_ins(setup.streams.source("selection", step))
        clients = fleet.on_request(request)
        changed: ClientStates = {}
        if clients.size:
            ids = clients.astype(np.int64, copy=False)
            sent = setup.algorithm.sent(self._state.server)
            total, changed = setup.clients.updates(sent, ids, step, self._store)
            if self._clipping_due and ids.size > 1:
                setup.clients.require_clipped(sent, ids)
                self._clipping_due = False
            self._recorder.note_sum(step, total)
            coordinator.receive(Updates(step, clients, total))
        fleet.on_close(step)
        return coordinator.close_step(setup.noise(step)), changed

    def _commit(self, state: _State, evaluate: bool) -> Mapping[str, float] | None:
        """Make this the state, evaluated first where that is due."""
        if not evaluate:
            self._state = state
            return None
        self._clipping_due = True
        metrics = self._setup.algorithm.evaluate(state.server, self._clients(state))
        self._recorder.note_evaluation(state.evaluations, state.step, self.seconds, metrics)
        self._state = replace(state, evaluations=state.evaluations + 1)
        return metrics

    def _clients(self, state: _State) -> ClientStates:
        """The clients' states, with those that the last step changed."""
        return ChainMap(dict(state.changed), self._store)
