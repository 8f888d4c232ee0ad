"""Running a bandit plan from its file to its report, or going on where it was stopped."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from turnout.accounting import Guarantee
from turnout.bandits import (
    BareSums,
    BatchedThompson,
    BatchMechanism,
    CentralSums,
    Elimination,
    LinearEnvironment,
    LinUCB,
    LocalBits,
    LoggedEnvironment,
    Policy,
    PrivateLinUCB,
    ShuffledBits,
    phased_elimination,
    read_log,
    simulate_bandit,
    sphere_environment,
    two_best_environment,
)
from turnout.bandits.private_ucb import StatisticsOfPolicy
from turnout.core.arrays import FloatArray
from turnout.core.bounds import Bounds
from turnout.core.errors import ParameterError, StorageError
from turnout.core.identity import identity_of
from turnout.plans.bandit import BanditPlan
from turnout.plans.plan import read_plan
from turnout.randomness import SimulationStreams
from turnout.reporting.bandits import BanditSummary, write_bandit_report
from turnout.reporting.training_report import PLAN, REPORT
from turnout.runs.folders import InterruptedRunError, RunFolder, require_new
from turnout.schemes import PrivacyUnit, Relation
from turnout.simulation.checkpoints import Checkpoint, FileCheckpoints, Recorder, RunIdentity
from turnout.simulation.driving import Every, drive

Tell = Callable[[int, int, str], None]
"""It is told how many of how many runs are done, and their regret so far in words."""
CHECKPOINT = "checkpoint.npz"
POINTS = 100
"""Points of a regret curve, evenly over the horizon."""
_SAVE_SECONDS = 2.0


@dataclass(frozen=True, eq=False)
class Results:
    """Finished runs, one a row.

    Attributes:
        regret: at `POINTS` places, shape (runs, POINTS).
        uniform: regret of uniform play over the horizon, shape (runs,).
        batches: shape (runs,).
        epsilon: lower and upper bound on ε of each run, shape (runs, 2).
    """

    regret: FloatArray
    uniform: FloatArray
    batches: FloatArray
    epsilon: FloatArray

    @classmethod
    def none(cls) -> Results:
        """No run yet."""
        return cls(np.empty((0, POINTS)), np.empty(0), np.empty(0), np.empty((0, 2)))

    def columns(self) -> dict[str, FloatArray]:
        """The arrays by name."""
        return {name: getattr(self, name) for name in Results.__dataclass_fields__}

    def __add__(self, other: Results) -> Results:
        mine, theirs = self.columns(), other.columns()
        return Results(**{name: np.concatenate([mine[name], theirs[name]]) for name in mine})


def run_bandit(source: Path, folder: Path, tell: Tell) -> BanditSummary:
    """The runs of a plan, reported into a new folder.

    Raises:
        ParameterError: the plan is refused, or the folder already holds something.
        InterruptedRunError: Ctrl-C; the folder holds a checkpoint.
    """
    text = read_plan(source)
    plan = BanditPlan.from_toml(text, str(source))
    mechanism_of(plan)
    require_new(folder)
    log = logged(plan, source.parent)
    RunFolder(folder).begin(text, None if log is None else source.parent)
    return _finished(plan, text, log, folder, tell)


def resume_bandit(folder: Path, tell: Tell) -> BanditSummary:
    """The report of runs that were stopped or killed, after those that are left.

    Raises:
        ParameterError: the folder holds no runs, or those of another plan.
        StorageError: the checkpoint is damaged.
        InterruptedRunError: Ctrl-C; the folder holds a checkpoint.
    """
    text = RunFolder(folder).plan_text()
    plan = BanditPlan.from_toml(text, str(folder / PLAN))
    return _finished(plan, text, logged(plan, RunFolder(folder).place), folder, tell)


def mechanism_of(plan: BanditPlan) -> BatchMechanism:
    """The mechanism that a plan names.

    Raises:
        ParameterError: an ε that it cannot have.
    """
    privacy = plan.privacy
    try:
        if plan.policy.name == "private-linucb":
            return private_linucb(plan).mechanism(plan.environment.numbers)
        match privacy.trust:
            case "central":
                return CentralSums(privacy.epsilon or 0.0)
            case "local":
                return LocalBits(privacy.epsilon or 0.0)
            case "shuffled":
                return ShuffledBits(privacy.epsilon or 0.0, privacy.delta or 0.0)
            case "none":
                return BareSums()
    except ParameterError as error:
        raise ParameterError(f"privacy.{error.name}", error.value, error.expected) from None


def policy_of(plan: BanditPlan) -> Policy[Any]:
    """The policy that a plan names."""
    asked = plan.policy
    elimination = Elimination(asked.failure, asked.growth, asked.first_batch, asked.commit)
    match asked.name:
        case "elimination":
            return elimination
        case "thompson":
            guard = elimination if asked.guard else None
            first, commit = asked.first_batch, asked.commit
            return BatchedThompson(asked.growth, first, commit=commit, guard=guard)
        case "linucb":
            return LinUCB(asked.failure)
        case "phased-elimination":
            return phased_elimination(asked.failure, asked.growth)
        case "private-linucb":
            return private_linucb(plan)


def private_linucb(plan: BanditPlan) -> PrivateLinUCB:
    """LinUCB with noise of its own, in the plan's trust model."""
    privacy, asked = plan.privacy, plan.policy
    assert privacy.trust != "none"
    epsilon, delta = privacy.epsilon or 0.0, privacy.delta or 0.0
    return PrivateLinUCB(privacy.trust, epsilon, delta, asked.first_batch, asked.failure)


def environment_of(
    plan: BanditPlan, streams: SimulationStreams, log: LoggedEnvironment | None = None
) -> LinearEnvironment | LoggedEnvironment:
    """The environment of one run."""
    asked = plan.environment
    if log is not None:
        return log
    if asked.features is not None:
        return LinearEnvironment(np.array(asked.features), np.array(asked.parameter))
    assert asked.actions is not None
    if asked.gap is not None:
        return two_best_environment(asked.gap, asked.actions)
    generator = streams.generator("bandit", "environment")
    return sphere_environment(asked.actions, asked.dimension, generator)


def logged(plan: BanditPlan, place: Path) -> LoggedEnvironment | None:
    """The log that a plan names, relative to a place; None if it names none.

    Raises:
        InputFileError: no such file, or other columns.
        ParameterError: a client twice, a reward out of range, or fewer clients than pulls.
    """
    asked = plan.environment
    if asked.log is None:
        return None
    try:
        found = read_log(place / asked.log, np.array(asked.features))
    except ParameterError as error:
        raise ParameterError(f"environment.{error.name}", error.value, error.expected) from None
    if asked.horizon > len(found.outcomes):
        expected = f"at most the clients of the log, {len(found.outcomes)}"
        raise ParameterError("environment.horizon", asked.horizon, expected)
    return found


def _finished(
    plan: BanditPlan, text: str, log: LoggedEnvironment | None, folder: Path, tell: Tell
) -> BanditSummary:
    """All runs, then the report."""
    run = _Seeds(plan, log, FileCheckpoints(RunFolder(folder).checkpoint(CHECKPOINT)), folder)
    told = Every[None](seconds=_SAVE_SECONDS)
    if not drive(run, run.save, told, lambda _: tell(run.done, run.total, run.so_far)):
        raise InterruptedRunError(folder, run.done, run.total, unit="run", command="bandit")
    results, seconds = run.results, run.seconds
    places = np.linspace(0, plan.environment.horizon, POINTS + 1)[1:]
    guarantee = _guarantee(mechanism_of(plan), results)
    summary = BanditSummary(
        plan, guarantee, places, results.regret, results.uniform, results.batches, seconds
    )
    (folder / REPORT).unlink(missing_ok=True)
    write_bandit_report(folder, summary, text)
    return summary


class _Seeds:
    """Runs of a bandit plan, one a seed, from the checkpoint on."""

    def __init__(
        self,
        plan: BanditPlan,
        log: LoggedEnvironment | None,
        store: FileCheckpoints,
        folder: Path,
    ) -> None:
        self._plan, self._log, self._store = plan, log, store
        self.total = plan.run.seeds
        outcomes = None if log is None else log.outcomes
        identity = identity_of({"bandit": plan.to_toml(), "log": outcomes})
        saved = store.load()
        self._run = RunIdentity.new(identity) if saved is None else saved.run
        self.results, self._before = Results.none(), 0.0
        if saved is not None:
            try:
                self._run.require(identity)
            except StorageError:
                expected = "a folder whose checkpoint is of its plan and log"
                raise ParameterError("resume", str(folder), expected) from None
            self.results = Results(**dict(saved.server))  # pyright: ignore
            self._before = saved.seconds
        self._began = time.monotonic()

    @property
    def done(self) -> int:
        """Seeds done."""
        return len(self.results.uniform)

    @property
    def seconds(self) -> float:
        """Running time, earlier parts included."""
        return self._before + time.monotonic() - self._began

    @property
    def so_far(self) -> str:
        """Mean regret of the finished runs, for progress bars."""
        if not self.results.uniform.size:
            return "runs"
        mean, uniform = self.results.regret[:, -1].mean(), self.results.uniform.mean()
        return f"runs, regret {mean:,.0f} (uniform play {uniform:,.0f})"

    def remaining(self) -> Iterator[None]:
        """Plays the seeds that are left."""
        yield None
        while self.done < self.total:
            streams = SimulationStreams(self._plan.run.seed + self.done)
            self.results += _one_run(self._plan, self._log, streams)
            yield None

    def save(self) -> None:
        """Writes the finished runs into the checkpoint."""
        history = Recorder(0, 0).until(0, 0)
        columns = self.results.columns()
        self._store.save(Checkpoint(self._run, self.done, columns, {}, None, history, self.seconds))


def _one_run(
    plan: BanditPlan, log: LoggedEnvironment | None, streams: SimulationStreams
) -> Results:
    """One run: its regret curve and what it costs in privacy."""
    environment, mechanism = environment_of(plan, streams, log), mechanism_of(plan)
    horizon = plan.environment.horizon
    run = simulate_bandit(policy_of(plan), environment, mechanism, horizon, streams)
    places = np.linspace(0, horizon, POINTS + 1)[1:]
    curve = np.interp(places, np.append(0, run.pulled), np.append(0.0, run.regret))
    epsilon = mechanism.epsilon([batch.pulls for batch in run.batches])
    return Results(
        curve[None],
        np.array([horizon * float(environment.gaps.mean())]),
        np.array([float(len(run.batches))]),
        np.array([[epsilon.lower, epsilon.upper]]),
    )


def _guarantee(mechanism: BatchMechanism, results: Results) -> Guarantee | None:
    """The guarantee of the costliest run; None without privacy."""
    if mechanism.trust is None:
        return None
    lower, upper = results.epsilon.max(axis=0)
    method = "one batch a client: the costliest batch, by the exact law of its sums"
    if isinstance(mechanism, StatisticsOfPolicy):
        method = "action, context and reward of a client: all noisy statistics that hold them"
    bounds = Bounds(float(lower), float(upper))
    return Guarantee(
        bounds,
        mechanism.delta,
        {"replace": bounds},
        Relation.REPLACE_ONE,
        PrivacyUnit.CLIENT,
        mechanism.trust,
        method,
        tolerance=0.01,
        exact=False,
    )
