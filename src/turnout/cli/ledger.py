"""``turnout ledger``: the ledger as a file, and whether such a file is to be believed."""

from __future__ import annotations

import json
import sys
from contextlib import closing
from pathlib import Path

import click

from turnout.cli.commands import Group
from turnout.cli.options import FILE
from turnout.core.optional import require


@click.group(cls=Group)
def ledger() -> None:
    """Exports and verifies what was released and what it cost."""


@ledger.command()
@click.option("--db", required=True, metavar="DB", help="SQLite file or postgresql:// URL.")
@click.option(
    "--out",
    type=FILE,
    metavar="FILE",
    help="Where to write; standard output without it.",
)
@click.option(
    "--models",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Also write the model after every step, one file each.",
)
def export(db: str, out: Path | None, models: Path | None) -> None:
    """Writes the ledger of a task as a file that can be verified without the database."""
    require("service", what="turnout ledger export")
    from turnout.service.export import export_ledger, export_models, ledger_lines
    from turnout.service.storage.opening import open_storage

    with (
        closing(open_storage(db, serving=False)) as storage,
        storage.snapshot() as transaction,
    ):
        if models is not None:
            export_models(transaction, models)
        if out is not None:
            export_ledger(transaction, out)
        else:
            sys.stdout.buffer.writelines(ledger_lines(transaction))
            sys.stdout.buffer.flush()


@ledger.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--models",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Compare the released models in this folder with the ledger.",
)
@click.option(
    "--head",
    metavar="STEPS:DIGEST",
    help="A head that you saw: the ledger must continue it.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the verdict as JSON.")
def verify(file: Path, models: Path | None, head: str | None, as_json: bool) -> int:
    """Recomputes from an exported ledger alone what was released and what it cost.

    Ends with 0 where all is good, 1 where something is wrong, 2 where the command is, and 3
    where the ledger is sound but nothing independent can recompute its cost.
    """
    require("device", what="turnout ledger verify")
    from turnout.verification import KnownHead
    from turnout.verification import verify as verified

    known = None if head is None else KnownHead.parsed(head)
    verdict = verified(file.read_bytes(), known, models)
    if as_json:
        click.echo(json.dumps(verdict.document(), indent=2, ensure_ascii=False))
    else:
        from turnout.verification.verifying import show

        show(verdict)
    return verdict.outcome.value
