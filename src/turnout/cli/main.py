"""The ``turnout`` command: its subcommands, and the exit code of each kind of error.

`main` runs the command line. A subcommand is imported when it is called. `start_fast` shortens the
start of the accounting commands, which often answer within a fraction of a second: it defers
imports that they do not need.
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
from turnout.cli import COMMANDS, GROUPS, PURPOSES
from turnout.cli.options import Group
from turnout.core.errors import (
    InputFileError,
    NumericalError,
    ProtocolError,
    StorageError,
    TurnoutError,
)

_UNUSED = ("numpy.ctypeslib", "numpy.f2py", "numpy.ma", "numpy.polynomial", "numpy.testing")
"""Modules that scipy imports at its start and that the accounting commands do not use."""


def start_fast() -> None:
    """Defer imports of large packages, for a short-lived process of one thread.

    No result changes: deferred modules load at their first use.
    """
    # Further threads of OpenBLAS would wait actively, for matrix products that are not computed.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Imports create many objects and hardly any garbage, and the process frees all memory at its
    # end: collect rarely, and not at the exit.
    gc.set_threshold(100_000, 50, 50)
    atexit.register(gc.freeze)
    for name in _UNUSED:
        _put_off(name)


def _put_off(name: str) -> None:
    """Replace a module in its package by a placeholder that imports the module at its first use."""
    package, _, own = name.rpartition(".")
    within = import_module(package)
    found = find_spec(name) if name not in sys.modules else None
    if found is None or found.loader is None:
        return
    found.loader = LazyLoader(found.loader)
    sys.modules[name] = module = module_from_spec(found)
    found.loader.exec_module(module)
    setattr(within, own, module)


_ACCOUNTING = {"account", "budget", "calibrate", "compare"}
"""Subcommands that compute bounds on ε and end."""

EXIT_CODES: dict[type[BaseException], int] = {
    NumericalError: 3,
    InputFileError: 2,
    StorageError: 4,
    ProtocolError: 5,
    TurnoutError: 2,
    click.Abort: 130,
    KeyboardInterrupt: 130,
}
"""Exit code of each class of errors; the first class of which an error is an instance decides.

Code 2 means that the input is refused.
"""


class _LazyGroup(Group):
    """Group of commands that imports a subcommand only when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of all subcommands, sorted."""
        return sorted(PURPOSES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Subcommand of a name; None for an unknown name."""
        if cmd_name not in PURPOSES:
            return None
        module = next(name for name, held in COMMANDS.items() if cmd_name in held)
        function = cmd_name.replace("-", "_")
        return getattr(importlib.import_module(f"turnout.cli.{module}"), function)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the names and purposes of all subcommands by topic, without importing them."""
        width = max(map(len, PURPOSES))
        for heading, names in GROUPS.items():
            with formatter.section(heading):
                formatter.write_dl([(f"{name:{width}}", PURPOSES[name]) for name in names])


@click.command(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="turnout", message="%(prog)s %(version)s")
def turnout() -> None:
    """Differentially private learning from clients that participate at random times.

    Start with: turnout train --example digits

    Each command describes itself: turnout COMMAND --help
    """


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line; an expected error prints one line on stderr and sets the exit code.

    Args:
        arguments: words of the command line; None uses the arguments of this process.
    """
    # Without plugins pydantic does not read the metadata of all installed packages.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments and arguments[0] in _ACCOUNTING:
        start_fast()
    # Run the command. An error of any other kind is a defect and keeps its traceback.
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
    # A command returns its exit code, or None for 0.
    sys.exit(code if isinstance(code, int) else 0)


def _complain(message: str) -> None:
    """Print a message on stderr, in one line."""
    click.echo(f"turnout: {' '.join(message.split())}", err=True)
