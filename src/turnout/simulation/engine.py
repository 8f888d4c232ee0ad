"""The simulation: drives the protocol's own objects through a whole run on this machine.

Each block of the participation law is drawn at once; each step then goes from check-ins to
requests, updates, noise and release as it would over a network, only that one message speaks
for all clients of a step. Cost grows with participations, not with the population.

Every random stream is found by its name and the step or block it serves, so a run goes on
from a checkpoint with exactly the draws that the uninterrupted run makes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from turnout.core import checks
from turnout.core.identity import Identity, identity_of
from turnout.participation import expected_check_ins
from turnout.randomness import SimulationStreams
from turnout.simulation.checkpoints import Checkpoint, CheckpointStore
from turnout.simulation.fingerprint import RunIdentity
from turnout.simulation.history import History
from turnout.simulation.stepper import Setup, Stepper
from turnout.spec import ReleaseRule, Scheme

if TYPE_CHECKING:
    from turnout.learning import Evaluation, Optimizer, Task


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is, after each step.

    Attributes:
        step: steps done.
        steps: steps of the whole run.
        check_ins: clients accepted in this step.
        participations: check-ins so far.
        seconds: running time so far, earlier parts included.
        evaluation: the model's evaluation, where this step had one.
    """

    step: int
    steps: int
    check_ins: int
    participations: int
    seconds: float
    evaluation: Evaluation | None


@dataclass(frozen=True, slots=True, eq=False)
class SimulationResult:
    """The end of a run, or of a part of it that was interrupted.

    Attributes:
        finished: whether all steps are done.
        steps_done: steps done.
        parameters: the model, shape ``(d,)``: the last iterate, or the average that the
            optimiser hands out.
        history: all columns.
        seconds: running time, earlier parts included.
    """

    finished: bool
    steps_done: int
    parameters: NDArray[np.floating]
    history: History
    seconds: float


class Simulation:
    """A whole run of a scheme on a task.

    Guarantees:
        The same arguments give the same result, bit for bit, ``seconds`` apart, also when the
        run was stopped or killed and went on from a checkpoint, any number of times (given
        that task and optimiser are functions of their arguments).
        All noise and all participation follow the scheme; the task sees who came, never when
        anybody will.

    The randomness follows from a seed: it protects nobody. For a real deployment the same
    coordinator and clients are driven with the operating system's randomness.

    A checkpoint names all that decides the outcome (see `turnout.core.identity`), so a run with
    checkpoints needs a task and an optimiser that say what they compute and on which data: those
    of `turnout.learning` do; one of the user's own is a dataclass of plain values or has a method
    ``resume_parts``. Classes are known by their names: their code is taken to be what it was.

    Args:
        scheme: participation law, noise and release rule.
        task: model, loss and the clients' data. Its ``clip_norm`` is C, to which it clips each
            update; the noise is scaled by the same number.
        optimizer: makes of each release a new model.
        expected_check_ins: public divisor of aggregated check-ins; None takes the law's mean
            check-ins a step, which makes the task's population a public number.
        minibatch: steps accumulated before the model moves (`ReleaseRule.ONE_CLIENT`).
        seed: names all random streams.
        evaluate_every: steps between evaluations; the start and the end are always evaluated.

    Raises:
        ParameterError: a value outside its domain, or a law for another population.
    """

    def __init__(
        self,
        scheme: Scheme,
        task: Task,
        optimizer: Optimizer,
        *,
        expected_check_ins: float | None = None,
        minibatch: int = 1,
        seed: int,
        evaluate_every: int,
    ) -> None:
        checks.count(evaluate_every=evaluate_every)
        clip_norm = _clip_norm_of(task)
        streams = SimulationStreams(seed)
        divisor = _divisor(scheme, task.population, expected_check_ins)
        self._setup = Setup(
            scheme=scheme,
            task=task,
            optimizer=optimizer,
            clip_norm=clip_norm,
            expected_check_ins=divisor,
            minibatch=minibatch,
            streams=streams,
            evaluate_every=evaluate_every,
        )
        self._setup.coordinator()  # refuses what the protocol refuses, before anything runs

    @property
    def steps(self) -> int:
        """Steps of the whole run."""
        return self._setup.scheme.participation.steps

    @property
    def moves(self) -> int:
        """Model updates of the whole run: one every ``minibatch`` steps. The optimiser is told
        how many came before; a step that is skipped counts.
        """
        return self.steps // self._setup.minibatch

    @property
    def fingerprint(self) -> str:
        """Names this run's settings: a checkpoint goes on only in a simulation with the same one,
        on the same data.

        Raises:
            UnsupportedError: task or optimiser do not say what they compute.
        """
        return self.identity.public_digest()

    @property
    def identity(self) -> Identity:
        """All that decides the outcome, data included.

        Raises:
            UnsupportedError: task or optimiser do not say what they compute.
        """
        setup = self._setup
        return identity_of(
            {
                "scheme": setup.scheme,
                "task": setup.task,
                "dimension": setup.task.dimension,
                "population": setup.task.population,
                "optimizer": setup.optimizer,
                "clip_norm": setup.clip_norm,
                "expected_check_ins": setup.expected_check_ins,
                "minibatch": setup.minibatch,
                "seed": setup.streams.seed,
                "evaluate_every": setup.evaluate_every,
            }
        )

    def _saving(
        self, store: CheckpointStore | None, start: Checkpoint | None
    ) -> Callable[[Stepper], None]:
        """A function that saves the run's checkpoints, under one identity; nothing without a store.

        Raises:
            StorageError: settings or data are not those of the checkpoint to start from.
        """
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

        Raises:
            StorageError: the checkpoint belongs to another run or to other data, or cannot be
                written.
            UnsupportedError: there are checkpoints, and task or optimiser do not say what they
                compute.
        """
        checks.count(checkpoint_every=checkpoint_every)
        save = self._saving(checkpoints, from_checkpoint)
        run = Stepper(self._setup, from_checkpoint)
        try:
            for evaluation in run.remaining():
                if run.step % checkpoint_every == 0 or run.step == self.steps:
                    save(run)
                if on_progress is not None:
                    on_progress(_progress(run, self.steps, evaluation))
        except KeyboardInterrupt:
            save(run)
        return SimulationResult(
            finished=run.step == self.steps,
            steps_done=run.step,
            parameters=run.parameters,
            history=run.history(),
            seconds=run.seconds,
        )


def _progress(run: Stepper, steps: int, evaluation: Evaluation | None) -> Progress:
    """What to tell about the step just done."""
    return Progress(
        step=run.step,
        steps=steps,
        check_ins=run.check_ins,
        participations=run.participations,
        seconds=run.seconds,
        evaluation=evaluation,
    )


def _clip_norm_of(task: Task) -> float:
    """C as the task states it."""
    clip_norm = getattr(task, "clip_norm", None)
    checks.positive(**{"task.clip_norm": clip_norm})
    return float(task.clip_norm)


def _divisor(scheme: Scheme, population: int, given: float | None) -> float | None:
    """The public divisor of aggregated check-ins; None where the rule has none."""
    by_law = expected_check_ins(scheme.participation, population)  # refuses a wrong population
    if scheme.release is not ReleaseRule.AGGREGATED:
        return None
    if given is None:
        return float(by_law.mean())
    checks.positive(expected_check_ins=given)
    return float(given)
