"""Heads of requests: what httptools makes of them, and what is no request that is answered."""

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
    """The bytes are no request that is answered; the argument is the status."""


@shows_shapes()
@dataclass(slots=True)
class _Head:
    """A request's head, as httptools calls out its parts."""

    url: bytes = b""
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    begun: int = 0
    body: bool = False

    def on_message_begin(self) -> None:
        """A request begins."""
        self.begun += 1

    def on_url(self, url: bytes) -> None:
        """A part of its target."""
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header."""
        self.headers.append((name.lower(), value))

    def on_body(self, body: bytes) -> None:
        """A part of the body: the parser found another end of the head."""
        self.body = True


@dataclass(slots=True)
class Request:
    """A request's head.

    Attributes:
        scope: as ASGI has it, without what the connection knows.
        length: of its body.
        keep_alive: whether another request may follow.
        continues: whether the body is sent once it is asked for.
    """

    scope: Scope
    length: int
    keep_alive: bool
    continues: bool


def request_of(head: bytes) -> Request:
    """The request of a whole head, whose last bytes are the empty line.

    Raises:
        MalformedError: it is none, or has a body whose length is not told.
    """
    said = _Head()
    parser = httptools.HttpRequestParser(said)
    try:
        with suppress(httptools.HttpParserUpgrade):  # to nothing that is spoken here
            parser.feed_data(head)
        url = httptools.parse_url(said.url)
        raw_path, query = url.path or b"", url.query or b""
        path = raw_path.decode("ascii")
    except (httptools.HttpParserError, UnicodeDecodeError):
        raise MalformedError(400) from None
    named = dict(said.headers)
    version = parser.get_http_version()
    # A parser that ends a line at LF alone finds an end of the head, or a request, too many.
    if said.begun != 1 or said.body or not path or version not in ("1.0", "1.1"):
        raise MalformedError(400)
    if b"transfer-encoding" in named:
        raise MalformedError(411)
    length = named.get(b"content-length", b"0")
    if not _LENGTH.fullmatch(length):
        raise MalformedError(400)
    scope: Scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": version,
        "method": parser.get_method().decode("ascii"),
        "path": unquote(path) if "%" in path else path,
        "raw_path": raw_path,
        "query_string": query,
        "root_path": "",
        "headers": said.headers,
    }
    return Request(
        scope,
        int(length),
        version == "1.1" and b"close" not in named.get(b"connection", b"").lower(),
        named.get(b"expect", b"").lower() == b"100-continue",
    )


def begins(data: bytes | bytearray) -> bool:
    """Whether a head can begin so: with a method, or with a part of one."""
    return _METHOD.match(data) is not None
