"""Addresses of databases: which kind one names, and what of it may be shown.

`place_of` leaves out what is secret; messages, logs and head files show nothing else.
"""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, urlencode

from turnout.core.errors import StorageError

POSTGRES = ("postgresql://", "postgres://")
_PLACE = ("host", "hostaddr", "port", "dbname", "service")
"""The parts of a Postgres address that name the database."""
_WORDS = re.compile(r"\s*\w+\s*=")


def require_address(name: str) -> None:
    """Refuse an address in libpq's words, ``host=… password=…``, which is neither kind.

    Raises:
        StorageError: it is one.
    """
    if _WORDS.match(name):
        raise StorageError("a database is a file, or postgresql://USER@HOST/DATABASE")


def place_of(name: str) -> str:
    """The name of a database without a user, a password and options: what may be shown.

    Raises:
        StorageError: user or password cannot be told from the rest of the address.

    >>> place_of("postgresql://me:secret@db.example.org:5432/turnout?sslmode=require")
    'postgresql://db.example.org:5432/turnout'
    """
    if not name.startswith(POSTGRES):
        return name
    # As libpq reads it: what is before the first @, if no slash is before that.
    address, _, options = re.sub(r"^\w+://(?:[^@/]*@)?", "", name).partition("?")
    if "@" in address:
        raise StorageError("in the address of a database write @ as %40 and / as %2F in a password")
    place = urlencode([pair for pair in parse_qsl(options) if pair[0] in _PLACE])
    return f"postgresql://{address}{'?' if place else ''}{place}"
