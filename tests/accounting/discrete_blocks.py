"""Two-outcome mechanisms as blocks with exact privacy curves, for games over all choices."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pytest

from turnout.accounting.budgets import BudgetTerms
from turnout.accounting.divergence.blocks import CurvePair
from turnout.accounting.divergence.curves import Direction
from turnout.schemes import EveryStep, GaussianNoise, Relation, Scheme

TERMS = BudgetTerms(Relation.ADD_REMOVE)


@dataclass(frozen=True)
class DiscreteCurve:
    """H_K of two finite laws, exact."""

    p: tuple[float, ...]
    q: tuple[float, ...]

    def delta(self, k):
        k = np.asarray(k, dtype=float)
        gains = [np.maximum(p - k * q, 0.0) for p, q in zip(self.p, self.q, strict=True)]
        return np.sum(gains, axis=0)

    def slope(self, k):
        k = np.asarray(k, dtype=float)
        gains = [np.where(p > k * q, -q, 0.0) for p, q in zip(self.p, self.q, strict=True)]
        return np.sum(gains, axis=0)


@dataclass(frozen=True)
class TwoOutcomes:
    """Outcome 1 has probability p where she took part and q where she did not."""

    p: float
    q: float

    @property
    def loss_deviation(self) -> float:
        losses = [math.log(a / b) for a, b, _ in self.outcomes]
        mean = sum(b * loss for loss, (_, b, _) in zip(losses, self.outcomes, strict=True))
        square = sum(b * loss**2 for loss, (_, b, _) in zip(losses, self.outcomes, strict=True))
        return math.sqrt(square - mean**2)

    @property
    def exact(self) -> bool:
        return True

    @property
    def outcomes(self):
        """Probability with her, without her, and whether it is outcome 1."""
        return [(self.p, self.q, True), (1 - self.p, 1 - self.q, False)]

    def curve(self, direction, side, delta, refinement):
        p, q = (self.p, 1 - self.p), (self.q, 1 - self.q)
        return DiscreteCurve(p, q) if direction is Direction.REMOVE else DiscreteCurve(q, p)

    def curves(self, side, delta, refinement):
        remove, add = (self.curve(d, side, delta, refinement) for d in Direction)
        return CurvePair(side, [remove], [add])

    def divergence(self, order: float, direction: Direction) -> float:
        laws = [(a, b) if direction is Direction.REMOVE else (b, a) for a, b, _ in self.outcomes]
        return math.log(sum(a**order * b ** (1 - order) for a, b in laws)) / (order - 1)


def response(epsilon: float) -> TwoOutcomes:
    """Randomized response."""
    return TwoOutcomes(1 / (1 + math.exp(-epsilon)), 1 / (1 + math.exp(epsilon)))


def schemes_for(blocks: Mapping[str, TwoOutcomes], monkeypatch: pytest.MonkeyPatch):
    """A scheme that stands for each block, in whatever asks `BudgetTerms` for blocks."""
    schemes = {
        name: Scheme(GaussianNoise(1.0 + i), EveryStep(1), Relation.ADD_REMOVE)
        for i, name in enumerate(blocks)
    }
    runs = {schemes[name]: [(block, 1)] for name, block in blocks.items()}
    monkeypatch.setattr(BudgetTerms, "run_of", lambda self, scheme, steps=None: runs[scheme])
    return schemes


class Game:
    """Everything an adversary can do who picks each block from what came out before.

    Args:
        blocks: what may be picked.
        allowed: whether the blocks picked so far (sorted names) may all be run.
        rounds: after which it ends.
        epsilon: ε at the end, as a function of the sorted names of what was run.
    """

    def __init__(self, blocks, allowed, rounds, epsilon):
        self.blocks, self.allowed, self.rounds, self.epsilon = blocks, allowed, rounds, epsilon
        self.known: dict[tuple[str, ...], bool] = {}

    def worst(self, direction: Direction) -> float:
        """The largest δ, over all strategies: the whole tree is searched."""
        return self._worst(direction, 1.0, 1.0, ())

    def _may(self, names: tuple[str, ...]) -> bool:
        if names not in self.known:
            self.known[names] = self.allowed(names)
        return self.known[names]

    def _worst(self, direction, p, q, names) -> float:
        best = max(p - math.exp(self.epsilon(names)) * q, 0.0)
        if len(names) == self.rounds:
            return best
        for name, block in self.blocks.items():
            longer = tuple(sorted((*names, name)))
            if self._may(longer):
                total = 0.0
                for a, b, _ in block.outcomes:
                    with_her, without = (a, b) if direction is Direction.REMOVE else (b, a)
                    total += self._worst(direction, p * with_her, q * without, longer)
                best = max(best, total)
        return best


def fixed_delta(blocks, epsilon: float, direction: Direction) -> float:
    """δ of a list of blocks that was fixed in advance, by enumeration."""
    paths = [(1.0, 1.0)]
    for block in blocks:
        laws = [(a, b) if direction is Direction.REMOVE else (b, a) for a, b, _ in block.outcomes]
        paths = [(p * a, q * b) for p, q in paths for a, b in laws]
    return math.fsum(max(p - math.exp(epsilon) * q, 0.0) for p, q in paths)
