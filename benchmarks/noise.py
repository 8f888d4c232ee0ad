"""Rounded Gaussian noise: CPU-nanoseconds per coordinate, compared with NumPy and OpenDP.

NumPy's noise is ``rint(normal)`` from a seeded generator. Its time is a lower limit, but the noise
protects no data: its stream can be computed and its floats leave gaps. OpenDP's is the exact
discrete Gaussian of Canonne, Kamath and Steinke from the operating system's randomness, in its own
environment. CPU-nanoseconds are those of ``process_time``, the median over several repeats of whole
vectors.

    python benchmarks/noise.py [--size 13000] [--json FILE] [--alone]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import numpy
from peers.environment import HERE, python

from turnout.randomness import lattice_noise, rounded_gaussian, system_bytes
from turnout.reporting.surroundings import measured_on, surroundings

DEVIATIONS = [0.3, 1.0, 30.7, 1024.0, 1e4, 1e5, 1e6, 1e8]
REPEATS, PEER_REPEATS = 200, 5


def nanoseconds(draw: Callable[[], object], size: int) -> float:
    seconds = []
    for _ in range(REPEATS):
        started = time.process_time()
        draw()
        seconds.append(time.process_time() - started)
    return statistics.median(seconds) / size * 1e9


def opendp(size: int) -> list[float]:
    command = [str(python("opendp")), str(HERE / "opendp_noise.py"), str(size), str(PEER_REPEATS)]
    command += [str(s) for s in DEVIATIONS]
    return json.loads(subprocess.run(command, capture_output=True, check=True).stdout)


def measured(size: int, alone: bool) -> dict:
    started = time.process_time()
    lattice_noise._table()
    rounded_gaussian(1.0, 1)
    first = time.process_time() - started
    peer = [None] * len(DEVIATIONS) if alone else opendp(size)
    generator = numpy.random.default_rng(0)
    rows = []
    for s, theirs in zip(DEVIATIONS, peer, strict=True):
        ours = nanoseconds(lambda s=s: rounded_gaussian(s, size), size)
        floor = nanoseconds(
            lambda s=s: numpy.rint(generator.normal(0, s, size)).astype(numpy.int64), size
        )
        rows.append({"deviation": s, "turnout": ours, "numpy": floor, "opendp": theirs})
    bytes_alone = nanoseconds(lambda: system_bytes(8 * size), size)
    return {"size": size, "first_draw_seconds": first, "bytes": bytes_alone, "rows": rows}


def table(found: dict) -> str:
    lines = [
        measured_on(),
        "| std (steps) | turnout, ns | NumPy, ns | ratio | OpenDP, ns | ratio |",
        "|---:|---:|---:|---:|---:|---:|",
    ]
    for row in found["rows"]:
        ours, floor, theirs = row["turnout"], row["numpy"], row["opendp"]
        peer = f"{theirs:,.0f} | {ours / theirs:.4f}" if theirs else "– | –"
        lines.append(
            f"| {row['deviation']:g} | {ours:.1f} | {floor:.1f} | {ours / floor:.2f} | {peer} |"
        )
    lines.append(
        f"\n{found['size']:,} coordinates a vector; of turnout's time {found['bytes']:.1f} ns are "
        f"AES. Table and first draw: {found['first_draw_seconds'] * 1e3:.0f} ms, once a process."
    )
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--size", type=int, default=13_000)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--alone", action="store_true", help="run only turnout and NumPy")
    given = parser.parse_args()
    result = measured(given.size, given.alone)
    print(table(result))
    if given.json:
        given.json.write_text(json.dumps({"about": surroundings(), **result}, indent=1))
