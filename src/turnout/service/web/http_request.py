"""Parsing of the head of an HTTP request, its request line and headers, by httptools.

`request_of` turns the bytes of a head into a `Request` and refuses an unacceptable head; `begins`
tells whether bytes can be the beginning of a head.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.parse import unquote

import httptools

from turnout.core.showing import shows_shapes
from turnout.service.web.answers import Scope

_METHOD = re.compile(rb"[A-Z]{0,16}(?:[A-Z]$| )")
_LENGTH = re.compile(rb"[0-9]{1,18}")


class MalformedError(Exception):
    """Received bytes are not an acceptable HTTP request; the argument is the status to answer."""


@shows_shapes()
@dataclass(slots=True)
class _Head:
    """Request line and headers of a request, collected by the callbacks of httptools."""

    url: bytes = b""
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    begun: int = 0
    body: bool = False

    def on_message_begin(self) -> None:
        """Count the requests that begin in the parsed bytes."""
        self.begun += 1

    def on_url(self, url: bytes) -> None:
        """Append a part of the request's target."""
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Append a header, with its name in lower case."""
        self.headers.append((name.lower(), value))

    def on_body(self, body: bytes) -> None:
        """Record that the parser found a body, which may be a second request hidden in the head."""
        self.body = True


@dataclass(slots=True)
class Request:
    """Parsed request line and headers of one request.

    Attributes:
        scope: ASGI's scope, without the entries of the connection.
        length: length of the body in bytes.
        keep_alive: whether another request may follow on the connection.
        continues: whether the client waits for status 100 before it sends the body.
    """

    scope: Scope
    length: int
    keep_alive: bool
    continues: bool


def request_of(head: bytes) -> Request:
    """Request parsed from its request line and headers, which end with an empty line.

    Raises:
        MalformedError: the bytes are not such a head, or announce a body without a length.
    """
    # Parse the head and its target.
    parsed = _Head()
    parser = httptools.HttpRequestParser(parsed)
    try:
        with suppress(httptools.HttpParserUpgrade):  # no other protocol is supported
            parser.feed_data(head)
        url = httptools.parse_url(parsed.url)
        raw_path, query = url.path or b"", url.query or b""
        path = raw_path.decode("ascii")
    except (httptools.HttpParserError, UnicodeDecodeError):
        raise MalformedError(400) from None
    named = dict(parsed.headers)
    version = parser.get_http_version()
    # A line that ends with LF alone can hide a second request, or another end of the head.
    if parsed.begun != 1 or parsed.body or not path or version not in ("1.0", "1.1"):
        raise MalformedError(400)
    # The length of the body must be announced, as one plain number.
    if b"transfer-encoding" in named:
        raise MalformedError(411)
    length = named.get(b"content-length", b"0")
    if not _LENGTH.fullmatch(length):
        raise MalformedError(400)
    # ASGI's scope.
    scope: Scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": version,
        "method": parser.get_method().decode("ascii"),
        "path": unquote(path) if "%" in path else path,
        "raw_path": raw_path,
        "query_string": query,
        "root_path": "",
        "headers": parsed.headers,
    }
    return Request(
        scope,
        int(length),
        version == "1.1" and b"close" not in named.get(b"connection", b"").lower(),
        named.get(b"expect", b"").lower() == b"100-continue",
    )


def begins(data: bytes | bytearray) -> bool:
    """Whether a request can begin with ``data``: with an HTTP method or a prefix of a method."""
    return _METHOD.match(data) is not None
