"""Durable uploads per second: one transaction per request compared with group commit.

Each upload is a check-in with its update, stored by the service's storage on the disk of a folder
and acknowledged after the commit. `threads` requests are in progress at a time, each waiting for
its own answer, as connections do. CPU time is that of the whole process, which includes the
senders.

    python benchmarks/storage.py [--folder FOLDER] [--postgres URL] [--opening UPDATES]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

from turnout.reporting.surroundings import measured_on, surroundings
from turnout.service.contract.ledger import Record
from turnout.service.storage.database import Storage
from turnout.service.storage.interface import ParticipationRow, ReleaseRow
from turnout.service.storage.opening import open_storage
from turnout.service.storage.writer import Writer
from turnout.service.storage.writes import Transaction

BODY, SECONDS, CLIENTS = 50_000, 5.0, 100_000
Upload = Callable[[int], object]


def task_storage(name: str) -> Storage:
    storage = open_storage(name, serving=True)
    with storage.transaction() as tx:
        tx.create_task(b"{}", bytes(32), b"")
        tx.invite([bytes(32)] * CLIENTS)
        for client in range(CLIENTS):
            tx.enrol(client, bytes(32))
    return storage


def job(client: int, body: bytes, digest: bytes) -> Callable[[Transaction], None]:
    def stored(tx: Transaction) -> None:
        if tx.participation_at(client, 0) is None:
            tx.check_in(ParticipationRow(client, 0, digest), body, 1)

    return stored


def measured(upload: Upload, first: int, threads: int, seconds: float) -> tuple[dict, int]:
    clients, lock, latencies = iter(range(first, CLIENTS)), threading.Lock(), []
    ends = time.monotonic() + seconds

    def sender() -> None:
        while time.monotonic() < ends:
            with lock:
                client = next(clients)
            began = time.perf_counter()
            upload(client)
            latencies.append(time.perf_counter() - began)

    # All senders run until the time is over.
    cpu, wall = time.process_time(), time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(sender) for _ in range(threads)]:
            done.result()
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    latencies.sort()
    figures = {
        "uploads_per_second": len(latencies) / wall,
        "cpu_us": cpu / len(latencies) * 1e6,
        "p50_ms": latencies[len(latencies) // 2] * 1e3,
        "p99_ms": latencies[int(0.99 * len(latencies))] * 1e3,
    }
    return figures, first + len(latencies) + threads


def overhead(jobs: int = 20_000, together: int = 16) -> float:
    """CPU-microseconds per job of the writer, with a storage that does nothing."""

    class Nothing:
        def transaction(self) -> Nothing:
            return self

        def __enter__(self) -> None: ...

        def __exit__(self, *_: object) -> None: ...

    with closing(Writer(Nothing(), print)) as writer:  # pyright: ignore[reportArgumentType]
        began = time.process_time()
        for _ in range(jobs // together):
            futures: list[Future] = [writer.submit(lambda _: None) for _ in range(together)]
            for future in futures:
                future.result()
        return (time.process_time() - began) / jobs * 1e6


def uploads(name: str, threads: list[int]) -> list[dict]:
    body = os.urandom(BODY)
    digest = hashlib.sha256(body).digest()
    storage, rows, first = task_storage(name), [], 0

    def alone(client: int) -> None:
        with storage.transaction() as tx:
            job(client, body, digest)(tx)

    figures, first = measured(alone, first, max(threads), SECONDS)
    rows.append({"commit": "one a request", "in_flight": max(threads), **figures})
    with closing(Writer(storage, print)) as writer:
        for number in threads:

            def grouped(client: int) -> None:
                writer.submit(job(client, body, digest), BODY).result()

            figures, first = measured(grouped, first, number, SECONDS)
            rows.append({"commit": "group", "in_flight": number, **figures})
    storage.close()
    return rows


def whole_step(name: str, number: int = 4000, together: int = 16) -> dict:
    """CPU-microseconds per upload of the storage, from check-in to deletion.

    Uploads are stored sixteen per transaction, read for the sum, released with the step, and
    deleted.
    """
    storage, body = task_storage(name), os.urandom(BODY)
    digest = hashlib.sha256(body).digest()
    marks = [time.process_time()]
    # Store the uploads of one step.
    for first in range(0, number, together):
        with storage.transaction() as tx:
            for client in range(first, min(number, first + together)):
                job(client, body, digest)(tx)
    marks.append(time.process_time())
    with storage.transaction() as tx:
        # Read the uploads for their sum.
        assert sum(1 for _ in tx.bodies(0)) == number
    marks.append(time.process_time())
    # Release the step.
    task, model = hashlib.sha256(b"{}"), hashlib.sha256(b"model").digest()
    record = Record(task.hexdigest(), 0, bytes(32), model, 0.1, 1e-6, task.digest())
    with storage.transaction() as tx:
        tx.release(ReleaseRow(record, b"model", b"", b"", number, number), 2)
    marks.append(time.process_time())
    # Delete the rows of the step, a part at a time.
    while True:
        with storage.transaction() as tx:
            if not tx.reclaim(256):
                break
    assert storage.tidy()
    marks.append(time.process_time())
    storage.close()
    parts = ("stored", "read", "released", "deleted")
    figures = {
        part: (after - before) / number * 1e6
        for part, before, after in zip(parts, marks, marks[1:], strict=False)
    }
    return {**figures, "in_all": sum(figures.values())}


def opening(name: str, number: int) -> dict:
    """Seconds that a coordinator takes to read who participated, with so many stored updates."""
    body, together = os.urandom(BODY), 500
    digest = hashlib.sha256(body).digest()
    storage = task_storage(name)
    # Store all updates of an open step.
    for first in range(0, number, together):
        with storage.transaction() as tx:
            for client in range(first, min(number, first + together)):
                job(client, body, digest)(tx)
    storage.close()
    # Open the database again, and list the clients that participated.
    began = time.perf_counter()
    storage = open_storage(name, serving=True)
    opened = time.perf_counter()
    with storage.snapshot() as reads:
        came = reads.arrived(0).size
    listed = time.perf_counter()
    storage.close()
    assert came == number
    return {
        "uploads": number,
        "open_ms": (opened - began) * 1e3,
        "list_ms": (listed - opened) * 1e3,
    }


def table(found: dict) -> str:
    lines = [
        measured_on(),
        f"The writer's own overhead: {found['writer_us']:.1f} CPU-µs a job.\n",
        "| storage | commit | in flight | uploads/s | CPU-µs each | p50, ms | p99, ms |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for row in found["rows"]:
        lines.append(
            f"| {row['storage']} | {row['commit']} | {row['in_flight']} | "
            f"{row['uploads_per_second']:,.0f} | {row['cpu_us']:.0f} | {row['p50_ms']:.1f} | "
            f"{row['p99_ms']:.1f} |"
        )
    for row in found["steps"]:
        parts = ", ".join(f"{part} {row[part]:.0f}" for part in row if part != "storage")
        lines.append(f"\nA whole step in {row['storage']}, CPU-µs an upload: {parts}.")
    for row in found["opening"]:
        lines.append(
            f"\n{row['uploads']:,} updates in {row['storage']}: opened in {row['open_ms']:.0f} ms, "
            f"arrivals listed in {row['list_ms']:.0f} ms."
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--postgres", metavar="URL")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 16, 64])
    parser.add_argument(
        "--opening", type=int, metavar="UPDATES", help="number of stored updates; 100,000 take 5 GB"
    )
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    found: dict = {"writer_us": overhead(), "rows": [], "steps": [], "opening": []}
    # All SQLite files lie in one folder, so that one disk is measured.
    with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
        names = {"SQLite": str(Path(folder) / "uploads.sqlite")}
        if asked.postgres:
            names["Postgres"] = asked.postgres
        for kind, name in names.items():
            found["rows"] += [{"storage": kind, **row} for row in uploads(name, asked.threads)]
        name = str(Path(folder) / "step.sqlite")
        found["steps"] = [{"storage": "SQLite", **whole_step(name)}]
        if asked.opening:
            name = str(Path(folder) / "opening.sqlite")
            found["opening"] = [{"storage": "SQLite", **opening(name, asked.opening)}]
    print(table(found))
    if asked.json:
        asked.json.write_text(json.dumps({"about": surroundings(), **found}, indent=1))


if __name__ == "__main__":
    main()
