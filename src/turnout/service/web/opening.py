"""From a plan and a database to a task that runs: a new one, or the one that is stored."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from turnout.core.errors import ParameterError
from turnout.plans import Plan, read_plan
from turnout.service.charter import Charter
from turnout.service.storage.database import Storage
from turnout.service.storage.opening import holds_nothing, open_storage, place_of
from turnout.service.web import heads, logs
from turnout.service.web.heads import HeadFile
from turnout.service.web.settings import Settings

if TYPE_CHECKING:
    from turnout.service.new_task import NewTask
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


def open_task(
    plan: Path, settings: Settings, phase: Phase, *, serving: bool = True
) -> tuple[Storage, Charter]:
    """The open storage and the charter of its task, if it is that of a plan.

    An empty storage gets the plan's task. The task is made before its database: a founding that
    fails, or is ended while the plan is priced, leaves none behind.

    Raises:
        ParameterError: the plan is refused, or the stored task is another plan's or has another
            schedule.
        StorageError: the task was lost, or the storage cannot be opened.
    """
    new = _new_task(plan, settings, phase) if holds_nothing(settings.db) else None
    storage = open_storage(settings.db, serving=serving)
    try:
        charter = stored_charter(storage)
        if charter is not None:
            _require_same(charter, plan, settings)
            return storage, charter
        new = new or _new_task(plan, settings, phase)
        new.create_task(storage)
        return storage, new.charter
    except BaseException:
        storage.close()
        raise


def _new_task(plan: Path, settings: Settings, phase: Phase) -> NewTask:
    """The task of a plan, priced; no task at this address may have been lost."""
    from turnout.service.new_task import new_task

    heads.require_none_exported(settings.head_file, settings.db)
    text = plan_text(plan)
    with phase("Pricing the plan step by step"):
        return new_task(text, plan.parent, settings.timing, graph=settings.graph)


def _require_same(charter: Charter, plan: Path, settings: Settings) -> None:
    """The stored task is the plan's, with the schedule of the settings."""
    if charter.plan != plan_text(plan):
        place = place_of(settings.db)
        expected = f"the plan of the task in {place}, to the letter; it cannot change"
        raise ParameterError("PLAN", str(plan), expected)
    settings.require_timing(charter.timing)


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
