"""Routes of devices: the engine calls of signed requests, and the public documents.

`signed_routes` lists the calls; `public_routes` serves charter, status, models and records, all of
them committed and due.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import parse_qsl

from turnout.core.errors import RemoteProtocolError
from turnout.service.contract.wire import (
    CHARTER_PATH,
    ENROLMENT_FORMAT,
    PREFIX,
    RECORDS_PATH,
    STATUS_PATH,
    StepPhase,
    WireAnswer,
    WireReceipt,
    artefact_path,
    check_ins_path,
    covers_path,
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
    Receive,
    RefusedError,
    Scope,
    Send,
    respond,
)
from turnout.service.web.running import Running
from turnout.service.web.signed import EnrolmentRoute, Job, Prepare, SignedRoute, enrolment_of

ENROLMENT_BYTES, NO_BODY_BYTES = 1024, 64
"""Most bytes that are read of an enrolment, and of what has no body."""


@dataclass(frozen=True, slots=True)
class DeviceJobs:
    """The engine call of each route."""

    running: Running

    def enrol(self, client: int, step: int, body: bytes, digest: bytes) -> Job:
        """Use an invitation; from the commit on the key is known."""
        del step, digest
        fields = enrolment_of(body)
        assert fields is not None  # it was signed by the key in it
        _, key, secret = fields
        running = self.running

        def job(tx: Transaction) -> WireReceipt:
            return running.engine.enrol(tx, client, secret, key)

        return job

    def update(self, client: int, step: int, body: bytes, digest: bytes) -> Job:
        """An update."""
        upload = self.running.engine.inspect(body, digest)
        return lambda tx: self.running.engine.update(tx, client, step, upload)

    def cover(self, client: int, step: int, body: bytes, digest: bytes) -> Job:
        """All that an update gets, and counted nowhere."""
        engine = self.running.engine
        if len(body) != engine.charter.encoding.encoded_size:
            raise RemoteProtocolError("cover is as long as an update")
        if engine.charter.asks_one:
            raise RemoteProtocolError("cover hides nothing where one of many is asked")
        with suppress(RemoteProtocolError):  # it need not be one; the work is what counts
            engine.inspect(body, digest)
        return lambda tx: self._covered(tx, client, step, Upload(body, digest))

    def _covered(self, tx: Transaction, client: int, step: int, upload: Upload) -> WireReceipt:
        engine, task = self.running.engine, self.running.task
        tx.participation_at(client, step)
        if step > engine.step:
            return WireReceipt(
                WireAnswer.EARLY, task, client, step, detail="this step is not open yet"
            )
        if step < engine.step or engine.phase is not StepPhase.CHECK_INS:
            return WireReceipt(WireAnswer.LATE, task, client, step, detail="this step is over")
        return WireReceipt(WireAnswer.ACCEPTED, task, client, step, upload.digest)


def signed_routes(running: Running) -> dict[str, SignedRoute]:
    """All routes that take signed requests, by path."""
    jobs, size = DeviceJobs(running), running.charter.encoding.encoded_size
    enrolments, update_format = enrolments_path(), running.charter.update_format
    routes: dict[str, SignedRoute] = {
        enrolments: EnrolmentRoute(
            running,
            "enrolments",
            lambda _: enrolments,
            ENROLMENT_BYTES,
            jobs.enrol,
            body_format=ENROLMENT_FORMAT,
        )
    }
    for path, limit, prepare, body_format in (
        (check_ins_path, NO_BODY_BYTES, _bare(running.engine.check_in), ""),
        (requests_path, NO_BODY_BYTES, _bare(running.engine.requested), ""),
        (updates_path, size, jobs.update, update_format),
        (covers_path, size, jobs.cover, update_format),
    ):
        template = path("{step}")
        name = template.rpartition("/")[2]
        routes[template] = SignedRoute(running, name, path, limit, prepare, body_format=body_format)
    return routes


def _bare(ask: Callable[[Transaction, int, int], WireReceipt]) -> Prepare:
    """The job of a request that has no body."""

    def prepare(client: int, step: int, body: bytes, digest: bytes) -> Job:
        if body:
            raise RemoteProtocolError("this request has no body")
        return lambda tx: ask(tx, client, step)

    return prepare


MOST_RECORDS = 1000
_BINARY = b"application/octet-stream"
_FOREVER = (b"cache-control", b"public, max-age=31536000, immutable")
_BAD_RANGE = json.dumps(
    {"detail": f"from: a count; limit: 1 to {MOST_RECORDS}; nothing else"}
).encode()

Headers = tuple[tuple[bytes, bytes], ...]
Representation = tuple[int, bytes, bytes, Headers]


class PublicRoute:
    """An ASGI application: one route that everybody may read."""

    def __init__(
        self, running: Running, name: str, find: Callable[[Scope], Awaitable[Representation]]
    ) -> None:
        self._running, self._name, self._find = running, name, find

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        del receive
        try:
            if self._running.ended:
                raise RefusedError(503, BUSY)
            status, body, kind, more = await self._find(scope)
        except RefusedError as refused:
            status, body, kind, more = refused.status, refused.body, JSON, ()
        self._running.metrics.requests.labels(self._name, status).inc()
        await respond(send, status, body, kind, more, head=scope["method"] == "HEAD")


def public_routes(running: Running) -> dict[str, PublicRoute]:
    """All routes of the device API that need no signature, by path."""
    found = _Published(running)
    return {
        CHARTER_PATH: PublicRoute(running, "charter", found.charter),
        STATUS_PATH: PublicRoute(running, "status", found.status),
        RECORDS_PATH: PublicRoute(running, "records", found.records),
        f"{PREFIX}/models/{{steps}}": PublicRoute(running, "models", found.model),
        artefact_path("{digest}"): PublicRoute(running, "artefacts", found.artefact),
    }


class _Published:
    def __init__(self, running: Running) -> None:
        self._running = running
        self._charter = running.charter.canonical()

    async def charter(self, scope: Scope) -> Representation:
        """The canonical bytes, whose SHA-256 is the task's name."""
        tag = f'"{self._running.task}"'.encode()
        return _tagged(scope, self._charter, JSON, tag)

    async def status(self, scope: Scope) -> Representation:
        """The state of the schedule."""
        del scope
        running = self._running
        shown, at = running.shown, running.progress()
        document = {
            "task": running.task,
            "step": at.step,
            "steps": running.charter.steps,
            "phase": at.phase.value,
            "seconds_left": round(at.seconds_left, 3),
            "seconds_to_next_step": round(at.seconds_to_next_step, 3),
            "head": str(shown.head),
            "model_steps": at.head.steps,
        }
        return 200, json.dumps(document, separators=(",", ":")).encode(), JSON, ()

    async def model(self, scope: Scope) -> Representation:
        """Parameters after so many published releases."""
        text = scope["path_params"]["steps"].encode()
        shown = self._running.shown
        if not NUMBER.fullmatch(text) or int(text) > shown.published.head.steps:
            raise RefusedError(404, NOT_FOUND)
        if int(text) == shown.published.head.steps:
            body, tag = shown.published.parameters, shown.etag
        else:
            body, tag = await asyncio.to_thread(self._earlier, int(text))
        return _tagged(scope, body, _BINARY, tag.encode())

    def _earlier(self, steps: int) -> tuple[bytes, str]:
        """A model that was published before."""
        running = self._running
        with running.storage.snapshot() as view:
            if steps == 0:
                return view.initial_parameters(), f'"{running.charter.initial_model.hex()}"'
            release = view.release_at(steps - 1)
        if release is None:
            raise RefusedError(404, NOT_FOUND)
        return release.parameters, f'"{release.record.model_digest.hex()}"'

    async def artefact(self, scope: Scope) -> Representation:
        """The content that the charter names by its digest."""
        named = scope["path_params"]["digest"]
        of_task = {one.digest.hex() for one in self._running.charter.computation.artefacts}
        if named not in of_task:
            raise RefusedError(404, NOT_FOUND)
        content = await asyncio.to_thread(self._content, bytes.fromhex(named))
        return _tagged(scope, content, _BINARY, f'"{named}"'.encode())

    def _content(self, digest: bytes) -> bytes:
        with self._running.storage.snapshot() as view:
            content = view.artefact(digest)
        if content is None:
            raise RefusedError(404, NOT_FOUND)
        return content

    async def records(self, scope: Scope) -> Representation:
        """The ledger's published records from a step on, so many at most."""
        first, limit = _range(scope.get("query_string", b""))
        until = self._running.shown.published.head.steps
        documents = await asyncio.to_thread(self._documents, first, min(limit, until - first))
        body = json.dumps({"records": documents}, sort_keys=True, separators=(",", ":"))
        return 200, body.encode(), JSON, ()

    def _documents(self, first: int, count: int) -> list[dict[str, object]]:
        if count <= 0:
            return []
        with self._running.storage.snapshot() as view:
            records = view.records(first)
            return [record.document() for record, _ in zip(records, range(count), strict=False)]


def _range(query: bytes) -> tuple[int, int]:
    """``from`` and ``limit`` of a query, each at most once."""
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


def _tagged(scope: Scope, body: bytes, kind: bytes, tag: bytes) -> Representation:
    """The body, or that it did not change; what has this tag never does."""
    more = ((b"etag", tag), _FOREVER)
    for name, value in scope["headers"]:
        if name == b"if-none-match" and tag in [part.strip() for part in value.split(b",")]:
            return 304, b"", kind, more
    return 200, body, kind, more
