"""Scenarios of the service benchmark: each returns named figures for one version and database."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from attackers import Attack, attacking
from load import Figures, Target, always_fresh, at_once, kept_alive, steady
from servers import Server, Task, Version, create_task, serving, started

Rows: TypeAlias = dict[str, list[float]]
Figure: TypeAlias = dict[str, float]
Named: TypeAlias = Callable[[], str]

_STEADY_UPLOADS, _STEADY_A_SECOND = 400, 20.0


def load(version: Version, folder: Path, named: Named, options: argparse.Namespace) -> Figure:
    """Figures for many concurrent updates over new connections, and over kept connections."""
    fresh, kept = options.devices * options.rounds, options.kept
    task = Task(fresh + 3 * kept, options.bytes)
    with serving(version, folder, named(), task) as server:
        rows = _of("at once", server, lambda: _rounds(server.target, 0, options))
        for name, run in (("always fresh", always_fresh), ("kept, all", kept_alive)):
            clients = range(fresh, fresh + kept)
            rows |= _of(name, server, lambda: run(server.target, clients, options.devices))  # noqa: B023
            fresh += kept
        clients = range(fresh, fresh + kept)
        return rows | _of("kept, 16", server, lambda: kept_alive(server.target, clients, 16))


def attacks(version: Version, folder: Path, named: Named, options: argparse.Namespace) -> Figure:
    """Figures for honest devices, without and with 9,000 connections of attackers."""
    rounds = options.devices * options.rounds
    task = Task(3 * (rounds + _STEADY_UPLOADS), options.bytes)
    rows: Figure = {}
    # The same honest load without attackers, then with attackers at one and at 500 addresses.
    with serving(version, folder, named(), task) as server:
        for number, (name, addresses) in enumerate(
            (("quiet", 0), ("one address", 1), ("500 addresses", 500))
        ):
            first = number * (rounds + _STEADY_UPLOADS)

            def honest(name: str = name, first: int = first) -> Figure:
                clients = range(first + rounds, first + rounds + _STEADY_UPLOADS)
                return _of(
                    f"{name}, at once", server, lambda: _rounds(server.target, first, options)
                ) | _of(
                    f"{name}, steady",
                    server,
                    lambda: steady(server.target, clients, _STEADY_A_SECOND),
                )

            if not addresses:
                rows |= honest()
                continue
            # Honest devices are measured while the attack lasts.
            attack = Attack(5000, 2000, 2000, addresses)
            with attacking(attack, server.target.port, options.bytes) as damage:
                time.sleep(2 * attack.pause_seconds)  # until the first burst is over
                rows |= honest()
            rows[f"{name}: attackers that connected"] = damage.connects
            rows[f"{name}: server's memory, MB"] = server.megabytes()
    return rows


def memory(version: Version, folder: Path, named: Named, options: argparse.Namespace) -> Figure:
    """Resident memory over the uploads of ten steps of one task, each released at its end."""
    steps, each = 10, options.uploads // 10
    task = Task(
        options.uploads,
        options.bytes,
        steps,
        step_seconds=max(30, each // options.uploads_a_second),
    )
    rows: Figure = {}
    with serving(version, folder, named(), task) as server:
        for step in range(steps):
            while int(str(server.status()["step"])) < step:
                time.sleep(0.2)
            target = replace(server.target, step=step)
            figures = kept_alive(target, range(step * each, (step + 1) * each), 64)
            rows[f"memory after {(step + 1) * each} uploads, MB"] = server.megabytes()
            rows[f"not stored of {(step + 1) * each}"] = figures.refused
    values = [value for name, value in rows.items() if name.startswith("memory")]
    return rows | {"growth after the first tenth, MB": max(values) - values[0]}


def ready(version: Version, folder: Path, named: Named, options: argparse.Namespace) -> Figure:
    """Seconds from the process start to its first answer at /readyz, with updates stored."""
    url = named()
    task = Task(options.stored, options.bytes, stored=options.stored)
    create_task(version, url, task)
    began = time.perf_counter()
    with started(version, folder, url, task):
        return {"seconds to ready": time.perf_counter() - began}


def _rounds(target: Target, first: int, options: argparse.Namespace) -> Figures:
    """Repeated measurements in which all devices send at once, each time other devices."""
    total = Figures()
    for number in range(options.rounds):
        start = first + number * options.devices
        total = total.joined(at_once(target, range(start, start + options.devices)))
    return total


def _of(name: str, server: Server, run: Callable[[], Figures]) -> Figure:
    """Figures of a load, and the server's CPU time and memory for each update."""
    before = server.cpu_seconds()
    figures = run()
    count = max(1, len(figures.times))
    cpu = server.cpu_seconds() - before
    return {
        f"{name}: p50, ms": figures.percentile(50) * 1e3,
        f"{name}: p99, ms": figures.percentile(99) * 1e3,
        f"{name}: updates stored per second": count / figures.seconds,
        f"{name}: updates stored per CPU-second": count / max(cpu, 1e-9),
        f"{name}: retries": figures.retries,
        f"{name}: most retries of one device": figures.worst_retries,
        f"{name}: refused": figures.refused,
        f"{name}: generator's CPU, µs": figures.cpu_seconds / count * 1e6,
    }
