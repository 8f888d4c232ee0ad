"""`turnout` in processes that are forked from one in which everything is imported already.

Each command is a process of its own, with its own environment, folder, output and exit code; it
only does not spend seconds on importing PyTorch anew. That a fresh interpreter runs the commands
too is what the tests of the documents' examples show.
"""

from __future__ import annotations

import multiprocessing
import os
import pkgutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import cache
from multiprocessing import forkserver
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

import turnout

HANGS_SECONDS = 1800
"""A process that took so long would never end; no test depends on how fast it is."""

_THIRD_PARTY = [
    "matplotlib.backends.backend_agg",
    "matplotlib.backends.backend_svg",
    "matplotlib.figure",
    "rich.progress",
    "torch",
    "uvicorn",
    "uvloop",
]


@cache
def _context() -> multiprocessing.context.ForkServerContext:
    """What forks others; it has this process's environment but for its data and its threads."""
    environment = {name: value for name, value in os.environ.items() if name != "TURNOUT_DATA"}
    environment["OMP_NUM_THREADS"] = "1"
    ours = [found.name for found in pkgutil.walk_packages(turnout.__path__, "turnout.")]
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*_THIRD_PARTY, *ours])
    with mock.patch.dict(os.environ, environment, clear=True):
        forkserver.ensure_running()
    return context


def _run(
    arguments: Sequence[str],
    folder: str,
    environment: dict[str, str],
    outputs: tuple[str, str],
    prepare: Callable[[], object] | None,
) -> None:
    """In the forked process: what `turnout` does."""
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    for descriptor, path in enumerate(outputs, start=1):
        opened = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.dup2(opened, descriptor)
        os.close(opened)
    sys.argv = ["turnout", *arguments]
    if prepare is not None:
        prepare()
    from turnout.cli.main import main

    main(arguments)


class Forked:
    """A process of the command line, as `subprocess.Popen` would show it.

    Args:
        arguments: of `turnout`.
        folder: where it runs.
        environment: all of it.
        outputs: files that stdout and stderr are appended to.
        prepare: called in the process before anything else; a function of a module's own.
    """

    def __init__(
        self,
        *arguments: object,
        folder: Path,
        environment: dict[str, str],
        outputs: tuple[Path, Path],
        prepare: Callable[[], object] | None = None,
    ) -> None:
        self.args = ["turnout", *map(str, arguments)]
        names = str(outputs[0]), str(outputs[1])
        given = (self.args[1:], str(folder), environment, names, prepare)
        self._process = _context().Process(target=_run, args=given)
        self._process.start()

    @property
    def returncode(self) -> int | None:
        """The exit code, minus the signal that ended it, or None while it runs."""
        return self._process.exitcode

    def poll(self) -> int | None:
        """The same."""
        return self._process.exitcode

    def wait(self, timeout: float = HANGS_SECONDS) -> int:
        """The exit code, once there is one."""
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired(self.args, timeout)
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        """To a process that still runs."""
        if self._process.exitcode is None:
            os.kill(self._process.pid, number)

    def kill(self) -> None:
        """At once."""
        self._process.kill()


def completed(
    *arguments: object, folder: Path, environment: dict[str, str], **how
) -> subprocess.CompletedProcess[str]:
    """A command that was waited for, and what it printed."""
    with TemporaryDirectory() as kept:
        outputs = Path(kept, "stdout"), Path(kept, "stderr")
        for path in outputs:
            path.touch()
        process = Forked(*arguments, folder=folder, environment=environment, outputs=outputs, **how)
        try:
            code = process.wait()
        finally:
            process.kill()
        stdout, stderr = (path.read_text() for path in outputs)
    return subprocess.CompletedProcess(process.args, code, stdout, stderr)
