"""Process of honest devices, which sends signed updates and counts receipts.

Plain sockets and epoll leave the coordinator most of the two processors that it shares with this
process. A device that is told to retry later, or whose connection breaks, sends the same request
again; its time runs from its first connect to its receipt.
"""

from __future__ import annotations

import multiprocessing
import random
import re
import select
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from signing import Bodies, signed_head

_BREATH_SECONDS = 0.25
_GIVEN_UP_SECONDS = 120.0


@dataclass(frozen=True)
class Target:
    """Destination of requests.

    Attributes:
        port: port of the coordinator on this machine.
        request_format: name of the format of signed requests.
        task: name of the task.
        size: length of an update in bytes.
        step: the open step.
    """

    port: int
    request_format: str
    task: str
    size: int
    step: int = 0


@dataclass
class Figures:
    """Measurements by the devices.

    Attributes:
        times: seconds of each device from the first connect to the receipt.
        retries: number of repeated requests.
        worst_retries: largest number of retries of one device.
        refused: number of answers that were neither a receipt nor a request to retry.
        seconds: from the first connect to the last receipt.
        cpu_seconds: CPU time of this process.
    """

    times: list[float] = field(default_factory=list)
    retries: int = 0
    worst_retries: int = 0
    refused: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0

    def percentile(self, of_100: float) -> float:
        """Percentile of the times."""
        return float(np.percentile(self.times or [float("nan")], of_100))

    def joined(self, other: Figures) -> Figures:
        """Combined measurements of two processes."""
        return Figures(
            self.times + other.times,
            self.retries + other.retries,
            max(self.worst_retries, other.worst_retries),
            self.refused + other.refused,
            self.seconds + other.seconds,
            self.cpu_seconds + other.cpu_seconds,
        )


def at_once(target: Target, clients: Sequence[int]) -> Figures:
    """Measurements if all clients connect at the same time."""
    return _beside(target, clients, lambda devices: devices.all_at_once())


def kept_alive(target: Target, clients: Sequence[int], connections: int) -> Figures:
    """Measurements with several connections, each of which sends one request after another."""
    return _beside(target, clients, lambda devices: devices.over_kept(connections))


def always_fresh(target: Target, clients: Sequence[int], connections: int) -> Figures:
    """Measurements with a fixed number of concurrent clients, each on a new connection."""
    return _beside(target, clients, lambda devices: devices.over_fresh(connections))


def steady(target: Target, clients: Sequence[int], a_second: float) -> Figures:
    """Measurements with new connections at a steady rate, however long answers take."""
    return _beside(target, clients, lambda devices: devices.at_rate(a_second))


def _beside(target: Target, clients: Sequence[int], run: Callable[[_Devices], None]) -> Figures:
    """Run a measurement in a separate process whose requests are signed before the clock starts."""
    receiving, sending = multiprocessing.Pipe(duplex=False)

    def generate() -> None:
        devices = _Devices(target, clients)
        cpu, began = time.process_time(), time.perf_counter()
        run(devices)
        devices.figures.seconds = time.perf_counter() - began
        devices.figures.cpu_seconds = time.process_time() - cpu
        sending.send(devices.figures)

    process = multiprocessing.get_context("fork").Process(target=generate)
    process.start()
    figures = receiving.recv()
    process.join()
    return figures


class _Exchange:
    """One request of one client, and its current connection."""

    __slots__ = ("answer", "began", "body", "head", "left", "retries", "socket")

    def __init__(self, head: bytes, body: bytes) -> None:
        self.head, self.body = head, body
        self.began, self.retries = 0.0, 0
        self.socket: socket.socket | None = None
        self.left, self.answer = memoryview(b""), b""


class _Devices:
    def __init__(self, target: Target, clients: Sequence[int]) -> None:
        self._address = ("127.0.0.1", target.port)
        bodies = Bodies.of(target.size)
        self._waiting = [
            _Exchange(
                signed_head(target.request_format, target.task, target.step, client, bodies),
                bodies.of_client(client),
            )
            for client in reversed(clients)
        ]
        self.figures = Figures()
        self._epoll = select.epoll()
        self._open: dict[int, _Exchange] = {}
        self._later: list[tuple[float, _Exchange]] = []
        self._kept = self._following = False

    def all_at_once(self) -> None:
        while self._waiting:
            self._begin(self._waiting.pop())
        self._until_all_answered()

    def over_kept(self, connections: int) -> None:
        self._kept = True
        self.over_fresh(connections)

    def over_fresh(self, connections: int) -> None:
        self._following = True
        for _ in range(min(connections, len(self._waiting))):
            self._begin(self._waiting.pop())
        self._until_all_answered()

    def at_rate(self, a_second: float) -> None:
        began, sent = time.perf_counter(), 0
        while self._waiting:
            due = began + sent / a_second
            if time.perf_counter() >= due:
                self._begin(self._waiting.pop())
                sent += 1
            self._turn(max(0.0, due - time.perf_counter()))
        self._until_all_answered()

    def _until_all_answered(self) -> None:
        given_up = time.perf_counter() + _GIVEN_UP_SECONDS
        while (self._open or self._later) and time.perf_counter() < given_up:
            self._turn(0.05)
        self.figures.refused += len(self._open) + len(self._later)

    def _begin(self, exchange: _Exchange) -> None:
        exchange.began = time.perf_counter()
        self._connect(exchange)

    def _connect(self, exchange: _Exchange) -> None:
        exchange.socket = socket.socket()
        exchange.socket.setblocking(False)
        exchange.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 17)
        exchange.socket.connect_ex(self._address)
        self._send_over(exchange)
        self._epoll.register(exchange.socket, select.EPOLLOUT | select.EPOLLIN)
        self._open[exchange.socket.fileno()] = exchange

    def _send_over(self, exchange: _Exchange) -> None:
        exchange.left, exchange.answer = memoryview(exchange.head + exchange.body), b""

    def _turn(self, seconds: float) -> None:
        """Process the sockets that are ready, and the requests whose retry is due."""
        for descriptor, events in self._epoll.poll(seconds if not self._later else 0.01):
            exchange = self._open.get(descriptor)
            if exchange is None:
                continue
            try:
                self._moved(exchange, events)
            except OSError:
                self._again(exchange, 0.0)
        now = time.perf_counter()
        due = [exchange for at, exchange in self._later if at <= now]
        if due:
            self._later = [(at, exchange) for at, exchange in self._later if at > now]
            for exchange in due:
                self._connect(exchange)

    def _moved(self, exchange: _Exchange, events: int) -> None:
        connection = exchange.socket
        assert connection is not None
        if events & select.EPOLLOUT and exchange.left:
            exchange.left = exchange.left[connection.send(exchange.left) :]
            if not exchange.left:
                self._epoll.modify(connection, select.EPOLLIN)
        if events & (select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR):
            part = connection.recv(1 << 16)
            if not part:
                raise ConnectionResetError
            exchange.answer += part
            self._read(exchange)

    def _read(self, exchange: _Exchange) -> None:
        head, separator, body = exchange.answer.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head)
        if not separator or length is None or len(body) < int(length[1]):
            return
        status = head[9:12]
        if status == b"503":
            found = re.search(rb"retry-after: (\d+)", head)
            self._again(exchange, float(found[1]) if found else 0.0)
            return
        if status == b"200":
            self.figures.times.append(time.perf_counter() - exchange.began)
        else:
            self.figures.refused += 1
        self._go_on(exchange, closing=b"connection: close" in head)

    def _go_on(self, exchange: _Exchange, *, closing: bool) -> None:
        """Send the next request on the same connection, if connections are kept."""
        if not self._kept or not self._waiting or closing:
            self._leave(exchange)
            if self._following and self._waiting:
                self._begin(self._waiting.pop())
            return
        following = self._waiting.pop()
        following.began, following.socket = time.perf_counter(), exchange.socket
        self._send_over(following)
        assert following.socket is not None
        self._open[following.socket.fileno()] = following
        self._epoll.modify(following.socket, select.EPOLLOUT | select.EPOLLIN)

    def _leave(self, exchange: _Exchange) -> None:
        assert exchange.socket is not None
        del self._open[exchange.socket.fileno()]
        self._epoll.unregister(exchange.socket)
        exchange.socket.close()

    def _again(self, exchange: _Exchange, seconds: float) -> None:
        self._leave(exchange)
        self.figures.retries += 1
        exchange.retries += 1
        self.figures.worst_retries = max(self.figures.worst_retries, exchange.retries)
        at = time.perf_counter() + seconds + random.uniform(0, _BREATH_SECONDS)
        self._later.append((at, exchange))
