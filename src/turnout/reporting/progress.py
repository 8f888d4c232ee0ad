"""Progress on stderr, or in a notebook, of tasks that take more than two seconds.

`progress_bar` shows how much of a task is finished, and `spinner` shows the running time. Where
stderr is a file or a pipe, `progress_bar` writes a line every half a minute (`progress_lines`).
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import rich.console

_PATIENCE_SECONDS = 2.0
_LINE_SECONDS = 30.0


def is_shown(console: rich.console.Console) -> bool:
    """Whether the console can show progress: a terminal, or a notebook with widgets."""
    widgets = console.is_jupyter and find_spec("ipywidgets") is not None
    return console.is_terminal or widgets


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[..., None]]:
    """Context with a progress bar that appears after two seconds; yields a function to update it.

    The arguments of the function are the number of finished parts of the task, the number of all
    parts and, optionally, a new title. ``what`` is the first title.
    """
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    if not is_shown(console):
        yield progress_lines(what)
        return
    bar = Progress(console=console, transient=True)
    task = bar.add_task(what, total=None)
    with _late(bar.start, bar.stop):
        yield lambda done, of, named=what: bar.update(
            task, completed=done, total=of, description=named
        )


def progress_lines(what: str, seconds: float = _LINE_SECONDS) -> Callable[..., None]:
    """Function that writes the progress to stderr, at most one line every ``seconds`` seconds.

    The arguments of the function are the number of finished parts of the task, the number of all
    parts and, optionally, a new title in place of ``what``.
    """
    written = time.monotonic()

    def tell(done: int, of: int, named: str = what) -> None:
        nonlocal written
        now = time.monotonic()
        if now - written >= seconds:
            written = now
            print(f"{named}: {done:,} of {of:,}", file=sys.stderr, flush=True)

    return tell


@contextmanager
def spinner(what: str) -> Iterator[None]:
    """Context with a spinner and the running time, which appear after two seconds."""
    began, stop = time.monotonic(), ExitStack()

    # The running time is counted from the start of the context.
    def show() -> None:
        from rich.console import Console
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        console = Console(stderr=True)
        columns = (SpinnerColumn(), TextColumn("{task.description} …"), TimeElapsedColumn())
        hidden = not is_shown(console)
        status = Progress(*columns, console=console, transient=True, disable=hidden)
        task = status.add_task(what, total=None)
        status.tasks[task].start_time = began
        status.start()
        stop.callback(status.stop)

    # Schedule the spinner, and run the body of the context.
    with _late(show, stop.close):
        yield


@contextmanager
def _late(start: Callable[[], None], stop: Callable[[], None]) -> Iterator[None]:
    """Context that calls ``start`` if its body runs for two seconds, and ``stop`` at the end."""
    patience = threading.Timer(_PATIENCE_SECONDS, start)
    patience.daemon = True
    patience.start()
    try:
        yield
    finally:
        patience.cancel()
        patience.join()
        stop()
