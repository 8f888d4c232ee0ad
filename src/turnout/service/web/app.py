"""The coordinator's application: all routes over one running task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from turnout._version import __version__
from turnout.service.dashboard.mounting import mount
from turnout.service.web import openapi
from turnout.service.web.answers import BUSY, respond
from turnout.service.web.devices import signed_routes
from turnout.service.web.newer_heads import HeadsRoute
from turnout.service.web.operators import NO_STORE, Operators
from turnout.service.web.published import public_routes
from turnout.service.web.running import Running
from turnout.service.web.signed import SignedRoute
from turnout.service.wire import HEADS_PATH

OPENAPI_PATH = "/v1/openapi.json"
_ALWAYS = frozenset({"/healthz", "/readyz", HEADS_PATH})
"""The routes that are answered before the witness has confirmed the newest head."""


class _Application(FastAPI):
    """FastAPI, which signed requests do not pass through: they need nothing of it."""

    signed: Mapping[str, SignedRoute | HeadsRoute]
    running: Running

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if self.running.withheld and scope["type"] == "http" and scope["path"] not in _ALWAYS:
            await respond(send, 503, BUSY)
            return
        if scope["type"] == "http" and scope["method"] == "POST":
            parts = scope["path"].split("/")
            if len(parts) == 5 and parts[2] == "steps":
                scope["path_params"] = {"step": parts[3]}
                parts[3] = "{step}"
            route = self.signed.get("/".join(parts))
            if route is not None:
                await route(scope, receive, send)
                return
        await super().__call__(scope, receive, send)


def create_app(coordinator: Running, *, password: str | None = None) -> FastAPI:
    """The application of one running task."""
    app = _Application(
        title="turnout", version=__version__, docs_url=None, redoc_url=None, openapi_url=None
    )
    app.running = coordinator
    app.signed = {**signed_routes(coordinator), HEADS_PATH: HeadsRoute(coordinator)}
    for path, endpoint in app.signed.items():  # for the answers to other methods
        app.router.routes.append(Route(path, endpoint, methods=["POST"]))
    for path, endpoint in public_routes(coordinator).items():
        app.router.routes.append(Route(path, endpoint, methods=["GET"]))
    operators = Operators(coordinator, password)
    coordinator.operator_known = operators.known
    _add_health(app, coordinator)
    _add_views(app, coordinator, operators)
    mount(app, coordinator, operators.form_token)
    return app


def _add_health(app: FastAPI, running: Running) -> None:
    async def alive(_request: Request) -> Response:
        return JSONResponse({"alive": True}, headers=NO_STORE)

    async def ready(_request: Request) -> Response:
        is_ready = not (running.ended or running.withheld)
        return JSONResponse({"ready": is_ready}, 200 if is_ready else 503, NO_STORE)

    app.add_route("/healthz", alive, methods=["GET"])
    app.add_route("/readyz", ready, methods=["GET"])


def _add_views(app: FastAPI, running: Running, operators: Operators) -> None:
    described: dict[str, Any] = openapi.document(running.charter)

    async def described_api(_request: Request) -> Response:
        return JSONResponse(described, headers=NO_STORE)

    async def public(_request: Request) -> Response:
        view = await running.public()
        return JSONResponse(asdict(view), headers=NO_STORE)

    app.openapi = lambda: described
    app.add_route(OPENAPI_PATH, described_api, methods=["GET"])
    app.add_route("/public/summary.json", public, methods=["GET"])
    app.add_route("/operator/summary.json", operators.summary, methods=["GET"])
    app.add_route("/operator/login", operators.login, methods=["POST"])
    app.add_route("/operator/logout", operators.logout, methods=["POST"])
    app.add_route("/metrics", operators.metrics, methods=["GET"])
