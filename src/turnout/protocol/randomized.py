"""Messages that clients randomize themselves, for local and shuffled trust.

`Randomized` is the mechanism of such a run: it adds no noise, for each message has its own.
`UpdateEncoding` is the interface of updates as bytes: `MessageEncoding` and `HistogramEncoding`
here, whole numbers for a trusted coordinator in `turnout.protocol.lattice`. `Shuffler` takes the
messages of one round with their senders and returns the same messages without them.

A shuffle shows which messages there are and how often (`turnout.accounting.shuffling` prices that
multiset). Messages leave in the order of their bytes, so nothing of the order of arrival remains.
The module has no I/O, no clock and no randomness of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from turnout.core import checks
from turnout.core.aggregates import Noise, UpdateSum
from turnout.core.errors import (
    LocalProtocolError,
    ParameterError,
    RemoteProtocolError,
    UnsupportedError,
)
from turnout.protocol.mechanisms import Released, State
from turnout.protocol.messages import ClientIds
from turnout.randomness import Source
from turnout.schemes import (
    NonAdaptiveRandomizer,
    Randomizer,
    ReleaseRule,
    RepeatedMessages,
    Scheme,
    TrustModel,
)

if TYPE_CHECKING:
    from turnout.randomizers.vectors import VectorRandomizer


@dataclass(frozen=True, slots=True)
class Randomized:
    """Mechanism of randomized messages: the sum that they encode over the expected number of
    messages.

    Guarantees: all that leaves a client is a message of ``randomizer``, which `law` prices; what is
    released is a function of messages and public numbers.

    Attributes:
        randomizer: of one client's update, constrained to its radius in its norm.
        expected_check_ins: n̄, a public constant.
        messages: of a client in a step, of whose meanings the mean counts.
    """

    randomizer: VectorRandomizer
    expected_check_ins: float
    messages: int = 1

    def __post_init__(self) -> None:
        checks.positive(expected_check_ins=self.expected_check_ins)
        checks.count(messages=self.messages)

    @property
    def priced_as(self) -> Randomizer:
        """Randomizer of a client's messages in a step, which accounting analyses."""
        law = self.randomizer.priced_as
        if self.messages == 1:
            return law
        assert isinstance(law, NonAdaptiveRandomizer)
        return RepeatedMessages.of(law, self.messages)

    @property
    def clip_norm(self) -> float:
        """Radius of the ball of updates, in the randomizer's norm."""
        return self.randomizer.radius

    def encode(self, update: NDArray[Any], source: Source) -> UpdateSum:
        """Randomized messages of one client, as the vector that they encode."""
        rows = np.repeat(np.atleast_2d(update), self.messages, axis=0)
        return self.summed(self.randomizer.encode_updates(rows, source))

    def summed(self, messages: NDArray[Any]) -> UpdateSum:
        """Sum of the vectors that all messages of a block of clients encode; each message is
        randomized.
        """
        clients = len(messages) // self.messages
        return UpdateSum(self.randomizer.total(messages), clients, noised=clients)

    def zero(self) -> UpdateSum:
        """Sum of no messages."""
        return UpdateSum.zero(self.randomizer.total_size)

    def require(self, total: UpdateSum) -> None:
        """Refuse an aggregate that is no sum of messages."""
        if total.dimension != self.randomizer.total_size or not np.isfinite(total.total).all():
            raise RemoteProtocolError("the sum is not a sum of randomized messages")
        if total.noised != total.count:
            raise RemoteProtocolError("an update was not randomized by its client")

    def select(self, arrived: ClientIds, source: Source) -> ClientIds:
        """All clients that checked in."""
        return arrived

    def initial_state(self) -> State:
        """Empty state."""
        return {}

    def release(
        self, total: UpdateSum, state: State, step: int, noise: Noise
    ) -> tuple[Released, State]:
        """Estimated sum over the expected number of messages; zero in a step without messages."""
        summed = self.randomizer.mean(total.total, self.messages)
        return Released(summed, summed / self.expected_check_ins), state


def require_messages(scheme: Scheme, randomizer: VectorRandomizer) -> None:
    """Refuse a scheme other than one of this randomizer's messages, one or more a client and step.

    Raises:
        ParameterError: central trust, or another randomizer's law.
        UnsupportedError: messages that only their client's number explains, which no message here
            carries, or a release rule other than the sum of all.
    """
    if scheme.trust is TrustModel.CENTRAL:
        expected = "'local' or 'shuffled' with messages, which clients randomize themselves"
        raise ParameterError("trust", scheme.trust.value, expected)
    law = scheme.randomizer
    if (law.each if isinstance(law, RepeatedMessages) else law) != randomizer.priced_as:
        expected = f"{randomizer.priced_as}, the law of {type(randomizer).__name__}"
        raise ParameterError("randomizer", scheme.randomizer, expected)
    if scheme.release is not ReleaseRule.AGGREGATED:
        raise UnsupportedError(f"messages of clients are not released by {scheme.release.value}")
    fixed = isinstance(randomizer.priced_as, NonAdaptiveRandomizer)
    if randomizer.public_randomness != "none" and not fixed:
        raise UnsupportedError(
            f"{type(randomizer).__name__}'s public randomness ({randomizer.public_randomness}) "
            "depends on the client's number, which messages do not contain and a shuffler hides"
        )


_AT_ONCE = 1 << 14  # messages that are summed at a time


class UpdateEncoding(Protocol):
    """Encoding of a client's update as bytes, for the client and the coordinator."""

    @property
    def dimension(self) -> int:
        """Number d of coordinates of an update."""
        ...

    @property
    def clip_norm(self) -> float:
        """Bound C on the norm of an update, in the model's units."""
        ...

    @property
    def encoded_size(self) -> int:
        """Size of every encoded update in bytes."""
        ...

    def packed(self, update: NDArray[np.floating], source: Source) -> bytes:
        """Bytes of one update of shape ``(d,)``, on the client; random numbers are drawn from
        ``source``.
        """
        ...

    def decode(self, data: bytes) -> NDArray[Any]:
        """Numbers in the bytes of one update, on the coordinator.

        Raises:
            RemoteProtocolError: bytes that no client may send.
        """
        ...

    def summed(self, bodies: Iterable[bytes]) -> UpdateSum:
        """Sum of updates that `decode` accepted, on the coordinator."""
        ...


@dataclass(frozen=True)
class MessageEncoding:
    """Encoding with one message of a randomizer for each update.

    Guarantees:
        `packed` is ε₀-private for one client whatever the update is, where ``source`` is the
        operating system's; two calls draw two messages, which cost twice.
        `decode` lets through what `packed` can give, and nothing else.

    Attributes:
        randomizer: of one client's update, which is clipped to its radius in its norm.

    Raises:
        ParameterError: public randomness that goes by the client's number.
    """

    randomizer: VectorRandomizer

    def __post_init__(self) -> None:
        shared = self.randomizer.public_randomness
        if shared != "none":
            raise ParameterError(
                "public randomness", shared, "none that depends on the client's number"
            )

    @property
    def dimension(self) -> int:
        """Number d of coordinates of an update."""
        return self.randomizer.dimension

    @property
    def clip_norm(self) -> float:
        """Radius of the ball of updates, in the randomizer's norm."""
        return self.randomizer.radius

    @property
    def encoded_size(self) -> int:
        """Size of a message in bytes; the last byte is padded with zero bits."""
        return -(-self.randomizer.message_bits // 8)

    def packed(self, update: NDArray[np.floating], source: Source) -> bytes:
        """Bytes of a new random message of one update, which need not be clipped.

        Raises:
            LocalProtocolError: another shape than ``(d,)``.
        """
        if update.shape != (self.dimension,):
            raise LocalProtocolError(f"an update has shape {update.shape}, not ({self.dimension},)")
        return self.randomizer.pack(self.randomizer.encode_updates(update[None], source))

    def decode(self, data: bytes) -> NDArray[Any]:
        """Numbers of one message, shape (numbers of a message,).

        Raises:
            RemoteProtocolError: another length, bits behind the last number, or a number that no
                message has.
        """
        if len(data) != self.encoded_size:
            raise RemoteProtocolError(f"a message has {len(data)} bytes, not {self.encoded_size}")
        try:
            return self.randomizer.unpack(data, 1)[0]
        except ParameterError as error:
            raise RemoteProtocolError(f"not a message of this task: {error.expected}") from None

    def singles(self, data: bytes) -> list[bytes]:
        """Messages in one client's body: the body itself."""
        return [data]

    def summed(self, bodies: Iterable[bytes]) -> UpdateSum:
        """Sum of the vectors that the messages encode, float64, as `Randomized` releases it."""
        mechanism = Randomized(self.randomizer, 1.0)
        total = mechanism.zero()
        for some in _batches(bodies):
            total = total + mechanism.summed(self._unpacked(some))
        return total

    def _unpacked(self, bodies: list[bytes]) -> NDArray[Any]:
        """Numbers of messages that each start at a byte, shape (n, numbers of a message)."""
        rows = np.frombuffer(b"".join(bodies), np.uint8).reshape(len(bodies), self.encoded_size)
        bits = np.unpackbits(rows, axis=1, bitorder="little")[:, : self.randomizer.message_bits]
        joined = np.packbits(bits.ravel(), bitorder="little").tobytes()
        return self.randomizer.unpack(joined, len(bodies))


@dataclass(frozen=True)
class HistogramEncoding(MessageEncoding):
    """Encoding of all messages of a client in a step in one body, as a histogram of the messages.

    Source: the histogram trick of Mayekar and Tyagi 2020, as in the proof of Theorem 4.3.1 of
        Girgis 2023 (girgis2023thesis): a shuffler mixes messages anyhow, so their order within
        one client's is not sent.

    Guarantees: those of `MessageEncoding`, each message with randomness of its own, so that a body
        is (messages · ε₀)-private.

    Attributes:
        messages: s, of one client in a step.
    """

    messages: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.count(messages=self.messages)

    @property
    def encoded_size(self) -> int:
        """Size of a body in bytes; the last byte is padded with zero bits."""
        return -(-self.randomizer.histogram_bits(self.messages) // 8)

    def packed(self, update: NDArray[np.floating], source: Source) -> bytes:
        """Body of new random messages of one update."""
        return self.packed_records(np.repeat(np.atleast_2d(update), self.messages, axis=0), source)

    def packed_records(self, updates: NDArray[np.floating], source: Source) -> bytes:
        """Body with a new random message of each of these updates, shape (messages, d).

        Raises:
            LocalProtocolError: another shape.
        """
        if updates.shape != (self.messages, self.dimension):
            expected = (self.messages, self.dimension)
            raise LocalProtocolError(f"updates have shape {updates.shape}, not {expected}")
        return self.randomizer.pack_histogram(self.randomizer.encode_updates(updates, source))

    def decode(self, data: bytes) -> NDArray[Any]:
        """Numbers of all messages of a body, shape (messages, numbers of a message).

        Raises:
            RemoteProtocolError: another length, or a number that is no histogram's.
        """
        if len(data) != self.encoded_size:
            raise RemoteProtocolError(f"a body has {len(data)} bytes, not {self.encoded_size}")
        try:
            return self.randomizer.unpack_histogram(data, self.messages)
        except ParameterError as error:
            raise RemoteProtocolError(f"not messages of this task: {error.expected}") from None

    def singles(self, data: bytes) -> list[bytes]:
        """Each message of a body, packed as `MessageEncoding` packs it."""
        return [self.randomizer.pack(row[None]) for row in self.decode(data)]

    def summed(self, bodies: Iterable[bytes]) -> UpdateSum:
        """Sum of the vectors that the messages of all bodies encode; each body is one client's."""
        mechanism = Randomized(self.randomizer, 1.0, self.messages)
        total = mechanism.zero()
        for some in _batches(bodies):
            total = total + mechanism.summed(np.concatenate([self.decode(body) for body in some]))
        return total


def _batches(bodies: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Blocks of bodies, so that no body is in memory twice."""
    left = iter(bodies)
    while some := list(islice(left, _AT_ONCE)):
        yield some


class Shuffler:
    r"""Collector of one round's messages in one encoding, with at most one body of each client.

    A body of several messages (`HistogramEncoding`) leaves as single ones among everybody else's,
    so that nobody can tell which came together; a shuffle of each client's first messages, one of
    the second and so on, which is what is priced, shows more.

    Guarantees:
        What leaves is a function of the multiset of messages, and leaves once.
        A body that is no message, and a client's second message, are refused and not counted; an
        exact copy of a client's message is taken for it.

    >>> from turnout.protocol.randomized import MessageEncoding
    >>> from turnout.randomizers.vectors import LInfRandomizer
    >>> shuffler = Shuffler(MessageEncoding(LInfRandomizer(3, 1.0)))
    >>> shuffler.receive(0, bytes([5]))
    >>> shuffler.receive(1, bytes([2]))
    >>> shuffler.released()
    (b'\x02', b'\x05')
    """

    def __init__(self, encoding: MessageEncoding) -> None:
        self._encoding = encoding
        self._messages: dict[int, bytes] | None = {}

    def receive(self, client: int, body: bytes) -> None:
        """Store the body of a client until the round is over.

        Raises:
            RemoteProtocolError: no message of the encoding, or another one is there already.
            LocalProtocolError: the round is over.
        """
        messages = self._open()
        self._encoding.decode(body)
        if messages.setdefault(client, body) != body:
            raise RemoteProtocolError("a client sent a second message in one round")

    def released(self) -> tuple[bytes, ...]:
        """All messages of the round, sorted by their bytes, without their senders.

        Raises:
            LocalProtocolError: the round is over.
        """
        messages = [
            single for body in self._open().values() for single in self._encoding.singles(body)
        ]
        self._messages = None
        return tuple(sorted(messages))

    def _open(self) -> dict[int, bytes]:
        if self._messages is None:
            raise LocalProtocolError("the shuffler's round is over")
        return self._messages
