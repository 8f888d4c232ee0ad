"""``turnout train``: a plan from its file to its report."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click

from turnout.cli.commands import Command
from turnout.cli.options import PATH
from turnout.core.optional import require

if TYPE_CHECKING:
    from turnout.learning.tasks import Engine


@click.command(cls=Command)
@click.argument("plan", required=False, type=PATH)
@click.option(
    "--example",
    metavar="NAME",
    help="An example in place of PLAN: digits, fashion, mnist, mnist-shuffled, mnist-sampled, "
    "mnist-self-sampling, phones or trial; into runs/NAME by default.",
)
@click.option("--print-plan", is_flag=True, help="Print the plan, and do nothing else.")
@click.option("--out", metavar="DIR", type=PATH, help="Where the run goes.")
@click.option(
    "--resume",
    metavar="DIR",
    type=PATH,
    help="Go on with the run in DIR, which was stopped or killed.",
)
@click.option(
    "--engine",
    type=click.Choice(("local", "ray")),
    default="local",
    show_default=True,
    help="What computes clients' updates: threads of this process, or workers of a Ray cluster, to "
    "the same bits.",
)
@click.option(
    "--address",
    metavar="ADDRESS",
    help="Of --engine ray: the cluster, such as auto or ray://host:10001; by default one that is "
    "started on this machine.",
)
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    metavar="N",
    help="Of --engine ray: processors that compute; by default all.",
)
@click.option(
    "--baseline",
    is_flag=True,
    help="Run the plan without noise and clipping too, to see what privacy costs; that result "
    "protects nobody.",
)
def train(
    plan: Path | None,
    example: str | None,
    *,
    print_plan: bool,
    out: Path | None,
    resume: Path | None,
    engine: str,
    address: str | None,
    workers: int | None,
    baseline: bool,
) -> int:
    """Trains the model of PLAN (a TOML file) and writes a report into DIR.

    The privacy budget is checked, and the noise calibrated to it, before anything runs.
    """
    if out is None and example is not None:
        out = Path("runs", example)
    one = sum(given is not None for given in (plan, example, resume)) == 1
    if not one or not (out or resume or print_plan):
        raise click.UsageError("give PLAN and --out DIR, or --example NAME, or --resume DIR")
    if engine != "ray" and (address is not None or workers is not None):
        raise click.UsageError("--address and --workers are of --engine ray")
    if print_plan:
        return _print(plan, example)
    require("train", what="turnout train")
    from turnout.api import training
    from turnout.reporting.console import Console
    from turnout.training import InterruptedRunError

    try:
        with _engine(engine, address, workers) as chosen:
            run = training.train(
                plan,
                out,
                example=example,
                resume=resume,
                engine=chosen,
                baseline=baseline,
                progress=True,
            )
    except InterruptedRunError as stop:
        click.echo(f"turnout: {stop}", err=True)
        return 130
    assert run.folder is not None
    Console().report(run.summary, run.folder)
    return 0


def _engine(
    name: str, address: str | None, workers: int | None
) -> AbstractContextManager[Engine | None]:
    """The engine of that name, running inside."""
    if name == "local":
        return nullcontext()
    require("ray", what="turnout train")
    from turnout.integrations.ray import RayEngine

    return RayEngine(address, workers)


def _print(plan: Path | None, example: str | None) -> int:
    """Prints a plan as its file has it."""
    from turnout.plans import example_plan, read_plan

    file = plan if example is None else example_plan(example)
    if file is None:
        raise click.UsageError("--print-plan prints PLAN or --example NAME")
    click.echo(read_plan(file), nl=False)
    return 0
