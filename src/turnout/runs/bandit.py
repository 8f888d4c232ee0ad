"""Runs of a bandit plan, from its text to its report; interrupted runs can be resumed.

`run_bandit` and `resume_bandit` run a plan, one run for each seed. `BanditArrays` holds contexts
and rewards that a user gives in memory in place of a plan's own environment. `turnout.api.bandit`
calls both functions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from turnout.accounting import Guarantee
from turnout.bandits import (
    BareSums,
    BatchMechanism,
    CentralSums,
    ContextualEnvironment,
    LinearEnvironment,
    LocalBits,
    LoggedEnvironment,
    Policy,
    ShuffledBits,
    contextual_environment,
    contextual_log,
    parameter_net,
    read_log,
    simulate_bandit,
    sphere_environment,
    two_best_environment,
)
from turnout.bandits.environment import checked_contexts
from turnout.bandits.private_ucb import StatisticsOfPolicy
from turnout.core.arrays import FloatArray
from turnout.core.bounds import Bounds
from turnout.core.errors import ParameterError, StorageError
from turnout.core.files import PLAN
from turnout.core.identity import identity_of
from turnout.core.showing import shows_shapes
from turnout.plans.bandit import BanditPlan
from turnout.plans.plan import read_plan
from turnout.randomness import SimulationStreams
from turnout.reporting.bandits import BanditSummary, write_bandit_report
from turnout.reporting.training_report import REPORT
from turnout.runs.folders import InterruptedRunError, RunFolder, require_new
from turnout.schemes import PrivacyUnit, Relation
from turnout.simulation.checkpoints import Checkpoint, FileCheckpoints, Recorder, RunIdentity
from turnout.simulation.driving import Every, drive

Tell = Callable[[int, int, str], None]
"""Function of the number of finished runs, the number of all runs, and a text on the regret."""
CHECKPOINT = "checkpoint.npz"
POINTS = 100
"""Number of points of a regret curve, at equal distances over the horizon."""
_SAVE_SECONDS = 2.0
_FINENESS = 0.2
_IN_MEMORY = "(in memory)"


@dataclass(frozen=True, eq=False)
class Results:
    """Results of finished runs, one row for each run.

    Attributes:
        regret: cumulative regret after each of `POINTS` equal parts of the horizon, shape
            (runs, POINTS).
        uniform: expected regret over the horizon if each action is drawn uniformly, shape (runs,).
        batches: number of batches, shape (runs,).
        epsilon: lower and upper bound on ε of each run, shape (runs, 2).
    """

    regret: FloatArray
    uniform: FloatArray
    batches: FloatArray
    epsilon: FloatArray

    @classmethod
    def none(cls) -> Results:
        """Results without any run, to which results of runs can be added."""
        return cls(np.empty((0, POINTS)), np.empty(0), np.empty(0), np.empty((0, 2)))

    def columns(self) -> dict[str, FloatArray]:
        """The four arrays of the results, by name."""
        return {name: getattr(self, name) for name in Results.__dataclass_fields__}

    def __add__(self, other: Results) -> Results:
        mine, theirs = self.columns(), other.columns()
        return Results(**{name: np.concatenate([mine[name], theirs[name]]) for name in mine})


@shows_shapes()
@dataclass(frozen=True, eq=False)
class BanditArrays:
    """Contexts and rewards in memory, which replace the table [environment] of a plan.

    Attributes:
        contexts: feature vectors φ(a, c) of A actions in N public, equally likely contexts, shape
            (N, A, d).
        candidates: parameters that the learner may send to a client, shape (K, d); None: a
            `parameter_net`.
        client_contexts: feature vectors φ(a, c) of the actions in each client's own context, shape
            (n, A, d); given together with ``rewards``.
        rewards: reward of each action to each client, in [−1, 1]; shape (n, A) with ``contexts``,
            and shape (n, K) without them, for the K actions of the plan.

    Raises:
        ParameterError: contexts of another shape, candidates or client contexts without contexts,
            or only one of client contexts and rewards.
    """

    contexts: ArrayLike | None = None
    candidates: ArrayLike | None = None
    client_contexts: ArrayLike | None = None
    rewards: ArrayLike | None = None

    def __post_init__(self) -> None:
        if self.contexts is None:
            for name in ("candidates", "client_contexts"):
                if getattr(self, name) is not None:
                    raise ParameterError(name, "an array", "no value, since contexts is not given")
            return
        held = checked_contexts(contexts=self.contexts)
        object.__setattr__(self, "contexts", held)
        if self.candidates is None:
            object.__setattr__(self, "candidates", parameter_net(held.shape[2], _FINENESS))
        if (self.client_contexts is None) != (self.rewards is None):
            expected = "client_contexts and rewards together with contexts, or neither of them"
            name = "rewards" if self.rewards is None else "client_contexts"
            raise ParameterError(name, None, expected)

    def plan(self, tables: Mapping[str, Any]) -> BanditPlan:
        """Plan from tables, with an environment that contains the arrays.

        Raises:
            ParameterError: the plan is invalid, or has a setting that the arrays replace.
        """
        # Without arrays the plan stays as it is.
        environment = tables.get("environment")
        if not isinstance(environment, Mapping) or (self.contexts is None and self.rewards is None):
            return BanditPlan.from_mapping(dict(tables))
        names, completed = ["log", "actions", "gap"], dict(environment)
        # Pulls of a contextual problem are candidates; their features are the published g.
        if self.contexts is not None:
            names += ["features", "dimension"]
            pulls = self._contextual(np.zeros(np.shape(self.contexts)[2])).actions
            completed["features"] = pulls.tolist()
        if self.rewards is not None:
            names.append("parameter")
            completed["log"] = _IN_MEMORY
        # A key that the arrays replace must not be set.
        for name in names:
            if name in environment:
                given = "rewards" if self.contexts is None else "contexts"
                expected = f"no value, since the {given} are given as arrays"
                raise ParameterError(f"environment.{name}", environment[name], expected)
        return BanditPlan.from_mapping({**tables, "environment": completed})

    def environment(self, plan: BanditPlan) -> LinearEnvironment | LoggedEnvironment | None:
        """Environment of all runs; None if no array is given.

        Raises:
            ParameterError: an array has another shape, or there are fewer clients than pulls.
        """
        features, parameter = plan.environment.features, plan.environment.parameter
        if self.rewards is None:
            return None if self.contexts is None else self._contextual(np.array(parameter))
        if self.contexts is None:
            found = LoggedEnvironment(np.array(features), np.asarray(self.rewards))
        else:
            assert self.candidates is not None
            assert self.client_contexts is not None
            found = contextual_log(
                self.contexts, self.candidates, self.client_contexts, self.rewards
            )
        return _long_enough(plan, found)

    def _contextual(self, parameter: FloatArray) -> ContextualEnvironment:
        assert self.contexts is not None
        assert self.candidates is not None
        return contextual_environment(
            np.asarray(self.contexts), parameter, np.asarray(self.candidates)
        )

    @property
    def counts(self) -> tuple[int, int] | None:
        """Number of public contexts and number of candidates; None without contexts."""
        if self.contexts is None or self.candidates is None:
            return None
        return len(np.asarray(self.contexts)), len(np.asarray(self.candidates))


def run_bandit(
    source: Path | Mapping[str, Any],
    folder: Path | None,
    tell: Tell,
    arrays: BanditArrays | None = None,
) -> BanditSummary:
    """Results of a plan's runs, with a report in a new folder if one is given.

    Raises:
        ParameterError: the plan is invalid, or the folder is not empty.
        InterruptedRunError: Ctrl-C stopped the runs; the folder holds a checkpoint.
    """
    # The plan, from its file or as tables.
    given = arrays or BanditArrays()
    if isinstance(source, Path):
        text, place = read_plan(source), source.parent
        plan = given.plan(BanditPlan.tables_from_toml(text, str(source)))
    else:
        plan, place = given.plan(source), Path()
        text = BanditPlan.tables_to_toml(dict(source))
    # All checks, before the first file is written.
    mechanism_of(plan)
    require_new(folder)
    environment = _given_or_logged(plan, given, place)
    if folder is not None:
        RunFolder(folder).begin(text, None if environment is None else place)
    return _finished(plan, text, environment, folder, tell, contexts=given.counts)


def resume_bandit(folder: Path, tell: Tell, arrays: BanditArrays | None = None) -> BanditSummary:
    """Results of all runs of an interrupted plan, after execution of the remaining runs.

    Raises:
        ParameterError: the folder holds no runs, or runs of another plan, log or arrays.
        StorageError: the checkpoint is damaged.
        InterruptedRunError: Ctrl-C stopped the runs; the folder holds a checkpoint.
    """
    given, text = arrays or BanditArrays(), RunFolder(folder).plan_text()
    plan = given.plan(BanditPlan.tables_from_toml(text, str(folder / PLAN)))
    environment = _given_or_logged(plan, given, RunFolder(folder).place)
    return _finished(plan, text, environment, folder, tell, contexts=given.counts)


def _given_or_logged(
    plan: BanditPlan, given: BanditArrays, place: Path
) -> LinearEnvironment | LoggedEnvironment | None:
    """Environment from the arrays or the plan's log; None if each run draws an environment."""
    found = given.environment(plan)
    return logged(plan, place) if found is None else found


def mechanism_of(plan: BanditPlan) -> BatchMechanism:
    """Mechanism that a plan names.

    Raises:
        ParameterError: the mechanism cannot have the plan's ε.
    """
    privacy = plan.privacy
    try:
        # A policy that adds its own noise has a mechanism of its own.
        if plan.policy.registered.adds_noise:
            policy: Any = policy_of(plan)
            return policy.mechanism(plan.environment.numbers)
        # Otherwise the trust model decides.
        match privacy.trust:
            case "central":
                return CentralSums(privacy.epsilon or 0.0)
            case "local":
                return LocalBits(privacy.epsilon or 0.0)
            case "shuffled":
                return ShuffledBits(privacy.epsilon or 0.0, privacy.delta or 0.0)
            case "none":
                return BareSums()
    # Errors name the key of the plan.
    except ParameterError as error:
        raise ParameterError(f"privacy.{error.name}", error.value, error.expected) from None


def policy_of(plan: BanditPlan) -> Policy[Any]:
    """Policy that a plan names."""
    return plan.policy.registered.build(plan.policy, plan.privacy)


def environment_of(
    plan: BanditPlan,
    streams: SimulationStreams,
    environment: LinearEnvironment | LoggedEnvironment | None = None,
) -> LinearEnvironment | LoggedEnvironment:
    """Environment of one run: the shared ``environment`` if given, else one from the plan."""
    asked = plan.environment
    if environment is not None:
        return environment
    if asked.features is not None:
        return LinearEnvironment(np.array(asked.features), np.array(asked.parameter))
    assert asked.actions is not None
    if asked.gap is not None:
        return two_best_environment(asked.gap, asked.actions)
    generator = streams.generator("bandit", "environment")
    return sphere_environment(asked.actions, asked.dimension, generator)


def logged(plan: BanditPlan, place: Path) -> LoggedEnvironment | None:
    """Environment from the log file that a plan names; None if the plan names no log.

    Raises:
        InputFileError: the file is missing, or has other columns.
        ParameterError: a client occurs twice, a reward is out of range, or there are fewer clients
            than pulls.
    """
    asked = plan.environment
    if asked.log is None:
        return None
    try:
        found = read_log(place / asked.log, np.array(asked.features))
    except ParameterError as error:
        raise ParameterError(f"environment.{error.name}", error.value, error.expected) from None
    return _long_enough(plan, found)


def _long_enough(plan: BanditPlan, log: LoggedEnvironment) -> LoggedEnvironment:
    """The log, after a check that it has at least one client for each pull."""
    if plan.environment.horizon > len(log.outcomes):
        expected = f"at most {len(log.outcomes)}, the number of clients in the log"
        raise ParameterError("environment.horizon", plan.environment.horizon, expected)
    return log


def _finished(
    plan: BanditPlan,
    text: str,
    environment: LinearEnvironment | LoggedEnvironment | None,
    folder: Path | None,
    tell: Tell,
    *,
    contexts: tuple[int, int] | None,
) -> BanditSummary:
    """Summary of all runs; the report is written if there is a folder."""
    # All runs; Ctrl-C ends them between two runs, after a checkpoint.
    run = _Seeds(plan, environment, folder)
    told = Every[None](seconds=_SAVE_SECONDS)
    if not drive(run, run.save, told, lambda _: tell(run.done, run.total, run.so_far)):
        raise InterruptedRunError(folder, run.done, run.total, unit="run", command="bandit")
    # The summary, with the guarantee of the run with the largest ε.
    results, seconds = run.results, run.seconds
    places = np.linspace(0, plan.environment.horizon, POINTS + 1)[1:]
    guarantee = _guarantee(mechanism_of(plan), results)
    curves = (places, results.regret, results.uniform, results.batches)
    summary = BanditSummary(plan, guarantee, *curves, seconds, contexts)
    # A new report replaces an old one.
    if folder is not None:
        (folder / REPORT).unlink(missing_ok=True)
        write_bandit_report(folder, summary, text)
    return summary


class _Seeds:
    """Runs of a bandit plan, one for each seed; finished runs are read from the checkpoint."""

    def __init__(
        self,
        plan: BanditPlan,
        environment: LinearEnvironment | LoggedEnvironment | None,
        folder: Path | None,
    ) -> None:
        # Where finished runs are stored, and the checkpoint that is there already.
        self._plan, self._environment = plan, environment
        place = None if folder is None else RunFolder(folder).checkpoint(CHECKPOINT)
        self._store = None if place is None else FileCheckpoints(place)
        self.total = plan.run.seeds
        identity = identity_of(_identifying(plan, environment))
        saved = None if self._store is None else self._store.load()
        # Finished runs count only if plan, log and arrays are the same.
        self._run = RunIdentity.new(identity) if saved is None else saved.run
        self.results, self._before = Results.none(), 0.0
        if saved is not None:
            try:
                self._run.require(identity)
            except StorageError:
                expected = "a folder whose checkpoint belongs to the same plan, log and arrays"
                raise ParameterError("resume", str(folder), expected) from None
            self.results = Results(**dict(saved.server))  # pyright: ignore
            self._before = saved.seconds
        self._began = time.monotonic()

    @property
    def done(self) -> int:
        """Number of finished runs."""
        return len(self.results.uniform)

    @property
    def seconds(self) -> float:
        """Running time in seconds, including the time before an interruption."""
        return self._before + time.monotonic() - self._began

    @property
    def so_far(self) -> str:
        """Text for a progress bar: the mean regret of the finished runs."""
        if not self.results.uniform.size:
            return "runs"
        mean, uniform = self.results.regret[:, -1].mean(), self.results.uniform.mean()
        return f"runs, regret {mean:,.0f} (uniform play {uniform:,.0f})"

    def remaining(self) -> Iterator[None]:
        """Execute the remaining runs; yield between two runs."""
        yield None
        while self.done < self.total:
            streams = SimulationStreams(self._plan.run.seed + self.done)
            self.results += _one_run(self._plan, self._environment, streams)
            yield None

    def save(self) -> None:
        """Write the finished runs into the checkpoint, if there is a folder."""
        if self._store is None:
            return
        history = Recorder(0, 0).until(0, 0)
        columns = self.results.columns()
        self._store.save(Checkpoint(self._run, self.done, columns, {}, None, history, self.seconds))


def _identifying(
    plan: BanditPlan, environment: LinearEnvironment | LoggedEnvironment | None
) -> dict[str, object]:
    """Values that determine the outcome of the runs, for comparison with a checkpoint."""
    log = environment.outcomes if isinstance(environment, LoggedEnvironment) else None
    parts: dict[str, object] = {"bandit": plan.to_toml(), "log": log}
    if isinstance(environment, ContextualEnvironment):
        parts |= {"optimum": environment.optimum, "candidates": environment.candidates}
    return parts


def _one_run(
    plan: BanditPlan,
    shared: LinearEnvironment | LoggedEnvironment | None,
    streams: SimulationStreams,
) -> Results:
    """Result of one run: regret curve, regret of uniform actions, number of batches, and ε."""
    # The run itself.
    environment, mechanism = environment_of(plan, streams, shared), mechanism_of(plan)
    horizon = plan.environment.horizon
    run = simulate_bandit(policy_of(plan), environment, mechanism, horizon, streams)
    # The regret at equal parts of the horizon, and the cost of the batches.
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
    """Guarantee of the run with the largest ε; None without privacy."""
    # Without privacy there is no guarantee.
    if mechanism.trust is None:
        return None
    # The bounds of the run that costs most.
    lower, upper = results.epsilon.max(axis=0)
    method = "one batch a client: the costliest batch, by the exact distribution of its sums"
    if isinstance(mechanism, StatisticsOfPolicy):
        method = "action, context and reward of a client: all noisy statistics that hold them"
    # Rewards are compared under replace-one, which has one direction.
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
