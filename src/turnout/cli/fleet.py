"""``turnout fleet``: many devices for a trial."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from turnout.cli.commands import Command
from turnout.cli.join import described
from turnout.cli.options import PATH
from turnout.core.optional import require

if TYPE_CHECKING:
    from turnout.service.device.fleet_progress import Standing


@click.command(cls=Command)
@click.argument("url")
@click.option("--devices", type=int, help="How many; by default as many as there are tokens.")
@click.option(
    "--tokens",
    metavar="FILE",
    type=PATH,
    required=True,
    help="Invitations, one a line, as `turnout enrol` prints them.",
)
@click.option(
    "--data",
    metavar="NAME",
    help="The data set whose records are dealt to the devices as in a simulation of the plan; "
    "by default the plan's.",
)
@click.option("--processes", type=click.IntRange(1), default=1, help="How many processes.")
@click.option(
    "--folder",
    metavar="DIR",
    type=PATH,
    default=Path("fleet"),
    help="Where the devices' state files are; by default ./fleet.",
)
@click.option("--ca", metavar="FILE", type=PATH, help="Certificates (PEM) to trust.")
@click.option("--cover", is_flag=True, help="Let every device send cover traffic.")
@click.option("--allow-http", is_flag=True, help="Take http:// to another machine.")
@click.option(
    "--patience",
    metavar="SECONDS",
    type=click.FloatRange(min=0, min_open=True),
    default=120.0,
    help="End once the coordinator gave nobody an answer for so long, 120 by default; where it "
    "said before that all steps are over, at once.",
)
def fleet(
    *,
    url: str,
    devices: int | None,
    tokens: Path,
    data: str | None,
    processes: int,
    folder: Path,
    ca: Path | None,
    cover: bool,
    allow_http: bool,
    patience: float,
) -> int:
    """Runs many devices against the coordinator at URL, for a trial on a built-in data set.

    Client i holds what the simulation's client i holds, so that accuracy can be compared. A
    warning says where far fewer turns were taken than the participation law lets expect.
    """
    require("device", "train", what="turnout fleet")
    from turnout.cli.main import EXIT_CODES
    from turnout.service.device.fleet import Trial, run_fleet, tokens_from

    trial = Trial(url, tokens_from(tokens, devices), data, folder, ca, cover, allow_http, patience)
    with _progress(len(trial.tokens)) as tell:
        result = run_fleet(trial, processes, tell)
    click.echo(f"{len(trial.tokens)} devices, {described(result.standing.tally)}")
    for text, count in result.failures.most_common():
        click.echo(f"turnout: {count} devices ended early: {text}", err=True)
    if result.gone:
        said = f"the coordinator gave no answer for {patience:g} s and the run is not over"
        left = f"{result.gone} devices ended with {result.left} turns to come"
        click.echo(f"turnout: {said}: {left}", err=True)
    if warning := result.standing.warning():
        click.echo(f"turnout: warning: {warning}", err=True)
    if result.error is None:
        return 0
    return next(code for kind, code in EXIT_CODES.items() if issubclass(result.error, kind))


@contextmanager
def _progress(devices: int) -> Iterator[Callable[[Standing], None]]:
    """A bar of turns that are over."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total} turns  {task.fields[answers]}"),
        TimeElapsedColumn(),
    )
    hidden = not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=hidden) as bar:
        task = bar.add_task(f"{devices} devices", total=None, answers="")

        def tell(stands: Standing) -> None:
            tally = stands.tally
            ahead, total = tally["to come"], tally.total()
            ended = ", ".join(f"{n} {what}" for what, n in tally.items() if what != "to come")
            warning = f"  [red]warning: {stands.warning()}[/]" if stands.warning() else ""
            bar.update(task, completed=total - ahead, total=total, answers=ended + warning)

        yield tell
