"""Small tables for tests: visits of patients, as every kind of file that holds them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from turnout.plans.data_sections import DataSection

VISITS: dict[str, list[Any]] = {
    "who": ["cy", "ann", "ben", "ann", "cy", "dee", "ann"],
    "age": [60.0, 40.0, 50.0, 41.0, 61.0, 70.0, 42.0],
    "unit": ["b", "a", "a", "b", "a", "b", "a"],
    "ill": [1, 0, 1, 0, 1, 0, 1],
    "held": [False, False, False, False, False, True, True],
}
KEYS: dict[str, Any] = {
    "client": "who",
    "inputs": ["age", "unit"],
    "label": "ill",
    "classes": 2,
    "test": "held",
    "categories": {"unit": ["a", "b"]},
    "scaling": {"age": [0, 100]},
}


def section(path: str | None = None, **keys: Any) -> DataSection:
    """The [data] table of the visits, changed as the keys say; None takes one out."""
    chosen = {**KEYS, "path": path, **keys}
    return DataSection.model_validate({key: one for key, one in chosen.items() if one is not None})


def arrow(table: dict[str, Any]) -> Any:
    import pyarrow as pa

    return pa.table(table)


def write_parquet(path: Path, table: dict[str, Any], rows: int = 3) -> None:
    import pyarrow.parquet as pq

    pq.write_table(arrow(table), path, row_group_size=rows)


def write_csv(path: Path, table: dict[str, Any]) -> None:
    from pyarrow import csv

    csv.write_csv(arrow(table), path)


def write_npz(path: Path, table: dict[str, Any]) -> None:
    np.savez(path, **{name: np.array(values) for name, values in table.items()})  # pyright: ignore[reportArgumentType]


def write_npy(path: Path, table: dict[str, Any]) -> None:
    path.mkdir()
    for name, values in table.items():
        np.save(path / f"{name}.npy", np.array(values))


def write_hugging_face(path: Path, table: dict[str, Any]) -> None:
    """What ``Dataset.save_to_disk`` writes: Arrow streams, and a file that names them in order."""
    import pyarrow as pa

    path.mkdir()
    whole = arrow(table)
    names = [f"data-{shard:05d}-of-00002.arrow" for shard in range(2)]
    for name, part in zip(names, (whole.slice(0, 4), whole.slice(4)), strict=True):
        with pa.OSFile(str(path / name), "wb") as file, pa.ipc.new_stream(file, part.schema) as out:
            out.write_table(part)
    (path / "state.json").write_text(json.dumps({"_data_files": [{"filename": n} for n in names]}))
    (path / "dataset_info.json").write_text("{}")


WRITERS = {
    "visits.parquet": write_parquet,
    "visits.csv": write_csv,
    "visits.npz": write_npz,
    "visits-npy": write_npy,
    "visits-hf": write_hugging_face,
}
"""How to write a table by the name of the file or folder."""
