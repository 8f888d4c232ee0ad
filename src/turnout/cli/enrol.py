"""``turnout enrol``: invitations for devices."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from turnout.cli.commands import Command
from turnout.cli.options import PATH
from turnout.core.errors import StorageError
from turnout.core.optional import require

if TYPE_CHECKING:
    from turnout.service.web.settings import Settings


@click.command(cls=Command)
@click.argument("count", metavar="N", type=int)
@click.option("--db", metavar="DB", required=True, help="The database: a file, or postgresql://…")
@click.option(
    "--plan",
    type=PATH,
    help="The plan of a new task, if DB is empty; else the plan that its task must have.",
)
@click.option("--step-seconds", type=float, help="How long a step of a new task is; 60.")
@click.option("--check-in-seconds", type=float, help="How long a step takes check-ins; ¾ of it.")
@click.option("--answer-seconds", type=float, help="How long one client may take to answer; ⅙.")
@click.option("--graph", is_flag=True, help="A new task's devices get its model as a graph.")
@click.option("--out", metavar="FILE", type=PATH, help="Where they go.")
def enrol(
    *,
    count: int,
    db: str,
    plan: Path | None,
    out: Path | None,
    graph: bool,
    **schedule: float | None,
) -> int:
    """Prints N invitations, one a line, each for one device and to be used once.

    They can be had while the coordinator serves. Whoever has one can take part as that device:
    hand them out over a channel that you trust.
    """
    require("service", what="turnout enrol")
    from turnout.core import checks
    from turnout.service.new_task import invite
    from turnout.service.storage.opening import open_storage
    from turnout.service.web.opening import stored_charter
    from turnout.service.web.settings import Settings

    checks.count(N=count)
    if out is not None and out.exists():
        raise StorageError(f"{out} exists; invitations are never written over others")
    settings = Settings.gathered(None, {}, {"db": db, "graph": graph, **schedule})
    if plan is not None:
        _create_if_empty(plan, settings)
    with closing(open_storage(db, serving=False)) as storage:
        charter = stored_charter(storage)
        if charter is None:
            raise StorageError("there is no task in this database: give --plan, or serve one")
        settings.require_timing(charter.timing)
        with storage.transaction() as tx:
            invitations = invite(tx, charter, count)
    _hand_out([invitation.encoded() for invitation in invitations], out)
    return 0


def _create_if_empty(plan: Path, settings: Settings) -> None:
    """Create the task of a plan, unless there is one: then it must be this plan's."""
    from turnout.reporting.console import Console
    from turnout.service.storage.opening import open_storage
    from turnout.service.web.opening import require_task

    with closing(open_storage(settings.db, serving=not _has_task(settings.db))) as storage:
        require_task(storage, plan, settings, Console().phase)


def _has_task(db: str) -> bool:
    """Whether there is a task, asked without disturbing who serves it."""
    from turnout.service.storage.opening import open_storage
    from turnout.service.web.opening import stored_charter

    try:
        storage = open_storage(db, serving=False)
    except StorageError:
        return False
    with closing(storage):
        return stored_charter(storage) is not None


def _hand_out(tokens: list[str], out: Path | None) -> None:
    """To a new file for this user alone, or to stdout."""
    text = "".join(f"{token}\n" for token in tokens)
    if out is None:
        click.echo(text, nl=False)
        return
    try:
        descriptor = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise StorageError(
            f"cannot write {out} ({error.strerror}); the invitations are lost, hand out others"
        ) from None
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(text)
