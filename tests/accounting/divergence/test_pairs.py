"""Tail functions of every dominating pair, against enumeration and quadrature to forty digits."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath as mp
import numpy as np
import pair_truths as truths
import pytest
from scipy import stats

from turnout.accounting.divergence.curves import Direction, PairCurve, Side
from turnout.accounting.divergence.pairs import (
    DiscretePair,
    GaussianPair,
    LaplacePair,
    MonotonePair,
    PurePair,
    discrete_gaussian_pair,
    hockey_stick,
    hockey_stick_rounding,
    pair_of_table,
    reverse_hockey_stick,
    reverse_hockey_stick_rounding,
    rounded_gaussian_pair,
)
from turnout.core.errors import NumericalError, ParameterError

DIGITS = mp.mpf(10) ** -36  # to which the truths are known
EIGHTHS = [Fraction(n, 8) for n in (4, 2, 1, 1, 0)]  # with her: nothing on the last
OTHERS = [Fraction(n, 8) for n in (1, 2, 3, 0, 2)]  # without her: nothing on the fourth
KOV = truths.four_outcomes(2, Fraction(1, 64))


def table(present, absent):
    return pair_of_table([float(p) for p in present], [float(q) for q in absent])[0]


def lattice(mass, sensitivity, reach):
    return truths.lattice_hockey_stick(mass, sensitivity, reach)


with mp.workdps(40):
    PAIRS = {
        "Gaussian, 0.7": (GaussianPair(0.7), truths.gaussian_hockey_stick(0.7)),
        "Gaussian, 30": (GaussianPair(30.0), truths.gaussian_hockey_stick(30.0)),
        "Laplace, 1": (LaplacePair(1.0), truths.laplace_hockey_stick(1.0)),
        "Laplace, 0.05": (LaplacePair(0.05), truths.laplace_hockey_stick(0.05)),
        "pure": (
            PurePair(math.log(2)),
            truths.table_hockey_stick(*truths.four_outcomes(2, Fraction(0))),
        ),
        "approximate": (PurePair(math.log(2), 1 / 64), truths.table_hockey_stick(*KOV)),
        "table": (table(EIGHTHS, OTHERS), truths.table_hockey_stick(EIGHTHS, OTHERS)),
        "discrete Gaussian": (
            discrete_gaussian_pair(1.3, 2),
            lattice(truths.discrete_gaussian_mass(1.3), 2, 60),
        ),
        "rounded Gaussian": (
            rounded_gaussian_pair(0.9, 1),
            lattice(truths.rounded_gaussian_mass(0.9), 1, 40),
        ),
        "rounded Gaussian, little noise": (
            rounded_gaussian_pair(0.2, 1),
            lattice(truths.rounded_gaussian_mass(0.2), 1, 10),
        ),
        "rounded Gaussian, fine lattice": (
            rounded_gaussian_pair(40.0, 7),
            lattice(truths.rounded_gaussian_mass(40.0), 7, 600),
        ),
    }


@pytest.fixture(autouse=True)
def forty_digits():
    with mp.workdps(40):
        yield


THRESHOLDS = np.array([0.01, 0.3, 0.8, 0.99, 1.0, 1.003, 1.3, 2.5, 9.0])


@pytest.mark.parametrize("name", PAIRS)
def test_hockey_sticks_equal_their_definition_within_rounding(name):
    pair, truth = PAIRS[name]
    hockey_sticks, reverse_hockey_sticks = (
        hockey_stick(pair, THRESHOLDS),
        reverse_hockey_stick(pair, THRESHOLDS),
    )
    slack, reverse_slack = (
        hockey_stick_rounding(pair, THRESHOLDS),
        reverse_hockey_stick_rounding(pair, THRESHOLDS),
    )
    for i, k in enumerate(THRESHOLDS.tolist()):
        exact = truth(mp.mpf(k))
        assert abs(hockey_sticks[i] - exact) <= slack[i] + DIGITS
        assert abs(reverse_hockey_sticks[i] - (exact + k - 1)) <= reverse_slack[i] + DIGITS
    assert slack.max() < 1e-14


@pytest.mark.parametrize("side", Side)
@pytest.mark.parametrize("name", PAIRS)
def test_upper_and_lower_curves_of_a_pair_enclose_the_exact_curve(name, side):
    pair, truth = PAIRS[name]
    k = np.exp([0.0, 1e-4, 0.02, 0.3, 0.69, 1.0, 2.0])
    for direction in Direction:
        values = PairCurve(pair, direction, side).delta(k)
        for value, ratio in zip(values.tolist(), k.tolist(), strict=True):
            threshold = mp.mpf(ratio)
            exact = truth(threshold)
            if direction is Direction.ADD:
                exact = 1 - threshold + threshold * truth(1 / threshold)
            if side is Side.UPPER:
                assert value >= exact - DIGITS
            else:
                assert value <= exact + DIGITS
            assert value == pytest.approx(float(exact), abs=1e-13)


@pytest.mark.parametrize("name", PAIRS)
def test_tail_functions_of_each_pair_belong_to_two_probability_distributions(name):
    pair, _ = PAIRS[name]
    k = np.append(0.0, np.geomspace(1e-9, 1e9, 400))
    for below, above in (("q_below", "q_above"), ("p_below", "p_above")):
        low, high = getattr(pair, below)(k), getattr(pair, above)(k)
        assert np.all(np.diff(low) >= 0)
        assert np.all(np.diff(high) <= 0)
        np.testing.assert_allclose(low + high, 1.0, rtol=4e-16 * 64)
    assert pair.p_below(np.zeros(1)) == 0


@pytest.mark.parametrize("name", PAIRS)
def test_hockey_sticks_of_each_pair_belong_to_a_ratio_with_mean_one(name):
    pair, _ = PAIRS[name]
    k = np.append(0.0, np.geomspace(1e-6, 50.0, 300))
    hockey_sticks, reverse_hockey_sticks = hockey_stick(pair, k), reverse_hockey_stick(pair, k)
    assert hockey_sticks[0] == pytest.approx(1.0, abs=1e-14)
    assert reverse_hockey_sticks[0] == 0
    np.testing.assert_allclose(reverse_hockey_sticks - hockey_sticks, k - 1.0, atol=1e-13)
    slopes = np.diff(hockey_sticks) / np.diff(k)
    assert np.all(np.diff(hockey_sticks) <= 1e-15)
    assert np.all(np.diff(slopes) >= -1e-8)


@pytest.mark.parametrize("name", PAIRS)
def test_second_moment_agrees_with_quadrature(name):
    """E X² = 2∫ E(X − k)₊ dk."""
    pair, _ = PAIRS[name]
    k = np.append(0.0, np.geomspace(1e-5, 1e150, 400_000))
    hockey_sticks = hockey_stick(pair, k)
    integral = float(np.sum(0.5 * (hockey_sticks[1:] + hockey_sticks[:-1]) * np.diff(k)))
    assert pair.second_moment == pytest.approx(2 * integral, rel=1e-4)


def test_the_pair_of_a_table_has_infinity_mass_in_both_directions():
    pair, infinity_mass = pair_of_table([float(p) for p in EIGHTHS], [float(q) for q in OTHERS])
    assert infinity_mass == 1 / 8
    assert pair.zero == 1 / 4
    np.testing.assert_allclose(pair.values, np.array([1 / 3, 1.0, 4.0]) * 8 / 7)
    np.testing.assert_allclose(pair.masses, [3 / 8, 2 / 8, 1 / 8])
    atoms, masses = pair.atoms
    assert masses.sum() == pytest.approx(1.0, abs=1e-15)
    assert masses @ atoms == pytest.approx(1.0, abs=1e-15)


def test_a_tiny_infinity_mass_is_not_lost_to_rounding():
    pair, infinity_mass = pair_of_table([1.0, 0.0], [1.0 - 1e-17, 1e-17])
    assert (pair.zero, infinity_mass) == (1e-17, 0.0)
    pair, infinity_mass = pair_of_table([1.0, 1e-17], [1.0, 0.0])
    assert (pair.zero, infinity_mass) == (0.0, 1e-17)


def test_outcomes_with_equal_ratios_are_merged():
    pair, _ = pair_of_table([0.25, 0.25, 0.5], [0.125, 0.125, 0.75])
    assert pair.values.size == 2


@pytest.mark.parametrize(
    ("present", "absent", "name"),
    [
        ([0.5, 0.4], [0.5, 0.5], "present"),
        ([0.5, 0.5], [0.5, 0.6], "absent"),
        ([0.5, 0.5], [1.5, -0.5], "absent"),
        ([0.5, 0.5], [0.5, float("nan")], "absent"),
        ([0.5, 0.5], [0.5, 0.25, 0.25], "present"),
        ([1.0, 0.0], [0.0, 1.0], "present"),
        ([], [], "present"),
        ([[0.5, 0.5]], [0.5, 0.5], "present"),
    ],
)
def test_invalid_pairs_of_distributions_are_refused(present, absent, name):
    with pytest.raises(ParameterError) as error:
        pair_of_table(present, absent)
    assert error.value.name == name


def test_lattices_too_fine_or_too_coarse_are_refused():
    for pair in (discrete_gaussian_pair, rounded_gaussian_pair):
        with pytest.raises(ParameterError, match="at most 1680"):
            pair(1e4, 1)
        with pytest.raises(ParameterError):
            pair(1.0, 0)
        with pytest.raises(NumericalError, match="too small"):
            pair(0.02, 1)


@pytest.mark.parametrize("epsilon0", [0.0, -1.0, math.inf, math.nan, 1e3])
def test_invalid_pure_randomizers_are_refused(epsilon0):
    with pytest.raises(ParameterError):
        PurePair(epsilon0)


def test_rounded_gaussian_noise_has_less_epsilon_than_gaussian_noise():
    k = np.exp(np.linspace(0.0, 4.0, 50))
    for deviation, sensitivity in ((0.6, 1), (3.0, 2), (40.0, 40)):
        rounded = rounded_gaussian_pair(deviation, sensitivity)
        whole = GaussianPair(deviation / sensitivity)
        for direction in Direction:
            less = PairCurve(rounded, direction, Side.UPPER).delta(k)
            more = PairCurve(whole, direction, Side.LOWER).delta(k)
            assert np.all(less <= more * (1 + 1e-12) + 1e-15)


def test_discrete_and_rounded_gaussian_noise_agree_on_a_fine_lattice():
    k = np.exp(np.linspace(0.0, 2.0, 20))
    whole = PairCurve(GaussianPair(1.0), Direction.REMOVE, Side.UPPER).delta(k)
    distances = []
    for points in (4, 16, 64):
        rounded, discrete = (
            PairCurve(distribution(points, points), Direction.REMOVE, Side.UPPER).delta(k)
            for distribution in (rounded_gaussian_pair, discrete_gaussian_pair)
        )
        distances.append([np.abs(rounded - whole).max(), np.abs(discrete - whole).max()])
    first, second, third = np.array(distances)
    assert np.all(second < first / 10)  # both fall as the square of the lattice's step
    assert np.all(third < second / 10)


NORMALS = MonotonePair(stats.norm(1.0, 2.0), stats.norm(0.0, 2.0), -60.0, 60.0)


def test_a_monotone_pair_of_two_normals_equals_the_gaussian_pair():
    exact = GaussianPair(2.0)
    k = np.append(0.0, np.exp(np.linspace(-3.0, 3.0, 41)))
    for name in ("q_below", "q_above", "p_below", "p_above"):
        np.testing.assert_allclose(getattr(NORMALS, name)(k), getattr(exact, name)(k), rtol=1e-11)
    assert NORMALS.second_moment == pytest.approx(exact.second_moment, rel=1e-4)


def test_a_monotone_pair_of_two_laplace_distributions_has_atoms_at_both_ends():
    """The ratio is flat outside [0, 1]: its largest and smallest values have mass."""
    pair = MonotonePair(stats.laplace(1.0, 2.0), stats.laplace(0.0, 2.0), -200.0, 200.0)
    exact, k = LaplacePair(2.0), np.exp(np.linspace(-0.7, 0.7, 29))
    np.testing.assert_allclose(hockey_stick(pair, k), hockey_stick(exact, k), atol=1e-14)
    np.testing.assert_allclose(
        reverse_hockey_stick(pair, k), reverse_hockey_stick(exact, k), atol=1e-14
    )


def test_a_monotone_pair_of_two_exponentials_agrees_with_its_closed_form():
    """Exponentials: X = λe^{(1−λ)z} at rates λ and 1, H_K(P‖Q) in closed form."""
    rate = 0.8
    pair = MonotonePair(stats.expon(scale=1 / rate), stats.expon(), 0.0, 60.0)
    for k in (0.85, 1.0, 1.5, 3.0):
        z = math.log(k / rate) / (1 - rate)
        exact = math.exp(-rate * z) - k * math.exp(-z)
        assert hockey_stick(pair, np.array(k)) == pytest.approx(exact, rel=1e-12)


def test_a_monotone_pair_whose_likelihood_ratio_falls_is_refused():
    for present, absent in (
        (stats.norm(0.0), stats.norm(1.0)),
        (stats.norm(0.0, 2.0), stats.norm(0.0, 1.0)),  # falls, then rises
        (stats.t(3, loc=1.0), stats.t(3)),  # rises, then falls
    ):
        with pytest.raises(ParameterError, match="never falls"):
            MonotonePair(present, absent, -8.0, 8.0)


def test_pairs_that_hold_arrays_are_compared_by_identity():
    one, other = (table(EIGHTHS, OTHERS) for _ in range(2))
    assert one == one
    assert one != other
    assert isinstance(hash(one), int)
    assert isinstance(one, DiscretePair)
