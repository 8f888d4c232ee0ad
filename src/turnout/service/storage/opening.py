"""An open database by its address: SQLite or Postgres.

`open_storage` opens it, `holds_nothing` looks whether a new one would be made.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from turnout.core.errors import StorageError
from turnout.core.optional import missing_extra
from turnout.service.storage.addresses import POSTGRES, place_of, require_address
from turnout.service.storage.database import Storage

_SQLITE = "sqlite:///"


def holds_nothing(url_or_path: str | Path) -> bool:
    """Whether `open_storage` would make a new database; nothing is written to find out.

    Raises:
        StorageError: no database can be there.
        MissingExtraError: a package is not installed.
    """
    module, name = _dialect(str(url_or_path))
    return module.holds_nothing(name)


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
    module, name = _dialect(str(url_or_path))
    return module.opened(name, serving=serving)


def _dialect(name: str) -> tuple[Any, str]:
    """The module that opens a database, and the name by which it does."""
    try:
        if name.startswith(POSTGRES):
            from turnout.service.storage import postgres

            return postgres, name
        require_address(name)
        if "://" in name and not name.startswith(_SQLITE):
            raise StorageError(f"no storage for {name.partition('://')[0]}://")
        from turnout.service.storage import sqlite

        return sqlite, name.removeprefix(_SQLITE)
    except ImportError as error:
        raise missing_extra(error, f"the database {place_of(name)}") or error from None
