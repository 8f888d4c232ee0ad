"""Files of a run's report, written into one folder.

`write_report` writes all files of a run. Each file is first written under a temporary name and then
renamed, so that no file is incomplete. `table_csv` and `as_json` return the text of tables and
records.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from turnout.core.files import SIMULATOR, write

if TYPE_CHECKING:
    from turnout.reporting.drawing import Picture
    from turnout.reporting.summary import Outcome, Summary

_FORMATS = ("png", "svg")
REPORT, PAGE = "report.json", "report.html"
PICTURES = "pictures"
CHECK_INS, COUNTS, COUNTS_PAGE = "check_ins.csv", "counts.json", "counts.html"


def write_report(folder: Path, summary: Summary, plan_text: str) -> None:
    """Write history.csv, pictures, report.html, the simulator's view and, last, report.json.

    Guarantees:
        Each file is complete or absent. If report.json exists, all other files exist. Only the
        folder `SIMULATOR` contains exact counts of participants, which ε does not cover.

    Args:
        folder: folder of the report.
        summary: contents of the report.
        plan_text: text of the plan, which the page shows.

    Raises:
        StorageError: a file cannot be written.
    """
    # Imported here, because drawing takes long to load and most errors occur before a report.
    from turnout.reporting.page import page
    from turnout.reporting.pictures import pictures

    # Write the tables, pictures and page, and last the record, which marks a complete report.
    drawn = pictures(summary)
    write(folder / "history.csv", _history(summary.outcome))
    _draw(folder, drawn)
    _write_counts(folder / SIMULATOR, summary)
    if summary.outcome.prepared.guarantee.clients is not None:
        write(folder / "clients.csv", _clients(summary.outcome))
    write(folder / PAGE, page(summary, drawn, plan_text))
    write(folder / REPORT, as_json(summary.record()))


def _write_counts(folder: Path, summary: Summary) -> None:
    """Write the simulator's view: exact counts as a table, pictures, a page, and JSON."""
    from turnout.reporting.page import counts_page
    from turnout.reporting.pictures import count_pictures

    drawn = count_pictures(summary)
    write(folder / CHECK_INS, _check_ins(summary.outcome))
    _draw(folder, drawn)
    write(folder / COUNTS_PAGE, counts_page(summary, drawn))
    write(folder / COUNTS, as_json(summary.counts()))


def _draw(folder: Path, drawn: Iterable[Picture]) -> None:
    """Write each picture as PNG and as SVG."""
    for picture in drawn:
        write(folder / PICTURES / f"{picture.name}.png", picture.png())
        write(folder / PICTURES / f"{picture.name}.svg", picture.svg())


def as_json(record: dict[str, Any]) -> str:
    """Indented JSON text of the values of a report.

    Raises:
        ValueError: the record contains NaN or an infinity.
    """
    return json.dumps(record, indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def _history(outcome: Outcome) -> str:
    """CSV table of metrics, ε and running time, with one row for each evaluation."""
    history = outcome.history
    return table_csv(
        step=history.step,
        **history.metrics,
        epsilon=outcome.epsilon_at(history.step),
        seconds=history.seconds,
    )


def _check_ins(outcome: Outcome) -> str:
    """CSV table of check-ins, with one row for each step."""
    history = outcome.history
    return table_csv(
        step=np.arange(1, history.check_ins.size + 1),
        check_ins=history.check_ins,
        expected=outcome.expected_check_ins[: history.check_ins.size],
        served=history.served,
        dummy=history.dummy.astype(int),
        skipped=history.skipped.astype(int),
    )


def _clients(outcome: Outcome) -> str:
    """CSV table of upper bounds on ε and of availability, with one row for each client."""
    clients = outcome.prepared.guarantee.clients
    assert clients is not None
    sizes = clients.window_sizes
    return table_csv(
        client=np.arange(sizes.shape[0]),
        epsilon=clients.epsilon_upper,
        available_steps=sizes.sum(axis=1),
        windows_with_a_slot=(sizes > 0).sum(axis=1),
    )


def table_csv(**columns: NDArray[Any]) -> str:
    """CSV text of columns of equal length, shape (rows,), each under its keyword as heading.

    Raises:
        ValueError: the columns have different lengths.
    """
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*(column.tolist() for column in columns.values()), strict=True))
    return file.getvalue()
