"""Addresses of databases: which forms are accepted, and how an address is shown without secrets.

`place_of` returns an address without its secrets, the only form that messages, logs and head files
contain.
"""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, urlencode

from turnout.core.errors import StorageError

POSTGRES = ("postgresql://", "postgres://")
_PLACE = ("host", "hostaddr", "port", "dbname", "service")
"""Options of a Postgres address that name the database."""
_WORDS = re.compile(r"\s*\w+\s*=")


def require_address(name: str) -> None:
    """Refuse a database address in libpq's keyword form, ``host=… password=…``.

    Raises:
        StorageError: ``name`` is such an address.
    """
    if _WORDS.match(name):
        raise StorageError(
            "the address of a database is a file's path, or postgresql://USER@HOST/DATABASE"
        )


def place_of(name: str) -> str:
    """Database address without user, password and options, fit to be shown.

    Raises:
        StorageError: user and password cannot be separated from the rest of the address.

    >>> place_of("postgresql://me:secret@db.example.org:5432/turnout?sslmode=require")
    'postgresql://db.example.org:5432/turnout'
    """
    if not name.startswith(POSTGRES):
        return name
    # User and password, in libpq's reading: all before the first @, if no slash comes earlier.
    address, _, options = re.sub(r"^\w+://(?:[^@/]*@)?", "", name).partition("?")
    if "@" in address:
        raise StorageError(
            "the address of the database has a second @: in a password write @ as %40 and / as %2F"
        )
    place = urlencode([pair for pair in parse_qsl(options) if pair[0] in _PLACE])
    return f"postgresql://{address}{'?' if place else ''}{place}"
