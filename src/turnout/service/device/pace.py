"""Times of a device: random pauses, and the moments at which updates are sent.

`Pace` computes times and waits for them, and `Limits` has bounds on waiting times; `device` and
`step_actions` use `Pace`. All times follow from the schedule, the coordinator's answers and random
draws, never from the client's records. All times are of the event loop's clock, in seconds; the
machine's clock is not read.
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
"""``await sleep(seconds)`` returns after that many seconds."""

_LEAST_PREPARATION_SECONDS = 1.0
_LONGEST_GAP_SECONDS, _LAST_PART = 1.0, 1 / 8


@dataclass(frozen=True, slots=True)
class Limits:
    """Longest and shortest waiting times of a device, in seconds.

    Attributes:
        recheck_seconds: the longest sleep before the next request for the status.
        first_backoff_seconds: the first pause after a request without an answer.
        longest_backoff_seconds: the longest pause; each pause is twice the pause before it, up to
            this limit.
        patience_seconds: total length of pauses without an answer after which the device ends.
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
    """Schedule of one device: computes the times of its actions and waits for them.

    Guarantee: the time of sending is uniform between two times, which do not depend on the records:
    the latest end of the computation plus a gap, and the beginning of the phase's last eighth.

    Args:
        limits: bounds on waiting.
        sleep: waits for a number of seconds.
        random_bytes: source of all random times; by default the operating system's.
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
        """Adopt the schedule in a charter; short steps also shorten the pauses."""
        self._timing = timing = charter.timing
        self._phase_seconds = timing.update_seconds(asks_one=charter.asks_one)
        self._compute_seconds = timing.compute_seconds or 0.0
        # A status request falls into the first half of the phase's time that is left for it.
        room = self._phase_seconds * (1 - _LAST_PART) - self._compute_seconds - self._gap()
        self._look_seconds = timing.check_in_seconds / 2 if charter.asks_one else room / 2
        self._shortest = min(self._shortest, timing.step_seconds / 20)
        self._longest = min(self._longest, timing.step_seconds / 4)

    def heard(self) -> None:
        """Note an answer of the coordinator; the time without an answer starts again from zero."""
        self._waited = 0.0

    def succeeded(self) -> None:
        """Reset the pause to its shortest length after a successful action."""
        self._failures = 0

    async def after_failure(self, error: UnreachableError | None = None) -> None:
        """Wait before a failed action is repeated; the wait doubles with each failure.

        Raises:
            RemoteProtocolError: the pauses since the last answer exceed `Limits.patience_seconds`.
        """
        longest = min(self._longest, self._shortest * 2.0 ** min(self._failures, 30))
        self._failures += 1
        pause = self.spread(longest / 2, longest)
        # At least the time that the coordinator asked for, and up to a quarter more.
        if error is not None:
            pause = max(pause, error.retry_after * self.spread(1.0, 1.25))
            self._waited += pause
            if self._waited > self._limits.patience_seconds:
                raise RemoteProtocolError(f"no usable answer for too long: {error}")
        await self._sleep(pause)

    def now(self) -> float:
        """Current time of the event loop, in seconds."""
        return asyncio.get_running_loop().time()

    def has_room(self, phase_ends: float) -> bool:
        """Whether the phase leaves enough time to compute and send an update."""
        return self._first_moment() <= self._last_moment(phase_ends)

    def moment(self, phase_ends: float) -> float | None:
        """Random sending time of an update whose computation starts now.

        None if too little time is left.
        """
        first, last = self._first_moment(), self._last_moment(phase_ends)
        return self.spread(first, last) if first <= last else None

    def late_moment(self, phase_ends: float) -> float:
        """New random sending time, for a device that did not run at its first sending time."""
        now = self.now()
        return self.spread(now, max(now, self._last_moment(phase_ends)))

    async def until(self, moment: float) -> None:
        """Wait until a time of the event loop."""
        await self._sleep(max(0.0, moment - self.now()))

    async def until_ready(self, since: float) -> None:
        """Wait until a positive whole number of time units has passed since ``since``.

        The time to prepare the records depends on the records; waiting for a whole unit hides this
        time, unless it exceeds one unit. A unit is the charter's limit on computing time, and at
        least one second.
        """
        unit = max(self._compute_seconds, _LEAST_PREPARATION_SECONDS)
        times = ceil((self.now() - since) / unit) or 1
        await self.until(since + times * unit)

    def _first_moment(self) -> float:
        """Earliest sending time of an update whose computation starts now."""
        return self.now() + self._compute_seconds + self._gap()

    def _gap(self) -> float:
        """Seconds between the end of the longest computation and the earliest sending time."""
        return min(_LONGEST_GAP_SECONDS, self._phase_seconds / 16)

    def _last_moment(self, phase_ends: float) -> float:
        """Latest sending time in a phase; the remainder of the phase allows for slow networks."""
        return phase_ends - self._phase_seconds * _LAST_PART

    async def until_answers(self, status: CoordinatorStatus) -> None:
        """Wait until the coordinator can tell checked-in clients which of them was chosen."""
        await self._sleep(status.seconds_left + self.spread(0, self._timing.answer_seconds / 8))

    async def until_step(self, status: CoordinatorStatus, step: int) -> None:
        """Wait until a later step is open, or until the next status request is due."""
        ahead = max(0, step - status.step - 1) * self._timing.step_seconds
        pause = status.seconds_to_next_step + ahead
        pause += self.spread(0, self._look_seconds)
        if pause > self._limits.recheck_seconds:  # spread as well: devices must not return together
            pause = self._limits.recheck_seconds * self.spread(0.5, 1.0)
        await self._sleep(max(pause, self._shortest))

    def spread(self, low: float, high: float) -> float:
        """Uniform random number between ``low`` and ``high``."""
        return low + (high - low) * int.from_bytes(self._random_bytes(8), "little") / 2**64
