"""Execution of one simulated run, after all checks.

`ReadyRun` runs the plan, `BaselineRun` runs the same plan without privacy, and a `Watcher` observes
the progress.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np

from turnout.data import PredictionTarget
from turnout.participation.drawing import expected_check_ins, expected_empty_steps
from turnout.plans import Plan, PreparedPlan
from turnout.plans.spending import EpsilonCurve, epsilon_curve
from turnout.reporting.summary import Outcome, TestSet
from turnout.runs.folders import InterruptedRunError
from turnout.runs.workload import ProgressPhase, UnseenPhase, Workload, evaluation_interval
from turnout.schemes import GaussianNoise, TrustModel
from turnout.simulation.checkpoints import FileCheckpoints, History
from turnout.simulation.engine import Progress, Simulation, SimulationResult

_NO_NOISE, _NO_CLIPPING = 1e-30, 1e6
"""Noise multiplier too small to change a digit of a model, and the largest permitted clip norm."""


class Watcher(Protocol):
    """Observer of the progress of a run."""

    def phase(self, what: str) -> AbstractContextManager[ProgressPhase]:
        """Context of a phase that may last long; yields an observer of the phase's progress."""
        ...

    def training(
        self, what: str, steps: int, target: float | None, spent: Callable[[int], float]
    ) -> AbstractContextManager[Callable[[Progress], None]]:
        """Context of a training run; yields the function to call with each step's progress.

        ``spent`` returns ε after a given number of steps; the first call may last long.
        """
        ...


class Unwatched:
    """Watcher that does nothing."""

    def phase(self, what: str) -> AbstractContextManager[ProgressPhase]:
        """Context without output."""
        return nullcontext(UnseenPhase())

    def training(
        self, what: str, steps: int, target: float | None, spent: Callable[[int], float]
    ) -> AbstractContextManager[Callable[[Progress], None]]:
        """Context without output."""
        return nullcontext(lambda progress: None)


@dataclass(frozen=True, slots=True, eq=False)
class ReadyRun:
    """Run that has passed all checks, with the curve of ε over the steps."""

    prepared: PreparedPlan
    simulation: Simulation
    curve: EpsilonCurve
    test: TestSet

    @classmethod
    def of(cls, workload: Workload, prepared: PreparedPlan, phase: ProgressPhase) -> ReadyRun:
        """Run of a plan whose data are loaded; ``phase`` receives the place of stored features.

        Raises:
            ParameterError: the model does not fit the data, or a setting is out of range.
        """
        # This import loads PyTorch, which takes long: an invalid plan is refused before it.
        from turnout.runs.building import build_algorithm

        plan, participation = workload.plan, prepared.scheme.participation
        interval = evaluation_interval(plan, participation.steps)
        algorithm = build_algorithm(workload, workload.module, phase)
        simulation = Simulation(
            prepared.scheme,
            algorithm,
            messages=prepared.messages(algorithm.dimension),
            expected_check_ins=plan.protocol.expected_check_ins,
            minibatch=plan.protocol.minibatch,
            seed=plan.run.seed,
            evaluate_every=interval,
        )
        return cls(prepared, simulation, epsilon_curve(prepared, interval), _test_set(workload))

    def carried_out(
        self, checkpoint: Path | None, what: str, folder: Path | None, watcher: Watcher
    ) -> Outcome:
        """Outcome of the run, which continues from the checkpoint if the file exists.

        Raises:
            StorageError: the checkpoint is damaged or belongs to another run.
            InterruptedRunError: Ctrl-C ended the run.
        """
        # The steps, with progress.
        plan, participation = self.prepared.plan, self.prepared.scheme.participation
        with watcher.training(
            what, self.simulation.steps, plan.privacy.epsilon, self.curve.at
        ) as tell:
            result = _finished(self.simulation, plan, checkpoint, folder, tell)
        # The history, the expected numbers of check-ins, and the parameters.
        return Outcome(
            self.prepared,
            result.history,
            result.seconds,
            expected_check_ins(participation, self.prepared.population),
            expected_empty_steps(participation, self.prepared.population),
            self.curve,
            result.parameters,
            result.last[: result.parameters.size],  # DP-AdaPeD sends ψ as well
            self.test,
        )


@dataclass(frozen=True, slots=True, eq=False)
class BaselineRun:
    """Run of a plan without noise and clipping, and therefore without privacy.

    The same clients participate in the same steps as in the private run.
    """

    plan: Plan
    simulation: Simulation

    @classmethod
    def of(cls, workload: Workload, prepared: PreparedPlan, phase: ProgressPhase) -> BaselineRun:
        """Baseline run of a plan whose data are loaded; raises the errors of `ReadyRun.of`."""
        from turnout.runs.building import build_algorithm

        plan = workload.plan
        loose = plan.privacy.model_copy(update={"clip_norm": _NO_CLIPPING})
        unclipped = replace(workload, plan=plan.model_copy(update={"privacy": loose}))
        simulation = Simulation(
            replace(prepared.scheme, randomizer=GaussianNoise(_NO_NOISE), trust=TrustModel.CENTRAL),
            build_algorithm(unclipped, workload.module, phase),
            expected_check_ins=plan.protocol.expected_check_ins,
            minibatch=plan.protocol.minibatch,
            seed=plan.run.seed,
            evaluate_every=evaluation_interval(plan, prepared.scheme.participation.steps),
        )
        return cls(plan, simulation)

    def carried_out(
        self, checkpoint: Path | None, folder: Path | None, watcher: Watcher
    ) -> History:
        """History of the baseline run; checkpoints and errors are as in `ReadyRun.carried_out`."""
        with watcher.training(
            "without privacy", self.simulation.steps, None, lambda step: math.inf
        ) as tell:
            result = _finished(self.simulation, self.plan, checkpoint, folder, tell)
        return result.history


def _finished(
    simulation: Simulation,
    plan: Plan,
    checkpoint: Path | None,
    folder: Path | None,
    tell: Callable[[Progress], None],
) -> SimulationResult:
    """Result of a simulation, resumed from the file ``checkpoint``; None: nothing is stored."""
    # The steps that are left, with a checkpoint after each evaluation.
    store = None if checkpoint is None else FileCheckpoints(checkpoint)
    steps = simulation.steps
    result = simulation.run(
        from_checkpoint=None if store is None else store.load(),
        on_progress=tell,
        checkpoints=store,
        checkpoint_every=plan.run.checkpoint_every or evaluation_interval(plan, steps),
    )
    # Ctrl-C has ended the simulation early.
    if not result.finished:
        raise InterruptedRunError(folder, result.steps_done, steps)
    return result


def _test_set(workload: Workload) -> TestSet:
    """Size of the test set and, for 'fedsgd' on classes, the fraction of the largest class."""
    data = workload.data
    if data.target is not PredictionTarget.CLASS or workload.plan.client.rule != "fedsgd":
        return TestSet(len(data.test))
    return TestSet(len(data.test), float(np.bincount(data.test.labels).max() / len(data.test)))
