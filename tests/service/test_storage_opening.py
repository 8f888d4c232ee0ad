"""Databases that open, databases that are refused, and rows that cannot be changed."""

from __future__ import annotations

import re
import stat
import subprocess
import sys
from pathlib import Path

import apsw
import psycopg
import pytest
from storage_samples import CHARTER, START, TASK, check_in, create_task, release, released, served

from turnout.core.errors import MissingExtraError, StorageError
from turnout.core.installation import install_line
from turnout.service.storage import postgres, sqlite
from turnout.service.storage.database import Storage, migrations, pending
from turnout.service.storage.interface import LogEvent, ParticipationRow, Scored, WitnessReceipt
from turnout.service.storage.opening import open_storage

FOR_EVER = ("task", "invitations", "enrolments", "releases", "models", "counts", "scores")
FOR_EVER += ("receipts", "publications")
OPEN_STEP = ("check_ins", "asked", "step_keys", "bodies")
SECOND = "CREATE TABLE second_edition (x INTEGER);"


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "task.sqlite"


@pytest.fixture(params=["sqlite", "postgres"])
def url(request, path) -> str:
    return request.getfixturevalue("postgres_url") if request.param == "postgres" else str(path)


def filled(url: str) -> Storage:
    """Database with a row in every table."""
    storage = served(url)
    assert isinstance(storage, Storage)
    with storage.transaction() as tx:
        create_task(tx)
        check_in(tx, 1, 0)
        released(tx, 1)
        tx.check_in(ParticipationRow(2, 1, None), None, 1)
        tx.answer(2, 1, bytes(32), b"x")
        tx.request(1, tx.arrived(1))
        tx.score(Scored(1, 0.5, 1.0))
        tx.log(LogEvent(0.0, "info", "filled"))
        tx.publish(1, WitnessReceipt(bytes(32), 1, bytes(64)))
    return storage


def run(url: str, *statements: str) -> None:
    """Run SQL statements as a person with a database shell."""
    if url.startswith("postgres"):
        with psycopg.connect(url, autocommit=True) as shell:
            for statement in statements:
                shell.execute(statement.encode())
        return
    shell = apsw.Connection(url)
    for statement in statements:
        shell.execute(statement)
    shell.close()


def unlocked(url: str, table: str, verb: str) -> str:
    """SQL statement that removes the trigger that protects a table."""
    if url.startswith("postgres"):
        return f"ALTER TABLE {table} DISABLE TRIGGER USER"
    return f"DROP TRIGGER {table}_no_{verb.lower()}"


def opened(url: str, scripts: tuple[str, ...], *, serving: bool = True) -> Storage:
    module = postgres if url.startswith("postgres") else sqlite
    open_database = sqlite.open_sqlite if module is sqlite else postgres.open_postgres
    return open_database(url, serving=serving, scripts=scripts)


def first(url: str) -> tuple[str, ...]:
    return migrations("postgres" if url.startswith("postgres") else "sqlite")


def test_permanent_rows_cannot_be_changed_or_deleted(url):
    storage = filled(url)
    column = {"task": "charter", "counts": "served"}
    for table in FOR_EVER:
        name = column.get(table) or {"releases": "epsilon", "models": "mechanism_state"}.get(
            table, ""
        )
        name = name or {"scores": "loss", "enrolments": "public_key"}.get(table, "client")
        name = "secret_digest" if table == "invitations" else name
        name = "steps" if table in ("receipts", "publications") else name
        for statement in (f"UPDATE {table} SET {name} = {name}", f"DELETE FROM {table}"):
            with pytest.raises((apsw.ConstraintError, psycopg.Error), match="never changed"):
                run(url, statement)
    storage.close()


def test_rows_of_open_steps_cannot_be_changed_or_deleted(url):
    filled(url).close()
    zeros = "decode(repeat('00', 2048), 'hex')" if url.startswith("postgres") else "zeroblob(2048)"
    wrongs = {f"DELETE FROM {table} WHERE step = 1": "not released" for table in OPEN_STEP}
    wrongs |= {
        "UPDATE bodies SET body = body": "never changed",
        "UPDATE asked SET clients = clients": "never changed",
        "UPDATE step_keys SET key = key": "never changed",
        "UPDATE check_ins SET digest = digest": "never changed",
        f"UPDATE turns SET used = {zeros}": "go back",
        "UPDATE turns SET until = 1": "go back",
        "UPDATE turns SET until = until + 1": "go back",
        "UPDATE turns SET shard = 7": "go back",
        "DELETE FROM turns": "not over",
        f"INSERT INTO turns VALUES (1, 1, {zeros})": "is over",
    }
    for statement, said in wrongs.items():
        with pytest.raises((apsw.ConstraintError, psycopg.Error), match=said):
            run(url, statement)
    run(url, "DELETE FROM bodies WHERE step = 0")
    again = served(url)
    with again.snapshot() as reads:
        assert reads.participation_counts()[0].tolist() == [1]
        assert reads.arrived(1).tolist() == [2]
    again.close()


def test_tables_cannot_be_emptied_by_truncate(postgres_url):
    filled(postgres_url).close()
    for table in FOR_EVER:
        with pytest.raises(psycopg.Error, match="never changed"):
            run(postgres_url, f"TRUNCATE {table} CASCADE")
    for table in (*OPEN_STEP, "turns"):
        with pytest.raises(psycopg.Error, match=r"not (released|over)"):
            run(postgres_url, f"TRUNCATE {table}")


def test_a_release_cannot_be_replaced(path):
    filled(str(path)).close()
    for forge in ("INSERT OR REPLACE", "INSERT"):
        with pytest.raises(apsw.ConstraintError, match="next step"):
            run(str(path), f"{forge} INTO releases SELECT * FROM releases")


def test_a_check_in_cannot_be_replaced(path):
    storage = filled(str(path))
    with pytest.raises(StorageError, match="not released"), storage.transaction():
        storage._write.changed("INSERT OR REPLACE INTO check_ins SELECT * FROM check_ins", ())
    storage.close()


def test_a_damaged_update_is_refused(url):
    storage = filled(url)
    half = "substr(body, 1, length(body) - 1)"
    guard = "DISABLE TRIGGER USER" if url.startswith("postgres") else None
    run(url, f"ALTER TABLE bodies {guard}" if guard else "DROP TRIGGER bodies_no_update")
    run(url, f"UPDATE bodies SET body = {half} WHERE step = 1")
    with storage.snapshot() as reads, pytest.raises(StorageError, match="damaged"):
        dict(reads.bodies(1))
    storage.close()


def test_the_database_refuses_a_release_with_an_invalid_epsilon(url):
    filled(url).close()
    if url.startswith("postgres"):
        costs, other = ["'NaN'::float8", "'Infinity'::float8", "-1"], "sha256('x')"
    else:
        costs, other = ["9e999 - 9e999", "9e999", "-1"], "randomblob(32)"
    row = "INSERT INTO releases SELECT 1, task, sum_digest, model_digest, {}, digest, {} "
    row += "FROM releases"
    for cost in costs:
        for pair in (f"{cost}, 0.1", f"0.1, {cost}"):
            with pytest.raises((apsw.ConstraintError, psycopg.Error), match=r"(?i)null|check"):
                run(url, row.format(pair, other))
    run(url, row.format("0.1, 0.1", other))


def test_an_old_database_is_migrated(url):
    filled(url).close()
    two = (*first(url), SECOND)
    with pytest.raises(StorageError, match="syntax"):
        opened(url, (*first(url), SECOND, "CREATE NONSENSE;"))
    again = opened(url, two)
    with again.transaction() as tx:
        assert len(list(tx.records())) == 1
    again.close()
    run(url, "INSERT INTO second_edition VALUES (1)")
    opened(url, two).close()
    with pytest.raises(StorageError, match="newer turnout"):
        served(url)
    with pytest.raises(StorageError, match="newer turnout"):
        open_storage(url, serving=False)


def test_enrolment_migrates_a_database_that_no_coordinator_uses(url):
    storage = filled(url)
    two = (*first(url), SECOND)
    with pytest.raises(StorageError, match=r"serves"):
        opened(url, two, serving=False)
    storage.close()
    opened(url, two, serving=False).close()
    run(url, "INSERT INTO second_edition VALUES (1)")


def test_unknown_schema_versions_are_refused():
    for dialect in ("sqlite", "postgres"):
        scripts = migrations(dialect)
        assert pending(0, scripts) == scripts
        assert pending(len(scripts), scripts) == ()
    with pytest.raises(StorageError, match="lacks"):
        migrations("oracle")


def test_databases_of_other_programs_are_refused_and_not_changed(url):
    run(url, "CREATE TABLE theirs (x INTEGER)")
    before = None if url.startswith("postgres") else Path(url).read_bytes()
    for serving in (True, False):
        with pytest.raises(StorageError, match="not a turnout database"):
            open_storage(url, serving=serving)
    assert before is None or Path(url).read_bytes() == before
    run(url, "INSERT INTO theirs VALUES (1)")


def test_files_that_are_no_database_are_refused_and_not_changed(path):
    path.write_bytes(b"a letter to somebody " * 100)
    with pytest.raises(StorageError, match="not a database"):
        served(path)
    assert path.read_bytes() == b"a letter to somebody " * 100


def test_a_database_with_a_damaged_ledger_is_refused(url):
    storage = filled(url)
    with storage.transaction() as tx:
        released(tx, 2, tx.last_release().record.head)
    storage.close()
    run(url, unlocked(url, "releases", "UPDATE"))
    for damage, repair in [
        (
            "UPDATE releases SET epsilon = 0.05 WHERE step = 2",
            "UPDATE releases SET epsilon = 0.30000000000000004 WHERE step = 2",
        ),
        (
            "UPDATE releases SET step = 7 WHERE step = 1",
            "UPDATE releases SET step = 1 WHERE step = 7",
        ),
    ]:
        if url.startswith("postgres"):
            run(
                url,
                "ALTER TABLE models DROP CONSTRAINT IF EXISTS models_step_fkey",
                "ALTER TABLE counts DROP CONSTRAINT IF EXISTS counts_step_fkey",
            )
        run(url, damage)
        with pytest.raises(StorageError, match="damaged"):
            served(url)
        run(url, repair)
        served(url).close()


def test_a_database_with_a_changed_charter_or_model_is_refused(url):
    filled(url).close()
    for table, column in [("task", "charter"), ("models", "parameters")]:
        old = CHARTER if table == "task" else release(START).parameters
        cast = "'\\x{}'::bytea" if url.startswith("postgres") else "x'{}'"
        run(url, unlocked(url, table, "UPDATE"))
        run(url, f"UPDATE {table} SET {column} = {cast.format('7b7d')}")
        with pytest.raises(StorageError, match="damaged"):
            served(url)
        run(url, f"UPDATE {table} SET {column} = {cast.format(old.hex())}")
    served(url).close()


def test_database_files_are_readable_only_by_their_owner(path):
    filled(str(path)).close()
    storage = served(path)
    with storage.transaction() as tx:
        tx.log(LogEvent(0.0, "info", ""))
    beside = list(path.parent.iterdir())
    assert len(beside) == 3
    for file in beside:
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file.name
    storage.close()


def test_a_killed_coordinator_leaves_no_lock(url):
    program = (
        "import os, sys, signal; from turnout.service.storage.opening import open_storage\n"
        "storage = open_storage(sys.argv[1], serving=True)\n"
        "with storage.transaction() as tx:\n"
        "    tx.create_task(b'{}', bytes(32), b'')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, url], check=False)
    assert done.returncode == -9
    storage = served(url)
    with storage.snapshot() as reads:
        assert reads.charter() is None
    storage.close()


def test_every_commit_is_synced_before_it_returns(path):
    storage = filled(str(path))
    settings = {
        name: storage._write.rows(f"PRAGMA {name}", ())[0][0]
        for name in ("synchronous", "journal_mode", "page_size", "foreign_keys", "secure_delete")
    }
    assert settings == {
        "secure_delete": 1,
        "synchronous": 2,
        "journal_mode": "wal",
        "page_size": 16384,
        "foreign_keys": 1,
    }
    storage.close()


@pytest.mark.parametrize("name", ["fsync", "full_page_writes", "synchronous_commit"])
def test_a_postgres_server_without_durability_is_refused(postgres_url, mutate, name):
    honest = postgres._Connection.value

    def value(self, sql, *parameters):
        return "off" if sql == f"SHOW {name}" else honest(self, sql, *parameters)

    mutate(postgres._Connection, "value", value)
    with pytest.raises(StorageError, match="not durable"):
        served(postgres_url)


def test_a_postgres_rollback_at_commit_is_detected(postgres_url):
    storage = filled(postgres_url)

    def careless() -> None:
        with storage.transaction(), pytest.raises(psycopg.Error):
            storage._write.raw.execute(b"SELECT 1 / 0")  # outside of the transaction

    with pytest.raises(StorageError, match="undid"):
        careless()
    storage.close()


def test_a_coordinator_without_its_lock_cannot_write(postgres_url):
    storage = filled(postgres_url)
    run(postgres_url, "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'")
    with pytest.raises(StorageError), storage.transaction():
        pass
    other = served(postgres_url)
    with pytest.raises(StorageError), storage.transaction():
        pass
    other.close()
    storage.close()


def test_storage_errors_do_not_link_devices_to_steps(url):
    storage = filled(url)
    twice = "INSERT INTO check_ins (step, client) VALUES (1, 2)"
    with pytest.raises(StorageError) as caught, storage.transaction():
        storage._write.changed(twice, ())
    assert "unique" in str(caught.value).lower()
    assert "Key" not in str(caught.value)
    assert "2" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__
    storage.close()


def test_reading_check_ins_does_not_load_the_updates(path):
    storage = filled(str(path))
    asked = []

    def rows(sql, parameters):
        asked.append(sql)
        return []

    with storage.snapshot() as reads:
        reads._connection = type("Spy", (), {"rows": staticmethod(rows)})
        assert list(reads.participations(0)) == reads.arrived(0).tolist() == []
        assert reads.participation_counts()[0].size == 0
    assert len(asked) == 3
    assert not any("bodies" in sql for sql in asked)
    storage.close()


def test_the_address_selects_sqlite_or_postgres(path, monkeypatch):
    for name in ("mysql://here/there", "sqlite://task.sqlite"):
        with pytest.raises(StorageError, match="no storage for"):
            served(name)
    with pytest.raises(StorageError, match="there is no database"):
        served(path.parent / "missing" / "task.sqlite")
    with pytest.raises(StorageError, match="Postgres"):
        served(f"postgresql://nobody@/nothing?host={path.parent}")
    monkeypatch.chdir(path.parent)
    served("sqlite:///relative.sqlite").close()
    assert path.with_name("relative.sqlite").exists()
    served(f"sqlite:///{path}").close()
    assert path.exists()


@pytest.mark.parametrize(
    ("package", "name"), [("apsw", "task.sqlite"), ("psycopg", "postgresql://here/there")]
)
def test_a_missing_database_package_is_reported_with_its_install_command(
    package, name, monkeypatch, tmp_path
):
    kind = "sqlite" if package == "apsw" else "postgres"
    monkeypatch.delitem(sys.modules, f"turnout.service.storage.{kind}", raising=False)
    monkeypatch.delattr(f"turnout.service.storage.{kind}", raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        MissingExtraError, match=rf"{package}.*{re.escape(install_line('service'))}"
    ):
        served(name)


def test_the_task_identifier_is_the_digest_of_its_charter(path):
    storage = filled(str(path))
    with storage.snapshot(whole=True) as reads:
        assert {record.task for record in reads.records()} == {TASK}
    storage.close()
