"""Messages that clients randomize themselves, for local and shuffled trust.

`Randomized` is the mechanism for such messages; it adds no noise, since each message is randomized.
`UpdateEncoding` is the interface of updates as bytes. `MessageEncoding` and `HistogramEncoding`
encode randomized messages; `turnout.protocol.lattice` encodes whole numbers for a trusted
coordinator. `Shuffler` receives the messages of one round with their senders and returns the same
messages without the senders.

A shuffle reveals the multiset of messages; `turnout.accounting.shuffling` computes the privacy cost
of this multiset. Messages are sorted by their bytes, so that the order of arrival is hidden. The
module has no I/O, no clock and no source of randomness.
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
    """Mechanism that decodes and sums randomized messages, and divides by a public constant.

    Guarantees: a client sends only messages of ``randomizer``, whose privacy cost is that of
    `priced_as`; a release is a function of messages and public numbers.

    Attributes:
        randomizer: randomizer of one client's update, which is clipped to the randomizer's radius.
        expected_check_ins: expected number n̄ of check-ins of a step, a public constant.
        messages: number of messages that a client sends in a step; the mean of the vectors that
            they encode is the client's contribution.
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
        """Sum of the vectors that a client's randomized messages for the update ``(d,)`` encode."""
        rows = np.repeat(np.atleast_2d(update), self.messages, axis=0)
        return self.summed(self.randomizer.encode_updates(rows, source))

    def summed(self, messages: NDArray[Any]) -> UpdateSum:
        """Sum of the vectors that the rows of ``messages`` encode, one message in each row."""
        clients = len(messages) // self.messages
        return UpdateSum(self.randomizer.total(messages), clients, noised=clients)

    def zero(self) -> UpdateSum:
        """Sum of no messages."""
        return UpdateSum.zero(self.randomizer.total_size)

    def require(self, total: UpdateSum) -> None:
        """Raise an error for an aggregate that is not a sum of messages.

        Raises:
            RemoteProtocolError: the aggregate has another dimension, a number that is not finite,
                or an update that its client did not randomize.
        """
        if total.dimension != self.randomizer.total_size or not np.isfinite(total.total).all():
            raise RemoteProtocolError(
                "an aggregate is not a sum of randomized messages: it has another dimension, or a "
                "number that is not finite"
            )
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
        """Estimated sum divided by the expected check-ins; zero in a step without messages."""
        summed = self.randomizer.mean(total.total, self.messages)
        return Released(summed, summed / self.expected_check_ins), state


def require_messages(scheme: Scheme, randomizer: VectorRandomizer) -> None:
    """Raise an error for a scheme whose clients do not send messages of this randomizer.

    Raises:
        ParameterError: the scheme has central trust or another randomizer.
        UnsupportedError: the release rule is not the sum of all messages, or a message can be
            decoded only with its client's number, which messages do not contain.
    """
    # The scheme's clients send messages of this randomizer, one or several a step.
    if scheme.trust is TrustModel.CENTRAL:
        expected = "'local' or 'shuffled' with messages, which clients randomize themselves"
        raise ParameterError("trust", scheme.trust.value, expected)
    law = scheme.randomizer
    if (law.each if isinstance(law, RepeatedMessages) else law) != randomizer.priced_as:
        expected = f"{randomizer.priced_as}, which describes {type(randomizer).__name__}"
        raise ParameterError("randomizer", scheme.randomizer, expected)
    # The coordinator releases the sum, and decodes messages without knowing their senders.
    if scheme.release is not ReleaseRule.AGGREGATED:
        raise UnsupportedError(
            f"the release rule {scheme.release.value} has no analysis of randomized messages: use "
            f"{ReleaseRule.AGGREGATED.value}"
        )
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
        """Bytes of one update, shape ``(d,)``, on the client; ``source`` draws random numbers."""
        ...

    def decode(self, data: bytes) -> NDArray[Any]:
        """Numbers in the bytes of one update, on the coordinator.

        Raises:
            RemoteProtocolError: no client may send these bytes.
        """
        ...

    def summed(self, bodies: Iterable[bytes]) -> UpdateSum:
        """Sum of updates that `decode` accepted, on the coordinator."""
        ...


@dataclass(frozen=True)
class MessageEncoding:
    """Encoding of each update as one message of a randomizer.

    Guarantees:
        `packed` is ε₀-private for every update if ``source`` is the operating system's randomness;
        two calls draw two messages, which cost 2ε₀.
        `decode` accepts exactly the bytes that `packed` can return.

    Attributes:
        randomizer: randomizer of one client's update, which is clipped to the randomizer's radius.

    Raises:
        ParameterError: the randomizer uses public randomness.
    """

    randomizer: VectorRandomizer

    def __post_init__(self) -> None:
        shared = self.randomizer.public_randomness
        if shared != "none":
            raise ParameterError(
                "public randomness", shared, "a randomizer without public randomness"
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
        """Bytes of a new random message of one update, which the randomizer clips.

        Raises:
            LocalProtocolError: the shape of the update is not ``(d,)``.
        """
        if update.shape != (self.dimension,):
            raise LocalProtocolError(f"an update has shape {update.shape}, not ({self.dimension},)")
        return self.randomizer.pack(self.randomizer.encode_updates(update[None], source))

    def decode(self, data: bytes) -> NDArray[Any]:
        """Numbers of one message, shape (numbers of a message,).

        Raises:
            RemoteProtocolError: the data have another length, a padding bit is not 0, or a number
                occurs in no message.
        """
        if len(data) != self.encoded_size:
            raise RemoteProtocolError(f"a message has {len(data)} bytes, not {self.encoded_size}")
        try:
            return self.randomizer.unpack(data, 1)[0]
        except ParameterError as error:
            raise RemoteProtocolError(f"invalid message: expected {error.expected}") from None

    def singles(self, data: bytes) -> list[bytes]:
        """List of the messages in one client's body, which in this encoding is one message."""
        return [data]

    def summed(self, bodies: Iterable[bytes]) -> UpdateSum:
        """Sum of the vectors that the messages encode, float64, shape ``(d,)``."""
        mechanism = Randomized(self.randomizer, 1.0)
        total = mechanism.zero()
        for some in _batches(bodies):
            total = total + mechanism.summed(self._unpacked(some))
        return total

    def _unpacked(self, bodies: list[bytes]) -> NDArray[Any]:
        """Numbers of n messages, one in each body, shape (n, numbers of a message)."""
        rows = np.frombuffer(b"".join(bodies), np.uint8).reshape(len(bodies), self.encoded_size)
        bits = np.unpackbits(rows, axis=1, bitorder="little")[:, : self.randomizer.message_bits]
        joined = np.packbits(bits.ravel(), bitorder="little").tobytes()
        return self.randomizer.unpack(joined, len(bodies))


@dataclass(frozen=True)
class HistogramEncoding(MessageEncoding):
    """Encoding of all messages of a client in a step as one body, a histogram of the messages.

    Source: the histogram trick of Mayekar and Tyagi 2020, as in the proof of Theorem 4.3.1 of
        Girgis 2023 (girgis2023thesis). A shuffler hides the order of messages, so a body does not
        contain the order of the client's messages.

    Guarantees: those of `MessageEncoding` for each message. The messages are drawn independently,
        so a body is (messages · ε₀)-private.

    Attributes:
        messages: number s of messages of one client in a step.
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
        """Body of new random messages of one update, shape ``(d,)``."""
        return self.packed_records(np.repeat(np.atleast_2d(update), self.messages, axis=0), source)

    def packed_records(self, updates: NDArray[np.floating], source: Source) -> bytes:
        """Body with a new random message of each of these updates, shape (messages, d).

        Raises:
            LocalProtocolError: the array of updates has another shape.
        """
        if updates.shape != (self.messages, self.dimension):
            expected = (self.messages, self.dimension)
            raise LocalProtocolError(f"updates have shape {updates.shape}, not {expected}")
        return self.randomizer.pack_histogram(self.randomizer.encode_updates(updates, source))

    def decode(self, data: bytes) -> NDArray[Any]:
        """Numbers of all messages of a body, shape (messages, numbers of a message).

        Raises:
            RemoteProtocolError: the data have another length, or encode no histogram of messages.
        """
        if len(data) != self.encoded_size:
            raise RemoteProtocolError(f"a body has {len(data)} bytes, not {self.encoded_size}")
        try:
            return self.randomizer.unpack_histogram(data, self.messages)
        except ParameterError as error:
            raise RemoteProtocolError(f"invalid messages: expected {error.expected}") from None

    def singles(self, data: bytes) -> list[bytes]:
        """Each message of a body, packed as `MessageEncoding` packs it."""
        return [self.randomizer.pack(row[None]) for row in self.decode(data)]

    def summed(self, bodies: Iterable[bytes]) -> UpdateSum:
        """Sum of the vectors that the messages in all bodies encode, float64, shape ``(d,)``."""
        mechanism = Randomized(self.randomizer, 1.0, self.messages)
        total = mechanism.zero()
        for some in _batches(bodies):
            total = total + mechanism.summed(np.concatenate([self.decode(body) for body in some]))
        return total


def _batches(bodies: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Lists of bodies of limited length, so that few bodies are in memory at a time."""
    left = iter(bodies)
    while some := list(islice(left, _AT_ONCE)):
        yield some


class Shuffler:
    r"""Collector of the messages of one round, with at most one body from each client.

    A body is what one client sends in a round.

    A body of several messages (`HistogramEncoding`) is split into single messages. The messages of
    all clients together hide the messages that one client sent. The privacy analysis assumes that
    all clients' first messages, all second messages and so on are shuffled separately. Separate
    shuffles reveal more than this one shuffle of all messages.

    Guarantees:
        The output is a function of the multiset of messages, and is returned once.
        A body that is not a valid message is refused and not counted, and so is a second body of
        a client. An exact copy of a client's body counts as the same body.

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
            RemoteProtocolError: the body is not a valid message of this encoding, or the client
                sent a different body before.
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
            raise LocalProtocolError("the shuffler's round is over: use a new Shuffler")
        return self._messages
