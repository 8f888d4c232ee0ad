"""The loop that carries a run out, unit by unit, and saves it: for training, tuning and bandits."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar

T = TypeVar("T")


class Units(Protocol[T]):
    """A run, unit by unit."""

    total: int

    @property
    def done(self) -> int:
        """Units done."""
        ...

    def remaining(self) -> Iterator[T]:
        """Does what is left, yielding after each unit what a person is told of it."""
        ...


class Every(Generic[T]):
    """When to save: every so many units, or after so many seconds; and always at the end."""

    def __init__(self, *, units: int | None = None, seconds: float | None = None) -> None:
        self._units, self._seconds, self._last = units, seconds, time.monotonic()

    def due(self, run: Units[T]) -> bool:
        """Whether the state should be saved now."""
        if run.done == run.total or (self._units is not None and run.done % self._units == 0):
            return True
        if self._seconds is None or time.monotonic() - self._last <= self._seconds:
            return False
        self._last = time.monotonic()
        return True


def drive(
    run: Units[T], save: Callable[[], None], every: Every[T], tell: Callable[[T], None]
) -> bool:
    """Does all units that are left; whether the run is finished (False: Ctrl-C, and saved)."""
    try:
        for told in run.remaining():
            if every.due(run):
                save()
            tell(told)
    except KeyboardInterrupt:
        save()
        return False
    return True
