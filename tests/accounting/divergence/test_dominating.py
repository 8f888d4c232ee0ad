"""Dominating pairs of every randomizer; ε against other software, and monotonicity of ε."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import mpmath as mp
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy import stats

from turnout.accounting import epsilon_upper, price
from turnout.accounting.divergence.curves import Direction, Side
from turnout.accounting.divergence.dominating_pairs import DominatingPair, dominating
from turnout.accounting.divergence.pairs import (
    GaussianPair,
    LaplacePair,
    MonotonePair,
    PurePair,
    discrete_gaussian_pair,
    rounded_gaussian_pair,
)
from turnout.accounting.participation.check_ins import allocation_curve
from turnout.core.errors import ParameterError, UnsupportedError
from turnout.schemes import (
    ApproximateRandomizer,
    CheckIn,
    DiscreteGaussianNoise,
    EveryStep,
    FixedSize,
    GaussianNoise,
    LaplaceNoise,
    PairRandomizer,
    PoissonSampling,
    PureRandomizer,
    Relation,
    ReleaseRule,
    RoundedGaussianNoise,
    Scheme,
    TableRandomizer,
)

TABLE = TableRandomizer((0.5, 0.3, 0.2), (0.2, 0.3, 0.5))


def scheme(randomizer, law, relation=Relation.ADD_REMOVE, release=ReleaseRule.AGGREGATED):
    return Scheme(randomizer, law, relation, release)


@pytest.mark.parametrize(
    ("randomizer", "sensitivity", "worst"),
    [
        (GaussianNoise(3.0), 1.0, DominatingPair(GaussianPair(3.0))),
        (GaussianNoise(3.0), 2.0, DominatingPair(GaussianPair(1.5))),
        (LaplaceNoise(3.0), 1.0, DominatingPair(LaplacePair(3.0))),
        (LaplaceNoise(3.0), 2.0, DominatingPair(LaplacePair(1.5))),
        (PureRandomizer(0.5), 1.0, DominatingPair(PurePair(0.5))),
        (PureRandomizer(0.5), 2.0, DominatingPair(PurePair(0.5))),
        (ApproximateRandomizer(0.5, 1e-6), 2.0, DominatingPair(PurePair(0.5, 1e-6), 1e-6)),
        (DiscreteGaussianNoise(3.0, 2), 1.0, DominatingPair(discrete_gaussian_pair(3.0, 2))),
        (DiscreteGaussianNoise(3.0, 2), 2.0, DominatingPair(discrete_gaussian_pair(3.0, 4))),
        (RoundedGaussianNoise(3.0, 2), 1.0, DominatingPair(rounded_gaussian_pair(3.0, 2))),
        (RoundedGaussianNoise(3.0, 2), 2.0, DominatingPair(rounded_gaussian_pair(3.0, 4))),
    ],
)
def test_dominating_pair_depends_on_the_sensitivity(randomizer, sensitivity, worst):
    assert dominating(randomizer, sensitivity) == worst


def test_equal_table_randomizers_share_one_dominating_pair():
    other = TableRandomizer([0.5, 0.3, 0.2], [0.2, 0.3, 0.5])
    assert other == TABLE
    assert dominating(TABLE, 1.0).pair is dominating(other, 1.0).pair


def test_an_add_remove_pair_is_refused_under_replace_one():
    for randomizer in (TABLE, PairRandomizer(GaussianPair(1.0))):
        for law, relation, release in (
            (EveryStep(1), Relation.REPLACE_ONE, ReleaseRule.AGGREGATED),
            (FixedSize(1, 10, 5), Relation.REPLACE_ONE, ReleaseRule.AGGREGATED),
            (CheckIn(5), Relation.ADD_REMOVE, ReleaseRule.ONE_CLIENT),
        ):
            with pytest.raises(UnsupportedError, match="against an absent contribution"):
                price(scheme(randomizer, law, relation, release), 1e-3)
    with pytest.raises(UnsupportedError, match="no dominating pair is known for float"):
        dominating(1.0, 1.0)


def test_randomizers_refuse_invalid_parameters():
    for build in (
        lambda: LaplaceNoise(0.0),
        lambda: LaplaceNoise(math.nan),
        lambda: PureRandomizer(-1.0),
        lambda: ApproximateRandomizer(1.0, 0.0),
        lambda: ApproximateRandomizer(1.0, 1.0),
        lambda: DiscreteGaussianNoise(0.0),
        lambda: DiscreteGaussianNoise(1.0, 0),
        lambda: RoundedGaussianNoise(-1.0),
        lambda: PairRandomizer(GaussianPair(1.0), 1.5),
    ):
        with pytest.raises(ParameterError):
            build()


def theirs(randomizer, rate=1.0):
    """What dp-accounting says of one step, in both directions."""
    match randomizer:
        case LaplaceNoise():
            return pld.from_laplace_mechanism(
                randomizer.scale, value_discretization_interval=1e-3, sampling_prob=rate
            )
        case DiscreteGaussianNoise():  # this one rounds losses up
            return pld.from_discrete_gaussian_mechanism(
                randomizer.standard_deviation,
                sensitivity=randomizer.sensitivity,
                value_discretization_interval=1e-4,
                sampling_prob=rate,
            )
        case _:
            # k-ary randomized response that answers at random with probability 2/(e^{ε₀} + 1).
            noise = 2.0 / (math.exp(randomizer.epsilon0) + 1.0)
            return pld.from_randomized_response(noise, 2, value_discretization_interval=1e-3)


@pytest.mark.parametrize(
    ("randomizer", "delta"),
    [
        (LaplaceNoise(1.0), 1e-3),
        (LaplaceNoise(5.0), 1e-2),
        (DiscreteGaussianNoise(1.5), 1e-4),
        (DiscreteGaussianNoise(7.0, 3), 1e-5),
        (PureRandomizer(1.0), 1e-3),
        (PureRandomizer(0.2), 1e-2),
    ],
)
def test_epsilon_without_sampling_agrees_with_dp_accounting(randomizer, delta):
    """The ε of dp-accounting is too large by less than a step of its grid."""
    steps = [(EveryStep(1), 1), (CheckIn(1), 1), (EveryStep(3), 3), (CheckIn(1, 3), 3)]
    for law, count in steps:
        ours = price(scheme(randomizer, law), delta).epsilon
        epsilon = theirs(randomizer).self_compose(count).get_epsilon_for_delta(delta)
        assert ours.lower <= epsilon
        assert ours.upper == pytest.approx(epsilon, abs=1e-3 * count, rel=2e-3)


@pytest.mark.parametrize(
    ("randomizer", "rate", "steps"),
    [
        (LaplaceNoise(1.0), 0.01, 500),
        (LaplaceNoise(0.4), 0.1, 20),
        (LaplaceNoise(2.0), 0.5, 10),
        (DiscreteGaussianNoise(1.5), 0.1, 10),
    ],
)
def test_epsilon_of_poisson_sampling_agrees_with_dp_accounting(randomizer, rate, steps):
    ours = price(scheme(randomizer, PoissonSampling(rate, steps)), 1e-5).epsilon
    epsilon = theirs(randomizer, rate).self_compose(steps).get_epsilon_for_delta(1e-5)
    assert ours.lower <= epsilon
    assert ours.upper == pytest.approx(epsilon, rel=2e-3)
    # Negative control: another rate would be noticed.
    other = price(scheme(randomizer, PoissonSampling(1.03 * rate, steps)), 1e-5).epsilon
    assert other.lower > epsilon * 1.002


def laplace_average(scale: float, k: float, direction: Direction) -> mp.mpf:
    """δ(K) of a window of two steps: one ratio integrated, the other's price in closed form."""
    b, threshold = mp.mpf(scale), mp.mpf(k)
    top = mp.exp(1 / b)

    def one_hockey_stick(x):
        if x <= 1 / top:
            return 1 - x
        if x >= top:
            return mp.mpf(0)
        z = (b * mp.log(x) + 1) / 2
        return 1 - mp.exp((z - 1) / b) / 2 - x * mp.exp(-z / b) / 2

    def payoff(x):
        if direction is Direction.REMOVE:
            return one_hockey_stick(2 * threshold - x) / 2
        rest = 2 / threshold - x  # K/2·E(rest − X)₊
        return threshold / 2 * (one_hockey_stick(rest) + rest - 1) if rest > 0 else mp.mpf(0)

    def density(z):
        return payoff(mp.exp((2 * z - 1) / b)) * mp.exp(-z / b) / (2 * b)

    level = 2 * threshold if direction is Direction.REMOVE else 2 / threshold
    kinks = [level - 1 / top, level - top]
    places = sorted((b * mp.log(x) + 1) / 2 for x in kinks if x > 0)
    inner = [z for z in places if 0 < z < 1]
    return payoff(top) / (2 * top) + payoff(1 / top) / 2 + mp.quad(density, [0, *inner, 1])


@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize("scale", [0.5, 2.0])
def test_a_check_in_with_laplace_noise_in_two_steps_agrees_with_quadrature(scale, direction):
    for share in (0.1, 0.5, 0.8):
        k = math.exp(share / scale)
        with mp.workdps(30):
            exact = float(laplace_average(scale, k, direction))
        lower, upper = (
            float(
                allocation_curve(
                    LaplacePair(scale), 2, direction, side, delta_hint=exact, refinement=2
                ).delta(np.array(k))
            )
            for side in (Side.LOWER, Side.UPPER)
        )
        assert lower <= exact <= upper
        assert upper == pytest.approx(lower, rel=2e-3)


@pytest.mark.parametrize("window", [1, 50])
def test_rounded_gaussian_noise_has_a_slightly_smaller_epsilon(window):
    for deviation, sensitivity in ((1.0, 1), (4.0, 3)):
        law = CheckIn(window)
        rounded = price(scheme(RoundedGaussianNoise(deviation, sensitivity), law), 1e-6)
        whole = price(scheme(GaussianNoise(deviation / sensitivity), law), 1e-6)
        assert rounded.epsilon.lower <= whole.epsilon.upper
        if deviation == 1.0:
            assert rounded.epsilon.upper < whole.epsilon.lower


def test_fine_lattice_noise_equals_gaussian_noise():
    prices = [
        price(scheme(randomizer, CheckIn(40)), 1e-6).epsilon
        for randomizer in (
            GaussianNoise(1.0),
            RoundedGaussianNoise(100.0, 100),
            DiscreteGaussianNoise(100.0, 100),
        )
    ]
    for other in prices[1:]:
        assert other.upper == pytest.approx(prices[0].upper, rel=2e-3)
        assert other.lower <= prices[0].upper * (1 + 1e-4)


NORMALS = MonotonePair(stats.norm(1.0, 1.5), stats.norm(0.0, 1.5), -45.0, 45.0)


@pytest.mark.parametrize("law", [EveryStep(1), CheckIn(4)])
def test_a_custom_pair_of_two_normals_has_the_epsilon_of_gaussian_noise(law):
    own = price(scheme(PairRandomizer(NORMALS), law), 1e-5, 1e-2)
    named = price(scheme(GaussianNoise(1.5), law), 1e-5, 1e-2)
    for direction, bounds in named.directions.items():
        assert own.directions[direction].upper == pytest.approx(bounds.upper, rel=1e-6)
        assert own.directions[direction].lower == pytest.approx(bounds.lower, rel=1e-6)


@dataclass(frozen=True)
class Coin:
    """A pair written by a user: randomized response with ε₀ = ln 3."""

    second_moment: float = 7 / 3

    def q_below(self, k):
        return np.where(k < 1 / 3, 0.0, np.where(k < 3, 0.75, 1.0))

    def q_above(self, k):
        return np.where(k < 1 / 3, 1.0, np.where(k < 3, 0.25, 0.0))

    def p_below(self, k):
        return np.where(k < 1 / 3, 0.0, np.where(k < 3, 0.25, 1.0))

    def p_above(self, k):
        return np.where(k < 1 / 3, 1.0, np.where(k < 3, 0.75, 0.0))


@pytest.mark.parametrize("law", [EveryStep(2), CheckIn(4), PoissonSampling(0.1, 10)])
def test_a_custom_pair_class_has_an_epsilon(law):
    own = price(scheme(PairRandomizer(Coin()), law), 1e-3, 1e-2).epsilon
    named = price(scheme(PureRandomizer(math.log(3)), law), 1e-3, 1e-2).epsilon
    assert own.lower <= named.upper
    assert own.upper >= named.lower
    assert own.upper == pytest.approx(named.upper, rel=1e-2)


LAWS = {"window": CheckIn(200), "windows": CheckIn(20, 4), "sampled": PoissonSampling(0.05, 40)}


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
@pytest.mark.parametrize(
    "costlier",
    [
        [PureRandomizer(e) for e in (0.1, 0.5, 1.0, 2.0)],
        [ApproximateRandomizer(1.0, d) for d in (1e-12, 1e-8, 1e-7)],
        [ApproximateRandomizer(e, 1e-8) for e in (0.5, 1.0, 2.0)],
        [LaplaceNoise(b) for b in (8.0, 2.0, 0.8)],
        [DiscreteGaussianNoise(s) for s in (8.0, 2.0, 0.8)],
        [RoundedGaussianNoise(s) for s in (8.0, 2.0, 0.8)],
        [RoundedGaussianNoise(4.0, n) for n in (1, 2, 4)],
    ],
    ids=lambda randomizers: type(randomizers[0]).__name__,
)
def test_epsilon_rises_with_less_noise(costlier, law):
    found = [epsilon_upper(scheme(randomizer, law), 1e-5) for randomizer in costlier]
    assert found == sorted(found)
    assert found[0] > 0


RANDOMIZERS = [
    PureRandomizer(1.0),
    ApproximateRandomizer(1.0, 1e-8),
    LaplaceNoise(1.0),
    DiscreteGaussianNoise(1.2),
    TABLE,
]


@pytest.mark.parametrize("randomizer", RANDOMIZERS, ids=lambda one: type(one).__name__)
def test_epsilon_falls_with_longer_windows_and_rarer_participation(randomizer):
    def bound(law, delta=1e-5):
        return epsilon_upper(scheme(randomizer, law), delta)

    by_window = [bound(CheckIn(t)) for t in (1000, 100, 10, 2, 1)]
    # Each has a grid of its own.
    assert all(a <= b * 1.001 for a, b in itertools.pairwise(by_window))
    by_chance = [bound(CheckIn(50, 1, p)) for p in (0.01, 0.1, 0.5, 1.0)]
    assert by_chance == sorted(by_chance)
    by_delta = [bound(CheckIn(50), delta) for delta in (1e-2, 1e-3, 1e-5, 1e-7)]
    assert by_delta == sorted(by_delta)


@pytest.mark.parametrize("randomizer", RANDOMIZERS, ids=lambda one: type(one).__name__)
def test_window_epsilon_is_at_most_that_of_an_observed_step(randomizer):
    single = price(scheme(randomizer, EveryStep(1)), 1e-5)
    window = price(scheme(randomizer, CheckIn(20)), 1e-5)
    for direction, bounds in window.directions.items():
        assert bounds.upper < single.directions[direction].lower


def test_epsilon_of_displacing_a_client_is_at_most_that_of_twice_the_sensitivity():
    for randomizer, half in (
        (LaplaceNoise(2.0), LaplaceNoise(1.0)),
        (RoundedGaussianNoise(3.0, 1), RoundedGaussianNoise(3.0, 2)),
        (PureRandomizer(1.0), PureRandomizer(1.0)),
    ):
        one = scheme(randomizer, CheckIn(30), release=ReleaseRule.ONE_CLIENT)
        found = price(one, 1e-5).epsilon
        assert found.upper <= price(scheme(half, CheckIn(30)), 1e-5).epsilon.upper
        assert found.lower >= price(scheme(randomizer, CheckIn(30)), 1e-5).epsilon.lower
        every = scheme(randomizer, EveryStep(1), Relation.REPLACE_ONE)
        assert price(every, 1e-5).epsilon.upper == pytest.approx(
            price(scheme(half, EveryStep(1)), 1e-5).epsilon.upper, rel=1e-9
        )


@pytest.mark.parametrize("randomizer", [ApproximateRandomizer(1.0, 1e-8), PureRandomizer(1.0)])
def test_replacement_epsilon_lies_between_removal_and_two_neighbour_bounds(randomizer):
    replaced = price(scheme(randomizer, CheckIn(50), Relation.REPLACE_ONE), 1e-5, 1e-2).epsilon
    removed = price(scheme(randomizer, CheckIn(50)), 1e-5).epsilon
    assert removed.lower <= replaced.upper
    assert replaced.upper < 2.1 * removed.upper
