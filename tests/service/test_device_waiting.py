"""Messages of a device to its owner while the coordinator does not answer."""

import asyncio
import socket
import threading

import pytest
from device_world import World
from fake_coordinator import URL

from turnout.service.device import Link, UnreachableError
from turnout.service.device.link import connection


def test_a_wait_for_the_coordinator_is_reported_at_its_start_and_end(tmp_path):
    asked = []

    def away(request):
        asked.append(request)
        return "unheard" if len(asked) < 5 else None

    world = World(tmp_path, fault=away)
    world.start()
    assert world.told[:2] == [
        f"waiting for {URL}: the coordinator does not answer: no connection to this "
        "address (refused)",
        "the coordinator answers",
    ]
    assert len(world.told) == 3


def test_a_slow_coordinator_is_reported_within_five_seconds(tmp_path):
    """The report comes long before the device gives up a request."""
    world, times = World(tmp_path), []
    world.wire.fault = lambda request: 19.0 if not world.coordinator.requests else None
    world.told = SaidAt(world, times)
    world.start()
    assert times[0] == (f"waiting for {URL}: no answer yet", pytest.approx(3.0))
    assert times[1] == ("the coordinator answers", pytest.approx(19.0))


class SaidAt:
    """List of a device's messages to its owner, with their times."""

    def __init__(self, world, times):
        self._world, self._times = world, times

    def append(self, text):
        """Record a message and its time."""
        self._times.append((text, self._world._now()))


@pytest.mark.parametrize(
    ("scheme", "answer", "reason"),
    [
        ("http", None, "no connection to this address"),
        ("http", b"SSH-2.0-OpenSSH_9.2\r\n", "does not answer in HTTP"),
        ("https", b"HTTP/1.1 400 Bad Request\r\n\r\n", "TLS to this address failed"),
    ],
)
def test_an_address_that_serves_no_coordinator_is_reported_with_the_reason(scheme, answer, reason):
    def speak(server):
        connection, _ = server.accept()
        with connection:
            connection.sendall(answer)
            connection.recv(1 << 16)

    async def asked(port):
        async with connection() as http:
            await Link(http, f"{scheme}://127.0.0.1:{port}").get("/v1/charter", 100)

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        speaking = threading.Thread(target=speak, args=(server,))
        if answer is None:
            server.close()
        else:
            speaking.start()
        with pytest.raises(UnreachableError, match=reason) as failure:
            asyncio.run(asked(port))
    if answer is not None:
        speaking.join()
    assert "\n" not in str(failure.value)
