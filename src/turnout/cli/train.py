"""``turnout train``: a plan from its file to its report."""

from __future__ import annotations

from pathlib import Path

import click

from turnout.cli.commands import Command
from turnout.cli.options import PATH
from turnout.core.errors import ParameterError
from turnout.core.extras import require


@click.command(cls=Command)
@click.argument("plan", required=False, type=PATH)
@click.option("--out", metavar="DIR", type=PATH, help="Where the run goes.")
@click.option(
    "--resume",
    metavar="DIR",
    type=PATH,
    help="Go on with the run in DIR, which was stopped or killed.",
)
def train(plan: Path | None, out: Path | None, resume: Path | None) -> int:
    """Trains the model of PLAN (a TOML file) and writes a report into DIR.

    The privacy budget is checked, and the noise calibrated to it, before anything runs.
    """
    if resume is None and (plan is None or out is None):
        raise click.UsageError("give PLAN and --out DIR, or --resume DIR")
    if resume is not None and (plan is not None or out is not None):
        raise ParameterError("--resume", str(resume), "neither PLAN nor --out beside it")
    require("train", what="turnout train")
    from turnout.reporting.console import Console
    from turnout.training import InterruptedRunError
    from turnout.training import resume as go_on
    from turnout.training import train as begin

    console = Console()
    try:
        if resume is not None:
            finished = go_on(resume, console)
        else:
            assert plan is not None
            assert out is not None
            finished = begin(plan, out, console)
    except InterruptedRunError as stop:
        click.echo(f"turnout: {stop}", err=True)
        return 130
    console.report(finished.summary, finished.folder)
    return 0
