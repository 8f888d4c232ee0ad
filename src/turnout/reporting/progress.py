"""Progress on stderr, once an answer has taken a while."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_PATIENCE_SECONDS = 2.0


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar, once something has taken a while; it is told how many of how many parts are done."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    bar = Progress(console=console, transient=True, disable=not console.is_terminal)
    task = bar.add_task(what, total=None)
    with _late(bar.start, bar.stop):
        yield lambda done, of: bar.update(task, completed=done, total=of)


@contextmanager
def spinner(what: str) -> Iterator[None]:
    """A spinner and the time so far, once something has taken a while."""
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description} …"), TimeElapsedColumn())
    status = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    status.add_task(what, total=None)
    with _late(status.start, status.stop):
        yield


@contextmanager
def _late(start: Callable[[], None], stop: Callable[[], None]) -> Iterator[None]:
    """Starts something after a while, and stops it in the end."""
    patience = threading.Timer(_PATIENCE_SECONDS, start)
    patience.daemon = True
    patience.start()
    try:
        yield
    finally:
        patience.cancel()
        patience.join()
        stop()
