"""When a device speaks: relative times that the coordinator states, spread by chance.

No clock is read here. Chance keeps devices from coming all at once; what privacy rests on are
the drawn steps alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from turnout.core import checks
from turnout.core.errors import RemoteProtocolError
from turnout.randomness import ByteStream, system_bytes
from turnout.service.charter import Timing
from turnout.service.device.link import UnreachableError
from turnout.service.device.status import Status

Sleep = Callable[[float], Awaitable[None]]
"""``await sleep(seconds)`` returns when so many seconds are over."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a device waits.

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

    Args:
        limits: how long at most.
        sleep: how.
        random_bytes: what spreads devices.
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
        self._failures, self._waited = 0, 0.0

    def follow(self, timing: Timing) -> None:
        """Keep to a schedule: short steps leave no time for long pauses."""
        self._timing = timing
        self._shortest = min(self._shortest, timing.step_seconds / 20)
        self._longest = min(self._longest, timing.step_seconds / 4)

    def heard(self) -> None:
        """The coordinator answered."""
        self._waited = 0.0

    def succeeded(self) -> None:
        """What had to be done is done; the next pause is short again."""
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

    async def until_answers(self, status: Status) -> None:
        """A pause until those who checked in are told who is asked."""
        await self._sleep(status.seconds_left + self.spread(0, self._timing.answer_seconds / 8))

    async def until_step(self, status: Status, step: int) -> None:
        """A pause until a later step is open, or until it is time to ask again."""
        ahead = max(0, step - status.step - 1) * self._timing.step_seconds
        pause = status.seconds_to_next_step + ahead
        pause += self.spread(0, self._timing.check_in_seconds / 2)
        if pause > self._limits.recheck_seconds:
            pause = self._limits.recheck_seconds * self.spread(0.5, 1.0)
        await self._sleep(max(pause, self._shortest))

    def spread(self, low: float, high: float) -> float:
        """A number between the two, by chance."""
        return low + (high - low) * int.from_bytes(self._random_bytes(8), "little") / 2**64
