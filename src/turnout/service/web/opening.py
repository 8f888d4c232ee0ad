"""From a plan and a database to a task that runs: a new one, or the one that is stored."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from turnout.core.errors import ParameterError
from turnout.plans import Plan, read_plan
from turnout.service.charter import Charter, Timing
from turnout.service.storage.interface import Storage
from turnout.service.web import heads
from turnout.service.web.settings import Settings

Phase = Callable[[str], AbstractContextManager[None]]
"""Shows that something takes a while."""


def plan_text(path: Path) -> str:
    """A plan's TOML text.

    Raises:
        ParameterError: no such file, or a plan that is refused.
        StorageError: it cannot be read.
    """
    text = read_plan(path)
    Plan.from_toml(text, path.name)
    return text


def stored_charter(storage: Storage) -> Charter | None:
    """The charter of the stored task; None where there is none.

    Raises:
        StorageError: it is damaged.
    """
    with storage.snapshot() as view:
        data = view.charter()
    return None if data is None else Charter.from_canonical(data)


def found(storage: Storage, plan: Path, timing: Timing, phase: Phase) -> Charter:
    """Price a plan and store its task.

    Raises:
        TurnoutError: the plan is refused, or the storage holds a task.
    """
    from turnout.service.founding import founding

    text = plan_text(plan)
    with phase("Pricing the plan step by step"):
        new = founding(text, plan.parent, timing)
    new.found(storage)
    return new.charter


def require_task(storage: Storage, plan: Path, settings: Settings, phase: Phase) -> None:
    """Nothing where the storage holds the task of a plan; an empty one does afterwards.

    Raises:
        ParameterError: the stored task is another plan's, or has another schedule.
        StorageError: the task was lost.
    """
    charter = stored_charter(storage)
    if charter is None:
        heads.require_no_exported(settings.heads)
        found(storage, plan, settings.timing, phase)
        return
    if charter.plan != plan_text(plan):
        expected = f"the plan of the task in {shown(settings.db)}, to the letter; it cannot change"
        raise ParameterError("PLAN", str(plan), expected)
    settings.require_timing(charter.timing)


def shown(url: str) -> str:
    """A database's name without a password in it."""
    kind, separator, rest = url.partition("://")
    return f"{kind}{separator}{rest.rpartition('@')[2]}" if separator else url
