"""Uniform draws are exactly uniform, and derived draws have their stated distribution."""

import os
from fractions import Fraction
from itertools import combinations
from math import comb

import numpy as np
import pytest

from turnout.core.errors import ParameterError
from turnout.randomness import OSRandomness, SimulationRandomness, SimulationStreams, Source
from turnout.testing import (
    assert_binomial,
    assert_frequencies,
    assert_rejects,
    enumerate_outputs,
)

SOURCES = [OSRandomness(), SimulationStreams(11).source("tests")]


class Scripted(Source):
    """Random source that returns one number for every draw."""

    secure = False

    def __init__(self, answer: int) -> None:
        self.answer = answer

    def below(self, n, size):
        return np.full(size, min(self.answer, n - 1), dtype=np.int64)


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: type(source).__name__)
@pytest.mark.parametrize("n", [1, 2, 3, 100, 256, 257, 1000, 65_536])
def test_uniform_draws_below_n_are_uniform(source, n):
    drawn = source.below(n, 100_000)
    assert drawn.dtype == np.int64
    assert_frequencies(np.bincount(drawn, minlength=n), np.full(n, 1 / n))


def every_word_once(size: int) -> bytes:
    """Bytes of 65,536 distinct 16-bit words, then zeros."""
    return np.arange(65_536, dtype=np.uint16).tobytes() if size == 2 * 65_536 else bytes(size)


@pytest.mark.parametrize("n", [100, 600, 7000])
def test_uniform_draws_below_n_are_exactly_uniform_by_enumeration(monkeypatch, n):
    monkeypatch.setattr(os, "urandom", every_word_once)
    usable = 65_536 - 65_536 % n
    drawn = OSRandomness().below(n, 65_536)[:usable]
    assert set(np.bincount(drawn, minlength=n)) == {usable // n}
    biased = np.arange(65_536) % n  # The mutant: modulo without rejection.
    assert len(set(np.bincount(biased, minlength=n))) > 1


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: type(source).__name__)
def test_uniform_draws_of_size_zero_and_of_the_largest_range_are_valid(source):
    assert source.below(5, 0).shape == (0,)
    large = source.below(2**62, 1000)
    assert large.min() >= 0
    assert large.max() < 2**62
    assert_binomial(int(np.count_nonzero(large >= 2**61)), 1000, 0.5)
    for n, size in [(0, 1), (-1, 1), (2**62 + 1, 1), (3, -1), (2.5, 1)]:
        with pytest.raises(ParameterError):
            source.below(n, size)


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: type(source).__name__)
def test_uniform_draws_below_several_limits_are_uniform(source):
    limits = np.tile(np.array([1, 2, 5]), 20_000)
    drawn = source.below_each(limits)
    for limit in (1, 2, 5):
        counts = np.bincount(drawn[limits == limit], minlength=limit)
        assert_frequencies(counts, np.full(limit, 1 / limit))
    assert_rejects(
        lambda counts: assert_frequencies(counts, np.full(5, 0.2)),
        {"one limit for all": np.bincount(source.below(4, 20_000), minlength=5)},
    )
    assert source.below_each(np.empty(0, dtype=np.int64)).shape == (0,)


def test_uniform_draws_below_several_limits_have_their_exact_distribution():
    distribution = enumerate_outputs(lambda source: source.below_each(np.array([2, 1, 3])))
    assert distribution == {(a, 0, c): Fraction(1, 6) for a in range(2) for c in range(3)}


@pytest.mark.parametrize("p", [0.3, 1e-18, 0.1, 1 - 2**-53])
def test_a_bernoulli_probability_is_rounded_down(p):
    highest = int(Fraction(p) * 2**62)
    assert Fraction(highest, 2**62) <= Fraction(p) < Fraction(highest + 1, 2**62)
    assert not Scripted(highest).bernoulli(p, 1)[0]
    assert Scripted(highest - 1).bernoulli(p, 1)[0]


def test_bernoulli_draws_of_probability_zero_or_one_use_no_randomness():
    assert Scripted(2**62 - 1).bernoulli(1, 3).tolist() == [True] * 3
    assert Scripted(0).bernoulli(0.0, 3).tolist() == [False] * 3
    assert Scripted(0).bernoulli(2.0**-70, 3).tolist() == [False] * 3


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: type(source).__name__)
def test_bernoulli_and_binomial_draws_have_their_probability(source):
    heads = int(np.count_nonzero(source.bernoulli(0.1, 50_000)))
    assert_binomial(heads, 50_000, 0.1)
    assert_binomial(source.binomial(50_000, 0.1), 50_000, 0.1)
    assert_rejects(
        lambda count: assert_binomial(count, 50_000, 0.1),
        {"1.5 times the rate": source.binomial(50_000, 0.15)},
    )
    assert source.binomial(0, 0.5) == 0
    for p in (-0.1, 1.1, float("nan")):
        with pytest.raises(ParameterError, match="p = "):
            source.bernoulli(p, 1)
        with pytest.raises(ParameterError, match="p = "):
            source.binomial(2, p)


@pytest.mark.parametrize(("n", "k"), [(4, 0), (4, 1), (4, 2), (5, 3), (3, 3), (0, 0)])
def test_random_subsets_by_floyds_algorithm_are_exactly_uniform(n, k):
    distribution = enumerate_outputs(lambda source: source.subset(n, k))
    assert distribution == {subset: Fraction(1, comb(n, k)) for subset in combinations(range(n), k)}


def pattern_counts(draw_one, n, k, trials):
    index = {subset: i for i, subset in enumerate(combinations(range(n), k))}
    counts = np.zeros(len(index), dtype=int)
    for _ in range(trials):
        counts[index[tuple(draw_one())]] += 1
    return counts


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: type(source).__name__)
@pytest.mark.parametrize("k", [2, 4])
def test_random_subsets_are_uniform(source, k):
    n, trials = 6, 3000
    distribution = np.full(comb(n, k), 1 / comb(n, k))
    assert_frequencies(
        pattern_counts(lambda: source.subset(n, k).tolist(), n, k, trials), distribution
    )

    def replacing_repeats_by_the_first_free_slot():
        chosen = set(source.below(n, k).tolist())
        return sorted(chosen | set(sorted(set(range(n)) - chosen)[: k - len(chosen)]))

    wrong = pattern_counts(replacing_repeats_by_the_first_free_slot, n, k, trials)
    assert_rejects(lambda counts: assert_frequencies(counts, distribution), {"repeats": wrong})


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: type(source).__name__)
def test_large_random_subsets_are_sorted_and_distinct(source):
    for k in (1000, 60_000, 100_000):
        subset = source.subset(100_000, k)
        assert len(subset) == k
        assert np.all(np.diff(subset) > 0)
        assert subset.min() >= 0
        assert subset.max() < 100_000
    assert source.subset(0, 0).shape == (0,)
    with pytest.raises(ParameterError, match="at most n = 3"):
        source.subset(3, 4)


def test_only_the_system_source_is_marked_as_secure():
    assert OSRandomness.secure
    assert not SimulationRandomness.secure
    assert "simulation only" in (SimulationRandomness.__doc__ or "").lower()


def test_the_system_source_takes_no_seed():
    with pytest.raises(TypeError):
        OSRandomness(0)  # type: ignore[call-arg]
