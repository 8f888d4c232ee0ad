"""Command ``turnout completion``: the script with which a shell completes command lines.

Click writes the script and answers the requests that the script makes. The suggested words follow
from the types of the options: `click.Choice`, paths, and `turnout.cli.options.Word`.
"""

from __future__ import annotations

import click

from turnout.cli.options import Command


@click.command(cls=Command)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script with which SHELL completes commands, options, values and file names.

    For one session, run: eval "$(turnout completion bash)". For all sessions, write the script into
    the folder from which the shell loads completions. In zsh the script must have the file name
    _turnout.
    """
    from click.shell_completion import get_completion_class

    from turnout.cli.main import turnout

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(turnout, {}, "turnout", "_TURNOUT_COMPLETE").source())
