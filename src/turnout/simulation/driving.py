"""Loop that runs training, tuning or a bandit unit by unit and saves the state of the run.

`Units` is the interface of such a run, `drive` is the loop, and `Every` is the schedule of saving.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Units(Protocol[T_co]):
    """Interface of a run that consists of units, such as steps or candidates."""

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
    """Schedule for saving a run: after a number of units or seconds, and at the end of the run."""

    def __init__(self, *, units: int | None = None, seconds: float | None = None) -> None:
        """Make a schedule.

        Args:
            units: number of units between saves; None for no such saves.
            seconds: least time between saves, in seconds; None for no such saves.
        """
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
    """Run all remaining units, and return whether the run was completed.

    Ctrl-C (KeyboardInterrupt) stops the run: the state is saved, and the result is False.

    Args:
        run: run with its remaining units.
        save: function that saves the state of the run; called when ``every`` is due and on Ctrl-C.
        every: schedule of saving.
        tell: function of the progress that the run yields; called after each unit, and after the
            save if one is due.
    """
    try:
        for told in run.remaining():
            if every.due(run):
                save()
            tell(told)
    except KeyboardInterrupt:
        save()
        return False
    return True
