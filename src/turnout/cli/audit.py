"""``turnout audit``: a plan's ε by experiment, beside the proved one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from turnout.cli.commands import Command
from turnout.cli.options import PATH, WHOLE, show

if TYPE_CHECKING:
    from turnout.api.audits import Audit


@click.command(cls=Command)
@click.argument("plan", required=False, type=PATH)
@click.option("--example", metavar="NAME", help="An example in place of PLAN, such as digits.")
@click.option(
    "--trials",
    type=WHOLE,
    metavar="N",
    default=None,
    show_default="100000; 10000 with --served",
    help="Runs with the client, and as many without it.",
)
@click.option(
    "--confidence",
    type=float,
    metavar="P",
    default=0.999,
    show_default=True,
    help="The chance that no lower bound exceeds the true ε, at least.",
)
@click.option(
    "--deployed",
    is_flag=True,
    help="The whole-number updates and noise of turnout serve, in place of a simulation's floats.",
)
@click.option(
    "--served",
    is_flag=True,
    help="A task as turnout serve runs it, with its database and restarts.",
)
@click.option(
    "--one-run",
    is_flag=True,
    help="One training run with many canaries, in place of many runs of the mechanism alone.",
)
@click.option(
    "--canaries",
    type=WHOLE,
    metavar="M",
    default=None,
    show_default="10000",
    help="Of --one-run: clients whose updates nobody else touches.",
)
@click.option("--seed", type=WHOLE, metavar="N", default=0, show_default=True, help="Of all draws.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@click.option("--out", metavar="DIR", type=PATH, help="Where audit.json and a picture go.")
def audit(
    plan: Path | None,
    example: str | None,
    *,
    trials: int | None,
    confidence: float,
    deployed: bool,
    served: bool,
    one_run: bool,
    canaries: int | None,
    seed: int,
    as_json: bool,
    out: Path | None,
) -> int:
    """Plays the distinguishing game against what PLAN (a TOML file) really runs.

    Sampler and mechanism are those of training; the client whose privacy is at stake sends the
    worst update that there is. Ends with 0 where the lower bound found is within the proved upper
    bound, and with 1 where it is above: then what runs is not what was priced.
    """
    if (plan is None) == (example is None):
        raise click.UsageError("give PLAN, or --example NAME")
    from turnout.api import audits
    from turnout.reporting.console import progress_bar

    with progress_bar("steps" if one_run else "trials") as tell:
        found = audits.audit(
            plan,
            example=example,
            trials=trials,
            confidence=confidence,
            deployed=deployed,
            served=served,
            one_run=one_run,
            canaries=canaries,
            seed=seed,
            tell=tell,
        )
    show(found, as_json=as_json)
    if out is not None:
        _write(found, out, one_run)
    return 0 if found.consistent else 1


def _write(found: Audit, out: Path, one_run: bool) -> None:
    """audit.json, and a picture of what can be drawn."""
    from turnout.core.files import write
    from turnout.reporting.training_report import as_json

    write(out / "audit.json", as_json(found.to_dict()))
    if not one_run:
        found.plot().write(out / "audit.svg")
