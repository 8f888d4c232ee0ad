"""`turnout` in processes forked from one process in which everything is already imported.

Each command has its own process, environment, folder, output and exit code, but does not spend
seconds on importing PyTorch. The tests of documentation examples show that the commands also run in
a new interpreter.
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
"""Time after which a process is assumed to hang; no test depends on its speed."""

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
    """Context that forks processes; they inherit this environment without its data folder."""
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
    """Run `turnout` in the forked process."""
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
    """Process of the command line, with the interface of `subprocess.Popen`.

    Args:
        arguments: arguments of `turnout`.
        folder: working directory.
        environment: complete environment.
        outputs: files to which stdout and stderr are appended.
        prepare: module-level function that is called first in the process.
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
        """Exit code, minus the number of an ending signal, or None while the process runs."""
        return self._process.exitcode

    def poll(self) -> int | None:
        """Exit code, or None while the process runs."""
        return self._process.exitcode

    def wait(self, timeout: float = HANGS_SECONDS) -> int:
        """Exit code of the process, after the process has ended."""
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired(self.args, timeout)
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        """Send a signal to the process if it is running."""
        if self._process.exitcode is None:
            os.kill(self._process.pid, number)

    def kill(self) -> None:
        """Kill the process immediately."""
        self._process.kill()


def completed(
    *arguments: object, folder: Path, environment: dict[str, str], **how
) -> subprocess.CompletedProcess[str]:
    """Result of a command after it has ended, with its output."""
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
