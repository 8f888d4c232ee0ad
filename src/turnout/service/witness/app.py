"""The HTTP side of a witness."""

from __future__ import annotations

import asyncio
import hmac
import json

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from turnout.core.errors import StorageError
from turnout.service.web.answers import RefusedError
from turnout.service.witness.messages import (
    KEY_PATH,
    MOST_BYTES,
    RECEIPTS_PATH,
    Shown,
    refusal,
)
from turnout.service.witness.store import (
    FullError,
    OtherHeadError,
    UnknownTaskError,
    WitnessStore,
)

_BODY_SECONDS = 10.0
_STATUS = {UnknownTaskError: 404, FullError: 507}
"""Of what the store refuses; anything else is a fault of its disk, and worth another try."""


class _Witness:
    """The routes over one store."""

    def __init__(self, store: WitnessStore, token: str | None) -> None:
        self._store = store
        self._token = None if token is None else f"Bearer {token}".encode()

    async def receipt(self, request: Request) -> Response:
        """A signature for the head in the body."""
        try:
            self._require_known(request)
            shown = Shown.decoded(await _body(request))
            signature = await asyncio.to_thread(self._store.receipt, shown)
        except RefusedError as refused:
            return _answer(refused.status, refused.body)
        except ValueError as error:
            return _answer(422, refusal(str(error)))
        except OtherHeadError as other:
            return _answer(409, refusal("another head was expected", other.newest))
        except StorageError as error:
            return _answer(_STATUS.get(type(error), 503), refusal(str(error)))
        return _answer(200, json.dumps({"receipt": signature.hex()}).encode())

    async def newest(self, request: Request) -> Response:
        """The newest head of a task, as text."""
        try:
            self._require_known(request)
        except RefusedError as refused:
            return _answer(refused.status, refused.body)
        head = await asyncio.to_thread(self._store.newest, request.path_params["task"])
        if head is None:
            return _answer(404, refusal("this witness does not know the task"))
        return Response(f"{head}\n", 200, {"Cache-Control": "no-store"}, "text/plain")

    async def key(self, _request: Request) -> Response:
        """The public key, by which receipts are checked."""
        return _answer(200, json.dumps({"key": self._store.key.public.hex()}).encode())

    def _require_known(self, request: Request) -> None:
        given = request.headers.get("authorization", "").encode()
        if self._token is not None and not hmac.compare_digest(given, self._token):
            raise RefusedError(401, refusal("this witness asks for its token"))


async def _body(request: Request) -> bytes:
    """The whole body, never more of it than may be."""
    parts = bytearray()
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            async for part in request.stream():
                parts += part
                if len(parts) > MOST_BYTES:
                    raise RefusedError(413, refusal("the body is too long"))
    except TimeoutError:
        raise RefusedError(408, refusal("the body took too long")) from None
    except ClientDisconnect:
        raise RefusedError(400, refusal("the body did not come")) from None
    return bytes(parts)


def _answer(status: int, body: bytes) -> Response:
    return Response(body, status, {"Cache-Control": "no-store"}, "application/json")


def create_app(store: WitnessStore, token: str | None = None) -> Starlette:
    """The application of one witness."""
    witness = _Witness(store, token)
    return Starlette(
        routes=[
            Route(RECEIPTS_PATH, witness.receipt, methods=["POST"]),
            Route(KEY_PATH, witness.key, methods=["GET"]),
            Route("/v1/heads/{task}", witness.newest, methods=["GET"]),
        ]
    )
