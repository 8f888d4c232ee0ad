"""Running a bandit plan from its file to its report, or going on where it was stopped."""

from __future__ import annotations

import time
from collections.abc import Callable
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
from turnout.core.files import write
from turnout.core.identity import identity_of
from turnout.plans.bandit import BanditPlan
from turnout.plans.plan import read_plan
from turnout.randomness import SimulationStreams
from turnout.reporting.bandits import BanditSummary, write_bandit_report
from turnout.reporting.training_report import PLAN, REPORT, SIMULATOR
from turnout.runs.execution import InterruptedRunError
from turnout.runs.training import PLACE, place_of
from turnout.schemes import PrivacyUnit, Relation
from turnout.simulation.checkpoints import Checkpoint, FileCheckpoints, Recorder, RunIdentity

Tell = Callable[[int, int, str], None]
"""It is told how many of how many runs are done, and their regret so far in words."""
CHECKPOINT = "checkpoint.npz"
POINTS = 100
"""Points of a regret curve, evenly over the horizon."""
_SAVE_SECONDS = 2.0


class InterruptedBanditError(InterruptedRunError):
    """Ctrl-C: the run that was going on is lost, those before it are in the checkpoint."""

    def __init__(self, folder: Path, done: int, seeds: int) -> None:
        Exception.__init__(
            self,
            f"stopped after run {done} of {seeds}; go on with: turnout bandit --resume {folder}",
        )


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
        InterruptedBanditError: Ctrl-C; the folder holds a checkpoint.
    """
    text = read_plan(source)
    plan = BanditPlan.from_toml(text, str(source))
    mechanism_of(plan)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ParameterError("out", str(folder), "a new or empty folder (or use --resume)")
    log = logged(plan, source.parent)
    write(folder / PLAN, text)
    if log is not None:
        write(folder / SIMULATOR / PLACE, str(source.parent.resolve()))
    return _finished(plan, text, log, folder, tell)


def resume_bandit(folder: Path, tell: Tell) -> BanditSummary:
    """The report of runs that were stopped or killed, after those that are left.

    Raises:
        ParameterError: the folder holds no runs, or those of another plan.
        StorageError: the checkpoint is damaged.
        InterruptedBanditError: Ctrl-C; the folder holds a checkpoint.
    """
    if not (folder / PLAN).is_file():
        raise ParameterError("resume", str(folder), f"a folder that holds a run ({PLAN})")
    text = read_plan(folder / PLAN)
    plan = BanditPlan.from_toml(text, str(folder / PLAN))
    return _finished(plan, text, logged(plan, place_of(folder)), folder, tell)


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
    place = folder / SIMULATOR / CHECKPOINT
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"{place} cannot be written: {error}") from error
    results, seconds = _all_runs(plan, log, FileCheckpoints(place), folder, tell)
    places = np.linspace(0, plan.environment.horizon, POINTS + 1)[1:]
    guarantee = _guarantee(mechanism_of(plan), results)
    summary = BanditSummary(
        plan, guarantee, places, results.regret, results.uniform, results.batches, seconds
    )
    (folder / REPORT).unlink(missing_ok=True)
    write_bandit_report(folder, summary, text)
    return summary


def _all_runs(
    plan: BanditPlan,
    log: LoggedEnvironment | None,
    store: FileCheckpoints,
    folder: Path,
    tell: Tell,
) -> tuple[Results, float]:
    """The results of all seeds, from the checkpoint on, and the seconds that they took."""
    identity = identity_of({"bandit": plan.to_toml(), "log": None if log is None else log.outcomes})
    saved = store.load()
    run = RunIdentity.new(identity) if saved is None else saved.run
    results, before = Results.none(), 0.0
    if saved is not None:
        try:
            run.require(identity)
        except StorageError:
            expected = "a folder whose checkpoint is of its plan and log"
            raise ParameterError("resume", str(folder), expected) from None
        results, before = Results(**dict(saved.server)), saved.seconds  # pyright: ignore
    began = last = time.monotonic()
    seeds, done = plan.run.seeds, len(results.uniform)

    def save() -> None:
        seconds = before + time.monotonic() - began
        history = Recorder(0, 0).until(0, 0)
        store.save(Checkpoint(run, done, results.columns(), {}, None, history, seconds))

    try:
        while done < seeds:
            tell(done, seeds, _so_far(results))
            results += _one_run(plan, log, SimulationStreams(plan.run.seed + done))
            done += 1
            if time.monotonic() - last > _SAVE_SECONDS:
                save()
                last = time.monotonic()
    except KeyboardInterrupt:
        save()
        raise InterruptedBanditError(folder, done, seeds) from None
    save()
    return results, before + time.monotonic() - began


def _so_far(results: Results) -> str:
    """Mean regret of the finished runs, for who waits."""
    if not results.uniform.size:
        return "runs"
    mean = results.regret[:, -1].mean()
    return f"runs, regret {mean:,.0f} (uniform play {results.uniform.mean():,.0f})"


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
