"""Requests split into arbitrary chunks: each is answered separately and in order."""

import asyncio
import hashlib
import re
import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from turnout.service.web.bodies import Bodies
from turnout.service.web.bounded_server import BoundedServer
from turnout.service.web.connections import HEAD, READER, Connections
from turnout.service.web.http_connection import HEAD_BYTES, UNREAD_BYTES, HttpConnection
from turnout.service.web.http_request import MalformedError, request_of


class Wire:
    """Transport that stores written bytes, and accepts bytes only while reading is not paused."""

    def __init__(self):
        self.written, self.paused, self.closed = bytearray(), False, False

    def writelines(self, parts):
        assert not self.closed
        self.written += b"".join(parts)

    def pause_reading(self):
        assert not self.paused
        self.paused = True

    def resume_reading(self):
        assert self.paused
        self.paused = False

    def close(self):
        self.closed = True

    write_eof = abort = close

    def can_write_eof(self):
        return True

    def is_closing(self):
        return self.closed

    def get_extra_info(self, name):
        return None

    def get_write_buffer_size(self):
        return 0


class Application:
    """Application that answers by path and counts its concurrent requests."""

    def __init__(self):
        self.active = self.most = 0
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def __call__(self, scope, receive, send):
        self.active += 1
        self.most = max(self.most, self.active)
        try:
            await self._answer(scope, receive, send)
        finally:
            self.active -= 1

    async def _answer(self, scope, receive, send):
        await self.go_on.wait()
        body, more = b"", scope["path"] == "/read"
        while more:
            message = await receive()
            assert message["type"] == "http.request"
            assert len(message["body"]) <= UNREAD_BYTES
            body, more = body + message["body"], message["more_body"]
        if scope["path"] == "/fail":
            raise RuntimeError("the application's fault")
        status = 401 if scope["path"] == "/early" else 200
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": hashlib.sha256(body).digest()})


class Peer:
    """Server connection in this process, with the bytes sent to it."""

    def __init__(self, application=None):
        self.application, self.wire = application or Application(), Wire()
        table = Connections(8, 8, lambda peer: False, lambda: 0.0)
        self.server = BoundedServer(self.application, table, None, 1.0)
        self.server.address = ("127.0.0.1", 1)
        entry = table.admit("10.0.0.1", None)
        table.waits(entry, HEAD)
        self.connection = HttpConnection(
            self.server, entry, address=("10.0.0.1", 2), drop=lambda: None
        )
        entry.held = self.connection
        self.connection.connection_made(self.wire)

    def takes(self, data):
        """Number of bytes that are read before reading pauses."""
        taken = 0
        while taken < len(data) and not self.wire.paused and not self.wire.closed:
            into = self.connection.get_buffer(-1)
            size = min(len(into), len(data) - taken)
            into[:size] = data[taken : taken + size]
            self.connection.buffer_updated(size)
            taken += size
        return taken

    async def sent(self, pieces):
        """Send all pieces, running the event loop between them."""
        for piece in pieces:
            taken = 0
            while taken < len(piece) and not self.wire.closed:
                taken += self.takes(piece[taken:])
                await asyncio.sleep(0)
        while self.server.answering:
            await asyncio.sleep(0)

    def answers(self):
        """Status and body of each answer, and whether it closes the connection."""
        rest, found = bytes(self.wire.written), []
        while rest:
            head, _, rest = rest.partition(b"\r\n\r\n")
            length = int(re.search(rb"content-length: (\d+)", head)[1])
            body, rest = rest[:length], rest[length:]
            found.append((int(head[9:12]), body, b"connection: close" in head))
        return found


def request(path, body=b"", *headers):
    lines = [f"POST {path} HTTP/1.1".encode(), *headers]
    lines.append(b"Content-Length: %d" % len(body))
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def digest(body=b""):
    return hashlib.sha256(body).digest()


SMUGGLED = b"POST /fail HTTP/1.1\r\nContent-Length: 0\r\n\r\n"
bodies = st.sampled_from([b"", b"x", SMUGGLED, SMUGGLED * 200, bytes(2 * UNREAD_BYTES + 1)])
asked = st.one_of(
    bodies.map(lambda body: (request("/read", body), 200, digest(body), False)),
    bodies.map(lambda body: (request("/early", body), 401, digest(), bool(body))),
    st.just((b"\r\n" + request("/", b"", b"Host: x"), 200, digest(), False)),
    st.just((request("/", b"", b"Connection: close"), 200, digest(), True)),
    st.sampled_from(
        [
            (request("/fail"), 500, b"", True),
            (b"\x16\x03\x01 not HTTP at all", 400, b"", True),
            (b"GET /\xff HTTP/1.1\r\n\r\n", 400, b"", True),
            (b"GET / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx", 400, b"", True),
            (b"GET / HTTP/1.1\nHost: x\n\nGET / HTTP/1.1\r\n\r\n", 400, b"", True),
            (b"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 411, b"", True),
            (b"GET / HTTP/1.1\r\nX: " + b"x" * HEAD_BYTES + b"\r\n\r\n", 431, b"", True),
        ]
    ),
)


@settings(
    max_examples=120,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
@given(
    st.lists(asked, min_size=1, max_size=6),
    st.lists(st.floats(0, 1) | st.integers(1, 40), max_size=8),
)
def test_requests_are_answered_in_order_however_their_bytes_are_split(several, cuts):
    stream = b"".join(sent for sent, *_ in several)
    places = sorted(int(cut * len(stream)) if isinstance(cut, float) else cut for cut in cuts)
    edges = [0, *(min(place, len(stream)) for place in places), len(stream)]

    async def main():
        peer = Peer()
        await peer.sent([stream[a:b] for a, b in pairwise(edges)])
        return peer.answers(), peer.application.most

    answers, most = asyncio.run(main())
    assert most <= 1
    for (status, body, last), (_, expected, content, may_be_last) in zip(
        answers, several, strict=False
    ):
        assert (status, body) == (expected, content)
        assert may_be_last or not last
    # All requests were answered, or all up to an answer that closes the connection.
    assert len(answers) == len(several) or answers[-1][2]
    assert not any(last for _, _, last in answers[:-1])


def test_few_bytes_are_read_beyond_an_unanswered_request():
    async def main():
        peer = Peer()
        peer.application.go_on.clear()
        first = request("/")
        assert peer.takes(first) == len(first)
        await asyncio.sleep(0)
        assert peer.takes(first * 10_000) <= HEAD_BYTES
        assert peer.application.active == 1
        peer.application.go_on.set()
        await peer.sent([])
        assert 1 < len(peer.answers()) <= 1 + HEAD_BYTES // len(first)

    asyncio.run(main())


def test_few_bytes_of_a_body_are_read_before_the_application_reads_the_body():
    async def main():
        peer = Peer()
        peer.application.go_on.clear()
        head = request("/early", bytes(10 * UNREAD_BYTES))
        assert peer.takes(head) <= 200 + UNREAD_BYTES

    asyncio.run(main())


def test_the_next_request_is_answered_only_after_the_previous_answer_was_read():
    async def main():
        peer = Peer()
        peer.connection.pause_writing()
        await peer.sent([request("/") * 3])
        assert len(peer.answers()) == 1
        peer.connection.resume_writing()
        await peer.sent([])
        assert len(peer.answers()) == 3

    asyncio.run(main())


@pytest.mark.parametrize("size", [HEAD_BYTES - 1, HEAD_BYTES, HEAD_BYTES + 1])
def test_the_limit_of_a_request_head_holds_within_one_read(size):
    async def main():
        peer = Peer()
        head = b"GET / HTTP/1.1\r\nX: \r\n\r\n"
        await peer.sent([head.replace(b"X: ", b"X: " + b"x" * (size - len(head)))])
        return peer.answers()[0][0]

    assert asyncio.run(main()) == (200 if size <= HEAD_BYTES else 431)


def test_a_client_that_does_not_read_its_answer_does_not_extend_its_deadline():
    async def parts(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"one, ", "more_body": True})
        await send({"type": "http.response.body", "body": b"two"})

    async def main():
        peer = Peer(parts)
        peer.takes(request("/", b"12345")[:-5])
        peer.connection.pause_writing()
        await asyncio.sleep(0)
        assert peer.wire.written.endswith(b"one, ")
        peer.takes(b"12345")
        assert peer.connection.entry.awaits is READER
        peer.connection.resume_writing()
        await peer.sent([])
        assert peer.wire.written.endswith(b"one, two")

    asyncio.run(main())


def test_an_answer_without_a_length_ends_with_the_connection():
    async def parts(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"one, ", "more_body": True})
        await send({"type": "http.response.body", "body": b"two"})

    async def main():
        peer = Peer(parts)
        await peer.sent([request("/") * 2])
        assert peer.wire.closed
        head, _, body = bytes(peer.wire.written).partition(b"\r\n\r\n")
        assert (b"connection: close" in head, b"content-length" in head) == (True, False)
        assert body == b"one, two"

    asyncio.run(main())


def test_http_100_continue_is_sent_to_a_client_that_waits_for_the_status():
    async def main():
        peer = Peer()
        head = request("/read", b"12345", b"Expect: 100-continue")
        await peer.sent([])
        assert peer.takes(head[:-5]) == len(head) - 5
        while not peer.wire.written:
            await asyncio.sleep(0)
        assert peer.wire.written == b"HTTP/1.1 100 Continue\r\n\r\n"
        peer.wire.written.clear()
        await peer.sent([b"12345"])
        assert peer.answers() == [(200, digest(b"12345"), False)]

    asyncio.run(main())


@pytest.mark.parametrize(
    "lines",
    [
        [b"GET / HTTP/1.1", b"Content-Length: +1"],
        [b"GET / HTTP/1.1", b"Content-Length: 1, 1"],
        [b"GET / HTTP/1.1", b"Content-Length: " + b"9" * 30],
        [b"GET / HTTP/1.1", b"Content-Length: 1", b"Transfer-Encoding: chunked"],
        [b"GET / HTTP/1.1", b"Transfer-Encoding: chunked"],
        [b"GET / HTTP/1.1", b"Transfer-Encoding: identity"],
        [b"GET / HTTP/1.1\nX: y\n\nGET / HTTP/1.1"],
        [b"GET / HTTP/1.1", b" folded"],
        [b"GET / HTTP/1.1", b"no colon"],
        [b"GET / HTTP/1.1", b"X : y"],
        [b"GET  HTTP/1.1"],
        [b"PRI * HTTP/2.0"],
        [b"GET / HTTP/1.1", b"X: a\rb"],
        [b"GET / HTTP/1.1", b"X: \0"],
    ],
)
def test_malformed_request_heads_and_missing_lengths_are_refused(lines):
    with pytest.raises(MalformedError):
        request_of(b"\r\n".join(lines) + b"\r\n\r\n")


def test_an_upgrade_header_is_ignored():
    lines = b"GET /a%20b?c HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
    found = request_of(lines)
    assert (found.scope["path"], found.scope["query_string"]) == ("/a b", b"c")
    assert found.keep_alive


def test_a_body_in_tiny_parts_needs_little_more_memory_than_its_bytes():
    parts = 20_000
    arrived, held = iter(range(parts)), []

    async def receive():
        left = parts - 1 - next(arrived)
        if not left:
            held.append(tracemalloc.get_traced_memory()[1])
        return {"type": "http.request", "body": bytes([left % 251, 1]), "more_body": left > 0}

    tracemalloc.start()
    try:
        body = asyncio.run(Bodies(1 << 20).read(1, receive, 2 * parts))
    finally:
        tracemalloc.stop()
    assert len(body) == 2 * parts
    assert held[0] < 10 * len(body)
