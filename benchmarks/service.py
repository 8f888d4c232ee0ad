"""How many signed, durable updates a second one coordinator takes, and what beyond that.

    python benchmarks/service.py [--seconds 10] [--connections 16] [--kilobytes 50]
    python benchmarks/service.py --ready        # time to ready with 100,000 updates stored

A real `turnout serve` process on SQLite (synchronous=FULL) is loaded by a process of its own that
sends requests signed beforehand over keep-alive connections; an answer counts when it says
``accepted``. Prints a table and writes JSON beside it with --json.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import numpy as np

PLAN = """
[data]
name = "digits"
[model]
name = "logistic"
[participation]
law = "check-in"
window = 2
windows = 2
[privacy]
relation = "add-remove"
noise_multiplier = 1.0
delta = 1e-6
[optimizer]
learning_rate = 1.0
"""


def main() -> None:
    """Run one of the measurements."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--kilobytes", type=float, default=50.0)
    parser.add_argument("--overload", type=int, default=512, help="connections of the second run")
    parser.add_argument("--ready", action="store_true", help="time to ready instead")
    parser.add_argument("--stored", type=int, default=100_000, help="updates stored for --ready")
    parser.add_argument("--folder", help="where the databases go; the system's for temporary files")
    parser.add_argument("--profile", help="write cProfile's statistics of the server to this file")
    parser.add_argument("--json", help="write the figures to this file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        rows = ready(options, Path(folder)) if options.ready else load(options, Path(folder))
    for name, value in rows.items():
        print(f"{name:48s} {value}")
    if options.json:
        Path(options.json).write_text(json.dumps(rows, indent=1) + "\n")


def ready(options: argparse.Namespace, folder: Path) -> dict[str, object]:
    """Seconds from the start of the process to its first answer at /readyz."""
    path, population = folder / "turnout.sqlite", options.stored
    found(path, population, options.kilobytes, stored=options.stored)
    seconds = []
    for _ in range(3):
        began = time.perf_counter()
        with serving(folder, path) as (_, url):
            while not answers(f"{url()}/readyz"):
                time.sleep(0.002)
            seconds.append(time.perf_counter() - began)
    size = path.stat().st_size / 1e9
    return {
        "updates stored": options.stored,
        "database, GB": round(size, 2),
        "seconds to ready": [round(s, 2) for s in seconds],
    }


def load(options: argparse.Namespace, folder: Path) -> dict[str, object]:
    """Accepted updates a second at some connections, and what happens at many more."""
    path, population = folder / "turnout.sqlite", 60_000
    found(path, population, options.kilobytes)
    prepared = folder / "requests"
    size = signed_requests(path, prepared, population)
    rows: dict[str, object] = {"update, bytes": size}
    with serving(folder, path, options.profile) as (server, url):
        base = url()
        while not answers(f"{base}/readyz"):
            time.sleep(0.01)
        time.sleep(4)  # the evaluation's imports are over
        port = int(base.rpartition(":")[2])
        first = 0
        for connections in (options.connections, options.overload):
            before, cpu = resident(server.pid), cpu_seconds(server.pid)
            load = Load(port, prepared, size, first, connections, options.seconds)
            figures = load.measured()
            cpu, n = cpu_seconds(server.pid) - cpu, max(1, figures["accepted"])
            first += figures["sent"]
            name = f"{connections} connections: "
            rows |= {
                f"{name}accepted a second": round(figures["accepted"] / figures["seconds"]),
                f"{name}p50, ms": round(figures["p50"] * 1e3, 1),
                f"{name}p99, ms": round(figures["p99"] * 1e3, 1),
                f"{name}largest, ms": round(figures["largest"] * 1e3, 1),
                f"{name}answered 503": figures["busy"],
                f"{name}answered otherwise": figures["other"],
                f"{name}server's CPU a request, µs": round(cpu / n * 1e6),
                f"{name}generator's CPU a request, µs": round(figures["cpu"] / n * 1e6),
                f"{name}server's memory before and at most, MB": (before, peak(server.pid)),
            }
    return rows


def found(path: Path, population: int, kilobytes: float, *, stored: int = 0) -> None:
    """A database with enrolled clients, all with one key, and so many updates of the open step."""
    from turnout.protocol import Lattice
    from turnout.service.charter import Charter, Timing
    from turnout.service.signatures import SigningKey
    from turnout.service.storage.interface import Participation
    from turnout.service.storage.opening import open_storage
    from turnout.spec import CheckIn, GaussianNoise, Relation, ReleaseRule, Scheme

    dimension, key, device = int(kilobytes * 1000) // 4, SigningKey(bytes(32)), device_key()
    charter = Charter(
        plan=PLAN,
        population=population,
        scheme=Scheme(
            GaussianNoise(1.0), CheckIn(2, 2), Relation.ADD_REMOVE, ReleaseRule.AGGREGATED
        ),
        delta=1e-6,
        target=10.0,
        charged_steps=(4,),
        charged=(9.0,),
        lattice=Lattice.for_noise(1.0, 1.0, dimension),
        expected_check_ins=100.0,
        minibatch=1,
        initial_model=hashlib.sha256(bytes(4 * dimension)).digest(),
        timing=Timing.of(7200.0),
        coordinator_key=key.public,
    )
    storage = open_storage(path, serving=True)
    with storage.transaction() as tx:
        tx.found(charter.canonical(), key.private, bytes(4 * dimension))
        tx.invite([hashlib.sha256(b"%d" % i).digest() for i in range(population)])
        for client in range(population):
            tx.enrol(client, device.public)
    for first in range(0, stored, 1000):
        with storage.transaction() as tx:
            for client in range(first, min(first + 1000, stored)):
                body = update_of(client, 4 * dimension)
                digest = hashlib.sha256(body).digest()
                tx.check_in(Participation(client, 0, 0, 0, digest), body)
    storage.close()


def device_key():
    """The key that all clients here have."""
    from turnout.service.signatures import SigningKey

    return SigningKey(hashlib.sha256(b"device").digest())


def update_of(client: int, size: int) -> bytes:
    """A small update that is another one for each client."""
    return np.random.default_rng(client).integers(-3, 4, size // 4, dtype="<i4").tobytes()


def signed_requests(path: Path, prepared: Path, population: int) -> int:
    """Write each client's request head to a file of fixed-length records, signed."""
    from turnout.service.charter import Charter
    from turnout.service.storage.opening import open_storage

    storage = open_storage(path, serving=False)
    with storage.snapshot() as view:
        charter = Charter.from_canonical(view.charter() or b"")
    storage.close()
    size, task = charter.lattice.encoded_size, charter.task
    work = [(task, size, range(n, population, 2)) for n in range(2)]
    with multiprocessing.Pool(2) as pool, prepared.open("wb") as file:
        parts = pool.starmap(_signed, work)
        for client in range(population):
            file.write(parts[client % 2][client // 2])
    return size


RECORD = 512


def _signed(task: str, size: int, clients: range) -> list[bytes]:
    from turnout.service.wire import UPDATE_FORMAT, SignedRequest, updates_path

    key, path, found = device_key(), updates_path(0), []
    for client in clients:
        body = update_of(client % 64, size)
        request = SignedRequest.posting(
            task, path, client, os.urandom(16), body, format=UPDATE_FORMAT
        )
        headers = request.headers(key.sign(request.canonical()))
        lines = [f"POST {path} HTTP/1.1", "Host: x", f"Content-Length: {size}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        found.append(("\r\n".join(lines) + "\r\n\r\n").encode().ljust(RECORD, b" "))
    return found


@dataclass(frozen=True)
class Load:
    """What one generator process sends.

    Attributes:
        port: the coordinator's, on this machine.
        prepared: file of signed request heads.
        size: bytes of a body.
        first: the first client that was not used before.
        connections: at once.
        seconds: how long.
    """

    port: int
    prepared: Path
    size: int
    first: int
    connections: int
    seconds: float

    def measured(self) -> dict[str, float]:
        """What the generator saw."""
        receiving, sending = multiprocessing.Pipe(duplex=False)
        generator = multiprocessing.Process(target=self._generate, args=(sending,))
        generator.start()
        figures = receiving.recv()
        generator.join()
        return figures

    def _generate(self, sending) -> None:
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            sending.send(runner.run(self._sent()))

    async def _sent(self) -> dict[str, float]:
        requests = self.prepared.read_bytes()[self.first * RECORD :]
        bodies = [update_of(n, self.size) for n in range(64)]
        began, loop = time.perf_counter(), asyncio.get_running_loop()
        run = _Run(requests, bodies, self.first, began + self.seconds)
        for _ in range(self.connections):
            await loop.create_connection(lambda: _Connection(run), "127.0.0.1", self.port)
        await run.over.wait()
        took = time.perf_counter() - began
        await asyncio.sleep(0.5)
        times = np.array(run.times or [float("nan")])
        return {
            "accepted": len(run.times),
            "seconds": took,
            "p50": float(np.percentile(times, 50)),
            "p99": float(np.percentile(times, 99)),
            "largest": float(times.max()),
            "busy": run.busy,
            "other": run.other,
            "sent": run.sent,
            "cpu": time.process_time(),
        }


class _Connection(asyncio.Protocol):
    """Sends one request after the other; the next one once the last is answered."""

    def __init__(self, run: _Run) -> None:
        self._run, self._buffer = run, b""

    def connection_made(self, transport) -> None:
        self._transport = transport
        transport.set_write_buffer_limits(1 << 20)
        self._next()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, separator, body = self._buffer.partition(b"\r\n\r\n")
        if not separator:
            return
        length = int(re.search(rb"content-length: (\d+)", head)[1])
        if len(body) >= length:
            self._buffer = b""
            self._run.answered(head[9:12], time.perf_counter() - self._began)
            if head[9:12] == b"503":
                asyncio.get_running_loop().call_later(0.05, self._next)
            else:
                self._next()

    def connection_lost(self, error) -> None:
        self._run.over.set()

    def _next(self) -> None:
        request = self._run.next()
        if request is None:
            self._transport.close()
            return
        self._began = time.perf_counter()
        self._transport.writelines(request)


class _Run:
    def __init__(self, requests, bodies, first, until) -> None:
        self._requests, self._bodies, self._client = requests, bodies, first
        self._at, self._until = 0, until
        self.over = asyncio.Event()
        self.times: list[float] = []
        self.busy = self.other = self.sent = 0

    def next(self):
        if time.perf_counter() > self._until or self._at + RECORD > len(self._requests):
            return None
        head = self._requests[self._at : self._at + RECORD].rstrip()
        request = head + b"\r\n\r\n", self._bodies[self._client % 64]
        self._at, self._client, self.sent = self._at + RECORD, self._client + 1, self.sent + 1
        return request

    def answered(self, status: bytes, seconds: float) -> None:
        if status == b"200":
            self.times.append(seconds)
        elif status == b"503":
            self.busy += 1
        else:
            self.other += 1


@contextlib.contextmanager
def serving(folder: Path, path: Path, profile: str | None = None):
    """A coordinator process, and what tells its address once it has one."""
    (folder / "plan.toml").write_text(PLAN)
    program = ["-m", "cProfile", "-o", profile] if profile else []
    command = [sys.executable, *program, str(Path(sys.executable).with_name("turnout"))]
    command += ["serve", str(folder / "plan.toml"), "--db", str(path), "--port", "0"]
    output = folder / "output"
    with output.open("wb") as file:
        server = subprocess.Popen(
            command, stdout=file, stderr=file, env={**os.environ, "OMP_NUM_THREADS": "1"}
        )

    def url() -> str:
        while True:
            found = re.search(r"http://[\d.:]+", output.read_text())
            if found:
                return found[0]
            if server.poll() is not None:
                sys.exit(output.read_text())
            time.sleep(0.002)

    try:
        yield server, url
    finally:
        server.send_signal(signal.SIGTERM)
        if server.wait(60):
            print(output.read_text(), file=sys.stderr)


def answers(url: str) -> bool:
    """Whether it does, with 200."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident(pid: int) -> int:
    """Memory of a process now, MB."""
    return _memory(pid, "VmRSS")


def peak(pid: int) -> int:
    """The most memory that a process ever had, MB."""
    return _memory(pid, "VmHWM")


def _memory(pid: int, name: str) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(rf"{name}:\s+(\d+) kB", status)
    return int(found[1]) // 1024 if found else -1


if __name__ == "__main__":
    main()
