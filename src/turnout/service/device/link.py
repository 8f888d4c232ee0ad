"""Requests to the coordinator: signed, with answers of bounded size.

`Link` sends one request at a time and never repeats it. A request without an answer raises
`UnreachableError`; the coordinator may have received the request or not. The caller may send the
same bytes again with a new nonce, because the coordinator gives repetitions the same answer.
`remote` and `step_actions` use `Link`.
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
    """No usable answer arrived, so it is unknown whether the coordinator accepted the request.

    Attributes:
        retry_after: seconds that the coordinator asks the device to wait; 0 if no time is stated.
    """

    def __init__(self, reason: str, retry_after: float = 0.0) -> None:
        super().__init__(f"the coordinator does not answer: {reason}")
        self.retry_after = retry_after


class GoneError(RemoteProtocolError):
    """The coordinator does not have the requested resource, or has deleted it."""


class Link:
    """Connection to the coordinator at one address.

    Args:
        http: the HTTP client, which many devices may share.
        url: the coordinator's address; paths of the protocol are appended.
        allow_http: accept ``http://`` to another machine; an eavesdropper can then read updates.
        random_bytes: source of nonces; by default the operating system's random bytes.

    Raises:
        ParameterError: the address is invalid, or does not use encryption.
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
        """URL of the coordinator."""
        return self._base

    async def get(self, path: str, limit: int) -> bytes:
        """Body of a public resource, of at most ``limit`` bytes.

        Raises:
            UnreachableError: no answer arrived.
            GoneError: the coordinator does not have this resource.
            RemoteProtocolError: the HTTP status is not 200, or the body is longer than ``limit`` or
                compressed.
        """
        status, body = await self._exchange("GET", path, limit)
        if status in (404, 410):
            raise GoneError(f"the coordinator has no resource {path.partition('?')[0]}")
        if status != 200:
            raise RemoteProtocolError(f"the coordinator answered GET with HTTP {status}")
        return body

    async def post(
        self, memory: Memory, path: str, step: int, body: bytes, body_format: str = ""
    ) -> WireReceipt:
        """Coordinator's receipt for a signed request.

        Args:
            memory: state of the device. The client's key in it signs the request, and the newest
                ledger head in it is sent with the request.
            path: URL path of the request.
            step: step that the receipt must state; −1 for an enrolment.
            body: the bytes that are sent.
            body_format: name of the format of an update; empty for other requests.

        Raises:
            UnreachableError: no answer arrived; the coordinator may have the request or not.
            RemoteProtocolError: the answer is no receipt, or is a receipt for another request.
        """
        # The signature covers the body, its format, a fresh nonce and the newest ledger head.
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
        # A receipt counts only for this task, client and step.
        receipt = _receipt(status, answer)
        about = (receipt.task, receipt.client, receipt.step)
        if receipt.answer is WireAnswer.ACCEPTED and about != (memory.task, memory.client, step):
            raise RemoteProtocolError("the coordinator's receipt is for another request")
        return receipt

    async def tell(self, head: str) -> bool:
        """Send a signed ledger head; return whether the coordinator accepted it.

        The request names no client and bears no client's signature.
        """
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
        """HTTP status and body of an answer; a body of more than ``limit`` bytes is refused."""
        # No compression: it would make the length of an answer depend on its contents.
        sent = {"Accept-Encoding": "identity"} | (headers or {})
        try:
            async with self._http.stream(
                method, self._base + path, content=body, headers=sent
            ) as response:
                # A status that asks to try again counts as no answer.
                if response.status_code in _TRY_AGAIN:
                    raise UnreachableError(
                        f"the coordinator answered with HTTP {response.status_code}",
                        _retry_after(response.headers),
                    )
                if response.headers.get("Content-Encoding", "identity") != "identity":
                    raise RemoteProtocolError(
                        "the coordinator compressed its answer, which the request forbids"
                    )
                # Read the body in parts, and stop at the first byte beyond the limit.
                received = bytearray()
                async for part in response.aiter_bytes():
                    received += part
                    if len(received) > limit:
                        raise RemoteProtocolError(
                            f"the coordinator's answer has more than {limit} bytes"
                        )
                return response.status_code, bytes(received)
        except httpx.TransportError as error:
            # A wrong certificate is final; any other failure of the network may pass.
            if any(isinstance(cause, ssl.SSLCertVerificationError) for cause in _causes(error)):
                raise RemoteProtocolError(f"the certificate is not accepted: {error}") from None
            raise UnreachableError(_reason(error)) from None


def trusting(ca: Path | None, option: str) -> ssl.SSLContext:
    """TLS context that trusts the certificates of a file, or the system's for None.

    Raises:
        ParameterError: the file contains no certificates.
    """
    try:
        return ssl.create_default_context(cafile=None if ca is None else str(ca))
    except (OSError, ssl.SSLError):
        raise ParameterError(option, str(ca), "a file of certificates (PEM)") from None


def connection(ca: Path | None = None, *, connections: int = 4) -> httpx.AsyncClient:
    """HTTP client for a device's requests, to be closed by the caller."""
    # A log of requests would link the device to its slots.
    for name in ("httpx", "httpcore"):
        logging.getLogger(name).setLevel(logging.WARNING)
    return httpx.AsyncClient(
        verify=trusting(ca, "--ca"),
        timeout=httpx.Timeout(20.0, pool=300.0),
        limits=httpx.Limits(max_connections=connections),
        follow_redirects=False,
    )


def _checked_address(url: str, allow_http: bool) -> str:
    """URL without a final slash, checked for scheme, host and encryption."""
    try:
        parsed = httpx.URL(url)
    except (httpx.InvalidURL, TypeError):
        raise ParameterError("url", url, "https://HOST[:PORT]") from None
    clear = parsed.scheme == "http"
    if parsed.scheme not in ("http", "https") or not parsed.host or parsed.query or parsed.fragment:
        raise ParameterError("url", url, "https://HOST[:PORT]")
    if clear and not allow_http and not is_this_machine(parsed.host):
        raise ParameterError(
            "url", url, "https://, or --allow-http, which lets an eavesdropper read updates"
        )
    return str(parsed).rstrip("/")


def _receipt(status: int, body: bytes) -> WireReceipt:
    """Receipt in an answer; an error page without a receipt becomes the receipt of a refusal."""
    # A status that belongs to no answer is a refusal (4xx) or breaks the protocol.
    answer = _ANSWERS.get(status)
    if answer is None and 400 <= status < 500:
        return WireReceipt(WireAnswer.REFUSED, detail=f"HTTP {status}")
    if answer is None:
        raise RemoteProtocolError(f"the coordinator answered with HTTP {status}")
    # A proxy's error page has no receipt; only an accepted request needs one.
    try:
        receipt = WireReceipt.decoded(body)
    except ValueError as error:
        if answer is WireAnswer.ACCEPTED:
            raise RemoteProtocolError(f"the coordinator's receipt is invalid: {error}") from None
        return WireReceipt(answer, detail=f"HTTP {status}")
    # Status and receipt must agree.
    if receipt.answer is not answer:
        raise RemoteProtocolError(
            f"the coordinator's answer contradicts itself: the receipt '{receipt.answer}' has the "
            f"HTTP status {status}"
        )
    return receipt


def _retry_after(headers: httpx.Headers) -> float:
    """Seconds in the header Retry-After; 0 without the header or if it is a date."""
    text = headers.get("Retry-After", "")
    return min(float(text), _LONGEST_RETRY_AFTER) if text.isdecimal() else 0.0


def _reason(error: httpx.TransportError) -> str:
    """Reason for the missing answer, in one line."""
    text = str(error).partition("\n")[0] or type(error).__name__
    if any(isinstance(cause, ssl.SSLError) for cause in _causes(error)):
        return f"TLS to this address failed ({text})"
    if isinstance(error, httpx.RemoteProtocolError):
        return f"this address does not answer in HTTP ({text})"
    if isinstance(error, httpx.ConnectError):
        return f"no connection to this address ({text})"
    return text


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Error and its chain of causes, outermost first."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__
