"""When a device does what it does: pauses by chance, and the moments at which its bytes leave.

All of it follows from the schedule, the coordinator's answers and chance, and nothing from the
client's records. Times are the event loop's; no clock of the machine is read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from math import ceil

from turnout.core import checks
from turnout.core.errors import RemoteProtocolError
from turnout.randomness import ByteStream, system_bytes
from turnout.service.contract.charter import Charter, Timing
from turnout.service.device.link import UnreachableError
from turnout.service.device.remote import CoordinatorStatus

Sleep = Callable[[float], Awaitable[None]]
"""``await sleep(seconds)`` returns when so many seconds are over."""

_LEAST_PREPARATION_SECONDS = 1.0
_LONGEST_GAP_SECONDS, _LAST_PART = 1.0, 1 / 8


@dataclass(frozen=True, slots=True)
class Limits:
    """The waiting times of a device.

    Attributes:
        recheck_seconds: the longest it sleeps before it asks again how far the run is.
        first_backoff_seconds: the first pause after a request that brought nothing back.
        longest_backoff_seconds: the longest such pause; they double.
        patience_seconds: it gives up after so long without any answer.
    """

    recheck_seconds: float = 600.0
    first_backoff_seconds: float = 0.5
    longest_backoff_seconds: float = 30.0
    patience_seconds: float = 3600.0

    def __post_init__(self) -> None:
        checks.positive(
            recheck_seconds=self.recheck_seconds,
            first_backoff_seconds=self.first_backoff_seconds,
            longest_backoff_seconds=self.longest_backoff_seconds,
            patience_seconds=self.patience_seconds,
        )


class Pace:
    """Sleeps, and says for how long.

    Guarantee: a moment leaves time for all that is computed before it, and comes before the end of
    its phase; between the two it is uniform, by the operating system's randomness.

    Args:
        limits: of waiting.
        sleep: waits.
        random_bytes: what chance is made of.
    """

    def __init__(
        self,
        limits: Limits | None = None,
        sleep: Sleep = asyncio.sleep,
        random_bytes: ByteStream = system_bytes,
    ) -> None:
        self._limits, self._sleep, self._random_bytes = limits or Limits(), sleep, random_bytes
        self._shortest, self._longest = (
            self._limits.first_backoff_seconds,
            self._limits.longest_backoff_seconds,
        )
        self._timing = Timing()
        self._phase_seconds, self._compute_seconds = self._timing.check_in_seconds, 0.0
        self._look_seconds = self._phase_seconds / 2
        self._failures, self._waited = 0, 0.0

    def follow(self, charter: Charter) -> None:
        """Keep to a charter's schedule: short steps leave no time for long pauses."""
        self._timing = timing = charter.timing
        self._phase_seconds = timing.update_seconds(asks_one=charter.asks_one)
        self._compute_seconds = timing.compute_seconds or 0.0
        # It looks within the first half of a phase, and so that there is room for a moment.
        room = self._phase_seconds * (1 - _LAST_PART) - self._compute_seconds - self._gap()
        self._look_seconds = timing.check_in_seconds / 2 if charter.asks_one else room / 2
        self._shortest = min(self._shortest, timing.step_seconds / 20)
        self._longest = min(self._longest, timing.step_seconds / 4)

    def heard(self) -> None:
        """The coordinator answered."""
        self._waited = 0.0

    def succeeded(self) -> None:
        """Resets the pause, for what had to be done is done."""
        self._failures = 0

    async def after_failure(self, error: UnreachableError | None = None) -> None:
        """A pause before the same is tried again, longer every time.

        Raises:
            RemoteProtocolError: there was no answer for too long.
        """
        longest = min(self._longest, self._shortest * 2.0 ** min(self._failures, 30))
        self._failures += 1
        pause = self.spread(longest / 2, longest)
        if error is not None:
            pause = max(pause, error.retry_after * self.spread(1.0, 1.25))
            self._waited += pause
            if self._waited > self._limits.patience_seconds:
                raise RemoteProtocolError(f"given up: {error}")
        await self._sleep(pause)

    def now(self) -> float:
        """Seconds since some moment, by the event loop's clock."""
        return asyncio.get_running_loop().time()

    def has_room(self, phase_ends: float) -> bool:
        """Whether an update can still be computed and sent in the phase."""
        return self._first_moment() <= self._last_moment(phase_ends)

    def moment(self, phase_ends: float) -> float | None:
        """When an update leaves whose computing begins now; None where there is no room for it."""
        first, last = self._first_moment(), self._last_moment(phase_ends)
        return self.spread(first, last) if first <= last else None

    def late_moment(self, phase_ends: float) -> float:
        """When an update leaves whose moment passed while nobody was there."""
        now = self.now()
        return self.spread(now, max(now, self._last_moment(phase_ends)))

    async def until(self, moment: float) -> None:
        """Wait for a moment."""
        await self._sleep(max(0.0, moment - self.now()))

    async def until_ready(self, since: float) -> None:
        """Wait until a whole number of fixed times since a moment are over, at least one.

        What is prepared of the records takes a time that depends on them, and that must not show.
        The fixed time is the bound on computing, and no charter makes it shorter than a second.
        """
        unit = max(self._compute_seconds, _LEAST_PREPARATION_SECONDS)
        times = ceil((self.now() - since) / unit) or 1
        await self.until(since + times * unit)

    def _first_moment(self) -> float:
        """The end of all that is computed if that begins now; then nothing else runs."""
        return self.now() + self._compute_seconds + self._gap()

    def _gap(self) -> float:
        """From the end of computing to the first moment."""
        return min(_LONGEST_GAP_SECONDS, self._phase_seconds / 16)

    def _last_moment(self, phase_ends: float) -> float:
        """So late that bytes still arrive, over a slow network too."""
        return phase_ends - self._phase_seconds * _LAST_PART

    async def until_answers(self, status: CoordinatorStatus) -> None:
        """A pause until those who checked in are told who is asked."""
        await self._sleep(status.seconds_left + self.spread(0, self._timing.answer_seconds / 8))

    async def until_step(self, status: CoordinatorStatus, step: int) -> None:
        """A pause until a later step is open, or until it is time to ask again."""
        ahead = max(0, step - status.step - 1) * self._timing.step_seconds
        pause = status.seconds_to_next_step + ahead
        pause += self.spread(0, self._look_seconds)
        if pause > self._limits.recheck_seconds:
            pause = self._limits.recheck_seconds * self.spread(0.5, 1.0)
        await self._sleep(max(pause, self._shortest))

    def spread(self, low: float, high: float) -> float:
        """A number between the two, by chance."""
        return low + (high - low) * int.from_bytes(self._random_bytes(8), "little") / 2**64
