"""`bandit`: simulated runs of a private linear bandit from a plan or from a user's arrays.

A `BanditRun` is the result: regret over the pulls, and bounds on ε of one client's reward.
`turnout.runs.bandit` simulates the runs. `turnout.reporting.bandits` has the table that the command
``turnout bandit`` prints and the picture that it writes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from turnout.api.price import Result
from turnout.core.errors import ParameterError
from turnout.core.optional import require
from turnout.reporting.words import rounded_up

if TYPE_CHECKING:
    from numpy.typing import ArrayLike
    from rich.console import RenderableType

    from turnout.accounting import Guarantee
    from turnout.core.arrays import FloatArray
    from turnout.plans.bandit import BanditPlan
    from turnout.reporting.bandits import BanditSummary
    from turnout.reporting.drawing import Picture


@dataclass(frozen=True, eq=False, repr=False)
class BanditRun(Result):
    """Finished runs of a bandit plan, one run for each seed.

    Attributes:
        summary: content of the report.
        folder: folder of the report; None if no report was written.
    """

    summary: BanditSummary
    folder: Path | None

    @property
    def guarantee(self) -> Guarantee | None:
        """Privacy guarantee to each client in the run with the largest ε; None under trust
        "none".
        """
        return self.summary.guarantee

    @property
    def pulls(self) -> FloatArray:
        """Numbers of pulls after which ``regret`` is given, shape (points,)."""
        return self.summary.pulls

    @property
    def regret(self) -> FloatArray:
        """Cumulative regret of each run after each number of pulls, shape (runs, points); not
        private.
        """
        return self.summary.regret

    @property
    def uniform(self) -> FloatArray:
        """Regret that uniformly random actions have over the whole horizon of each run, shape
        (runs,).
        """
        return self.summary.uniform

    def to_dict(self) -> dict[str, Any]:
        """Content of report.json; ``epsilon`` is the upper bound, and None without privacy."""
        return self.summary.record()

    def table(self) -> RenderableType:
        """Table of the runs as a ``rich`` renderable, as ``turnout bandit`` prints it."""
        from turnout.reporting.bandits import bandit_table

        return bandit_table(self.summary)

    def plot(self) -> Picture:
        """Picture of the mean regret over the pulls, with a band that contains 90 % of the runs.

        Raises:
            MissingExtraError: the plotting packages are not installed.
        """
        require("plots", what="plot")
        from turnout.reporting.bandits import bandit_picture

        return bandit_picture(self.summary)

    def __repr__(self) -> str:
        final = self.regret[:, -1]
        said = f"regret {final.mean():,.0f} over {self.pulls[-1]:,.0f} pulls, {len(final)} runs"
        if self.guarantee is None:
            return f"BanditRun({said}; no privacy)"
        found = self.guarantee
        delta = f", δ = {found.delta:g}" if found.delta else ""
        return (
            f"BanditRun({said}; {found.trust.value}, ε = {rounded_up(found.epsilon.upper)}{delta}, "
            f"{found.relation.value}, {found.unit.value})"
        )


def bandit(
    plan: str | os.PathLike[str] | BanditPlan | Mapping[str, Any] | None = None,
    out: str | os.PathLike[str] | None = None,
    *,
    contexts: ArrayLike | None = None,
    candidates: ArrayLike | None = None,
    client_contexts: ArrayLike | None = None,
    rewards: ArrayLike | None = None,
    resume: str | os.PathLike[str] | None = None,
    progress: bool = False,
) -> BanditRun:
    """Simulated runs of a private bandit: regret, and bounds on ε of one client's reward.

    Each client has one reward and takes part once. Without arrays the plan's [environment] draws
    actions and rewards, or names a log. With ``contexts`` a pull selects a parameter θᵢ. The client
    takes the action whose mean reward under θᵢ is largest in the client's context, and reports the
    reward. ε then covers context and reward together (joint differential privacy). With ``rewards``
    the given clients are replayed in the order of the rows.

    Clients and their randomness are simulated: all draws follow from the plan's seed, so the run
    itself has no privacy. The guarantee is that of a deployment of the same plan with the
    randomness of the operating system.
    Regret is computed from the hidden parameter or from all rewards; no ε covers it.

    Args:
        plan: the path of a TOML file, a TOML text (with a line break in it), its tables as a
            mapping, or a `turnout.plans.bandit.BanditPlan`; docs/bandits.md lists its keys. If
            ``contexts`` is given, the plan's [environment] has ``horizon`` and, unless ``rewards``
            is given, the hidden ``parameter`` of d numbers. If only ``rewards`` is given, it has
            ``horizon`` and ``features``.
        out: a new or empty folder for a checkpoint and the report; None writes nothing.
        contexts: features φ(a, c) of A actions in N contexts, all equally likely, each of ℓ2 norm
            at most 1, shape (N, A, d). The features are public: their mean under each candidate is
            published.
        candidates: parameters θᵢ that may be pulled, shape (K, d); their norms have no effect. By
            default `turnout.bandits.parameter_net` with fineness 0.2.
        client_contexts: φ(a, c) in the context of each of n clients, shape (n, A, d); given only
            together with ``contexts`` and ``rewards``. Private.
        rewards: rewards in [−1, 1] that each of n clients would report. With ``client_contexts``
            the shape is (n, A): one reward for each of the A actions in the client's context.
            Otherwise the shape is (n, K), for the plan's K actions. Private.
        resume: folder of runs that were interrupted; given instead of ``plan`` and ``out``. The
            arrays of these runs must be given again.
        progress: whether to show on the terminal how many runs are finished.

    Returns:
        The runs; ``guarantee.epsilon.upper`` is never below the true ε of the run with the largest
        ε, and ``guarantee.epsilon.lower`` is never above it.

    Raises:
        ParameterError: the plan, the folder or an array is invalid.
        UnsupportedError: the net of candidates would be too large for memory.
        StorageError: a file cannot be written, or a checkpoint is damaged.
        turnout.runs.InterruptedRunError: Ctrl-C stopped the runs; ``out``, if given, has a
            checkpoint.

    Source: thesis, §6.2 and §6.3.1; docs/design/bandits.md, "One batch a client".

    >>> plan = {
    ...     "environment": {"horizon": 2_000, "actions": 5},
    ...     "privacy": {"trust": "central", "epsilon": 1.0},
    ...     "run": {"seeds": 2},
    ... }
    >>> bandit(plan).guarantee.epsilon.upper
    1.0
    """
    require("train", what="turnout.bandit")
    from turnout.reporting.progress import progress_bar
    from turnout.runs import bandit as runs

    if (plan is None) == (resume is None) or (resume is not None and out is not None):
        raise ParameterError("plan", plan, "a plan (with or without out), or resume without a plan")
    arrays = runs.BanditArrays(contexts, candidates, client_contexts, rewards)
    silent = nullcontext(lambda done, of, named="": None)
    with progress_bar("runs") if progress else silent as tell:
        if resume is not None:
            folder = Path(resume)
            return BanditRun(runs.resume_bandit(folder, tell, arrays), folder)
        folder = None if out is None else Path(out)
        return BanditRun(runs.run_bandit(_source(plan), folder, tell, arrays), folder)


def _source(plan: Any) -> Path | Mapping[str, Any]:
    """Path of the plan file, or the plan's tables as a mapping."""
    from turnout.plans.bandit import BanditPlan

    if isinstance(plan, BanditPlan):
        return plan.model_dump(mode="json", exclude_none=True)
    if isinstance(plan, str) and "\n" in plan:
        return BanditPlan.tables_from_toml(plan)
    return plan if isinstance(plan, Mapping) else Path(plan)
