"""The coordinator's side of a witness: it obtains a receipt for every ledger head.

`Witness.receipt` repeats its request until the witness's signature or a refusal arrives.
`web.conductor` calls `Witness.receipt` before each publication, so that no ledger head is published
without a receipt. `messages` defines the messages.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from contextlib import suppress
from pathlib import Path

import httpx

from turnout.core.errors import ParameterError, StorageError
from turnout.service.contract.ledger import Head, verified
from turnout.service.contract.wire import KEY_BYTES, NOT_SO, SignedHead, head_bytes, is_this_machine
from turnout.service.coordinator.engine import SetBackError
from turnout.service.device.link import trusting
from turnout.service.storage.interface import WitnessReceipt
from turnout.service.web import logs
from turnout.service.witness.messages import MOST_BYTES, RECEIPTS_PATH, ShownHead, receipt_bytes

_TRY_AGAIN = {408, 429, 500, 502, 503, 504}
_FIRST_PAUSE, _LONGEST_PAUSE, _WARNING_SECONDS = 0.05, 5.0, 60.0


class WitnessError(StorageError):
    """The witness refuses a ledger head, and a repetition would not help."""


class WitnessUnreachableError(Exception):
    """No usable answer arrived; the request may be repeated."""


class Witness:
    """A witness at one address, identified by its public key.

    Args:
        url: the witness's address.
        key: public key of the witness.
        token: token that the witness requires; None for no token.
        ca: file of certificates (PEM) to trust; None for the system's.
        transport: transport of the requests; None for the network.

    Raises:
        ParameterError: the address is invalid or not encrypted, or ``ca`` has no certificates.
    """

    def __init__(
        self,
        url: str,
        key: bytes,
        *,
        token: str | None = None,
        ca: Path | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.key = key
        for name in ("httpx", "httpcore"):
            logging.getLogger(name).setLevel(logging.WARNING)
        self._url = _checked(url) + RECEIPTS_PATH
        self._headers = {"Content-Type": "application/json"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        # Loading certificates can take longer than a step; an http:// address needs none.
        clear = ca is None and self._url.startswith("http:")
        self._verify, self._transport = False if clear else trusting(ca, "witness_ca"), transport
        self._http: httpx.AsyncClient | None = None

    async def receipt(self, shown: ShownHead) -> WitnessReceipt:
        """The witness's receipt for a ledger head; requests are repeated until an answer arrives.

        Raises:
            SetBackError: the witness has another ledger head that this coordinator signed; or the
                witness signs with another key, or lost its records.
            WitnessError: the witness refuses for another reason.
        """
        pause, warned = _FIRST_PAUSE, -_WARNING_SECONDS
        while True:
            # Without an answer: warn now and then, wait, and ask again.
            try:
                status, body = await self._asked(shown)
            except WitnessUnreachableError as error:
                now = time.monotonic()
                if now - warned >= _WARNING_SECONDS:
                    warned = now
                    logs.logger().warning(
                        "the witness does not answer; nothing is published", reason=str(error)
                    )
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
            # An answer is a receipt or an error.
            else:
                return self._judged(shown, status, body)

    async def _asked(self, shown: ShownHead) -> tuple[int, bytes]:
        """HTTP status and body of the answer to one request."""
        if self._http is None:
            self._http = httpx.AsyncClient(
                verify=self._verify,
                timeout=httpx.Timeout(10.0),
                transport=self._transport,
                follow_redirects=False,
            )
        # Read the body in parts, up to the largest size of an answer.
        received = bytearray()
        try:
            async with (
                asyncio.timeout(30.0),
                self._http.stream(
                    "POST", self._url, content=shown.encoded(), headers=self._headers
                ) as response,
            ):
                async for part in response.aiter_raw():
                    received += part
                    if len(received) > MOST_BYTES:
                        raise WitnessUnreachableError(f"an answer has more than {MOST_BYTES} bytes")
                # A status that asks to try again, and a page of a proxy, count as no answer.
                if response.status_code in _TRY_AGAIN:
                    reason = _refused(received)[0]
                    raise WitnessUnreachableError(f"HTTP {response.status_code} {reason}".rstrip())
                if response.status_code == 200 and not _signature(received):
                    raise WitnessUnreachableError("the answer has no receipt")
                return response.status_code, bytes(received)
        except WitnessUnreachableError:
            raise
        except Exception as error:
            # A broken connection can raise other errors than httpx's own: under uvloop, anyio
            # finds no socket (AttributeError). The next request opens a new HTTP client.
            await self.close()
            raise WitnessUnreachableError(str(error) or type(error).__name__) from None

    async def close(self) -> None:
        """Close all connections, broken ones included; the next request opens new ones."""
        http, self._http = self._http, None
        if http is not None:
            with suppress(Exception):
                await http.aclose()

    def _judged(self, shown: ShownHead, status: int, body: bytes) -> WitnessReceipt:
        """The receipt in an answer; an answer without a receipt raises an error."""
        # A receipt must have the configured key.
        head = shown.head.head
        if status == 200:
            signature = _signature(body)
            if not verified(self.key, signature, receipt_bytes(shown.task, head)):
                raise SetBackError(
                    "the witness signs with another key than the configured key: the witness lost "
                    "its database, or is another witness; nothing more may be released"
                )
            return WitnessReceipt(self.key, head.steps, signature)
        # A head that this coordinator signed proves that a ledger was restored from a copy.
        reason, newest = _refused(body)
        if status == 409 and newest is not None:
            if not verified(shown.key, newest.signature, head_bytes(shown.task, newest.head)):
                raise WitnessError("this coordinator did not sign the witness's newest ledger head")
            raise SetBackError(_other(head, newest))
        # The coordinator has a receipt of a witness that does not know the task.
        if status == 404 and reason:
            raise SetBackError(
                f"the witness was set back: {reason}, although it signed the task's ledger before; "
                "nothing more may be released"
            )
        raise WitnessError(f"the witness answered HTTP {status}: {reason or 'no reason given'}")


def _other(head: Head, newest: SignedHead) -> str:
    """Text that states why the witness's newest ledger head stops the coordinator."""
    seen = newest.head
    if seen.steps < head.steps:
        return (
            f"the witness was set back, or not used for a while: it has {seen.steps} releases, and "
            f"the ledger has {head.steps}; nothing more may be released"
        )
    return (
        f"the witness has the ledger head {seen}, and this storage has {head}: the storage is an "
        "old copy; nothing may be released from it"
    )


def _signature(body: bytes | bytearray) -> bytes:
    """Signature in a receipt; empty for any other body, such as a proxy's page."""
    try:
        return bytes.fromhex(json.loads(body)["receipt"])
    except NOT_SO:
        return b""


def _refused(body: bytes | bytearray) -> tuple[str, SignedHead | None]:
    """Reason and newest ledger head in a refusal; empty and None for any other body."""
    try:
        fields = json.loads(body)
        head = fields.get("head")
        return str(fields["reason"])[:200], None if head is None else SignedHead.parsed(head)
    except NOT_SO:
        return "", None


def witness_key(text: str) -> bytes:
    """The public key in a hexadecimal text.

    Raises:
        ParameterError: the text is not 64 hexadecimal digits.
    """
    try:
        key = bytes.fromhex(text)
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise ParameterError("witness_key", text, "64 hexadecimal digits")
    return key


def _checked(url: str) -> str:
    """The address without a final slash, checked for host and encryption."""
    expected = "https://HOST[:PORT], or http:// to this machine"
    try:
        parsed = httpx.URL(url)
    except (httpx.InvalidURL, TypeError):
        raise ParameterError("witness", url, expected) from None
    secret = parsed.scheme == "https" or (parsed.scheme == "http" and is_this_machine(parsed.host))
    if not secret or not parsed.host or parsed.query or parsed.fragment or parsed.userinfo:
        raise ParameterError("witness", url, expected)
    return str(parsed).rstrip("/")
