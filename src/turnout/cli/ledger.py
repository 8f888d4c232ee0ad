"""Commands that check a coordinator: ``ledger`` and ``witness``.

`ledger` exports and verifies the releases of a task. `witness` keeps the ledger heads of
coordinators on another machine. `turnout.service` implements both, and `turnout.verification` the
verification.
"""

from __future__ import annotations

import json
import sys
from contextlib import closing
from pathlib import Path

import click

from turnout.cli.options import FILE, PATH, TEXT_PATH, Command, Group
from turnout.core.errors import ParameterError
from turnout.core.optional import require


@click.group(cls=Group)
def ledger() -> None:
    """Export and verify the releases of a task and their ε."""


@ledger.command()
@click.option(
    "--db",
    required=True,
    type=TEXT_PATH,
    metavar="DB",
    help="Database: an SQLite file or a postgresql:// URL.",
)
@click.option(
    "--out",
    type=FILE,
    metavar="FILE",
    help="File for the exported ledger; default standard output.",
)
@click.option(
    "--models",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Also write the model after every step into this folder, one file per step.",
)
def export(db: str, out: Path | None, models: Path | None) -> None:
    """Write the ledger of a task into a file that can be verified without the database."""
    require("service", what="turnout ledger export")
    from turnout.service.coordinator.export import export_ledger, export_models, ledger_lines
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
    help="Also compare the released models in this folder with the ledger.",
)
@click.option(
    "--head",
    metavar="STEPS:DIGEST",
    help="Ledger head that you saw earlier. The ledger must contain this head, and may continue "
    "after it.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the verdict as JSON.")
def verify(file: Path, models: Path | None, head: str | None, as_json: bool) -> int:
    """Recompute the releases of a task and their ε from nothing but the exported ledger FILE.

    The exit code is 0 if the ledger is valid, 1 if the ledger is not valid, and 2 if the command
    line is invalid. The exit code is 3 if the ledger is valid, but no independent method can
    recompute its ε. The exit code is 4 if nothing can be checked because a plug-in of the task is
    not installed.
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


@click.command(cls=Command)
@click.option(
    "--db",
    metavar="FILE",
    required=True,
    type=PATH,
    help="SQLite file of the ledger heads. If the file does not exist, it is created with a new "
    "key.",
)
@click.option(
    "--host",
    default="127.0.0.1",
    help="Address on which the witness listens; default 127.0.0.1.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8100,
    help="Port on which the witness listens; default 8100. 0 selects any free port.",
)
@click.option(
    "--token-file",
    metavar="FILE",
    type=PATH,
    help="File whose first line is the token that coordinators must send. The option is required "
    "if other machines can connect.",
)
@click.option(
    "--tls-cert",
    metavar="FILE",
    type=PATH,
    help="TLS certificate chain (PEM) for https.",
)
@click.option(
    "--tls-key", metavar="FILE", type=PATH, help="Private key (PEM) of the TLS certificate."
)
def witness(
    *,
    db: Path,
    host: str,
    port: int,
    token_file: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
) -> int:
    """Store the ledger heads of coordinators, to detect a coordinator with an old ledger.

    Run the witness on another machine than the coordinator. The command prints the public key of
    the witness. Pass this key to the coordinator: `turnout serve --witness URL --witness-key KEY`.
    """
    require("service", what="turnout witness")
    from turnout.service.contract.wire import is_this_machine
    from turnout.service.coordinator.new_task import tls_files
    from turnout.service.witness.app import token_of
    from turnout.service.witness.app import witness as run

    # Without a token any machine that can connect could write heads.
    if token_file is None and not is_this_machine(host):
        raise ParameterError(
            "token_file", None, f"a file, since other machines can connect to {host}"
        )
    tls = tls_files(tls_cert, tls_key)
    token = None if token_file is None else token_of(token_file, "token_file")
    run(db, host, port, token=token, tls=tls, announce=_announce_witness)
    return 0


def _announce_witness(key: str, address: str) -> None:
    """Print one line on stdout when the witness accepts ledger heads."""
    click.echo(f"Witness {key} on {address}")
