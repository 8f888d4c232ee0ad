"""The coordinator's application: all routes over one running task, and their OpenAPI document.

`create_app` builds the application, `document` the OpenAPI document of the device API.
"""

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
from turnout.service.contract.charter import Charter
from turnout.service.contract.wire import (
    CHARTER_PATH,
    CLIENT_HEADER,
    DIGEST_HEADER,
    ENROLMENT_FORMAT,
    FORMAT_HEADER,
    HEAD_HEADER,
    HEADS_PATH,
    NONCE_HEADER,
    PREFIX,
    RECORDS_PATH,
    SIGNATURE_HEADER,
    STATUS_PATH,
    StepPhase,
    WireAnswer,
    artefact_path,
    check_ins_path,
    covers_path,
    enrolments_path,
    requests_path,
    updates_path,
)
from turnout.service.dashboard.mounting import mount
from turnout.service.web.answers import BUSY, respond
from turnout.service.web.devices import ENROLMENT_BYTES, MOST_RECORDS, public_routes, signed_routes
from turnout.service.web.operators import NO_STORE, Operators
from turnout.service.web.running import Running
from turnout.service.web.signed import HeadsRoute, SignedRoute

Document = dict[str, Any]

_BINARY = "application/octet-stream"
_COUNT = r"^(0|[1-9][0-9]{0,17})$"
_RECEIPTS = {
    200: "accepted; the same for every copy, as long as the coordinator knows of the first",
    401: "not a request that a device of this task signed; always the same bytes",
    409: "conflict with what is stored",
    410: "late: the step, or its phase, is over",
    422: "refused for what it says",
    425: "early: the step, or its phase, has not begun",
}
_DETAILS = {
    404: "no such path, or a step that the run does not have",
    408: "the body took too long",
    413: "the body is too long",
    503: "nothing happened; send the same again after Retry-After seconds",
}
_RETRY_AFTER = {"required": True, "schema": {"type": "string", "pattern": "^[0-9]+$"}}
_RETRIED = {"headers": {"Retry-After": {"$ref": "#/components/headers/RetryAfter"}}}


def document(charter: Charter) -> Document:
    """The device API of one task."""
    size = charter.encoding.encoded_size
    update = {"type": "string", "format": "binary", "minLength": size, "maxLength": size}
    step = "{step}"
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "turnout device API",
            "version": __version__,
            "description": "How signatures, updates and the order of requests work is in "
            "docs/device-protocol.md.",
        },
        "paths": {
            CHARTER_PATH: {"get": _get("The frozen terms, canonical", _json("Charter"))},
            STATUS_PATH: {"get": _get("Where the schedule is", _json("Status"))},
            RECORDS_PATH: {"get": _records()},
            f"{PREFIX}/models/{{steps}}": {"get": _model(charter)},
            artefact_path("{digest}"): {"get": _artefact()},
            enrolments_path(): {
                "post": _signed("Use an invitation", "application/json", _ref("Enrolment"))
            },
            check_ins_path("{step}"): {
                "post": _signed("Check in, where one is asked (one-client)")
            },
            requests_path(step): {"post": _signed("Is my update asked for? (one-client)")},
            updates_path(step): {
                "post": _signed("Send an update", _BINARY, update, charter.update_format)
            },
            covers_path(step): {
                "post": _signed("Send cover traffic", _BINARY, update, charter.update_format)
            },
            HEADS_PATH: {"post": _told()},
        },
        "components": {"schemas": _schemas(), "headers": {"RetryAfter": _RETRY_AFTER}},
    }


def _schemas() -> Document:
    text, count, seconds = {"type": "string"}, _count(), {"type": "number", "minimum": 0}
    hex32 = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
    return {
        "Charter": {"type": "object"},
        "Status": _object(
            task=hex32,
            step=count,
            steps=count,
            phase={"enum": [phase.value for phase in StepPhase]},
            seconds_left=seconds,
            seconds_to_next_step=seconds,
            head=text,
            model_steps=count,
        ),
        "Record": _object(
            task=hex32, step=count, sum=hex32, model=hex32, epsilon=text, delta=text, previous=hex32
        ),
        "Records": _object(records={"type": "array", "items": _ref("Record")}),
        "Enrolment": _object(client=count, public_key=hex32, secret=hex32)
        | {"description": f"At most {ENROLMENT_BYTES} bytes."},
        "Receipt": {
            "type": "object",
            "required": ["answer"],
            "additionalProperties": False,
            "properties": {
                "answer": {"enum": [answer.value for answer in WireAnswer]},
                "task": hex32,
                "client": count,
                "step": {"type": "integer", "minimum": -1},
                "digest": hex32,
                "detail": text,
                "asked": {"type": "boolean"},
            },
        },
        "Unknown": _object(answer={"const": WireAnswer.UNKNOWN.value}),
        "Told": _object(answer={"const": WireAnswer.ACCEPTED.value}),
        "Detail": _object(detail=text),
    }


def _signed(
    summary: str,
    kind: str | None = None,
    schema: Document | None = None,
    body_format: str = ENROLMENT_FORMAT,
) -> Document:
    """A signed request; without a kind it has no body."""
    head = "The signed head that the device saw last; absent before the first."
    operation: Document = {
        "summary": summary,
        "parameters": [
            _header(CLIENT_HEADER, _COUNT, "The client's id."),
            _header(NONCE_HEADER, "^[0-9a-f]{32}$", "Fresh in every request."),
            _header(DIGEST_HEADER, "^[0-9a-f]{64}$", "SHA-256 of the body."),
            _header(SIGNATURE_HEADER, "^[0-9a-f]{128}$", "Ed25519."),
            _header(HEAD_HEADER, "^[0-9]+:[0-9a-f]{64}:[0-9a-f]{128}$", head, required=False),
        ],
        "responses": {
            **{
                str(code): _answer(text, _json("Unknown" if code == 401 else "Receipt"))
                for code, text in _RECEIPTS.items()
            },
            **{str(code): _answer(text, _json("Detail")) for code, text in _DETAILS.items()},
        },
    }
    operation["responses"]["503"] |= _RETRIED
    if summary != "Use an invitation":
        operation["parameters"].insert(0, _path("step"))
    if kind is not None:
        named = _header(FORMAT_HEADER, f"^{body_format}$", "Name of the body's format.")
        operation["parameters"].append(named)
        operation["requestBody"] = {"required": True, "content": {kind: {"schema": schema}}}
    return operation


def _told() -> Document:
    """A head that is newer than the coordinator's own, from anybody."""
    told = {"text/plain": {"schema": {"type": "string", "maxLength": 256}}}
    responses = {
        "200": _answer("the ledger holds it", _json("Told")),
        "422": _answer("not a head that this coordinator signed", _json("Detail")),
        **{str(code): _answer(_DETAILS[code], _json("Detail")) for code in (408, 413, 503)},
    }
    responses["503"] |= _RETRIED
    return {
        "summary": "Tell a newer head",
        "requestBody": {"required": True, "content": told},
        "responses": responses,
    }


def _get(summary: str, content: Document, *parameters: Document) -> Document:
    """A request that everybody may make."""
    responses = {
        "200": _answer("as asked", content),
        "304": {"description": "not changed since the ETag in If-None-Match"},
        "503": _answer(_DETAILS[503], _json("Detail")),
    }
    return {"summary": summary, "parameters": list(parameters), "responses": responses}


def _records() -> Document:
    limit = {"type": "integer", "minimum": 1, "maximum": MOST_RECORDS}
    operation = _get(
        "Published records of the ledger, in order",
        _json("Records"),
        {"name": "from", "in": "query", "schema": _count() | {"maximum": 10**17}},
        {"name": "limit", "in": "query", "schema": limit},
    )
    operation["responses"]["422"] = _answer("another query", _json("Detail"))
    return operation


def _model(charter: Charter) -> Document:
    size = 4 * charter.encoding.dimension
    parameters = {"type": "string", "format": "binary", "minLength": size, "maxLength": size}
    operation = _get(
        "A published model, little-endian float32",
        {_BINARY: {"schema": parameters}},
        _path("steps"),
    )
    operation["responses"]["404"] = _answer("not published", _json("Detail"))
    return operation


def _artefact() -> Document:
    operation = _get(
        "What the charter names by digest: a graph that devices run, or vectors to it",
        {_BINARY: {"schema": {"type": "string", "format": "binary"}}},
        {
            "name": "digest",
            "in": "path",
            "required": True,
            "schema": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
        },
    )
    operation["responses"]["404"] = _answer("the charter names no such thing", _json("Detail"))
    return operation


def _answer(description: str, content: Document) -> Document:
    return {"description": description, "content": content}


def _header(name: str, pattern: str, description: str, *, required: bool = True) -> Document:
    return {
        "name": name,
        "in": "header",
        "required": required,
        "description": description,
        "schema": {"type": "string", "pattern": pattern},
    }


def _path(name: str) -> Document:
    return {"name": name, "in": "path", "required": True, "schema": _count() | {"maximum": 10**17}}


def _count() -> Document:
    return {"type": "integer", "minimum": 0}


def _ref(name: str) -> Document:
    return {"$ref": f"#/components/schemas/{name}"}


def _json(name: str) -> Document:
    return {"application/json": {"schema": _ref(name)}}


def _object(**properties: Document) -> Document:
    return {
        "type": "object",
        "required": list(properties),
        "additionalProperties": False,
        "properties": properties,
    }


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
    described: dict[str, Any] = document(running.charter)

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
