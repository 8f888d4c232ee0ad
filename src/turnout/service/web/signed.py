"""Signed requests of devices: from bytes on the wire to a durable receipt.

`SignedRoute` checks in this order: length and headers, signature, the device's ledger head, the
format of the body, the body, the body's digest; then the engine answers. Nothing that depends on
stored data happens before the signature is checked. The signature covers the headers alone, so no
byte of a body is read for an unauthenticated client. Every request without a valid signature, or
with another body than the signed one, gets the same answer. `HeadsRoute` accepts from anyone a
ledger head that is newer than the coordinator's own. `EnrolmentRoute` uses invitations.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import time
from collections.abc import Callable
from typing import Any, TypeAlias

from turnout.core.errors import RemoteProtocolError, StorageError
from turnout.service.contract.ledger import verified
from turnout.service.contract.wire import (
    KEY_BYTES,
    SECRET_BYTES,
    STATUS_CODES,
    SignedHead,
    WireAnswer,
    WireReceipt,
    head_bytes,
)
from turnout.service.coordinator.engine import SetBackError
from turnout.service.storage.writes import Transaction
from turnout.service.web.answers import (
    BUSY,
    CONNECTION,
    NOT_FOUND,
    NUMBER,
    UNKNOWN,
    ClientIdentity,
    Receive,
    RefusedError,
    Scope,
    Send,
    read_body,
    require_short,
    respond,
)
from turnout.service.web.running import Running

HEAD_BYTES = 256
"""Largest body of a request that presents a ledger head."""
_ACCEPTED = b'{"answer":"accepted"}'
_REFUSED = b'{"detail":"not a head that this coordinator signed"}'


def ledger_has(running: Running, seen: SignedHead) -> bool:
    """Whether the ledger contains the ledger head that a device presents.

    Raises:
        RefusedError: this coordinator signed the ledger head, but the storage does not have it; the
            process ends.
    """

    def is_own_signature() -> bool:
        message = head_bytes(running.task, seen.head)
        return verified(running.charter.coordinator_key, seen.signature, message)

    try:
        return running.engine.has_head(seen, is_own_signature)
    except SetBackError as error:
        running.set_back(error)
        raise RefusedError(503, BUSY) from None


class HeadsRoute:
    """ASGI application that receives signed ledger heads from any client.

    Only the coordinator's signature on the ledger head counts. So the request needs no identity,
    and a client that is unknown to an old copy of the storage can present a ledger head too.
    """

    def __init__(self, running: Running) -> None:
        self._running = running

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        try:
            status, body = await self._answered(scope, receive)
        except RefusedError as refused:
            status, body = refused.status, refused.body
        self._running.metrics.requests.labels("heads", status).inc()
        await respond(send, status, body)

    async def _answered(self, scope: Scope, receive: Receive) -> tuple[int, bytes]:
        """HTTP status and body of the answer to one request."""
        running = self._running
        if running.ended:
            raise RefusedError(503, BUSY)
        try:
            seen = SignedHead.parsed((await _body(scope, receive)).decode("ascii"))
        except ValueError:
            return 422, _REFUSED
        return (200, _ACCEPTED) if ledger_has(running, seen) else (422, _REFUSED)


async def _body(scope: Scope, receive: Receive) -> bytes:
    """Whole body of a request that presents a ledger head; the body is short."""
    require_short(scope, HEAD_BYTES)
    return await read_body(receive, HEAD_BYTES)


Job: TypeAlias = Callable[[Transaction], WireReceipt]
Prepare: TypeAlias = Callable[[int, int, bytes, bytes], Job]

_BIG_BODY = 1 << 20


class SignedRoute:
    """ASGI application of one route for signed requests.

    Args:
        running: the task.
        name: name of the route in metrics.
        path: path of the route, with ``{step}`` in place of the step if the path has a step.
        limit: largest body in bytes.
        prepare: function that returns the writer's job for a client, step, body and the body's
            SHA-256; it raises RemoteProtocolError for an invalid body.
        body_format: name of the body's format; "" without a body.
    """

    def __init__(
        self,
        running: Running,
        name: str,
        path: str,
        limit: int,
        prepare: Prepare,
        *,
        body_format: str = "",
    ) -> None:
        self._running, self._name, self._path = running, name, path
        self._limit, self._format, self._prepare = limit, body_format, prepare
        self._steps = running.charter.steps

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        try:
            status, body = await self._answered(scope, receive)
        except RefusedError as refused:
            status, body = refused.status, refused.body
        except StorageError:  # too many jobs wait, or the process ends
            status, body = 503, BUSY
        self._running.metrics.requests.labels(self._name, status).inc()
        await respond(send, status, body)

    async def _answered(self, scope: Scope, receive: Receive) -> tuple[int, bytes]:
        """HTTP status and body of the answer to one request."""
        # Path, length and headers: they depend on the charter alone.
        running = self._running
        if running.ended:
            raise RefusedError(503, BUSY)
        step, path = self._place(scope)
        require_short(scope, self._limit)
        identity = ClientIdentity.parsed(scope["headers"])
        if identity is None:
            return 401, UNKNOWN
        # The signature; only an enrolment needs its body for that.
        body = await read_body(receive, self._limit) if self.reads_first else None
        began = time.perf_counter()
        if not self._known(identity, path, body):
            return 401, UNKNOWN
        if not self.reads_first and (connection := scope.get(CONNECTION)) is not None:
            connection.signed()
        # What a device with a valid signature may still not send.
        receipt = self._head_refused(identity, step) or self._format_refused(identity, step)
        if receipt is None:
            # The body, whose transfer does not count as time of the request.
            reading = time.perf_counter()
            if body is None:
                body = await running.bodies.read(identity.client, receive, self._limit)
            began += time.perf_counter() - reading
            if hashlib.sha256(body).digest() != identity.digest:
                return 401, UNKNOWN
            # The engine's answer, once it is durable.
            receipt = await self._receipt_of(identity, step, body)
        running.metrics.request_seconds.observe(time.perf_counter() - began)
        return STATUS_CODES[receipt.answer], receipt.encoded()

    def _place(self, scope: Scope) -> tuple[int, str]:
        """Step and exact path of a request; the step is −1 if the route has no step.

        Raises:
            RefusedError: the run has no such step, or the path is written in another form.
        """
        text = scope.get("path_params", {}).get("step", "")
        if not text:
            step = -1
        elif NUMBER.fullmatch(text.encode()) and int(text) < self._steps:
            step = int(text)
        else:
            raise RefusedError(404, NOT_FOUND)
        path = self._path.replace("{step}", str(step))
        raw = scope.get("raw_path") or scope["path"].encode()
        if raw.partition(b"?")[0] != path.encode() or scope.get("query_string"):
            raise RefusedError(404, NOT_FOUND)
        return step, path

    reads_first = False
    """Whether the body contains the key that verifies the signature, and so is read first."""

    def _known(self, identity: ClientIdentity, path: str, body: bytes | None) -> bool:
        """Whether the signature of a request is valid under the client's public key."""
        del body
        return self._has_signature_of(self._running.keys.get(identity.client), identity, path)

    def _has_signature_of(self, key: bytes | None, identity: ClientIdentity, path: str) -> bool:
        """Whether the request's signature is valid under ``key``.

        Without a key the same computation is done, so that the time reveals nothing.
        """
        request = identity.request(self._running.task, path)
        return verified(key, identity.signature, request.canonical())

    def _format_refused(self, identity: ClientIdentity, step: int) -> WireReceipt | None:
        """Receipt that refuses another body format than the route's; None for the same format."""
        if identity.format == self._format:
            return None
        given = identity.format or "none"
        detail = f"body format = {given}: expected {self._format or 'none'}"
        return WireReceipt(
            WireAnswer.REFUSED, self._running.task, identity.client, step, detail=detail
        )

    def _head_refused(self, identity: ClientIdentity, step: int) -> WireReceipt | None:
        """Receipt that refuses a ledger head which this coordinator never signed; None otherwise.

        Raises:
            RefusedError: this coordinator signed the ledger head, but the storage does not have it;
                the process ends.
        """
        running, seen = self._running, identity.seen
        if seen is None or ledger_has(running, seen):
            return None
        return WireReceipt(
            WireAnswer.REFUSED,
            running.task,
            identity.client,
            step,
            detail="the ledger head is not one of this ledger",
        )

    async def _receipt_of(self, identity: ClientIdentity, step: int, body: bytes) -> WireReceipt:
        """Receipt of the engine for a valid request, returned once the receipt is durable."""
        running, client, digest = self._running, identity.client, identity.digest
        try:
            if len(body) > _BIG_BODY:
                job = await asyncio.to_thread(self._prepare, client, step, body, digest)
            else:
                job = self._prepare(client, step, body, digest)
        except RemoteProtocolError as error:
            return WireReceipt(WireAnswer.REFUSED, running.task, client, step, detail=str(error))
        return await running.submit(job, len(body))


class EnrolmentRoute(SignedRoute):
    """Route for enrolments, whose body has the device's public key and the invitation's secret.

    Unlike the other routes, this route reads the body of an unauthenticated client, of at most the
    size of an enrolment.
    """

    reads_first = True

    def _known(self, identity: ClientIdentity, path: str, body: bytes | None) -> bool:
        """Whether the request's signature is valid under the public key in the body."""
        client, key, _ = enrolment_of(body or b"") or (-1, None, b"")
        return self._has_signature_of(key, identity, path) and client == identity.client

    async def _receipt_of(self, identity: ClientIdentity, step: int, body: bytes) -> WireReceipt:
        """Receipt of the engine for an enrolment; a wrong secret is refused before the engine."""
        running, client = self._running, identity.client
        _, key, secret = enrolment_of(body) or (-1, b"", b"")
        if not await asyncio.to_thread(self._knows, client, secret):
            return WireReceipt(WireAnswer.UNKNOWN)
        receipt = await super()._receipt_of(identity, step, body)
        if receipt.answer is WireAnswer.ACCEPTED:
            running.keys[client] = key
        return receipt

    def _knows(self, client: int, secret: bytes) -> bool:
        """Whether ``secret`` is the secret of the client's invitation."""
        with self._running.storage.snapshot() as view:
            invitation = view.invitation(client)
        stored = invitation.secret_digest if invitation else bytes(32)
        return hmac.compare_digest(stored, hashlib.sha256(secret).digest())


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Dictionary from the key and value pairs of a JSON object; a repeated key is an error."""
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("the JSON object has a key twice")
    return fields


def enrolment_of(body: bytes) -> tuple[int, bytes, bytes] | None:
    """Client, public key and secret in the body of an enrolment; None for any other body."""
    try:
        fields = json.loads(body.decode("ascii"), object_pairs_hook=_unique_keys)
        client, key, secret = fields["client"], fields["public_key"], fields["secret"]
        if len(fields) != 3 or type(client) is not int:
            return None
        raw, one_time = bytes.fromhex(key), bytes.fromhex(secret)
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    exact = raw.hex() == key and one_time.hex() == secret
    fits = len(raw) == KEY_BYTES and len(one_time) == SECRET_BYTES and 0 <= client < 2**62
    return (client, raw, one_time) if exact and fits else None
