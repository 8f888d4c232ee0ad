"""Processes of the service, as an operator and devices start them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from forked import HANGS_SECONDS, Forked


def environment(**extra: str) -> dict[str, str]:
    """Environment of this process, with one thread per process and without the data folder."""
    kept = {k: v for k, v in os.environ.items() if k not in ("TURNOUT_DATA", "COLUMNS")}
    return {**kept, "TURNOUT_OFFLINE": "1", "OMP_NUM_THREADS": "1", **extra}


def command(*arguments: object) -> list[str]:
    """Arguments that start `turnout`."""
    return [str(Path(sys.executable).with_name("turnout")), *map(str, arguments)]


def free_port() -> int:
    """Port that is free at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def turnout(*arguments: object, log: Path, prepare: Callable[[], object] | None = None) -> Forked:
    """Process of the command line, whose output is written to a file."""
    log.touch()
    return Forked(
        *arguments,
        folder=log.parent,
        environment=environment(),
        outputs=(log, log),
        prepare=prepare,
    )


def fresh(*arguments: object, log: Path) -> subprocess.Popen[bytes]:
    """Process of the command line in a new interpreter, with its output in a file."""
    with log.open("ab") as output:
        return subprocess.Popen(
            command(*arguments), stdout=output, stderr=output, env=environment(), cwd=log.parent
        )


def done(process: Forked, log: Path) -> None:
    """Wait until a process ends, and check its exit code."""
    try:
        code = process.wait()
    except subprocess.TimeoutExpired:
        process.kill()
        pytest.fail(f"{process.args} did not end:\n{log.read_text()[-3000:]}")
    assert code == 0, f"{process.args} ended with {code}:\n{log.read_text()[-3000:]}"


def waited_for(url: str, process: Forked | subprocess.Popen[bytes], log: Path) -> None:
    """Wait until a server answers."""
    deadline = time.monotonic() + HANGS_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            pytest.fail(f"the server ended with {process.returncode}:\n{log.read_text()[-3000:]}")
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.05)
    pytest.fail(f"{url} does not answer:\n{log.read_text()[-3000:]}")
