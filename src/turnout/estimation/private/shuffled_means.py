"""Means from shuffled messages: what local messages are worth when their senders are hidden.

`shuffled_randomizer`, `shuffled_linf` and `shuffled_l2` give the randomizer of the largest local
level whose shuffled messages stay within (ε, δ); `largest_affordable` searches that level,
`several_messages` chooses the shape of several messages for a client from public numbers.

Every client sends L messages, and each goes through a shuffler of its own together with the others'
messages of the same number (one shuffler serves, if messages carry their number). A message is
drawn independently of the client's other messages, so the shufflers' outputs compose.

Notation: n clients, L messages each, the j-th ε_j-private on its own, e = e^{ε_j}; (ε, δ) of all
shuffled messages together under replacement of one client's vector.

Each shape's error is predicted at the level at which its shuffled messages cost about (ε, δ); the
shape of least error is then priced by what is proved of it, so nothing about privacy rests on the
prediction. Shuffled messages of many clients are nearly a Gaussian mechanism of

    μ² = Σ_j (e − 1)²/(e·n)            a bit of a coordinate that is known
    μ² = Σ_j 2(e − 1)²/((e + 1)·n)     a uniform coordinate and its bit

at the worst messages of all others: the means of what is shuffled differ by so many deviations.
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
_ENOUGH = 1e-3  # how far below ln ε the ln of a price may stay
_AIM = 0.4 * _ENOUGH  # how far below it is aimed
_NARROW = 1e-4  # width of a bracket on ln ε₀ at which it is closed
_LONGEST_STEP = 1.5  # of ln ε₀, while no level is known to cost too much
_MOST_TRIALS, _PATIENCE = 40, 2


@dataclass(frozen=True)
class Affordable(Generic[Made]):
    """The randomizer made at the largest level found, and its price.

    Attributes:
        made: at that level.
        epsilon: its proved price, at most the target.
        level: at which it was made.
    """

    made: Made
    epsilon: float
    level: float


@dataclass(frozen=True, slots=True)
class _Tried:
    """ln ε₀, and by how much the ln of its price exceeds the target's; inf where none is made."""

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
    """The randomizer of a level that is as large as a target ε allows.

    Whatever `make` does at different levels, what is returned was priced as it is: only how near
    the target it comes rests on prices that rise with the level.

    Args:
        make: gives something at a level; an error above ``epsilon`` says that a level is too large.
        price: a proved ε of it, never above its level.
        epsilon: target, > 0.
        start: a level at which to begin, if that is within the target.

    Returns:
        Something that costs at most ε; within about 0.1 % of it where a level gives that.

    Raises:
        ParameterError, UnsupportedError: what `make` raises at ε itself.
    """
    checks.positive(epsilon=epsilon)
    best = _begun(make, price, epsilon, start)
    tried = [_Tried(math.log(best.level), _log(best.epsilon / epsilon))]
    low, high, same = tried[0].position, math.inf, 0
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
    """The ε₀, up to 30, that any one non-adaptive randomizer may have for (ε, δ); at least ε."""

    def price(level: float) -> float:
        return shuffled_price([(NonAdaptiveRandomizer(level), 1)], clients, delta)

    return largest_affordable(_checked_level, price, min(epsilon, LARGEST_EPSILON)).made


def _checked_level(level: float) -> float:
    if level > LARGEST_EPSILON:
        raise ParameterError("epsilon", level, f"at most {LARGEST_EPSILON:g}")
    return level


def _begun(
    make: Callable[[float], Made],
    price: Callable[[Made], float],
    epsilon: float,
    start: float | None,
) -> Affordable[Made]:
    """The level to start from, or ε itself, which any message may have."""
    if start is not None and start > epsilon:
        trial = _made(make, price, start)
        if trial is not None and trial.epsilon <= epsilon:
            return trial
    made = make(epsilon)
    return Affordable(made, min(price(made), epsilon), epsilon)


def _made(
    make: Callable[[float], Made], price: Callable[[Made], float], level: float
) -> Affordable[Made] | None:
    try:
        made = make(level)
    except (ParameterError, UnsupportedError):
        return None
    return Affordable(made, price(made), level)


def _next(tried: Sequence[_Tried], low: float, high: float, *, halve: bool) -> float:
    """The next ln ε₀: where a line through the two best so far meets the aim, in the bracket."""
    known = sorted((each for each in tried if each.known), key=lambda each: abs(each.excess))
    if math.isinf(high):
        # Prices rise at least as fast as levels, so this step is mostly too long.
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
    """A randomizer whose messages are shuffled, and what that is worth.

    Attributes:
        randomizer: what each client uses.
        clients: n; all of them follow the protocol.
        delta: δ.
        epsilon: of all shuffled messages together, never below the true one.
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
        """Messages of a client, L."""
        return sum(count for _, count in self.randomizer.laws)

    @property
    def mse_bound(self) -> float:
        """Largest E‖estimate − mean‖₂² over what the clients hold, clipping included."""
        return self.randomizer.mse_bound(self.clients)

    def __str__(self) -> str:
        """The messages that are sent, and their privacy, as text."""
        return (
            f"{self.messages} messages of {self.clients:,} clients, {self.randomizer.message_bits} "
            f"bits a client; ε = {self.epsilon:g} at δ = {self.delta:g} ({self.relation}), unit: "
            f"one {self.unit}, trust: {self.trust}; assumes: all {self.clients:,} clients follow "
            f"the protocol; without the shuffler ε₀ = {self.randomizer.epsilon0:g} (pure, local)"
        )


def shuffled_epsilon(randomizer: VectorRandomizer, clients: int, delta: float) -> float:
    """ε of all shuffled messages together.

    Source: the blanket of each message by its law (`VectorRandomizer.laws`,
    docs/design/shuffling.md), composed numerically over the shufflers. The closed forms of Theorems
    3.3.2, 3.5.2 and 3.6.2 (girgis2023thesis) are wrong by constants in either direction (errata,
    5–7).

    Args:
        randomizer: what each client uses, with private coordinates.
        clients: n, all of whom follow the protocol.
        delta: δ in (0, 1).

    Returns:
        ε under replace-one, never below the true one and never above ε₀.

    Raises:
        UnsupportedError: nothing is known of its messages, or coordinates are public.

    >>> from turnout.randomizers.vectors import BinaryVectorRandomizer
    >>> messages = BinaryVectorRandomizer(10, 5.0, samples=10)
    >>> shuffled_epsilon(messages, 100_000, 1e-6) < 0.1
    True
    """
    price = shuffled_price(randomizer.laws, clients, delta)
    return min(price, randomizer.epsilon0)


def shuffled_randomizer(
    make: Callable[[float], VectorRandomizer],
    clients: int,
    epsilon: float,
    delta: float,
    start: float | None = None,
) -> ShuffledMean:
    """The randomizer with the least noise whose shuffled messages are (ε, δ)-private.

    Args:
        make: gives the randomizer at a local level ε₀; more ε₀ is less noise.
        clients: n.
        epsilon: ε > 0, of all messages together.
        delta: δ in (0, 1).
        start: a level at which to begin, if that is within ε.

    Returns:
        One on the private side of ε; within about 0.1 % of it where shuffling helps.
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
    """One bit of each of m·s coordinates, shuffled: the ℓ∞ scheme of the multi-message model.

    Source: Algorithm 3.5.1 and Theorem 3.5.2 (girgis2023thesis), calibrated numerically. What
    shuffled levels cost adds up as their squares while they are small, so the best shares are as
    w_k^{1/2}, where the local model has w_k^{2/3}.
    """
    make = linf_of_level(dimension, samples, levels, radius)
    return shuffled_randomizer(make, clients, epsilon, delta)


def linf_of_level(
    dimension: int, samples: int, levels: int, radius: float = 1.0
) -> Callable[[float], LInfRandomizer]:
    """The randomizer of `shuffled_linf` as a function of ε₀."""

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
    """One bit of each of s Kashin coefficients, shuffled: the ℓ2 scheme of that model.

    Source: Algorithm 3.6.1, Theorem 3.6.2 and Remark 3.6.1 (girgis2023thesis), calibrated
    numerically. The error falls as K², which is 2.5 for four coefficients a coordinate.
    A ``redundancy`` of at most 1 is a rotation, clipped.
    """
    make = l2_of_level(dimension, samples, redundancy, radius, seed)
    return shuffled_randomizer(make, clients, epsilon, delta)


def l2_of_level(
    dimension: int, samples: int, redundancy: float = 4.0, radius: float = 1.0, seed: int = 0
) -> Callable[[float], L2Randomizer]:
    """The randomizer of `shuffled_l2` as a function of ε₀."""
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
    roots = np.sqrt(bit_weights(levels))
    return tuple(float(share) for share in epsilon * roots / roots.sum())


_MOST_LEVELS = 8
_REDUNDANCY = 4.0
_NEAR = 1.05  # errors this near to the least count as no worse, so that fewer bits decide
_MOST_WORK = 2**25  # clients times coefficients for which Kashin's representation takes minutes
_HALVINGS = 24
_TOWARDS_LESS = 0.8  # of a predicted level, so that most often the first price is within ε


@dataclass(frozen=True)
class _Shape:
    """A family of randomizers, by level, and the level and error that are predicted."""

    make: Callable[[float], VectorRandomizer]
    level: float
    error: float
    bits: int


def predicted_error(randomizer: VectorRandomizer, clients: int) -> float:
    """Largest E‖estimate − mean‖₂² over what clients hold, with what a rotation's clip takes."""
    clipped = 0.0
    if isinstance(randomizer, L2Randomizer) and not isinstance(randomizer.rotation, KashinFrame):
        clipped = randomizer.clipping_error
    return randomizer.worst_squared_error / clients + clipped


@lru_cache(maxsize=64)  # of public numbers alone: a second estimate need not choose anew
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
    """The multi-message randomizer of about the least predicted error, priced.

    Source: Algorithms 3.5.1 and 3.6.1 (girgis2023thesis), their shapes chosen numerically.

    Args:
        norm: "l1", "l2" or "linf", which bounds the vectors; an ℓ1 ball lies in the ℓ2 ball.
        dimension: d.
        radius: r.
        clients: n, all of whom follow the protocol.
        target: (ε, δ) of all shuffled messages together.
        bits: most bits of all of a client's messages; None: any number.
        quick: whether representations that take long to find are left out.

    Raises:
        ParameterError: no two messages are that short.
    """
    deviations = math.exp(log_gaussian_mu(*target))
    shapes = [
        _predicted(make, clients, deviations)
        for make in _makers(norm, dimension, radius, clients if quick else 0)
        if bits is None or make(1.0).message_bits <= bits
    ]
    if not shapes:
        raise ParameterError("bits", bits, "room for two messages of a bit each")
    least = min(shape.error for shape in shapes)
    near = [shape for shape in shapes if shape.error <= _NEAR * least]
    best = min(near, key=lambda shape: (shape.bits, shape.error))
    return shuffled_randomizer(best.make, clients, *target, _TOWARDS_LESS * best.level)


def _makers(
    norm: str, dimension: int, radius: float, clients: int
) -> Iterator[Callable[[float], VectorRandomizer]]:
    """Families of at least two messages a client."""
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
    """1, 2, 3, 4, 6, 8, 12, … and the largest."""
    steps = {size for power in range(most.bit_length()) for size in (1 << power, 3 << power)}
    return sorted({size for size in steps if size < most} | {most})


def _predicted(
    make: Callable[[float], VectorRandomizer], clients: int, deviations: float
) -> _Shape:
    """The level at which messages are about that many deviations apart, by bisection of ln ε₀."""

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
    """μ of a client's shuffled messages, about."""
    square = 0.0
    for law, count in randomizer.laws:
        e = math.exp(law.epsilon0)
        known = isinstance(law, KaryResponse)
        square += count * (e - 1) ** 2 * (1 / e if known else 2 / (e + 1)) / clients
    return math.sqrt(square)
