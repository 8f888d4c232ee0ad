"""``turnout predict``: classes and scores from a trained model."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from turnout.cli.commands import Command
from turnout.cli.options import PATH
from turnout.core.errors import InputFileError, ParameterError
from turnout.core.optional import require

if TYPE_CHECKING:
    from numpy.typing import NDArray

_BUILT_IN = ("digits", "mnist", "fashion-mnist")


@click.command(cls=Command)
@click.argument("folder", metavar="DIR", type=PATH)
@click.argument("data")
@click.option("--out", metavar="FILE", type=PATH, help="A .csv or .npy file in place of stdout.")
def predict(folder: Path, data: str, out: Path | None) -> int:
    """Predicts with the model of the run in DIR.

    DATA is a .npy file of inputs, a .npz file with an array "inputs", or digits, mnist or
    fashion-mnist for their test sets; or a file that the plan in DIR can read, with the same
    columns. A CSV has the class and the scores of each record; a .npy
    file has the scores.
    """
    if out is not None and out.suffix not in (".csv", ".npy"):
        raise ParameterError("out", str(out), "a .csv or .npy file")
    require("train", what="turnout predict")
    from turnout.api.trained import load
    from turnout.core.files import write

    model = load(folder)
    scores = model.scores(_inputs(data, folder))
    if out is None:
        click.echo(_csv(scores, model.saved.facts["classes"]), nl=False)
    else:
        csv = out.suffix == ".csv"
        write(out, _csv(scores, model.saved.facts["classes"]) if csv else _npy(scores))
    return 0


def _inputs(data: str, folder: Path) -> NDArray[Any]:
    """The inputs of a file, or of a built-in test set; nothing is unpickled."""
    import numpy as np

    from turnout import datasets

    if data in _BUILT_IN:
        try:
            return datasets.load(data).test.inputs
        except datasets.MissingFileError as error:
            raise InputFileError(str(error)) from None
    if Path(data).suffix not in (".npy", ".npz"):
        return _read_as_planned(data, folder)
    try:
        found = np.load(data, allow_pickle=False)
        return found if isinstance(found, np.ndarray) else found["inputs"]
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise InputFileError(f"{data}: no array of inputs: {error}") from None


def _read_as_planned(data: str, folder: Path) -> NDArray[Any]:
    """The inputs of a file with the columns that the run's plan names."""
    from turnout import datasets
    from turnout.plans import Plan, read_plan
    from turnout.reporting.training_report import PLAN

    section = Plan.from_toml(read_plan(folder / PLAN)).data
    if section.path is None:
        raise ParameterError("data", data, f"a .npy or .npz file, or {', '.join(_BUILT_IN)}")
    return datasets.own_records(section, Path(data)).inputs


def _csv(scores: NDArray[Any], names: list[str]) -> str:
    """One row for each record: its class and the score of each."""
    import csv

    names = names or [str(k) for k in range(scores.shape[1])]
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["class", *(f"score {name}" for name in names)])
    writer.writerows([names[row.argmax()], *row.tolist()] for row in scores)
    return file.getvalue()


def _npy(scores: NDArray[Any]) -> bytes:
    """The scores as a .npy file."""
    import numpy as np

    file = io.BytesIO()
    np.save(file, scores)
    return file.getvalue()
