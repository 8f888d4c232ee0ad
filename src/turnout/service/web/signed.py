"""Signed requests of devices: from bytes on the wire to a receipt that is durable.

`SignedRoute` works in this order, and nothing that depends on what is stored happens before the
signature is checked: length and headers, signature, the head that the device saw, the body's
format, the body, its digest, the engine. The signature is over the headers alone, so no byte of a
body is read for an unauthenticated client. A client that cannot be identified gets the same bytes,
whatever the reason; a body that is not the signed one was sent by no known client. `HeadsRoute`
takes a head that is newer than the coordinator's own, which anyone may present.
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
    received,
    require_short,
    respond,
)
from turnout.service.web.running import Running

HEAD_BYTES = 256
"""Largest body of a request that presents a ledger head."""
_ACCEPTED = b'{"answer":"accepted"}'
_REFUSED = b'{"detail":"not a head that this coordinator signed"}'


def holds(running: Running, seen: SignedHead) -> bool:
    """Whether the ledger has a head that somebody saw; False for one that was made up.

    Raises:
        RefusedError: this coordinator signed it, and the storage lacks it: the process ends.
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
    """An ASGI application: POST of a signed head, from anybody.

    The head bears the coordinator's own signature, and that alone counts: a client that an old
    copy of the storage does not know can tell as well, and nobody says who it is.
    """

    def __init__(self, running: Running) -> None:
        self._running = running

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        try:
            status, body = await self._answered(scope, receive)
        except RefusedError as refused:
            status, body = refused.status, refused.body
        self._running.metrics.requests.labels("heads", status).inc()
        await respond(send, status, body)

    async def _answered(self, scope: Scope, receive: Receive) -> tuple[int, bytes]:
        running = self._running
        if running.ended:
            raise RefusedError(503, BUSY)
        try:
            seen = SignedHead.parsed((await _body(scope, receive)).decode("ascii"))
        except ValueError:
            return 422, _REFUSED
        return (200, _ACCEPTED) if holds(running, seen) else (422, _REFUSED)


async def _body(scope: Scope, receive: Receive) -> bytes:
    """The whole body, which is short; its deadline is the connection's."""
    require_short(scope, HEAD_BYTES)
    return await received(receive, HEAD_BYTES)


Job: TypeAlias = Callable[[Transaction], WireReceipt]
Prepare: TypeAlias = Callable[[int, int, bytes, bytes], Job]

_BIG_BODY = 1 << 20


class SignedRoute:
    """An ASGI application: one route that takes signed requests.

    Args:
        path: path of the route, with ``{step}`` in place of the step if it has one.
        prepare: turns an identity, a step, a body and its digest into a job for the writer;
            raises RemoteProtocolError where the body is none that may be sent.
        body_format: name of the body's format; "" where there is no body.
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
        """Answer one request."""
        try:
            status, body = await self._answered(scope, receive)
        except RefusedError as refused:
            status, body = refused.status, refused.body
        except StorageError:  # too much is waiting, or the process is ending
            status, body = 503, BUSY
        self._running.metrics.requests.labels(self._name, status).inc()
        await respond(send, status, body)

    async def _answered(self, scope: Scope, receive: Receive) -> tuple[int, bytes]:
        running = self._running
        if running.ended:
            raise RefusedError(503, BUSY)
        step, path = self._place(scope)
        require_short(scope, self._limit)
        identity = ClientIdentity.parsed(scope["headers"])
        if identity is None:
            return 401, UNKNOWN
        body = await received(receive, self._limit) if self.reads_first else None
        began = time.perf_counter()
        if not self._known(identity, path, body):
            return 401, UNKNOWN
        if not self.reads_first and (connection := scope.get(CONNECTION)) is not None:
            connection.signed()
        receipt = self._head_refused(identity, step) or self._format_refused(identity, step)
        if receipt is None:
            reading = time.perf_counter()
            if body is None:
                body = await running.bodies.read(identity.client, receive, self._limit)
            began += time.perf_counter() - reading
            if hashlib.sha256(body).digest() != identity.digest:
                return 401, UNKNOWN
            receipt = await self._decided(identity, step, body)
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
        path = self._path.replace("{step}", str(step))
        raw = scope.get("raw_path") or scope["path"].encode()
        if raw.partition(b"?")[0] != path.encode() or scope.get("query_string"):
            raise RefusedError(404, NOT_FOUND)
        return step, path

    reads_first = False
    """Whether the body must be read before it is known whose signature this should be."""

    def _known(self, identity: ClientIdentity, path: str, body: bytes | None) -> bool:
        """Whether the signature is the client's."""
        del body
        return self._signed_by(self._running.keys.get(identity.client), identity, path)

    def _signed_by(self, key: bytes | None, identity: ClientIdentity, path: str) -> bool:
        """Whether the signature is that key's; the same work where there is none."""
        request = identity.request(self._running.task, path)
        return verified(key, identity.signature, request.canonical())

    def _format_refused(self, identity: ClientIdentity, step: int) -> WireReceipt | None:
        """A receipt for a body whose format this coordinator does not read."""
        if identity.format == self._format:
            return None
        told = identity.format or "none"
        detail = f"the body's format is {self._format or 'none'} here, not {told}"
        return WireReceipt(
            WireAnswer.REFUSED, self._running.task, identity.client, step, detail=detail
        )

    def _head_refused(self, identity: ClientIdentity, step: int) -> WireReceipt | None:
        """A receipt for a head that was never this coordinator's.

        Raises:
            RefusedError: it was, and the storage does not have it: nothing goes on.
        """
        running, seen = self._running, identity.seen
        if seen is None or holds(running, seen):
            return None
        return WireReceipt(
            WireAnswer.REFUSED,
            running.task,
            identity.client,
            step,
            detail="not a head of this ledger",
        )

    async def _decided(self, identity: ClientIdentity, step: int, body: bytes) -> WireReceipt:
        """The engine's answer, once it is durable."""
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
    """Uses an invitation: the key is in the body, and so is the secret that vouches for it.

    So here a stranger's body is read, of the few bytes that an enrolment may have.
    """

    reads_first = True

    def _known(self, identity: ClientIdentity, path: str, body: bytes | None) -> bool:
        """Whether the signature is that of the key in the body."""
        client, key, _ = enrolment_of(body or b"") or (-1, None, b"")
        return self._signed_by(key, identity, path) and client == identity.client

    async def _decided(self, identity: ClientIdentity, step: int, body: bytes) -> WireReceipt:
        """The engine's answer; who does not know the secret never reaches the writer."""
        running, client = self._running, identity.client
        _, key, secret = enrolment_of(body) or (-1, b"", b"")
        if not await asyncio.to_thread(self._knows, client, secret):
            return WireReceipt(WireAnswer.UNKNOWN)
        receipt = await super()._decided(identity, step, body)
        if receipt.answer is WireAnswer.ACCEPTED:
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
