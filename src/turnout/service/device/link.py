"""One request at a time to the coordinator: signed, bounded, and never trusted to have arrived.

A request that brings nothing back raises `UnreachableError`: the caller may send the same bytes
again, with a new nonce, because the coordinator answers copies alike.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Iterator
from pathlib import Path

import httpx

from turnout.core.errors import ParameterError, RemoteProtocolError
from turnout.randomness import ByteStream, system_bytes
from turnout.service.contract.wire import (
    ENROLMENT_FORMAT,
    HEADS_PATH,
    NONCE_BYTES,
    STATUS_CODES,
    SignedRequest,
    WireAnswer,
    WireReceipt,
    enrolments_path,
    is_this_machine,
)
from turnout.service.device.memory import Memory

_TRY_AGAIN = {408, 429, 500, 502, 503, 504}
_ANSWERS = {code: answer for answer, code in STATUS_CODES.items()}
_RECEIPT_BYTES = 1 << 16
_LONGEST_RETRY_AFTER = 3600.0


class UnreachableError(RemoteProtocolError):
    """Nothing came back that says what became of a request.

    Attributes:
        retry_after: seconds that the coordinator asked to wait, 0 if it did not.
    """

    def __init__(self, reason: str, retry_after: float = 0.0) -> None:
        super().__init__(f"the coordinator does not answer: {reason}")
        self.retry_after = retry_after


class GoneError(RemoteProtocolError):
    """The coordinator does not have, or no longer has, what was asked for."""


class Link:
    """The coordinator behind one address.

    Args:
        http: carries the requests; one may serve many devices.
        url: the coordinator's address; paths of the protocol are appended.
        allow_http: take ``http://`` to another machine, where whoever listens reads updates.

    Raises:
        ParameterError: no such address, or one without encryption.
    """

    def __init__(
        self,
        http: httpx.AsyncClient,
        url: str,
        *,
        allow_http: bool = False,
        random_bytes: ByteStream = system_bytes,
    ) -> None:
        self._http, self._random_bytes = http, random_bytes
        self._base = _checked_address(url, allow_http)

    @property
    def address(self) -> str:
        """The coordinator's address."""
        return self._base

    async def get(self, path: str, limit: int) -> bytes:
        """The body of a public resource, of at most ``limit`` bytes.

        Raises:
            UnreachableError: nothing came back.
            GoneError: there is no such thing.
            RemoteProtocolError: anything else that is not a body of that size.
        """
        status, body = await self._exchange("GET", path, limit)
        if status in (404, 410):
            raise GoneError(f"the coordinator has no {path.partition('?')[0]}")
        if status != 200:
            raise RemoteProtocolError(f"the coordinator answered GET with HTTP {status}")
        return body

    async def post(
        self, memory: Memory, path: str, step: int, body: bytes, body_format: str = ""
    ) -> WireReceipt:
        """The outcome of a signed request; ``body_format`` names that of an update.

        Raises:
            UnreachableError: nothing came back; it may have arrived or not.
            RemoteProtocolError: the answer is none, or about something else.
        """
        head = "" if memory.head is None else str(memory.head)
        nonce = self._random_bytes(NONCE_BYTES)
        enrols = path == enrolments_path()
        body_format = ENROLMENT_FORMAT if enrols else body_format
        request = SignedRequest.posting(
            memory.task, path, memory.client, nonce, body, format=body_format, head=head
        )
        headers = request.headers(memory.key.sign(request.canonical()))
        headers["Content-Type"] = "application/json" if enrols else "application/octet-stream"
        status, answer = await self._exchange("POST", path, _RECEIPT_BYTES, body, headers)
        receipt = _receipt(status, answer)
        about = (receipt.task, receipt.client, receipt.step)
        if receipt.answer is WireAnswer.ACCEPTED and about != (memory.task, memory.client, step):
            raise RemoteProtocolError("the coordinator's receipt is about something else")
        return receipt

    async def tell(self, head: str) -> bool:
        """Send a signed head, unsigned by anybody else; whether the coordinator took it."""
        headers = {"Content-Type": "text/plain"}
        try:
            status, _ = await self._exchange(
                "POST", HEADS_PATH, _RECEIPT_BYTES, head.encode("ascii"), headers
            )
        except UnreachableError:
            raise
        except RemoteProtocolError:
            return False
        return status == 200

    async def _exchange(
        self,
        method: str,
        path: str,
        limit: int,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> tuple[int, bytes]:
        """Status and bounded body."""
        # Compression would make lengths depend on contents.
        sent = {"Accept-Encoding": "identity"} | (headers or {})
        try:
            async with self._http.stream(
                method, self._base + path, content=body, headers=sent
            ) as response:
                if response.status_code in _TRY_AGAIN:
                    raise UnreachableError(
                        f"HTTP {response.status_code}", _retry_after(response.headers)
                    )
                if response.headers.get("Content-Encoding", "identity") != "identity":
                    raise RemoteProtocolError("an answer is compressed, which was not asked for")
                received = bytearray()
                async for part in response.aiter_bytes():
                    received += part
                    if len(received) > limit:
                        raise RemoteProtocolError(f"an answer of more than {limit} bytes")
                return response.status_code, bytes(received)
        except httpx.TransportError as error:
            if any(isinstance(cause, ssl.SSLCertVerificationError) for cause in _causes(error)):
                raise RemoteProtocolError(f"the certificate is not accepted: {error}") from None
            raise UnreachableError(_reason(error)) from None


def trusting(ca: Path | None, option: str) -> ssl.SSLContext:
    """TLS that trusts the certificates in a file, or the system's."""
    try:
        return ssl.create_default_context(cafile=None if ca is None else str(ca))
    except (OSError, ssl.SSLError):
        raise ParameterError(option, str(ca), "a file of certificates (PEM)") from None


def connection(ca: Path | None = None, *, connections: int = 4) -> httpx.AsyncClient:
    """The HTTP client of a device's requests, to be closed by the caller."""
    # Its log would join a device with a slot.
    for name in ("httpx", "httpcore"):
        logging.getLogger(name).setLevel(logging.WARNING)
    return httpx.AsyncClient(
        verify=trusting(ca, "--ca"),
        timeout=httpx.Timeout(20.0, pool=300.0),
        limits=httpx.Limits(max_connections=connections),
        follow_redirects=False,
    )


def _checked_address(url: str, allow_http: bool) -> str:
    """The address without a slash at its end."""
    try:
        parsed = httpx.URL(url)
    except (httpx.InvalidURL, TypeError):
        raise ParameterError("url", url, "https://HOST[:PORT]") from None
    clear = parsed.scheme == "http"
    if parsed.scheme not in ("http", "https") or not parsed.host or parsed.query or parsed.fragment:
        raise ParameterError("url", url, "https://HOST[:PORT]")
    if clear and not allow_http and not is_this_machine(parsed.host):
        raise ParameterError(
            "url", url, "https:// (with http:// whoever listens reads the update; --allow-http)"
        )
    return str(parsed).rstrip("/")


def _receipt(status: int, body: bytes) -> WireReceipt:
    """The receipt in an answer, or one that says that something in between refused."""
    answer = _ANSWERS.get(status)
    if answer is None and 400 <= status < 500:
        return WireReceipt(WireAnswer.REFUSED, detail=f"HTTP {status}")
    if answer is None:
        raise RemoteProtocolError(f"the coordinator answered with HTTP {status}")
    try:
        receipt = WireReceipt.decoded(body)
    except ValueError as error:
        if answer is WireAnswer.ACCEPTED:
            raise RemoteProtocolError(f"the coordinator's receipt is none: {error}") from None
        return WireReceipt(answer, detail=f"HTTP {status}")
    if receipt.answer is not answer:
        raise RemoteProtocolError(f"HTTP {status} and '{receipt.answer}' contradict each other")
    return receipt


def _retry_after(headers: httpx.Headers) -> float:
    """The seconds of a Retry-After header; 0 without one, or where it is a date."""
    text = headers.get("Retry-After", "")
    return min(float(text), _LONGEST_RETRY_AFTER) if text.isdecimal() else 0.0


def _reason(error: httpx.TransportError) -> str:
    """Why nothing came back, in a line."""
    said = str(error).partition("\n")[0] or type(error).__name__
    if any(isinstance(cause, ssl.SSLError) for cause in _causes(error)):
        return f"what listens there does not speak TLS as it should ({said})"
    if isinstance(error, httpx.RemoteProtocolError):
        return f"what listens there does not answer in HTTP ({said})"
    if isinstance(error, httpx.ConnectError):
        return f"nothing listens there, or it cannot be reached ({said})"
    return said


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An error and what it came from."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__
