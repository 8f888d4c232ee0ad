"""A coordinator process of one version, its database, and its use of CPU and memory."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from load import Target
from new_tasks import PLAN

_HERE = Path(__file__).parent
_REPOSITORY = _HERE.parents[1]


@dataclass(frozen=True)
class Version:
    """One version of the source.

    Attributes:
        name: name in the table.
        source: folder that contains ``turnout``.
    """

    name: str
    source: Path

    def environment(self) -> dict[str, str]:
        """Environment variables of the version's programs."""
        return {**os.environ, "PYTHONPATH": str(self.source), "OMP_NUM_THREADS": "1"}


@contextlib.contextmanager
def versions(before: str | None) -> Iterator[list[Version]]:
    """This version, and another revision if one is given."""
    own = Version("now", _REPOSITORY / "src")
    if before is None:
        yield [own]
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "before")
        tree = ["git", "-C", str(_REPOSITORY), "worktree"]
        subprocess.run([*tree, "add", "--detach", path, before], check=True, capture_output=True)
        try:
            yield [Version("before", path / "src"), own]
        finally:
            subprocess.run([*tree, "remove", "--force", path], check=True, capture_output=True)


@dataclass(frozen=True)
class Task:
    """Parameters of the served task.

    Attributes:
        population: number of clients, all enrolled.
        size: bytes of an update.
        steps: number of steps.
        step_seconds: duration of a step.
        stored: number of updates that are already stored.
    """

    population: int
    size: int
    steps: int = 4
    step_seconds: int = 7200
    stored: int = 0


@dataclass(frozen=True)
class Server:
    """Running coordinator process."""

    process: subprocess.Popen[bytes]
    target: Target

    def cpu_seconds(self) -> float:
        """User and system time since the start."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def megabytes(self) -> float:
        """Current resident memory."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        return int(found[1]) / 1024 if found else float("nan")

    def status(self) -> dict[str, object]:
        """Public status of the coordinator."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.target.port}/v1/status") as answer:
            return json.loads(answer.read())


def create_task(version: Version, url: str, task: Task) -> dict[str, object]:
    """Create a database with a task, and return what signing a request needs."""
    numbers = (task.population, task.size, task.steps, task.step_seconds, task.stored)
    program = [sys.executable, str(_HERE / "new_tasks.py"), url, *map(str, numbers)]
    done = subprocess.run(
        program, env=version.environment(), check=True, stdout=subprocess.PIPE, text=True
    )
    return json.loads(done.stdout)


@contextlib.contextmanager
def serving(version: Version, folder: Path, url: str, task: Task) -> Iterator[Server]:
    """Coordinator of a new database, after it has started and is idle."""
    made = create_task(version, url, task)
    with started(version, folder, url, task) as (process, port):
        server = Server(
            process,
            Target(port, str(made["request_format"]), str(made["task"]), int(str(made["size"]))),
        )
        _settled(server)
        yield server


@contextlib.contextmanager
def started(
    version: Version, folder: Path, url: str, task: Task
) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Coordinator process and its port, after the first answer at /readyz."""
    (folder / "plan.toml").write_text(PLAN.format(steps=task.steps))
    output = folder / f"output-{time.monotonic_ns()}"
    program = "from turnout.cli.main import main; main()"
    command = [sys.executable, "-c", program, "serve", str(folder / "plan.toml"), "--db", url]
    command += ["--port", "0", "--head-file", str(folder / f"head-{abs(hash(url))}")]
    with output.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, env=version.environment())
    try:
        while not (address := re.search(r"http://[\d.]+:(\d+)", output.read_text())):
            _require_alive(process, output)
            time.sleep(0.002)
        port = int(address[1])
        while not _answers(f"http://127.0.0.1:{port}/readyz"):
            _require_alive(process, output)
            time.sleep(0.002)
        yield process, port
    finally:
        process.send_signal(signal.SIGTERM)
        if process.wait(60):
            print(output.read_text()[-3000:], file=sys.stderr)


def _require_alive(process: subprocess.Popen[bytes], output: Path) -> None:
    if process.poll() is not None:
        sys.exit(output.read_text())


def _answers(url: str) -> bool:
    with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5) as answer:
        return answer.status == 200
    return False


def _settled(server: Server) -> None:
    """Wait until the server is idle."""
    used, quiet = server.cpu_seconds(), 0
    while quiet < 5:
        time.sleep(0.2)
        now = server.cpu_seconds()
        quiet, used = (quiet + 1 if now - used < 0.02 else 0), now


@contextlib.contextmanager
def databases(kind: str, folder: Path) -> Iterator[Callable[[], str]]:
    """Names of new databases: files, or on a Postgres server that ends with the block."""
    if kind == "sqlite":
        yield lambda: str(folder / f"turnout-{time.monotonic_ns()}.sqlite")
        return
    with _postgres() as (server, connect):

        def named() -> str:
            name = f"turnout_{time.monotonic_ns()}"
            with connect() as connection:
                connection.execute(f"CREATE DATABASE {name}")
            return server.replace("/postgres?", f"/{name}?")

        yield named


@contextlib.contextmanager
def _postgres() -> Iterator[tuple[str, Callable]]:
    import psycopg

    initdb = shutil.which("initdb")
    folders = [Path(initdb).parent] if initdb else sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    if not folders:
        sys.exit("needs Postgres (Debian: postgresql)")
    before, folder = [], Path(tempfile.mkdtemp(prefix="turnout-pg-"))
    if os.geteuid() == 0:  # Postgres refuses to run as root
        user = pwd.getpwnam("postgres")
        before = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
        os.chown(folder, user.pw_uid, -1)
    # Create a cluster in a temporary folder, and start a server that uses only a local socket.
    data, url = str(folder / "data"), f"postgresql://turnout@/postgres?host={folder}"
    made = [str(folders[-1] / "initdb"), "--auth=trust", "--username=turnout", data]
    subprocess.run([*before, *made], check=True, capture_output=True)
    run = [str(folders[-1] / "postgres"), "-D", data, "-k", str(folder), "-c", "listen_addresses="]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen([*before, *run], stdout=log, stderr=log)
    # Wait until the server answers, and delete everything at the end.
    try:
        while True:
            with contextlib.suppress(psycopg.OperationalError):
                psycopg.connect(url).close()
                break
            time.sleep(0.05)
        yield url, lambda: psycopg.connect(url, autocommit=True)
    finally:
        server.send_signal(signal.SIGQUIT)
        server.wait()
        shutil.rmtree(folder, ignore_errors=True)
