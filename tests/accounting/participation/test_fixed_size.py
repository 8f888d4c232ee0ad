"""Cohorts of fixed size: bounds against enumeration, quadrature and adaptive attacks."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import turnout as tn
from turnout.accounting.divergence.curves import Direction, Side
from turnout.accounting.divergence.dominating_pairs import DominatingPair
from turnout.accounting.divergence.pairs import GaussianPair, PurePair, pair_of_table
from turnout.accounting.participation import fixed_size
from turnout.accounting.participation.fixed_size import (
    OpposedCohortBlock,
    SubstitutedCohortBlock,
    ZeroOutCohortBlock,
)
from turnout.schemes import PairRandomizer

RATIOS = np.array([1.0, 1.001, 1.1, 1.5, 2.0, 4.0, 20.0])
CELLS = [(0.5, 0.1), (0.5, 0.9), (1.0, 0.02), (1.0, 0.5), (2.0, 0.3)]


def hockey_stick(p, q, k: float) -> float:
    """H_k(p‖q) of two finite distributions."""
    return float(np.maximum(np.asarray(p) - k * np.asarray(q), 0.0).sum())


def cohort_outputs(messages, size: int):
    """Distribution of the sum of the messages of a uniform cohort of clients."""
    clients = range(len(messages))
    total: dict[int, float] = {}
    subsets = list(itertools.combinations(clients, size))
    for subset in subsets:
        for picked in itertools.product(*(range(len(messages[c])) for c in subset)):
            chance = math.prod(messages[c][x] for c, x in zip(subset, picked, strict=True))
            total[sum(picked)] = total.get(sum(picked), 0.0) + chance / len(subsets)
    return total


@pytest.mark.parametrize("size", [1, 2, 3])
def test_no_cohort_of_four_clients_exceeds_the_upper_bound_on_delta(size):
    """Sums of binary messages of all cohorts; the step's noise is that of each message."""
    rng = np.random.default_rng(5)
    epsilon0 = 1.2
    high = 1.0 / (1.0 + math.exp(-epsilon0))
    null = [0.5, 0.5]
    present = [1 - high, high]
    table, lost = pair_of_table(present, null)
    block = ZeroOutCohortBlock(table, size / 4, lost, DominatingPair(PurePair(epsilon0)))
    uppers = {d: block.curve(d, Side.UPPER, 1e-6, 0).delta(RATIOS) for d in Direction}
    for _ in range(60):
        others = [
            [1 - x, x] for x in rng.choice([high, 1 - high, 0.5, rng.uniform(1 - high, high)], 3)
        ]
        with_client = cohort_outputs([present, *others], size)
        without = cohort_outputs([null, *others], size)
        keys = sorted(with_client | without)
        p, q = ([one.get(key, 0.0) for key in keys] for one in (with_client, without))
        for i, k in enumerate(RATIOS):
            assert hockey_stick(p, q, k) <= uppers[Direction.REMOVE][i] + 1e-14
            assert hockey_stick(q, p, k) <= uppers[Direction.ADD][i] + 1e-14


def test_the_bound_is_attained_for_an_output_that_only_the_client_can_send():
    """The mass of outputs that only the client can send counts in addition to the scaled pair."""
    epsilon0, lost, rate, k = 1.0, 0.05, 0.3, 1.5
    high = math.exp(epsilon0) / (1.0 + math.exp(epsilon0))
    null = np.array([1 - high, high, 0.0])
    drawn = np.array([(1 - lost) * high, (1 - lost) * (1 - high), lost])
    substitute = np.array([(1 - lost) * (1 - high), (1 - lost) * high, lost])
    pair, infinity_mass = pair_of_table(drawn.tolist(), null.tolist())
    assert infinity_mass == pytest.approx(lost, abs=1e-15)
    upper = ZeroOutCohortBlock(pair, rate, infinity_mass).curve(
        Direction.REMOVE, Side.UPPER, 1e-6, 0
    )
    p = (1 - rate) * substitute + rate * drawn
    q = (1 - rate) * substitute + rate * null
    assert hockey_stick(p, q, k) <= float(upper.delta(np.array([k]))[0]) + 1e-12
    assert float(upper.delta(np.array([k]))[0]) == pytest.approx(0.069431, abs=5e-7)


def test_the_infinity_mass_between_two_updates_counts_in_the_substitution_bound():
    """Theorem 11 uses the pair of two updates with the mass of that pair."""
    rate, lost = 0.3, 0.05
    apart = DominatingPair(PurePair(0.5), lost)
    block = ZeroOutCohortBlock(PurePair(3.0), rate, 0.0, apart)
    for direction in Direction:
        delta = block.curve(direction, Side.UPPER, 1e-6, 0).delta(np.array([1.6]))
        assert delta[0] >= rate * lost * (1 - 1e-12)


def exact_step(sigma: float, rate: float, k: float, direction: Direction, b: float) -> float:
    """δ of one step by quadrature, for a substitute that moves the sum by b; errs by about 1e-9."""
    x, width = np.linspace(-12.0, 12.0, 240_001, retstep=True)

    def mixed(shift):
        rest, drawn = (np.exp(-0.5 * ((x - v) / sigma) ** 2) for v in (b, shift))
        return ((1 - rate) * rest + rate * drawn) / sigma / math.sqrt(2 * math.pi)

    worlds = mixed(1.0), mixed(0.0)
    p, q = worlds if direction is Direction.REMOVE else worlds[::-1]
    return hockey_stick(p, q, k) * width


@pytest.mark.parametrize(("sigma", "rate"), CELLS[:3])
@pytest.mark.parametrize("k", [1.05, 1.7])
def test_the_bound_of_one_gaussian_step_is_attained_in_both_directions(sigma, rate, k):
    """b = −r attains the remove direction, b = r the add direction."""
    upper = ZeroOutCohortBlock(GaussianPair(sigma), rate)
    point = np.array([k])
    remove = float(upper.curve(Direction.REMOVE, Side.UPPER, 1e-6, 0).delta(point)[0])
    add = float(upper.curve(Direction.ADD, Side.UPPER, 1e-6, 0).delta(point)[0])
    assert remove == pytest.approx(exact_step(sigma, rate, k, Direction.REMOVE, -1.0), rel=1e-5)
    assert add == pytest.approx(exact_step(sigma, rate, k, Direction.ADD, 1.0), rel=1e-5)
    for direction in Direction:
        lower = OpposedCohortBlock(GaussianPair(sigma), rate).curve(direction, Side.LOWER, 1e-6, 0)
        found = float(lower.delta(point)[0])
        assert found == pytest.approx(exact_step(sigma, rate, k, direction, -1.0), rel=1e-5)


GRID = np.linspace(-24.0, 24.0, 24_001)


def density(sigma: float, shift: float):
    return np.exp(-0.5 * ((GRID - shift) / sigma) ** 2) / sigma / math.sqrt(2 * math.pi)


@pytest.mark.parametrize(("sigma", "rate"), CELLS)
def test_no_one_dimensional_updates_have_a_larger_delta_than_the_bound(sigma, rate):
    width = GRID[1] - GRID[0]
    upper = ZeroOutCohortBlock(GaussianPair(sigma), rate)
    curves = {d: upper.curve(d, Side.UPPER, 1e-6, 0).delta(RATIOS) for d in Direction}
    for b, r in itertools.product((-1.0, -0.4, 0.0, 0.7, 1.0), (-1.0, 0.5, 1.0)):
        p, q = ((1 - rate) * density(sigma, b) + rate * density(sigma, v) for v in (r, 0.0))
        for i, k in enumerate(RATIOS):
            assert hockey_stick(p, q, k) * width <= curves[Direction.REMOVE][i] + 2e-6
            assert hockey_stick(q, p, k) * width <= curves[Direction.ADD][i] + 2e-6


@pytest.mark.parametrize(("sigma", "rate"), CELLS)
def test_the_bound_for_a_smaller_clip_norm_is_exceeded(sigma, rate):
    """Negative control: the attack at C has a larger δ than the bound at 0.9·C allows."""
    wrong = ZeroOutCohortBlock(GaussianPair(sigma / 0.9), rate)
    attack = OpposedCohortBlock(GaussianPair(sigma), rate)
    bound = wrong.curve(Direction.REMOVE, Side.UPPER, 1e-6, 0).delta(RATIOS)
    found = attack.curve(Direction.REMOVE, Side.LOWER, 1e-6, 0).delta(RATIOS)
    assert (found > bound)[RATIOS <= 1.5].all()


def test_a_bound_that_counts_half_of_the_substitute_is_exceeded(mutate):
    """Negative control: the least mass of the substitute's update counts in full."""
    sigma, rate = 1.0, 0.3
    whole = fixed_size.antithetic_upper
    mutate(fixed_size, "antithetic_upper", lambda pair, k, *rest: whole(pair, 0.5 * k, *rest))
    upper = ZeroOutCohortBlock(GaussianPair(sigma), rate)
    attack = OpposedCohortBlock(GaussianPair(sigma), rate)
    bound = upper.curve(Direction.REMOVE, Side.UPPER, 1e-6, 0).delta(RATIOS)
    found = attack.curve(Direction.REMOVE, Side.LOWER, 1e-6, 0).delta(RATIOS)
    assert (found > bound)[(RATIOS > 1.0) & (RATIOS <= 2.0)].all()


def adaptive_delta(sigma: float, rate: float, k: float) -> float:
    """Largest δ of two steps in which the substitute's update may depend on the first output."""
    width = GRID[1] - GRID[0]
    choices = (-1.0, -0.5, 0.0, 0.5, 1.0)
    steps = [
        [(1 - rate) * density(sigma, b) + rate * density(sigma, v) for v in (1.0, 0.0)]
        for b in choices
    ]
    thresholds = np.geomspace(1e-4, 1e5, 1501)
    # Largest H_c of the last step over the choices, at each threshold.
    curves = [[hockey_stick(p, q, c) * width for c in thresholds] for p, q in steps]
    last = np.max(curves, axis=0)
    best = 0.0
    for p, q in steps:
        relevant = (p > 1e-30) & (q > 1e-30)
        needed = k * q[relevant] / p[relevant]
        best = max(best, float((p[relevant] * np.interp(needed, thresholds, last)).sum() * width))
    return best


@pytest.mark.parametrize(("sigma", "rate", "k"), [(1.0, 0.5, 1.3), (2.0, 0.3, 1.1)])
def test_delta_of_two_adaptive_steps_stays_below_the_composed_bound(sigma, rate, k):
    size = round(rate * 10)
    scheme = tn.Scheme(tn.GaussianNoise(sigma), tn.FixedSize(size, 10, 2), relation="zero-out")
    bounds = tn.PrivacyCurve.of(scheme).delta(math.log(k))
    found = adaptive_delta(sigma, rate, k)
    # The lower bound repeats one choice; a chord of the convex curve of thresholds errs by 1e-4.
    assert bounds.lower <= found * (1 + 1e-3)
    assert found <= bounds.upper * (1 + 1e-4)


@pytest.mark.parametrize(
    ("size", "population", "steps", "sigma", "delta", "zero_out", "replaced"),
    [
        (1_000, 60_000, 480, 2.0, 1e-5, (1.48, 1.56), (2.23, 2.615)),
        (100, 10_000, 100, 1.0, 1e-6, (6.19, 6.22), (7.91, 8.081)),
    ],
)
def test_documented_fixed_size_schemes_have_their_documented_epsilon(
    size, population, steps, sigma, delta, zero_out, replaced
):
    noise, cohort = tn.GaussianNoise(sigma), tn.FixedSize(size, population, steps)
    for relation, (low, high) in (("zero-out", zero_out), ("replace-one", replaced)):
        found = tn.price(tn.Scheme(noise, cohort, relation=relation), delta=delta).epsilon
        assert low <= found.lower <= found.upper <= high


@pytest.mark.parametrize("relation", ["zero-out", "replace-one"])
def test_a_cohort_of_all_clients_has_the_epsilon_of_participation_in_every_step(relation):
    noise = tn.GaussianNoise(2.0)
    cohort = tn.price(tn.Scheme(noise, tn.FixedSize(50, 50, 10), relation=relation), delta=1e-6)
    always = tn.price(tn.Scheme(noise, tn.EveryStep(10), relation=relation), delta=1e-6)
    assert cohort.epsilon.upper == pytest.approx(always.epsilon.upper, rel=1e-6)
    assert cohort.epsilon.lower == pytest.approx(always.epsilon.lower, rel=1e-6)


def test_a_table_randomizer_is_accepted_under_zero_out_but_not_replace_one():
    noise = tn.TableRandomizer([0.7, 0.3], [0.5, 0.5])
    scheme = tn.Scheme(noise, tn.FixedSize(1, 10, 5), relation="zero-out")
    found = tn.price(scheme, delta=1e-6).epsilon
    assert 0 < found.lower <= found.upper < 5 * math.log(5 / 3)
    with pytest.raises(tn.UnsupportedError):
        tn.price(tn.Scheme(noise, tn.FixedSize(1, 10, 5), relation="replace-one"), delta=1e-6)


def test_the_lower_bound_of_a_custom_pair_does_not_use_opposite_updates():
    cohort = tn.FixedSize(100, 10_000, 100)
    custom = tn.Scheme(PairRandomizer(GaussianPair(1.0)), cohort, relation="zero-out")
    noise = tn.Scheme(tn.GaussianNoise(1.0), cohort, relation="zero-out")
    found, known = (tn.price(scheme, delta=1e-6).epsilon for scheme in (custom, noise))
    assert found.upper == known.upper
    assert found.lower < 1.0 < 6.0 < known.lower


def test_the_substitution_bound_is_attained_in_the_remove_direction():
    """Balle, Barthe, Gaboardi 2018, Theorem 11, is attained by b = z' in the remove direction."""
    sigma, rate, k = 1.0, 0.3, 1.4
    width = GRID[1] - GRID[0]
    p = (1 - rate) * density(sigma, -1.0) + rate * density(sigma, 1.0)
    q = density(sigma, -1.0)
    block = SubstitutedCohortBlock(GaussianPair(sigma / 2), rate)
    upper = float(block.curve(Direction.REMOVE, Side.UPPER, 1e-6, 0).delta(np.array([k]))[0])
    assert hockey_stick(p, q, k) * width == pytest.approx(upper, rel=1e-4)
