"""The device API: the table of routes, and the handlers of these routes.

`device_routes` is the table: a route that is added there is served and is described in the OpenAPI
document. `DeviceJobs` makes the engine calls of signed requests; `PublicDocuments` reads charter,
status, models and records, all of them committed and published.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from urllib.parse import parse_qsl

from turnout.core.errors import RemoteProtocolError
from turnout.service.contract.charter import Charter
from turnout.service.contract.ledger import COUNT, Document
from turnout.service.contract.wire import (
    CHARTER_PATH,
    ENROLMENT_FORMAT,
    HEADS_PATH,
    MODELS_PATH,
    RECORDS_PATH,
    STATUS_CODES,
    STATUS_PATH,
    CharterDocument,
    DetailDocument,
    EnrolmentDocument,
    ReceiptDocument,
    RecordDocument,
    RecordsDocument,
    StatusDocument,
    StepPhase,
    ToldDocument,
    UnknownDocument,
    WireAnswer,
    WireReceipt,
    artefact_path,
    check_ins_path,
    dummy_traffic_path,
    enrolments_path,
    requests_path,
    updates_path,
)
from turnout.service.coordinator.engine import Upload
from turnout.service.storage.writes import Transaction
from turnout.service.web.answers import (
    BUSY,
    JSON,
    NOT_FOUND,
    NUMBER,
    Application,
    Receive,
    RefusedError,
    Scope,
    Send,
    respond,
)
from turnout.service.web.routes import MOST_STEPS, Answer, Binary, DeviceRoute, Json, Text
from turnout.service.web.running import Running
from turnout.service.web.signed import (
    HEAD_BYTES,
    EnrolmentRoute,
    HeadsRoute,
    Job,
    SignedRoute,
    enrolment_of,
)

ENROLMENT_BYTES, NO_BODY_BYTES = 1024, 64
"""Largest body that is read for an enrolment, and for a request that must have no body."""
MOST_RECORDS = 1000
"""Largest number of records in one answer."""

# -- the table ----------------------------------------------------------------------------------


def device_routes(charter: Charter) -> tuple[DeviceRoute, ...]:
    """Table of all routes of the device API of one task."""
    # Lengths of bodies depend on the charter.
    model = Binary(4 * charter.encoding.dimension)
    update = Binary(charter.encoding.encoded_size)
    return _public_routes(model) + _request_routes(update, charter.update_format)


def _public_routes(model: Binary) -> tuple[DeviceRoute, ...]:
    """Routes of public documents, which need no authentication."""
    # First the documents about the task, then the contents that devices fetch by name.
    return (
        _public(
            CHARTER_PATH, "The frozen terms, canonical", CharterDocument, PublicDocuments.charter
        ),
        _public(STATUS_PATH, "State of the schedule", StatusDocument, PublicDocuments.status),
        _public(
            RECORDS_PATH,
            "Published records of the ledger, in order",
            RecordsDocument,
            PublicDocuments.records,
            query={
                "from": COUNT | {"maximum": MOST_STEPS},
                "limit": {"type": "integer", "minimum": 1, "maximum": MOST_RECORDS},
            },
            refused={422: "the query is invalid"},
        ),
        _public(
            MODELS_PATH + "/{steps}",
            "A published model, little-endian float32",
            model,
            PublicDocuments.model,
            refused={404: "not published"},
        ),
        _public(
            artefact_path("{digest}"),
            "Content named by digest in the charter: a graph that devices run, or its test vectors",
            Binary(),
            PublicDocuments.artefact,
            refused={404: "the charter names no such content"},
        ),
    )


def _request_routes(update: Binary, update_format: str) -> tuple[DeviceRoute, ...]:
    """Routes for signed requests of devices and for presented ledger heads."""
    # In the order of a participation: enrolment, check-in and choice, update or dummy traffic.
    step = "{step}"
    return (
        _signed(
            enrolments_path(),
            "Use an invitation",
            DeviceJobs.enrol,
            body=Json(EnrolmentDocument, ENROLMENT_BYTES),
            body_format=ENROLMENT_FORMAT,
            kind=EnrolmentRoute,
        ),
        _signed(check_ins_path(step), "Check in (one-client rule)", DeviceJobs.check_in),
        _signed(
            requests_path(step),
            "Whether the client's update is requested (one-client rule)",
            DeviceJobs.request,
        ),
        _signed(
            updates_path(step),
            "Send an update",
            DeviceJobs.update,
            body=update,
            body_format=update_format,
        ),
        _signed(
            dummy_traffic_path(step),
            "Send dummy traffic",
            DeviceJobs.dummy_traffic,
            body=update,
            body_format=update_format,
        ),
        # A ledger head bears the coordinator's own signature, so the request needs none.
        DeviceRoute(
            "POST",
            HEADS_PATH,
            "Present a newer ledger head",
            {
                200: Answer("the ledger has it", Json(ToldDocument)),
                422: Answer("not a head that this coordinator signed", Json(DetailDocument)),
                **{status: _DETAILS[status] for status in (408, 413, 503)},
            },
            lambda running, _route: HeadsRoute(running),
            body=Text(HEAD_BYTES),
        ),
    )


_OUTCOMES = {
    WireAnswer.ACCEPTED: "accepted; the same for every copy, as long as the coordinator has the "
    "first one",
    WireAnswer.UNKNOWN: "no device of this task signed the request; always the same bytes",
    WireAnswer.CONFLICT: "conflict with stored data",
    WireAnswer.LATE: "late: the step, or its phase, is over",
    WireAnswer.REFUSED: "refused because of its content",
    WireAnswer.EARLY: "early: the step, or its phase, has not begun",
}
_DETAILS = {
    404: Answer("no such path, or a step that the run does not have", Json(DetailDocument)),
    408: Answer("the body took too long", Json(DetailDocument)),
    413: Answer("the body is too long", Json(DetailDocument)),
    503: Answer(
        "nothing was stored; send the request again after Retry-After seconds",
        Json(DetailDocument),
        retry_after=True,
    ),
}
_SIGNED_ANSWERS = {
    STATUS_CODES[outcome]: Answer(
        meaning, Json(UnknownDocument if outcome is WireAnswer.UNKNOWN else ReceiptDocument)
    )
    for outcome, meaning in _OUTCOMES.items()
} | _DETAILS


def _signed(
    path: str,
    summary: str,
    prepare: Callable[[DeviceJobs, int, int, bytes, bytes], Job],
    *,
    body: Json | Binary | None = None,
    body_format: str = "",
    kind: type[SignedRoute] = SignedRoute,
) -> DeviceRoute:
    """Table entry of a route for signed requests; ``prepare`` returns the writer's job."""
    # The limit of the body, from its description.
    limit = NO_BODY_BYTES if body is None else body.most_bytes
    assert limit is not None  # a request has a largest body

    def handler(running: Running, route: DeviceRoute) -> Application:
        call = partial(prepare, DeviceJobs(running))
        return kind(running, route.name, path, limit, call, body_format=body_format)

    # Every signed request is a POST with the same answers.
    return DeviceRoute(
        "POST",
        path,
        summary,
        _SIGNED_ANSWERS,
        handler,
        body=body,
        body_format=body_format,
        signed=True,
    )


def _public(
    path: str,
    summary: str,
    content: type | Binary,
    find: Callable[[PublicDocuments, Scope], Awaitable[Representation]],
    *,
    query: Mapping[str, Document] | None = None,
    refused: Mapping[int, str] | None = None,
) -> DeviceRoute:
    """Table entry of a route without authentication; ``find`` returns the answer."""
    # Answers that every public route has, and those of this route.
    answers = {
        200: Answer("success", content if isinstance(content, Binary) else Json(content)),
        304: Answer("not changed since the ETag in If-None-Match"),
        503: Answer(_DETAILS[503].meaning, Json(DetailDocument)),
    }
    for status, meaning in (refused or {}).items():
        answers[status] = Answer(meaning, Json(DetailDocument))

    def handler(running: Running, route: DeviceRoute) -> Application:
        return PublicRoute(running, route.name, partial(find, PublicDocuments(running)))

    return DeviceRoute("GET", path, summary, answers, handler, query)


# -- signed requests ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DeviceJobs:
    """Writer's jobs that pass the signed requests to the engine.

    The arguments of each method are client, step, body and the body's SHA-256. A method raises
    RemoteProtocolError if the body cannot belong to the route.
    """

    running: Running

    def enrol(self, client: int, step: int, body: bytes, digest: bytes) -> Job:
        """Job that uses an invitation and stores the client's public key."""
        del step, digest
        fields = enrolment_of(body)
        assert fields is not None  # it was signed by the key in it
        _, key, secret = fields
        return lambda tx: self.running.engine.enrol(tx, client, secret, key)

    def check_in(self, client: int, step: int, body: bytes, digest: bytes) -> Job:
        """Job that records a check-in under the one-client rule."""
        del digest
        _require_empty(body)
        return lambda tx: self.running.engine.check_in(tx, client, step)

    def request(self, client: int, step: int, body: bytes, digest: bytes) -> Job:
        """Job that reports whether the client's update is requested (one-client rule)."""
        del digest
        _require_empty(body)
        return lambda tx: self.running.engine.requested(tx, client, step)

    def update(self, client: int, step: int, body: bytes, digest: bytes) -> Job:
        """Job that stores a client's update."""
        upload = self.running.engine.inspect(body, digest)
        return lambda tx: self.running.engine.update(tx, client, step, upload)

    def dummy_traffic(self, client: int, step: int, body: bytes, digest: bytes) -> Job:
        """Job that processes dummy traffic like an update, without counting it.

        Raises:
            RemoteProtocolError: the body is not as long as an update, or the task has the
                one-client rule.
        """
        engine = self.running.engine
        if len(body) != engine.charter.encoding.encoded_size:
            raise RemoteProtocolError("dummy traffic must be as long as an update")
        if engine.charter.asks_one:
            raise RemoteProtocolError("dummy traffic hides nothing under the one-client rule")
        # The content need not be an update: only the time of checking it matters.
        with suppress(RemoteProtocolError):
            engine.inspect(body, digest)
        return lambda tx: self._dummy_receipt(tx, client, step, Upload(body, digest))

    def _dummy_receipt(
        self, tx: Transaction, client: int, step: int, upload: Upload
    ) -> WireReceipt:
        """Receipt for dummy traffic, after the same read of the storage as for an update."""
        engine, task = self.running.engine, self.running.task
        tx.participation_at(client, step)
        if step > engine.step:
            return WireReceipt(
                WireAnswer.EARLY, task, client, step, detail="this step is not open yet"
            )
        if step < engine.step or engine.phase is not StepPhase.CHECK_INS:
            return WireReceipt(WireAnswer.LATE, task, client, step, detail="this step is over")
        return WireReceipt(WireAnswer.ACCEPTED, task, client, step, upload.digest)


def _require_empty(body: bytes) -> None:
    """Refuse a request that has a body."""
    if body:
        raise RemoteProtocolError("this request must have no body")


# -- public documents ---------------------------------------------------------------------------

_BINARY = b"application/octet-stream"
_FOREVER = (b"cache-control", b"public, max-age=31536000, immutable")
_BAD_RANGE = json.dumps(
    {"detail": f"query: expected from = a count, limit = 1 to {MOST_RECORDS}, and nothing else"}
).encode()

Headers = tuple[tuple[bytes, bytes], ...]
Representation = tuple[int, bytes, bytes, Headers]


class PublicRoute:
    """ASGI application of one route without authentication.

    Args:
        running: the task.
        name: name of the route in metrics.
        find: returns status, body, media type and further headers of the answer.
    """

    def __init__(
        self, running: Running, name: str, find: Callable[[Scope], Awaitable[Representation]]
    ) -> None:
        self._running, self._name, self._find = running, name, find

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        del receive
        try:
            if self._running.ended:
                raise RefusedError(503, BUSY)
            status, body, kind, more = await self._find(scope)
        except RefusedError as refused:
            status, body, kind, more = refused.status, refused.body, JSON, ()
        self._running.metrics.requests.labels(self._name, status).inc()
        await respond(send, status, body, kind, more, head=scope["method"] == "HEAD")


class PublicDocuments:
    """Answers of the public routes: status, body, media type and further headers."""

    def __init__(self, running: Running) -> None:
        self._running = running

    @cached_property
    def _charter(self) -> bytes:
        """Canonical bytes of the charter."""
        return self._running.charter.canonical()

    async def charter(self, scope: Scope) -> Representation:
        """Canonical bytes of the charter, whose SHA-256 is the task's name."""
        tag = f'"{self._running.task}"'.encode()
        return _with_tag(scope, self._charter, JSON, tag)

    async def status(self, scope: Scope) -> Representation:
        """State of the schedule, as a `StatusDocument`."""
        del scope
        running = self._running
        shown, at = running.shown, running.progress()
        document: StatusDocument = {
            "task": running.task,
            "step": at.step,
            "steps": running.charter.steps,
            "phase": at.phase,
            "seconds_left": round(at.seconds_left, 3),
            "seconds_to_next_step": round(at.seconds_to_next_step, 3),
            "head": str(shown.head),
            "model_steps": at.head.steps,
        }
        return 200, json.dumps(document, separators=(",", ":")).encode(), JSON, ()

    async def model(self, scope: Scope) -> Representation:
        """Model parameters after the requested number of published releases.

        Raises:
            RefusedError: this model is not published.
        """
        text = scope["path_params"]["steps"].encode()
        shown = self._running.shown
        if not NUMBER.fullmatch(text) or int(text) > shown.published.head.steps:
            raise RefusedError(404, NOT_FOUND)
        if int(text) == shown.published.head.steps:
            body, tag = shown.published.parameters, shown.etag
        else:
            body, tag = await asyncio.to_thread(self._earlier_model, int(text))
        return _with_tag(scope, body, _BINARY, tag.encode())

    def _earlier_model(self, steps: int) -> tuple[bytes, str]:
        """Parameters and ETag of a published model that is not the newest model."""
        running = self._running
        with running.storage.snapshot() as view:
            if steps == 0:
                return view.initial_parameters(), f'"{running.charter.initial_model.hex()}"'
            release = view.release_at(steps - 1)
        if release is None:
            raise RefusedError(404, NOT_FOUND)
        return release.parameters, f'"{release.record.model_digest.hex()}"'

    async def artefact(self, scope: Scope) -> Representation:
        """Artefact, such as a graph or test vectors, whose digest the charter contains.

        Raises:
            RefusedError: the charter contains no such digest.
        """
        named = scope["path_params"]["digest"]
        of_task = {one.digest.hex() for one in self._running.charter.computation.artefacts}
        if named not in of_task:
            raise RefusedError(404, NOT_FOUND)
        content = await asyncio.to_thread(self._content, bytes.fromhex(named))
        return _with_tag(scope, content, _BINARY, f'"{named}"'.encode())

    def _content(self, digest: bytes) -> bytes:
        """Stored content with a given SHA-256 digest."""
        with self._running.storage.snapshot() as view:
            content = view.artefact(digest)
        if content is None:
            raise RefusedError(404, NOT_FOUND)
        return content

    async def records(self, scope: Scope) -> Representation:
        """Published records of the ledger, as a `RecordsDocument`."""
        first, limit = _range(scope.get("query_string", b""))
        until = self._running.shown.published.head.steps
        found = await asyncio.to_thread(self._documents, first, min(limit, until - first))
        document: RecordsDocument = {"records": found}
        body = json.dumps(document, sort_keys=True, separators=(",", ":"))
        return 200, body.encode(), JSON, ()

    def _documents(self, first: int, count: int) -> list[RecordDocument]:
        """JSON forms of at most ``count`` ledger records from step ``first`` on."""
        if count <= 0:
            return []
        with self._running.storage.snapshot() as view:
            records = view.records(first)
            return [record.document() for record, _ in zip(records, range(count), strict=False)]


def _range(query: bytes) -> tuple[int, int]:
    """Values of the query parameters ``from`` and ``limit``, or their defaults.

    Raises:
        RefusedError: a parameter is unknown or repeated, or a value is outside its domain.
    """
    try:
        pairs = parse_qsl(query.decode("ascii"), keep_blank_values=True, strict_parsing=bool(query))
    except ValueError:
        raise RefusedError(422, _BAD_RANGE) from None
    given = dict(pairs)
    known = len(given) == len(pairs) and set(given) <= {"from", "limit"}
    values = [given.get("from", "0"), given.get("limit", str(MOST_RECORDS))]
    if not known or not all(NUMBER.fullmatch(value.encode()) for value in values):
        raise RefusedError(422, _BAD_RANGE)
    first, limit = map(int, values)
    if not 1 <= limit <= MOST_RECORDS:
        raise RefusedError(422, _BAD_RANGE)
    return first, limit


def _with_tag(scope: Scope, body: bytes, kind: bytes, tag: bytes) -> Representation:
    """Answer with the body, or with status 304 if the request has the body's ETag."""
    more = ((b"etag", tag), _FOREVER)
    for name, value in scope["headers"]:
        if name == b"if-none-match" and tag in [part.strip() for part in value.split(b",")]:
            return 304, b"", kind, more
    return 200, body, kind, more
