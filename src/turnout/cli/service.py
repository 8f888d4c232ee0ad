"""Commands of the service, in the order in which a task needs them.

``enrol`` makes invitations for devices, ``serve`` runs the coordinator, ``join`` one device from
its invitation to its last step, ``fleet`` many devices for a trial; ``ledger`` exports and verifies
the releases; ``witness`` keeps a coordinator's ledger heads on another machine.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from turnout.cli.options import FILE, PATH, Command, Group
from turnout.core.errors import ParameterError, StorageError
from turnout.core.optional import require

if TYPE_CHECKING:
    from turnout.service.device.fleet import Standing
    from turnout.service.web.running import Running
    from turnout.service.web.settings import Settings


@click.command(cls=Command)
@click.argument("count", metavar="N", type=int)
@click.option("--db", metavar="DB", required=True, help="The database: a file, or postgresql://…")
@click.option(
    "--plan",
    type=PATH,
    help="The plan of a new task, if DB is empty; else the plan that its task must have.",
)
@click.option("--step-seconds", type=float, help="How long a step of a new task is; 60.")
@click.option("--check-in-seconds", type=float, help="How long a step takes check-ins; ¾ of it.")
@click.option("--answer-seconds", type=float, help="How long one client may take to answer; ⅙.")
@click.option(
    "--compute-seconds", type=float, help="How long a device may compute; a third of the phase."
)
@click.option("--graph", is_flag=True, help="A new task's devices get its model as a graph.")
@click.option("--out", metavar="FILE", type=PATH, help="Where they go.")
def enrol(
    *,
    count: int,
    db: str,
    plan: Path | None,
    out: Path | None,
    graph: bool,
    **schedule: float | None,
) -> int:
    """Prints N invitations, one a line, each for one device and to be used once.

    They can be had while the coordinator serves. Whoever has one can take part as that device:
    hand them out over a channel that you trust.
    """
    require("service", what="turnout enrol")
    from turnout.core import checks
    from turnout.service.coordinator.new_task import invite
    from turnout.service.storage.opening import open_storage
    from turnout.service.web.server import stored_charter
    from turnout.service.web.settings import Settings

    checks.count(N=count)
    if out is not None and out.exists():
        raise StorageError(f"{out} exists; invitations are never written over others")
    settings = Settings.gathered(None, {}, {"db": db, "graph": graph, **schedule})
    if plan is not None:
        _create_if_empty(plan, settings)
    with closing(open_storage(db, serving=False)) as storage:
        charter = stored_charter(storage)
        if charter is None:
            raise StorageError("there is no task in this database: give --plan, or serve one")
        settings.require_timing(charter.timing)
        with storage.transaction() as tx:
            invitations = invite(tx, charter, count)
    _hand_out([invitation.encoded() for invitation in invitations], out)
    return 0


def _create_if_empty(plan: Path, settings: Settings) -> None:
    """Create the task of a plan unless the database has a task, which must then be this plan's."""
    from turnout.reporting.console import Console
    from turnout.service.web.server import open_task

    serving = not _has_task(settings.db)
    storage, _ = open_task(plan, settings, Console().phase, serving=serving)
    storage.close()


def _has_task(db: str) -> bool:
    """Whether the database has a task, without disturbing a running coordinator."""
    from turnout.service.storage.opening import open_storage
    from turnout.service.web.server import stored_charter

    try:
        storage = open_storage(db, serving=False)
    except StorageError:
        return False
    with closing(storage):
        return stored_charter(storage) is not None


def _hand_out(tokens: list[str], out: Path | None) -> None:
    """Write invitations to a new file for this user alone, or to stdout."""
    text = "".join(f"{token}\n" for token in tokens)
    if out is None:
        click.echo(text, nl=False)
        return
    try:
        descriptor = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise StorageError(
            f"cannot write {out} ({error.strerror}); the invitations are lost, hand out others"
        ) from None
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(text)


@click.command(cls=Command)
@click.argument("plan", type=PATH)
@click.option("--db", metavar="DB", help="The database: a file, or postgresql://…")
@click.option("--host", help="The address to listen at; 127.0.0.1 by default.")
@click.option("--port", type=int, help="The port, 8000 by default; 0 for any that is free.")
@click.option("--step-seconds", type=float, help="How long a step of a new task lasts; 60.")
@click.option("--check-in-seconds", type=float, help="How long a step takes check-ins; ¾ of it.")
@click.option("--answer-seconds", type=float, help="How long one client may take to answer; ⅙.")
@click.option(
    "--compute-seconds", type=float, help="How long a device may compute; a third of the phase."
)
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
    """Print one line on stdout once requests are accepted."""
    steps = f"step {running.engine.step} of {running.charter.steps}"
    click.echo(f"Serving task {running.task[:16]} ({steps}) on {address}")


@click.command(cls=Command)
@click.argument("url")
@click.option(
    "--token",
    envvar="TURNOUT_TOKEN",
    required=True,
    help="The invitation, as `turnout enrol` prints it; also from TURNOUT_TOKEN, which other "
    "users of the machine cannot see.",
)
@click.option(
    "--data",
    metavar="FILE",
    type=PATH,
    required=True,
    help="Its records: an .npz file with the arrays inputs and labels, or a table with the columns "
    "that the task's plan names.",
)
@click.option(
    "--state",
    metavar="FILE",
    type=PATH,
    help="Where its key and its slots are kept; by default in $XDG_STATE_HOME/turnout.",
)
@click.option("--ca", metavar="FILE", type=PATH, help="Certificates (PEM) to trust.")
@click.option(
    "--cover", is_flag=True, help="Send as much in every step as in its own, so that none shows."
)
@click.option(
    "--allow-http",
    is_flag=True,
    help="Take http:// to another machine; whoever listens then reads its updates.",
)
@click.option(
    "--log-turns",
    is_flag=True,
    help="Say on stderr when a turn has ended; who reads that log knows its steps.",
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
    """Takes part in the task of the coordinator at URL as one device.

    Draws its slots before the first contact and stores them, sleeps until each, fetches the
    model, sends one clipped update of it on its own records, and leaves after the last. On stderr
    it says that it takes part, and what it waits for.
    """
    require("device", what="turnout join")
    import asyncio
    from functools import partial

    from turnout.device import within_promise
    from turnout.service.contract.wire import Invitation
    from turnout.service.device import Diary, Link, StateFile, TaskDevice, connection, default_place
    from turnout.service.device.trainer import trainer_on_file

    invitation = Invitation.decoded(token)
    trainer_of = trainer_on_file(data, invitation.client)

    def on_outcome(tally: Counter[str]) -> None:
        if log_turns:
            click.echo(described(tally), err=True)

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

    with StateFile(state or default_place(invitation)) as file:
        tally = asyncio.run(take_part(Diary(file, invitation)))
    click.echo(described(tally))
    return 0


def described(tally: Counter[str]) -> str:
    """Numbers of steps by their outcome, in words."""
    ended = ", ".join(f"{count} {what}" for what, count in sorted(tally.items()))
    return f"turns: {ended or 'none drawn'}"


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
    """Progress bar of the steps that are over."""
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


@click.group(cls=Group)
def ledger() -> None:
    """Exports and verifies what was released and what it cost."""


@ledger.command()
@click.option("--db", required=True, metavar="DB", help="SQLite file or postgresql:// URL.")
@click.option(
    "--out",
    type=FILE,
    metavar="FILE",
    help="Where to write; standard output without it.",
)
@click.option(
    "--models",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Also write the model after every step, one file each.",
)
def export(db: str, out: Path | None, models: Path | None) -> None:
    """Writes the ledger of a task as a file that can be verified without the database."""
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
    help="Compare the released models in this folder with the ledger.",
)
@click.option(
    "--head",
    metavar="STEPS:DIGEST",
    help="A head that you saw: the ledger must continue it.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the verdict as JSON.")
def verify(file: Path, models: Path | None, head: str | None, as_json: bool) -> int:
    """Recomputes from an exported ledger alone what was released and what it cost.

    Ends with 0 where all is good, 1 where something is wrong, 2 where the command is, and 3
    where the ledger is sound but nothing independent can recompute its cost.
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
    from turnout.service.contract.wire import is_this_machine
    from turnout.service.coordinator.new_task import tls_files
    from turnout.service.witness.app import token_of
    from turnout.service.witness.app import witness as run

    if token_file is None and not is_this_machine(host):
        raise ParameterError("token_file", None, f"a file: other machines can connect to {host}")
    tls = tls_files(tls_cert, tls_key)
    token = None if token_file is None else token_of(token_file, "token_file")
    run(db, host, port, token=token, tls=tls, announce=_announce_witness)
    return 0


def _announce_witness(key: str, address: str) -> None:
    """Print one line on stdout once heads are accepted."""
    click.echo(f"Witness {key} on {address}")
