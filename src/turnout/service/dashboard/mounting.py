"""Routes of the dashboard on a Starlette application, and their headers.

`mount` adds the routes; `web.app` calls it. The headers allow no content from other hosts, no
inline scripts or styles, and no frames.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.staticfiles import StaticFiles

from turnout.service.dashboard import pages

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.types import Scope

    from turnout.service.web.running import Running
    from turnout.service.web.views import PublicView

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
"""Content-Security-Policy of all answers of the dashboard."""

SECURITY = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
"""Headers of all answers of the dashboard."""

PAGE = SECURITY | {"Cache-Control": "no-store", "Vary": "HX-Request, Cookie"}
"""Headers of pages, which no proxy or browser may store."""

FILE = SECURITY | {"Cache-Control": "public, max-age=31536000, immutable"}
"""Headers of static files, whose URLs change with their contents."""


LOGIN = "/operator/login"

FormToken = Callable[[Request], str]
"""Returns the token of a form for a request, which the submitted form must contain."""


class _Files(StaticFiles):
    """Static files with the dashboard's headers."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers.update(FILE)
        return response


class _PublicPages:
    """Cache of the public page: each view is rendered once, for any number of visitors."""

    def __init__(self) -> None:
        self._view: PublicView | None = None
        self._pages: dict[bool, str] = {}

    def of(self, view: PublicView, *, fragment: bool) -> str:
        if view is not self._view:
            self._view, self._pages = view, {}
        if fragment not in self._pages:
            self._pages[fragment] = pages.public_page(view, fragment=fragment)
        return self._pages[fragment]


def mount(app: Starlette, running: Running, form_token: FormToken) -> None:
    """Add ``/``, ``/operator``, the login form and the static files.

    Guarantee: the operator's view is requested only after `Running.is_operator` returned True.
    """
    kept = _PublicPages()

    # The public page, cached for all readers.
    async def public(request: Request) -> Response:
        view = await running.public()
        return _page(kept.of(view, fragment=_is_fragment(request)))

    # The operator's page, after a login.
    async def operator(request: Request) -> Response:
        if not await running.is_operator(request):
            return _to_login(request)
        view, token = await running.operator(), form_token(request)
        return _page(pages.operator_page(view, token, fragment=_is_fragment(request)))

    async def login(request: Request) -> Response:
        if await running.is_operator(request):
            return RedirectResponse("/operator", 303, PAGE)
        return _page(pages.login_page(form_token(request)))

    routes: dict[str, Any] = {"/": public, "/operator": operator, LOGIN: login}
    for path, endpoint in routes.items():
        app.add_route(path, endpoint, methods=["GET"], include_in_schema=False)
    app.mount(pages.STATIC, _Files(packages=[("turnout.service.dashboard", "static")]))


def _page(html: str, status: int = 200) -> Response:
    return HTMLResponse(html, status, PAGE)


def _to_login(request: Request) -> Response:
    """Redirect to the login page; a background refresh redirects the whole page."""
    if _is_fragment(request):
        return Response(status_code=401, headers=PAGE | {"HX-Redirect": LOGIN})
    return RedirectResponse(LOGIN, 303, PAGE)


def _is_fragment(request: Request) -> bool:
    return request.headers.get("hx-request") == "true"
