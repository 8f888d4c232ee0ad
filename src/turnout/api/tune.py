"""`tune`: random search for the settings of a plan, on public or on private clients.

A `Tuning` is the result. A search on private clients has a privacy guarantee of its own.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from turnout.api.price import Result
from turnout.core.errors import ParameterError
from turnout.core.optional import require
from turnout.reporting.words import rounded_up

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from rich.console import RenderableType

    from turnout.accounting import Guarantee
    from turnout.data import ClientData
    from turnout.plans import Plan
    from turnout.runs.search import Searched


@dataclass(frozen=True, eq=False, repr=False)
class Tuning(Result):
    """Result of a finished search for settings.

    Attributes:
        found: the releasable results of the search.
        folder: folder with the result; None if no file was written.
    """

    found: Searched
    folder: Path | None

    @property
    def plan(self) -> Plan:
        """Plan with the best values; to train with this plan on private clients costs further ε."""
        return self.found.plan

    @property
    def values(self) -> dict[str, Any]:
        """Best values by their dotted keys."""
        return dict(self.found.best.values)

    @property
    def score(self) -> float:
        """Metric of the best run on held-out clients, with noise if the clients are private."""
        return self.found.best.score

    @property
    def candidates(self) -> list[tuple[dict[str, Any], float]]:
        """Values and score of each run of a public search; empty for a private search."""
        return [(dict(one.values), one.score) for one in self.found.candidates]

    @property
    def guarantee(self) -> Guarantee | None:
        """Privacy guarantee that the whole search gives each client; None for a public search."""
        return None if self.found.price is None else self.found.price.guarantee

    @property
    def parameters(self) -> NDArray[Any] | None:
        """Best model's parameters, (dimension,), with the guarantee; None for a public search."""
        return None if self.found.outcome is None else self.found.outcome.parameters

    def to_dict(self) -> dict[str, Any]:
        """Content of tune.json, which holds only the best run of a private search."""
        from turnout.runs.tuning import searched_record

        return searched_record(self.found)

    def table(self) -> RenderableType:
        """Table of the search as a ``rich`` renderable, as ``turnout tune`` prints it."""
        from turnout.reporting.budgets import tuning_table

        return tuning_table(self.to_dict())

    def __repr__(self) -> str:
        values = ", ".join(f"{key} = {value!r}" for key, value in self.values.items())
        if self.guarantee is None:
            return f"Tuning({values}; nothing private was read)"
        epsilon = rounded_up(self.guarantee.epsilon.upper)
        return f"Tuning({values}; ε = {epsilon}, δ = {self.guarantee.delta:g})"


def tune(
    plan: str | os.PathLike[str] | Plan | Mapping[str, Any] | None = None,
    out: str | os.PathLike[str] | None = None,
    *,
    ranges: Mapping[str, Mapping[str, Any] | Sequence[Any]] | None = None,
    candidates: int | None = None,
    held_out: float | None = None,
    resume: str | os.PathLike[str] | None = None,
    data: ClientData | None = None,
    public_data: ClientData | None = None,
    module: Any = None,
    progress: bool = False,
) -> Tuning:
    """Random search for settings of a plan, which compares runs on held-out training clients.

    A search on public data (``public_data``, or [tune.data] of the plan) costs no ε and reads no
    record of the plan's own clients. A search on the plan's own clients stays within the plan's
    target ε: the number of runs is random and secret, the scores have noise, and only the best run
    is kept. The guarantee covers the model of this run. The test set is never read.

    Clients and their randomness are simulated, as by `train`.

    Args:
        plan: path, mapping or `turnout.plans.Plan`, as in `train`; its table [tune] lists the
            settings to search for.
        out: new or empty folder for the result; None writes no file.
        ranges: range of each setting by its dotted key, in place of the ranges in the plan: either
            {"low": …, "high": …, "log": True} or a list of choices.
        candidates: number of runs; in a search on private clients, the mean number of runs.
        held_out: fraction of the training clients on which runs are compared, between 0 and 1.
        resume: folder with a search that was interrupted; given instead of ``plan`` and ``out``.
        data: the clients' data from `client_data`, if the plan's [data] names no data.
        public_data: public records from `client_data`; a search on them costs no ε.
        module: torch.nn.Module or a function that returns one, as in `train`.
        progress: whether to show the progress on the terminal.

    Returns:
        The best values and their score. For a search on private clients, the upper bound on ε of
        ``guarantee`` is never below the true ε of the whole search.

    Raises:
        ParameterError: the plan, a range or the folder is invalid.
        UnsupportedError: no sound analysis is known for a private search of this plan.
        NumericalError: the privacy guarantee of the search cannot be certified.
        StorageError: a file cannot be written, or a file of the search is damaged.
    """
    require("train", what="turnout.tune")
    from turnout.reporting.console import Console
    from turnout.runs import Unwatched, tuning
    from turnout.runs.workload import Beside

    # Either a plan, or the folder of an interrupted search.
    if (plan is None) == (resume is None) or (resume is not None and out is not None):
        raise ParameterError("plan", plan, "a plan (with or without out), or resume without a plan")
    watcher, beside = Console() if progress else Unwatched(), Beside(data, module)
    # Continue an interrupted search.
    if resume is not None:
        folder = Path(resume)
        return Tuning(tuning.resume_tuning(folder, watcher, beside, public_data), folder)
    # Start a new search; the arguments replace settings of the plan's table [tune].
    settings = {"ranges": ranges, "candidates": candidates, "held_out": held_out}
    source = _source(plan, {key: value for key, value in settings.items() if value is not None})
    folder = None if out is None else Path(out)
    return Tuning(tuning.tune(source, folder, watcher, beside, public_data), folder)


def _source(plan: Any, settings: dict[str, Any]) -> Path | Plan:
    """Path of the plan file, or the plan with some settings of its table [tune] replaced."""
    from turnout.plans import Plan, read_plan
    from turnout.plans.plan import TuneSection

    # A mapping always becomes a plan; a file becomes a plan only if settings must be replaced.
    if isinstance(plan, Mapping):
        plan = Plan.from_mapping(dict(plan))
    if not isinstance(plan, Plan):
        if not settings:
            return Path(plan)
        plan = Plan.of_user(read_plan(Path(plan)), Path(plan).parent, str(plan))
    if not settings:
        return plan
    # The new settings replace those of the plan, and are checked as a part of the whole plan.
    known = {} if plan.tune is None else plan.tune.model_dump(exclude_none=True)
    tables = plan.model_dump(mode="json", exclude_none=True)
    checked = Plan.from_mapping(tables | {"tune": known | settings}).tune
    assert isinstance(checked, TuneSection)
    return plan.model_copy(update={"tune": checked})
