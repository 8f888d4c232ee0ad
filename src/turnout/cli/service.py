"""Commands of the service, in the order in which a task needs them.

`enrol` prints invitations for devices, `serve` runs the coordinator, `join` runs one device from
its invitation to its last step, and `fleet` runs many devices for a trial. `turnout.service`
implements all of them. `turnout.cli.ledger` has the commands that check a task afterwards.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from turnout.cli.options import DATA, PATH, TEXT_PATH, Command, all_of, next_step
from turnout.core.errors import StorageError
from turnout.core.optional import require

if TYPE_CHECKING:
    from turnout.service.device.fleet import Standing
    from turnout.service.web.running import Running
    from turnout.service.web.settings import Settings


_ca_option = click.option(
    "--ca",
    metavar="FILE",
    type=PATH,
    help="CA certificates (PEM) to trust; by default those of the system.",
)


_timing_options = all_of(
    click.option(
        "--step-seconds",
        type=float,
        help="Length of a step of a new task, in seconds; default 60.",
    ),
    click.option(
        "--check-in-seconds",
        type=float,
        help="Length of the check-in phase of each step, in seconds; default 3/4 of the step.",
    ),
    click.option(
        "--answer-seconds",
        type=float,
        help="Length of the phase in which the chosen client sends its update (release rule "
        "one-client), in seconds; default 1/6 of the step.",
    ),
    click.option(
        "--compute-seconds",
        type=float,
        help="Longest time in which a device computes an update, in seconds; default 1/3 of the "
        "phase in which updates are sent.",
    ),
)
"""Schedule of a new task, fixed in its charter; a stored task must have the given lengths."""


@click.command(cls=Command)
@click.argument("count", metavar="[N]", type=int, required=False)
@click.option(
    "--db",
    type=TEXT_PATH,
    metavar="DB",
    required=True,
    help="Database: an SQLite file or a postgresql:// URL.",
)
@click.option(
    "--plan",
    type=PATH,
    help="Plan of the new task if DB is empty. If DB has a task, the task must have this plan.",
)
@_timing_options
@click.option(
    "--graph",
    is_flag=True,
    help="Send the model of a new task to devices as an ONNX graph, which needs no PyTorch.",
)
@click.option(
    "--out",
    metavar="FILE",
    type=PATH,
    help="New file for the invitations, which only its owner can read. By default the command "
    "prints the invitations.",
)
def enrol(
    *,
    count: int | None,
    db: str,
    plan: Path | None,
    out: Path | None,
    graph: bool,
    **schedule: float | None,
) -> int:
    """Print N invitations, one per line, each for one device.

    Without N, each client of the plan that is not invited yet gets an invitation.

    An invitation can be used once. Any person who has an invitation can participate as its device,
    so send each invitation over a channel that you trust. The coordinator may run at the same time.
    """
    require("service", what="turnout enrol")
    from turnout.core import checks
    from turnout.service.coordinator.new_task import invite
    from turnout.service.storage.addresses import place_of
    from turnout.service.storage.opening import open_storage
    from turnout.service.web.server import stored_charter
    from turnout.service.web.settings import Settings

    # Refuse invalid arguments before the database is opened or a task is created.
    if count is not None:
        checks.count(N=count)
    if out is not None and out.exists():
        raise StorageError(f"{out} exists: invitations are only written to a new file")
    settings = Settings.gathered(None, {}, {"db": db, "graph": graph, **schedule})
    if plan is not None:
        _create_if_empty(plan, settings)
    # The task must exist by now, with the given schedule. Then store and print the invitations.
    with closing(open_storage(db, serving=False)) as storage:
        charter = stored_charter(storage)
        if charter is None:
            raise StorageError(
                "the database has no task: give --plan, or start turnout serve first"
            )
        settings.require_timing(charter.timing)
        with storage.transaction() as tx:
            invitations = invite(tx, charter, count)
    # Too few devices weaken the model, since the divisor of the sums is fixed.
    count = len(invitations)
    if 2 * count < charter.population:
        click.echo(
            f"turnout: note: the plan has {charter.population:,} clients, and sums of updates are "
            f"divided by the {charter.expected_check_ins:g} that it expects at a step; if fewer "
            "devices take part, ε holds, and the model learns less",
            err=True,
        )
    # Hand the invitations out, then name the next command.
    _hand_out([invitation.encoded() for invitation in invitations], out)
    place = "printed here" if out is None else f"in {out}, readable by you alone"
    served = f"turnout serve {plan or 'PLAN'} --db {place_of(db)}"
    next_step(f"{count} invitations are {place}; serve the task with: {served}")
    return 0


def _create_if_empty(plan: Path, settings: Settings) -> None:
    """Create the task of a plan in an empty database; an existing task must have this plan."""
    from turnout.reporting.console import Console
    from turnout.service.web.server import open_task

    serving = not _has_task(settings.db)
    storage, _ = open_task(plan, settings, Console().phase, serving=serving)
    storage.close()


def _has_task(db: str) -> bool:
    """Whether the database has a task; a running coordinator may use it at the same time."""
    from turnout.service.storage.opening import open_storage
    from turnout.service.web.server import stored_charter

    try:
        storage = open_storage(db, serving=False)
    except StorageError:
        return False
    with closing(storage):
        return stored_charter(storage) is not None


def _hand_out(tokens: list[str], out: Path | None) -> None:
    """Write invitations to stdout, or to a new file that only its owner can read.

    Raises:
        StorageError: the file exists or cannot be written.
    """
    text = "".join(f"{token}\n" for token in tokens)
    if out is None:
        click.echo(text, nl=False)
        return
    try:
        descriptor = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise StorageError(
            f"cannot write {out} ({error.strerror}): these invitations are lost, so print new ones"
        ) from None
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(text)


@click.command(cls=Command)
@click.argument("plan", type=PATH)
@click.option(
    "--db",
    type=TEXT_PATH,
    metavar="DB",
    help="Database: an SQLite file or a postgresql:// URL; required.",
)
@click.option("--host", help="Address on which the server listens; default 127.0.0.1.")
@click.option(
    "--port",
    type=int,
    help="Port on which the server listens; default 8000. 0 selects any free port.",
)
@_timing_options
@click.option(
    "--tls-cert", type=TEXT_PATH, metavar="FILE", help="TLS certificate chain (PEM) for https."
)
@click.option(
    "--tls-key", type=TEXT_PATH, metavar="FILE", help="Private key (PEM) of the TLS certificate."
)
@click.option(
    "--forwarded-allow-ips",
    metavar="IPS",
    help="Addresses of proxies, separated by commas, whose X-Forwarded headers are trusted.",
)
@click.option(
    "--operator-password-file",
    type=TEXT_PATH,
    metavar="FILE",
    help="File whose first line is the operator's password, with at least 12 characters. Without "
    "this option no operator can log in.",
)
@click.option(
    "--head-file",
    type=TEXT_PATH,
    metavar="FILE",
    help="File for the newest ledger head; put it on another disk than DB. The default is "
    "$XDG_STATE_HOME/turnout/heads/TASK.head.",
)
@click.option(
    "--new-head-file",
    is_flag=True,
    default=None,
    help="Create a new head file for a task that has releases and has lost its head file. Without "
    "this option a missing head file is an error.",
)
@click.option("--witness", metavar="URL", help="Address of a `turnout witness` on another machine.")
@click.option("--witness-key", metavar="HEX", help="Public key of the witness.")
@click.option(
    "--witness-token-file",
    type=TEXT_PATH,
    metavar="FILE",
    help="File whose first line is the token that the witness requires.",
)
@click.option(
    "--witness-ca",
    type=TEXT_PATH,
    metavar="FILE",
    help="CA certificates (PEM) to trust for the witness; by default those of the system.",
)
@click.option(
    "--change-witness",
    is_flag=True,
    default=None,
    help="Allow that the task has another witness than in its last run, or no witness.",
)
@click.option(
    "--config", type=TEXT_PATH, metavar="FILE", help="TOML file with any of these settings."
)
@click.option(
    "--wait-for",
    type=int,
    help="Number of enrolled devices for which the first step waits; default 0. The start of the "
    "run then reveals when devices were enrolled, so use the option for trials only.",
)
@click.option(
    "--connections",
    type=int,
    help="Largest number of open connections; default 8192. At most half of them can be from one "
    "address.",
)
@click.option(
    "--graph",
    is_flag=True,
    default=None,
    help="Send the model of a new task to devices as an ONNX graph, which needs no PyTorch.",
)
@click.option(
    "--exit-when-finished",
    is_flag=True,
    default=None,
    help="End the process after the run. By default the process continues to answer requests that "
    "only read.",
)
def serve(plan: Path, config: str | None, **given: Any) -> int:
    """Serve the task of PLAN (a TOML file) to devices, with a dashboard.

    If the database is empty, the command creates the task. A setting on the command line overrides
    an environment variable (TURNOUT_SERVE_STEP_SECONDS for --step-seconds), and an environment
    variable overrides the file of --config.
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
    """Print one line on stdout when the coordinator accepts requests."""
    steps = f"step {running.engine.step} of {running.charter.steps}"
    click.echo(f"Serving task {running.task[:16]} ({steps}) on {address}")
    next_step(
        f"open {address} for the dashboard; a device joins with: "
        f"turnout join {address} --token INVITATION --data FILE"
    )


@click.command(cls=Command)
@click.argument("url")
@click.option(
    "--token",
    envvar="TURNOUT_TOKEN",
    required=True,
    help="Invitation that `turnout enrol` printed. You can set the environment variable "
    "TURNOUT_TOKEN instead, so that other users of the machine do not see the invitation.",
)
@click.option(
    "--data",
    metavar="FILE",
    type=PATH,
    required=True,
    help="Records of this device: an .npz file with the arrays inputs and labels, or a table with "
    "the columns that the plan of the task names.",
)
@click.option(
    "--state",
    metavar="FILE",
    type=PATH,
    help="State file of this device, with the device's key and the steps in which the device "
    "participates. The default is a file in $XDG_STATE_HOME/turnout.",
)
@_ca_option
@click.option(
    "--cover",
    is_flag=True,
    help="Send dummy traffic in all other steps, as much as a participation sends. This hides the "
    "steps in which the device participates from observers of the network.",
)
@click.option(
    "--allow-http",
    is_flag=True,
    help="Allow an http:// URL of another machine. Observers of the network can then read the "
    "updates.",
)
@click.option(
    "--log-turns",
    is_flag=True,
    help="Print a line on stderr at the end of each participation. Readers of this log learn in "
    "which steps the device participates.",
)
def join(
    *,
    url: str,
    token: str,
    data: Path,
    state: Path | None,
    ca: Path | None,
    cover: bool,
    allow_http: bool,
    log_turns: bool,
) -> int:
    """Participate in the task of the coordinator at URL, as one device.

    Before its first request, the device draws and stores the steps in which it participates. In
    each of these steps it fetches the model and sends one clipped update, computed on its own
    records. The command ends after the last of these steps. On stderr the command prints that the
    device participates, and what the device waits for.
    """
    require("device", what="turnout join")
    import asyncio
    from functools import partial

    from turnout.device import within_promise
    from turnout.service.contract.wire import Invitation
    from turnout.service.device import Diary, Link, StateFile, TaskDevice, connection, default_place
    from turnout.service.device.trainer import trainer_on_file

    # The device prints outcomes as they occur only if --log-turns allows it.
    invitation = Invitation.decoded(token)
    trainer_of = trainer_on_file(data, invitation.client)

    def on_outcome(tally: Counter[str]) -> None:
        if log_turns:
            click.echo(described(tally), err=True)

    # One device on one connection, until its last participation.
    async def take_part(diary: Diary) -> Counter[str]:
        async with connection(ca) as http:
            link = Link(http, url, allow_http=allow_http)
            told = partial(click.echo, err=True)
            device = TaskDevice(
                invitation,
                diary,
                link,
                within_promise(trainer_of),
                cover=cover,
                tell=told,
                on_outcome=on_outcome,
            )
            return await device.run()

    # The state file is locked while the device runs.
    with StateFile(state or default_place(invitation)) as file:
        tally = asyncio.run(take_part(Diary(file, invitation)))
    click.echo(described(tally))
    next_step("the device has no further turns; docs/ledger.md says how to verify the task")
    return 0


def described(tally: Counter[str]) -> str:
    """Number of participations ("turns") of each outcome, as text."""
    ended = ", ".join(f"{count} {what}" for what, count in sorted(tally.items()))
    return f"turns: {ended or 'none drawn'}"


@click.command(cls=Command)
@click.argument("url")
@click.option("--devices", type=int, help="Number of devices; by default one for each invitation.")
@click.option(
    "--tokens",
    metavar="FILE",
    type=PATH,
    required=True,
    help="File of the invitations, one per line, that `turnout enrol` printed.",
)
@click.option(
    "--data",
    type=DATA,
    metavar="DATA",
    help="Data that are divided among the devices as in a simulation of the plan. Either a file "
    "or folder of your own, which the plan's column of clients divides, or a built-in data set "
    "(digits, mnist or fashion-mnist). The default is the data set that the plan names.",
)
@click.option(
    "--processes", type=click.IntRange(1), default=1, help="Number of processes; default 1."
)
@click.option(
    "--folder",
    metavar="DIR",
    type=PATH,
    default=Path("fleet"),
    help="Folder of the devices' state files; default ./fleet.",
)
@_ca_option
@click.option(
    "--cover",
    is_flag=True,
    help="Every device sends dummy traffic, as with turnout join --cover.",
)
@click.option("--allow-http", is_flag=True, help="Allow an http:// URL of another machine.")
@click.option(
    "--patience",
    metavar="SECONDS",
    type=click.FloatRange(min=0, min_open=True),
    default=120.0,
    help="End all devices if the coordinator has not answered any of them for this time; default "
    "120. After the coordinator has reported the end of the run, devices end as soon as one "
    "answer is missing.",
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
    """Run many devices against the coordinator at URL, for a trial on one machine.

    Device i has the records of client i in a simulation of the plan, so that the accuracies of the
    trial and of the simulation can be compared. The command prints a warning if devices participate
    far less often than the plan leads to expect.
    """
    require("device", "train", what="turnout fleet")
    from turnout.cli.main import EXIT_CODES
    from turnout.service.device.fleet import Trial, run_fleet, tokens_from

    # Run all devices; the progress bar shows their outcomes.
    trial = Trial(url, tokens_from(tokens, devices), data, folder, ca, cover, allow_http, patience)
    with _progress(len(trial.tokens)) as tell:
        result = run_fleet(trial, processes, tell)
    # The outcomes on stdout, then failures and warnings on stderr.
    click.echo(f"{len(trial.tokens)} devices, {described(result.standing.tally)}")
    for text, count in result.failures.most_common():
        click.echo(f"turnout: {count} devices ended early: {text}", err=True)
    if result.gone:
        said = f"the coordinator gave no answer for {patience:g} s and the run is not over"
        left = f"{result.gone} devices ended with {result.left} turns to come"
        click.echo(f"turnout: {said}: {left}", err=True)
    if warning := result.standing.warning():
        click.echo(f"turnout: warning: {warning}", err=True)
    # The exit code is that of one failure, in the table of the command line.
    if result.error is None:
        return 0
    return next(code for kind, code in EXIT_CODES.items() if issubclass(result.error, kind))


def _duration(seconds: float) -> str:
    """Duration in seconds, minutes or hours, as text.

    >>> _duration(40), _duration(601), _duration(90_000)
    ('40 seconds', '11 minutes', '25.0 hours')
    """
    if seconds < 120:
        return f"{math.ceil(seconds)} seconds"
    if seconds < 7200:
        return f"{math.ceil(seconds / 60)} minutes"
    return f"{seconds / 3600:.1f} hours"


@contextmanager
def _progress(devices: int) -> Iterator[Callable[[Standing], None]]:
    """Context that shows the progress of the participations; it yields an update function."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from turnout.reporting.progress import progress_lines

    # On a terminal a bar shows ended and all participations, and the outcomes; in a log, lines.
    lines, console = progress_lines(f"turns of {devices} devices"), Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total} turns  {task.fields[answers]}"),
        TimeElapsedColumn(),
    )
    hidden = not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=hidden) as bar:
        task = bar.add_task(f"{devices} devices", total=None, answers="")

        told = False

        # Participations are known only when devices have drawn them, so the total may grow.
        def tell(stands: Standing) -> None:
            nonlocal told
            # The length of the run, once, as soon as a device has received the charter.
            steps, step_seconds = stands.schedule
            if steps and not told:
                told = True
                length = f"{steps:,} steps of {step_seconds:g} s"
                text = f"the run has {length} and takes {_duration(steps * step_seconds)}"
                console.print(text, highlight=False)
            tally = stands.tally
            ahead, total = tally["to come"], tally.total()
            ended = ", ".join(f"{n} {what}" for what, n in tally.items() if what != "to come")
            warning = f"  [red]warning: {stands.warning()}[/]" if stands.warning() else ""
            bar.update(task, completed=total - ahead, total=total, answers=ended + warning)
            if hidden:
                lines(total - ahead, total)

        yield tell
