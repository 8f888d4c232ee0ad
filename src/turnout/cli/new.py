"""Command ``turnout new``: a folder with a commented plan, sample data, a model and a test.

The files are copies of those in ``turnout/plans/projects``, where each kind has a folder. Kinds
that can be served also get the files in the folder ``devices``.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import click

from turnout.cli.options import Command
from turnout.core.errors import ParameterError, StorageError

KINDS = ("table", "images", "module", "bandit")
_NEXT = {
    "bandit": ("turnout bandit plan.toml --out run",),
    "": (
        "python make_records.py",
        "turnout train plan.toml --out run",
        "sh serve.sh    # later, with real devices",
    ),
}
"""Commands to run next, by kind of folder; the key "" stands for all other kinds."""


@click.command(cls=Command)
@click.argument("folder", metavar="NAME", type=click.Path(path_type=Path))
@click.option(
    "--kind",
    type=click.Choice(KINDS),
    default="table",
    show_default=True,
    help="Kind of the project. table: records with a column of clients. images: images of one "
    "client each. module: a table and a PyTorch module. bandit: a simulated bandit.",
)
def new(folder: Path, kind: str) -> None:
    """Write a new folder NAME with a commented plan, sample data, a model and a test.

    The files run without changes. Except for --kind bandit, they include scripts that start a
    coordinator and its devices. The command prints what to run next.
    """
    if folder.exists() or folder.is_symlink():
        raise ParameterError("NAME", str(folder), "a folder that does not exist")
    source = resources.files("turnout.plans") / "projects"
    try:
        folder.mkdir(parents=True)
        for part in (kind,) if kind == "bandit" else (kind, "devices"):
            for file in (source / part).iterdir():
                if file.is_file():
                    (folder / file.name).write_bytes(file.read_bytes())
    except OSError as error:
        raise StorageError(f"{folder} cannot be written: {error.strerror or error}") from None
    # The names of the files, and the next commands.
    click.echo(f"{folder}: {', '.join(sorted(file.name for file in folder.iterdir()))}")
    click.echo("next:")
    for line in (f"cd {folder}", *_NEXT.get(kind, _NEXT[""])):
        click.echo(f"  {line}")
