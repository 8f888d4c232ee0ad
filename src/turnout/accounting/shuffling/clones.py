"""Shuffled local messages: the clones bound, for pure ε₀ and for Gaussian noise at the client.

Every client sends one message a round, made by a randomizer of her own; a shuffler hides who sent
what. Neighbours differ in one client's record (replace-one).

Notation
    ε₀, δ₀  of the local randomizer, under replacement
    n       clients         e = e^{ε₀}     q = e/(e + 1)
    C       clones: other clients whose message might as well be the victim's, Bin(n − 1, 1/e)

**Pure ε₀** (Feldman, McMillan and Talwar 2021, feldman2021clones, Theorem 3.1, numerically).
R(x⁰) = qU + (1 − q)V and R(x¹) = (1 − q)U + qV for some laws U and V. Every other message is with
chance 1/e drawn from ½(R(x⁰) + R(x¹)) = ½(U + V). So the shuffled messages are made from (C, the
number of U's), which is A + 1 with chance q and A else, A ~ Bin(C, ½), or the other way round.

**(ε₀, δ₀)**, one round. By Kairouz, Oh and Viswanath 2015 (kairouz2015composition) there are laws
at distance δ₀ from R(x⁰) and R(x¹) of the form above, and min(R(xʲ), e·R(x)) has mass 1 − δ₀ at
least; so every other message is at distance 2δ₀/e of one as above. With
τ = (1 + 2(n − 1)/e)·δ₀ a round, δ(ε) ≤ δ_clones(ε) + (1 + e^ε)·τ.
"""

from __future__ import annotations

import math

import numpy as np

from turnout.accounting.blocks import PairBlock
from turnout.accounting.curves import Curve, Direction, PairCurve, Side
from turnout.accounting.pairs import GaussianPair
from turnout.accounting.runs import run_epsilon
from turnout.accounting.shuffling.blanket import clones_pair
from turnout.accounting.shuffling.blocks import BlanketBlock
from turnout.core import checks
from turnout.core.errors import NumericalError

_SHARE = 0.1  # of δ that goes to τ
_ROUNDS = 8  # how often ε₀ is chosen anew
_AHEAD = 1.003  # how far above the last ε the next one is assumed to be
_LARGEST_LOCAL_EPSILON = 600.0


def clones_2021(local_epsilon: float, clients: int, delta: float, rounds: int = 1) -> float:
    """ε of shuffled ε₀-messages, composed over rounds, by the clones pair.

    Source: Feldman, McMillan and Talwar 2021 (feldman2021clones), Theorem 3.1, numerically.

    Args:
        local_epsilon: ε₀ > 0, under replacement.
        clients: n ≥ 1; each sends one message a round.
        delta: δ in (0, 1).
        rounds: r ≥ 1; each is shuffled afresh.

    Returns:
        ε under replace-one, never below the true one. No larger than r·ε₀.

    Raises:
        NumericalError: the composition cannot be certified at this δ.

    >>> round(clones_2021(1.0, 100_000, 1e-6), 4)
    0.0153
    """
    checks.open_unit(delta=delta)
    checks.count(rounds=rounds)
    run = [(BlanketBlock(clones_pair(local_epsilon), clients), rounds)]
    amplified = run_epsilon(run, Direction.REMOVE, Side.UPPER, delta, 0)
    return min(amplified, rounds * local_epsilon)


def shuffled_gaussian(
    noise_multiplier: float, clients: int, delta: float, rounds: int = 1
) -> float:
    """ε of shuffled messages that carry Gaussian noise each, composed over rounds.

    Source: the clones pair with ε₀ and δ₀ of the Gaussian, see the module's notes. Not adaptive
    within a round. ε₀ is chosen so that τ costs a tenth of δ. The least of this and of what the
    messages are worth on their own.

    Args:
        noise_multiplier: σ, the standard deviation of one message's noise over the clip norm C;
            another record moves a message by up to 2C.
        clients: n ≥ 1; each sends one message a round.
        delta: δ in (0, 1).
        rounds: r ≥ 1; each is shuffled afresh.

    Returns:
        ε under replace-one, never below the true one; what the messages are worth on their own
        where clones prove, or can be certified to prove, no more.
    """
    checks.positive(noise_multiplier=noise_multiplier)
    checks.count(clients=clients, rounds=rounds)
    checks.open_unit(delta=delta)
    alone = [(PairBlock(GaussianPair(noise_multiplier / (2 * math.sqrt(rounds)))), 1)]
    best = run_epsilon(alone, Direction.REMOVE, Side.UPPER, delta, 0)
    message = PairCurve(GaussianPair(noise_multiplier / 2), Direction.REMOVE, Side.UPPER)
    assumed, before = 0.0, None  # τ is paid for as if ε were this; it must turn out to be no more
    for _ in range(_ROUNDS):
        local = _cheapest_local_epsilon(message, clients, _SHARE * delta / rounds, assumed)
        if local is None:
            break
        try:
            found = clones_2021(local, clients, (1 - _SHARE) * delta, rounds)
        except NumericalError:
            break
        if found <= assumed or found >= best:
            return min(found, best)
        assumed, before = _next_assumed(assumed, found, before), (assumed, found)
    return best


def _next_assumed(assumed: float, found: float, before: tuple[float, float] | None) -> float:
    """A little above the ε that would be found if it were assumed, by a secant."""
    rise = 0.0 if before is None else (found - before[1]) / (assumed - before[0])
    ahead = (found - assumed) * (1 / (1 - rise) if rise < 1 else 10.0)
    return (assumed + ahead) * _AHEAD


def message_slack(message: Curve, local_epsilon: float, clients: int) -> float:
    """τ of one round: the distance of all its messages from messages of an ε₀-randomizer."""
    local_delta = float(message.delta(np.array(math.exp(local_epsilon))))
    return (1 + 2 * (clients - 1) * math.exp(-local_epsilon)) * local_delta


def _cheapest_local_epsilon(
    message: Curve, clients: int, mass: float, epsilon: float
) -> float | None:
    """About the least ε₀ with (1 + e^ε)·τ ≤ ``mass``, from above; None if there is none."""

    def fits(local: float) -> bool:
        tau = message_slack(message, local, clients)
        return tau == 0.0 or math.log(tau) + float(np.logaddexp(0.0, epsilon)) <= math.log(mass)

    low, high = 0.0, 1.0
    while not fits(high):
        low, high = high, 2 * high
        if high > _LARGEST_LOCAL_EPSILON:
            return None
    while high - low > 1e-6 * high:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high
