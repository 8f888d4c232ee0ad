"""Local and shuffled trust: each client randomizes its own update; the sum needs no noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turnout.core import checks
from turnout.core.aggregates import Noise, UpdateSum
from turnout.core.errors import ParameterError, RemoteProtocolError, UnsupportedError
from turnout.protocol.mechanisms.interface import Released, State
from turnout.protocol.messages import ClientIds
from turnout.randomizers.vectors import VectorRandomizer
from turnout.randomness import Source
from turnout.schemes import (
    NonAdaptiveRandomizer,
    Randomizer,
    ReleaseRule,
    RepeatedMessages,
    Scheme,
    TrustModel,
)


@dataclass(frozen=True, slots=True)
class Randomized:
    """The sum of what messages stand for, over the public number expected.

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
    def law(self) -> Randomizer:
        """The law of a client's messages in a step."""
        law = self.randomizer.law
        if self.messages == 1:
            return law
        assert isinstance(law, NonAdaptiveRandomizer)
        return RepeatedMessages.of(law, self.messages)

    @property
    def clip_norm(self) -> float:
        """The radius, in the randomizer's norm."""
        return self.randomizer.radius

    def encode(self, update: NDArray[Any], source: Source) -> UpdateSum:
        """One client's messages, as what they stand for."""
        rows = np.repeat(np.atleast_2d(update), self.messages, axis=0)
        return self.summed(self.randomizer.encode_updates(rows, source))

    def summed(self, messages: NDArray[Any]) -> UpdateSum:
        """The sum that all messages of a block of clients stand for; every one is randomized."""
        clients = len(messages) // self.messages
        return UpdateSum(self.randomizer.total(messages), clients, noised=clients)

    def zero(self) -> UpdateSum:
        """Nobody's messages."""
        return UpdateSum.zero(self.randomizer.total_size)

    def require(self, total: UpdateSum) -> None:
        """Refuses a sum of anything but messages."""
        if total.dimension != self.randomizer.total_size or not np.isfinite(total.total).all():
            raise RemoteProtocolError("a sum is not one of messages")
        if total.noised != total.count:
            raise RemoteProtocolError("an update was not randomized by its client")

    def select(self, arrived: ClientIds, source: Source) -> ClientIds:
        """Everybody who checked in."""
        return arrived

    def initial_state(self) -> State:
        """Nothing."""
        return {}

    def release(
        self, total: UpdateSum, state: State, step: int, noise: Noise
    ) -> tuple[Released, State]:
        """The estimated sum over the number expected; also of nobody, which is zero."""
        summed = self.randomizer.mean(total.total, self.messages)
        return Released(summed, summed / self.expected_check_ins), state


def require_messages(scheme: Scheme, randomizer: VectorRandomizer) -> None:
    """Nothing where the scheme is one of this randomizer's messages, one or more a client and step.

    Raises:
        ParameterError: central trust, or another randomizer's law.
        UnsupportedError: messages that only their client's number explains, which no message here
            carries, or a release rule other than the sum of all.
    """
    if scheme.trust is TrustModel.CENTRAL:
        expected = "'local' or 'shuffled' with messages, which clients randomize themselves"
        raise ParameterError("trust", scheme.trust.value, expected)
    law = scheme.randomizer
    if (law.each if isinstance(law, RepeatedMessages) else law) != randomizer.law:
        expected = f"{randomizer.law}, the law of {type(randomizer).__name__}"
        raise ParameterError("randomizer", scheme.randomizer, expected)
    if scheme.release is not ReleaseRule.AGGREGATED:
        raise UnsupportedError(f"messages of clients are not released by {scheme.release.value}")
    fixed = isinstance(randomizer.law, NonAdaptiveRandomizer)
    if randomizer.public_randomness != "none" and not fixed:
        raise UnsupportedError(
            f"{type(randomizer).__name__}'s public randomness ({randomizer.public_randomness}) "
            "goes by the client's number, which no message carries and a shuffler hides"
        )
