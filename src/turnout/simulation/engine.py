"""Simulation of a whole run on one machine, with the coordinator and clients of the protocol.

`Simulation` describes and executes a run, `Stepper` holds the state that changes from step to step,
and `SimulationResult` is the result.

Each block of the participation is drawn at once. Each step then has check-ins, a request, updates,
noise and a release, as over a network, but one message contains the check-ins or updates of all
clients of the step. The cost grows with the number of participations, not with the population. Each
random stream is derived from its name and its step or block, so a run that is resumed from a
checkpoint has exactly the draws of the uninterrupted run.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from turnout.core import checks
from turnout.core.aggregates import Noise
from turnout.core.identity import Identity, identity_of
from turnout.core.showing import shows_shapes
from turnout.participation.drawing import draw_run
from turnout.participation.schedule import Schedule, blocks
from turnout.protocol.client import Fleet
from turnout.protocol.coordinator import Coordinator
from turnout.protocol.mechanisms import Mechanism, State, mechanism_for, public_divisor
from turnout.protocol.messages import CheckIns, Release, Updates
from turnout.protocol.randomized import Randomized
from turnout.randomness import SimulationStreams
from turnout.schemes import Scheme
from turnout.simulation.checkpoints import (
    Checkpoint,
    CheckpointStore,
    History,
    Recorder,
    RunIdentity,
)
from turnout.simulation.clients import Clients, MessagingClients
from turnout.simulation.driving import Every, drive

if TYPE_CHECKING:
    from turnout.learning.algorithm import Algorithm, ClientStates, ClientStore, ServerState
    from turnout.randomizers.vectors import VectorRandomizer


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a run after a step.

    Attributes:
        step: number of finished steps.
        steps: number of steps of the whole run.
        check_ins: number of accepted check-ins in this step.
        participations: number of accepted check-ins in all finished steps.
        seconds: running time, earlier parts of the run included, in seconds.
        evaluation: the algorithm's metrics, by name; None if this step had no evaluation.
    """

    step: int
    steps: int
    check_ins: int
    participations: int
    seconds: float
    evaluation: Mapping[str, float] | None


def _clients(
    algorithm: Algorithm,
    scheme: Scheme,
    messages: VectorRandomizer | None,
    streams: SimulationStreams,
) -> Clients | MessagingClients:
    """Clients of a run, which send updates or, with a randomizer, randomized messages."""
    if messages is None:
        return Clients.of(algorithm, scheme, streams)
    return MessagingClients.of(algorithm, scheme, messages, streams)


@shows_shapes("finished", "steps_done")
@dataclass(frozen=True, slots=True, eq=False)
class SimulationResult:
    """Result of a whole run, or of a run up to an interruption.

    Attributes:
        finished: whether all steps are done.
        steps_done: number of finished steps.
        parameters: the algorithm's model, as one vector.
        last: vector that the server would send to clients in the next step.
        clients: states of the clients that participated; empty if clients have no states.
        history: measurements of each finished step and of each evaluation.
        seconds: running time, earlier parts of the run included, in seconds.
    """

    finished: bool
    steps_done: int
    parameters: NDArray[np.floating]
    last: NDArray[np.floating]
    clients: ClientStates
    history: History
    seconds: float


class Simulation:
    """Run of an algorithm under a scheme.

    Guarantees:
        The same arguments give the same result, bit for bit, except ``seconds``. This also holds if
        the run is stopped or killed and resumed from a checkpoint, any number of times. (The
        results of the algorithm's methods must depend on nothing but their arguments.)
        Noise and participation follow the scheme. The algorithm receives the participants of the
        present step, and never those of a later step.
        A client's state is passed to that client's updates, to checkpoints and to evaluations, and
        to nothing else.

    All random numbers are derived from the seed, so a simulation gives no privacy. A deployment
    uses the same coordinator and clients with the operating system's randomness.

    A checkpoint contains a digest of all settings and data on which the result depends (see
    `turnout.core.identity`). So a run with checkpoints needs an algorithm whose computation and
    data can be identified: an algorithm of `turnout.learning`, a dataclass of plain values and
    arrays, or an object with a method ``resume_parts``. Classes are identified by their names, so a
    change of their code is not detected.

    Args:
        scheme: participation, noise and release rule.
        algorithm: algorithm with the clients' data. Each update is clipped to the algorithm's
            ``clip_norm``, and the noise is scaled by the same number.
        expected_check_ins: public divisor of the sum of updates, above 0. None: the divisor is the
            expected number of participants of a step, so that the number of clients is public.
        minibatch: number of steps that are accumulated before the model is updated
            (`ReleaseRule.ONE_CLIENT`).
        seed: seed of all random streams.
        evaluate_every: number of steps between evaluations; the model is also evaluated before the
            first step and after the last one.
        messages: under local or shuffled trust, the randomizer of each client's update. The
            scheme's randomizer must be ``messages.priced_as``, or `RepeatedMessages` of it. The
            radius of ``messages``, in its own norm, must be the algorithm's ``clip_norm``.

    Raises:
        ParameterError: a value is outside its domain, the participation is for another number of
            clients, or ``messages`` does not fit the scheme or the algorithm.
        UnsupportedError: no analysis is known for the release rule with ``messages``, or for
            clients with states under the scheme.
    """

    def __init__(
        self,
        scheme: Scheme,
        algorithm: Algorithm,
        *,
        expected_check_ins: float | None = None,
        minibatch: int = 1,
        seed: int,
        evaluate_every: int,
        messages: VectorRandomizer | None = None,
    ) -> None:
        checks.count(evaluate_every=evaluate_every)
        streams = SimulationStreams(seed)
        divisor = public_divisor(scheme, algorithm.population, expected_check_ins)
        self._setup = Setup(
            scheme=scheme,
            algorithm=algorithm,
            clients=_clients(algorithm, scheme, messages, streams),
            expected_check_ins=divisor,
            minibatch=minibatch,
            streams=streams,
            evaluate_every=evaluate_every,
        )
        self._setup.coordinator()  # raises the errors of the protocol before any step runs

    @property
    def algorithm(self) -> Algorithm:
        """Algorithm that the run simulates."""
        return self._setup.algorithm

    @property
    def divisor(self) -> float | None:
        """Public divisor of aggregated check-ins; None for other releases."""
        return self._setup.expected_check_ins

    @property
    def steps(self) -> int:
        """Number of steps of the whole run."""
        return self._setup.scheme.participation.steps

    @property
    def moves(self) -> int:
        """Number of model updates of the run, one every ``minibatch`` steps.

        Steps without a release are included.
        """
        return self.steps // self._setup.minibatch

    @property
    def fingerprint(self) -> str:
        """Digest of the settings of the run, without the data, 32 hexadecimal digits.

        Raises:
            UnsupportedError: the algorithm's computation cannot be identified.
        """
        return self.identity.public_digest()

    @property
    def identity(self) -> Identity:
        """Identity of the run: all settings and data that determine the result.

        Raises:
            UnsupportedError: the algorithm's computation or data cannot be identified.
        """
        setup = self._setup
        return identity_of(
            {
                "scheme": setup.scheme,
                "algorithm": setup.algorithm,
                "dimension": setup.algorithm.dimension,
                "population": setup.algorithm.population,
                "clip_norm": setup.clients.bound.clip_norm,
                "expected_check_ins": setup.expected_check_ins,
                "minibatch": setup.minibatch,
                "messages": setup.messages,
                "seed": setup.streams.seed,
                "evaluate_every": setup.evaluate_every,
            }
        )

    def _saving(
        self, store: CheckpointStore | None, start: Checkpoint | None
    ) -> Callable[[Stepper], None]:
        """Function that saves a checkpoint of the run, or does nothing without a store."""
        if start is not None:
            start.run.require(self.identity)
        if store is None:
            return lambda _: None
        identity = RunIdentity.new(self.identity) if start is None else start.run
        return lambda run: store.save(run.checkpoint(identity))

    def run(
        self,
        *,
        from_checkpoint: Checkpoint | None = None,
        on_progress: Callable[[Progress], None] | None = None,
        checkpoints: CheckpointStore | None = None,
        checkpoint_every: int = 1,
        client_store: ClientStore | None = None,
    ) -> SimulationResult:
        """Run all remaining steps, and return the result.

        On Ctrl-C (KeyboardInterrupt) the run stops after the last finished step: a checkpoint is
        saved, and the result so far is returned, with ``finished`` False.

        Args:
            from_checkpoint: checkpoint to resume from; None to start a new run.
            on_progress: function that is called after each step, and after the evaluation of the
                untrained model.
            checkpoints: store of checkpoints, which are saved every ``checkpoint_every`` steps, at
                the end and on Ctrl-C; None for no checkpoints.
            checkpoint_every: number of steps between checkpoints, at least 1.
            client_store: store of the clients' states, which is emptied first; None for a store in
                memory.

        Raises:
            ParameterError: ``checkpoint_every`` is below 1.
            StorageError: the checkpoint belongs to another run or to other data, or cannot be
                written.
            UnsupportedError: the algorithm's computation or data cannot be identified, although the
                run has a checkpoint or a store of checkpoints.
            LocalProtocolError: the algorithm breaks a rule of `turnout.learning.algorithm`.
        """
        # The run, from its start or from a checkpoint.
        checks.count(checkpoint_every=checkpoint_every)
        save = self._saving(checkpoints, from_checkpoint)
        store = {} if client_store is None else client_store
        run = Stepper(self._setup, from_checkpoint, store)

        # Report the progress after each step.
        def tell(evaluation: Mapping[str, float] | None) -> None:
            if on_progress is not None:
                on_progress(
                    Progress(
                        step=run.step,
                        steps=self.steps,
                        check_ins=run.check_ins,
                        participations=run.participations,
                        seconds=run.seconds,
                        evaluation=evaluation,
                    )
                )

        # Run the steps, with checkpoints, and return the result so far.
        drive(run, lambda: save(run), Every(units=checkpoint_every), tell)
        return SimulationResult(
            finished=run.done == run.total,
            steps_done=run.step,
            parameters=run.model,
            last=run.sent,
            clients=run.clients,
            history=run.history(),
            seconds=run.seconds,
        )


@dataclass(frozen=True, slots=True, eq=False)
class Setup:
    """Settings of a run.

    Attributes:
        clients: clients with their data, which compute updates or messages.
        streams: random streams of the simulation.

    `turnout.simulation.Simulation` describes the other fields.
    """

    scheme: Scheme
    algorithm: Algorithm
    clients: Clients | MessagingClients
    expected_check_ins: float | None
    minibatch: int
    streams: SimulationStreams
    evaluate_every: int

    @property
    def messages(self) -> VectorRandomizer | None:
        """Randomizer of the clients' messages; None if clients send updates."""
        return getattr(self.clients, "randomizer", None)

    @property
    def steps(self) -> int:
        """Number of steps of the whole run."""
        return self.scheme.participation.steps

    @property
    def mechanism(self) -> Mechanism:
        """Mechanism that turns the sum of a step's updates into the release."""
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
        """Coordinator that starts at the given step."""
        return Coordinator(
            self.scheme.participation,
            self.mechanism,
            capacity=self.algorithm.population,
            first_step=first_step,
            mechanism_state=mechanism_state,
            admitted=admitted,
        )

    def noise(self, step: int) -> Noise:
        """Gaussian noise of a step, drawn from the stream of that step."""
        generator = self.streams.generator("noise", step)
        return lambda std, dimension: std * generator.standard_normal(dimension)


@dataclass(frozen=True, slots=True, eq=False)
class _State:
    """State of a run between two steps.

    A step replaces the whole state by one assignment, so an interruption at any time leaves the
    complete state after the last finished step. ``changed`` has the clients' states that the last
    step changed; the next step first moves these states to the store.
    """

    step: int
    server: ServerState
    changed: ClientStates
    mechanism_state: State | None
    evaluations: int
    check_ins: int
    participations: int


class Stepper:
    """Run in progress, from its start or from a checkpoint."""

    def __init__(self, setup: Setup, checkpoint: Checkpoint | None, store: ClientStore) -> None:
        """Begin or resume a run.

        Args:
            setup: settings of the run.
            checkpoint: checkpoint to resume from; None to start a new run.
            store: store of the clients' states, which is emptied first.
        """
        # An earlier part of the run may have left states of clients in the store.
        self._setup, self._store = setup, store
        store.clear()
        # Columns of the history have room for all steps, and for the first and last evaluation.
        evaluations = 2 + setup.steps // setup.evaluate_every
        self._recorder = Recorder(setup.steps, evaluations)
        self._earlier_seconds, self._started = 0.0, time.perf_counter()
        self._clipping_due = True
        # A new run starts from the algorithm's initial state.
        if checkpoint is None:
            server = setup.algorithm.init(setup.streams.generator("initial parameters"))
            self._state = _State(0, server, {}, None, 0, 0, 0)
            return
        # A resumed run has the history, the running time and the state of the checkpoint.
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
        """Number of finished steps."""
        return self._state.step

    @property
    def done(self) -> int:
        """Number of finished steps, which are the units of `turnout.simulation.driving`."""
        return self._state.step

    @property
    def total(self) -> int:
        """Number of steps of the whole run."""
        return self._setup.steps

    @property
    def model(self) -> NDArray[np.floating]:
        """Model after the finished steps, (parameters,), as the algorithm releases it."""
        return self._setup.algorithm.model(self._state.server)

    @property
    def sent(self) -> NDArray[np.floating]:
        """Vector that clients receive in the next step, such as the last iterate."""
        return self._setup.algorithm.sent(self._state.server)

    @property
    def clients(self) -> ClientStates:
        """States of the clients that took part in the finished steps."""
        return dict(self._clients(self._state))

    @property
    def check_ins(self) -> int:
        """Number of accepted check-ins in the last finished step."""
        return self._state.check_ins

    @property
    def participations(self) -> int:
        """Number of accepted check-ins in all finished steps."""
        return self._state.participations

    @property
    def seconds(self) -> float:
        """Running time in seconds, earlier parts of the run included."""
        return self._earlier_seconds + time.perf_counter() - self._started

    def history(self) -> History:
        """History of the finished steps."""
        return self._recorder.until(self._state.step, self._state.evaluations)

    def checkpoint(self, run: RunIdentity) -> Checkpoint:
        """Checkpoint from which the run can be resumed after the last finished step."""
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
        """Run the remaining steps, and yield the metrics of each step.

        Yields:
            Metrics by name, or None for a step without an evaluation. A new run first yields the
            metrics of the untrained model, before any step.
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
        """Schedules of the present block and of all later blocks, drawn block by block."""
        setup, done = self._setup, self._state.step
        if done == setup.steps:
            return iter(())
        participation = setup.scheme.participation
        block = bisect_right(blocks(participation), done, key=lambda b: b.first_step) - 1
        return draw_run(participation, setup.algorithm.population, setup.streams, block)

    def _coordinator(self, schedule: Schedule) -> Coordinator:
        """Coordinator of the run, with the check-ins of the finished steps of the current block.

        Since quotas count over one block, check-ins of earlier blocks have no effect.
        """
        earlier = range(schedule.first_step, self._state.step)
        admitted = (CheckIns(step, schedule.at(step)) for step in earlier)
        return self._setup.coordinator(self._state.step, self._state.mechanism_state, admitted)

    def _advance(self, coordinator: Coordinator, fleet: Fleet) -> Mapping[str, float] | None:
        """Run one step, from check-ins to the new model."""
        # The release of the step, from the clients' updates.
        setup, state = self._setup, self._state
        self._store.update(state.changed)
        release, changed = self._exchange(coordinator, fleet)
        # The server updates the model, if the step has a release for it.
        server = state.server
        if release.direction is not None:
            move = release.step // setup.minibatch
            server = setup.algorithm.server_update(server, release.direction, move)
        # The new state replaces the old state as a whole.
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
        """Release of one step, and the clients' states that the step changed."""
        # Clients check in, and the coordinator selects some of them.
        setup, step = self._setup, self._state.step
        receipt = coordinator.check_in(fleet.on_step(coordinator.open_step()))
        fleet.on_refusal(step, receipt.refused)
        request = coordinator.close_check_ins(setup.streams.source("selection", step))
        clients = fleet.on_request(request)
        changed: ClientStates = {}
        # The selected clients compute the sum of their updates. After an evaluation, some of the
        # clients of the first such sum are checked one by one.
        if clients.size:
            ids = clients.astype(np.int64, copy=False)
            sent = setup.algorithm.sent(self._state.server)
            total, changed = setup.clients.updates(sent, ids, step, self._store)
            if self._clipping_due and ids.size > 1:
                setup.clients.require_clipped(sent, ids)
                self._clipping_due = False
            self._recorder.note_sum(step, total)
            coordinator.receive(Updates(step, clients, total))
        # The coordinator adds the noise of the step and releases the result.
        fleet.on_close(step)
        return coordinator.close_step(setup.noise(step)), changed

    def _commit(self, state: _State, evaluate: bool) -> Mapping[str, float] | None:
        """Replace the state, after an evaluation if one is due."""
        if not evaluate:
            self._state = state
            return None
        self._clipping_due = True
        metrics = self._setup.algorithm.evaluate(state.server, self._clients(state))
        self._recorder.note_evaluation(state.evaluations, state.step, self.seconds, metrics)
        self._state = replace(state, evaluations=state.evaluations + 1)
        return metrics

    def _clients(self, state: _State) -> ClientStates:
        """States of the clients, with the changes of the last step."""
        return ChainMap(dict(state.changed), self._store)
