"""``turnout witness``: what remembers, on another machine, how far a coordinator's ledger was."""

from __future__ import annotations

from pathlib import Path

import click

from turnout.cli.commands import Command
from turnout.cli.options import PATH
from turnout.core.errors import ParameterError
from turnout.core.optional import require


@click.command(cls=Command)
@click.option(
    "--db",
    metavar="FILE",
    required=True,
    type=PATH,
    help="Where the heads are kept; made, with a key, where there is none.",
)
@click.option("--host", default="127.0.0.1", help="The address to listen at; 127.0.0.1.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8100,
    help="The port, 8100 by default; 0 for any that is free.",
)
@click.option(
    "--token-file",
    metavar="FILE",
    type=PATH,
    help="What coordinators must send; required where another machine can connect.",
)
@click.option(
    "--tls-cert",
    metavar="FILE",
    type=PATH,
    help="The certificate chain (PEM), for https.",
)
@click.option("--tls-key", metavar="FILE", type=PATH, help="Its private key (PEM).")
def witness(
    *,
    db: Path,
    host: str,
    port: int,
    token_file: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
) -> int:
    """Keeps the heads of coordinators' ledgers, so that none can be set back unnoticed.

    Run it on another machine than the coordinator's. It prints its public key, which
    `turnout serve --witness URL --witness-key KEY` takes.
    """
    require("service", what="turnout witness")
    from turnout.service.named_files import tls_files
    from turnout.service.wire import is_this_machine
    from turnout.service.witness.process import token_of
    from turnout.service.witness.process import witness as run

    if token_file is None and not is_this_machine(host):
        raise ParameterError("token_file", None, f"a file: other machines can connect to {host}")
    tls = tls_files(tls_cert, tls_key)
    token = None if token_file is None else token_of(token_file, "token_file")
    run(db, host, port, token=token, tls=tls, announce=_announce_witness)
    return 0


def _announce_witness(key: str, address: str) -> None:
    """One line on stdout, once heads are taken."""
    click.echo(f"Witness {key} on {address}")
