"""Table of open connections, with the awaited event and the deadline of each connection.

`Connections` is the table, `Listener` accepts connections. A silent connection occupies a
descriptor and some memory, so the number of connections is limited, in total and per address. At
the limit a new connection is accepted and the old connection that has waited longest is closed.
Connections that never sent a signed request are closed before all others. A connection whose
request is being answered is never closed to make room. One task checks all deadlines once a second,
so that no connection needs a timer.

uvloop's server accepts one connection in a pass of its event loop; a pass with hundreds of requests
takes long, so the last of thousands of devices would wait for thousands of passes. `Listener`
accepts many connections in a pass, and a connection gets a transport and a parser when its first
byte arrives.
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

_CLOSED_AT_ONCE = 32
"""Number of overdue connections that are closed before other work continues."""

SLOWEST_BYTES_A_SECOND = 1000.0
"""Least rate of a body after its first seconds; a slower connection is closed."""


class Awaits(Enum):
    """Event that the server waits for on a connection, with the longest wait in seconds."""

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


# Names for the members, since looking up a member of an Enum is slow and done for each request.
FIRST, HANDSHAKE, HEAD, BODY = Awaits.FIRST, Awaits.HANDSHAKE, Awaits.HEAD, Awaits.BODY
ANSWER, READER = Awaits.ANSWER, Awaits.READER
NEXT, CLOSE = Awaits.NEXT, Awaits.CLOSE


class Closable:
    """Interface through which the table closes a connection.

    The base class itself stands for a closed connection.
    """

    __slots__ = ()

    def give_up(self) -> None:
        """End an overdue connection; a request without an answer gets an error answer."""

    def abort(self) -> None:
        """Close the connection at once."""

    def unsent(self) -> int:
        """Number of answer bytes that the network has not accepted yet."""
        return 0


_CLOSED = Closable()


@dataclass(slots=True, eq=False)
class OpenConnection:
    """Entry of one open connection in the table.

    Attributes:
        peer: address of the client.
        held: the connection.
        since: time at which the wait began, in seconds of the table's clock.
        bounded: whether the number of connections of this address is limited.
        awaits: awaited event.
        allowed: longest wait in seconds.
        known: whether the connection has carried a signed request.
        received: number of bytes of the body that arrived since the time ``since``.
        unsent: number of answer bytes that the network had not accepted at the last check.
    """

    peer: str
    held: Closable
    since: float
    bounded: bool
    awaits: Awaits = FIRST
    allowed: float = FIRST.seconds
    known: bool = False
    received: int = 0
    unsent: int = 0

    def overdue(self, now: float) -> bool:
        """Whether the connection has exceeded its longest wait.

        The wait is extended while a body arrives fast enough, or while the client reads its answer.
        """
        waited = now - self.since
        if waited <= self.allowed:
            return False
        if self.awaits is BODY:
            waited -= self.received / SLOWEST_BYTES_A_SECOND
        return waited > self.allowed and not self._is_reading_its_answer(now)

    def _is_reading_its_answer(self, now: float) -> bool:
        """Whether the client has read a part of its answer since the last check."""
        unsent = self.held.unsent()
        if not unsent or (self.unsent and unsent >= self.unsent):
            return False
        self.since, self.unsent = now, unsent
        return True


class Connections:
    """Table of open connections, bounded in total and per client address.

    Guarantees:
        There are at most ``most`` entries, and at most ``most_of_peer`` of one address that is not
        exempt. At a limit the connection that has waited longest is closed; connections that never
        sent a signed request are closed before all others. A connection whose request is being
        answered, or whose signed body is arriving, is never closed to make room.

    Args:
        most: largest number of connections.
        most_of_peer: largest number of connections of one address.
        exempt: function that tells whether an address, such as a proxy's, has no limit of its own.
        clock: function that returns the time in seconds.
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
        # Entries that may be closed, in the order of their waits, with and without signed requests.
        self._unsigned: OrderedDict[OpenConnection, None] = OrderedDict()
        self._signed: OrderedDict[OpenConnection, None] = OrderedDict()
        self._unsigned_of: dict[str, OrderedDict[OpenConnection, None]] = {}
        self.made_room = self.given_up = 0

    def __len__(self) -> int:
        return len(self._all)

    @property
    def full(self) -> bool:
        """Whether the table has reached its limit and no connection in it may be closed."""
        full = len(self._all) >= self._most
        return full and not self._unsigned and not self._signed

    def admit(self, peer: str, held: Closable) -> OpenConnection | None:
        """Table entry for a new connection; None if the table is full.

        At a limit another connection is closed.

        Args:
            peer: address of the client.
            held: the connection.
        """
        # The limit of the address: close one of its own connections.
        bounded = not self._exempt(peer)
        if bounded and self._counts.get(peer, 0) >= self._most_of_peer:
            of_address = self._unsigned_of.get(peer)
            victim = next(iter(of_address), None) if of_address else self._oldest_signed(peer)
            if victim is None:
                return None
            self._drop(victim)
        # The limit of all connections.
        if len(self._all) >= self._most:
            if self.full:
                return None
            self._drop(next(iter(self._unsigned or self._signed)))
        # The new entry waits for its first byte.
        entry = OpenConnection(peer, held, self.now(), bounded)
        self._all[entry] = None
        self._counts[peer] = self._counts.get(peer, 0) + 1
        self._add_to_queue(entry)
        return entry

    def waits(self, entry: OpenConnection, awaits: Awaits) -> None:
        """Set the event that the server awaits on a connection, and restart the wait."""
        if entry not in self._all:
            return
        self._remove_from_queue(entry)
        entry.awaits, entry.since = awaits, self.now()
        entry.allowed, entry.received, entry.unsent = awaits.seconds, 0, 0
        if awaits is not ANSWER and not (awaits is BODY and entry.known):
            self._add_to_queue(entry)

    def signed(self, entry: OpenConnection) -> None:
        """Mark a connection as one with a signed request, which is closed after all others."""
        if entry.known or entry not in self._all:
            return
        self._remove_from_queue(entry)
        entry.known = True
        if entry.awaits not in (ANSWER, BODY):
            self._add_to_queue(entry)

    def left(self, entry: OpenConnection) -> None:
        """Remove a closed connection from the table."""
        if entry not in self._all:
            return
        self._remove_from_queue(entry)
        del self._all[entry]
        entry.held = (
            _CLOSED  # breaks a reference cycle, which only the garbage collector would free
        )
        self._counts[entry.peer] -= 1
        if not self._counts[entry.peer]:
            del self._counts[entry.peer]

    def sweep(self) -> Iterator[None]:
        """Close all overdue connections; yield after every few, so that other work continues."""
        now = self.now()
        overdue = [entry for entry in self._all if entry.overdue(now)]
        for number, entry in enumerate(overdue, start=1):
            if entry in self._all and entry.overdue(now):
                self.given_up += 1
                entry.held.give_up()
            if not number % _CLOSED_AT_ONCE:
                yield

    def _oldest_signed(self, peer: str) -> OpenConnection | None:
        """Longest-waiting connection of an address among those that carried a signed request."""
        return next((entry for entry in self._signed if entry.peer == peer), None)

    def _drop(self, entry: OpenConnection) -> None:
        """Close a connection because the table is at a limit."""
        held = entry.held
        self.made_room += 1
        self.left(entry)
        held.abort()

    def _add_to_queue(self, entry: OpenConnection) -> None:
        """Append a connection to the queue of connections that may be closed at a limit."""
        if entry.known:
            self._signed[entry] = None
            return
        self._unsigned[entry] = None
        if entry.bounded:
            self._unsigned_of.setdefault(entry.peer, OrderedDict())[entry] = None

    def _remove_from_queue(self, entry: OpenConnection) -> None:
        """Remove a connection from the queue of connections that may be closed at a limit."""
        if entry.known:
            self._signed.pop(entry, None)
            return
        self._unsigned.pop(entry, None)
        of_address = self._unsigned_of.get(entry.peer)
        if of_address is not None:
            of_address.pop(entry, None)
            if not of_address:
                del self._unsigned_of[entry.peer]


def proxies(named: str | None) -> Callable[[str], bool]:
    """Function that tells whether an address is in ``named``, the list of trusted proxies.

    The list has addresses and networks, separated by commas; ``*`` stands for every address.

    >>> proxies("10.0.0.0/8, ::1")("10.1.2.3"), proxies(None)("10.1.2.3")
    (True, False)
    """
    # The networks of the list; names that are no addresses are ignored.
    names = [name.strip() for name in (named or "").split(",") if name.strip()]
    if "*" in names:
        return lambda _peer: True
    networks = [network for name in names if (network := _network(name)) is not None]

    # The zone of an IPv6 address ("%eth0") is no part of the network.
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
    """IP network that a text names, or None; an address names the network of this address alone."""
    try:
        return ipaddress.ip_network(name, strict=False)
    except ValueError:
        return None


ACCEPTED_AT_ONCE = 256
OPENED_AT_ONCE = 256
BACKLOG = 4096

_PAUSE_SECONDS = 0.05
_HANDSHAKE_SECONDS = 10.0


class ActiveConnection(asyncio.BaseProtocol, Closable):
    """Protocol of a connection on which the first byte has arrived."""


Make = Callable[[OpenConnection, tuple[str, int], Callable[[], object]], ActiveConnection]
"""Makes the protocol of an entry with its address.

The last argument ends the connection while it has no transport.
"""


class Listener:
    """Listening socket that accepts connections, several in each pass of the event loop.

    Args:
        listening: bound socket.
        connections: table of connections.
        make: function that returns the protocol of a connection.
        tls: TLS context; None for HTTP.
    """

    def __init__(
        self,
        listening: socket.socket,
        connections: Connections,
        make: Make,
        tls: ssl.SSLContext | None,
    ) -> None:
        # The socket, and what its connections become.
        self._listening, self._connections = listening, connections
        self._make, self._tls = make, tls
        self._loop = asyncio.get_running_loop()
        # Connections without a byte, those with a first byte, and those being opened.
        self._silent = selectors.DefaultSelector()
        self._ready: deque[_SilentConnection] = deque()
        self._opening: set[asyncio.Task[None]] = set()
        self._closed = False
        # From now on the event loop reports new connections and first bytes.
        listening.setblocking(False)
        listening.listen(BACKLOG)
        self._loop.add_reader(self._silent.fileno(), self._on_first_bytes)  # pyright: ignore[reportAttributeAccessIssue]
        self._listen()

    def close(self) -> None:
        """Accept no more connections, and close the connections that have sent nothing."""
        self._closed = True
        self._loop.remove_reader(self._listening.fileno())
        self._loop.remove_reader(self._silent.fileno())  # pyright: ignore[reportAttributeAccessIssue]
        for key in list(self._silent.get_map().values()):
            self.drop(key.data)
        while self._ready:
            self.drop(self._ready.popleft())
        self._silent.close()

    def drop(self, silent: _SilentConnection) -> None:
        """Close a connection that has sent nothing, and remove its table entry."""
        self._connections.left(silent.entry)
        self.close_silent(silent)

    def close_silent(self, silent: _SilentConnection) -> None:
        """Close the socket of a connection that has sent nothing; a second call does nothing."""
        if silent.socket.fileno() >= 0:
            with suppress(KeyError):  # its first byte arrived a moment ago
                self._silent.unregister(silent.socket)
            silent.socket.close()

    def _listen(self) -> None:
        """Start to accept connections."""
        if not self._closed:
            self._loop.add_reader(self._listening.fileno(), self._accept)

    def _accept(self) -> None:
        """Accept a bounded number of waiting connections, so that other work continues."""
        for _ in range(ACCEPTED_AT_ONCE):
            # In a full table further connections wait in the system's queue.
            if self._connections.full:
                self._pause()
                return
            try:
                accepted, address = self._listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionError:  # the client has closed it again
                continue
            except OSError:  # the system lacks descriptors or memory
                self._pause()
                return
            # The connection gets its protocol with its first byte.
            accepted.setblocking(False)
            self._await_first_byte(
                _SilentConnection(self, accepted, (str(address[0]), int(address[1])))
            )

    def _pause(self) -> None:
        """Accept no connections for `_PAUSE_SECONDS`."""
        self._loop.remove_reader(self._listening.fileno())
        self._loop.call_later(_PAUSE_SECONDS, self._listen)

    def _await_first_byte(self, silent: _SilentConnection) -> None:
        """Add a new connection to the table and wait for the first byte from the client."""
        entry = self._connections.admit(silent.address[0], silent)
        if entry is None:
            silent.socket.close()
            return
        silent.entry = entry
        self._silent.register(silent.socket, selectors.EVENT_READ, silent)

    def _on_first_bytes(self) -> None:
        """Queue the connections whose first byte arrived, in order of arrival."""
        for key, _ in self._silent.select(0):
            self._silent.unregister(key.fileobj)
            if not self._ready:
                self._loop.call_soon(self._open_some)
            self._ready.append(key.data)

    def _open_some(self) -> None:
        """Open some queued connections; later passes of the event loop open the remaining ones."""
        for _ in range(min(OPENED_AT_ONCE, len(self._ready))):
            silent = self._ready.popleft()
            if silent.has_left:
                self.drop(silent)
            else:
                self._start(silent)
        if self._ready:
            self._loop.call_soon(self._open_some)

    def _start(self, silent: _SilentConnection) -> None:
        """Create a connection's protocol, and start a task that opens its transport."""
        entry, accepted = silent.entry, silent.socket
        protocol = self._make(entry, silent.address, partial(_shut, accepted))
        entry.held = protocol
        self._connections.waits(entry, HEAD if self._tls is None else HANDSHAKE)
        task = self._loop.create_task(self._open(accepted, entry, protocol))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    async def _open(
        self, accepted: socket.socket, entry: OpenConnection, protocol: ActiveConnection
    ) -> None:
        """Open the transport of a connection, after the TLS handshake if TLS is used."""
        seconds = None if self._tls is None else _HANDSHAKE_SECONDS
        try:
            await self._loop.connect_accepted_socket(
                lambda: protocol, accepted, ssl=self._tls, ssl_handshake_timeout=seconds
            )
        except (OSError, asyncio.CancelledError):  # the client closed it, or the handshake failed
            self._connections.left(entry)
            accepted.close()


class _SilentConnection(Closable):
    """Accepted connection on which no byte has arrived yet."""

    __slots__ = ("_listener", "address", "entry", "socket")

    def __init__(
        self, listener: Listener, accepted: socket.socket, address: tuple[str, int]
    ) -> None:
        self._listener, self.socket, self.address = listener, accepted, address

    @property
    def has_left(self) -> bool:
        """Whether the client closed the connection without sending anything."""
        try:
            return not self.socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def give_up(self) -> None:
        """Close the connection and remove its table entry."""
        self._listener.drop(self)

    def abort(self) -> None:
        """Close the connection's socket at once."""
        self._listener.close_silent(self)


def _shut(accepted: socket.socket) -> None:
    """Shut down the socket of a connection without a transport; a TLS handshake then fails."""
    with suppress(OSError):
        accepted.shutdown(socket.SHUT_RDWR)
