"""Opening of a database by its address: SQLite or Postgres.

`open_storage` opens a database; `holds_nothing` tells whether `open_storage` would create it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from turnout.core.errors import StorageError
from turnout.core.optional import missing_extra
from turnout.service.storage.addresses import POSTGRES, place_of, require_address
from turnout.service.storage.database import Storage

_SQLITE = "sqlite:///"


def holds_nothing(url_or_path: str | Path) -> bool:
    """Whether `open_storage` would create a new database; nothing is written.

    Args:
        url_or_path: address of the database, as in `open_storage`.

    Raises:
        StorageError: no database can be at this address, or the database cannot be read.
        MissingExtraError: the package of this kind of database is not installed.
    """
    _, holds_nothing_at, name = _dialect(str(url_or_path))
    return holds_nothing_at(name)


def open_storage(url_or_path: str | Path, *, serving: bool) -> Storage:
    """Open a database; return it migrated to the newest schema and checked for damage.

    Args:
        url_or_path: path of a file, ``sqlite:///path`` (``sqlite:////path`` from the root), or
            ``postgresql://…`` in libpq's form.
        serving: open the database as the one coordinator that serves it, and create it if it is
            missing or empty. If False, the database must exist, and only invitations and lines of
            the log can be written.

    Raises:
        StorageError: another coordinator serves the database, or the database is missing, damaged,
            of a newer version, or not a turnout database.
        MissingExtraError: the package of this kind of database is not installed.
    """
    open_at, _, name = _dialect(str(url_or_path))
    return open_at(name, serving=serving)


def _dialect(name: str) -> tuple[Callable[..., Storage], Callable[[str], bool], str]:
    """Functions that open and inspect a kind of database, and the address that both need."""
    try:
        # The library of a dialect is imported only where it is needed.
        if name.startswith(POSTGRES):
            from turnout.service.storage import postgres

            return postgres.open_postgres, postgres.holds_nothing, name
        require_address(name)
        if "://" in name and not name.startswith(_SQLITE):
            raise StorageError(
                f"no storage for {name.partition('://')[0]}://: use a file's path, sqlite:/// or "
                "postgresql://"
            )
        from turnout.service.storage import sqlite

        return sqlite.open_sqlite, sqlite.holds_nothing, name.removeprefix(_SQLITE)
    except ImportError as error:
        raise missing_extra(error, f"the database {place_of(name)}") or error from None
