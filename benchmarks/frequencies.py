"""Frequency estimation: speed compared with two packages, errors on real names, memory.

The message of every client is drawn and counted. Seconds are CPU-seconds of ``process_time`` on one
thread. For turnout the median of several runs with pseudo-random numbers, which the other packages
use, and one run with the operating system's randomness are shown. pure-ldp and multi-freq-ldpy run
in their own environment.

    python benchmarks/frequencies.py speed [--slow-clients 5000] [--json FILE]
    python benchmarks/frequencies.py names [--json FILE]
    python benchmarks/frequencies.py memory
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from papers.hadamard_blocks import printed_response
from peers.environment import HERE, python

from turnout.data.files import first_names
from turnout.estimation import FrequencyTally, collect, estimate_frequencies
from turnout.randomizers import (
    FrequencyRandomizer,
    HadamardRandomizer,
    KaryRandomizedResponse,
    LocalHashing,
    OneBitHadamard,
    SubsetSelection,
    UnaryEncoding,
)
from turnout.randomness import OSRandomness, SimulationStreams, Source
from turnout.reporting.surroundings import measured_on, surroundings

EPSILON, ITEMS, CLIENTS, RUNS = 1.0, 1000, 500_000, 3
WAYS = ("raw", "clip", "simplex", "empirical-bayes")


def mechanisms(epsilon: float, items: int) -> dict[str, FrequencyRandomizer]:
    return {
        "k-ary response": KaryRandomizedResponse(epsilon, items),
        "symmetric unary": UnaryEncoding(epsilon, items, form="symmetric"),
        "optimised unary": UnaryEncoding(epsilon, items),
        "subset selection": SubsetSelection(epsilon, items),
        "Hadamard response": HadamardRandomizer(epsilon, items),
        "Hadamard response as printed": printed_response(epsilon, items),
        "one-bit Hadamard": OneBitHadamard(epsilon, items),
        "one-bit Hadamard, public rows": OneBitHadamard(epsilon, items, public=True),
        "binary hashing": LocalHashing(epsilon, items, cells=2),
        "local hashing": LocalHashing(epsilon, items),
    }


def timed(randomizer: FrequencyRandomizer, values: np.ndarray, source: Source):
    begun, wall = time.process_time(), time.perf_counter()
    tally = collect(randomizer, values, source)
    estimate_frequencies(tally)
    return tally, time.process_time() - begun, time.perf_counter() - wall


def speed(slow_clients: int | None, clients: int) -> list[dict]:
    names = first_names(ITEMS)
    everybody = np.random.default_rng(0).permutation(names.holdings())[:clients]
    streams = SimulationStreams(0)
    ours = {}
    for name, randomizer in mechanisms(EPSILON, ITEMS).items():
        runs = [timed(randomizer, everybody, streams.source(name, run))[1] for run in range(RUNS)]
        ours[name] = statistics.median(runs), timed(randomizer, everybody, OSRandomness())[1]
    rows = []
    for line in peers(everybody, slow_clients):
        peer = json.loads(line)
        fast, secure = ours[peer["mechanism"].split(" (")[0]]
        # The times of encoding and of estimating are both linear in the clients.
        seconds = (peer["client_seconds"] + peer["server_seconds"]) * clients / peer["clients"]
        rows.append(
            {**peer, "seconds": seconds, "turnout": fast, "turnout_os": secure}
            | {"ratio": seconds / fast, "ratio_os": seconds / secure}
        )
    return rows


def peers(values: np.ndarray, slow_clients: int | None) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "values.npy"
        np.save(place, values)
        command = [str(python("frequencies")), str(HERE / "frequency_oracles.py"), str(place)]
        command += ["--items", str(ITEMS), "--epsilon", str(EPSILON)]
        command += ["--slow-clients", str(slow_clients)] if slow_clients else []
        done = subprocess.run(command, capture_output=True, check=True, text=True)
        return done.stdout.splitlines()


def speed_table(rows: list[dict]) -> str:
    lines = [
        "| mechanism | package | its s | turnout, s | ratio | turnout, OS randomness, s | ratio |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for row in sorted(rows, key=lambda row: row["mechanism"]):
        scaled = "" if row["clients"] == CLIENTS else f" (from {row['clients']:,} clients)"
        lines.append(
            f"| {row['mechanism']} | {row['package']} | {row['seconds']:.2f}{scaled} "
            f"| {row['turnout']:.3f} | {row['ratio']:,.0f} "
            f"| {row['turnout_os']:.3f} | {row['ratio_os']:,.0f} |"
        )
    return "\n".join(lines)


def names_rows() -> list[dict]:
    names = first_names(ITEMS)
    held = names.holdings()
    rows = []
    for name, randomizer in mechanisms(EPSILON, ITEMS).items():
        tally, cpu, wall = timed(randomizer, held, OSRandomness())
        row = {"mechanism": name, "bits": randomizer.message_bits, "cpu": cpu, "wall": wall}
        row["expected_l2"] = randomizer.variance(names.frequencies, names.people).sum() ** 0.5
        row["l2"] = float(np.linalg.norm(found(tally, "raw") - names.frequencies))
        for way in WAYS:
            row[way] = float(np.abs(found(tally, way) - names.frequencies).sum())
        rows.append(row)
    return rows


def found(tally: FrequencyTally, way: str) -> np.ndarray:
    return estimate_frequencies(tally, way).frequencies


def names_table(rows: list[dict]) -> str:
    lines = [
        "| mechanism | bits | CPU s | wall s | ℓ2 of raw (formula) "
        "| ℓ1 raw | ℓ1 clip | ℓ1 simplex | ℓ1 empirical Bayes |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {row['mechanism']} | {row['bits']} | {row['cpu']:.2f} | {row['wall']:.2f} "
        f"| {row['l2']:.4f} ({row['expected_l2']:.4f}) | "
        + " | ".join(f"{row[way]:.3f}" for way in WAYS)
        + " |"
        for row in rows
    ]
    return "\n".join(lines)


def memory(clients: int = 1_000_000) -> str:
    """Peak memory of a process that draws and counts a million messages, by mechanism."""
    lines = ["| mechanism | clients | peak, MiB |", "|---|---:|---:|"]
    for name in mechanisms(EPSILON, ITEMS):
        command = [sys.executable, __file__, "one", "--mechanism", name, "--clients", str(clients)]
        peak = subprocess.run(command, capture_output=True, check=True, text=True).stdout
        lines.append(f"| {name} | {clients:,} | {int(peak) / 1024:.0f} |")
    return "\n".join(lines)


def one(name: str, clients: int) -> None:
    values = (np.arange(clients) % ITEMS).astype(np.int16)
    estimate_frequencies(collect(mechanisms(EPSILON, ITEMS)[name], values, OSRandomness()))
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=["speed", "names", "memory", "one"])
    parser.add_argument(
        "--slow-clients", type=int, help="number of clients for servers that take minutes"
    )
    parser.add_argument("--clients", type=int, default=CLIENTS)
    parser.add_argument("--mechanism", help="mechanism to measure, with `one`")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    result: object = None
    if given.what == "speed":
        result = speed(given.slow_clients, given.clients)
        print(f"{measured_on()}\n{speed_table(result)}")
    elif given.what == "names":
        result = names_rows()
        print(names_table(result))
    elif given.what == "memory":
        print(f"{measured_on()}\n{memory()}")
    else:
        one(given.mechanism, given.clients)
    if given.json and result:
        given.json.write_text(json.dumps({"about": surroundings(), "rows": result}, indent=1))
