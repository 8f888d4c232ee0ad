"""``turnout tune``: a search for a plan's settings, from its plan to a plan to train with."""

from __future__ import annotations

from pathlib import Path

import click

from turnout.cli.commands import Command
from turnout.cli.options import PATH, show
from turnout.core.optional import require


@click.command(cls=Command)
@click.argument("plan", required=False, type=PATH)
@click.option("--out", metavar="DIR", type=PATH, help="Where the search goes.")
@click.option(
    "--resume",
    metavar="DIR",
    type=PATH,
    help="Go on with the search in DIR, which was stopped or killed.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def tune(plan: Path | None, out: Path | None, resume: Path | None, as_json: bool) -> int:
    """Searches for settings of PLAN (a TOML file with a table [tune]).

    Runs are compared on held-out training clients, never on the test set. With [tune.data], a
    public data set, the search is free. On the plan's own clients it has a price, which is within
    privacy.epsilon: DIR then holds the best run's model, and nothing of any other run.
    """
    if (plan is None) == (resume is None) or (plan is None) != (out is None):
        raise click.UsageError("give PLAN and --out DIR, or --resume DIR")
    require("train", what="turnout tune")
    from turnout.api import tuning
    from turnout.training import InterruptedRunError

    folder = out or resume
    try:
        found = tuning.tune(plan, out, resume=resume, progress=True)
    except InterruptedRunError:
        click.echo(f"turnout: stopped; go on with: turnout tune --resume {folder}", err=True)
        return 130
    show(found, as_json=as_json)
    if not as_json:
        click.echo(f"  plan with these values: {folder}/plan.toml")
        if found.plan.data.path is not None:
            click.echo("  its paths are relative to where PLAN is: copy it there to train with it")
    return 0
