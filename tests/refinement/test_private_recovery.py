"""Private recoverability: least key entropy, and necessary and sufficient conditions."""

import itertools
import math
from collections import defaultdict
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from turnout.core.errors import ParameterError
from turnout.randomizers import SubsetSelection
from turnout.randomness import SimulationStreams
from turnout.refinement import heavy_count, key_entropy, least_key_bits, multi_level
from turnout.refinement.cascade import heavy_optimum
from turnout.refinement.hadamard import AbelianGroup, bent_set, points, singer_set


def recoverable(size, epsilon, family="minimal"):
    return multi_level(size, (math.inf, epsilon), family)


@pytest.mark.parametrize("size", [2, 3, 4, 10, 57])
@pytest.mark.parametrize("epsilon", [1e-6, 0.1, 0.5, 1, 2, 5, 20])
def test_the_number_of_heavy_values_minimizes_the_key_entropy(size, epsilon):
    best = heavy_count(size, epsilon)
    entropies = [key_entropy(size, epsilon, heavy) for heavy in range(1, size)]
    assert key_entropy(size, epsilon, best) == pytest.approx(min(entropies), rel=1e-12)
    with mpmath.workdps(40):
        e = mpmath.exp(mpmath.mpf(epsilon))
        t = best * e + size - best
        exact = mpmath.log(t, 2) - best * mpmath.mpf(epsilon) * e / (t * mpmath.log(2))
    assert least_key_bits(size, epsilon) == pytest.approx(float(exact), rel=1e-12)


def test_no_other_recoverable_key_distribution_has_less_entropy():
    # The theorem considers the vertices of a polytope of distributions; test inner points as well.
    generator = np.random.default_rng(4)
    for size, epsilon in ((3, 1.0), (6, 0.7), (6, 2.5)):
        for _ in range(300):
            weights = np.exp(epsilon * generator.random(size))
            distribution = weights / weights.sum()
            assert (
                -(distribution * np.log2(distribution)).sum()
                >= least_key_bits(size, epsilon) - 1e-12
            )


@pytest.mark.parametrize("epsilon", [0, 1e-12, 1e-8, 1e-4, 0.1, 0.4999, 0.5, 1, 10, 300])
def test_the_optimal_number_of_heavy_values_is_accurate_for_small_epsilon(epsilon):
    with mpmath.workdps(60):
        x = mpmath.mpf(epsilon)
        half = mpmath.mpf(1) / 2
        exact = (mpmath.exp(x) * (x - 1) + 1) / mpmath.expm1(x) ** 2 if epsilon else half
    assert heavy_optimum(1000, epsilon) == pytest.approx(float(1000 * exact), rel=1e-13)


def test_the_key_savings_equal_the_published_percentages():
    savings = [1 - least_key_bits(size, 5) / math.log2(size) for size in (2, 4, 10)]
    assert [round(100 * saving, 1) for saving in savings] == [94.2, 91.4, 85.0]


def test_the_least_key_of_a_sequence_is_proportional_to_its_length():
    assert least_key_bits(10, 1, samples=7) == pytest.approx(7 * least_key_bits(10, 1))


def test_the_minimal_mechanism_attains_the_least_key_entropy():
    for size, epsilon in ((10, 1.0), (100, 3.0), (1000, 0.5), (1000, 8.0)):
        cascade = recoverable(size, epsilon).cascade
        assert cascade.key_bits(0) == pytest.approx(least_key_bits(size, epsilon), rel=1e-12)
        assert cascade.randomness_bits == cascade.key_bits(0)
        for family in ("hadamard", "projective", "k-ary"):
            assert recoverable(size, epsilon, family).cascade.key_bits(0) >= cascade.key_bits(0)


@pytest.mark.parametrize("family", ["minimal", "hadamard", "projective", "k-ary"])
def test_recoverable_mechanisms_recover_every_value_with_its_key(family):
    source = SimulationStreams(2).source(family)
    levels = recoverable(37, 1.0, family)
    values = np.arange(5000) % 37
    messages, keys = levels.encode(values, source)
    assert np.array_equal(levels.at_level(messages, keys[0]), values)
    # The key of another encoding recovers other values.
    _, others = levels.encode(values, source)
    assert np.mean(levels.at_level(messages, others[0]) == values) < 0.2


def test_reusing_a_key_for_two_values_reveals_their_difference():
    # Compute the exact joint distribution of two messages of Lemma 7.5.1, with one key or two.
    level = recoverable(3, 1.0, "k-ary").levels[1]
    noise = [level.heavy, level.light, level.light]

    def distribution(values, reuse):
        found = defaultdict(Fraction)
        for u, v in itertools.product(range(3), repeat=2):
            if reuse and u != v:
                continue
            p = noise[u] if reuse else noise[u] * noise[v]
            found[(values[0] + u) % 3, (values[1] + v) % 3] += p
        return found

    fresh, other = distribution((0, 0), reuse=False), distribution((0, 1), reuse=False)
    assert max(fresh[y] / other[y] for y in fresh) == level.ratio
    reused, other = distribution((0, 0), reuse=True), distribution((0, 1), reuse=True)
    assert not set(reused) & set(other)


def test_the_two_conditions_of_theorem_7_5_1_are_not_sufficient():
    # At k = 2 and ε = 0 these keys satisfy both conditions, but no mechanism with them is private.
    distribution = (Fraction(6, 10), Fraction(2, 10), Fraction(2, 10))
    entropy = -sum(float(p) * math.log2(p) for p in distribution)
    assert entropy >= least_key_bits(2, 0)
    private = 0
    for outputs in (2, 3):
        for table in itertools.product(
            itertools.product(range(outputs), repeat=3), repeat=2
        ):  # table[x][u] = y
            if any(table[0][u] == table[1][u] for u in range(3)):
                continue  # not recoverable
            distributions = [
                [
                    sum(p for p, y in zip(distribution, row, strict=True) if y == o)
                    for o in range(outputs)
                ]
                for row in table
            ]
            private += distributions[0] == distributions[1]
    assert private == 0
    # With two uniform keys a private mechanism exists.
    assert recoverable(2, 1e-6, "k-ary").levels[1].ratio > 1


def sylvester_masses(size, epsilon):
    """Σ_x Q(y|x) of Hadamard response in its high-privacy form, rows 1 … size, for every y."""
    order = 1 << size.bit_length()
    signs = 1 - 2 * (np.bitwise_count(np.arange(order)[:, None] & np.arange(order)) % 2)
    heavy = signs[1 : size + 1] == 1
    weights = np.where(heavy, math.exp(epsilon), 1.0)
    return (weights / weights.sum(axis=1, keepdims=True)).sum(axis=0)


@pytest.mark.parametrize(("size", "epsilon"), [(3, 0.8), (7, 0.5), (255, 0.1), (1000, 1.0)])
def test_the_published_hadamard_response_is_not_recoverable(size, epsilon):
    # Keys that lead to one message from different values must be disjoint, so their masses add
    # up to at most 1. Sylvester's constant column is probable for every value.
    assert sylvester_masses(size, epsilon).max() > 1 + 1e-9


@pytest.mark.parametrize(("size", "epsilon"), [(3, 0.8), (7, 0.5), (255, 0.1), (1000, 1.0)])
def test_hadamard_response_on_bent_sets_is_recoverable(size, epsilon):
    levels = recoverable(size, epsilon, "hadamard")
    distribution = levels.design.law(levels.levels[1])
    group = levels.design.group
    masses = np.zeros(group.order)
    for value in range(size):
        masses[group.add(np.full(group.order, value), np.arange(group.order))] += distribution
    assert masses.max() <= 1 + 1e-12
    assert levels.levels[1].epsilon == pytest.approx(epsilon, abs=1e-12)


@pytest.mark.parametrize("place_bits", [2, 4, 6, 8])
def test_all_shifts_of_a_bent_set_have_equal_overlaps(place_bits):
    group, heavy = AbelianGroup(1, place_bits), bent_set(place_bits)
    t = place_bits // 2
    assert heavy.size == 2 ** (2 * t - 1) - 2 ** (t - 1)
    indicator = np.zeros(group.order)
    indicator[heavy] = 1
    power = np.abs(group.spectrum(indicator)) ** 2
    assert power[1:] == pytest.approx(np.full(group.order - 1, 4.0 ** (t - 1)))
    # Therefore any two shifts have equally many common elements.
    overlaps = group.from_spectrum(power + 0j)
    assert np.ptp(overlaps[1:]) < 1e-9


@pytest.mark.parametrize(
    ("prime", "dimension"), [(2, 2), (2, 5), (3, 2), (3, 6), (7, 4), (19, 2), (53, 2)]
)
def test_all_shifts_of_a_singer_difference_set_have_equal_overlaps(prime, dimension):
    heavy, order = singer_set(prime, dimension), points(prime, dimension)
    assert heavy.size == points(prime, dimension - 1)
    differences = (heavy[:, None] - heavy) % order
    counts = np.bincount(differences.ravel(), minlength=order)
    assert counts[0] == heavy.size
    # In a perfect difference set, any two shifts (hyperplanes) share a space of one dimension less.
    assert set(counts[1:]) == {1 if dimension == 2 else points(prime, dimension - 2)}


def test_projective_response_is_close_to_subset_selection():
    # Subset selection has the least error known; its message is a subset, not a number.
    for size, epsilon, factor in ((1000, 1.0, 1.03), (1000, 4.0, 1.03), (300, 3.0, 1.03)):
        levels = recoverable(size, epsilon, "projective")
        uniform = np.full(size, 1 / size)
        found = levels.design.variance(uniform, 1, levels.levels[1]).sum() - (1 - 1 / size)
        assert found <= factor * SubsetSelection(epsilon, size).mse_bound(1)
        other = recoverable(size, epsilon, "hadamard")
        assert found < 0.9 * other.design.variance(uniform, 1, other.levels[1]).sum()


def test_addition_and_subtraction_of_an_abelian_group_are_inverse():
    group = AbelianGroup(3, 2)
    everything = np.arange(group.order)
    for shift in everything:
        moved = group.add(everything, np.full(group.order, shift))
        assert sorted(moved) == list(everything)
        assert np.array_equal(group.subtract(moved, np.full(group.order, shift)), everything)
    assert np.array_equal(group.add(everything, np.zeros_like(everything)), everything)


def test_sets_of_heavy_values_are_rebuilt_from_their_stored_number():
    # Stored releases contain only the number of a set, so each number must keep its set.
    design = recoverable(10, 1.0).design
    assert (design.family, design.heavy_count) == ("spread", 3)
    again = type(design)(10, "spread", heavy_count=3, draw=2)
    assert again.heavy.tolist() == [1, 4, 6]


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: recoverable(10, 0.0), "above 0"),
        (lambda: recoverable(10, 1.0, "sylvester"), "mechanism"),
        (lambda: heavy_optimum(1, 1.0), "size"),
        (lambda: heavy_optimum(2, -1.0), "at least 0"),
        (lambda: key_entropy(2, 1.0, 3), "at most size"),
        (lambda: least_key_bits(2, 1.0, 0), "samples"),
        (lambda: bent_set(3), "even"),
        (lambda: AbelianGroup(2**25), "2\\*\\*24"),
    ],
)
def test_invalid_arguments_of_recoverable_mechanisms_are_refused(make, match):
    with pytest.raises(ParameterError, match=match):
        make()
