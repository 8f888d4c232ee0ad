"""``turnout join``: one device, from its invitation to its last turn."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import click

from turnout.cli.commands import Command
from turnout.cli.options import PATH
from turnout.core.optional import require


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
def join(
    *,
    url: str,
    token: str,
    data: Path,
    state: Path | None,
    ca: Path | None,
    cover: bool,
    allow_http: bool,
) -> int:
    """Takes part in the task of the coordinator at URL as one device.

    Draws its slots before the first contact and stores them, sleeps until each, fetches the
    model, sends one clipped update of it on its own records, and leaves after the last.
    """
    require("device", what="turnout join")
    import asyncio

    from turnout.device import priced
    from turnout.service.device import Device, Diary, Link, StateFile, connection, default_place
    from turnout.service.device.trainer import trainer_on_file
    from turnout.service.wire import Invitation

    invitation = Invitation.decoded(token)
    trainer_of = trainer_on_file(data, invitation.client)

    async def take_part(diary: Diary) -> Counter[str]:
        async with connection(ca) as http:
            link = Link(http, url, allow_http=allow_http)
            return await Device(invitation, diary, link, priced(trainer_of), cover=cover).run()

    from rich.console import Console

    with StateFile(state or default_place(invitation)) as file:
        diary = Diary(file, invitation)
        with Console(stderr=True).status("taking part; Ctrl-C stops, the same command goes on"):
            tally = asyncio.run(take_part(diary))
    click.echo(described(tally))
    return 0


def described(tally: Counter[str]) -> str:
    """Turns by how they ended, in words."""
    ended = ", ".join(f"{count} {what}" for what, count in sorted(tally.items()))
    return f"turns: {ended or 'none drawn'}"
