"""The ``turnout`` command: its subcommands, and which error ends it with which exit code.

The subcommands are imported when they are called. `start_fast` makes commands that answer within a
fraction of a second load less.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.util import LazyLoader, find_spec, module_from_spec
from typing import NoReturn

import click

from turnout._version import __version__
from turnout.cli import COMMANDS, PURPOSES
from turnout.cli.options import Group
from turnout.core.errors import (
    InputFileError,
    NumericalError,
    ProtocolError,
    StorageError,
    TurnoutError,
)

_UNUSED = ("numpy.ctypeslib", "numpy.f2py", "numpy.ma", "numpy.polynomial", "numpy.testing")
"""Modules that scipy loads when it is imported, for uses that pricing does not have."""


def start_fast() -> None:
    """Defer imports of large packages, for a short-lived process of one thread.

    No result changes: deferred modules load at their first use.
    """
    # Threads of the linear algebra wait by spinning, for products that pricing does not have.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    gc.set_threshold(100_000, 50, 50)  # imports make many objects and no garbage
    atexit.register(gc.freeze)  # the process ends, and its memory with it
    for name in _UNUSED:
        _put_off(name)


def _put_off(name: str) -> None:
    """Put a placeholder of a module into its package, which loads at its first use."""
    package, _, own = name.rpartition(".")
    within = import_module(package)
    found = find_spec(name) if name not in sys.modules else None
    if found is None or found.loader is None:
        return
    found.loader = LazyLoader(found.loader)
    sys.modules[name] = module = module_from_spec(found)
    found.loader.exec_module(module)
    setattr(within, own, module)


_PRICING = {"account", "budget", "calibrate", "compare"}
"""Subcommands that compute a price and end."""

EXIT_CODES: dict[type[BaseException], int] = {
    NumericalError: 3,
    InputFileError: 2,
    StorageError: 4,
    ProtocolError: 5,
    TurnoutError: 2,
    click.Abort: 130,
    KeyboardInterrupt: 130,
}
"""Exit codes; the first kind that fits counts. 2: the input is refused."""


class _LazyGroup(Group):
    """Group that imports a subcommand only when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of all commands."""
        return sorted(PURPOSES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Subcommand by name."""
        if cmd_name not in PURPOSES:
            return None
        module = next(name for name, held in COMMANDS.items() if cmd_name in held)
        return getattr(importlib.import_module(f"turnout.cli.{module}"), cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write names and purposes without importing the commands."""
        with formatter.section("Commands"):
            formatter.write_dl(sorted(PURPOSES.items()))


@click.command(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="turnout", message="%(prog)s %(version)s")
def turnout() -> None:
    """Differentially private learning from clients that take part at random times.

    Start with: turnout train --example digits
    """


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line; every expected error is one line on stderr and an exit code."""
    # Looking for plugins of pydantic reads the metadata of everything that is installed.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments and arguments[0] in _PRICING:
        start_fast()
    try:
        code = turnout.main(args=arguments, standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        sys.exit(0)
    except click.ClickException as error:
        _complain(error.format_message())
        sys.exit(2)
    except tuple(EXIT_CODES) as error:
        _complain(str(error) or "stopped")
        sys.exit(next(code for kind, code in EXIT_CODES.items() if isinstance(error, kind)))
    sys.exit(code if isinstance(code, int) else 0)


def _complain(message: str) -> None:
    """Print one line on stderr."""
    click.echo(f"turnout: {' '.join(message.split())}", err=True)
