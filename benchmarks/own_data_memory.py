"""Peak memory (RssAnon) of training on a Parquet file, compared with the file's size.

    python benchmarks/own_data_memory.py --gigabytes 5 --clients 1000000

The script writes the file into a folder (--folder, /tmp by default) unless it exists, with the rows
of each client in random places, converts it to the layout by client, and trains a logistic model.
Layout and file remain until the folder is deleted.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
from packages import named_packages

LIMIT_GIB = 4.0
WIDTH, ROW_GROUP = 64, 2**16
"""Numbers per record, and rows per row group."""
PLAN = {
    "model": {"name": "logistic"},
    "participation": {"law": "check-in", "window": 20},
    "privacy": {"relation": "add-remove", "delta": 1e-8, "epsilon": 2.0, "clip_norm": 1.0},
    "optimizer": {"learning_rate": 1.0},
    "run": {"evaluate_every": 10},
}


def write_file(path: Path, gigabytes: float, clients: int) -> None:
    """Write records of random clients, whose label is the sign of the first number."""
    with named_packages():
        import pyarrow as pa
        import pyarrow.parquet as pq

    rows = int(gigabytes * 2**30 / (4 * WIDTH + 4))
    generator = np.random.default_rng(1)
    partial = path.with_suffix(".partial")
    kinds = {"patient": pa.int64(), "x": pa.list_(pa.float32(), WIDTH), "y": pa.int64()}
    with pq.ParquetWriter(partial, pa.schema(kinds), compression="none") as writer:
        for start in range(0, rows, ROW_GROUP):
            size = min(ROW_GROUP, rows - start)
            x = generator.standard_normal((size, WIDTH), dtype=np.float32)
            # The first rows have each client once; the others have random clients.
            drawn = generator.integers(0, clients, size)
            patient = np.where(
                np.arange(start, start + size) < clients, np.arange(start, start + size), drawn
            )
            arrays = [
                pa.array(patient % clients),
                pa.FixedSizeListArray.from_arrays(pa.array(x.reshape(-1)), WIDTH),
                pa.array((x[:, 0] > 0).astype(np.int64)),
            ]
            writer.write_table(pa.Table.from_arrays(arrays, names=list(kinds)))
    partial.rename(path)


class Memory:
    """Peak of anonymous memory in GiB while the object watches the process."""

    def __init__(self) -> None:
        self.peak, self._done = 0.0, threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while not self._done.wait(0.05):
            lines = Path("/proc/self/status").read_text().splitlines()
            now = next(line for line in lines if line.startswith("RssAnon"))
            self.peak = max(self.peak, int(now.split()[1]) / 2**20)

    def stop(self) -> float:
        """Stop watching and return the peak in GiB."""
        self._done.set()
        return self.peak


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--gigabytes", type=float, default=0.5)
    parser.add_argument("--clients", type=int, default=100_000)
    place = Path(tempfile.gettempdir()) / "own-data-memory"
    parser.add_argument("--folder", type=Path, default=place)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    path = given.folder / f"visits-{given.gigabytes:g}-{given.clients}.parquet"
    # The file is written once.
    if not path.exists():
        print(f"writing {path} …")
        write_file(path, given.gigabytes, given.clients)
    os.environ["XDG_CACHE_HOME"] = str(given.folder)
    data = {"path": str(path), "client": "patient", "inputs": ["x"], "label": "y", "classes": 2}

    # Imported after the cache folder is set. Memory is watched from the start of training.
    import turnout

    memory, began = Memory(), time.perf_counter()
    run = turnout.train({"data": {**data, "test": 0.01}, **PLAN}, progress=True)
    record = {
        "file_gib": path.stat().st_size / 2**30,
        "clients": run.summary.outcome.prepared.population,
        "seconds": time.perf_counter() - began,
        "training_seconds": run.summary.outcome.seconds,
        "accuracy": run.accuracy,
        "peak_rss_anon_gib": memory.stop(),
        "limit_gib": LIMIT_GIB,
    }
    print(json.dumps(record, indent=2))


if __name__ == "__main__":
    main()
