"""Which storage a name stands for."""

from __future__ import annotations

from pathlib import Path

from turnout.core.errors import StorageError
from turnout.core.optional import missing_extra
from turnout.service.storage.database import Storage

_SQLITE = "sqlite:///"
_POSTGRES = ("postgresql://", "postgres://")


def open_storage(url_or_path: str | Path, *, serving: bool) -> Storage:
    """An open database.

    Args:
        url_or_path: a file's path, ``sqlite:///path`` (``sqlite:////path`` from the root), or
            ``postgresql://…`` as libpq takes it.
        serving: be the one coordinator that serves this database, and create it where it is
            empty; else it must exist, and only invitations and the operator's log can be
            written.

    Raises:
        StorageError: served by somebody else, missing, damaged, newer, or no turnout database.
        MissingExtraError: a package is not installed.
    """
    name = str(url_or_path)
    try:
        if name.startswith(_POSTGRES):
            from turnout.service.storage import postgres

            return postgres.open_postgres(name, serving=serving)
        if "://" in name and not name.startswith(_SQLITE):
            raise StorageError(f"no storage for {name.partition('://')[0]}://")
        from turnout.service.storage import sqlite

        return sqlite.open_sqlite(name.removeprefix(_SQLITE), serving=serving)
    except ImportError as error:
        raise missing_extra(error, f"the database {name}") or error from None
