"""Requests to the coordinator at one address: bounded, and one at a time."""

import http.client
import json
import os
import ssl
import time
from urllib.parse import urlsplit

from texts import ProtocolError, followed, require, require_newer, sha256, signed_headers

TRY_AGAIN = {408, 429, 500, 502, 503, 504}
ANSWERS = {200: "accepted", 410: "late", 425: "early", 409: "conflict", 422: "refused"}
ANSWERS[401] = "unknown"
ANSWER_SECONDS = 20


class UnreachableError(Exception):
    """No answer shows the outcome of a request."""


class Link:
    """Requests of one device, whose state is in ``memory``."""

    def __init__(self, url, memory):
        place = urlsplit(url)
        here = place.hostname in ("127.0.0.1", "::1", "localhost")
        secure = place.scheme == "https"
        require(
            secure or (place.scheme == "http" and here),
            "the address of the coordinator must begin with https://",
            ValueError,
        )
        self._place, self._secure, self.memory = place, secure, memory

    def _exchange(self, method, path, limit, body=None, headers=None):
        """Status and body of an answer with at most ``limit`` bytes."""
        kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
        more = {"context": ssl.create_default_context()} if self._secure else {}
        sent = {"Accept-Encoding": "identity", **(headers or {})}
        connection = kind(self._place.hostname, self._place.port, timeout=ANSWER_SECONDS, **more)
        try:
            connection.request(method, self._place.path.rstrip("/") + path, body, sent)
            answer = connection.getresponse()
            data = answer.read(limit + 1)
        except (OSError, http.client.HTTPException) as error:
            raise UnreachableError(str(error)) from None
        finally:
            connection.close()
        if answer.status in TRY_AGAIN:
            raise UnreachableError(f"HTTP {answer.status}")
        require(len(data) <= limit, f"the answer has more than {limit} bytes")
        return answer.status, data

    def get(self, path, limit):
        """Public document at a path."""
        status, data = self._exchange("GET", path, limit)
        require(status == 200, f"the coordinator answers GET {path} with HTTP {status}")
        return data

    def artefact(self, named):
        """File that the charter names by its digest."""
        data = self.get(f"/v1/artefacts/{named['digest']}", named["size"])
        whole = len(data) == named["size"] and sha256(data) == named["digest"]
        require(whole, "a downloaded file differs from the digest in the charter")
        return data

    def status(self, steps):
        """Progress of the run and end of its phase; a new head is checked and stored first."""
        memory, asked = self.memory, time.monotonic()
        fields = json.loads(self.get("/v1/status", 1 << 14))
        whole = fields["task"] == memory.fields["task"] and 0 <= fields["step"] <= steps
        require(whole, "the coordinator's status is malformed")
        fields["ends"] = asked + fields["seconds_left"]
        until, digest = require_newer(memory.fields, fields["head"])
        if fields["head"] != memory.fields["head"]:
            seen = (memory.fields["head"] or f"{until}:{digest}:").split(":")
            self._follow(int(seen[0]), seen[1], until, digest)
            memory.fields["head"] = fields["head"]
            memory.keep()
        return fields

    def _follow(self, at, digest, until, last):
        """Check that the ledger's records lead from one head to the other."""
        task = self.memory.fields["task"]
        while at < until:
            page = json.loads(self.get(f"/v1/records?from={at}", 1 << 24))["records"]
            require(page, "the coordinator returns no ledger records")
            for record in page[: until - at]:
                at, digest = followed(task, at, digest, record)
        require(digest == last, "the ledger's records do not match its head")

    def model(self, steps, first, size):
        """Parameters after some steps, checked by the digest in the charter or the ledger."""
        digest = first
        if steps:
            page = json.loads(self.get(f"/v1/records?from={steps - 1}", 1 << 24))["records"]
            head = self.memory.fields["head"].split(":")[1]
            reached = followed(self.memory.fields["task"], steps - 1, page[0]["previous"], page[0])
            require(
                reached == (steps, head), "the last ledger record does not match the ledger head"
            )
            digest = page[0]["model"]
        data = self.get(f"/v1/models/{steps}", size)
        require(
            len(data) == size and sha256(data) == digest,
            "the model differs from the digest in the ledger",
        )
        return data

    def post(self, path, step, body, body_format):
        """Outcome of a signed request."""
        fields = self.memory.fields
        headers = signed_headers(fields, path, os.urandom(16).hex(), body, body_format)
        status, data = self._exchange("POST", path, 1 << 16, body, headers)
        if status not in ANSWERS:
            require(400 <= status < 500, f"the coordinator answers with HTTP {status}")
            return "refused"
        if status == 200:
            receipt = json.loads(data)
            told = tuple(receipt.get(name) for name in ("task", "client", "step"))
            require(
                told == (fields["task"], fields["client"], step),
                "the receipt is for another task, client or step",
            )
            sent = receipt.get("digest") in (None, sha256(body))
            require(sent or step < 0, "the receipt is for another update")
        return ANSWERS[status]

    def tell(self):
        """Send the newest known ledger head to a coordinator restored from an older copy."""
        for _ in range(4):
            try:
                return self._exchange("POST", "/v1/heads", 1 << 16, self.memory.fields["head"])
            except (UnreachableError, ProtocolError):
                continue
        return None
