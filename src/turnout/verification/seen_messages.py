"""Local trust: messages that everybody sees with their senders, as rows of windows.

A message under two records has no ratio outside of [e^−ε₀, e^ε₀] and laws at most τ apart. Among
all such pairs one is the worst at every ratio k: δ(k) is convex, δ(1) ≤ τ and δ(e^ε₀) = 0, so it
lies below the chord, which is the curve of the ratios e^ε₀, 1 and e^−ε₀ with the probabilities
a, 1 − a − a·e^ε₀ and a·e^ε₀, a = τ/(e^ε₀ − 1). A message that may not be sent adds mass at ratio 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from turnout.core.errors import UnsupportedError
from turnout.schemes import (
    AttainedVariation,
    BoundedVariation,
    KaryResponse,
    PureRandomizer,
    Relation,
    ReleaseRule,
    RepeatedMessages,
    SampledBitResponse,
    Scheme,
)
from turnout.schemes.normal_form import Always, Bernoulli, DrawTable, KOf, OneOf, normal_form
from turnout.verification.windows import SeenMessage

METHOD = "each message by itself, seen with its sender"
Chances = list[tuple[float, int]]
"""(probability that a message is sent, how many such messages)."""


def seen_runs(
    scheme: Scheme, steps: int
) -> tuple[tuple[SeenMessage, ...] | None, tuple[SeenMessage, ...]]:
    """Runs no worse than the truth, if one is known, and no better, after ``steps`` steps.

    Raises:
        UnsupportedError: no independent analysis is written for this scheme.
    """
    randomizer = scheme.randomizer
    if not isinstance(randomizer, PureRandomizer) or isinstance(randomizer, RepeatedMessages):
        raise UnsupportedError(f"{type(randomizer).__name__} has no independent analysis")
    if scheme.relation is Relation.ADD_REMOVE or scheme.release is not ReleaseRule.AGGREGATED:
        raise UnsupportedError("only sums of all messages, whose senders are seen, by replace-one")
    if steps:
        _CHANCES.require(scheme.participation)
    apart, attained = _total_variation(randomizer)
    lower: Chances = []
    upper: Chances = []
    for draw, full, rest in normal_form(scheme.participation).released(steps) if steps else ():
        below, above = _CHANCES[draw](draw, full, rest)
        lower += below
        upper += above
    known = attained and scheme.relation is Relation.REPLACE_ONE
    most = _messages(randomizer.epsilon0, apart, upper)
    return _messages(randomizer.epsilon0, apart, lower) if known else None, most


def _messages(epsilon0: float, apart: float, chances: Chances) -> tuple[SeenMessage, ...]:
    return tuple(
        SeenMessage(epsilon0, apart, probability, count)
        for probability, count in chances
        if probability > 0 and count > 0
    )


def _total_variation(randomizer: PureRandomizer) -> tuple[float, bool]:
    """A bound on the total variation of any two records, and whether two attain it and ε₀."""
    largest = math.tanh(randomizer.epsilon0 / 2)
    if isinstance(randomizer, BoundedVariation):
        attained = isinstance(randomizer, AttainedVariation)
        return min(randomizer.total_variation, largest), attained
    binary = isinstance(randomizer, KaryResponse) and randomizer.categories == 2
    return largest, binary or isinstance(randomizer, SampledBitResponse)


def _seen_every_step(draw: Always, full: int, rest: int) -> tuple[Chances, Chances]:
    return [(1.0, full)], [(1.0, full)]


def _seen_coins(draw: Bernoulli, full: int, rest: int) -> tuple[Chances, Chances]:
    sent = [(float(draw.rate), full)]
    return sent, sent


def _seen_one_of(draw: OneOf, full: int, rest: int) -> tuple[Chances, Chances]:
    """Whole windows, and one that was begun: the message was sent if its step is past."""
    probability = float(draw.probability)
    sent = [(probability, full), (probability * rest / draw.steps, 1)]
    return sent, sent


def _seen_k_of(draw: KOf, full: int, rest: int) -> tuple[Chances, Chances]:
    """Of a window that was begun at least no message was sent, and at most k."""
    whole = full * draw.picks
    return [(1.0, whole)], [(1.0, whole + min(rest, draw.picks))]


_CHANCES: DrawTable[Callable[[Any, int, int], tuple[Chances, Chances]]] = DrawTable(
    "an independent analysis of messages that are seen",
    {Always: _seen_every_step, Bernoulli: _seen_coins, OneOf: _seen_one_of, KOf: _seen_k_of},
)
