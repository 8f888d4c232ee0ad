"""All open connections in one table: which one waits for what, until when, and which one gives way.

`Connections` is the table, `Listener` accepts. A silent connection costs a descriptor and some
memory, so there is a limit, for all together and for one address. At the limit no new connection is
turned away: the one that has been waited for longest gives way, and first of all one that never
sent a signed request. A connection that is being answered never gives way. One task looks at
deadlines once a second, rather than a timer for each connection.

uvloop's own server accepts one connection in a turn of its loop; a turn with hundreds of requests
in it takes long, so a device that connects last would wait for thousands of them. `Listener`
accepts many in a turn, and a connection gets its transport and its parser with its first byte.
"""

from __future__ import annotations

import asyncio
import ipaddress
import math
import selectors
import socket
import ssl
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from functools import partial

_GIVEN_UP_AT_ONCE = 32

SLOWEST_BYTES_A_SECOND = 1000.0
"""A body that comes more slowly, after its first seconds, is not waited for."""


class Awaits(Enum):
    """The event that a connection waits for, with its seconds."""

    FIRST = "first byte", 10.0
    HANDSHAKE = "handshake", 10.0
    HEAD = "head", 10.0
    BODY = "body", 10.0
    ANSWER = "answer", math.inf
    READER = "reader of its answer", 30.0
    NEXT = "next request", 30.0
    CLOSE = "close", 3.0

    def __init__(self, text: str, seconds: float) -> None:
        self.text, self.seconds = text, seconds


# A member's name is looked up by a function, several times in a request.
FIRST, HANDSHAKE, HEAD, BODY = Awaits.FIRST, Awaits.HANDSHAKE, Awaits.HEAD, Awaits.BODY
ANSWER, READER = Awaits.ANSWER, Awaits.READER
NEXT, CLOSE = Awaits.NEXT, Awaits.CLOSE


class Held:
    """The table's question to a connection; here, to one that is closed."""

    __slots__ = ()

    def give_up(self) -> None:
        """Its deadline is over: end it, with an answer where one is due."""

    def abort(self) -> None:
        """Drop it at once."""

    def unsent(self) -> int:
        """Bytes of answers that it has not taken yet."""
        return 0


_NOBODY = Held()


@dataclass(slots=True, eq=False)
class OpenConnection:
    """One open connection.

    Attributes:
        since: when it began to wait for what it awaits.
        bounded: whether its address has a bound of its own.
        awaits: what it is waiting for, which may take so long as is ``allowed``.
        known: it has brought a signed request.
        received, unsent: bytes of a body since then; of answers, when that was looked at last.
    """

    peer: str
    held: Held
    since: float
    bounded: bool
    awaits: Awaits = FIRST
    allowed: float = FIRST.seconds
    known: bool = False
    received: int = 0
    unsent: int = 0

    def overdue(self, now: float) -> bool:
        """Whether it is waited for no longer."""
        waited = now - self.since
        if waited <= self.allowed:
            return False
        if self.awaits is BODY:
            waited -= self.received / SLOWEST_BYTES_A_SECOND
        return waited > self.allowed and not self._takes_its_answer(now)

    def _takes_its_answer(self, now: float) -> bool:
        """Whether an answer goes on being read, however slowly the network carries it."""
        unsent = self.held.unsent()
        if not unsent or (self.unsent and unsent >= self.unsent):
            return False
        self.since, self.unsent = now, unsent
        return True


class Connections:
    """The table.

    Guarantees:
        There are never more than ``most`` entries, nor of one bounded address more than
        ``most_of_peer``.
        What makes room is the entry that was waited for longest; a stranger before one that is
        known, and none that waits for an answer or whose signed body is on its way.

    Args:
        exempt: whether an address has no bound of its own, as a proxy that many come through.
    """

    def __init__(
        self,
        most: int,
        most_of_peer: int,
        exempt: Callable[[str], bool],
        clock: Callable[[], float],
    ) -> None:
        self._most, self._most_of_peer = most, most_of_peer
        self._exempt, self.now = exempt, clock
        self._all: dict[OpenConnection, None] = {}
        self._counts: dict[str, int] = {}
        # Those that may make room, the one that was waited for longest first.
        self._strangers: OrderedDict[OpenConnection, None] = OrderedDict()
        self._acquainted: OrderedDict[OpenConnection, None] = OrderedDict()
        self._strangers_of: dict[str, OrderedDict[OpenConnection, None]] = {}
        self.made_room = self.given_up = 0

    def __len__(self) -> int:
        return len(self._all)

    @property
    def full(self) -> bool:
        """Whether there is neither room nor anybody who could make it."""
        full = len(self._all) >= self._most
        return full and not self._strangers and not self._acquainted

    def admit(self, peer: str, held: Held) -> OpenConnection | None:
        """An entry for a new connection, whose room another one made if need be; None without."""
        bounded = not self._exempt(peer)
        if bounded and self._counts.get(peer, 0) >= self._most_of_peer:
            of_peer = self._strangers_of.get(peer)
            victim = next(iter(of_peer), None) if of_peer else self._longest_known(peer)
            if victim is None:
                return None
            self._drop(victim)
        if len(self._all) >= self._most:
            if self.full:
                return None
            self._drop(next(iter(self._strangers or self._acquainted)))
        entry = OpenConnection(peer, held, self.now(), bounded)
        self._all[entry] = None
        self._counts[peer] = self._counts.get(peer, 0) + 1
        self._into_line(entry)
        return entry

    def waits(self, entry: OpenConnection, awaits: Awaits) -> None:
        """It waits for something, from now on."""
        if entry not in self._all:
            return
        self._out_of_line(entry)
        entry.awaits, entry.since = awaits, self.now()
        entry.allowed, entry.received, entry.unsent = awaits.seconds, 0, 0
        if awaits is not ANSWER and not (awaits is BODY and entry.known):
            self._into_line(entry)

    def signed(self, entry: OpenConnection) -> None:
        """It has brought a request with a client's signature; a body in progress is its own."""
        if entry.known or entry not in self._all:
            return
        self._out_of_line(entry)
        entry.known = True
        if entry.awaits not in (ANSWER, BODY):
            self._into_line(entry)

    def left(self, entry: OpenConnection) -> None:
        """It is closed."""
        if entry not in self._all:
            return
        self._out_of_line(entry)
        del self._all[entry]
        entry.held = _NOBODY  # nothing is left that only the garbage collector would find
        self._counts[entry.peer] -= 1
        if not self._counts[entry.peer]:
            del self._counts[entry.peer]

    def sweep(self) -> Iterator[None]:
        """Give up all that are overdue; those who are here get their turn in between."""
        now = self.now()
        overdue = [entry for entry in self._all if entry.overdue(now)]
        for number, entry in enumerate(overdue, start=1):
            if entry in self._all and entry.overdue(now):
                self.given_up += 1
                entry.held.give_up()
            if not number % _GIVEN_UP_AT_ONCE:
                yield

    def _longest_known(self, peer: str) -> OpenConnection | None:
        """The known entry of an address that was waited for longest."""
        return next((entry for entry in self._acquainted if entry.peer == peer), None)

    def _drop(self, entry: OpenConnection) -> None:
        held = entry.held
        self.made_room += 1
        self.left(entry)
        held.abort()

    def _into_line(self, entry: OpenConnection) -> None:
        if entry.known:
            self._acquainted[entry] = None
            return
        self._strangers[entry] = None
        if entry.bounded:
            self._strangers_of.setdefault(entry.peer, OrderedDict())[entry] = None

    def _out_of_line(self, entry: OpenConnection) -> None:
        if entry.known:
            self._acquainted.pop(entry, None)
            return
        self._strangers.pop(entry, None)
        of_peer = self._strangers_of.get(entry.peer)
        if of_peer is not None:
            of_peer.pop(entry, None)
            if not of_peer:
                del self._strangers_of[entry.peer]


def proxies(named: str | None) -> Callable[[str], bool]:
    """Whether an address is one of those, or lies in one of those networks; ``*`` is all.

    >>> proxies("10.0.0.0/8, ::1")("10.1.2.3"), proxies(None)("10.1.2.3")
    (True, False)
    """
    names = [name.strip() for name in (named or "").split(",") if name.strip()]
    if "*" in names:
        return lambda _peer: True
    networks = [network for name in names if (network := _network(name)) is not None]

    def among(peer: str) -> bool:
        if not networks:
            return False
        try:
            address = ipaddress.ip_address(peer.partition("%")[0])
        except ValueError:
            return False
        return any(address in network for network in networks)

    return among


def _network(name: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(name, strict=False)
    except ValueError:
        return None


ACCEPTED_AT_ONCE = 256
BEGUN_AT_ONCE = 256
BACKLOG = 4096

_PAUSE_SECONDS = 0.05
_HANDSHAKE_SECONDS = 10.0


class Begun(asyncio.BaseProtocol, Held):
    """A connection that said something."""


Make = Callable[[OpenConnection, tuple[str, int], Callable[[], object]], Begun]
"""Makes the protocol of an entry of the table with its address; the last argument ends it as long
as it has no transport."""


class Listener:
    """Takes connections of one listening socket."""

    def __init__(
        self,
        listening: socket.socket,
        connections: Connections,
        make: Make,
        tls: ssl.SSLContext | None,
    ) -> None:
        self._listening, self._connections = listening, connections
        self._make, self._tls = make, tls
        self._loop = asyncio.get_running_loop()
        self._silent = selectors.DefaultSelector()
        self._spoke: deque[_Silent] = deque()
        self._opening: set[asyncio.Task[None]] = set()
        self._closed = False
        listening.setblocking(False)
        listening.listen(BACKLOG)
        self._loop.add_reader(self._silent.fileno(), self._hear)  # pyright: ignore[reportAttributeAccessIssue]
        self._listen()

    def close(self) -> None:
        """Take no more, and drop those that said nothing."""
        self._closed = True
        self._loop.remove_reader(self._listening.fileno())
        self._loop.remove_reader(self._silent.fileno())  # pyright: ignore[reportAttributeAccessIssue]
        for key in list(self._silent.get_map().values()):
            self.drop(key.data)
        while self._spoke:
            self.drop(self._spoke.popleft())
        self._silent.close()

    def drop(self, silent: _Silent) -> None:
        """It is not waited for any longer."""
        self._connections.left(silent.entry)
        self.close_silent(silent)

    def close_silent(self, silent: _Silent) -> None:
        """Close one that has no transport, once."""
        if silent.socket.fileno() >= 0:
            with suppress(KeyError):  # it spoke a moment ago
                self._silent.unregister(silent.socket)
            silent.socket.close()

    def _listen(self) -> None:
        if not self._closed:
            self._loop.add_reader(self._listening.fileno(), self._accept)

    def _accept(self) -> None:
        """All that wait, up to some, so that those who are here already get their turn."""
        for _ in range(ACCEPTED_AT_ONCE):
            if self._connections.full:  # the others wait in the system's queue
                self._pause()
                return
            try:
                accepted, address = self._listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionError:  # it has left again
                continue
            except OSError:  # the system has no descriptor or no memory left
                self._pause()
                return
            accepted.setblocking(False)
            self._hold(_Silent(self, accepted, (str(address[0]), int(address[1]))))

    def _pause(self) -> None:
        self._loop.remove_reader(self._listening.fileno())
        self._loop.call_later(_PAUSE_SECONDS, self._listen)

    def _hold(self, silent: _Silent) -> None:
        """Keep it until it says something."""
        entry = self._connections.admit(silent.address[0], silent)
        if entry is None:
            silent.socket.close()
            return
        silent.entry = entry
        self._silent.register(silent.socket, selectors.EVENT_READ, silent)

    def _hear(self) -> None:
        """Those that said something are begun in the order in which they did."""
        for key, _ in self._silent.select(0):
            self._silent.unregister(key.fileobj)
            if not self._spoke:
                self._loop.call_soon(self._begin_some)
            self._spoke.append(key.data)

    def _begin_some(self) -> None:
        """Some; the rest in the loop's next turn, so that those who are here get theirs."""
        for _ in range(min(BEGUN_AT_ONCE, len(self._spoke))):
            silent = self._spoke.popleft()
            if silent.has_left:
                self.drop(silent)
            else:
                self._begin(silent)
        if self._spoke:
            self._loop.call_soon(self._begin_some)

    def _begin(self, silent: _Silent) -> None:
        entry, accepted = silent.entry, silent.socket
        protocol = self._make(entry, silent.address, partial(_shut, accepted))
        entry.held = protocol
        self._connections.waits(entry, HEAD if self._tls is None else HANDSHAKE)
        task = self._loop.create_task(self._open(accepted, entry, protocol))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    async def _open(self, accepted: socket.socket, entry: OpenConnection, protocol: Begun) -> None:
        """Hand it to the loop, after its handshake where there is one."""
        seconds = None if self._tls is None else _HANDSHAKE_SECONDS
        try:
            await self._loop.connect_accepted_socket(
                lambda: protocol, accepted, ssl=self._tls, ssl_handshake_timeout=seconds
            )
        except (OSError, asyncio.CancelledError):  # it left, or its handshake was none
            self._connections.left(entry)
            accepted.close()


class _Silent(Held):
    """A connection that said nothing yet."""

    __slots__ = ("_listener", "address", "entry", "socket")

    def __init__(
        self, listener: Listener, accepted: socket.socket, address: tuple[str, int]
    ) -> None:
        self._listener, self.socket, self.address = listener, accepted, address

    @property
    def has_left(self) -> bool:
        """Whether it closed without a word."""
        try:
            return not self.socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def give_up(self) -> None:
        """See `connections.Held`."""
        self._listener.drop(self)

    def abort(self) -> None:
        """See `connections.Held`."""
        self._listener.close_silent(self)


def _shut(accepted: socket.socket) -> None:
    """End a connection whose transport does not exist yet: the handshake fails."""
    with suppress(OSError):
        accepted.shutdown(socket.SHUT_RDWR)
