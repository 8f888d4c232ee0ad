"""Estimates at every privacy level: mean and variance by enumeration of questions and messages."""

import math
import tracemalloc

import numpy as np
import pytest

from turnout.core.errors import ParameterError
from turnout.randomness import OSRandomness, SimulationStreams
from turnout.refinement import (
    Direct,
    Level,
    MultiLevel,
    OneBit,
    estimate,
    hadamard,
    multi_level,
    projective,
    spread,
)
from turnout.testing import assert_frequencies, assert_rejects

SEED = bytes(range(32))
EPSILONS = (2.0, 0.5)
SHARES = np.array([0.4, 0.3, 0.2, 0.07, 0.03])
DIRECT = {
    "k-ary": Direct(5),
    "hadamard": Direct(5, "hadamard", place_bits=2),
    "hadamard, one block": Direct(5, "hadamard", place_bits=4),
    "projective": Direct(5, "projective", prime=3, dimension=2),
    "spread": spread(5, 2),
}


def single(design, message, client):
    """Estimate from one message of one client."""
    return design.totals(np.array([message]), client)


def moments(levels, level, shares):
    """Mean and variance of the estimate from one client, over values, questions and noise."""
    design, level_noise = levels.design, levels.levels[level]
    mean, second = np.zeros(levels.size), np.zeros(levels.size)
    if isinstance(design, OneBit):
        clients = clients_of_all_columns(design)
        cells = [(client, 1 / len(clients)) for client in clients]
    else:
        cells = [(0, 1.0)]
    for value, share in enumerate(shares):
        for client, weight in cells:
            symbol = design.symbols(np.array([value]), client)
            for noise in range(design.group.order):
                heavy = noise in design.heavy
                p = float(level_noise.heavy if heavy else level_noise.light) * share * weight
                message = int(design.group.add(symbol, np.array([noise]))[0])
                found = design.frequencies(single(design, message, client), level_noise)
                mean, second = mean + p * found, second + p * found**2
    return mean, second - mean**2


def clients_of_all_columns(design):
    """One client number for each column of the design."""
    columns = design.questions.columns(0, 2000)
    return [int(np.flatnonzero(columns == column)[0]) for column in np.unique(columns)]


@pytest.mark.parametrize("level", [0, 1])
@pytest.mark.parametrize("name", ["one-bit", *DIRECT])
def test_refined_estimates_are_unbiased_with_the_stated_variance(name, level):
    levels = MultiLevel(DIRECT.get(name, OneBit(5, SEED)), EPSILONS)
    mean, variance = moments(levels, level, SHARES)
    assert mean == pytest.approx(SHARES, abs=1e-12)
    level_noise = levels.levels[level]
    stated = levels.design.variance(SHARES, 1, level_noise)
    assert stated == pytest.approx(variance, rel=1e-9)
    assert levels.design.variance(SHARES, 7, level_noise) == pytest.approx(stated / 7)
    # Negative control: with another level's distribution, neither mean nor variance agrees.
    other = levels.design.variance(SHARES, 1, levels.levels[1 - level])
    assert np.all(np.abs(other / variance - 1) > 0.2)


@pytest.mark.parametrize("name", ["one-bit", *DIRECT])
def test_estimates_with_the_probabilities_of_a_wrong_privacy_level_are_biased(name):
    levels = MultiLevel(DIRECT.get(name, OneBit(5, SEED)), EPSILONS)
    wrong = MultiLevel(levels.design, (2.0, 0.7))
    mixed = Level(wrong.levels[1].heavy, wrong.levels[1].light)
    mean, _ = moments(levels, 1, SHARES)
    design = levels.design
    biased = sum(
        share * float(np.abs(mean[value] - design_mean(design, levels.levels[1], mixed, value)))
        for value, share in enumerate(SHARES)
    )
    assert biased > 0.05


def design_mean(design, level_noise, believed, value):
    """Mean estimate if all hold ``value``: noise ``level_noise``, decoded by ``believed``."""
    total, clients = 0.0, [0]
    if isinstance(design, OneBit):
        clients = clients_of_all_columns(design)
    for client in clients:
        symbol = design.symbols(np.array([value]), client)
        for noise in range(design.group.order):
            p = float(level_noise.heavy if noise in design.heavy else level_noise.light) / len(
                clients
            )
            message = int(design.group.add(symbol, np.array([noise]))[0])
            total += p * design.frequencies(single(design, message, client), believed)[value]
    return total


def test_published_one_bit_estimates_are_unbiased_with_the_stated_variance():
    # One client answers about each column, so the moments are exact sums over independent answers.
    design = OneBit(4, SEED, "as-printed")
    level_noise = MultiLevel(design, (1.0,)).levels[0]
    shares = np.array([0.5, 0.25, 0.15, 0.1])
    mean, second = np.zeros(4), np.zeros(4)
    # Client c is asked about column c; the answer is yes with probability `yes[c]`.
    inside = np.array([[design.symbols(np.array([v]), c)[0] for v in range(4)] for c in range(4)])
    yes = float(level_noise.light) + float(level_noise.contrast) * inside @ shares
    for code in range(16):
        answers = np.array([code >> c & 1 for c in range(4)])
        p = np.prod(np.where(answers, yes, 1 - yes))
        found = design.frequencies(design.totals(answers, 0), level_noise)
        mean, second = mean + p * found, second + p * found**2
    assert mean == pytest.approx(shares, abs=1e-12)
    assert second - mean**2 == pytest.approx(design.variance(shares, 4, level_noise), rel=1e-12)


def test_the_published_one_bit_design_needs_an_answer_to_every_question():
    design = OneBit(4, SEED, "as-printed")
    level_noise = MultiLevel(design, (1.0,)).levels[0]
    with pytest.raises(ParameterError, match="at least 4"):
        design.frequencies(design.totals(np.array([1, 0, 1]), 0), level_noise)


@pytest.mark.parametrize("mechanism", ["one-bit", "k-ary", "hadamard", "projective"])
def test_refined_messages_have_the_distribution_of_their_level(mechanism):
    source = SimulationStreams(11).source("levels")
    levels = multi_level(4, EPSILONS, mechanism, source=source)
    clients = 40_000
    messages, keys = levels.encode(np.full(clients, 2), source)
    design = levels.design
    symbols = design.symbols(np.full(clients, 2), 0)
    order = design.group.order
    for index, seen in enumerate([levels.at_level(messages, keys[0]), messages]):
        noise = design.group.subtract(seen.astype(np.int64), symbols)
        counts = np.bincount(noise, minlength=order)
        distributions = (
            [levels.design.law(level) for level in levels.levels]
            if order > 2
            else [np.array([float(level.heavy), float(level.light)]) for level in levels.levels]
        )
        assert_frequencies(counts, distributions[index])
        assert_rejects(
            lambda distribution, counts=counts: assert_frequencies(counts, distribution),
            {"the other level": distributions[1 - index]},
        )


def test_totals_of_blocks_of_refined_messages_add_up():
    source = SimulationStreams(5).source("blocks")
    levels = multi_level(6, EPSILONS, "one-bit", source=source)
    values = np.arange(3000) % 6
    first, _ = levels.encode(values[:1100], source)
    second, _ = levels.encode(values[1100:], source, first=1100)
    apart = levels.totals(first) + levels.totals(second, first=1100)
    assert np.array_equal(apart, levels.totals(np.concatenate([first, second])))
    # With wrong client numbers, answers are attributed to other columns.
    assert not np.array_equal(apart, levels.totals(first) + levels.totals(second))


def test_refining_a_million_clients_needs_far_less_than_a_gibibyte():
    values = np.arange(1_000_000) % 1000
    levels = multi_level(1000, (0.5, 1.0, 4.0), "hadamard")
    tracemalloc.start()
    try:
        messages, keys = levels.encode(values, OSRandomness())
        totals = levels.totals(levels.at_level(messages, keys[0]))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert int(totals.sum()) == 1_000_000
    assert peak < 2**27


def test_projected_frequencies_and_intervals_contain_the_true_shares():
    source = SimulationStreams(3).source("estimate")
    levels = multi_level(5, EPSILONS, "k-ary", source=source)
    values = np.repeat(np.arange(5), [4000, 3000, 2000, 700, 300])
    messages, _ = levels.encode(values, source)
    found = estimate(levels, levels.totals(messages), 1)
    assert found.clients == 10_000
    assert found.frequencies.min() >= 0
    assert found.frequencies.sum() == pytest.approx(1)
    low, high = found.interval(1 - 1e-9)
    assert np.all((low <= SHARES) & (high >= SHARES))
    assert np.all(found.interval(0.5)[1] <= high)
    assert "0.5, pure, of one client's message, replace-one, local" in found.guarantee
    with pytest.raises(ParameterError, match="at least one client"):
        estimate(levels, 0 * levels.totals(messages), 1)


def test_clients_with_equal_values_have_independent_noise():
    source = SimulationStreams(8).source("sequence")
    levels = multi_level(7, (math.inf, 1.0), "minimal")
    values = np.repeat(np.arange(7), 30)
    messages, keys = levels.encode(values, source)
    assert np.array_equal(levels.at_level(messages, keys[0]), values)
    assert all(np.ptp(keys[0][values == value]) for value in range(7))


def test_the_default_design_has_near_least_error_on_every_level():
    source = SimulationStreams(1).source("seed")
    for size, epsilons in ((2, (0.5, 1, 4)), (12, (0.5, 1, 4)), (1000, (0.5, 1)), (300, (1, 4))):
        uniform = np.full(size, 1 / size)

        def errors(levels, shares=uniform):
            return np.array(
                [levels.design.variance(shares, 1, level).sum() for level in levels.levels]
            )

        chosen = errors(multi_level(size, epsilons, source=source))
        offered = [
            errors(multi_level(size, epsilons, "one-bit", source=source)),
            errors(multi_level(size, epsilons, "k-ary")),
            *(
                errors(multi_level(size, epsilons, mechanism, design_epsilon=e))
                for mechanism in ("hadamard", "projective")
                for e in epsilons
            ),
        ]
        best = np.min(offered, axis=0)
        least = min((other / best).max() for other in offered)
        assert (chosen / best).max() <= 1.25 * least + 1e-9
    assert multi_level(1000, (0.5, 1), source=source).message_bits == 1
    assert multi_level(1000, (0.5, math.inf), source=source).design.family != "one-bit"


def test_the_hadamard_block_size_has_near_least_error_for_its_epsilon():
    for size, epsilon in ((1000, 0.5), (1000, 3.0), (1000, 5.0), (40, 1.0)):
        chosen = hadamard(size, epsilon)
        uniform = np.full(size, 1 / size)

        def error(design, epsilon=epsilon, shares=uniform):
            level = MultiLevel(design, (epsilon,)).levels[0]
            return design.variance(shares, 1, level).sum()

        others = [Direct(size, "hadamard", place_bits=bits) for bits in (2, 4, 6, 8, 10)]
        fitting = [other for other in others if other.group.order <= max(4 * size, 16)]
        assert error(chosen) <= 1.1 * min(map(error, fitting))


@pytest.mark.parametrize(
    ("values", "match"),
    [([0, 5], "0 to 4"), ([-1], "0 to 4"), ([0.0], "whole numbers"), ([[0]], "whole numbers")],
)
def test_values_outside_the_domain_of_a_refinement_are_refused(values, match):
    with pytest.raises(ParameterError, match=match):
        multi_level(5, EPSILONS, "k-ary").encode(values)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: multi_level(1, EPSILONS), "size"),
        (lambda: multi_level(5, (math.inf,)), "finite level"),
        (lambda: multi_level(5, EPSILONS, "rappor"), "mechanism"),
        (lambda: OneBit(5, b"short"), "32 bytes"),
        (lambda: OneBit(5, SEED, "printed"), "variant"),
        (lambda: Direct(5, "hadamard", place_bits=3), "even"),
        (lambda: Direct(5, "k-ary", place_bits=2), "place_bits"),
        (lambda: Direct(5, "k-ary", heavy_count=2), "heavy_count"),
        (lambda: Direct(5, "other"), "family"),
        (lambda: Direct(5, "spread", heavy_count=5), "size - 1"),
        (lambda: Direct(5, "k-ary", prime=3), "prime"),
        (lambda: Direct(5, "projective", prime=4, dimension=2), "prime number"),
        (lambda: Direct(5, "projective", prime=3, dimension=1), "dimension"),
        (lambda: Direct(14, "projective", prime=3, dimension=2), "13 points"),
        (lambda: Direct(5, "projective", prime=2, dimension=25), "2\\*\\*24"),
        (lambda: Direct(2**25), "2\\*\\*24"),
        (lambda: OneBit(2**25, SEED), "2\\*\\*24"),
    ],
)
def test_invalid_refinement_designs_are_refused(make, match):
    with pytest.raises(ParameterError, match=match):
        make()


def test_a_design_without_unbiased_estimate_is_refused():
    # Two opposite elements of ℤ_4 have a spectrum with zeros, and so no unbiased estimate.
    blind = next(
        design
        for design in (Direct(4, "spread", heavy_count=2, draw=draw) for draw in range(64))
        if (design.heavy[1] - design.heavy[0]) % 4 == 2
    )
    levels = MultiLevel(blind, (1.0,))
    with pytest.raises(ParameterError, match="spectrum"):
        blind.frequencies(np.ones((1, 4), dtype=np.int64), levels.levels[0])


@pytest.mark.parametrize(
    "design",
    [
        OneBit(1000, SEED),
        Direct(1000),
        hadamard(1000, 1.0),
        hadamard(1000, 4.0),
        projective(1000, 1.0),
        projective(1000, 4.0),
        spread(1000, 300),
    ],
)
def test_the_approximate_variance_that_selects_a_design_is_close_to_exact(design):
    levels = MultiLevel(design, (4.0, 1.0, 0.25))
    uniform = np.full(1000, 1e-3)
    for level in levels.levels:
        exact = design.variance(uniform, 1, level).sum()
        assert design.total_variance(level) == pytest.approx(exact, rel=0.05)
