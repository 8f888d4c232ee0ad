"""Share of a run's CPU time that is spent on the digest of the data in checkpoints.

CPU-seconds of one process are measured from reading the data to the last step, without reports. The
digest is computed once, when a run starts or continues.

    TURNOUT_DATA=... python benchmarks/checkpoints.py digits.toml mnist.toml
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from turnout.plans import Plan, prepare, read_plan
from turnout.runs.execution import ReadyRun
from turnout.runs.workload import UnseenPhase, evaluation_interval, gather
from turnout.simulation import FileCheckpoints
from turnout.simulation.checkpoints import RunIdentity

NEEDED = 0.02


def measured(plan_file: Path) -> tuple[int, float, float]:
    """Digested bytes, CPU-seconds of the digest, and CPU-seconds of the whole run."""
    started = time.process_time()
    plan = Plan.from_toml(read_plan(plan_file), str(plan_file))
    workload = gather(plan, plan_file.parent)
    prepared = prepare(plan, workload.population, workload.participation)
    simulation = ReadyRun.of(workload, prepared, UnseenPhase()).simulation
    every = plan.run.checkpoint_every or evaluation_interval(plan, simulation.steps)
    with tempfile.TemporaryDirectory() as folder:
        store = FileCheckpoints(Path(folder) / "checkpoint.npz")
        simulation.run(checkpoints=store, checkpoint_every=every)
    whole = time.process_time() - started
    started = time.process_time()
    identity = simulation.identity
    RunIdentity.new(identity)
    digest = time.process_time() - started
    return sum(array.nbytes for array in identity.arrays), digest, whole


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("plans", type=Path, nargs="+")
    given = parser.parse_args()
    shares = []
    print(f"{'plan':30}{'MB digested':>12}{'digest, s':>12}{'run, s':>10}{'share':>10}")
    for plan_file in given.plans:
        size, digest, whole = measured(plan_file)
        shares.append(digest / whole)
        print(
            f"{plan_file!s:30}{size / 1e6:>12.1f}{digest:>12.4f}{whole:>10.1f}{shares[-1]:>10.3%}"
        )
    print(f"largest share {max(shares):.3%} (needed: at most {NEEDED:.0%})")
    sys.exit(0 if max(shares) <= NEEDED else 1)


if __name__ == "__main__":
    main()
