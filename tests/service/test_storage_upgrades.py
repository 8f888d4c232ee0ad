"""A database of an earlier schema is migrated when it is opened, and deleted rows are purged."""

from __future__ import annotations

import apsw
import psycopg
import pytest
from test_storage_opening import filled

from turnout.core.errors import StorageError
from turnout.service.storage import postgres, sqlite
from turnout.service.storage.database import Storage, migrations
from turnout.service.storage.sqlite import FileLock

SECRET = b"what the second edition forgets " * 2000
SECOND = "CREATE TABLE second_edition (x INTEGER); DROP TABLE notes"
"""A synthetic second migration."""


def upgraded(url: str, *, serving: bool) -> Storage:
    """Database after the synthetic migration."""
    module, dialect = (postgres, "postgres") if url.startswith("postgres") else (sqlite, "sqlite")
    open_database = sqlite.open_sqlite if module is sqlite else postgres.open_postgres
    return open_database(url, serving=serving, scripts=(*migrations(dialect), SECOND))


def run(url: str, sql: str, *values: object) -> list[tuple[object, ...]]:
    """Rows of a statement on another connection."""
    if url.startswith("postgres"):
        with psycopg.connect(url, autocommit=True) as shell:
            answer = shell.execute(sql.replace("?", "%s").encode(), values)
            return answer.fetchall() if answer.description else []
    shell = apsw.Connection(url)
    try:
        return shell.execute(sql, values).fetchall()
    finally:
        shell.close()


def with_notes(url: str) -> None:
    """Task in the first schema, with a table that the second schema drops."""
    filled(url).close()
    run(url, f"CREATE TABLE notes (note {'BYTEA' if url.startswith('postgres') else 'BLOB'})")
    run(url, "INSERT INTO notes VALUES (?)", SECRET)


def version(url: str) -> object:
    is_postgres = url.startswith("postgres")
    sql = "SELECT version FROM turnout_schema" if is_postgres else "PRAGMA user_version"
    return run(url, sql)[0][0]


@pytest.mark.parametrize("serving", [False, True])
def test_a_migrated_database_keeps_its_ledger(url, serving, tmp_path):
    with_notes(url)
    assert version(url) == 1
    is_file = not url.startswith("postgres")
    if is_file:
        assert SECRET[:200] in (tmp_path / "task.sqlite").read_bytes()
    storage = upgraded(url, serving=serving)
    with storage.snapshot() as reads:
        assert [record.step for record in reads.records()] == [0]
        assert list(reads.keys())
    assert version(url) == 2
    storage.close()
    assert run(url, "SELECT count(*) FROM second_edition") == [(0,)]
    if is_file:
        after = b"".join(file.read_bytes() for file in tmp_path.iterdir() if file.is_file())
        assert SECRET[:200] not in after


def test_enrolment_does_not_migrate_while_a_coordinator_serves(tmp_path):
    path = str(tmp_path / "task.sqlite")
    with_notes(path)
    coordinator = FileLock(tmp_path / "task.sqlite")
    with pytest.raises(StorageError, match="another coordinator serves"):
        upgraded(path, serving=False)
    coordinator.close()
    upgraded(path, serving=False).close()
    assert version(path) == 2
