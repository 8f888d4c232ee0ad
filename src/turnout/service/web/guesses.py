"""The operator's password: compared in constant time, and guessed at slowly through every door.

A right password is answered at once, so whoever sees no answer knows that a guess was wrong
without waiting for it: the wait alone limits nobody who opens many connections. What limits
guessing is that the password of a source that guessed wrong too often is not compared at all.
"""

from __future__ import annotations

import hashlib
import ipaddress
import os
from collections import OrderedDict
from hmac import compare_digest
from typing import TYPE_CHECKING, TypeVar

from starlette.exceptions import HTTPException

from turnout.service.wire import is_this_machine

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection

    from turnout.service.web.running import Running

T = TypeVar("T")

WRONG_SECONDS = 0.5
"""A wrong password costs so much time, one after the other."""
MOST_WAITING = 8
"""Wrong passwords that wait at once; others are told to come again."""
MOST_WRONG, WRONG_WINDOW_SECONDS = 30, 60.0
"""After so many wrong passwords of one source in such a time, its passwords are not compared."""
MOST_WRONG_TRUSTED = 600
"""The same for this machine, and for a source that knew the password: a proxy that forwards no
addresses makes everybody one of them."""
TRUSTED_SECONDS = 12 * 3600.0
"""A source that gave the right password is one that knew it for so long."""

_RETRY_AFTER = "5"
_MOST_SOURCES = 1024


class Guesses:
    """The one place where a password is compared, whichever way it came.

    Guarantees:
        Wrong passwords are answered one after the other, half a second each. More than
        `MOST_WAITING` at once are turned away, by the form, as bearer tokens and as Basic alike.
        Of one source, at most `MOST_WRONG` wrong passwords a minute are compared, and
        `MOST_WRONG_TRUSTED` of one that knew the right one within the last half day, or of this
        machine.
        The right password is let in at once, however many others are guessed elsewhere.
    """

    def __init__(self, running: Running, password: str | None) -> None:
        self._clock, self._metrics = running.clock, running.metrics
        self._key = os.urandom(32)
        self._right = None if password is None else self._digest(password.encode())
        self._waiting, self._free_at = 0, self._clock.now()
        self._wrong: OrderedDict[str, tuple[float, int]] = OrderedDict()
        self._trusted: OrderedDict[str, float] = OrderedDict()

    async def is_right(self, given: bytes, source: str) -> bool:
        """Whether a password is the operator's; False after the time that a wrong one costs.

        Raises:
            HTTPException: 429, too many wrong ones.
        """
        now = self._clock.now()
        if not self._is_compared(source, now):
            raise self._turned_away()
        if self._is_password(given):
            _keep(self._trusted, source, now + TRUSTED_SECONDS)
            return True
        self._count(source, now)
        if self._waiting >= MOST_WAITING:
            raise self._turned_away()
        self._metrics.wrong_passwords.labels("refused").inc()
        # The time stays taken if the one who waits hangs up.
        self._free_at = max(now, self._free_at) + WRONG_SECONDS
        self._waiting += 1
        try:
            await self._clock.until(self._free_at)
        finally:
            self._waiting -= 1
        return False

    def _is_compared(self, source: str, now: float) -> bool:
        trusted = is_this_machine(source) or self._trusted.get(source, now) > now
        until, wrong = self._wrong.get(source, (now, 0))
        return until <= now or wrong < (MOST_WRONG_TRUSTED if trusted else MOST_WRONG)

    def _is_password(self, given: bytes) -> bool:
        right = os.urandom(32) if self._right is None else self._right
        return compare_digest(right, self._digest(given))

    def _digest(self, password: bytes) -> bytes:
        """Hashes of one length for all, so that comparing them does not tell the password's."""
        return hashlib.blake2b(password, key=self._key, digest_size=32).digest()

    def _count(self, source: str, now: float) -> None:
        until, wrong = self._wrong.get(source, (now, 0))
        begun = (until, wrong) if until > now else (now + WRONG_WINDOW_SECONDS, 0)
        _keep(self._wrong, source, (begun[0], begun[1] + 1))

    def _turned_away(self) -> HTTPException:
        self._metrics.wrong_passwords.labels("turned away").inc()
        headers = {"Cache-Control": "no-store", "Retry-After": _RETRY_AFTER}
        return HTTPException(429, "too many wrong passwords; try again later", headers)


def source_of(request: HTTPConnection) -> str:
    """The requester as far as can be told: an address, or the network of 64 bits that it is in.

    Behind a proxy it is the address that the proxy forwards, where the settings trust it.
    """
    host = "" if request.client is None else request.client.host
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address):
        mapped = address.ipv4_mapped
        if mapped is None and not address.is_loopback:
            return str(ipaddress.IPv6Network((int(address) >> 64 << 64, 64)))
        address = address if mapped is None else mapped
    return str(address)


def _keep(kept: OrderedDict[str, T], source: str, value: T) -> None:
    """The newest entry; the oldest goes where there are too many."""
    kept[source] = value
    kept.move_to_end(source)
    if len(kept) > _MOST_SOURCES:
        kept.popitem(last=False)
