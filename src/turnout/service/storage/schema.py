"""The numbered migrations and what to do with a database of some version."""

from __future__ import annotations

import json
from importlib import resources

from turnout.core.errors import StorageError
from turnout.service.storage.reads import Connection

KEEPS_NOBODY = 2
"""From this schema on nothing joins a client to a step that is released."""


def migrations(dialect: str) -> tuple[str, ...]:
    """The scripts that make a schema of version 1, 2, … in turn."""
    folder = resources.files("turnout.service.storage") / "migrations"
    ending = f".{dialect}.sql"
    named = {entry.name: entry for entry in folder.iterdir() if entry.name.endswith(ending)}
    numbers = [int(name.partition("_")[0]) for name in sorted(named)]
    if numbers != list(range(1, len(named) + 1)) or not named:
        raise StorageError("this installation lacks some of its migrations")
    return tuple(named[name].read_text("utf-8") for name in sorted(named))


def pending(version: int, scripts: tuple[str, ...]) -> tuple[str, ...]:
    """The scripts that a database of a version still needs."""
    if not 0 <= version <= len(scripts):
        raise StorageError(
            f"the database has schema {version} of a newer turnout, this one knows {len(scripts)}"
        )
    return scripts[version:]


def require_over(connection: Connection, version: int) -> None:
    """Nothing, unless only the turnout that founded a task can bring it to its end.

    A task of an older schema has a charter that this version does not serve, and rows that it
    would delete but the older version needs.

    Raises:
        StorageError: so it is.
    """
    charters = connection.rows("SELECT charter FROM task", ()) if version else []
    if not (charters and version < KEEPS_NOBODY):
        return
    released = connection.rows("SELECT count(*) FROM releases", ())[0][0]
    try:
        over = released >= int(json.loads(charters[0][0])["charged_steps"][-1])
    except (ValueError, LookupError, TypeError):
        over = False
    if not over:
        raise StorageError(
            "an earlier turnout founded this task and has not brought it to its end: serve it to "
            "its end, and export its ledger, with that version"
        )
