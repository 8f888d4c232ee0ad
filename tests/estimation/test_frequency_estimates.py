"""From messages to frequencies: scores, tallies, post-processing, standard errors, limits."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest
from hadamard_blocks import printed_response
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from turnout.core.errors import ParameterError
from turnout.estimation import (
    FrequencyTally,
    clip_and_normalise,
    collect,
    estimate_frequencies,
    normalise,
    project_simplex,
)
from turnout.estimation.frequencies import (
    WAYS,
    binomial_p_values,
    frequency_intervals,
    holm,
    items_above,
    shrink,
)
from turnout.estimation.tallies import Evidence, column_sums, evidence
from turnout.randomizers import (
    FrequencyRandomizer,
    HadamardRandomizer,
    KaryRandomizedResponse,
    LocalHashing,
    OneBitHadamard,
    SubsetSelection,
    UnaryEncoding,
)
from turnout.randomizers.hadamard import walsh_hadamard
from turnout.randomizers.indexed import IndexedRandomizer
from turnout.randomness import SimulationStreams
from turnout.testing import assert_mean, assert_rejects

ALL = [
    KaryRandomizedResponse(1.0, 7),
    HadamardRandomizer(1.0, 7),
    HadamardRandomizer(2.0, 20, blocks=3),
    printed_response(4.0, 20),
    OneBitHadamard(1.0, 20),
    OneBitHadamard(1.0, 16, public=True),
    LocalHashing(1.0, 20),
    LocalHashing(1.0, 20, cells=2, public=True),
    LocalHashing(1.0, 120, cells=11),
    LocalHashing(3.0, 5),
    UnaryEncoding(1.0, 70),
    UnaryEncoding(1.0, 20, form="symmetric"),
    SubsetSelection(1.0, 70),
]


def source(*name):
    return SimulationStreams(20).source(*name)


def encoded(randomizer: FrequencyRandomizer, values, stream):
    if isinstance(randomizer, IndexedRandomizer):
        questions = randomizer.draw_questions(len(values), stream)
        return randomizer.encode(values, stream, questions)
    return randomizer.encode(values, stream)


def numbers(messages) -> list[int]:
    if messages.ndim == 1:
        return [int(code) for code in messages]
    return [sum(int(word) << (64 * i) for i, word in enumerate(row)) for row in messages]


@pytest.mark.parametrize("randomizer", ALL, ids=str)
def test_the_scores_of_items_are_sums_of_the_scores_of_single_messages(randomizer):
    stream = source("scores")
    messages = encoded(randomizer, stream.below(randomizer.items, 60), stream)
    tally = FrequencyTally.of(randomizer, messages)
    found = randomizer.scores(tally.counts)
    single = [[randomizer.score(n, v) for v in range(randomizer.items)] for n in numbers(messages)]
    assert found.tolist() == np.sum(single, axis=0).tolist()
    told = evidence(tally)
    assert told.squares.tolist() == np.sum(np.square(single), axis=0).tolist()
    if told.counts is not None:
        lift = (told.counts / 60 - told.other) / told.lift
        assert lift == pytest.approx(estimate_frequencies(tally, "raw").frequencies)


@pytest.mark.parametrize("randomizer", ALL, ids=str)
def test_tallies_of_blocks_of_messages_add_up_in_any_order(randomizer):
    stream = source("merge")
    messages = encoded(randomizer, stream.below(randomizer.items, 100), stream)
    whole = FrequencyTally.of(randomizer, messages)
    parts = [FrequencyTally.of(randomizer, part) for part in np.array_split(messages, 7)]
    for order in (parts, parts[::-1]):
        total = sum(order, FrequencyTally.zero(randomizer))
        assert total.clients == 100
        assert np.array_equal(total.counts, whole.counts)
    other = KaryRandomizedResponse(0.123, randomizer.items)
    with pytest.raises(ParameterError, match="randomizer"):
        whole + FrequencyTally.zero(other)


def test_tallies_of_invalid_messages_are_refused():
    with pytest.raises(ParameterError, match="codes"):
        FrequencyTally.of(KaryRandomizedResponse(1.0, 5), np.array([5]))
    with pytest.raises(ParameterError, match="codes"):
        FrequencyTally.of(KaryRandomizedResponse(1.0, 5), np.array([0.5]))
    with pytest.raises(ParameterError, match="bitmaps"):
        FrequencyTally.of(UnaryEncoding(1.0, 65), np.zeros((3, 1), dtype=np.uint64))
    with pytest.raises(ParameterError, match="clients"):
        estimate_frequencies(FrequencyTally.zero(UnaryEncoding(1.0, 65)))


@pytest.mark.parametrize(("n", "columns"), [(0, 5), (1, 64), (23, 65), (200, 3), (40_000, 100)])
def test_column_sums_of_packed_bits_count_the_set_bits(n, columns):
    rows = source("columns").packed_bernoulli(0.3, n, columns)
    bits = np.unpackbits(rows.view(np.uint8), axis=1, bitorder="little")
    assert column_sums(rows, columns).tolist() == bits[:, :columns].sum(axis=0).tolist()


def test_the_walsh_hadamard_transform_equals_the_product_with_its_matrix():
    signs = np.array([[(-1) ** (i & j).bit_count() for i in range(16)] for j in range(16)])
    table = source("walsh").below(100, 48).reshape(3, 16)
    assert np.array_equal(walsh_hadamard(table), table @ signs)


@pytest.mark.parametrize("randomizer", ALL, ids=str)
def test_raw_frequencies_are_unbiased_with_the_stated_variance(randomizer):
    n, rounds, k = 400, 1500, randomizer.items
    held = np.concatenate([np.zeros(200), np.ones(120), np.arange(80) % k]).astype(np.int64)
    truth = np.bincount(held, minlength=k) / n
    stream = source("unbiased")
    messages = encoded(randomizer, np.tile(held, rounds), stream)
    raw = np.array(
        [
            estimate_frequencies(FrequencyTally.of(randomizer, part), "raw").frequencies
            for part in np.split(messages, rounds)
        ]
    )
    variance = randomizer.variance(truth, n)
    for item in (0, 1, k - 1):
        errors = (raw[:, item] - truth[item]) / math.sqrt(variance[item])
        assert_mean(errors, 0.0)
        assert_mean(errors**2, 1.0)
    squared = ((raw - truth) ** 2).sum(axis=1)
    assert_mean(squared, float(variance.sum()))
    assert variance.sum() <= randomizer.mse_bound(n) * (1 + 1e-12)
    assert_rejects(
        lambda values: assert_mean(values, truth[0]),
        {"half the gain": raw[:, 0] * 2, "another item": raw[:, 1]},
    )
    assert_rejects(
        lambda values: assert_mean(values, 1.0),
        {
            "twice the clients": ((raw[:, 1] - truth[1]) ** 2) / variance[1] * 2,
            "60 % too much": ((raw[:, 1] - truth[1]) ** 2) / variance[1] * 1.6,
        },
    )


finite = st.floats(-3, 3)
vectors = arrays.arrays(np.float64, st.integers(1, 30), elements=finite)


@given(vectors, vectors)
def test_the_projection_to_the_simplex_is_the_nearest_point(raw, other):
    found = project_simplex(raw)
    assert found.min() >= 0
    assert found.sum() == pytest.approx(1, abs=1e-12)
    # The nearest point of a convex set: no point of the set is at an obtuse angle from it.
    target = np.resize(np.abs(other) + 1e-3, raw.size)
    target /= target.sum()
    assert (raw - found) @ (target - found) <= 1e-9
    assert np.linalg.norm(found - target) <= np.linalg.norm(raw - target) + 1e-9
    corner = np.eye(raw.size)[int(np.argmax(raw))]
    assert (raw - found) @ (corner - found) <= 1e-9


@given(vectors)
def test_clipped_and_normalised_frequencies_sum_to_one(raw):
    clipped = clip_and_normalise(raw)
    assert clipped.min() >= 0
    assert clipped.sum() == pytest.approx(1)
    assert normalise(raw).sum() == pytest.approx(1)
    assert np.ptp(normalise(raw) - raw) < 1e-9


def test_clipping_and_normalising_differs_from_the_projection():
    raw = np.array([0.7, 0.6, -0.2])
    assert np.linalg.norm(clip_and_normalise(raw) - project_simplex(raw)) > 0.01
    assert project_simplex(raw) == pytest.approx([0.55, 0.45, 0.0])
    assert project_simplex([1e300, 0.0]) == pytest.approx([1.0, 0.0])
    for function in (project_simplex, clip_and_normalise, normalise):
        for wrong in ([], [math.nan], [[0.5, 0.5]]):
            with pytest.raises(ParameterError, match="raw"):
                function(wrong)


def test_each_kind_of_post_processing_has_less_error_than_the_one_before():
    items, n = 300, 100_000
    truth = 1 / np.arange(1, items + 1)
    truth /= truth.sum()
    held = np.repeat(np.arange(items), np.rint(truth * n).astype(np.int64))
    truth = np.bincount(held) / held.size
    tally = collect(HadamardRandomizer(1.0, items), held, source("order"))
    error = {
        way: np.linalg.norm(estimate_frequencies(tally, way).frequencies - truth) for way in WAYS
    }
    assert error["empirical-bayes"] < error["simplex"] < error["normalise"] <= error["raw"]


def test_shrunk_frequencies_are_near_the_exact_posterior_mean():
    stream = np.random.Generator(np.random.PCG64(5))
    truth = np.where(np.arange(6000) % 2, 0.0, 1 / 3000)
    errors = np.full(6000, 1e-4)
    raw = truth + errors * stream.normal(size=6000)
    found = shrink(raw, errors)
    # The posterior mean under the true distribution, which estimators do not know.
    odds = np.exp((raw**2 - (raw - 1 / 3000) ** 2) / (2 * 1e-8))
    best = odds / (1 + odds) / 3000
    assert np.sum((found - truth) ** 2) < 1.1 * np.sum((best - truth) ** 2)
    assert np.sum((found - truth) ** 2) < 0.6 * np.sum((project_simplex(raw) - truth) ** 2)
    assert found.sum() == pytest.approx(1)
    for wrong in ([0.0] * 6000, [1e-4]):
        with pytest.raises(ParameterError, match="standard_errors"):
            shrink(raw, wrong)


def coverage(randomizer, confidence, simultaneous, rounds=400) -> tuple[int, int]:
    """Number of rounds (of intervals, or of whole families) in which the limits are valid."""
    n, k = 300, randomizer.items
    held = np.concatenate([np.zeros(150), np.arange(150) % k]).astype(np.int64)
    truth = np.bincount(held, minlength=k) / n
    stream = source("coverage", str(confidence))
    messages = encoded(randomizer, np.tile(held, rounds), stream)
    holding = trials = 0
    for part in np.split(messages, rounds):
        told = evidence(FrequencyTally.of(randomizer, part))
        limits = frequency_intervals(told, confidence, simultaneous)
        held_by = (limits.low <= truth) & (truth <= limits.high)
        holding += int(held_by.all()) if simultaneous else int(held_by[0])
        trials += 1
    return holding, trials


@pytest.mark.parametrize("randomizer", [ALL[0], ALL[2], ALL[4], ALL[10]], ids=str)
@pytest.mark.parametrize("simultaneous", [False, True])
def test_confidence_intervals_cover_the_true_frequencies_as_often_as_stated(
    randomizer, simultaneous
):
    from scipy import stats

    holding, trials = coverage(randomizer, 0.9, simultaneous)
    # Fails with chance 1e-9 if the coverage is 90 %.
    assert stats.binom.cdf(holding, trials, 0.9) > 1e-9
    # The negative control: limits of half the width fail.
    holding, trials = coverage(randomizer, 0.5, False)
    assert stats.binom.cdf(holding, trials, 0.9) < 1e-9 or randomizer is ALL[2]


def told(counts, n=1000, other=0.25, lift=0.25) -> Evidence:
    array = np.array(counts)
    return Evidence(n, array, array, lift, array, other, lift)


def test_confidence_limits_equal_clopper_pearson_intervals():
    from scipy import stats

    limits = frequency_intervals(told([0, 1, 300, 500, 1000], lift=0.75), 0.95)
    for count, low, high in zip([1, 300, 500], limits.low[1:4], limits.high[1:4], strict=True):
        exact = stats.binomtest(count, 1000).proportion_ci(0.95, "exact")
        assert low == pytest.approx(max((exact.low - 0.25) / 0.75, 0), abs=1e-9)
        assert high == pytest.approx(max((exact.high - 0.25) / 0.75, 0), abs=1e-9)
    assert (limits.low[0], limits.high[4]) == (0, 1)
    for confidence in (0.4, 1.0, math.nan):
        with pytest.raises(ParameterError, match="confidence"):
            frequency_intervals(told([1]), confidence)


def test_simultaneous_confidence_limits_are_consistent_with_a_sum_of_one():
    # Shares near 1/2 and 1/2: each is determined by the other as well.
    limits = frequency_intervals(told([375, 500]), 0.95, simultaneous=True)
    assert limits.high[0] <= 1 - limits.low[1] + 1e-9
    alone = frequency_intervals(told([375, 500]), 0.975)
    assert np.all(limits.low >= alone.low - 1e-12)
    assert np.all(limits.high <= alone.high + 1e-12)


def test_p_values_of_heavy_hitters_are_binomial_tails():
    from scipy import stats

    counts = [0, 250, 300, 1000]
    for mean in (0.25, 0.3, 1.0):
        expected = stats.binom.sf(np.array(counts) - 1, 1000, mean)
        assert binomial_p_values(np.array(counts), 1000, mean) == pytest.approx(expected, rel=1e-9)


def test_the_holm_test_rejects_more_hypotheses_than_bonferroni():
    p = np.array([0.04, 0.012, 0.013, 0.9])
    assert holm(p, 0.05).tolist() == [1, 2]
    assert (p <= 0.05 / 4).sum() == 1
    assert holm(np.array([0.001]), 0.05).tolist() == [0]
    assert holm(np.array([1.0, 1.0]), 0.05).size == 0


@pytest.mark.parametrize(
    "randomizer", [OneBitHadamard(2.0, 50), HadamardRandomizer(2.0, 50, blocks=4)]
)
def test_items_at_the_threshold_are_rarely_named_as_heavy_hitters(randomizer):
    from scipy import stats

    n, rounds = 4000, 150
    # Item 0 is frequent; items 1 to 9 are exactly at the threshold and must not be named.
    held = np.concatenate([np.zeros(2200), np.repeat(np.arange(1, 10), 200)]).astype(np.int64)
    stream = source("heavy")
    messages = encoded(randomizer, np.tile(held, rounds), stream)
    wrong = found = 0
    naive = 0
    for part in np.split(messages, rounds):
        told_here = evidence(FrequencyTally.of(randomizer, part))
        named = items_above(told_here, 200 / n, 0.1)
        wrong += bool(set(named.tolist()) - {0})
        found += 0 in named
        naive += bool(set(np.flatnonzero(told_here.sums / n / told_here.gain > 0.05)) - {0})
    assert found == rounds
    assert stats.binom.sf(wrong - 1, rounds, 0.1) > 1e-9
    # The negative control: naming all raw estimates above the threshold fails nearly always.
    assert stats.binom.sf(naive - 1, rounds, 0.1) < 1e-9
    for threshold, error in ((-0.1, 0.1), (0.1, 0.3), (0.1, 0.0)):
        with pytest.raises(ParameterError):
            items_above(told_here, threshold, error)


def test_the_text_of_an_estimate_states_its_privacy():
    tally = collect(OneBitHadamard(1.0, 5, public=True), np.arange(500) % 5, source("words"))
    estimate = estimate_frequencies(tally)
    assert (estimate.epsilon, estimate.clients, estimate.bits) == (1.0, 500, 500)
    text = str(estimate)
    for word in ("500 clients", "ε = 1", "pure", "replace-one", "one client", "local", "1 bits"):
        assert word in text
    assert estimate.heavy_hitters(0.9).size == 0
    assert estimate.intervals().confidence == 0.95
    with pytest.raises(ParameterError, match="post_processing"):
        estimate_frequencies(tally, "magic")


def test_a_million_clients_are_collected_in_blocks():
    values = np.arange(1_000_000, dtype=np.int16) % 1000
    for randomizer in (OneBitHadamard(1.0, 1000), LocalHashing(1.0, 1000)):
        tracemalloc.start()
        tally = collect(randomizer, values, source("stream"))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert tally.clients == 1_000_000
        assert peak < 32 * 2**20


@pytest.mark.parametrize("items", [1, 2, 10])
def test_shrinking_hardly_changes_precise_estimates(items):
    stream = np.random.Generator(np.random.PCG64(6))
    truth = 2.0 ** -np.arange(1, items + 1)
    truth[-1] *= 2
    for error in (1e-2, 1e-3, 1e-5):
        raw = truth + error * stream.normal(size=items)
        found = shrink(raw, np.full(items, error))
        # Never much worse than the raw estimate, whose error is √k standard errors.
        assert np.linalg.norm(found - truth) < 2 * np.linalg.norm(raw - truth) + 1e-3 * error
        assert found.min() >= 0
        assert found.sum() == pytest.approx(1)
    assert shrink(np.full(items, -1.0), np.full(items, 0.1)) == pytest.approx(1 / items)
