"""The operator: a password, sessions that end with logout, metrics, counts.

The password is in a file. Without one there is no operator, and nobody sees what is for the
operator alone. `Operators` serves the routes, `Guesses` compares the password in constant time,
whether it is sent by the form or with a request.

A right password is answered at once, so a client that sees no answer knows that a guess was wrong
without waiting for it: the wait alone limits nobody who opens many connections. What limits
guessing is that the password of a source that guessed wrong too often is not compared at all.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import ipaddress
import os
from collections import OrderedDict
from dataclasses import asdict
from hmac import compare_digest
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import parse_qs

from itsdangerous import BadSignature, URLSafeTimedSerializer
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response

from turnout.service.contract.wire import is_this_machine
from turnout.service.coordinator.new_task import secret_of
from turnout.service.dashboard import mounting, pages
from turnout.service.web.running import Clock, Running

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
        mounting = {"Cache-Control": "no-store", "Retry-After": _RETRY_AFTER}
        return HTTPException(429, "too many wrong passwords; try again later", mounting)


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


COOKIE = "turnout-operator"
SESSION_SECONDS = 12 * 3600
SHORTEST_PASSWORD = 12

_FORM_BYTES = 4096
_MOST_SESSIONS = 32
NO_STORE = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


def password_of(path: Path) -> str:
    """The password in a file's first line."""
    return secret_of(path, "--operator-password-file", "password", SHORTEST_PASSWORD)


class Sessions:
    """The sessions that are open in this process; a cookie opens what is kept here.

    Guarantees:
        A session ends on request, after half a day, with the process, and when so many newer
        ones are open. From then on its cookie, or a copy of it, opens nothing.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ends: OrderedDict[bytes, float] = OrderedDict()

    def begin(self) -> str:
        """A new session's name, for a cookie."""
        name = os.urandom(32).hex()
        self._ends[_digest(name)] = self._clock.now() + SESSION_SECONDS
        if len(self._ends) > _MOST_SESSIONS:
            self._ends.popitem(last=False)
        return name

    def is_open(self, name: str) -> bool:
        """Whether a name is that of a session that did not end."""
        digest, now = _digest(name), self._clock.now()
        if self._ends.get(digest, now) > now:
            return True
        self._ends.pop(digest, None)
        return False

    def end(self, name: str) -> None:
        """End one session."""
        self._ends.pop(_digest(name), None)

    def end_all(self) -> None:
        """End every session."""
        self._ends.clear()


class Operators:
    """The operator's sessions, and the pages that only the operator gets.

    Guarantees:
        The password is compared by `Guesses` alone, for every route and in whichever way it
        comes: what holds of its answers holds of all of them.
        A cookie opens nothing once its session ended; see `Sessions`.
    """

    def __init__(self, running: Running, password: str | None) -> None:
        self._running = running
        self._guesses = Guesses(running, password)
        self._sessions = Sessions(running.clock)
        self._forms = URLSafeTimedSerializer(os.urandom(32), salt="form")

    async def known(self, request: Request) -> bool:
        """Whether a request comes with an open session, or with the password in its header."""
        if self._session(request) is not None:
            return True
        given = _password_in(request.headers.get("authorization", ""))
        return given is not None and await self._guesses.is_right(given, source_of(request))

    def form_token(self, request: Request) -> str:
        """The token of a form shown to this visitor, which it must bring back."""
        return self._forms.dumps(_named(self._session(request)))

    async def login(self, request: Request) -> Response:
        """Begin a session: form fields ``password`` and ``token``."""
        form = await _form(request)
        if form is None or not self._brought_back(request, form):
            return JSONResponse({"detail": "this form is not valid any more"}, 403, NO_STORE)
        password = form.get("password", "").encode()
        if not await self._guesses.is_right(password, source_of(request)):
            return self._refused(request)
        response = RedirectResponse("/operator", 303, NO_STORE)
        response.set_cookie(
            COOKIE,
            self._sessions.begin(),
            max_age=SESSION_SECONDS,
            path="/",
            secure=request.url.scheme == "https",
            httponly=True,
            samesite="strict",
        )
        return response

    async def logout(self, request: Request) -> Response:
        """End the session: form field ``token``; with ``everywhere``, end every session."""
        form = await _form(request)
        session = self._session(request)
        if form is None or session is None or not self._brought_back(request, form):
            return JSONResponse({"detail": "this form is not valid any more"}, 403, NO_STORE)
        if "everywhere" in form:
            self._sessions.end_all()
        else:
            self._sessions.end(session)
        response = RedirectResponse("/operator/login", 303, NO_STORE)
        response.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
        return response

    async def summary(self, request: Request) -> Response:
        """The operator's view as JSON."""
        if not await self.known(request):
            return _not_known()
        view = await self._running.operator()
        return JSONResponse(asdict(view), headers=NO_STORE)

    async def metrics(self, request: Request) -> Response:
        """Prometheus metrics."""
        if not await self.known(request):
            return _not_known()
        text = self._running.metrics.text(self._running.writer.waiting)
        kind = "text/plain; version=0.0.4; charset=utf-8"
        return Response(text, headers=NO_STORE | {"Content-Type": kind})

    def _refused(self, request: Request) -> Response:
        """The login page, which says that the password was wrong."""
        page = pages.login_page(self.form_token(request), refused=True)
        return Response(page, 403, mounting.PAGE, media_type="text/html")

    def _session(self, request: Request) -> str | None:
        """The session in the cookie, if it is open."""
        name = request.cookies.get(COOKIE, "")
        return name if self._sessions.is_open(name) else None

    def _brought_back(self, request: Request, form: dict[str, str]) -> bool:
        """Whether the form is one that was shown to this visitor."""
        try:
            shown = self._forms.loads(form.get("token", ""), max_age=SESSION_SECONDS)
        except BadSignature:
            return False
        return shown == _named(self._session(request))


def _named(session: str | None) -> str:
    """The visitor's name in forms; it does not open the session."""
    return "nobody" if session is None else _digest(session).hex()


def _digest(name: str) -> bytes:
    """The key of a session in the table: the time of a look-up tells nothing of its name."""
    return hashlib.sha256(name.encode()).digest()


def _password_in(header: str) -> bytes | None:
    """The password in an Authorization header; None where nothing is asked with one.

    A header that cannot be read counts as a wrong password, so that no answer is faster.
    """
    kind, _, value = header.partition(" ")
    if kind.lower() == "bearer":
        return value.encode()
    if kind.lower() != "basic":
        return None
    try:
        return base64.b64decode(value, validate=True).partition(b":")[2]
    except (binascii.Error, ValueError):
        return b""


def _not_known() -> Response:
    mounting = NO_STORE | {"WWW-Authenticate": "Bearer"}
    return JSONResponse({"detail": "for the operator"}, 401, mounting)


async def _form(request: Request) -> dict[str, str] | None:
    """A small URL-encoded form; None for anything else."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _FORM_BYTES:
            return None
    try:
        fields = parse_qs(body.decode("ascii"), max_num_fields=8)
    except ValueError:
        return None
    return {name: values[0] for name, values in fields.items() if len(values) == 1}
