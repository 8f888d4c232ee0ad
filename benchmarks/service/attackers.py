"""Process of attackers: connections that cost the coordinator resources without a valid request.

Each closed connection is opened again a little later, as long as the attack lasts.
"""

from __future__ import annotations

import heapq
import multiprocessing
import os
import random
import resource
import select
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection

_HEAD = b"POST /v1/steps/0/updates HTTP/1.1\r\nHost: x\r\n"
_DRIP_SECONDS = 2.0
_CONNECTS_A_TURN = 40


@dataclass(frozen=True)
class Attack:
    """Number of attacking connections of each kind.

    Attributes:
        idle: connections without any request.
        slow_heads: connections that send their request's head byte by byte.
        slow_bodies: connections that send an unsigned head, and its body byte by byte.
        addresses: number of source addresses (127.x.y.z).
        pause_seconds: time until a closed connection is opened again.
    """

    idle: int
    slow_heads: int
    slow_bodies: int
    addresses: int
    pause_seconds: float = 10.0


@dataclass
class Damage:
    """Outcome of the attacking connections."""

    connects: int = 0
    closed: int = 0
    most_open: int = 0
    cpu_seconds: float = 0.0


@contextmanager
def attacking(attack: Attack, port: int, size: int) -> Iterator[Damage]:
    """Context manager of an attack, which begins after most connections are open."""
    ours, theirs = multiprocessing.Pipe()
    context = multiprocessing.get_context("fork")
    process = context.Process(target=_Attackers(attack, port, size, theirs).run)
    process.start()
    ours.recv()
    damage = Damage()
    try:
        yield damage
    finally:
        ours.send("over")
        vars(damage).update(vars(ours.recv()))
        process.join()


class _Attackers:
    """Numbered connections and the bytes that each sends first; further bytes follow one by one."""

    def __init__(self, attack: Attack, port: int, size: int, pipe: Connection) -> None:
        self._attack, self._port, self._pipe = attack, port, pipe
        body = _HEAD + b"Content-Length: %d\r\n" % size + _made_up_headers()
        self._firsts = [b""] * attack.idle + [_HEAD] * attack.slow_heads
        self._firsts += [body] * attack.slow_bodies
        random.shuffle(self._firsts)
        self._damage = Damage()
        self._open: dict[int, tuple[int, socket.socket]] = {}
        self._connecting = [(0.0, number) for number in range(len(self._firsts))]
        self._dripping: list[tuple[float, int, socket.socket]] = []

    def run(self) -> None:
        """Run the attack until the block ends."""
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        self._epoll, cpu = select.epoll(), time.process_time()
        begun = False
        while not self._pipe.poll():
            self._turn()
            if not begun and self._damage.connects >= len(self._firsts):
                begun = True
                self._pipe.send("begun")
        self._damage.cpu_seconds = time.process_time() - cpu
        self._pipe.send(self._damage)
        os._exit(0)

    def _turn(self) -> None:
        for descriptor, events in self._epoll.poll(0.02):
            number, connection = self._open[descriptor]
            if events & select.EPOLLOUT:  # it is connected
                self._epoll.modify(descriptor, select.EPOLLIN)
                self._say(self._firsts[number], connection)
            elif _gone(connection):
                self._left(descriptor, number, connection)
        now = time.monotonic()
        for _ in range(_CONNECTS_A_TURN):
            if not self._connecting or self._connecting[0][0] > now:
                break
            self._connect(heapq.heappop(self._connecting)[1])
        while self._dripping and self._dripping[0][0] <= now:
            self._say(b"a", heapq.heappop(self._dripping)[2])
        self._damage.most_open = max(self._damage.most_open, len(self._open))

    def _connect(self, number: int) -> None:
        connection = socket.socket()
        host = number % self._attack.addresses
        connection.bind((f"127.0.{host // 250}.{1 + host % 250}", 0))
        connection.setblocking(False)
        connection.connect_ex(("127.0.0.1", self._port))
        self._damage.connects += 1
        self._open[connection.fileno()] = number, connection
        self._epoll.register(connection, select.EPOLLIN | select.EPOLLOUT)

    def _say(self, data: bytes, connection: socket.socket) -> None:
        if not data or connection.fileno() < 0:
            return
        with suppress(OSError):
            connection.send(data)
            due = time.monotonic() + _DRIP_SECONDS
            heapq.heappush(self._dripping, (due, id(connection), connection))

    def _left(self, descriptor: int, number: int, connection: socket.socket) -> None:
        del self._open[descriptor]
        self._epoll.unregister(descriptor)
        connection.close()
        self._damage.closed += 1
        pause = self._attack.pause_seconds * random.uniform(0.5, 1.5)
        heapq.heappush(self._connecting, (time.monotonic() + pause, number))


def _gone(connection: socket.socket) -> bool:
    try:
        return not connection.recv(4096)
    except OSError:
        return True


def _made_up_headers() -> bytes:
    names = {"Client": "1", "Nonce": "0" * 32, "Digest": "0" * 64, "Format": "int32-lattice-1"}
    names |= {"Signature": "0" * 128}
    lines = "".join(f"Turnout-{name}: {value}\r\n" for name, value in names.items())
    return lines.encode() + b"\r\n"
