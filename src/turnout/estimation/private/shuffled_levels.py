"""The largest local level whose shuffled messages stay within (ε, δ)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Generic, TypeVar

from turnout.accounting import shuffled_price
from turnout.core import checks
from turnout.core.errors import ParameterError, UnsupportedError
from turnout.randomizers.interface import LARGEST_EPSILON
from turnout.schemes import NonAdaptiveRandomizer

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
