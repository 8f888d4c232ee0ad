"""``turnout bandit``: a private linear bandit, from its plan to its report."""

from __future__ import annotations

from pathlib import Path

import click

from turnout.cli.commands import Command
from turnout.cli.options import PATH
from turnout.core.extras import require


@click.command(cls=Command)
@click.argument("plan", required=False, type=PATH)
@click.option("--out", metavar="DIR", type=PATH, help="Where the runs go.")
@click.option(
    "--resume",
    metavar="DIR",
    type=PATH,
    help="Go on with the runs in DIR, which were stopped or killed.",
)
def bandit(plan: Path | None, out: Path | None, resume: Path | None) -> int:
    """Simulates the bandit of PLAN (a TOML file) and writes a report into DIR.

    The report has the regret over all runs, and ε of one client's reward from both sides.
    """
    if (plan is None) == (resume is None) or (plan is None) != (out is None):
        raise click.UsageError("give PLAN and --out DIR, or --resume DIR")
    require("train", what="turnout bandit")
    from rich.console import Console

    from turnout.reporting.bandits import bandit_table
    from turnout.reporting.folder import PAGE
    from turnout.reporting.progress import progress_bar
    from turnout.training import InterruptedRunError
    from turnout.training.bandit_runs import resume_bandit, run_bandit

    folder = out or resume
    assert folder is not None
    try:
        with progress_bar("runs") as tell:
            if plan is not None:
                summary = run_bandit(plan, folder, tell)
            else:
                summary = resume_bandit(folder, tell)
    except InterruptedRunError as stop:
        click.echo(f"turnout: {stop}", err=True)
        return 130
    console = Console()
    console.print(bandit_table(summary))
    console.print(f"  report: {folder / PAGE}", soft_wrap=True, highlight=False)
    return 0
