"""δ(K) of blanket pairs: exact for few clients, close bounds for many clients, mutants.

The exact δ is summed over the distribution of the pair, without the formula of the curves.
"""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import gammaln, xlogy
from scipy.stats import binom
from shuffle_truths import pair_delta
from trinomial_cells import trinomial_cell

from turnout.accounting.divergence.curves import Side
from turnout.accounting.shuffling import blanket as blanket_curve
from turnout.accounting.shuffling import blanket_pairs
from turnout.accounting.shuffling.blanket import BlanketCurve, chance_of_at_least, heads
from turnout.accounting.shuffling.blanket_pairs import (
    BlanketPair,
    Cells,
    clones_pair,
    hadamard_pair,
    kary_pair,
    stronger_clones_pair,
    third_value_pair,
    trinomial_pair,
)

MAKERS = {
    "clones": clones_pair,
    "stronger clones": stronger_clones_pair,
    "trinomial": lambda e: trinomial_pair(e, 0.4 / (math.exp(e) + 1)),
    "cell": lambda e: trinomial_cell(e, 0.2 / (math.exp(e) + 1), 0.7 / (math.exp(e) + 1)),
    "5-ary": lambda e: kary_pair(e, 5),
    "Hadamard": hadamard_pair,
    "third value": third_value_pair,
}


def bounds(pair: BlanketPair, clients: int, k: float, groups: int = 256) -> tuple[float, float]:
    """(lower, upper) δ."""
    lower, upper = (
        float(BlanketCurve(pair, clients, side, groups).delta(np.array(k)))
        for side in (Side.LOWER, Side.UPPER)
    )
    return lower, upper


def epsilon(pair: BlanketPair, clients: int, side: Side, delta: float, groups: int = 256) -> float:
    curve, low, high = BlanketCurve(pair, clients, side, groups), 0.0, pair.local_epsilon
    for _ in range(40):
        middle = 0.5 * (low + high)
        above = float(curve.delta(np.array(math.exp(middle)))) > delta
        low, high = (middle, high) if above else (low, middle)
    return high


def counted(pair: BlanketPair, clients: int, k: float) -> float:
    """δ(K) by all counts of the others' messages, for few clients."""
    kinds = 3 if pair.neutral_share > 0 else 2
    blanket = [pair.share, pair.share, pair.neutral_share][:kinds]
    known = max(1.0 - math.fsum(blanket), 0.0)
    counts = np.indices((clients,) * kinds).reshape(kinds, -1)
    rest = clients - 1 - counts.sum(axis=0)
    counts = np.vstack([counts, rest])[:, rest >= 0]
    logs = gammaln(clients) - gammaln(counts + 1.0).sum(axis=0)
    chances = np.exp(logs + xlogy(counts, np.array([*blanket, known])[:, None]).sum(axis=0))
    views = np.zeros((2, *[clients + 1] * kinds))
    for world, masses in enumerate([(pair.high, pair.low), (pair.low, pair.high)]):
        for kind, mass in enumerate([*masses, pair.neutral][:kinds]):
            moved = [counts[i] + (i == kind) for i in range(kinds)]
            views[(world, *moved)] += mass * chances
    return float(np.maximum(views[0] - k * views[1], 0.0).sum())


@st.composite
def pairs(draw: st.DrawFn) -> BlanketPair:
    high = draw(st.floats(0.05, 0.95))
    low = draw(st.floats(1e-4, 0.99)) * min(high, 1.0 - high)
    share = draw(st.floats(1e-3, 0.49))
    neutral = draw(st.floats(1e-3, 1.0)) * (1.0 - 2 * share)
    return BlanketPair(high, low, share, neutral)


@settings(max_examples=60, deadline=None)
@given(pair=pairs(), clients=st.integers(1, 7), part=st.floats(0.0, 1.2))
def test_delta_of_few_clients_agrees_with_enumeration(pair, clients, part):
    k = math.exp(part * pair.local_epsilon)
    truth = pair_delta(pair, clients, k)
    lower, upper = bounds(pair, clients, k)
    assert truth * (1 - 1e-6) - 1e-14 <= lower <= truth * (1 + 1e-12) + 1e-15
    assert truth * (1 - 1e-12) - 1e-15 <= upper <= truth * (1 + 1e-6) + 1e-14


@settings(max_examples=40, deadline=None)
@given(
    pair=pairs(), clients=st.integers(8, 30), part=st.floats(0.0, 1.0), groups=st.integers(1, 12)
)
def test_bounds_from_coarse_groups_enclose_the_exact_delta(pair, clients, part, groups):
    k = math.exp(part * pair.local_epsilon)
    truth = counted(pair, clients, k)
    lower, upper = bounds(pair, clients, k, groups)
    assert lower <= truth * (1 + 1e-9) + 1e-15
    assert upper >= truth * (1 - 1e-9) - 1e-15


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("local_epsilon", [0.4, 2.5])
def test_grouped_bounds_of_sixty_clients_enclose_the_exact_delta(name, local_epsilon, mutate):
    """With N in groups of several and c on few points, as for many clients."""
    mutate(blanket_pairs, "_EVERY", 0)
    pair, clients = MAKERS[name](local_epsilon), 60
    for part in (0.0, 0.1, 0.3, 0.7):
        k = math.exp(part * local_epsilon)
        truth = counted(pair, clients, k)
        for groups, loss in [(3, 1.0), (12, 1.0), (256, 0.03)]:
            lower, upper = bounds(pair, clients, k, groups)
            assert truth * (1 - loss) - 1e-9 <= lower <= truth * (1 + 1e-10)
            assert truth * (1 - 1e-10) <= upper
            assert upper <= truth * (1 + loss) + 1e-9 or loss == 1.0


@pytest.mark.parametrize("local_epsilon", [0.5, 2.0])
def test_bounds_of_a_thousand_clients_enclose_the_exact_delta(local_epsilon):
    """Without neutral messages all counts can be enumerated; the bounds group N."""
    pair = clones_pair(local_epsilon)
    for k in (1.0, 1.02, 1.1):
        truth = counted(pair, 1000, k)
        lower, upper = bounds(pair, 1000, k)
        assert truth * (1 - 0.02) <= lower <= truth <= upper <= truth * (1 + 0.02)


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize(
    ("local_epsilon", "clients", "delta"),
    [(0.5, 10**4, 1e-6), (3.0, 2000, 1e-5), (1.0, 10**6, 1e-10), (4.0, 10**9, 1e-9)],
)
def test_brackets_of_many_clients_are_narrow(name, local_epsilon, clients, delta):
    pair = MAKERS[name](local_epsilon)
    lower, upper = (epsilon(pair, clients, side, delta) for side in (Side.LOWER, Side.UPPER))
    assert lower < upper < lower * (1 + (1e-3 if pair.neutral == 0 else 2.5e-3))


@pytest.mark.parametrize(
    ("local_epsilon", "clients", "delta", "clones", "stronger"),
    [
        (0.5, 10**4, 1e-6, 0.02040, 0.01812),
        (1.0, 10**5, 1e-6, 0.01528, 0.01243),
        (2.0, 10**6, 1e-8, 0.01756, 0.01304),
        (4.0, 10**6, 1e-8, 0.06420, 0.04507),
    ],
)
def test_published_epsilons_are_reproduced(local_epsilon, clients, delta, clones, stronger):
    """The first by the published numeric clones code, the second by the authors' later pair."""
    found = epsilon(clones_pair(local_epsilon), clients, Side.UPPER, delta)
    assert found == pytest.approx(clones, rel=3e-4)
    found = epsilon(stronger_clones_pair(local_epsilon), clients, Side.UPPER, delta)
    assert found == pytest.approx(stronger, rel=5e-4)


@pytest.mark.parametrize("name", MAKERS)
def test_lines_with_the_slope_of_the_lower_curve_are_below_the_exact_curve(name):
    pair, clients = MAKERS[name](1.5), 40
    ks = np.exp(np.linspace(0.0, 1.6, 9))
    values, slopes = BlanketCurve(pair, clients, Side.LOWER, 8).delta_and_slope(ks)
    truths = np.array([counted(pair, clients, float(k)) for k in ks])
    lines = values[:, None] + slopes[:, None] * (ks[None, :] - ks[:, None])
    assert (lines <= truths[None, :] * (1 + 1e-9) + 1e-12).all()
    assert (slopes[:4] < 0).all()
    assert (BlanketCurve(pair, clients, Side.UPPER).slope(ks) == 0).all()


@pytest.mark.parametrize(("trials", "chance"), [(30, 0.3), (400, 0.02), (5000, 0.6)])
@pytest.mark.parametrize("fine", [10.0, 1e4])
def test_grouped_counts_of_neutral_messages_bound_the_mean_of_convex_functions(
    trials, chance, fine
):
    counts = np.arange(trials + 1.0)
    distribution = binom.pmf(counts, trials, chance)
    mean = trials * chance
    above, below = (f(trials, chance, fine) for f in (blanket_pairs._hats, blanket_pairs._means))
    assert above[1].sum() == pytest.approx(1.0)
    assert below[1].sum() == pytest.approx(1.0)
    for threshold in mean * np.array([0.3, 0.8, 0.95, 1.0, 1.1, 1.5]):
        truth = float(distribution @ np.maximum(threshold - counts, 0.0))
        upper, lower = (float(w @ np.maximum(threshold - x, 0.0)) for x, w in (above, below))
        assert lower <= truth * (1 + 1e-9)
        assert upper >= truth * (1 - 1e-9)
    assert above[0] @ above[1] == pytest.approx(mean, rel=1e-6)
    assert below[0] @ below[1] == pytest.approx(mean, rel=1e-6)


def _swapped(mutate):
    """Groups counted by their other end."""
    right = Cells.of

    def wrong(pair, clients, side, groups):
        return right(pair, clients, Side.LOWER if side is Side.UPPER else Side.UPPER, groups)

    mutate(blanket_curve.Cells, "of", staticmethod(wrong))


def _means_only(mutate):
    """The number of neutral messages put on few means from above as well."""
    mutate(blanket_pairs, "_FINE", 1e-3)
    mutate(blanket_pairs, "_hats", blanket_pairs._means)


def _half_drift(mutate):
    """The drift of the walk twice what it is where messages are neutral."""
    mutate(BlanketPair, "neutral_ratio", property(lambda p: 2 * p.neutral / p.neutral_share))


@pytest.mark.parametrize("mutant", [_swapped, _means_only, _half_drift])
def test_mutants_of_the_upper_curve_fall_below_the_exact_delta(mutant, mutate):
    mutate(blanket_pairs, "_EVERY", 0)
    mutant(mutate)
    pair = trinomial_pair(0.8, 0.1)
    truth = counted(pair, 60, 1.3)
    assert bounds(pair, 60, 1.3, 20)[1] < truth * (1 - 1e-4)


@pytest.mark.parametrize("name", MAKERS)
def test_deltas_have_the_shape_of_their_argument_and_are_monotone(name):
    pair = MAKERS[name](1.0)
    curve = BlanketCurve(pair, 500, Side.UPPER)
    ks = np.exp(np.array([[0.0, 0.01, 0.1], [0.3, 0.6, 1.1]]))
    values = curve.delta(ks)
    assert values.shape == ks.shape
    assert (np.diff(values.ravel()) <= 0).all()
    assert values[1, 2] == 0.0
    assert (BlanketCurve(pair, 1000, Side.LOWER).delta(ks) <= values).all()


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("clients", [1, 2, 1000, 10**9])
@pytest.mark.parametrize("local_epsilon", [1e-3, 30.0, 600.0])
def test_extreme_parameters_give_finite_bounds_without_warnings(name, clients, local_epsilon):
    """Warnings are errors here."""
    pair = MAKERS[name](local_epsilon)
    ks = np.exp(np.array([0.0, 1e-9, 0.5, 0.999, 1.0, 1.001]) * local_epsilon)
    lower, upper = (
        BlanketCurve(pair, clients, side, 16).delta(ks) for side in (Side.LOWER, Side.UPPER)
    )
    assert ((lower >= 0) & (lower <= upper) & (upper <= 1)).all()
    assert upper[-1] < 1e-12


def test_a_shuffle_of_one_client_has_its_local_epsilon():
    for make in MAKERS.values():
        pair = make(2.0)
        for k in (1.0, 3.0, 7.0):
            truth = pair.high - k * pair.low
            assert bounds(pair, 1, k) == pytest.approx((truth, truth), rel=1e-7)


@pytest.mark.parametrize(
    ("coins", "count"),
    [(1, 1), (7, 4), (60, 60), (999, 700), (10**4, 5300), (10**6, 503_000), (10**9, 500_150_000)],
)
def test_shuffled_fair_random_bits_have_epsilon_zero(coins, count):
    with mpmath.workdps(40):
        mass = mpmath.binomial(coins, count) * mpmath.mpf(2) ** -coins
        tail, term, at = mpmath.mpf(0), mass, count
        while term > mass * mpmath.mpf(10) ** -15 and at <= coins:
            tail += term
            term *= mpmath.mpf(coins - at) / (at + 1)
            at += 1
        if at - count > 50_000:
            pytest.fail("too many terms for a test")
    one = np.array([float(coins)]), np.array([float(count)])
    assert heads(*one)[0] == pytest.approx(float(mass), rel=1e-11)
    assert chance_of_at_least(*one)[0] == pytest.approx(float(tail), rel=1e-10)
