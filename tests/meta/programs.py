"""Command lines of documentation pages, parsed as the programs would parse them."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Callable
from unittest.mock import patch

import click
from pages import ROOT

from turnout.cli.main import turnout
from turnout.core.installation import WHEEL


def read_command(line: str) -> None:
    """Raise an error unless the program would accept the command line; nothing is run."""
    words, _ = redirected(line)
    while re.match(r"[A-Z_]+=", words[0]):
        words = words[1:]
    program, *arguments = words
    PROGRAMS[program](arguments)


def redirected(line: str) -> tuple[list[str], str]:
    """Words of a command line, and the file that its output is redirected to, or None."""
    words = shlex.split(line)
    return (words[:-2], words[-1]) if words[-2:-1] == [">"] else (words, "")


def subcommand(words: list[str]) -> tuple[click.Command, list[str]]:
    """The ``turnout`` command at the start of some words, and the remaining words."""
    command: click.Command = turnout
    rest = list(words)
    while isinstance(command, click.Group) and rest:
        found = command.get_command(click.Context(command), rest[0])
        assert found is not None, f"turnout {' '.join(words)}: there is no {rest[0]}"
        command, rest = found, rest[1:]
    return command, rest


def options(command: click.Command) -> set[str]:
    """Options of a command and of its subcommands."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        below = (command.get_command(context, name) for name in command.list_commands(context))
        return set().union(*(options(one) for one in below if one is not None))
    own = (each for each in command.get_params(click.Context(command)) if "--help" not in each.opts)
    return {name for parameter in own for name in parameter.opts if name[0] == "-"}


def _turnout(arguments: list[str]) -> None:
    """Parse a ``turnout`` command: options, types and required arguments; files need not exist."""
    command, rest = subcommand(arguments)
    with patch.object(click.Path, "convert", lambda _, value, *__: value):
        command.make_context("turnout", rest)


def _make(arguments: list[str]) -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(arguments) <= set(targets)


def _pip(arguments: list[str]) -> None:
    """Check that pip installs or builds a local copy or wheel, never a package by name."""
    what, *flags, package = arguments
    if what == "wheel":
        assert (flags, package) == (["--no-deps"], ".")
        return
    assert set(flags) <= {"--upgrade"}
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    found = re.fullmatch(rf"(?:\.|{re.escape(WHEEL)})(?:\[([\w,-]+)\])?", package)
    assert what == "install"
    assert found
    assert set((found[1] or "all").split(",")) <= set(extras)


def _python(arguments: list[str]) -> None:
    """Check that a Python script or folder exists and defines the given options."""
    found = {word for word in arguments[1:] if word.startswith("--")}
    assert found <= script_options(arguments[0])


def script_options(script: str) -> set[str]:
    """Options of a script, or of a folder that is run as a script."""
    path = ROOT / script
    if not path.exists():  # a script in a folder that `turnout new` writes
        path = ROOT / "src" / "turnout" / "plans" / "projects" / "table" / script
    files = path.glob("*.py") if path.is_dir() else [path]
    return {name for file in files for name in re.findall(r'"(--[a-z-]+)"', file.read_text())}


def _pytest(arguments: list[str]) -> None:
    assert all((ROOT / path).exists() for path in arguments)


def _docker(arguments: list[str]) -> None:
    """Check that a command run in a container is a ``turnout`` command."""
    if arguments[0] == "exec":
        assert arguments[2] == "turnout"
        _turnout(arguments[3:])


def _system(arguments: list[str]) -> None:
    """Accept a program of the operating system, which test_service_page.py runs or replaces."""


SYSTEM = ("cd", "chmod", "cp", "curl", "install", "mkdir", "openssl", "systemctl", "useradd")

PROGRAMS: dict[str, Callable[[list[str]], None]] = {
    "turnout": _turnout,
    "make": _make,
    "pip": _pip,
    "python": _python,
    "pytest": _pytest,
    "docker": _docker,
    "python3": _system,
    "/opt/turnout/bin/pip": _pip,
    **dict.fromkeys(SYSTEM, _system),
}
