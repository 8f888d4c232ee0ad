"""Memory and time of private estimates from Parquet files, by streaming and by Ray Data.

python benchmarks/estimation_memory.py [--rows 1e8] [--files 16] [--ray]

The script writes rows (an integer below 120 and a number) into Parquet files in a temporary folder,
one file at a time, and estimates frequencies and a mean in a separate process, in the local and the
central model. It prints seconds and the peak memory of that process; with --ray, of all Ray
processes together, with shared pages counted once (PSS).
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
from packages import named_packages

import turnout as tn

with named_packages():
    import pyarrow
    from pyarrow import parquet

VALUES, MIB = 120, 2**20


def write(folder: Path, rows: int, files: int) -> None:
    """Write the data set."""
    random = np.random.default_rng(1)
    for number, part in enumerate(np.array_split(np.empty(rows, np.bool_), files)):
        ages = random.integers(0, VALUES, part.size, dtype=np.int32)
        columns = {"age": ages, "height": (ages / VALUES).astype(np.float32)}
        table = pyarrow.table(columns)
        parquet.write_table(table, folder / f"{number:04}.parquet", row_group_size=2**17)


def pss_of_descendants() -> int:
    """Proportional set size in bytes of this process and all processes that it started."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            stat = (folder / "stat").read_text()
        except OSError:
            continue
        parents[int(folder.name)] = int(stat.rpartition(")")[2].split()[1])
    total, found = 0, [os.getpid()]
    while found:
        process = found.pop()
        found += [child for child, parent in parents.items() if parent == process]
        try:
            rollup = Path(f"/proc/{process}/smaps_rollup").read_text()
        except OSError:
            continue
        lines = (line.split() for line in rollup.splitlines() if line.startswith("Pss:"))
        total += sum(1024 * int(words[1]) for words in lines)
    return total


def estimate(folder: str, over_ray: bool) -> None:
    """Print one line per estimate; runs in a separate process."""
    largest, done = [0], threading.Event()

    def watch() -> None:
        while not done.wait(0.5):
            largest[0] = max(largest[0], pss_of_descendants())

    # With Ray, blocks are kept small and no further processes are started.
    rows: object = folder
    if over_ray:
        with named_packages():
            import ray

            from turnout.integrations.ray import RayRows

        ray.init(
            "local",
            num_cpus=1,
            object_store_memory=80 * MIB,
            include_dashboard=False,
            logging_level="ERROR",
            log_to_driver=False,
        )
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = False
        context.use_datasource_v2 = False  # version 2 starts five more processes
        context.target_max_block_size = 4 * MIB
        ray.get(ray.remote(pss_of_descendants).remote())
        print(f"Ray with one idle worker, and this process: {pss_of_descendants() / MIB:,.0f} MiB")
        rows = RayRows(ray.data.read_parquet(folder))
        threading.Thread(target=watch, daemon=True).start()
    # Both estimates in both trust models, with the peak memory so far.
    asked = {"epsilon": 1.0, "relation": None}
    for trust, relation in (("local", None), ("central", "add-remove")):
        asked = {"epsilon": 1.0, "trust": trust, "relation": relation}
        for name, found in (
            (
                "frequencies",
                lambda a: tn.estimate_frequencies(rows, categories=VALUES, column="age", **a),
            ),
            (
                "mean",
                lambda a: tn.estimate_mean(rows, norm="linf", radius=1.0, columns=["height"], **a),
            ),
        ):
            start, cpu = time.perf_counter(), time.process_time()
            found(asked)
            seconds, own = time.perf_counter() - start, time.process_time() - cpu
            peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            memory = f"{peak / MIB:,.0f} MiB" + (
                f", with Ray {largest[0] / MIB:,.0f} MiB" if over_ray else ""
            )
            print(f"{trust} {name}: {seconds:.1f} s, {own:.1f} CPU-s, at most {memory}", flush=True)
    done.set()


def main() -> None:
    """Write the data set, estimate, and delete the data set."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=float, default=1e8)
    parser.add_argument("--files", type=int, default=16)
    parser.add_argument("--ray", action="store_true")
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.folder:
        estimate(given.folder, given.ray)
        return
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), int(given.rows), given.files)
        size = sum(file.stat().st_size for file in Path(folder).iterdir())
        print(f"{int(given.rows):,} rows, {size / MIB:,.0f} MiB of Parquet", flush=True)
        command = [sys.executable, __file__, "--folder", folder, *(["--ray"] * given.ray)]
        subprocess.run(command, check=True, start_new_session=True)


if __name__ == "__main__":
    main()
