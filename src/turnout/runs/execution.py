"""One simulated run: built, so that everything that can be refused is, and then executed.

`ReadyRun` runs the plan, `BaselineRun` the same without privacy; a `Watcher` is told of progress.
`epsilon_curve` gives ε at every step of a run from as few priced points as a useful curve needs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from turnout.data import PredictionTarget
from turnout.participation.drawing import expected_check_ins, expected_empty_steps
from turnout.plans import Plan, PreparedPlan
from turnout.plans.preparation import costliest_clients
from turnout.reporting.summary import Outcome, TestSet
from turnout.runs.folders import InterruptedRunError
from turnout.runs.workload import ProgressPhase, UnseenPhase, Workload
from turnout.schemes import AvailabilityCheckIn, GaussianNoise, Scheme, TrustModel
from turnout.simulation import FileCheckpoints, History, Progress, Simulation, SimulationResult

_NO_NOISE, _NO_CLIPPING = 1e-30, 1e6
"""The largest clip norm that there is, and noise that changes no digit of a model."""

EVALUATIONS = 60
"""About how many evaluations a run has unless its plan says otherwise."""


class Watcher(Protocol):
    """The observer that is told the progress of a run."""

    def phase(self, what: str) -> AbstractContextManager[ProgressPhase]:
        """Something that may take a while; yields what it tells its state."""
        ...

    def training(
        self, what: str, steps: int, target: float | None
    ) -> AbstractContextManager[Callable[[Progress, float], None]]:
        """A training run; yields what to call with each step's progress and ε so far."""
        ...


class Unwatched:
    """A watcher that tells nobody."""

    def phase(self, what: str) -> AbstractContextManager[ProgressPhase]:
        """Nothing."""
        return nullcontext(UnseenPhase())

    def training(
        self, what: str, steps: int, target: float | None
    ) -> AbstractContextManager[Callable[[Progress, float], None]]:
        """Nothing."""
        return nullcontext(lambda progress, epsilon: None)


@dataclass(frozen=True, slots=True, eq=False)
class ReadyRun:
    """A run that nothing refuses any more, with ε over its steps."""

    prepared: PreparedPlan
    simulation: Simulation
    curve: EpsilonCurve
    test: TestSet

    @classmethod
    def of(cls, workload: Workload, prepared: PreparedPlan, phase: ProgressPhase) -> ReadyRun:
        """The run of a plan whose data are at hand; the phase is told where features are kept.

        Raises:
            ParameterError: a model that does not fit the data, or a setting out of range.
        """
        # Imported here: it loads PyTorch, and a plan that is refused should be so at once.
        from turnout.runs.building import build_algorithm

        plan, law = workload.plan, prepared.scheme.participation
        interval = evaluation_interval(plan, law.steps)
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
        """The outcome, from the checkpoint on if there is one; None keeps none.

        Raises:
            StorageError: the checkpoint is damaged or another run's.
            InterruptedRunError: Ctrl-C.
        """
        plan, law = self.prepared.plan, self.prepared.scheme.participation
        with watcher.training(what, self.simulation.steps, plan.privacy.epsilon) as tell:
            result = _finished(
                self.simulation,
                plan,
                checkpoint,
                folder,
                lambda progress: tell(progress, self.curve.at(progress.step)),
            )
        return Outcome(
            self.prepared,
            result.history,
            result.seconds,
            expected_check_ins(law, self.prepared.population),
            expected_empty_steps(law, self.prepared.population),
            self.curve.steps,
            self.curve.epsilon,
            result.parameters,
            result.last[: result.parameters.size],  # DP-AdaPeD sends ψ as well
            self.test,
        )


@dataclass(frozen=True, slots=True, eq=False)
class BaselineRun:
    """The same plan without noise and clipping, which protects nobody.

    The same clients come at the same steps.
    """

    plan: Plan
    simulation: Simulation

    @classmethod
    def of(cls, workload: Workload, prepared: PreparedPlan, phase: ProgressPhase) -> BaselineRun:
        """The baseline of a plan whose data are at hand."""
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
        """Its history, from the checkpoint on if there is one; raises as `ReadyRun.carried_out`."""
        with watcher.training("without privacy", self.simulation.steps, None) as tell:
            result = _finished(
                self.simulation,
                self.plan,
                checkpoint,
                folder,
                lambda progress: tell(progress, math.inf),
            )
        return result.history


def _finished(
    simulation: Simulation,
    plan: Plan,
    checkpoint: Path | None,
    folder: Path | None,
    tell: Callable[[Progress], None],
) -> SimulationResult:
    """The result of a simulation, from the checkpoint on if there is one; None keeps none."""
    store = None if checkpoint is None else FileCheckpoints(checkpoint)
    steps = simulation.steps
    result = simulation.run(
        from_checkpoint=None if store is None else store.load(),
        on_progress=tell,
        checkpoints=store,
        checkpoint_every=plan.run.checkpoint_every or evaluation_interval(plan, steps),
    )
    if not result.finished:
        raise InterruptedRunError(folder, result.steps_done, steps)
    return result


def _test_set(workload: Workload) -> TestSet:
    """The test records in numbers."""
    data = workload.data
    if data.target is not PredictionTarget.CLASS or workload.plan.client.rule != "fedsgd":
        return TestSet(len(data.test))
    return TestSet(len(data.test), float(np.bincount(data.test.labels).max() / len(data.test)))


def evaluation_interval(plan: Plan, steps: int) -> int:
    """Steps between evaluations."""
    return plan.run.evaluate_every or max(1, steps // EVALUATIONS)


_TRACE_POINTS = 6
"""Points of a curve over clients with windows of their own; each takes seconds to price."""


@dataclass(frozen=True, slots=True, eq=False)
class EpsilonCurve:
    """Proved upper bounds on what has been spent.

    Attributes:
        steps: steps done, rising from 0 to the whole run, int64, shape ``(points,)``.
        epsilon: ε after that many steps, shape ``(points,)``.
    """

    steps: NDArray[np.int64]
    epsilon: NDArray[np.float64]

    def at(self, step: int) -> float:
        """ε after ``step`` steps: that of the next point, which is never too small."""
        return float(self.epsilon[np.searchsorted(self.steps, step)])


def epsilon_curve(prepared: PreparedPlan, interval: int) -> EpsilonCurve:
    """ε every ``interval`` steps; for clients with windows of their own, at some window ends.

    Guarantees:
        Rises, and never above the whole run's ε: who sees a part of the releases sees no more
        than who sees all.
    """
    from turnout.accounting import running

    scheme = prepared.scheme
    law, delta = scheme.participation, prepared.plan.privacy.delta
    if isinstance(law, AvailabilityCheckIn):
        interval = law.window * -(-law.windows // _TRACE_POINTS)
    steps = np.unique(np.append(np.arange(0, law.steps, interval), law.steps))
    total = prepared.guarantee.epsilon.upper
    until = _until(scheme, delta)
    inner = running(until, steps[:-1].tolist(), total)
    return EpsilonCurve(steps, np.array([*inner, total]))


def _until(scheme: Scheme, delta: float) -> Callable[[int], float]:
    """ε after a number of steps; the worst client may change, so it is found anew."""
    from turnout.accounting import epsilon_upper

    law = scheme.participation
    if not isinstance(law, AvailabilityCheckIn):
        return lambda step: epsilon_upper(scheme, delta, step, shared=True)

    def until(step: int) -> float:
        part = replace(scheme, participation=law.part(steps=step))
        return epsilon_upper(costliest_clients(part), delta)

    return until
