"""``turnout serve``: the coordinator that real devices talk to."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from turnout.cli.commands import Command
from turnout.cli.options import PATH
from turnout.core.optional import require

if TYPE_CHECKING:
    from turnout.service.web.running import Running


@click.command(cls=Command)
@click.argument("plan", type=PATH)
@click.option("--db", metavar="DB", help="The database: a file, or postgresql://…")
@click.option("--host", help="The address to listen at; 127.0.0.1 by default.")
@click.option("--port", type=int, help="The port, 8000 by default; 0 for any that is free.")
@click.option("--step-seconds", type=float, help="How long a step of a new task lasts; 60.")
@click.option("--check-in-seconds", type=float, help="How long a step takes check-ins; ¾ of it.")
@click.option("--answer-seconds", type=float, help="How long one client may take to answer; ⅙.")
@click.option("--tls-cert", metavar="FILE", help="The certificate chain (PEM), for https.")
@click.option("--tls-key", metavar="FILE", help="Its private key (PEM).")
@click.option(
    "--forwarded-allow-ips", metavar="IPS", help="Proxies whose X-Forwarded-Proto counts."
)
@click.option(
    "--operator-password-file", metavar="FILE", help="The operator's password; none, no operator."
)
@click.option(
    "--head-file", metavar="FILE", help="Where the ledger's head goes; on another disk than DB."
)
@click.option(
    "--new-head-file",
    is_flag=True,
    default=None,
    help="The head file is missing, and that is known: begin a new one.",
)
@click.option("--witness", metavar="URL", help="A `turnout witness` on another machine.")
@click.option("--witness-key", metavar="HEX", help="Its public key.")
@click.option("--witness-token-file", metavar="FILE", help="The token that it asks for.")
@click.option("--witness-ca", metavar="FILE", help="Certificates (PEM) to trust for it.")
@click.option(
    "--change-witness",
    is_flag=True,
    default=None,
    help="Go on with another witness than before, or with none.",
)
@click.option("--config", metavar="FILE", help="All of these settings in a TOML file.")
@click.option(
    "--wait-for",
    type=int,
    help="Begin once so many devices are enrolled, which shows that they are; for trials.",
)
@click.option("--connections", type=int, help="Most open connections; 8192 by default.")
@click.option(
    "--graph",
    is_flag=True,
    default=None,
    help="Hand a new task's model out as a graph (ONNX), which devices run without PyTorch.",
)
@click.option("--exit-when-finished", is_flag=True, default=None, help="End when the run is over.")
def serve(plan: Path, config: str | None, **given: Any) -> int:
    """Serves the task of PLAN (a TOML file) to devices, with a dashboard.

    An empty database gets a new task. Settings come from the command line, from TURNOUT_SERVE_…
    in the environment, or from a file, in this order.
    """
    require("service", "train", what="turnout serve")
    from turnout.reporting.console import Console
    from turnout.service.web.server import serve as run
    from turnout.service.web.settings import PREFIX, Settings

    file = config or os.environ.get(f"{PREFIX}CONFIG")
    settings = Settings.gathered(None if file is None else Path(file), os.environ, given)
    run(plan, settings, Console().phase, _announce)
    return 0


def _announce(running: Running, address: str) -> None:
    """One line on stdout, once requests are taken."""
    steps = f"step {running.engine.step} of {running.charter.steps}"
    click.echo(f"Serving task {running.task[:16]} ({steps}) on {address}")
