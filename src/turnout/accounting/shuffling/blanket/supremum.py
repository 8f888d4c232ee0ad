"""The worst that any ε₀-randomizers can do in a shuffle: a supremum that is one pair.

Two laws of an ε₀-randomizer at total variation (e − 1)α, and max(p, q)/e, which every other law is
at least, make a trinomial pair (`blanket.trinomial_pair`). The gain of one message, (p − Kq)/m
under m, then is

    A = e − K or B = 1 − eK   with chance α each,
    D = e(1 − K)              with chance (1 − (e + 1)α)/e,
    0                         else.

The chances are linear in α, the mean is 1 − K for every α, and D and 0 lie between B and A: by the
chord over [B, A] the gain rises with α in convex order. So δ(K), which is E[(sum of n gains)₊]/n,
rises with α for every K and n, and the supremum over α is its largest value, 1/(e + 1): the pair of
the stronger clones bound. If randomizers are chosen by the messages before, each gain is, whatever
came before, at most that one in convex order, which is enough where the order of speaking is hidden
(`turnout.spec.SpeakingOrder`).

docs/design/shuffling.md has the proofs.

Notation
    e, K   e^{ε₀}, e^ε         p, q   laws of a message that holds one or the other of two records
    m      max(p, q)/e, or less: what every law of another's message is at least
    α      of the message, in (0, 1/(e + 1)]; total variation of p and q is (e − 1)α
"""

from __future__ import annotations

import math

from turnout.accounting.shuffling.blanket.pair import (
    BlanketPair,
    stronger_clones_pair,
    trinomial_pair,
)
from turnout.core.errors import ParameterError

_LARGEST_LOCAL_EPSILON = 600.0


def worst_pair(local_epsilon: float, total_variation: float = 1.0) -> BlanketPair:
    """The pair that shuffled messages of an ε₀-randomizer are worth at most.

    Source: Theorems 2 and 3 of docs/design/shuffling.md. Without a bound on the total variation
    this is the pair of Feldman, McMillan and Talwar 2023 (feldman2023stronger), Theorem 3.1, by
    another proof.
    Status: proved, upper bound at every K and n, in both directions, for one randomizer that was
    fixed before (Theorem 2), and for randomizers that differ from message to message and are chosen
    by the messages before (Theorem 3, ours, reviewed independently, unpublished), as long as any
    two clients' laws for the same message are within a factor e and the order of speaking is
    uniform and unknown to the adversary and to whoever chooses. Never above `clones_pair`.

    Args:
        local_epsilon: ε₀ > 0, under replacement; above 600 it counts as 600.
        total_variation: at most how far apart any two laws of one message are, in (0, 1], where
            more is known than that they are within (e − 1)/(e + 1).

    Returns:
        The trinomial pair of the largest α.

    >>> worst_pair(1.0) == stronger_clones_pair(1.0)
    True
    """
    if not 0.0 < total_variation <= 1.0:
        raise ParameterError("total_variation", total_variation, "a number above 0, at most 1")
    widest = stronger_clones_pair(local_epsilon)
    alpha = total_variation / math.expm1(min(local_epsilon, _LARGEST_LOCAL_EPSILON))
    return widest if alpha >= widest.share else trinomial_pair(local_epsilon, alpha)
