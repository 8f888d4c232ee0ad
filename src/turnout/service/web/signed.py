"""Signed requests of devices: from bytes on the wire to a receipt that is durable.

In this order, and nothing that depends on what is stored before the signature is checked: size,
headers, signature, the head that she saw, the body, the engine. Whoever cannot be identified gets
the same bytes, whatever the reason.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import time
from collections.abc import Callable
from typing import Any, TypeAlias

from prometheus_client import Counter

from turnout.core.errors import RemoteProtocolError, StorageError
from turnout.service.engine import SetBackError
from turnout.service.signatures import verified
from turnout.service.storage.interface import Transaction
from turnout.service.storage.writer import BusyError
from turnout.service.web.answers import (
    BUSY,
    NOT_FOUND,
    TOO_LARGE,
    TOO_SLOW,
    UNKNOWN,
    Receive,
    RefusedError,
    Scope,
    Send,
    part_of,
    received,
    respond,
)
from turnout.service.web.identity import NUMBER, Identity
from turnout.service.web.running import Running
from turnout.service.wire import (
    KEY_BYTES,
    SECRET_BYTES,
    STATUS_CODES,
    Answer,
    Receipt,
    SignedRequest,
    head_bytes,
)

Job: TypeAlias = Callable[[Transaction], Receipt]

_BIG_BODY = 1 << 20
_BODY_SECONDS = 30.0


class SignedRoute:
    """An ASGI application: one route that takes signed requests.

    Args:
        running: the task.
        name: of the route, for metrics.
        path: the route's path, given a step where it has one.
        limit: most bytes of a body.
        prepare: turns an identity, a step, a body and its digest into a job for the writer;
            raises RemoteProtocolError where the body is none that may be sent.
    """

    def __init__(
        self,
        running: Running,
        name: str,
        path: Callable[[int], str],
        limit: int,
        prepare: Callable[[int, int, bytes, bytes], Job],
    ) -> None:
        self._running, self._name, self._path = running, name, path
        self._limit, self._prepare = limit, prepare
        self._steps = running.charter.steps
        self._counters: dict[int, Counter] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        try:
            status, body = await self._answered(scope, receive)
        except RefusedError as refused:
            status, body = refused.status, refused.body
        except StorageError:  # too much is waiting, or the process is ending
            status, body = 503, BUSY
        self._counted(status)
        await respond(send, status, body)

    def _counted(self, status: int) -> None:
        counter = self._counters.get(status)
        if counter is None:
            counter = self._running.metrics.requests.labels(self._name, status)
            self._counters[status] = counter
        counter.inc()

    async def _answered(self, scope: Scope, receive: Receive) -> tuple[int, bytes]:
        running = self._running
        if running.ended:
            raise RefusedError(503, BUSY)
        step, path = self._place(scope)
        body = await self._read(scope, receive)
        began = time.perf_counter()
        digest = hashlib.sha256(body).digest()
        identity = Identity.parsed(scope["headers"])
        if identity is None or not self._known(identity, path, body, digest):
            return 401, UNKNOWN
        receipt = self._head_refused(identity, step)
        if receipt is None:
            receipt = await self._decided(identity, step, body, digest)
        running.metrics.request_seconds.observe(time.perf_counter() - began)
        return STATUS_CODES[receipt.answer], receipt.encoded()

    def _place(self, scope: Scope) -> tuple[int, str]:
        """The step and the exact path, as it must be signed; what depends on the charter alone."""
        text = scope.get("path_params", {}).get("step", "")
        if not text:
            step = -1
        elif NUMBER.fullmatch(text.encode()) and int(text) < self._steps:
            step = int(text)
        else:
            raise RefusedError(404, NOT_FOUND)
        path = self._path(step)
        raw = scope.get("raw_path") or scope["path"].encode()
        if raw.partition(b"?")[0] != path.encode() or scope.get("query_string"):
            raise RefusedError(404, NOT_FOUND)
        return step, path

    async def _read(self, scope: Scope, receive: Receive) -> bytes:
        """The body, never more of it than may be; memory for all bodies together is bounded.

        What came at once, as small bodies do, needs no place kept and no deadline.
        """
        running, limit = self._running, self._limit
        for name, value in scope["headers"]:
            if name == b"content-length" and (not value.isdigit() or int(value[:20]) > limit):
                raise RefusedError(413, TOO_LARGE)
        begun, more = await part_of(receive)
        if len(begun) > limit:
            raise RefusedError(413, TOO_LARGE)
        if not more:
            return begun
        if running.reading_bytes and running.reading_bytes + limit > running.most_bytes:
            raise BusyError("too many bodies at once")
        running.reading_bytes += limit
        try:
            async with asyncio.timeout(_BODY_SECONDS):
                return await received(receive, begun, limit)
        except TimeoutError:
            raise RefusedError(408, TOO_SLOW) from None
        finally:
            running.reading_bytes -= limit

    def _known(self, identity: Identity, path: str, body: bytes, digest: bytes) -> bool:
        """Whether the signature is her key's."""
        del body
        return self._signed_by(self._running.keys.get(identity.client), identity, path, digest)

    def _signed_by(self, key: bytes | None, identity: Identity, path: str, digest: bytes) -> bool:
        """Whether the signature is that key's; the same work where there is none."""
        task = self._running.task
        request = SignedRequest(
            task, "POST", path, identity.client, identity.nonce, identity.head, b""
        )
        return verified(key, identity.signature, request.canonical_of(digest))

    def _head_refused(self, identity: Identity, step: int) -> Receipt | None:
        """A receipt for a head that was never this coordinator's.

        Raises:
            RefusedError: it was, and the storage does not have it: nothing goes on.
        """
        running, seen = self._running, identity.seen
        if seen is None:
            return None

        def signed_by_us() -> bool:
            message = head_bytes(running.task, seen.head)
            return verified(running.charter.coordinator_key, seen.signature, message)

        try:
            if running.engine.require_newer(seen, signed_by_us):
                return None
        except SetBackError as error:
            running.set_back(error)
            raise RefusedError(503, BUSY) from None
        return Receipt(
            Answer.REFUSED, running.task, identity.client, step, detail="not a head of this ledger"
        )

    async def _decided(self, identity: Identity, step: int, body: bytes, digest: bytes) -> Receipt:
        """What the engine says, once it is durable."""
        running, client = self._running, identity.client
        try:
            if len(body) > _BIG_BODY:
                job = await asyncio.to_thread(self._prepare, client, step, body, digest)
            else:
                job = self._prepare(client, step, body, digest)
        except RemoteProtocolError as error:
            return Receipt(Answer.REFUSED, running.task, client, step, detail=str(error))
        return await running.submit(job, len(body))


class EnrolmentRoute(SignedRoute):
    """Uses an invitation: the key is in the body, and so is the secret that vouches for it."""

    def _known(self, identity: Identity, path: str, body: bytes, digest: bytes) -> bool:
        client, key, _ = enrolment_of(body) or (-1, None, b"")
        return self._signed_by(key, identity, path, digest) and client == identity.client

    async def _decided(self, identity: Identity, step: int, body: bytes, digest: bytes) -> Receipt:
        """What the engine says; who does not know the secret never reaches the writer."""
        running, client = self._running, identity.client
        _, key, secret = enrolment_of(body) or (-1, b"", b"")
        if not await asyncio.to_thread(self._knows, client, secret):
            return Receipt(Answer.UNKNOWN)
        receipt = await super()._decided(identity, step, body, digest)
        if receipt.answer is Answer.ACCEPTED:
            running.keys[client] = key
        return receipt

    def _knows(self, client: int, secret: bytes) -> bool:
        with self._running.storage.snapshot() as view:
            invitation = view.invitation(client)
        stored = invitation.secret_digest if invitation else bytes(32)
        return hmac.compare_digest(stored, hashlib.sha256(secret).digest())


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of these pairs, each key once."""
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("a key is given twice")
    return fields


def enrolment_of(body: bytes) -> tuple[int, bytes, bytes] | None:
    """Client, public key and secret in an enrolment; None for any other body."""
    try:
        fields = json.loads(body.decode("ascii"), object_pairs_hook=_once)
        client, key, secret = fields["client"], fields["public_key"], fields["secret"]
        if len(fields) != 3 or type(client) is not int:
            return None
        raw, one_time = bytes.fromhex(key), bytes.fromhex(secret)
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    exact = raw.hex() == key and one_time.hex() == secret
    fits = len(raw) == KEY_BYTES and len(one_time) == SECRET_BYTES and 0 <= client < 2**62
    return (client, raw, one_time) if exact and fits else None
