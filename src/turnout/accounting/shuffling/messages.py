"""What one round of shuffled messages shows, by what is known of the randomizer."""

from __future__ import annotations

from dataclasses import dataclass
from functools import singledispatch

from turnout.accounting.blocks import Block
from turnout.accounting.shuffling.blanket import clones_pair
from turnout.accounting.shuffling.blocks import BlanketBlock
from turnout.core.errors import UnsupportedError
from turnout.spec import PureRandomizer


@dataclass(frozen=True, slots=True)
class Round:
    """One round of n messages.

    Attributes:
        upper: never below what it shows of one client.
        lower: what an adversary really gets of some client; None where nothing is known.
        method: the analysis, in a few words.
    """

    upper: Block
    lower: Block | None
    method: str


@singledispatch
def one_round(randomizer: object, clients: int) -> Round:
    """One round in which ``clients`` clients send a message each, made by a randomizer.

    Raises:
        UnsupportedError: nothing is known of its shuffled messages.
    """
    raise UnsupportedError(
        f"no analysis of shuffled messages is known for {type(randomizer).__name__}"
    )


@one_round.register
def _(randomizer: PureRandomizer, clients: int) -> Round:
    upper = BlanketBlock(clones_pair(randomizer.epsilon0), clients)
    return Round(upper, None, "clones (Feldman et al. 2021) of any randomizers, numerically")
