"""From a plan and a database to a task that runs: a new one, or the one that is stored."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from turnout.core.errors import ParameterError
from turnout.plans import Plan, read_plan
from turnout.service.charter import Charter, Timing
from turnout.service.storage.database import Storage
from turnout.service.web import heads, logs
from turnout.service.web.heads import HeadFile
from turnout.service.web.settings import Settings

if TYPE_CHECKING:
    from turnout.service.witness.client import Witness

Phase = Callable[[str], AbstractContextManager[object]]
"""Shows that something takes a while."""


def plan_text(path: Path) -> str:
    """A plan's TOML text."""
    text = read_plan(path)
    Plan.from_toml(text, path.name)
    return text


def stored_charter(storage: Storage) -> Charter | None:
    """The charter of the stored task; None where there is none."""
    with storage.snapshot() as view:
        data = view.charter()
    return None if data is None else Charter.from_canonical(data)


def create_task(
    storage: Storage, plan: Path, timing: Timing, phase: Phase, *, graph: bool = False
) -> Charter:
    """Price a plan and store its task."""
    from turnout.service.new_task import new_task

    text = plan_text(plan)
    with phase("Pricing the plan step by step"):
        new = new_task(text, plan.parent, timing, graph=graph)
    new.create_task(storage)
    return new.charter


def require_task(storage: Storage, plan: Path, settings: Settings, phase: Phase) -> Charter:
    """The charter of the stored task, if it is that of a plan; an empty storage gets the task.

    Raises:
        ParameterError: the stored task is another plan's, or has another schedule.
        StorageError: the task was lost.
    """
    charter = stored_charter(storage)
    if charter is None:
        heads.require_none_exported(settings.head_file, settings.db)
        return create_task(storage, plan, settings.timing, phase, graph=settings.graph)
    if charter.plan != plan_text(plan):
        expected = f"the plan of the task in {shown(settings.db)}, to the letter; it cannot change"
        raise ParameterError("PLAN", str(plan), expected)
    settings.require_timing(charter.timing)
    return charter


def head_file(settings: Settings, task: str) -> HeadFile:
    """The file of a task's heads; the log has a warning where one snapshot may hold all of it."""
    path = settings.head_file or heads.default_file(task)
    if settings.witness is None and heads.shares_a_file_system(path, settings.db):
        logs.logger().warning(
            "one snapshot may restore the database and the head file, unnoticed: name a file on "
            "another disk with --head-file, or use --witness",
            head_file=str(path),
        )
    former = heads.former_file(settings.db)
    if former == path:
        former = None
    address = heads.address_of(settings.db)
    return HeadFile(path, address, former=former, begin=settings.new_head_file)


def witness(settings: Settings) -> Witness | None:
    """The witness that the settings name."""
    settings.require_whole_witness()
    if settings.witness is None or settings.witness_key is None:
        return None
    from turnout.service.witness.client import Witness, witness_key
    from turnout.service.witness.process import token_of

    file = settings.witness_token_file
    token = None if file is None else token_of(file, "witness_token_file")
    key = witness_key(settings.witness_key)
    return Witness(settings.witness, key, token=token, ca=settings.witness_ca)


def shown(url: str) -> str:
    """A database's name without a password in it."""
    kind, separator, rest = url.partition("://")
    return f"{kind}{separator}{rest.rpartition('@')[2]}" if separator else url
