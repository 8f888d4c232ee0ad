"""Connections over real sockets: silent and slow clients do not delay others."""

import asyncio
import logging
import re
import resource
import socket
from contextlib import ExitStack, asynccontextmanager, closing, suppress
from pathlib import Path

import pytest
import uvloop
from forked import HANGS_SECONDS
from processes import turnout, waited_for
from web_world import charter_of, signed, task_storage, world

from turnout.core.errors import ParameterError
from turnout.service import dashboard
from turnout.service.contract.wire import updates_path
from turnout.service.web import connections
from turnout.service.web import server as descriptors
from turnout.service.web.bounded_server import BoundedServer, listening_at
from turnout.service.web.connections import Awaits, Connections, proxies
from turnout.service.web.server import http_server
from turnout.service.web.settings import Settings
from turnout.service.witness.app import WitnessStore
from turnout.service.witness.app import create_witness_app as witness_app


class Served:
    """Simulation behind a listening socket, with the clock of its connection table."""

    def __init__(self, w):
        self.world, self.now, self.port = w, 1000.0, 0
        self.opened_so_far = []

    def head(self, client, body, *, length=None, signature=None):
        headers = signed(self.world.task, updates_path(0), client, body)
        if signature is not None:
            headers["Turnout-Signature"] = signature
        lines = [f"POST {updates_path(0)} HTTP/1.1", "Host: x"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        lines.append(f"Content-Length: {len(body) if length is None else length}")
        return ("\r\n".join(lines) + "\r\n\r\n").encode()

    async def opened(self, data=b""):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.opened_so_far.append(writer)
        writer.write(data)
        return reader, writer

    async def closed(self):
        for writer in self.opened_so_far:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def status(self, client):
        """HTTP status of a valid request over a new connection."""
        body = self.world.body()
        reader, _ = await self.opened(self.head(client, body) + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        return int(answer.split()[1])


@asynccontextmanager
async def served(folder, most=64, **how):
    async with world(folder, **how) as w:
        made = Served(w)
        settings = Settings(db="db", port=0)
        server = http_server(w.running, None, settings, None, most, clock=lambda: made.now)
        with listening_at(settings.host, settings.port) as listening:
            made.port = listening.getsockname()[1]
            serving = asyncio.create_task(server.serve(listening))
            await server.started.wait()
            made.server = server
            try:
                yield made
            finally:
                await made.closed()
                server.stop()
                await serving


def run(main):
    async def bounded():
        async with asyncio.timeout(HANGS_SECONDS):
            await main()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(bounded())


@pytest.mark.parametrize("said", [b"", b"P", b"POST /v1/steps/0/updates HTTP/1.1\r\nHo"])
def test_an_incomplete_request_head_times_out(tmp_path, said):
    async def main():
        async with served(tmp_path) as s:
            slow = [await s.opened(said) for _ in range(20)]
            assert await s.status(1) == 200
            s.now += 11
            for reader, _ in slow:
                assert await reader.read() == b""
            assert await s.status(2) == 200

    run(main)


def test_unauthenticated_bodies_are_not_read(tmp_path):
    async def main():
        async with served(tmp_path) as s:
            head = s.head(1, s.world.body(), signature="00" * 64)
            reader, writer = await s.opened(head)
            answer = await reader.readuntil(b"\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 401 ")
            assert b"connection: close" in answer
            assert s.world.running.bodies.held == 0
            writer.write(s.world.body())  # late bytes that must not affect other answers
            assert await reader.read() == b'{"answer":"unknown"}'

    run(main)


def test_a_signed_body_is_refused_after_its_deadline(tmp_path):
    async def main():
        async with served(tmp_path) as s:
            body = s.world.body()
            slow, _ = await s.opened(s.head(1, body) + body[:5])
            patient, writer = await s.opened(s.head(2, body) + body[:5])
            while len(s.world.running.bodies) < 2:
                await asyncio.sleep(0.001)
            writer.write(body[5:])
            assert (await patient.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
            s.now += 11
            assert (await slow.read()).startswith(b"HTTP/1.1 408 ")
            assert s.world.running.bodies.held == 0

    run(main)


def test_a_newer_body_replaces_an_older_body_of_the_same_client(tmp_path):
    async def main():
        async with served(tmp_path) as s:
            body = s.world.body()
            first, _ = await s.opened(s.head(1, body) + body[:5])
            while not s.world.running.bodies.held:
                await asyncio.sleep(0)
            second, writer = await s.opened(s.head(1, body) + body[:7])
            assert (await first.read()).startswith(b"HTTP/1.1 503 ")
            assert (len(s.world.running.bodies), s.world.running.bodies.held) == (1, 7)
            writer.write(body[7:])
            assert (await second.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")

    run(main)


def test_slow_bodies_do_not_block_updates(tmp_path):
    """Only received bytes count, not announced lengths; the oldest body is dropped."""

    async def main():
        async with served(tmp_path, most_bytes=100) as s:  # three updates, and four bytes
            body = s.world.body()
            slow = []
            for client in range(15):
                slow.append(await s.opened(s.head(client, body) + body[:5]))
                while len(s.world.running.bodies) <= client:
                    await asyncio.sleep(0)
            fast, writer = await s.opened(s.head(19, body) + body[:20])
            while s.world.running.bodies.held < 95:
                await asyncio.sleep(0)
            writer.write(body[20:])
            assert (await fast.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
            assert len(s.world.running.bodies) == 13
            for reader, _ in slow[:2]:
                assert (await reader.read()).startswith(b"HTTP/1.1 503 ")

    run(main)


@pytest.mark.parametrize("said", [b"", b"POST /v1/steps/0/updates HTTP/1.1\r\nHo"])
def test_silent_connections_are_closed_if_too_many_connections_are_open(tmp_path, said):
    async def main():
        async with served(tmp_path, most=8) as s:
            silent = [await s.opened(said) for _ in range(40)]
            for client in range(5):
                assert await s.status(client) == 200
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await silent[0][0].readexactly(1)

    run(main)


def test_a_client_that_reads_no_answer_is_closed(tmp_path):
    """The requests are pipelined: each answer waits until the previous answer is read."""

    async def main():
        async with served(tmp_path) as s:
            loop, table = asyncio.get_running_loop(), s.server.table
            with socket.socket() as greedy:
                greedy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                greedy.setblocking(False)
                await loop.sock_connect(greedy, ("127.0.0.1", s.port))
                asked = b"GET /v1/charter HTTP/1.1\r\nHost: x\r\n\r\n"
                sending = asyncio.create_task(loop.sock_sendall(greedy, 2_000 * asked))
                while not any(one.entry.awaits is Awaits.READER for one in s.server.open):
                    await asyncio.sleep(0)
                for _ in range(3):
                    s.now += 31
                    assert not [*table.sweep()]
                sending.cancel()
                assert table.given_up
                while len(table):
                    s.now += 31
                    [*table.sweep()]
                    await asyncio.sleep(0)

    run(main)


def test_waiting_connections_are_accepted_quickly(tmp_path):
    async def main():
        async with served(tmp_path) as s:
            before = len(s.server.table)
            waiting = [socket.create_connection(("127.0.0.1", s.port)) for _ in range(30)]
            for _ in range(3):
                await asyncio.sleep(0)
            assert len(s.server.table) == before + 30 < connections.ACCEPTED_AT_ONCE
            for connection in waiting:
                connection.close()
            while len(s.server.table) > before:
                await asyncio.sleep(0.001)

    run(main)


def test_an_endless_request_head_is_refused(tmp_path):
    async def main():
        async with served(tmp_path) as s:
            reader, _ = await s.opened(b"GET / HTTP/1.1\r\n" + b"X: " + b"x" * 20_000)
            assert (await reader.read()).startswith(b"HTTP/1.1 431 ")

    run(main)


def test_http_connections_are_reused_and_pipelined(tmp_path):
    async def main():
        async with served(tmp_path) as s:
            body = s.world.body()
            one = s.head(1, body) + body
            reader, writer = await s.opened(one + s.head(2, body) + body[:3])
            assert (await reader.readuntil(b"}")).startswith(b"HTTP/1.1 200 ")
            writer.write(
                body[3:] + b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
            )
            rest = await reader.read()
            assert rest.count(b"HTTP/1.1 200 ") == 2
            assert rest.endswith(b'{"alive":true}')

    run(main)


def test_head_requests_get_the_headers_without_the_body(tmp_path):
    file = Path(dashboard.__file__).with_name("static") / "dashboard.css"

    async def main():
        async with served(tmp_path) as s:
            path = f"/static/{file.name}".encode()
            reader, writer = await s.opened(b"HEAD %b HTTP/1.1\r\n\r\n" % path)
            head = await reader.readuntil(b"\r\n\r\n")
            assert b"content-length: %d\r\n" % file.stat().st_size in head
            writer.write(b"GET %b HTTP/1.1\r\nConnection: close\r\n\r\n" % path)
            again = await reader.readuntil(b"\r\n\r\n")
            assert again.startswith(b"HTTP/1.1 200 OK\r\n")
            assert await reader.read() == file.read_bytes()

    run(main)


# -- what strangers write into the log --------------------------------------------------------

RUBBISH = [
    "POST {} HTTP/1.1\r\nContent-Length: 400\r\n\r\nx",
    "POST {} HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\nx\n0\n\n",
    "POST {} HTTP/1.1\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nx",
    "POST {} HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n10000000000000001\r\nx\r\n",
    "GET {} HTTP/1.1\r\nContent-Length: 3\r\n\r\nabcx\x01 rubbish",
    "GET {} HTTP/1.1\r\nHos",
    "DELETE {}?\xff HTTP/1.1\r\n\r\n",
    "PUT {} HTTP/1.1\r\nAuthorization: Basic \xff\r\nCookie: =;\xff\r\n\r\n",
]


async def rubbish(server, port, app):
    """Send invalid requests to all endpoints of an application, and disconnect immediately."""
    paths = {re.sub(r"\{.*?\}", "0", route.path) for route in app.routes}
    assert len(paths) > 2
    for row, path in enumerate(sorted(paths)):
        for column, text in enumerate(RUBBISH):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(text.format(path).encode("latin-1"))
            with suppress(ConnectionError):
                await writer.drain()
            if (row + column) % 2:
                writer.transport.abort()
            else:
                writer.close()
    while len(server.table) or server.answering:
        await asyncio.sleep(0)


async def assert_little_is_logged(server, port, app, caplog, later):
    caplog.set_level(logging.INFO)
    await rubbish(server, port, app)
    server.report()
    (line,) = caplog.records
    assert re.search(r"ended early: .*\d+ broken off.*\d+ without a length", line.getMessage())
    assert len(line.getMessage()) < 200
    await rubbish(server, port, app)
    server.report()
    assert len(caplog.records) == 1
    later()
    server.report()
    assert len(caplog.records) == 2
    assert not any(record.exc_info for record in caplog.records)


def test_unauthenticated_requests_are_logged_once_a_minute(tmp_path, caplog):
    async def main():
        async with served(tmp_path) as s:
            await assert_little_is_logged(
                s.server, s.port, s.world.app, caplog, lambda: setattr(s, "now", s.now + 60)
            )

    run(main)


def test_refused_requests_to_a_witness_are_logged_once_a_minute(tmp_path, caplog):
    async def main():
        now = [0.0]
        table = Connections(64, 64, proxies(None), lambda: now[0])
        with closing(WitnessStore(tmp_path / "witness")) as store:
            app = witness_app(store, "a token of the operator")
            server = BoundedServer(app, table, None, 1.0)
            listening = listening_at("127.0.0.1", 0)
            port = listening.getsockname()[1]
            serving = asyncio.create_task(server.serve(listening))
            await server.started.wait()
            await assert_little_is_logged(
                server, port, app, caplog, lambda: now.__setitem__(0, 60.0)
            )
            server.stop()
            await serving

    run(main)


def test_a_repeated_internal_error_is_logged_once_a_minute(tmp_path, caplog, monkeypatch):
    async def main():
        async with served(tmp_path) as s:
            monkeypatch.setattr(s.world.running, "progress", None)
            for _ in range(3):
                reader, _ = await s.opened(b"GET /v1/status HTTP/1.1\r\n\r\n")
                assert b" 500 " in await reader.readuntil(b"\r\n\r\n")
            assert len([record for record in caplog.records if record.exc_info]) == 1
            s.server.report()
            assert "3 failed" in caplog.messages[-1]

    caplog.set_level(logging.INFO)
    run(main)


# -- descriptors ----------------------------------------------------------------------------


@pytest.fixture
def limits(monkeypatch):
    """Simulated limits of open files of the process."""
    held = [100, 1000]
    monkeypatch.setattr(resource, "getrlimit", lambda which: tuple(held))
    monkeypatch.setattr(resource, "setrlimit", lambda which, new: held.__setitem__(slice(2), new))
    return held


@pytest.mark.parametrize(
    ("hard", "wanted", "held", "soft"),
    [
        (10_000, 500, 500, 500 + descriptors.KEPT),
        (resource.RLIM_INFINITY, 500, 500, 500 + descriptors.KEPT),
        (500, 500, 500 - descriptors.KEPT, 500),
    ],
)
def test_the_limit_of_open_files_is_raised_as_far_as_needed(limits, hard, wanted, held, soft):
    limits[1] = hard
    assert descriptors.room(wanted) == held
    assert limits == [soft, hard]


def test_a_sufficient_limit_of_open_files_is_kept(limits):
    limits[:] = [5000, 10_000]
    assert descriptors.room(500) == 500
    assert limits == [5000, 10_000]


def test_a_limit_of_too_few_connections_is_refused(limits):
    limits[1] = descriptors.KEPT + descriptors.FEWEST - 1
    with pytest.raises(ParameterError, match="64 or more besides 256 other files"):
        descriptors.room(500)


def _few_descriptors():
    resource.setrlimit(resource.RLIMIT_NOFILE, (300, 300))


def _some_descriptors():
    resource.setrlimit(resource.RLIMIT_NOFILE, (400, 400))


def test_a_file_limit_that_is_too_low_prevents_the_start(tmp_path):
    (tmp_path / "plan.toml").write_text(charter_of().plan)
    task_storage(tmp_path / "db", charter_of()).close()
    arguments = ("serve", "plan.toml", "--db", "db", "--port", 0)
    process = turnout(*arguments, log=tmp_path / "log", prepare=_few_descriptors)
    assert process.wait() == 2
    assert "ulimit -n" in (tmp_path / "log").read_text()


def test_a_low_limit_of_open_files_is_reported(tmp_path):
    (tmp_path / "plan.toml").write_text(charter_of().plan)
    task_storage(tmp_path / "db", charter_of()).close()
    arguments = ("serve", "plan.toml", "--db", "db", "--port", 0)
    log = tmp_path / "log"
    process = turnout(*arguments, log=log, prepare=_some_descriptors)
    idle = ExitStack()
    try:
        while '"most": 144' not in log.read_text() or " on http://" not in log.read_text():
            assert process.poll() is None, log.read_text()
        address = next(word for word in log.read_text().split() if word.startswith("http://"))
        port = int(address.rpartition(":")[2])
        for _ in range(200):
            idle.enter_context(socket.create_connection(("127.0.0.1", port)))
        waited_for(f"{address}/v1/status", process, log)
    finally:
        idle.close()
        process.kill()
