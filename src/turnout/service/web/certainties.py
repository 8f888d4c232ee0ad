"""Upper bounds on how sure anybody becomes about one client, worked out beside the service.

A bound takes from part of a second to many. Requests never wait: a thread of its own works the
bounds out, and until then the page says that they are not known yet.
"""

from __future__ import annotations

import threading
from bisect import bisect_left

from turnout.core.errors import TurnoutError
from turnout.schemes import AvailabilityCheckIn
from turnout.service.charter import Charter

EVEN = (0.5, 0.5)
"""Before anything is released nobody with even odds is surer than that."""

Sides = tuple[float, float]


class Certainties:
    """Upper bounds on the posterior of presence and of absence, at the prior ½ and but for δ."""

    def __init__(self, charter: Charter) -> None:
        self._charter = charter
        self._known: dict[int, Sides] = {}
        self._wanted: list[int] = []
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def after(self, steps: int) -> Sides | None:
        """Bounds once ``steps`` steps are released; None where none is known yet.

        Who sees a part of the releases sees no more than who sees more of them, so that the
        bounds of a later step hold as well.
        """
        if steps == 0:
            return EVEN
        at = self._charged(steps)
        with self._lock:
            if at not in self._known and at not in self._wanted:
                self._wanted.append(at)
                if self._thread is None:
                    self._thread = threading.Thread(target=self._work, daemon=True)
                    self._thread.start()
            later = [self._known[step] for step in self._known if step >= at]
        if not later:
            return None
        return min(side[0] for side in later), min(side[1] for side in later)

    def settle(self) -> None:
        """Wait until all that was asked for is worked out."""
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join()

    def _charged(self, steps: int) -> int:
        """The next step at which ε is charged; the last one where no part of a run is priced."""
        charter = self._charter
        if isinstance(charter.scheme.participation, AvailabilityCheckIn):
            return charter.steps
        return charter.charged_steps[bisect_left(charter.charged_steps, steps)]

    def _work(self) -> None:
        """Everything that is wanted, one after the other."""
        while True:
            with self._lock:
                if not self._wanted:
                    self._thread = None
                    return
                at = self._wanted[0]
            sides = self._worked_out(at)
            with self._lock:
                self._known[at] = sides
                self._wanted.remove(at)

    def _worked_out(self, steps: int) -> Sides:
        """Bounds after a charged step; certainty where nothing can be certified."""
        from turnout.accounting.meaning.membership import scheme_certainty
        from turnout.plans.preparation import costliest_clients

        charter = self._charter
        part = None if steps == charter.steps else steps
        try:
            scheme = costliest_clients(charter.scheme)
            return scheme_certainty(scheme, charter.delta, steps=part).sides
        except TurnoutError:
            return 1.0, 1.0
