"""The adapter for JAX Privacy with the library itself: `make jax-privacy`."""

import math
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from jax_privacy import batch_selection as batches
from jax_privacy.experimental.monte_carlo import delta_calculation, sample_generation
from scipy.stats import chisquare

from turnout.accounting import PrivacyCurve, price
from turnout.integrations.jax_privacy import participation, scheme
from turnout.schemes import (
    CheckIn,
    EveryStep,
    FixedAssignment,
    FixedSize,
    GaussianNoise,
    PoissonSampling,
    Relation,
    Scheme,
)

sys.path.append(str(Path(__file__).resolve().parents[1]))

from page_lines import lines_of

INDEPENDENT = batches.PartitionType.INDEPENDENT
FALSE_ALARM, RUNS = 1e-6, 4000


def patterns(strategy, records=3, watched=0):
    """Number of runs for each set of iterations whose batches contain the watched record."""
    seen = Counter()
    for seed in range(RUNS):
        drawn = strategy.batch_iterator(records, np.random.default_rng(seed))
        seen[tuple(int(watched in batch) for batch in drawn)] += 1
    return seen


def chances(participation, steps):
    """Probability by definition of each set of a record's iterations among the first ``steps``."""
    found = Counter()
    if isinstance(participation, EveryStep):
        found[(1,) * steps] = 1.0
    elif isinstance(participation, PoissonSampling):
        for code in range(2**steps):
            pattern = tuple(code >> i & 1 for i in range(steps))
            ones = sum(pattern)
            found[pattern] = participation.rate**ones * (1.0 - participation.rate) ** (steps - ones)
    else:
        for slot in range(participation.window):
            pattern = tuple(int(i % participation.window == slot) for i in range(steps))
            found[pattern] += participation.probability / participation.window
        found[(0,) * steps] += 1.0 - participation.probability
    return found


@pytest.mark.parametrize(
    ("strategy", "named"),
    [
        (batches.CyclicPoissonSampling(0.3, 3), PoissonSampling(0.3, 3)),
        (
            batches.CyclicPoissonSampling(1.0, 6, cycle_length=3, partition_type=INDEPENDENT),
            FixedAssignment(3, 2),
        ),
        (
            batches.CyclicPoissonSampling(0.7, 2, cycle_length=4, partition_type=INDEPENDENT),
            CheckIn(2, 1, 0.35),
        ),
        (batches.BallsInBinsSampling(6, 3), FixedAssignment(3, 2)),
        (batches.BallsInBinsSampling(5, 3), FixedAssignment(3, 2)),
        (batches.BallsInBinsSampling(2, 3), CheckIn(2, 1, 2 / 3)),
        (batches.BallsInBinsSampling(3, 1), EveryStep(3)),
        (batches.BMinSepSampling(1.0, 6, 3), FixedAssignment(3, 2)),
    ],
    ids=str,
)
def test_the_library_draws_batches_by_the_participation_that_is_priced(strategy, named):
    found = participation(strategy, "zero-out")
    assert type(found) is type(named)
    assert found.steps == named.steps
    expected, seen = chances(named, strategy.iterations), patterns(strategy)
    assert set(seen) <= {pattern for pattern, chance in expected.items() if chance > 0}
    ordered = [p for p, chance in expected.items() if chance > 1e-12]
    if len(ordered) > 1:
        counts = [seen[p] for p in ordered]
        assert chisquare(counts, [RUNS * expected[p] for p in ordered]).pvalue > FALSE_ALARM


def test_batches_drawn_by_another_participation_are_told_apart():
    seen = patterns(batches.CyclicPoissonSampling(0.3, 3))
    wrong = chances(PoissonSampling(0.35, 3), 3)
    counts, expected = [seen[p] for p in wrong], [RUNS * chance for chance in wrong.values()]
    assert chisquare(counts, expected).pvalue < FALSE_ALARM


def test_a_batch_of_a_fixed_size_is_a_uniform_one():
    assert participation(batches.FixedBatchSampling(2, 1), "zero-out", 3) == FixedSize(2, 3, 1)
    seen = patterns(batches.FixedBatchSampling(2, 1))
    share = seen[(1,)] / RUNS
    assert abs(share - 2 / 3) < 5 * math.sqrt(2 / 9 / RUNS)


@pytest.mark.parametrize("steps", [5, 20, 60])
def test_bounds_hold_the_librarys_monte_carlo_between_them(steps):
    strategy, samples = batches.BallsInBinsSampling(steps, 20), 10_000
    plan = scheme(strategy, 1.0, "zero-out")
    for positive, direction in ((True, "remove"), (False, "add")):
        losses = sample_generation.get_privacy_loss_sample(
            strategy, 1.0, np.ones(1), 7, positive_sample=positive, num_samples=samples
        )[0]
        found = price(plan, 0.01).directions[direction]
        for epsilon, side in ((found.upper, 1.0), (found.lower, -1.0)):
            each = np.maximum(-np.expm1(epsilon - losses), 0.0)
            error = 5.0 * float(each.std()) / math.sqrt(samples)
            estimate = delta_calculation.delta_from_epsilon_and_samples(epsilon, losses)
            assert side * (estimate - 0.01) <= error
        too_small = delta_calculation.delta_from_epsilon_and_samples(0.8 * found.lower, losses)
        assert too_small > 0.01


def test_the_lines_before_estimate_what_the_lines_after_bound():
    names = {}
    exec(lines_of("JAX Privacy", "-"), names)
    assert f"{names['delta']:.4f}" in lines_of("JAX Privacy", "-")
    after = Scheme(GaussianNoise(1.0), FixedAssignment(20, 3), Relation.ZERO_OUT)
    bounds = PrivacyCurve.of(after).delta(2.0)
    each = np.maximum(-np.expm1(2.0 - names["losses"]), 0.0)
    error = 5.0 * float(each.std()) / math.sqrt(each.size)
    assert bounds.lower - error <= names["delta"] <= bounds.upper + error
    assert names["delta"] - error > 0.5 * bounds.lower  # the error bars can tell bounds apart


@pytest.mark.parametrize(
    "strategy",
    [
        batches.BMinSepSampling(0.5, 6, 3),
        batches.CyclicPoissonSampling(0.3, 3, truncated_batch_size=2),
        batches.FixedBatchSampling(2, 3, replace=True),
    ],
    ids=str,
)
def test_what_has_no_sound_price_is_refused(strategy):
    with pytest.raises(Exception, match="analysis"):
        participation(strategy, "zero-out", 10)
