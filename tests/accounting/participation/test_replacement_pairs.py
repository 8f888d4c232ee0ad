"""Replace-one for Laplace noise, atoms, infinity mass, and pairs between any two worlds."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
from replacement_truths import mean_excess, random_triple

from turnout.accounting.divergence.blocks import PairBlock
from turnout.accounting.divergence.curves import Direction, Side
from turnout.accounting.divergence.pairs import (
    GaussianPair,
    LaplacePair,
    PurePair,
    discrete_gaussian_pair,
    pair_of_table,
)
from turnout.accounting.participation.antithetic import antithetic_upper
from turnout.accounting.participation.check_ins import AllocationBlock
from turnout.accounting.participation.fixed_size import SubstitutedCohortBlock
from turnout.accounting.participation.replace_one import (
    Closeness,
    LocalReplacementBlock,
    ReplacementBlock,
    under_replacement,
)
from turnout.accounting.participation.replace_one_steps import AntitheticStep, AnyTwoStep
from turnout.core.errors import UnsupportedError

HERE = Direction.REMOVE  # replace-one is symmetric


@dataclass(frozen=True)
class AtomPair:
    """Pair with few ratios, given with their masses under Q."""

    values: tuple[float, ...]
    masses: tuple[float, ...]

    @property
    def second_moment(self) -> float:
        return sum(x * x * m for x, m in zip(self.values, self.masses, strict=True))

    def _sum(self, k, above, weighted):
        values, masses = np.array(self.values), np.array(self.masses)
        k = np.asarray(k, dtype=float)[..., None]
        inside = values > k if above else values <= k
        return (inside * masses * (values if weighted else 1.0)).sum(axis=-1)

    def q_below(self, k):
        return self._sum(k, False, False)

    def q_above(self, k):
        return self._sum(k, True, False)

    def p_below(self, k):
        return self._sum(k, False, True)

    def p_above(self, k):
        return self._sum(k, True, True)


def laplace_delta(k, window, reach, shifts=None):
    """δ by the trapezoidal rule over the noise of each step, for the shifts of both records."""
    there, elsewhere = shifts or (reach, -reach)
    z = np.concatenate([np.linspace(-reach, 0.0, 801), np.linspace(0.0, reach, 801)])
    density = np.zeros(z.size)
    for part in (slice(0, 801), slice(801, None)):
        weights = np.full(801, z[1] - z[0])
        weights[[0, -1]] /= 2
        density[part] = 0.5 * np.exp(-np.abs(z[part])) * weights
    tail = 0.5 * math.exp(-reach)
    z, density = np.append(z, [-reach - 9.0, reach + 9.0]), np.append(density, [tail, tail])
    x = np.exp(np.abs(z) - np.abs(z - there)) - k * np.exp(np.abs(z) - np.abs(z - elsewhere))
    values, weights = np.zeros(1), np.ones(1)
    for _ in range(window):
        values = np.add.outer(values, x).ravel()
        weights = np.multiply.outer(weights, density).ravel()
    return float(weights @ np.maximum(values, 0.0)) / window


@pytest.mark.parametrize("reach", [0.4, 1.0, 2.5])
@pytest.mark.parametrize("window", [1, 2])
def test_the_bracket_for_laplace_noise_contains_the_quadrature_value(reach, window):
    block = ReplacementBlock(LaplacePair(1 / reach), window)
    for epsilon in (0.0, 0.3 * reach, 0.9 * reach):
        k = math.exp(epsilon)
        truth = laplace_delta(k, window, reach)
        lower, upper = (block.delta(k, side) for side in (Side.LOWER, Side.UPPER))
        assert lower <= truth * (1 + 1e-5) + 1e-9
        assert truth * (1 - 1e-5) - 1e-9 <= upper
        assert upper - lower <= 2e-3 * truth


def test_laplace_noise_with_other_shifts_stays_below_the_bound():
    reach, k = 1.0, math.exp(0.5)
    generator = np.random.default_rng(5)
    upper = ReplacementBlock(LaplacePair(1 / reach), 2).delta(k, Side.UPPER)
    for _ in range(8):
        shifts = tuple(generator.uniform(-reach, reach, 2))
        assert laplace_delta(k, 2, reach, shifts) <= upper * (1 + 1e-4)


@pytest.mark.parametrize("window", [50, 5000])
def test_the_bracket_for_laplace_noise_in_long_windows_is_narrow(window):
    block = ReplacementBlock(LaplacePair(1.25), window)
    k = math.exp(3.5 * 0.8 * 1.3 / math.sqrt(window))
    lower, upper = (block.delta(k, side, 1) for side in (Side.LOWER, Side.UPPER))
    assert 0 < lower <= upper <= 1.01 * lower


RESPONSE = AtomPair((2.0, 0.5), (1 / 3, 2 / 3))
THREE = AtomPair((3.0, 1.0, 0.25), (1 / 11, 2 / 3, 8 / 33))
INFINITE = AtomPair((0.0, 2 / 0.95, 0.5 / 0.95), (0.05, 0.95 / 3, 0.95 * 2 / 3))  # δ₀ = 0.05
CASES = [(RESPONSE, 0.0), (THREE, 0.0), (INFINITE, 0.05), (PurePair(math.log(2), 0.05), 0.05)]


def antithetic_atoms(pair):
    """Masses and values of X and X' in opposite order, by cutting [0, 1] at the masses of both."""
    falling = sorted(zip(pair.values, pair.masses, strict=True), reverse=True)
    rising = sorted(zip(pair.values, pair.masses, strict=True))
    cuts = sorted(
        {
            0.0,
            *itertools.accumulate(m for _, m in falling),
            *itertools.accumulate(m for _, m in rising),
        }
    )

    def at(steps, place):
        for value, mass in steps:
            place -= mass
            if place <= 0:
                return value
        return steps[-1][0]

    pieces = [(b - a, 0.5 * (a + b)) for a, b in itertools.pairwise(cuts)]
    return [(mass, at(falling, place), at(rising, place)) for mass, place in pieces]


@pytest.mark.parametrize(
    ("pair", "infinity_mass"), CASES, ids=["response", "three", "with_infinity_mass", "pure"]
)
@pytest.mark.parametrize(("window", "probability"), [(1, 1.0), (1, 0.6), (2, 0.6), (4, 1.0)])
def test_the_bracket_for_discrete_ratios_contains_the_enumerated_delta(
    pair, infinity_mass, window, probability
):
    outcomes = antithetic_atoms(INFINITE if isinstance(pair, PurePair) else pair)
    block = ReplacementBlock(pair, window, probability, infinity_mass=infinity_mass)
    for k in (1.0, 1.5):
        truth = probability * infinity_mass
        for outcome in itertools.product(outcomes, repeat=window):
            gain = sum(x - k * other for _, x, other in outcome) / window
            gain = probability * (1 - infinity_mass) * gain - (1 - probability) * (k - 1)
            truth += math.prod(mass for mass, _, _ in outcome) * max(gain, 0.0)
        lower, upper = (block.delta(k, side) for side in (Side.LOWER, Side.UPPER))
        assert lower <= truth + 1e-12
        assert truth - 1e-12 <= upper <= truth * (1 + 2e-3) + 1e-9
        assert lower >= 0.9 * truth - 1e-9


@pytest.mark.parametrize(
    "pair",
    [
        pair_of_table([0.6, 0.3, 0.1], [0.1, 0.5, 0.4])[0],
        pair_of_table([0.0, 0.5, 0.3, 0.2], [0.05, 0.15, 0.2, 0.6])[0],
        pair_of_table([0.3, 0.7], [0.3, 0.7])[0],
        discrete_gaussian_pair(0.8, 1),
    ],
    ids=["three", "with_zero", "one", "discrete_gaussian"],
)
@pytest.mark.parametrize("k", [1.0, 3.0, 40.0])
def test_the_hockey_stick_of_a_discrete_pair_is_that_of_its_coupled_ratios(pair, k):
    outcomes = antithetic_atoms(AtomPair(*map(tuple, pair.atoms)))
    masses, x, other = map(np.array, zip(*outcomes, strict=True))
    y = x - k * other
    c = np.concatenate([y, y + 0.1, [y.max() + 50.0]])
    truth = np.maximum(np.subtract.outer(y, c), 0.0).T @ masses
    step, scale = AntitheticStep(pair, k), 1.0 + np.abs(c) + k
    values, slopes = step.tangent(c)
    assert (np.abs(step.upper(c) - truth) <= 1e-10 * scale).all()
    assert (values <= truth + 1e-12 * scale).all()
    assert (values >= truth - 1e-6 * scale).all()
    assert (np.abs(slopes) <= 1.0).all()
    # Thresholds that hold the wrong ratio are valid, but not best.
    threshold, rival = np.maximum(c, 0.0) + 0.3, (np.maximum(-c, 0.0) + 0.3) / k
    worse = antithetic_upper(pair, k, threshold, rival)
    assert (worse >= truth - 1e-12 * scale).all()
    assert x.size == 1 or (worse > truth + 1e-6 * scale).any()


def test_delta_at_large_epsilon_equals_the_infinity_mass():
    """The infinity mass is δ at ε = ∞ if no other output excludes a record."""
    pair = PurePair(math.log(2), 0.05)
    for window, probability in ((1, 1.0), (2, 0.5)):
        block = ReplacementBlock(pair, window, probability, infinity_mass=0.05)
        pair_of_curves = block.curves(Side.UPPER, 1e-2, 0)
        floor = pair_of_curves.floor(HERE)
        last = float(pair_of_curves.remove[0].delta(np.array([1e6]))[0])
        assert floor <= last <= floor + 1e-2
        assert floor >= probability * 0.05 * (1 - 1e-9)


def test_tangents_to_the_curve_of_a_discrete_pair_lie_below_the_curve():
    """The tangent at one K lies below the curve at every K."""
    for pair in (RESPONSE, THREE, LaplacePair(1.0)):
        for probability in (1.0, 0.3):
            block = ReplacementBlock(pair, 1, probability)
            lower, upper = (block.curve(HERE, side, 1e-3, 0) for side in (Side.LOWER, Side.UPPER))
            k = np.linspace(1.0, 3.0, 41)
            lines = lower.delta(k)[:, None] + lower.slope(k)[:, None] * (k[None, :] - k[:, None])
            assert (lines <= upper.delta(k)[None, :] + 1e-12).all()


@pytest.mark.parametrize("ratio", [Fraction(3, 2), Fraction(4)])
def test_the_bound_between_any_two_records_holds_for_random_triples_of_distributions(ratio):
    a = float(ratio)
    pair = AtomPair((a, 1 / a), (1 / (a + 1), a / (a + 1)))
    generator = np.random.default_rng(6)
    for window in (1, 2, 3):
        block = ReplacementBlock(pair, window, 1.0, Closeness.ANY_TWO)
        for k in (Fraction(1), 1 + (ratio - 1) / 4):
            upper = block.delta(float(k), Side.UPPER)
            triples = [random_triple(ratio, generator) for _ in range(window)]
            assert mean_excess(triples, k) <= upper * (1 + 1e-12)


def test_the_bound_between_any_two_records_is_at_most_that_of_coupled_ratios():
    """`ANY_TWO` also assumes that the two records are close to each other."""
    c = np.concatenate([-np.geomspace(1e-3, 50, 40), [0.0], np.geomspace(1e-3, 50, 40)])
    for pair in (GaussianPair(1.0), LaplacePair(0.7), THREE):
        for k in (1.0, 1.7, 6.0):
            closer, coupled = (kind(pair, k).upper(c) for kind in (AnyTwoStep, AntitheticStep))
            if pair is not THREE:
                assert (closer <= coupled * (1 + 1e-9) + 1e-12).all()
            assert (closer >= np.maximum(1 - k - c, 0.0) - 1e-12).all()


def test_the_hockey_stick_between_any_two_records_is_convex_with_mean_one_minus_k():
    c = np.linspace(-60.0, 60.0, 24_001)
    hockey_stick = AnyTwoStep(GaussianPair(1.2), 1.4).upper(c)
    assert np.diff(hockey_stick, 2).min() > -1e-11
    assert hockey_stick[0] - (-c[0]) == pytest.approx(1 - 1.4, abs=1e-4)


def test_the_function_under_replacement_returns_replacement_blocks():
    pair = GaussianPair(1.0)
    run = [(AllocationBlock(pair, 30, 0.5, 0.01), 3), (PairBlock(pair, 0.1), 20)]
    assert under_replacement(run) == [
        (ReplacementBlock(pair, 30, 0.5, infinity_mass=0.01), 3),
        (ReplacementBlock(pair, 1, 0.1), 20),
    ]
    assert under_replacement(run, Closeness.ANY_TWO)[0][0].closeness is Closeness.ANY_TWO
    local = under_replacement([(AllocationBlock(PurePair(1.0), 30, 0.5), 3)], Closeness.ANY_TWO)
    assert local == [(LocalReplacementBlock(1.0, 30, 0.5), 3)]
    with pytest.raises(UnsupportedError, match="SubstitutedCohortBlock"):
        under_replacement([(SubstitutedCohortBlock(pair, 0.1), 1)])
