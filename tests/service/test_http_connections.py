"""Real sockets: who says nothing, or too slowly, stands in nobody's way."""

import asyncio
import resource
import socket
from contextlib import ExitStack, asynccontextmanager, suppress

import pytest
import uvloop
from forked import HANGS_SECONDS
from processes import turnout, waited_for
from web_world import charter_of, signed, task_storage, world

from turnout.core.errors import ParameterError
from turnout.service.contract.wire import updates_path
from turnout.service.web import connections
from turnout.service.web import server as descriptors
from turnout.service.web.http_connection import listening_at
from turnout.service.web.server import _server
from turnout.service.web.settings import Settings


class Served:
    """A world behind a listening socket, and the clock of its table."""

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
        """Of an honest request over a fresh connection."""
        body = self.world.body()
        reader, _ = await self.opened(self.head(client, body) + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        return int(answer.split()[1])


@asynccontextmanager
async def served(folder, most=64):
    async with world(folder) as w:
        made = Served(w)
        settings = Settings(db="db", port=0)
        server = _server(w.running, None, settings, None, most, clock=lambda: made.now)
        with listening_at(settings.host, settings.port) as listening:
            made.port = listening.getsockname()[1]
            serving = asyncio.create_task(server.serve([listening]))
            while not server.started:
                await asyncio.sleep(0)
            made.server = server
            try:
                yield made
            finally:
                await made.closed()
                server.should_exit = True
                await serving


def run(main):
    async def bounded():
        async with asyncio.timeout(HANGS_SECONDS):
            await main()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(bounded())


@pytest.mark.parametrize("said", [b"", b"P", b"POST /v1/steps/0/updates HTTP/1.1\r\nHo"])
def test_a_head_that_does_not_come_is_not_waited_for(tmp_path, said):
    async def main():
        async with served(tmp_path) as s:
            slow = [await s.opened(said) for _ in range(20)]
            assert await s.status(1) == 200
            s.now += 11
            for reader, _ in slow:
                assert await reader.read() == b""
            assert await s.status(2) == 200

    run(main)


def test_a_stranger_is_answered_before_the_body_and_nothing_of_it_is_kept(tmp_path):
    async def main():
        async with served(tmp_path) as s:
            head = s.head(1, s.world.body(), signature="00" * 64)
            reader, writer = await s.opened(head)
            answer = await reader.readuntil(b"\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 401 ")
            assert b"connection: close" in answer
            assert s.world.running.reading_bytes == 0
            writer.write(s.world.body())  # too late to matter, and it takes the answer from nobody
            assert await reader.read() == b'{"answer":"unknown"}'

    run(main)


def test_a_signed_body_has_time_and_then_is_refused(tmp_path):
    async def main():
        async with served(tmp_path) as s:
            body = s.world.body()
            slow, _ = await s.opened(s.head(1, body) + body[:5])
            patient, writer = await s.opened(s.head(2, body) + body[:5])
            while s.world.running.bodies_of.total() < 2:
                await asyncio.sleep(0.001)
            writer.write(body[5:])
            assert (await patient.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
            s.now += 11
            assert (await slow.read()).startswith(b"HTTP/1.1 408 ")
            assert s.world.running.reading_bytes == 0

    run(main)


def test_one_client_has_few_bodies_on_their_way(tmp_path):
    async def main():
        async with served(tmp_path) as s:
            body = s.world.body()
            for _ in range(4):
                await s.opened(s.head(1, body) + body[:5])
            while s.world.running.bodies_of[1] < 4:
                await asyncio.sleep(0.001)
            fifth, _ = await s.opened(s.head(1, body) + body[:5])
            assert (await fifth.read()).startswith(b"HTTP/1.1 503 ")
            assert await s.status(2) == 200

    run(main)


@pytest.mark.parametrize("said", [b"", b"POST /v1/steps/0/updates HTTP/1.1\r\nHo"])
def test_when_all_places_are_taken_the_silent_ones_make_room(tmp_path, said):
    async def main():
        async with served(tmp_path, most=8) as s:
            silent = [await s.opened(said) for _ in range(40)]
            for client in range(5):
                assert await s.status(client) == 200
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await silent[0][0].readexactly(1)

    run(main)


def test_who_takes_no_answer_holds_no_place(tmp_path):
    """Requests that come at once have answers that wait for one another's reader."""

    async def main():
        async with served(tmp_path) as s:
            loop, table = asyncio.get_running_loop(), s.server.table
            with socket.socket() as greedy:
                greedy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                greedy.setblocking(False)
                await loop.sock_connect(greedy, ("127.0.0.1", s.port))
                asked = b"GET /v1/charter HTTP/1.1\r\nHost: x\r\n\r\n"
                sending = asyncio.create_task(loop.sock_sendall(greedy, 2_000 * asked))
                while not (made := list(s.server.server_state.connections)):
                    await asyncio.sleep(0)
                while not made[0].flow.write_paused:
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


def test_all_who_wait_are_accepted_in_a_few_turns_of_the_loop(tmp_path):
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


def test_a_head_without_an_end_is_refused(tmp_path):
    async def main():
        async with served(tmp_path) as s:
            reader, _ = await s.opened(b"GET / HTTP/1.1\r\n" + b"X: " + b"x" * 20_000)
            assert (await reader.read()).startswith(b"HTTP/1.1 431 ")

    run(main)


def test_connections_are_kept_between_requests_and_requests_may_come_at_once(tmp_path):
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


# -- descriptors ----------------------------------------------------------------------------


@pytest.fixture
def limits(monkeypatch):
    """The process's limits of open files, without changing them."""
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


def test_what_is_high_enough_stays(limits):
    limits[:] = [5000, 10_000]
    assert descriptors.room(500) == 500
    assert limits == [5000, 10_000]


def test_hardly_any_connections_are_none(limits):
    limits[1] = descriptors.KEPT + descriptors.FEWEST - 1
    with pytest.raises(ParameterError, match="room for 64 beside 256 other files"):
        descriptors.room(500)


def _few_descriptors():
    resource.setrlimit(resource.RLIMIT_NOFILE, (300, 300))


def _some_descriptors():
    resource.setrlimit(resource.RLIMIT_NOFILE, (400, 400))


def test_a_process_that_may_open_too_little_does_not_start(tmp_path):
    (tmp_path / "plan.toml").write_text(charter_of().plan)
    task_storage(tmp_path / "db", charter_of()).close()
    arguments = ("serve", "plan.toml", "--db", "db", "--port", 0)
    process = turnout(*arguments, log=tmp_path / "log", prepare=_few_descriptors)
    assert process.wait() == 2
    assert "ulimit -n" in (tmp_path / "log").read_text()


def test_one_that_may_open_less_says_how_many_it_holds(tmp_path):
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
