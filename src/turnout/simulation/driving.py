"""The loop that runs something unit by unit and saves it: training, tuning and bandits.

`drive` runs what has the members of `Units`; `Every` says when to save.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Units(Protocol[T_co]):
    """Run that consists of units, such as steps or candidates."""

    @property
    def total(self) -> int:
        """Number of units of the whole run."""
        ...

    @property
    def done(self) -> int:
        """Number of finished units."""
        ...

    def remaining(self) -> Iterator[T_co]:
        """Run the remaining units and yield the progress after each of them."""
        ...


class Every(Generic[T]):
    """Schedule of saving: after a number of units or of seconds, and at the end of the run."""

    def __init__(self, *, units: int | None = None, seconds: float | None = None) -> None:
        self._units, self._seconds, self._last = units, seconds, time.monotonic()

    def due(self, run: Units[T]) -> bool:
        """Whether the state must be saved now."""
        if run.done == run.total or (self._units is not None and run.done % self._units == 0):
            return True
        if self._seconds is None or time.monotonic() - self._last <= self._seconds:
            return False
        self._last = time.monotonic()
        return True


def drive(
    run: Units[T], save: Callable[[], None], every: Every[T], tell: Callable[[T], None]
) -> bool:
    """Run all remaining units. False if Ctrl-C stopped the run, whose state was then saved."""
    try:
        for told in run.remaining():
            if every.due(run):
                save()
            tell(told)
    except KeyboardInterrupt:
        save()
        return False
    return True
