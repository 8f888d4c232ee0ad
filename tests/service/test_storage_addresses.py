"""Addresses of Postgres databases: errors name the cause and never contain a password."""

from __future__ import annotations

import socket
from urllib.parse import quote, urlsplit

import psycopg
import pytest
from storage_samples import create_task, served

from turnout.cli.main import main
from turnout.core.errors import StorageError
from turnout.service.storage.addresses import place_of
from turnout.service.storage.opening import open_storage
from turnout.service.web.settings import Settings


@pytest.fixture
def locked(postgres_url):
    """Host, port and database of a server on which the role `locked` needs the test's password."""
    password = "s3cret/@#?%"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("DROP ROLE IF EXISTS locked")
        connection.execute(f"CREATE ROLE locked LOGIN PASSWORD '{password}'".encode())
    yield urlsplit(postgres_url).query, password
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("DROP OWNED BY locked; DROP ROLE locked")


def refused(name, capsys):
    """Error line of a command that cannot open a database."""
    with pytest.raises(SystemExit) as ended:
        main(["ledger", "export", "--db", name])
    assert ended.value.code == 4
    (line,) = capsys.readouterr().err.splitlines()
    return line


@pytest.mark.parametrize(
    ("user", "database", "said"),
    [
        ("locked:{wrong}", "postgres", 'password authentication failed for user "locked"'),
        ("locked", "postgres", "no password supplied"),
        ("locked:{right}", "nowhere", 'database "nowhere" does not exist'),
        ("nobody:{right}", "postgres", 'role "nobody" does not exist'),
        ("locked:{right}", "postgres", "permission denied: the user may not use any schema"),
    ],
)
def test_postgres_errors_name_the_cause_without_password(locked, capsys, user, database, said):
    where, password = locked
    user = user.format(right=quote(password, safe=""), wrong=quote(f"not-{password}", safe=""))
    line = refused(f"postgresql://{user}@/{database}?{where}", capsys)
    assert said in line
    assert "s3cret" not in line


def test_postgres_errors_name_missing_permissions(locked, postgres_url):
    where, password = locked
    address = f"postgresql://locked:{quote(password, safe='')}@/postgres?{where}"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("GRANT USAGE ON SCHEMA public TO locked")
    with pytest.raises(StorageError, match=r"^Postgres: permission denied for schema public$"):
        served(address)
    storage = served(postgres_url)
    with storage.transaction() as tx:
        create_task(tx)
    storage.close()
    with pytest.raises(StorageError, match=r"^Postgres: permission denied for table"):
        open_storage(address, serving=False)


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("postgresql://me:s3cret@127.0.0.1:{closed}/x", "Connection refused"),
        ("postgresql://me:s3cret@/x?host=/no/folder", "No such file or directory"),
        ("postgresql:///x?service=nowhere&password=s3cret", 'service "nowhere" not found'),
        ("postgresql://me:s3@cret@127.0.0.1/x", "write @ as %40"),
        ("postgresql://me:12/s3cret@127.0.0.1/x", "/ as %2F"),
        ("postgresql://me:s3cret%zz@127.0.0.1/x", "libpq does not accept"),
        ("postgresql://127.0.0.1/x?pasword=s3cret", "libpq does not accept"),
        ("host=127.0.0.1 password=s3cret", "is a file's path, or postgresql://"),
    ],
)
def test_refusing_a_postgres_address_does_not_print_its_password(address, said, capsys):
    with socket.socket() as probe:  # a bound port that does not listen: connections are refused
        probe.bind(("127.0.0.1", 0))
        line = refused(address.format(closed=probe.getsockname()[1]), capsys)
    assert said in line
    assert "cret" not in line


def test_a_postgres_password_is_read_from_a_file_or_the_environment(locked, tmp_path, monkeypatch):
    where, password = locked
    with psycopg.connect(f"postgresql://turnout@/postgres?{where}") as connection:
        connection.execute("GRANT ALL ON SCHEMA public TO locked")
    file = tmp_path / "pgpass"
    file.write_text(f"*:*:postgres:locked:{password}\n")
    file.chmod(0o600)
    address = f"postgresql://locked@/postgres?{where}"
    monkeypatch.setenv("PGPASSFILE", str(file))
    served(address).close()
    monkeypatch.delenv("PGPASSFILE")
    monkeypatch.setenv("PGPASSWORD", password)
    served(address).close()
    services = tmp_path / "services"
    services.write_text(f"[mine]\nuser=locked\ndbname=postgres\n{where.replace('%2F', '/')}\n")
    monkeypatch.setenv("PGSERVICEFILE", str(services))
    served("postgresql:///?service=mine").close()


def test_displayed_postgres_addresses_contain_no_password():
    for address in (
        "postgresql://me:s3cret@db:5432/turnout",
        "postgres://me:s3#c?ret@db:5432/turnout",
        "postgresql://db:5432/turnout?user=me&password=s3cret&sslmode=require",
    ):
        assert place_of(address) == "postgresql://db:5432/turnout"
    assert place_of("postgresql:///?service=mine&password=x") == "postgresql:///?service=mine"
    assert place_of("task.sqlite") == "task.sqlite"
    assert "s3cret" not in repr(Settings(db="postgresql://me:s3cret@db/turnout"))
