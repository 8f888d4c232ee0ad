"""Postgres server for each test process, with an empty database for each test."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from forked import HANGS_SECONDS
from installed import program
from storage_samples import create_task, served

from turnout.service.storage.database import Storage

LOCKED = "locked"
"""Name of the Postgres role that needs a password."""


def _programs() -> Path | None:
    """Folder that contains initdb and postgres: on the PATH, or the folder that Debian uses."""
    found = shutil.which("initdb")
    folders = [Path(found).parent] if found else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    programs = ("initdb", "postgres")
    return next((f for f in folders if all((f / name).exists() for name in programs)), None)


def _without_root() -> tuple[list[str], int]:
    """Prefix of a command that runs it without root rights, and the user id that it runs as."""
    if os.geteuid() != 0:
        return [], os.geteuid()
    for name in ("postgres", "nobody"):
        try:
            user = pwd.getpwnam(name)
        except KeyError:
            continue
        ids = [f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
        return [program("setpriv"), *ids], user.pw_uid
    pytest.skip("Postgres does not run as root, and there is no user postgres or nobody")


def _tied(command: list[str]) -> list[str]:
    """Command that the operating system ends if this process ends."""
    tie = ["setpriv", "--pdeathsig", "SIGQUIT"] if shutil.which("setpriv") else []
    return [*tie, *command]


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """URL of a Postgres server with default durability, which runs as long as the test process."""
    programs = _programs()
    if programs is None:
        pytest.skip("needs Postgres: install it (Debian: postgresql)")
    before, user = _without_root()
    # Other users cannot read pytest's folders, and a socket's path must be short.
    folder = Path(tempfile.mkdtemp(prefix="turnout-pg-"))
    try:
        os.chown(folder, user, -1)
        data, log = folder / "data", folder / "log"
        made = [str(programs / "initdb"), "--no-sync", "--auth=trust", "--username=turnout"]
        made += ["--no-locale", "--encoding=UTF8", str(data)]
        environment = {"PATH": os.environ["PATH"], "TZ": "UTC"}
        subprocess.run([*before, *made], check=True, capture_output=True, env=environment)
        access = data / "pg_hba.conf"
        access.write_text(f"local all {LOCKED} scram-sha-256\n{access.read_text()}")
        serve = [str(programs / "postgres"), "-D", str(data), "-k", str(folder)]
        # Tied after the change of user, which would reset the signal.
        serve = [*before, *_tied([*serve, "-c", "listen_addresses="])]
        with log.open("wb") as output:
            server = subprocess.Popen(serve, stdout=output, stderr=output, env=environment)
        try:
            url = f"postgresql://turnout@/postgres?host={folder}"
            _await(url, server, log)
            yield url
        finally:
            server.send_signal(signal.SIGQUIT)  # the stored data are not needed
            server.wait()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _await(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    import psycopg

    deadline = time.monotonic() + HANGS_SECONDS
    while time.monotonic() < deadline:
        try:
            psycopg.connect(url).close()
            return
        except psycopg.OperationalError:
            assert server.poll() is None, log.read_text()
            time.sleep(0.05)
    raise AssertionError(log.read_text())


@pytest.fixture
def postgres_url(postgres_server: str) -> str:
    """URL of an empty database; the test is skipped if Postgres is not installed.

    All tests use one database, which is emptied before each test: creating a database would sync
    300 files.
    """
    import psycopg

    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    return postgres_server


@pytest.fixture(params=["sqlite", "postgres"])
def url(request, tmp_path) -> str:
    if request.param == "postgres":
        return request.getfixturevalue("postgres_url")
    return str(tmp_path / "task.sqlite")


@pytest.fixture
def empty(url) -> Iterator[Storage]:
    storage = served(url)
    yield storage
    storage.close()


@pytest.fixture
def storage(empty) -> Storage:
    with empty.transaction() as tx:
        create_task(tx)
    return empty
