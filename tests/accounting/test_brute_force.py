"""Discrete randomizers, enumerated as fractions: bounds hold in both directions."""

import itertools
import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest

from turnout.accounting.divergence.blocks import loss_distribution
from turnout.accounting.divergence.composition import ComposedCurve
from turnout.accounting.divergence.curves import Direction, PairCurve, Side, diluted
from turnout.accounting.participation.check_ins import AllocationBlock, allocation_curve

E3 = Fraction(math.exp(3.0))
RATIOS = np.exp(np.array([0.0, 0.1, 0.5, 1.0, 1.5, 2.0, 2.5]))


@dataclass(frozen=True)
class DiscretePair:
    """Likelihood ratios and their probabilities under Q, given as fractions."""

    values: tuple[Fraction, ...]
    masses: tuple[Fraction, ...]

    def __post_init__(self) -> None:
        assert sum(self.masses) == 1
        assert sum(x * m for x, m in zip(self.values, self.masses, strict=True)) == 1

    @property
    def second_moment(self) -> float:
        return float(sum(x * x * m for x, m in zip(self.values, self.masses, strict=True)))

    def _sum(self, k, above: bool, weighted: bool):
        values = np.array([float(x) for x in self.values])
        masses = np.array([float(m) for m in self.masses])
        k = np.asarray(k, dtype=float)
        inside = (values > k[..., None]) if above else (values <= k[..., None])
        return (inside * masses * (values if weighted else 1.0)).sum(axis=-1)

    def q_below(self, k):
        return self._sum(k, False, False)

    def q_above(self, k):
        return self._sum(k, True, False)

    def p_below(self, k):
        return self._sum(k, False, True)

    def p_above(self, k):
        return self._sum(k, True, True)


def randomized_response(ratio: Fraction) -> DiscretePair:
    """X = e^{ε₀} with probability 1/(e^{ε₀} + 1), else e^{−ε₀}."""
    likely = 1 / (ratio + 1)
    return DiscretePair((1 / ratio, ratio), (1 - likely, likely))


PAIRS = {
    "two-valued, ε₀ = 3": randomized_response(E3),
    "two-valued, ε₀ = ln 2": randomized_response(Fraction(2)),
    "three-valued": DiscretePair(
        (Fraction(1, 4), Fraction(1), Fraction(3)),
        (Fraction(8, 33), Fraction(2, 3), Fraction(1, 11)),
    ),
}


def exact(pair: DiscretePair, window: int, direction: Direction, k: Fraction) -> Fraction:
    """δ by enumeration of all outcomes of a window."""
    total = Fraction(0)
    for outcome in itertools.product(range(len(pair.values)), repeat=window):
        mass = math.prod((pair.masses[i] for i in outcome), start=Fraction(1))
        average = sum((pair.values[i] for i in outcome), start=Fraction(0)) / window
        gain = average - k if direction is Direction.REMOVE else 1 - k * average
        total += mass * max(gain, Fraction(0))
    return total


def bounds(pair: DiscretePair, window: int, direction: Direction):
    """Sharpest lower and upper bounds over curves made for several δ."""
    curves = {
        side: [
            allocation_curve(pair, window, direction, side, delta_hint=hint).delta(RATIOS)
            for hint in (1e-4, 1e-2, 0.2, 0.9)
        ]
        for side in Side
    }
    return np.max(curves[Side.LOWER], axis=0), np.min(curves[Side.UPPER], axis=0)


@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize("window", [1, 2, 3, 4, 5, 6])
@pytest.mark.parametrize("name", PAIRS)
def test_the_bounds_enclose_the_enumerated_epsilon(name, window, direction):
    lower, upper = bounds(PAIRS[name], window, direction)
    truth = [exact(PAIRS[name], window, direction, Fraction(k)) for k in RATIOS]
    for low, value, high in zip(lower, truth, upper, strict=True):
        assert Fraction(low) <= value <= Fraction(high)
        assert high - low <= 2e-3


def test_adding_a_client_can_have_a_far_larger_delta_than_removing():
    """Randomized response, ε₀ = 3, t = 5, ε = 2: δ is 0.496 for adding and 0.018 for removing."""
    pair, k = PAIRS["two-valued, ε₀ = 3"], Fraction(math.exp(2.0))
    remove, add = (exact(pair, 5, direction, k) for direction in Direction)
    assert float(remove) == pytest.approx(0.0179, abs=5e-5)
    assert float(add) == pytest.approx(0.496, abs=5e-4)
    lower, upper = bounds(pair, 5, Direction.ADD)
    index = int(np.flatnonzero(np.exp(2.0) == RATIOS)[0])
    assert lower[index] <= float(add) <= upper[index]
    # Negative control: the remove direction alone, as the paper states it, says 28 times less.
    assert bounds(pair, 5, Direction.REMOVE)[1][index] < 0.05 * float(add)


@pytest.mark.parametrize("direction", Direction)
def test_delta_with_optional_participation_equals_its_enumeration(direction):
    pair, window, probability = PAIRS["three-valued"], 3, Fraction(1, 4)
    for side in Side:
        base = allocation_curve(pair, window, direction, side, delta_hint=1e-2)
        values = diluted(base, direction, float(probability)).delta(RATIOS)
        for k, value in zip(RATIOS, values, strict=True):
            truth = Fraction(0)
            for outcome in itertools.product(range(3), repeat=window):
                mass = math.prod((pair.masses[i] for i in outcome), start=Fraction(1))
                average = sum((pair.values[i] for i in outcome), start=Fraction(0)) / window
                ratio = 1 - probability + probability * average
                gain = ratio - k if direction is Direction.REMOVE else 1 - Fraction(k) * ratio
                truth += mass * max(Fraction(gain), Fraction(0))
            assert value >= truth if side is Side.UPPER else value <= truth


@pytest.mark.parametrize("direction", Direction)
def test_bounds_of_two_windows_enclose_the_enumerated_delta(direction):
    """The product of two independent averages, enumerated, against the composed curves."""
    pair, window = PAIRS["two-valued, ε₀ = ln 2"], 2
    averages: dict[Fraction, Fraction] = {}
    for outcome in itertools.product(range(2), repeat=window):
        average = sum((pair.values[i] for i in outcome), start=Fraction(0)) / window
        mass = math.prod((pair.masses[i] for i in outcome), start=Fraction(1))
        averages[average] = averages.get(average, Fraction(0)) + mass
    for side in Side:
        block = AllocationBlock(pair, window)
        law = loss_distribution(block.curves(side, 1e-9, 0), direction, 0.005, 1e-9)
        hints = (1e-6, 1e-2, 0.3)
        curves = [ComposedCurve.of(side, [(law, 2)], hint).delta(RATIOS) for hint in hints]
        values = np.min(curves, axis=0) if side is Side.UPPER else np.max(curves, axis=0)
        for k, value in zip(RATIOS, values, strict=True):
            truth = Fraction(0)
            for (x, p), (y, q) in itertools.product(averages.items(), repeat=2):
                gain = (
                    x * y - Fraction(k)
                    if direction is Direction.REMOVE
                    else 1 - Fraction(k) * x * y
                )
                truth += p * q * max(gain, Fraction(0))
            assert value >= truth if side is Side.UPPER else value <= truth
            assert abs(value - float(truth)) < 5e-3


def test_delta_is_zero_at_the_largest_likelihood_ratio():
    """Tails split an atom at k the same way for any k: X ≤ k and X > k."""
    pair = PAIRS["two-valued, ε₀ = ln 2"]
    for direction in Direction:
        upper, lower = (
            float(PairCurve(pair, direction, side).delta(np.array(2.0)))
            for side in (Side.UPPER, Side.LOWER)
        )
        assert lower <= 0 <= upper < 1e-14
