"""Shuffled local messages: the clones bound, for pure ε₀.

Every client sends one message a round, made by a randomizer of her own; a shuffler hides who sent
what. Neighbours differ in one client's record (replace-one).

Notation
    ε₀ > 0  of the local randomizer, under replacement
    n ≥ 1   clients         e = e^{ε₀}     q = e/(e + 1)
    C       clones: other clients whose message might as well be the victim's, Bin(n − 1, 1/e)

**Pure ε₀** (Feldman, McMillan and Talwar 2021, feldman2021clones, Theorem 3.1, numerically).
R(x⁰) = qU + (1 − q)V and R(x¹) = (1 − q)U + qV for some laws U and V. Every other message is with
chance 1/e drawn from ½(R(x⁰) + R(x¹)) = ½(U + V). So the shuffled messages are made from (C, the
number of U's), which is A + 1 with chance q and A else, A ~ Bin(C, ½), or the other way round.
"""

from __future__ import annotations

from turnout.accounting.divergence.curves import Direction, Side
from turnout.accounting.divergence.pairs import UNIT_ROUNDOFF
from turnout.accounting.divergence.runs import run_epsilon
from turnout.accounting.shuffling.blanket.blocks import BlanketBlock
from turnout.accounting.shuffling.blanket.pair import BlanketPair, clones_pair
from turnout.core import checks


def clones_2021(local_epsilon: float, clients: int, delta: float, rounds: int = 1) -> float:
    """ε of shuffled ε₀-messages, composed over rounds, by the clones pair.

    Source: Feldman, McMillan and Talwar 2021 (feldman2021clones), Theorem 3.1, numerically: the
    smallest published bound for adaptive randomizers, which needs an order of speaking that is
    uniform and unknown to the adversary and to whoever chooses the next randomizer.
    `turnout.accounting.price` quotes `supremum.worst_pair`, up to 30 % less.

    Returns:
        ε under replace-one, never below the true one; hardly above r·ε₀, rounded up.

    >>> round(clones_2021(1.0, 100_000, 1e-6), 4)
    0.0153
    """
    return pair_epsilon(clones_pair(local_epsilon), clients, delta, rounds)


def pair_epsilon(pair: BlanketPair, clients: int, delta: float, rounds: int = 1) -> float:
    """ε of a blanket pair's messages, composed over rounds.

    Returns:
        ε in either direction, never below the pair's; hardly above r times the pair's own ε₀.
    """
    checks.open_unit(delta=delta)
    checks.count(rounds=rounds)
    run = [(BlanketBlock(pair, clients), rounds)]
    amplified = run_epsilon(run, Direction.REMOVE, Side.UPPER, delta, 0)
    return min(amplified, rounds * pair.local_epsilon * (1.0 + 8 * UNIT_ROUNDOFF))
