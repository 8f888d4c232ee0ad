"""Which storage a name stands for."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode

from turnout.core.errors import StorageError
from turnout.core.extras import missing_extra
from turnout.service.storage.database import Storage

_SQLITE = "sqlite:///"
_POSTGRES = ("postgresql://", "postgres://")
_PLACE = ("host", "hostaddr", "port", "dbname", "service")
"""The parts of a Postgres address that name the database."""
_WORDS = re.compile(r"\s*\w+\s*=")


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
        if name.startswith(_POSTGRES):
            from turnout.service.storage import postgres

            return postgres, name
        if _WORDS.match(name):
            raise StorageError("a database is a file, or postgresql://USER@HOST/DATABASE")
        if "://" in name and not name.startswith(_SQLITE):
            raise StorageError(f"no storage for {name.partition('://')[0]}://")
        from turnout.service.storage import sqlite

        return sqlite, name.removeprefix(_SQLITE)
    except ImportError as error:
        raise missing_extra(error, f"the database {place_of(name)}") or error from None


def place_of(name: str) -> str:
    """The name of a database without a user, a password and options: what may be shown.

    Raises:
        StorageError: user or password cannot be told from the rest of the address.

    >>> place_of("postgresql://me:secret@db.example.org:5432/turnout?sslmode=require")
    'postgresql://db.example.org:5432/turnout'
    """
    if not name.startswith(_POSTGRES):
        return name
    # As libpq reads it: what is before the first @, if no slash is before that.
    address, _, options = re.sub(r"^\w+://(?:[^@/]*@)?", "", name).partition("?")
    if "@" in address:
        raise StorageError("in the address of a database write @ as %40 and / as %2F in a password")
    place = urlencode([pair for pair in parse_qsl(options) if pair[0] in _PLACE])
    return f"postgresql://{address}{'?' if place else ''}{place}"
