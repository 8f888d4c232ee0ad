"""The price of shuffled messages of one randomizer that all clients use, chosen beforehand.

Nothing rests on who speaks when (Theorem 2 of docs/design/shuffling.md), and where two records'
laws are less apart than ε₀ allows, or are known altogether, less is shown than by the worst pair of
all ε₀-randomizers.

Notation: ε₀ of one message, e = e^{ε₀}; τ the total variation of a message's laws under any two
records, at most (e − 1)/(e + 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from turnout.accounting.divergence.blocks import Block, Decomposition, NeighbourBound, merged
from turnout.accounting.pricing import decomposition_upper
from turnout.accounting.shuffling import BlanketBlock
from turnout.accounting.shuffling.blanket.pair import worst_pair
from turnout.accounting.shuffling.messages import one_round
from turnout.core import checks
from turnout.spec import FixedRandomizer


@dataclass(frozen=True, slots=True)
class Message:
    """The law of a message that all clients draw in the same way, as far as it is known.

    Attributes:
        law: its law, or ε₀ alone (`FixedRandomizer`).
        total_variation: τ at most, where it is used; 1 where ``law`` says as much.
    """

    law: FixedRandomizer
    total_variation: float = 1.0

    @property
    def epsilon0(self) -> float:
        """ε₀ of this message."""
        return self.law.epsilon0

    def block(self, clients: int) -> Block:
        """One shuffle of so many of them; its upper curves hold whatever the others send."""
        if self.total_variation < 1.0:
            return BlanketBlock(worst_pair(self.epsilon0, self.total_variation), clients)
        return one_round(self.law, clients).upper

    @property
    def method(self) -> str:
        """The analysis, in a few words."""
        if self.total_variation < 1.0:
            return "privacy blanket of one randomizer of known total variation"
        return one_round(self.law, 1).method


Messages = Sequence[tuple[Message, int]]
"""The messages of one client: of what kind, and how many of it."""


@lru_cache(maxsize=1024)
def _shuffled_price(messages: tuple[tuple[Message, int], ...], clients: int, delta: float) -> float:
    run = merged([(message.block(clients), count) for message, count in messages])
    cap = sum(count * message.epsilon0 for message, count in messages)
    hop = NeighbourBound(run, [], "shuffled messages", tight=False, symmetric=True, cap=cap)
    return decomposition_upper(Decomposition(hop), delta)


def shuffled_price(messages: Messages, clients: int, delta: float) -> float:
    """ε of the messages of n clients, each message shuffled with the others' of its number.

    Source: docs/design/shuffling.md; composed numerically over a client's messages.

    Args:
        messages: of each client, independent of each other given her record.
        clients: n ≥ 1, all of whom follow the protocol.
        delta: δ in (0, 1).

    Returns:
        ε under replace-one, never below the true one and never above the sum of the ε₀.

    >>> from turnout.spec import KaryResponse
    >>> round(shuffled_price([(Message(KaryResponse(4.0, 2)), 1)], 10**6, 1e-8), 4)
    0.032
    """
    checks.count(clients=clients)
    checks.open_unit(delta=delta)
    return _shuffled_price(tuple(messages), clients, delta)
