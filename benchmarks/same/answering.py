"""Run commands of the turnout on PYTHONPATH, each in a newly forked process.

Third-party libraries are imported once. Every module of turnout is imported anew by each command,
and no cache outlives a command. The operating system's random bytes are replaced by streams: one
for the draws of releases and estimates, another for keys and nonces, so that one more key or retry
changes no draw.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shlex
import sys
import traceback
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

LIBRARIES = """numpy scipy.special scipy.optimize scipy.stats click pydantic torch matplotlib.pyplot
rich.progress rich.table rich.markup jinja2 annotated_types"""
_DRAWS = "turnout.randomness"
_EMPTY = b'<svg xmlns="http://www.w3.org/2000/svg"></svg>'


class Stream:
    """Bytes determined by a label, in any amounts."""

    def __init__(self, label: str) -> None:
        self._label, self._block, self._kept = label, 0, b""

    def __call__(self, size: int) -> bytes:
        while len(self._kept) < size:
            text = f"{self._label} {self._block}".encode()
            self._kept += hashlib.shake_128(text).digest(max(4096, size))
            self._block += 1
        taken, self._kept = self._kept[:size], self._kept[size:]
        return taken


def make_repeatable(label: str) -> None:
    """Replace `os.urandom` by a stream that repeats in every process of the label."""
    draws, others = Stream(f"{label}, draws"), Stream(f"{label}, others")

    def urandom(size: int) -> bytes:
        asked_by = sys._getframe(1).f_globals.get("__name__", "")
        return (draws if asked_by.startswith(_DRAWS) else others)(size)

    os.urandom = urandom
    Ed25519PrivateKey.generate = lambda: Ed25519PrivateKey.from_private_bytes(urandom(32))


def draw_nothing() -> None:
    """Make all pictures empty, since drawing takes longer than computing what is drawn."""
    from matplotlib.figure import Figure

    def savefig(figure: Figure, target: Any, **ignored: object) -> None:
        if hasattr(target, "write"):
            target.write(_EMPTY)
        else:
            Path(target).write_bytes(_EMPTY)

    Figure.savefig = savefig


def answer(command: str) -> None:
    """Run one command with its output in files, and exit the process."""
    for descriptor, name in ((1, "printed"), (2, "said")):
        file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, descriptor)
    make_repeatable(command)
    code = 0
    try:
        from turnout.cli.main import main

        sys.argv = ["turnout", *shlex.split(command)]
        main()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(bool(ended.code))
    except BaseException:
        traceback.print_exc()
        code = 70
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def main() -> None:
    """Run the commands on standard input, one per line, and print exit status and CPU-seconds."""
    for name in LIBRARIES.split():
        __import__(name)
    draw_nothing()
    for line in sys.stdin:
        command = json.loads(line)
        process = os.fork()
        if process == 0:
            answer(command)
        _, status, used = os.wait4(process, 0)
        seconds = used.ru_utime + used.ru_stime
        print(json.dumps([os.waitstatus_to_exitcode(status), seconds]), flush=True)


if __name__ == "__main__":
    sys.path.pop(0)
    if len(sys.argv) > 1:
        make_repeatable(sys.argv[1])
        sys.argv = ["turnout", *sys.argv[2:]]
        from turnout.cli.main import main as turnout

        turnout()
    else:
        main()
