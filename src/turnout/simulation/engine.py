"""The simulation: drives the protocol's own objects through a whole run on this machine.

Each block of the participation law is drawn at once; each step then goes from check-ins to
requests, updates, noise and release as it would over a network, only that one message speaks
for all clients of a step. Cost grows with participations, not with the population.

Every random stream is found by its name and the step or block it serves, so a run goes on
from a checkpoint with exactly the draws that the uninterrupted run makes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from turnout.core import checks
from turnout.core.identity import Identity, identity_of
from turnout.protocol.mechanisms import public_divisor
from turnout.randomness import SimulationStreams
from turnout.simulation.checkpoints import Checkpoint, CheckpointStore, RunIdentity
from turnout.simulation.clients import Clients
from turnout.simulation.driving import Every, drive
from turnout.simulation.history import History
from turnout.simulation.messages import MessagingClients
from turnout.simulation.stepper import Setup, Stepper
from turnout.spec import Scheme

if TYPE_CHECKING:
    from turnout.learning.algorithm import Algorithm, ClientStates, ClientStore
    from turnout.randomizers.vectors import VectorRandomizer


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a run, after each step; running time includes that of earlier parts.

    Attributes:
        step: steps done.
        check_ins: clients accepted in this step.
        participations: check-ins so far.
        evaluation: the algorithm's metrics by name, where this step had an evaluation.
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
    """The clients' half: updates that are summed, or messages that clients randomize."""
    if messages is None:
        return Clients.of(algorithm, scheme, streams)
    return MessagingClients.of(algorithm, scheme, messages, streams)


@dataclass(frozen=True, slots=True, eq=False)
class SimulationResult:
    """The end of a run, or of a part of it that was interrupted.

    Attributes:
        parameters: the model that the algorithm hands out.
        last: the parameters that clients would be sent next: the last iterate.
        clients: the states of the clients that took part, if clients have any.
        seconds: running time, earlier parts included.
    """

    finished: bool
    steps_done: int
    parameters: NDArray[np.floating]
    last: NDArray[np.floating]
    clients: ClientStates
    history: History
    seconds: float


class Simulation:
    """A whole run of an algorithm under a scheme.

    Guarantees:
        The same arguments give the same result, bit for bit, ``seconds`` apart, also when the
        run was stopped or killed and went on from a checkpoint, any number of times (given
        that the algorithm's methods are functions of their arguments).
        All noise and all participation follow the scheme; the algorithm sees who came, never when
        anybody will.
        A client's state goes to that client's own updates, to checkpoints and to evaluations, and
        nowhere else.

    The randomness follows from a seed: it protects nobody. For a real deployment the same
    coordinator and clients are driven with the operating system's randomness.

    A checkpoint names all that decides the outcome (see `turnout.core.identity`), so a run with
    checkpoints needs an algorithm that says what it computes and on which data: those of
    `turnout.learning` do; one of the user's own is a dataclass of plain values and arrays or has a
    method ``resume_parts``. Classes are known by their names: their code is taken to be what it
    was.

    Args:
        scheme: participation law, noise and release rule.
        algorithm: what is learned, on which data. Its ``clip_norm`` is C, to which each update is
            clipped; the noise is scaled by the same number.
        expected_check_ins: public divisor of aggregated check-ins; None takes the law's mean
            check-ins a step, which makes the algorithm's population a public number.
        minibatch: steps accumulated before the model moves (`ReleaseRule.ONE_CLIENT`).
        seed: names all random streams.
        evaluate_every: steps between evaluations; the start and the end are always evaluated.
        messages: under local or shuffled trust, the randomizer of each client's update; its law is
            the scheme's randomizer, its radius (in its own norm) the algorithm's ``clip_norm``.

    Raises:
        ParameterError: a value outside its domain, a law for another population, or messages that
            are not the scheme's.
        UnsupportedError: clients have states, which no analysis of the scheme covers.
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
        self._setup.coordinator()  # refuses what the protocol refuses, before anything runs

    @property
    def algorithm(self) -> Algorithm:
        """The algorithm that is simulated."""
        return self._setup.algorithm

    @property
    def divisor(self) -> float | None:
        """The public divisor of aggregated check-ins; None of other releases."""
        return self._setup.expected_check_ins

    @property
    def steps(self) -> int:
        """Steps of the whole run."""
        return self._setup.scheme.participation.steps

    @property
    def moves(self) -> int:
        """Model updates of the whole run: one every ``minibatch`` steps, skipped ones counted."""
        return self.steps // self._setup.minibatch

    @property
    def fingerprint(self) -> str:
        """The digest of this run's settings, without the data; raises as `identity` does."""
        return self.identity.public_digest()

    @property
    def identity(self) -> Identity:
        """All that decides the outcome, data included.

        Raises:
            UnsupportedError: the algorithm does not say what it computes.
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
        """A saver of the run's checkpoints, under one identity; it does nothing without a store."""
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
        """Run all steps, or all that are left.

        Ctrl-C (KeyboardInterrupt) ends the run after the last whole step: a checkpoint is
        written and what was reached is returned, with ``finished`` False.

        Args:
            from_checkpoint: where to go on; None starts from the beginning.
            on_progress: called after each step.
            checkpoints: where checkpoints go, if anywhere: every ``checkpoint_every`` steps,
                at the end and on Ctrl-C.
            checkpoint_every: steps between checkpoints.
            client_store: keeps the clients' states, if clients have any, and is emptied first; by
                default in memory.

        Raises:
            StorageError: the checkpoint belongs to another run or to other data, or cannot be
                written.
            UnsupportedError: there are checkpoints, and the algorithm does not say what it
                computes.
        """
        checks.count(checkpoint_every=checkpoint_every)
        save = self._saving(checkpoints, from_checkpoint)
        store = {} if client_store is None else client_store
        run = Stepper(self._setup, from_checkpoint, store)

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
