"""The operator: a password, a session in a signed cookie, metrics, counts.

The password comes from a file. Without one there is no operator, and nobody sees what is for the
operator alone.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import os
from pathlib import Path
from urllib.parse import parse_qs

from itsdangerous import BadSignature, URLSafeTimedSerializer
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response

from turnout.core.errors import ParameterError
from turnout.service.web.running import Running

COOKIE = "turnout-operator"
SESSION_SECONDS = 12 * 3600
SHORTEST_PASSWORD = 12

_FORM_BYTES = 4096
_WRONG_SECONDS = 0.5
_MOST_WAITING = 8
_NO_STORE = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


def password_of(path: Path) -> str:
    """The password in a file's first line.

    Raises:
        ParameterError: no such file, or too short a password; it is not shown.
    """
    try:
        text = path.read_text("utf-8").partition("\n")[0].strip()
    except (OSError, ValueError):
        raise ParameterError("--operator-password-file", str(path), "a readable file") from None
    if len(text) < SHORTEST_PASSWORD:
        expected = f"a file with a password of at least {SHORTEST_PASSWORD} characters"
        raise ParameterError("--operator-password-file", str(path), expected)
    return text


class Operators:
    """Who is the operator, and what only the operator gets.

    Guarantees:
        Passwords are compared in constant time, and wrong ones cost half a second, one after the
        other. Sessions end with the process, and after half a day.

    Args:
        running: the task.
        password: None where there is no operator.
    """

    def __init__(self, running: Running, password: str | None) -> None:
        self._running = running
        self._password = None if password is None else password.encode()
        self._sessions = URLSafeTimedSerializer(os.urandom(32), salt="session")
        self._forms = URLSafeTimedSerializer(os.urandom(32), salt="form")
        self._wrong = asyncio.Lock()
        self._waiting = 0

    def known(self, request: Request) -> bool:
        """Whether a request comes with a session, or with the password as a bearer token."""
        return self._session(request) is not None or self._bears_password(request)

    def form_token(self, request: Request) -> str:
        """What a form that is shown to this visitor must bring back."""
        return self._forms.dumps(self._session(request) or "nobody")

    async def login(self, request: Request) -> Response:
        """Begin a session: form fields ``password`` and ``token``."""
        form = await _form(request)
        if form is None or not self._brought_back(request, form):
            return JSONResponse({"detail": "this form is not valid any more"}, 403, _NO_STORE)
        if not self._is_password(form.get("password", "").encode()):
            return await self._refused(request)
        response = RedirectResponse("/operator", 303, _NO_STORE)
        response.set_cookie(
            COOKIE,
            str(self._sessions.dumps(os.urandom(16).hex())),
            max_age=SESSION_SECONDS,
            path="/",
            secure=request.url.scheme == "https",
            httponly=True,
            samesite="strict",
        )
        return response

    async def logout(self, request: Request) -> Response:
        """Forget the session."""
        form = await _form(request)
        if form is None or not self._brought_back(request, form):
            return JSONResponse({"detail": "this form is not valid any more"}, 403, _NO_STORE)
        response = RedirectResponse("/operator/login", 303, _NO_STORE)
        response.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
        return response

    async def summary(self, request: Request) -> Response:
        """The operator's view as JSON."""
        if not self.known(request):
            return _not_known()
        view = await self._running.operator()
        return JSONResponse(view.document(), headers=_NO_STORE)

    async def metrics(self, request: Request) -> Response:
        """Prometheus metrics."""
        if not self.known(request):
            return _not_known()
        text = self._running.metrics.text(self._running.writer.waiting)
        kind = "text/plain; version=0.0.4; charset=utf-8"
        return Response(text, headers=_NO_STORE | {"Content-Type": kind})

    async def _refused(self, request: Request) -> Response:
        """The answer to a wrong password, slowly."""
        if self._waiting >= _MOST_WAITING:
            detail = {"detail": "too many wrong passwords; try again later"}
            return JSONResponse(detail, 429, _NO_STORE | {"Retry-After": "5"})
        self._waiting += 1
        try:
            async with self._wrong:
                clock = self._running.clock
                await clock.until(clock.now() + _WRONG_SECONDS)
        finally:
            self._waiting -= 1
        from turnout.service.dashboard import headers, pages

        page = pages.login_page(self.form_token(request), refused=True)
        return Response(page, 403, headers.PAGE, media_type="text/html")

    def _session(self, request: Request) -> str | None:
        """The session in the cookie, if it is one of this process."""
        cookie = request.cookies.get(COOKIE, "")
        try:
            session = self._sessions.loads(cookie, max_age=SESSION_SECONDS)
        except BadSignature:
            return None
        return session if self._password is not None else None

    def _brought_back(self, request: Request, form: dict[str, str]) -> bool:
        """Whether the form is one that was shown to this visitor."""
        try:
            shown = self._forms.loads(form.get("token", ""), max_age=SESSION_SECONDS)
        except BadSignature:
            return False
        return shown == (self._session(request) or "nobody")

    def _is_password(self, given: bytes) -> bool:
        return hmac.compare_digest(self._password or os.urandom(32), given)

    def _bears_password(self, request: Request) -> bool:
        kind, _, value = request.headers.get("authorization", "").partition(" ")
        if kind.lower() == "basic":
            try:
                value = base64.b64decode(value, validate=True).decode().partition(":")[2]
            except (binascii.Error, ValueError):
                return False
        elif kind.lower() != "bearer":
            return False
        return self._is_password(value.encode())


def _not_known() -> Response:
    headers = _NO_STORE | {"WWW-Authenticate": "Bearer"}
    return JSONResponse({"detail": "for the operator"}, 401, headers)


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
