"""Ratio of CPU times of this version and another revision, with a 95 % confidence interval.

    python benchmarks/cpu_ratio.py --before REV                     # 12 pairs, about 8 minutes
    python benchmarks/cpu_ratio.py --before REV --only "accounting|start" --pairs 20

Each workload runs in new processes, alternating between the versions (before, now, now, before, …),
on one thread. The ratio is the geometric mean over pairs; its interval is Student's for the
logarithms. `libraries` is `import numpy, scipy.special, scipy.fft` alone, for which both versions
use the same packages; `start` is one whole `turnout account`, of which these imports are the larger
part. `python benchmarks/service --before REV` measures devices that send updates to a coordinator.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage

from scipy.special import stdtrit

sys.path.append(str(Path(__file__).parent / "service"))

from servers import Version, versions

from turnout.reporting.surroundings import surroundings

LIBRARIES = "import numpy, scipy.special, scipy.fft"
COMMAND = "import sys; from turnout.cli.main import main; sys.exit(main(sys.argv[1:]))"
ACCOUNT = (
    "account --scheme check-in --window 1000 --noise-multiplier 1 --delta 1e-6 "
    "--relation add-remove --json"
)
ACCOUNTING = """
import turnout as tn
for window, windows, relation in (
    (10, 5, "add-remove"),
    (100, 10, "add-remove"),
    (1000, 10, "add-remove"),
    (10, 1, "replace-one"),
):
    scheme = tn.Scheme(tn.GaussianNoise(1.0), tn.CheckIn(window, windows), relation=relation)
    tn.price(scheme, delta=1e-6)
scheme = tn.Scheme(tn.GaussianNoise(1.0), tn.PoissonSampling(0.01, 1000), relation="add-remove")
tn.price(scheme, delta=1e-6)
scheme = tn.Scheme(tn.GaussianNoise(2.0), tn.KSubset(100, 5), relation="add-remove")
tn.price(scheme, delta=1e-6)
"""
SHUFFLING = """
import turnout as tn
for clients in (1000, 100_000):
    for randomizer in (
        tn.PureRandomizer(1.0), tn.NonAdaptiveRandomizer(2.0), tn.KaryResponse(2.0, 16),
    ):
        tn.price(tn.shuffled(randomizer, clients=clients), delta=1e-6)
        tn.price(tn.shuffled(randomizer, clients=clients, rounds=20), delta=1e-6)
"""
SIMULATION = """
import tempfile
import turnout as tn
from turnout.cli.main import main
tn.simulate(tn.CheckIn(window=100, windows=3), clients=200_000, seed=1)
tn.simulate(tn.PoissonSampling(0.05, 100), clients=100_000, seed=1)
with tempfile.TemporaryDirectory() as out:
    raise SystemExit(main(["train", "--example", "digits", "--out", out + "/run"]))
"""
WORKLOADS = {
    "accounting": [ACCOUNTING],
    "shuffling": [SHUFFLING],
    "simulation": [SIMULATION],
    "libraries": [LIBRARIES],
    "start": [COMMAND, *ACCOUNT.split()],
}


def cpu_seconds(version: Version, arguments: list[str], folder: Path) -> float:
    """User and system time of one new interpreter that runs a workload of a version."""
    environment = version.environment()
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    environment |= {"OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-c", *arguments]
    before = getrusage(RUSAGE_CHILDREN)
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=False)
    after = getrusage(RUSAGE_CHILDREN)
    if done.returncode:
        sys.exit(f"{version.name}: {done.stderr.decode()}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def pairs(name: str, beside: list[Version], count: int, folder: Path) -> list[list[float]]:
    """CPU-seconds of both versions, `[[before, …], [now, …]]`, from alternating runs."""
    seconds: list[list[float]] = [[], []]
    for version in beside:
        cpu_seconds(version, WORKLOADS[name], folder)  # the first run compiles bytecode
    for pair in range(count):
        order = (0, 1) if pair % 2 == 0 else (1, 0)
        for side in order:
            seconds[side].append(cpu_seconds(beside[side], WORKLOADS[name], folder))
    return seconds


def interval(seconds: list[list[float]]) -> tuple[float, float, float]:
    """Geometric mean of now / before, and the ends of its 95 % confidence interval."""
    logs = [math.log(now / before) for before, now in zip(*seconds, strict=True)]
    mean, half = statistics.fmean(logs), 0.0
    if len(logs) > 1:
        half = float(stdtrit(len(logs) - 1, 0.975)) * statistics.stdev(logs) / len(logs) ** 0.5
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


def main() -> None:
    """Print one line for each workload."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--before", metavar="REV", required=True, help="the revision to compare")
    parser.add_argument(
        "--pairs", type=int, default=12, help="pairs of runs of each workload; 12 by default"
    )
    parser.add_argument("--only", default="", help="run only workloads that match this pattern")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    print(", ".join(f"{name} {value}" for name, value in surroundings().items()))
    print(f"{'workload':12}{'before':>10}{'now':>10}  ratio [95 % interval], {options.pairs} pairs")
    with versions(options.before) as beside, tempfile.TemporaryDirectory() as folder:
        for name in (name for name in WORKLOADS if re.search(options.only, name)):
            seconds = pairs(name, beside, options.pairs, Path(folder))
            ratio, low, high = interval(seconds)
            before, now = map(statistics.median, seconds)
            print(
                f"{name:12}{before:9.3f}s{now:9.3f}s  {ratio:.3f} [{low:.3f}, {high:.3f}]",
                flush=True,
            )


if __name__ == "__main__":
    main()
