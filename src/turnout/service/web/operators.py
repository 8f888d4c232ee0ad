"""Access of the operator by password or session, and the routes of the operator.

`Operators` serves the operator's routes, `Sessions` are the open sessions, and `PasswordCheck`
compares the password in constant time, from the form or from a header. The password is in a file;
without this file there is no operator, and no request gets the operator's view.

The right password is answered at once, so a client without an answer knows that its guess was
wrong. The delay of the answers to wrong passwords therefore does not limit a client with many
connections: after too many wrong passwords, further passwords of the same source are not compared.
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
"""Delay of the answer to a wrong password; the delays follow one another."""
MOST_WAITING = 8
"""Most wrong passwords whose answers are delayed at once; further ones get status 429."""
MOST_WRONG, WRONG_WINDOW_SECONDS = 30, 60.0
"""Number of wrong passwords of a source in this time after which no more are compared."""
MOST_WRONG_TRUSTED = 600
"""The same limit for this machine, and for a source that gave the right password before.

A proxy that forwards no addresses makes all clients one such source.
"""
TRUSTED_SECONDS = 12 * 3600.0
"""Time for which a source counts as one that gave the right password."""

_RETRY_AFTER = "5"
_MOST_SOURCES = 1024


class PasswordCheck:
    """Check of the operator's password with a limit on wrong attempts.

    The same check serves the login form, bearer tokens and Basic authentication.

    Guarantees:
        Wrong passwords are answered one after the other, after half a second each. If more than
        `MOST_WAITING` wrong passwords wait, further wrong passwords get status 429.
        At most `MOST_WRONG` wrong passwords of one source are compared in a minute. The limit is
        `MOST_WRONG_TRUSTED` for this machine, and for a source that gave the right password within
        the last half day.
        The right password is answered at once, whatever other sources guess.

    Args:
        running: the task, whose clock and metrics are used.
        password: right password; None for no operator.
    """

    def __init__(self, running: Running, password: str | None) -> None:
        self._clock, self._metrics = running.clock, running.metrics
        self._key = os.urandom(32)
        self._right = None if password is None else self._digest(password.encode())
        self._waiting, self._free_at = 0, self._clock.now()
        self._wrong: OrderedDict[str, tuple[float, int]] = OrderedDict()
        self._trusted: OrderedDict[str, float] = OrderedDict()

    async def is_right(self, given: bytes, source: str) -> bool:
        """Whether a text is the operator's password; a wrong password is answered after a delay.

        Args:
            given: the password.
            source: source of the request (`source_of`).

        Raises:
            HTTPException: 429, after too many wrong passwords.
        """
        # A source with too many wrong passwords is refused without a comparison.
        now = self._clock.now()
        if not self._is_compared(source, now):
            raise self._too_many()
        if self._is_password(given):
            _remember(self._trusted, source, now + TRUSTED_SECONDS)
            return True
        # A wrong password is counted, and waits for the answers to those before it.
        self._count(source, now)
        if self._waiting >= MOST_WAITING:
            raise self._too_many()
        self._metrics.wrong_passwords.labels("refused").inc()
        # The delay counts for later ones even if this client closes its connection.
        self._free_at = max(now, self._free_at) + WRONG_SECONDS
        self._waiting += 1
        try:
            await self._clock.until(self._free_at)
        finally:
            self._waiting -= 1
        return False

    def _is_compared(self, source: str, now: float) -> bool:
        """Whether another password may be checked after the wrong passwords of a source so far."""
        trusted = is_this_machine(source) or self._trusted.get(source, now) > now
        until, wrong = self._wrong.get(source, (now, 0))
        return until <= now or wrong < (MOST_WRONG_TRUSTED if trusted else MOST_WRONG)

    def _is_password(self, given: bytes) -> bool:
        """Whether a text is the operator's password, compared in constant time."""
        right = os.urandom(32) if self._right is None else self._right
        return compare_digest(right, self._digest(given))

    def _digest(self, password: bytes) -> bytes:
        """Keyed hash of a password, so that a comparison does not reveal the password's length."""
        return hashlib.blake2b(password, key=self._key, digest_size=32).digest()

    def _count(self, source: str, now: float) -> None:
        """Count a wrong password from a source."""
        until, wrong = self._wrong.get(source, (now, 0))
        window = (until, wrong) if until > now else (now + WRONG_WINDOW_SECONDS, 0)
        _remember(self._wrong, source, (window[0], window[1] + 1))

    def _too_many(self) -> HTTPException:
        """HTTP error 429 for too many wrong passwords; the attempt is counted in the metrics."""
        self._metrics.wrong_passwords.labels("turned away").inc()
        headers = {"Cache-Control": "no-store", "Retry-After": _RETRY_AFTER}
        return HTTPException(429, "too many wrong passwords; try again later", headers)


def source_of(request: HTTPConnection) -> str:
    """Origin of a request: its IPv4 address, or the 64-bit network of its IPv6 address.

    Behind a trusted proxy the origin is the forwarded address.
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


def _remember(kept: OrderedDict[str, T], source: str, value: T) -> None:
    """Store a value under a source as the newest entry; drop the oldest entries above a limit."""
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
    """Operator's password, read from the first line of a file.

    Raises:
        ParameterError: the file cannot be read, or the password is too short.
    """
    return secret_of(path, "--operator-password-file", "password", SHORTEST_PASSWORD)


class Sessions:
    """Open login sessions of the operator in this process.

    Guarantees:
        A session ends at logout, after half a day, with the process, or when too many newer
        sessions are open. After the end of a session, the session's cookie is refused, also in
        copies.

    Args:
        clock: function that returns the time in seconds.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ends: OrderedDict[bytes, float] = OrderedDict()

    def begin(self) -> str:
        """Begin a session; return the session's secret name for a cookie."""
        name = os.urandom(32).hex()
        self._ends[_digest(name)] = self._clock.now() + SESSION_SECONDS
        if len(self._ends) > _MOST_SESSIONS:
            self._ends.popitem(last=False)
        return name

    def is_open(self, name: str) -> bool:
        """Whether a session of this name is open."""
        digest, now = _digest(name), self._clock.now()
        if self._ends.get(digest, now) > now:
            return True
        self._ends.pop(digest, None)
        return False

    def end(self, name: str) -> None:
        """End the session of this name."""
        self._ends.pop(_digest(name), None)

    def end_all(self) -> None:
        """End all sessions."""
        self._ends.clear()


class Operators:
    """HTTP handlers of the operator's routes.

    Guarantees:
        `PasswordCheck` alone compares passwords, so its guarantees hold for every route.
        A cookie is refused after the end of its session; see `Sessions`.

    Args:
        running: the task.
        password: password of the operator; None for no operator.
    """

    def __init__(self, running: Running, password: str | None) -> None:
        self._running = running
        self._passwords = PasswordCheck(running, password)
        self._sessions = Sessions(running.clock)
        self._forms = URLSafeTimedSerializer(os.urandom(32), salt="form")

    async def known(self, request: Request) -> bool:
        """Whether a request has an open session, or the password in its header.

        Raises:
            HTTPException: 429, after too many wrong passwords.
        """
        if self._session(request) is not None:
            return True
        given = _password_in(request.headers.get("authorization", ""))
        return given is not None and await self._passwords.is_right(given, source_of(request))

    def form_token(self, request: Request) -> str:
        """Anti-forgery token of a form for this client; the form must return the token."""
        return self._forms.dumps(_form_owner(self._session(request)))

    async def login(self, request: Request) -> Response:
        """Begin a session from a form with the fields ``password`` and ``token``."""
        # Only a form that was shown to this client, so that other sites cannot submit one.
        form = await _form(request)
        if form is None or not self._is_own_form(request, form):
            return JSONResponse({"detail": "this form is not valid any more"}, 403, NO_STORE)
        password = form.get("password", "").encode()
        if not await self._passwords.is_right(password, source_of(request)):
            return self._refused(request)
        # The session, in a cookie that scripts and other sites cannot use.
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
        """End the session of a form with the field ``token``.

        The field ``everywhere`` ends all sessions.
        """
        form = await _form(request)
        session = self._session(request)
        if form is None or session is None or not self._is_own_form(request, form):
            return JSONResponse({"detail": "this form is not valid any more"}, 403, NO_STORE)
        if "everywhere" in form:
            self._sessions.end_all()
        else:
            self._sessions.end(session)
        response = RedirectResponse("/operator/login", 303, NO_STORE)
        response.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
        return response

    async def summary(self, request: Request) -> Response:
        """Operator's view as JSON."""
        if not await self.known(request):
            return _unauthorized()
        view = await self._running.operator()
        return JSONResponse(asdict(view), headers=NO_STORE)

    async def metrics(self, request: Request) -> Response:
        """Metrics in Prometheus' text format."""
        if not await self.known(request):
            return _unauthorized()
        text = self._running.metrics.text(self._running.writer.waiting)
        kind = "text/plain; version=0.0.4; charset=utf-8"
        return Response(text, headers=NO_STORE | {"Content-Type": kind})

    def _refused(self, request: Request) -> Response:
        """Login page with the message that the password was wrong."""
        page = pages.login_page(self.form_token(request), refused=True)
        return Response(page, 403, mounting.PAGE, media_type="text/html")

    def _session(self, request: Request) -> str | None:
        """Name of an open session in the request's cookie; None without an open session."""
        name = request.cookies.get(COOKIE, "")
        return name if self._sessions.is_open(name) else None

    def _is_own_form(self, request: Request, form: dict[str, str]) -> bool:
        """Whether the submitted form has the token that was shown to this client."""
        try:
            shown = self._forms.loads(form.get("token", ""), max_age=SESSION_SECONDS)
        except BadSignature:
            return False
        return shown == _form_owner(self._session(request))


def _form_owner(session: str | None) -> str:
    """Identifier of a client for its forms; it does not reveal the name of the client's session."""
    return "nobody" if session is None else _digest(session).hex()


def _digest(name: str) -> bytes:
    """Hash under which a session is stored, so that the time of a look-up leaks nothing."""
    return hashlib.sha256(name.encode()).digest()


def _password_in(header: str) -> bytes | None:
    """Password in an Authorization header; None for a header of another scheme.

    A malformed header counts as a wrong password, so that its answer is not faster.
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


def _unauthorized() -> Response:
    """Answer with status 401 to a request without the operator's session or password."""
    headers = NO_STORE | {"WWW-Authenticate": "Bearer"}
    return JSONResponse({"detail": "for the operator"}, 401, headers)


async def _form(request: Request) -> dict[str, str] | None:
    """Fields of a small URL-encoded form, each present once; None for any other body."""
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
