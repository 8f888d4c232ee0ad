"""The coordinator's application: all routes over one running task.

`create_app` builds the application on Starlette: the device API from the table
`devices.device_routes`, health, metrics, the operator's routes and the dashboard. `document` is the
OpenAPI document of the device API.
"""

from __future__ import annotations

from dataclasses import asdict

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from turnout._version import __version__
from turnout.service.contract.charter import Charter
from turnout.service.contract.ledger import Document
from turnout.service.contract.wire import HEADS_PATH
from turnout.service.dashboard.mounting import mount
from turnout.service.web.answers import BUSY, Application, respond
from turnout.service.web.devices import device_routes
from turnout.service.web.operators import NO_STORE, Operators
from turnout.service.web.routes import openapi_document
from turnout.service.web.running import Running

OPENAPI_PATH = "/v1/openapi.json"
_ALWAYS = frozenset({"/healthz", "/readyz", HEADS_PATH})
"""Routes that are answered even before the witness has signed the newest ledger head."""


def document(charter: Charter) -> Document:
    """OpenAPI document of the device API of one task."""
    words = "docs/device-protocol.md defines signatures, updates and the order of requests."
    return openapi_document("turnout device API", __version__, words, device_routes(charter))


def create_app(running: Running, *, password: str | None = None) -> Starlette:
    """ASGI application that serves one running task.

    Args:
        running: task to be served; its `is_operator` then accepts requests with the password.
        password: password of the operator; None for no operator.
    """
    operators = Operators(running, password)
    running.operator_known = operators.known
    app = _Application(running, operators)
    mount(app, running, operators.form_token)
    return app


class _Application(Starlette):
    """Starlette application whose signed requests skip the middleware."""

    def __init__(self, running: Running, operators: Operators) -> None:
        self._running = running
        # Handlers of the device API; those of POST have a shorter path.
        table = device_routes(running.charter)
        served = [(route, route.handler(running, route)) for route in table]
        self._posts = {route.path: handler for route, handler in served if route.method == "POST"}
        # Starlette serves all others, and answers other methods of the same paths.
        super().__init__(
            routes=[
                *(Route(route.path, handler, methods=[route.method]) for route, handler in served),
                *_health_routes(running),
                *_view_routes(running),
                Route("/operator/summary.json", operators.summary, methods=["GET"]),
                Route("/operator/login", operators.login, methods=["POST"]),
                Route("/operator/logout", operators.logout, methods=["POST"]),
                Route("/metrics", operators.metrics, methods=["GET"]),
            ],
            exception_handlers={HTTPException: _error},
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        if scope["type"] == "http":
            # Until the witness has confirmed the newest ledger head, nothing of the task is shown.
            if self._running.withheld and scope["path"] not in _ALWAYS:
                await respond(send, 503, BUSY)
                return
            if scope["method"] == "POST" and (handler := self._post_handler(scope)) is not None:
                await handler(scope, receive, send)
                return
        await super().__call__(scope, receive, send)

    def _post_handler(self, scope: Scope) -> Application | None:
        """Handler of a POST of the device API; the step in the path is stored in the scope."""
        parts = scope["path"].split("/")
        if len(parts) == 5 and parts[2] == "steps":
            scope["path_params"] = {"step": parts[3]}
            parts[3] = "{step}"
        return self._posts.get("/".join(parts))


async def _error(_request: Request, error: Exception) -> Response:
    """Answer to an HTTP error: the JSON object ``{"detail": …}``."""
    assert isinstance(error, HTTPException)
    return JSONResponse({"detail": error.detail}, error.status_code, error.headers)


def _health_routes(running: Running) -> list[Route]:
    """Routes for a supervisor: whether the process is alive, and whether it accepts requests."""

    async def alive(_request: Request) -> Response:
        return JSONResponse({"alive": True}, headers=NO_STORE)

    async def ready(_request: Request) -> Response:
        is_ready = not (running.ended or running.withheld)
        return JSONResponse({"ready": is_ready}, 200 if is_ready else 503, NO_STORE)

    return [
        Route("/healthz", alive, methods=["GET"]),
        Route("/readyz", ready, methods=["GET"]),
    ]


def _view_routes(running: Running) -> list[Route]:
    """Routes that serve the OpenAPI document and the public view, both as JSON."""
    described = document(running.charter)

    async def openapi(_request: Request) -> Response:
        return JSONResponse(described, headers=NO_STORE)

    async def public(_request: Request) -> Response:
        return JSONResponse(asdict(await running.public()), headers=NO_STORE)

    return [
        Route(OPENAPI_PATH, openapi, methods=["GET"]),
        Route("/public/summary.json", public, methods=["GET"]),
    ]
