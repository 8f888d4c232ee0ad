"""Means from shuffled messages: ε after shuffling, and the largest local levels within (ε, δ).

`shuffled_randomizer`, `shuffled_linf` and `shuffled_l2` return the randomizer with the largest
local level ε₀ for which the shuffled messages are (ε, δ)-private; `largest_affordable` searches for
this level, and `several_messages` chooses, from public numbers, how a client sends several
messages.

Every client sends L messages, numbered from 1 to L. The messages of all clients with the same
number go through one shuffler. (A single shuffler suffices if each message contains its
number.) A message is drawn independently of the client's other messages, so the outputs of the
shufflers compose.

Notation: n clients send L messages each; message j is ε_j-private on its own, and e stands for
e^{ε_j}; (ε, δ) is for all shuffled messages together, under replacement of one client's vector.

The error of each family of randomizers is predicted at the ε₀ for which its shuffled messages are
about (ε, δ)-private. The ε of the family with the least predicted error is then computed by a
proved bound, so privacy does not depend on the prediction. Shuffled messages of many clients are
nearly a Gaussian mechanism of

    μ² = Σ_j (e − 1)²/(e·n)            message: a bit of a coordinate that is known
    μ² = Σ_j 2(e − 1)²/((e + 1)·n)     message: a uniform coordinate and its bit

for the messages of all other clients that reveal most. Here μ is the difference of the means of the
shuffled counts, in standard deviations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Generic, TypeVar

import numpy as np

from turnout.accounting import shuffled_price
from turnout.accounting.calibration import log_gaussian_mu
from turnout.core import checks
from turnout.core.bounds import bisected
from turnout.core.errors import ParameterError, UnsupportedError
from turnout.randomizers.interface import LARGEST_EPSILON
from turnout.randomizers.vectors import (
    CosineRotation,
    KashinFrame,
    L2Randomizer,
    LInfRandomizer,
    VectorRandomizer,
)
from turnout.randomizers.vectors.l2 import CLIP
from turnout.randomizers.vectors.sampled_bits import bit_weights
from turnout.schemes import KaryResponse, NonAdaptiveRandomizer

Made = TypeVar("Made")
_ENOUGH = 1e-3  # accepted distance of ln of a price below ln ε
_AIM = 0.4 * _ENOUGH  # distance below ln ε at which the search aims
_NARROW = 1e-4  # width of a bracket of ln ε₀ at which the search ends
_LONGEST_STEP = 1.5  # of ln ε₀, while no level is known to cost too much
_MOST_TRIALS, _PATIENCE = 40, 2


@dataclass(frozen=True)
class Affordable(Generic[Made]):
    """Randomizer with the largest ε₀ that the search found, and its ε after shuffling.

    Attributes:
        made: the randomizer.
        epsilon: proved ε of the randomizer's shuffled messages, at most the target.
        level: local level ε₀ of the randomizer.
    """

    made: Made
    epsilon: float
    level: float


@dataclass(frozen=True, slots=True)
class _Tried:
    """Trial of the search: ln ε₀ of the trial, and the excess ln(ε/target ε) of the trial.

    The excess is infinite where no randomizer exists.
    """

    position: float
    excess: float

    @property
    def known(self) -> bool:
        return math.isfinite(self.excess)


def largest_affordable(
    make: Callable[[float], Made],
    price: Callable[[Made], float],
    epsilon: float,
    start: float | None = None,
) -> Affordable[Made]:
    """Randomizer (or other object) of almost the largest local level ε₀ for a target ε.

    The ε of the returned object is computed for this object, so the guarantee needs no assumption
    on ``make``. Only the distance from the target ε depends on the assumption that ε increases with
    ε₀.

    Args:
        make: function from ε₀ to an object. If it raises an error at an ε₀ above ``epsilon``, this
            ε₀ counts as too large.
        price: function that returns a proved ε of an object, never above the object's ε₀.
        epsilon: target ε, above 0.
        start: ε₀ at which the search begins, if the ε of the object made at ``start`` is at most
            the target.

    Returns:
        An object with an ε of at most the target, and within about 0.1 % of the target if the
        target can be reached.

    Raises:
        ParameterError: ``epsilon`` is not above 0, or error of ``make`` at ε₀ = ``epsilon``.
        UnsupportedError: error of ``make`` at ε₀ = ``epsilon``.
    """
    # A first ε₀ within the target, and the bracket of ln ε₀ above it.
    checks.positive(epsilon=epsilon)
    best = _begun(make, price, epsilon, start)
    tried = [_Tried(math.log(best.level), _log(best.epsilon / epsilon))]
    low, high, same = tried[0].position, math.inf, 0
    # Narrow the bracket until ε is near the target.
    for _ in range(_MOST_TRIALS):
        if _log(best.epsilon / epsilon) >= -_ENOUGH or high - low < _NARROW:
            break
        position = _next(tried, low, high, halve=abs(same) > _PATIENCE)
        trial = _made(make, price, math.exp(position))
        tried.append(_Tried(position, math.inf if trial is None else _log(trial.epsilon / epsilon)))
        if trial is not None and trial.epsilon <= epsilon:
            best, low, same = trial, position, max(same, 0) + 1
        else:
            high, same = position, min(same, 0) - 1
    return best


@lru_cache(maxsize=64)
def level_of_any(clients: int, epsilon: float, delta: float) -> float:
    """Largest ε₀ found, from ε to 30, at which every non-adaptive randomizer is (ε, δ)-private.

    Args:
        clients: n.
        epsilon: target ε after shuffling, above 0.
        delta: δ in (0, 1).
    """

    def price(level: float) -> float:
        return shuffled_price([(NonAdaptiveRandomizer(level), 1)], clients, delta)

    return largest_affordable(_checked_level, price, min(epsilon, LARGEST_EPSILON)).made


def _checked_level(level: float) -> float:
    """Local level ε₀, after a check that a message may have this level."""
    if level > LARGEST_EPSILON:
        raise ParameterError("epsilon", level, f"at most {LARGEST_EPSILON:g}")
    return level


def _begun(
    make: Callable[[float], Made],
    price: Callable[[Made], float],
    epsilon: float,
    start: float | None,
) -> Affordable[Made]:
    """First trial of the search: ε₀ = ``start`` if its ε meets the target, else the target ε."""
    if start is not None and start > epsilon:
        trial = _made(make, price, start)
        if trial is not None and trial.epsilon <= epsilon:
            return trial
    made = make(epsilon)
    return Affordable(made, min(price(made), epsilon), epsilon)


def _made(
    make: Callable[[float], Made], price: Callable[[Made], float], level: float
) -> Affordable[Made] | None:
    """Object made at a local level ε₀, with its ε; None if ``make`` raises an error."""
    try:
        made = make(level)
    except (ParameterError, UnsupportedError):
        return None
    return Affordable(made, price(made), level)


def _next(tried: Sequence[_Tried], low: float, high: float, *, halve: bool) -> float:
    """Next ln ε₀ to try in the bracket, by the secant through the trials nearest the target."""
    known = sorted((each for each in tried if each.known), key=lambda each: abs(each.excess))
    if math.isinf(high):
        # ε increases at least as fast as ε₀, so this step mostly overshoots.
        return low + min(max(-known[0].excess, 2 * _NARROW), _LONGEST_STEP)
    first, second = (*known, *known)[:2]
    if halve or first.excess == second.excess:
        return 0.5 * (low + high)
    slope = (second.position - first.position) / (second.excess - first.excess)
    aside = 0.02 * (high - low)
    return min(max(first.position + slope * (-_AIM - first.excess), low + aside), high - aside)


def _log(ratio: float) -> float:
    return math.log(max(ratio, 1e-300))


@dataclass(frozen=True)
class ShuffledMean:
    """Randomizer of vectors, with the ε of its shuffled messages.

    Attributes:
        randomizer: randomizer of every client.
        clients: n; all clients follow the protocol.
        delta: δ.
        epsilon: upper bound on ε of all shuffled messages together.
    """

    randomizer: VectorRandomizer
    clients: int
    delta: float
    epsilon: float

    unit = "client"
    trust = "shuffled"
    relation = "replace-one"

    @property
    def messages(self) -> int:
        """Number of messages L per client."""
        return sum(count for _, count in self.randomizer.shuffled_as)

    @property
    def mse_bound(self) -> float:
        """Upper bound on E‖estimate − mean‖₂² over all possible vectors, clipping included."""
        return self.randomizer.mse_bound(self.clients)

    def __str__(self) -> str:
        """One-line text of the messages and their privacy."""
        return (
            f"{self.messages} messages of {self.clients:,} clients, {self.randomizer.message_bits} "
            f"bits a client; ε = {self.epsilon:g} at δ = {self.delta:g} ({self.relation}), unit: "
            f"one {self.unit}, trust: {self.trust}; assumes: all {self.clients:,} clients follow "
            f"the protocol; without the shuffler ε₀ = {self.randomizer.epsilon0:g} (pure, local)"
        )


def shuffled_epsilon(randomizer: VectorRandomizer, clients: int, delta: float) -> float:
    """Upper bound on ε of all shuffled messages together.

    Source: the blanket of each message by `VectorRandomizer.shuffled_as`
    (docs/design/shuffling.md), composed numerically over the shufflers. The closed forms of
    Theorems 3.3.2, 3.5.2 and 3.6.2 (girgis2023thesis) are wrong by constants in both directions
    (errata, 5–7).

    Args:
        randomizer: randomizer of every client, with private coordinates.
        clients: n; all clients follow the protocol.
        delta: δ in (0, 1).

    Returns:
        ε under replace-one, never above ε₀.

    Raises:
        UnsupportedError: messages without a known analysis, or public coordinates.

    >>> from turnout.randomizers.vectors import BinaryVectorRandomizer
    >>> messages = BinaryVectorRandomizer(10, 5.0, samples=10)
    >>> shuffled_epsilon(messages, 100_000, 1e-6) < 0.1
    True
    """
    price = shuffled_price(randomizer.shuffled_as, clients, delta)
    return min(price, randomizer.epsilon0)


def shuffled_randomizer(
    make: Callable[[float], VectorRandomizer],
    clients: int,
    epsilon: float,
    delta: float,
    start: float | None = None,
) -> ShuffledMean:
    """Vector randomizer with the least noise whose shuffled messages are (ε, δ)-private.

    Args:
        make: function from a local level ε₀ to the randomizer; a larger ε₀ means less noise.
        clients: n; all clients follow the protocol.
        epsilon: ε of all messages together, above 0.
        delta: δ in (0, 1).
        start: local level at which the search begins.

    Returns:
        A randomizer whose ε is at most the target, and within about 0.1 % of the target if
        shuffling helps.
    """
    found = largest_affordable(
        make, lambda randomizer: shuffled_epsilon(randomizer, clients, delta), epsilon, start
    )
    return ShuffledMean(found.made, clients, delta, found.epsilon)


def shuffled_linf(
    dimension: int,
    clients: int,
    epsilon: float,
    delta: float,
    *,
    samples: int,
    levels: int,
    radius: float = 1.0,
) -> ShuffledMean:
    """Multi-message ℓ∞ randomizer for the shuffle model: one bit for each of m·s coordinates.

    Source: Algorithm 3.5.1 and Theorem 3.5.2 (girgis2023thesis), calibrated numerically. The costs
    of shuffled bits with small local levels add up as the squares of these levels, so the
    level of bit k with the least error is proportional to w_k^{1/2}, with w_k the weight of the
    bit. In the local model that level is proportional to w_k^{2/3}.

    Args:
        dimension: d.
        clients: n; all clients follow the protocol.
        epsilon: ε of all messages together, above 0.
        delta: δ in (0, 1).
        samples: s, from 1 to d.
        levels: m, bits of a coordinate.
        radius: r, the largest |x_j|.
    """
    make = linf_of_level(dimension, samples, levels, radius)
    return shuffled_randomizer(make, clients, epsilon, delta)


def linf_of_level(
    dimension: int, samples: int, levels: int, radius: float = 1.0
) -> Callable[[float], LInfRandomizer]:
    """Function that maps ε₀ to the randomizer of `shuffled_linf`."""

    def make(epsilon0: float) -> LInfRandomizer:
        shares = _shuffled_shares(epsilon0 / samples, levels)
        return LInfRandomizer(
            dimension, epsilon0, radius, samples, levels, shared=False, shares=shares
        )

    return make


def shuffled_l2(
    dimension: int,
    clients: int,
    epsilon: float,
    delta: float,
    *,
    samples: int,
    redundancy: float = 4.0,
    radius: float = 1.0,
    seed: int = 0,
) -> ShuffledMean:
    """Multi-message ℓ2 randomizer for the shuffle model: one bit for each of s coefficients.

    Source: Algorithm 3.6.1, Theorem 3.6.2 and Remark 3.6.1 (girgis2023thesis), calibrated
    numerically. The error is proportional to K², where K is the level of Kashin's representation;
    K² is 2.5 for four coefficients for each coordinate.

    Args:
        dimension: d.
        clients: n; all clients follow the protocol.
        epsilon: ε of all messages together, above 0.
        delta: δ in (0, 1).
        samples: s, number of reported coefficients.
        redundancy: coefficients for each coordinate; at most 1 means a clipped rotation.
        radius: r, the largest ‖x‖₂.
        seed: seed of the public frame.
    """
    make = l2_of_level(dimension, samples, redundancy, radius, seed)
    return shuffled_randomizer(make, clients, epsilon, delta)


def l2_of_level(
    dimension: int, samples: int, redundancy: float = 4.0, radius: float = 1.0, seed: int = 0
) -> Callable[[float], L2Randomizer]:
    """Function that maps ε₀ to the randomizer of `shuffled_l2`."""
    if redundancy <= 1:
        bound = CLIP * radius / math.sqrt(dimension)
        inner = LInfRandomizer(dimension, 1.0, bound, samples)
        some = L2Randomizer(inner, CosineRotation(dimension, seed), radius)
    else:
        width = samples * math.ceil(redundancy * dimension / samples)
        some = L2Randomizer.kashin(dimension, 1.0, radius, width=width, samples=samples, seed=seed)

    def make(epsilon0: float) -> L2Randomizer:
        return replace(some, inner=replace(some.inner, epsilon=epsilon0))

    return make


def _shuffled_shares(epsilon: float, levels: int) -> tuple[float, ...]:
    """Privacy budgets of the bits of one coordinate, proportional to the roots of bit weights."""
    roots = np.sqrt(bit_weights(levels))
    return tuple(float(share) for share in epsilon * roots / roots.sum())


_MOST_LEVELS = 8
_REDUNDANCY = 4.0
_NEAR = 1.05  # errors within this factor of the least are ties, decided by fewer bits
_MOST_WORK = 2**25  # clients times coefficients for which Kashin's representation takes minutes
_HALVINGS = 24
_TOWARDS_LESS = 0.8  # factor of a predicted level, so that its price is mostly within ε


@dataclass(frozen=True)
class _Shape:
    """Family of randomizers: function of ε₀, with the largest usable ε₀ and the error there.

    Both numbers rest on the approximation of shuffled messages by a Gaussian mechanism.
    """

    make: Callable[[float], VectorRandomizer]
    level: float
    error: float
    bits: int


def predicted_error(randomizer: VectorRandomizer, clients: int) -> float:
    """Largest E‖estimate − mean‖₂² over all vectors, plus the predicted error of clipping."""
    clipped = 0.0
    if isinstance(randomizer, L2Randomizer) and not isinstance(randomizer.rotation, KashinFrame):
        clipped = randomizer.clipping_error
    return randomizer.worst_squared_error / clients + clipped


@lru_cache(maxsize=64)  # depends on public numbers alone, so a second estimate reuses it
def several_messages(
    norm: str,
    dimension: int,
    radius: float,
    clients: int,
    target: tuple[float, float],
    *,
    bits: int | None = None,
    quick: bool = True,
) -> ShuffledMean:
    """Multi-message randomizer of about the least predicted error, with its proved ε.

    Source: Algorithms 3.5.1 and 3.6.1 (girgis2023thesis), with parameters chosen numerically.

    Args:
        norm: "l1", "l2" or "linf"; an ℓ1 ball lies in the ℓ2 ball.
        dimension: d.
        radius: r, the largest norm.
        clients: n; all clients follow the protocol.
        target: (ε, δ) of all shuffled messages together.
        bits: largest number of bits of all messages of a client; None: any number.
        quick: whether to leave out representations that take minutes to compute.

    Raises:
        ParameterError: ``bits`` is too small for two messages of any family of randomizers.
    """
    deviations = math.exp(log_gaussian_mu(*target))
    shapes = [
        _predicted(make, clients, deviations)
        for make in _makers(norm, dimension, radius, clients if quick else 0)
        if bits is None or make(1.0).message_bits <= bits
    ]
    if not shapes:
        raise ParameterError("bits", bits, "enough for two messages of at least one bit")
    least = min(shape.error for shape in shapes)
    near = [shape for shape in shapes if shape.error <= _NEAR * least]
    best = min(near, key=lambda shape: (shape.bits, shape.error))
    return shuffled_randomizer(best.make, clients, *target, _TOWARDS_LESS * best.level)


def _makers(
    norm: str, dimension: int, radius: float, clients: int
) -> Iterator[Callable[[float], VectorRandomizer]]:
    """Families of vector randomizers in which each client sends at least two messages."""
    if norm == "linf" or dimension == 1:
        for samples in _counts(dimension):
            for levels in range(1 if samples > 1 else 2, _MOST_LEVELS + 1):
                yield linf_of_level(dimension, samples, levels, radius)
        return
    for samples in _counts(dimension)[1:]:
        yield l2_of_level(dimension, samples, 1.0, radius)
    if clients * _REDUNDANCY * dimension <= _MOST_WORK:
        for samples in _counts(math.ceil(_REDUNDANCY * dimension))[1:]:
            yield l2_of_level(dimension, samples, _REDUNDANCY, radius)


def _counts(most: int) -> list[int]:
    """Message counts to try: 1, 2, 3, 4, 6, 8, 12, … below ``most``, and ``most``."""
    steps = {size for power in range(most.bit_length()) for size in (1 << power, 3 << power)}
    return sorted({size for size in steps if size < most} | {most})


def _predicted(
    make: Callable[[float], VectorRandomizer], clients: int, deviations: float
) -> _Shape:
    """Randomizer family, with the largest ε₀ whose approximate μ is at most ``deviations``."""

    def within(level: float) -> bool:
        try:
            return _apart(make(level), clients) <= deviations
        except (ParameterError, UnsupportedError):
            return False

    low, high = math.log(1e-6), math.log(1e5)
    ends = bisected(lambda log_level: within(math.exp(log_level)), high, low, halvings=_HALVINGS)
    level = math.exp(ends.holding)
    found = make(level)
    return _Shape(make, level, predicted_error(found, clients), found.message_bits)


def _apart(randomizer: VectorRandomizer, clients: int) -> float:
    """Approximate Gaussian-DP parameter μ of a client's shuffled messages."""
    square = 0.0
    for randomized, count in randomizer.shuffled_as:
        e = math.exp(randomized.epsilon0)
        known = isinstance(randomized, KaryResponse)
        square += count * (e - 1) ** 2 * (1 / e if known else 2 / (e + 1)) / clients
    return math.sqrt(square)
