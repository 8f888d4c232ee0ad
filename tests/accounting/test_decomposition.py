"""Which dominating pair each release rule and relation uses, and what is refused."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import ndtr

from turnout.accounting import calibrate_noise, epsilon_upper, price, spent
from turnout.accounting.decomposition import decompose, unhidden
from turnout.accounting.divergence import composition
from turnout.accounting.divergence.blocks import (
    ANYTHING,
    Decomposition,
    PairBlock,
    joined_decompositions,
)
from turnout.accounting.divergence.pairs import GaussianPair
from turnout.accounting.divergence.unhidden import Unhidden
from turnout.accounting.participation.check_ins import AllocationBlock
from turnout.accounting.participation.drawn_blocks import drawn_blocks_of
from turnout.accounting.participation.fixed_size import (
    OpposedCohortBlock,
    SubstitutedCohortBlock,
    ZeroOutCohortBlock,
)
from turnout.accounting.participation.k_subset import SubsetBlock
from turnout.accounting.participation.k_subset_begun import BegunSubsetBlock
from turnout.accounting.participation.k_subset_records import SubsetRecordsBlock
from turnout.accounting.participation.one_client import (
    OneClientBlock,
    one_client_pair,
    opposed_pair,
)
from turnout.accounting.participation.replace_one import ReplacementBlock, under_replacement
from turnout.accounting.pricing import decomposition_bounds
from turnout.core.errors import NumericalError, UnsupportedError
from turnout.schemes import (
    AvailabilityCheckIn,
    CheckIn,
    EveryStep,
    FixedAssignment,
    FixedSize,
    GaussianNoise,
    KSubset,
    LaplaceNoise,
    PoissonSampling,
    Relation,
    ReleaseRule,
    Scheme,
    SelfSampling,
    SlidingWindow,
    TrustModel,
)
from turnout.schemes.normal_form import Form, Staggered

SIGMA = 3.0
WINDOW = CheckIn(10, 2, 0.5)
ADD, ZERO, REPLACE = Relation.ADD_REMOVE, Relation.ZERO_OUT, Relation.REPLACE_ONE
AGGREGATED, ONE, AVERAGED = ReleaseRule.AGGREGATED, ReleaseRule.ONE_CLIENT, ReleaseRule.AVERAGED


def scheme(law, relation=ADD, release=AGGREGATED, sigma=SIGMA, trust=TrustModel.CENTRAL) -> Scheme:
    return Scheme(GaussianNoise(sigma), law, relation, release, trust=trust)


def windows(sigma: float) -> list:
    return [(AllocationBlock(GaussianPair(sigma), 10, 0.5), 2)]


def both(parts: Decomposition) -> tuple:
    other = (
        None
        if parts.replacement_against_null is None
        else (parts.replacement_against_null.upper, parts.replacement_against_null.lower)
    )
    return (parts.record_against_null.upper, parts.record_against_null.lower), other


def test_aggregated_releases_have_the_clip_norm_as_sensitivity():
    plain = (windows(SIGMA), windows(SIGMA))
    assert both(decompose(scheme(WINDOW, ADD))) == (plain, None)
    assert both(decompose(scheme(WINDOW, ZERO))) == (plain, None)
    opposed = under_replacement(windows(SIGMA))
    parts = decompose(scheme(WINDOW, REPLACE))
    assert both(parts) == ((opposed, opposed), None)
    assert parts.record_against_null.exact
    assert parts.record_against_null.symmetric


def test_one_client_releases_use_a_pair_with_twice_the_clip_norm():
    alone, apart = GaussianPair(SIGMA), GaussianPair(SIGMA / 2)
    displacing = ([(AllocationBlock(one_client_pair(alone, apart), 10, 0.5), 2)], windows(SIGMA))
    attack = [(AllocationBlock(opposed_pair(apart), 10, 0.5), 2)]
    added = decompose(scheme(WINDOW, ADD, ONE))
    assert both(added) == (displacing, None)
    assert added.record_against_null.attacks == (attack,)

    def two_records(to_null: bool) -> list:
        return [(OneClientBlock(alone, apart, 10, 0.5, to_null), 2)]

    zeroed = decompose(scheme(WINDOW, ZERO, ONE))
    assert both(zeroed) == ((two_records(True), windows(SIGMA)), None)
    assert zeroed.record_against_null.attacks == (two_records(True),)
    replaced = decompose(scheme(WINDOW, REPLACE, ONE))
    assert both(replaced) == ((two_records(False), under_replacement(windows(SIGMA))), None)


def test_lower_bounds_of_one_client_releases_use_the_better_of_two_attacks():
    def attacks(sigma: float, count: int) -> tuple:
        return decompose(scheme(CheckIn(10, count), REPLACE, ONE, sigma)).record_against_null.lowers

    opposed = AllocationBlock(opposed_pair(GaussianPair(0.5)), 10)
    alone = under_replacement([(AllocationBlock(GaussianPair(1.0), 10), 1)])
    assert attacks(1.0, 1) == ([(opposed, 1)], alone)
    assert attacks(1.0, 2) == ([(opposed, 2)],)
    ((block, count),) = attacks(3.0, 2)[0]
    assert isinstance(block, ReplacementBlock)
    assert count == 2


def test_gaussian_means_differ_by_the_clip_norm_or_twice_the_clip_norm_under_replace_one():
    for relation, distance in ((ADD, 1.0), (ZERO, 1.0), (REPLACE, 2.0)):
        parts = decompose(scheme(EveryStep(4), relation))
        assert parts.replacement_against_null is None
        assert parts.record_against_null.upper == [
            (PairBlock(GaussianPair(SIGMA / distance / 2.0)), 1)
        ]
        assert parts.record_against_null.lower == parts.record_against_null.upper


def test_a_fixed_size_sample_has_cohort_blocks_under_replacement_and_zero_out():
    replaced = decompose(scheme(FixedSize(2, 8, 5), REPLACE)).record_against_null
    assert replaced.upper == [(SubstitutedCohortBlock(GaussianPair(SIGMA / 2), 0.25), 5)]
    assert replaced.lower == [(PairBlock(GaussianPair(SIGMA / 2), 0.25), 5)]
    blanked = decompose(scheme(FixedSize(2, 8, 5), ZERO)).record_against_null
    assert blanked.upper == [(ZeroOutCohortBlock(GaussianPair(SIGMA), 0.25), 5)]
    assert blanked.lower == [(OpposedCohortBlock(GaussianPair(SIGMA), 0.25), 5)]
    assert blanked.attacks == ([(PairBlock(GaussianPair(SIGMA), 0.25), 5)],)


@pytest.mark.parametrize("law", [PoissonSampling(0.1, 7), SelfSampling(0.1, 7)])
def test_poisson_and_self_sampling_have_the_same_blocks(law):
    parts = decompose(scheme(law))
    assert parts.record_against_null.upper == [(PairBlock(GaussianPair(SIGMA), 0.1), 7)]


def test_a_partial_window_equals_a_shorter_window_with_lower_probability():
    parts = decompose(scheme(WINDOW), steps=14)
    pair = GaussianPair(SIGMA)
    assert parts.record_against_null.upper == [
        (AllocationBlock(pair, 10, 0.5), 1),
        (AllocationBlock(pair, 4, 0.2), 1),
    ]
    sliding = decompose(scheme(SlidingWindow(10, 12))).record_against_null.upper
    assert sliding == [(AllocationBlock(pair, 3, 0.3), 1)]


def test_a_batch_kept_over_all_epochs_equals_one_window_with_less_noise():
    law = FixedAssignment(10, 4, 0.5)
    bound = decompose(scheme(law)).record_against_null
    assert bound.upper == bound.lower == [(AllocationBlock(GaussianPair(SIGMA / 2), 10, 0.5), 1)]
    begun = decompose(scheme(law), steps=13).record_against_null
    assert begun.upper == [(AllocationBlock(GaussianPair(SIGMA / 2**0.5), 10, 0.5), 1)]
    assert begun.lower == [(AllocationBlock(GaussianPair(SIGMA), 10, 0.5), 1)]
    first = decompose(scheme(law), steps=4).record_against_null
    assert first.upper == first.lower == [(AllocationBlock(GaussianPair(SIGMA), 4, 0.2), 1)]
    # Negative control: windows drawn afresh are far cheaper.
    afresh, kept = (
        price(scheme(own), 1e-6).epsilon for own in (CheckIn(50, 4), FixedAssignment(50, 4))
    )
    assert kept.lower > 1.1 * afresh.upper
    with pytest.raises(UnsupportedError, match="epochs"):
        decompose(Scheme(LaplaceNoise(1.0), law, ADD))


def test_the_bound_of_a_k_subset_is_not_marked_as_exact():
    bound = decompose(scheme(KSubset(10, 3, 2))).record_against_null
    assert bound.upper == bound.lower == [(SubsetBlock(GaussianPair(SIGMA), 10, 3), 2)]
    assert not bound.exact
    begun = decompose(scheme(KSubset(10, 3, 2)), steps=14).record_against_null
    block = BegunSubsetBlock(GaussianPair(SIGMA), 10, 3, 4)
    assert begun.upper == begun.lower == [(SubsetBlock(GaussianPair(SIGMA), 10, 3), 1), (block, 1)]


def test_k_subsets_under_replace_one_use_two_records_or_two_neighbour_bounds():
    pair = GaussianPair(SIGMA)
    records = decompose(scheme(KSubset(10, 3, 2), REPLACE))
    assert records.replacement_against_null is None
    windows = [(ReplacementBlock(pair, 4), 2), (ReplacementBlock(pair, 3), 4)]
    assert records.record_against_null.upper == windows
    assert records.record_against_null.lower == [(SubsetRecordsBlock(pair, 10, 3), 2)]
    # The way through the null record is a further upper bound, and twice the run has it too.
    null = [(SubsetBlock(pair, 10, 3), 2)]
    assert records.through_null is not None
    assert records.through_null.upper == null
    joined = joined_decompositions([records, records]).through_null
    assert joined is not None
    assert joined.upper == [(SubsetBlock(pair, 10, 3), 4)]
    # A begun window and a randomizer that is known by ε₀ only: two neighbour bounds.
    begun = decompose(scheme(KSubset(10, 3, 2), REPLACE), steps=14)
    assert begun.replacement_against_null == begun.record_against_null


@pytest.mark.parametrize(("relation", "distance"), [(ZERO, 1.0), (REPLACE, 2.0)])
def test_averaged_releases_are_not_amplified(relation, distance):
    parts = decompose(scheme(CheckIn(10, 4), relation, AVERAGED))
    assert parts.record_against_null.upper == [(PairBlock(GaussianPair(SIGMA / distance / 2.0)), 1)]
    assert parts.record_against_null.lower == parts.record_against_null.upper


def test_averaged_release_with_optional_participation_has_a_valid_lower_bound():
    law, sigma, delta = CheckIn(10, 1, 0.25), 0.5, 1e-3
    bounds = price(scheme(law, ZERO, AVERAGED, sigma), delta).epsilon
    mu = 1 / sigma

    def gaussian(epsilon: float) -> float:
        return ndtr(mu / 2 - epsilon / mu) - np.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu)

    # Alone, she is seen exactly when she comes: the truth is p₀ times a Gaussian's δ.
    assert 0.25 * gaussian(bounds.upper) <= delta <= 0.25 * gaussian(bounds.lower)
    assert price(scheme(CheckIn(10, 1, 0.0), ZERO, AVERAGED), delta).epsilon.upper == 0


REFUSED = [
    (scheme(WINDOW, ADD, AVERAGED), "number of clients"),
    (scheme(PoissonSampling(0.1, 5), ZERO, AVERAGED), "check-in"),
    (scheme(FixedSize(1, 5, 5), ADD), "add-remove"),
    (scheme(FixedSize(1, 5, 5), ZERO, ONE), "aggregated"),
    (scheme(AvailabilityCheckIn(np.ones((2, 4), bool), 2), REPLACE), "add-remove or zero-out"),
    (scheme(AvailabilityCheckIn(np.ones((2, 4), bool), 2), ZERO, ONE), "add-remove"),
    (scheme(AvailabilityCheckIn(np.ones((2, 4), bool), 2), ZERO, AVERAGED), "aggregated"),
    (scheme(WINDOW, trust=TrustModel.LOCAL), "no analysis under add-remove"),
    (scheme(WINDOW, trust=TrustModel.SHUFFLED), "replace-one"),
    (scheme(AvailabilityCheckIn(np.ones((2, 4), bool), 2), trust=TrustModel.LOCAL), "trust"),
]


@pytest.mark.parametrize(("refused", "message"), REFUSED)
def test_schemes_without_a_sound_analysis_are_refused(refused, message):
    for ask in (
        lambda: price(refused, 1e-5),
        lambda: epsilon_upper(refused, 1e-5),
        lambda: spent(refused, 1e-5, [1]),
        lambda: calibrate_noise(lambda _: refused, 1.0, 1e-5),
    ):
        with pytest.raises(UnsupportedError, match=message):
            ask()


@pytest.mark.parametrize("release", [ReleaseRule.AGGREGATED, ReleaseRule.ONE_CLIENT])
def test_replacement_in_more_than_a_million_windows_uses_two_neighbour_bounds(release):
    def parts(windows):
        law = CheckIn(10, windows)
        return decompose(Scheme(GaussianNoise(9.0), law, Relation.REPLACE_ONE, release=release))

    assert parts(1_000_000).replacement_against_null is None
    longer = parts(1_000_001)
    assert longer.replacement_against_null == longer.record_against_null


@pytest.mark.parametrize(
    "law", [CheckIn(10, 4), CheckIn(5, 3, probability=0.6), PoissonSampling(0.1, 40)], ids=str
)
def test_bounds_that_share_one_grid_for_all_numbers_of_steps_are_sharp(law):
    whole = scheme(law, sigma=1.5)
    for steps in (1, 7, law.steps - 1):
        shared = epsilon_upper(whole, 1e-5, steps, shared=True)
        known = decomposition_bounds(decompose(whole, steps), ADD, 1e-5, 1e-3)
        assert max(one.lower for one in known.values()) <= shared
        assert shared <= epsilon_upper(whole, 1e-5, steps) * (1 + 1e-4)


QUICK_LAWS = (
    EveryStep(3),
    CheckIn(4),
    KSubset(6, 2),
    FixedSize(10, 20, 4),
    PoissonSampling(0.3, steps=3),
    FixedAssignment(4, 3),
    SlidingWindow(3, 10),
    CheckIn(4, 2, 0.5),
)


@pytest.mark.parametrize("release", [AGGREGATED, ONE])
@pytest.mark.parametrize("relation", [ADD, ZERO, REPLACE])
def test_closed_form_bounds_enclose_the_bounds_from_grids(relation, release):
    """Lower closed forms are below, and upper ones above, the bounds from grids."""
    seen = 0
    for law in QUICK_LAWS if relation is ADD else QUICK_LAWS[:4]:
        try:
            parts = decompose(scheme(law, relation, release, 0.8))
            grids = replace(parts, unhidden=ANYTHING)
            found = decomposition_bounds(grids, relation, 1e-5, 0.1).values()
        except (UnsupportedError, NumericalError):
            continue
        told = parts.unhidden
        assert told.upper(1e-5) >= max(bounds.lower for bounds in found)
        floors = [told.lower(1e-5, certain=certain) for certain in (False, True)]
        assert all(low <= each.upper for low, each in zip(floors, found, strict=False))
        seen += 1
    assert seen >= 2


@pytest.mark.parametrize(
    ("relation", "release", "mu"),
    [
        (ADD, AGGREGATED, 1.0),
        (ZERO, AGGREGATED, 1.0),
        (REPLACE, AGGREGATED, 2.0**0.5),  # in one step each, for two records may draw two
        (ADD, ONE, 2.0),
        (ZERO, ONE, 1.0),
        (REPLACE, ONE, 2.0),
        (ZERO, AVERAGED, 1.0),
        (REPLACE, AVERAGED, 2.0),
    ],
)
def test_closed_forms_without_amplification_use_the_sensitivity_of_the_release_rule(
    relation, release, mu
):
    """Three windows of 10, σ = 0.1: one release a window in closed form."""
    told = decompose(scheme(CheckIn(10, 3), relation, release, sigma=0.1)).unhidden
    gaussian = epsilon_upper(scheme(EveryStep(3), sigma=0.1 / mu), 1e-6)
    assert told.upper(1e-6) == pytest.approx(gaussian, rel=1e-8)


@pytest.mark.parametrize(
    ("law", "sigma", "lower", "upper"),
    [
        (CheckIn(10, 3), 0.35, 28.161, 28.172),
        (CheckIn(10, 3), 0.1, 224.54, 231.449),
        (EveryStep(1), 0.03, 713.068, 713.069),
        (EveryStep(1), 0.001, 504752.4, 504752.5),
        (EveryStep(10**9), 1000.0, 649.385, 649.386),
    ],
)
def test_schemes_with_very_little_noise_have_a_bound(law, sigma, lower, upper):
    found = price(scheme(law, sigma=sigma), 1e-6)
    assert lower <= found.epsilon.lower <= found.epsilon.upper <= upper


def test_epsilon_of_rare_releases_ignores_improbable_numbers_of_releases():
    told = decompose(scheme(PoissonSampling(0.01, steps=1000), sigma=0.05)).unhidden
    assert 4000 < told.lower(1e-6, certain=False) < told.upper(1e-6) < 7000  # of 200,000


def test_calibration_meets_a_target_epsilon_of_1000():
    found = calibrate_noise(lambda s: scheme(EveryStep(1), sigma=s), 1000.0, 1e-6)
    assert found == pytest.approx(0.02485, rel=1e-3)
    assert price(scheme(CheckIn(10, 3), sigma=0.35), 1e-6).epsilon.upper < 28.2


def test_likelihood_ratios_that_overflow_fall_back_to_the_closed_form():
    law = FixedAssignment(100, 10)
    found = price(scheme(law, REPLACE, sigma=1e-3), 1e-30)
    assert "unamplified" in found.method
    assert found.epsilon.upper < 1.1e7  # 10 releases, each twice, in steps of their own


def test_the_method_field_names_the_closed_form_that_gives_the_bound():
    assert "unamplified" in price(scheme(CheckIn(10, 3), sigma=0.1), 1e-6).method
    assert "unamplified" not in price(scheme(CheckIn(10, 3), sigma=1.0), 1e-6, 0.1).method


@pytest.mark.parametrize(
    ("law", "relation", "release"),
    [
        (CheckIn(9), ADD, ONE),
        (CheckIn(9, 3), REPLACE, AGGREGATED),
        (PoissonSampling(0.1, 9), ADD, AGGREGATED),
        (AvailabilityCheckIn(np.eye(3, 9, 2, dtype=np.bool_), 3), ADD, AGGREGATED),
    ],
    ids=str,
)
def test_epsilon_of_a_single_step_is_computed_without_a_loss_grid(law, relation, release, mutate):
    whole, alone = scheme(law, relation, release), scheme(CheckIn(1), relation, release)
    mutate(composition, "_reach", None)
    found = epsilon_upper(whole, 1e-5, 1, shared=True)
    assert found == epsilon_upper(whole, 1e-5, 1) <= epsilon_upper(alone, 1e-5)


def test_the_lower_bound_does_not_count_a_partial_sliding_window():
    """Two sliding draws after one another, read two steps into the second.

    The first clients of the second draw have two of its steps, but one step only of the first draw,
    where they are absent with chance 1/2; client 40 and later have two steps of the first alone.
    """
    sigma, delta, samples = 0.1, 0.1, 40_000
    first, second = Staggered(2, 3, 40), Staggered(2, 120, 1)
    parts = (Form.of(first) + Form.of(second)).released(4)
    drawn = [drawn_blocks_of(part) for part in parts]
    counted = [
        [replace(d, log_sets=math.log(2.0)) if d.log_sets is None else d for d in part]
        for part in drawn
    ]
    asked = scheme(SlidingWindow(2, 3), sigma=sigma)
    below, above_the_truth = (
        Unhidden(below=[each for part in some for each in unhidden(asked, part).below])
        for some in (drawn, counted)
    )
    random = np.random.default_rng(1)

    def ratio(noise, steps):  # log density ratios of these steps with the client's contribution
        return (noise + steps - 0.5) / sigma**2

    half = math.log(0.5)
    noise, there = random.normal(size=(samples, 3)) * sigma, random.random(samples) < 0.5
    slots = np.eye(2)[random.integers(0, 2, samples)]
    early = np.logaddexp(half, half + ratio(noise[:, 0], there))
    early += half + np.logaddexp(*ratio(noise[:, 1:], slots).T)
    late = half + np.logaddexp(*ratio(noise[:, 1:], slots).T)

    def most(epsilon: float) -> float:  # the largest δ(ε) of both clients
        return max(-np.expm1(np.minimum(epsilon - r, 0.0)).mean() for r in (early, late))

    assert most(below.lower(delta, certain=False)) > 0.95 * delta
    assert most(above_the_truth.lower(delta, certain=False)) < 0.95 * delta
