"""Tuning of a plan, from the plan's file to the folder of results; a search can be resumed.

`tune` runs the search that a plan's table [tune] describes; `resume_tuning` continues an
interrupted search.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from turnout.core.files import PLAN, SIMULATOR, write
from turnout.data import ClientData
from turnout.plans import Plan, read_plan
from turnout.reporting.words import guarantee_record
from turnout.runs.execution import Watcher
from turnout.runs.folders import RunFolder, require_new
from turnout.runs.search import STATE, Search, Searched
from turnout.runs.training import write_model
from turnout.runs.workload import Beside

SEARCH, RESULT = "search.toml", "tune.json"
"""Files of a search: the plan with its table [tune], and the results."""
FREE = "none: nothing of the plan's own clients was read"
OWN_PUBLIC = "none, by the plan's word that its own data are public"


def tune(
    source: Path | Plan,
    folder: Path | None,
    watcher: Watcher,
    beside: Beside | None = None,
    public: ClientData | None = None,
) -> Searched:
    """Result of the search in a plan's table [tune], written to the folder if one is given.

    Raises:
        ParameterError: the plan is invalid, or the folder is not empty.
        InterruptedRunError: Ctrl-C stopped the search; the folder holds all finished candidates.
    """
    # The plan, from its file or as an object.
    plan, place = source, Path()
    if not isinstance(source, Plan):
        place = source.parent
        plan = Plan.of_user(read_plan(source), place, str(source))
    assert isinstance(plan, Plan)
    # All checks, before the first file is written.
    require_new(folder)
    search = Search.of(plan, place, watcher, beside, public)
    if folder is not None:
        _files(folder).begin(_with_tune(plan), place)
    return _finished(search, folder, watcher)


def resume_tuning(
    folder: Path,
    watcher: Watcher,
    beside: Beside | None = None,
    public: ClientData | None = None,
) -> Searched:
    """Result of an interrupted search that is continued, or of a finished search.

    Objects that were given with the plan must be given again.

    Raises:
        ParameterError: the folder holds no search.
        StorageError: the file of finished candidates is damaged.
    """
    files = _files(folder)
    plan = Plan.of_user(files.plan_text(), files.place, str(folder / SEARCH))
    search = Search.of(plan, files.place, watcher, beside, public)
    return _finished(search, folder, watcher)


def _files(folder: Path) -> RunFolder:
    return RunFolder(folder, SEARCH, "a search")


def _with_tune(plan: Plan) -> str:
    """Text of the plan, including the table [tune]."""
    assert plan.tune is not None
    full = plan.model_dump(mode="json", exclude_none=True)
    full["tune"] = plan.tune.model_dump(mode="json", exclude_none=True)
    return Plan.tables_to_toml(full)


def _finished(search: Search, folder: Path | None, watcher: Watcher) -> Searched:
    found = search.finished(watcher, folder)
    if folder is not None:
        record = searched_record(found)
        if found.outcome is not None and found.model_data is not None:
            write_model(folder, found.outcome, found.model_data, _tuned(found))
        write(folder / PLAN, found.plan.to_toml())
        write(folder / RESULT, json.dumps(record, indent=2, allow_nan=False) + "\n")
        (folder / SIMULATOR / STATE).unlink(missing_ok=True)
    return found


def _tuned(found: Searched) -> dict[str, Any]:
    """Facts of a private search that a model card states."""
    assert found.price is not None
    return {
        "values": dict(found.best.values),
        "candidates": found.price.stopping.mean,
        "score": found.best.score,
        "score_noise": found.price.score_deviation,
        "held_out_clients": found.held_out,
    }


def searched_record(found: Searched) -> dict[str, Any]:
    """Part of a search's result that may be released, as JSON-ready values.

    Guarantees:
        For a private search the result contains the best run only, and nothing that reveals the
        number of runs.
    """
    # What every search has.
    record: dict[str, Any] = {
        "values": dict(found.best.values),
        "metric": found.metric,
        "score": _number(found.best.score),
        "held_out_clients": found.held_out,
        "data": found.data,
        "randomness": f"simulation only (seed {found.plan.run.seed})",
    }
    # A public search may show all candidates.
    if found.price is None:
        candidates = [
            {"number": one.number, "values": dict(one.values), "score": _number(one.score)}
            for one in found.candidates
        ]
        cost = OWN_PUBLIC if found.own_public else FREE
        return record | {"price": cost, "candidates": candidates}
    # A private search shows the best candidate only, with the guarantee of the whole search.
    price = found.price
    return record | {
        **guarantee_record(price.guarantee),
        "one_run_epsilon": price.one_run,
        "mean_candidates": price.stopping.mean,
        "noise_multiplier": price.noise_multiplier,
        "score_deviation": price.score_deviation,
        "covered": "the best run's model, its values and its score together",
    }


def _number(score: float) -> float | None:
    """Score as a JSON number, or None if the score is not finite."""
    return score if math.isfinite(score) else None
