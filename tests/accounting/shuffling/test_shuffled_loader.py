"""A data loader that shuffles has none of the guarantees of independent draws.

A loader deals n records into T batches of one size, each record into exactly one, by a permutation
that is reused in every epoch or drawn afresh. Positions without replacement depend on each other.

The counterexample, under zero-out (and so replace-one, which allows the null record as well):
batch size 1, every other record's clipped gradient is −C, hers is +C, the null record's is 0. All
steps release −C plus noise, but for hers, which lies 2C higher in one world and C higher in the
other: the gap that the others leave shows in both worlds where she is. The event "some step is
high" depends on nothing but independent Gaussians, so that its probabilities are exact.

Source of the pair: Chua et al., "How private are DP-SGD implementations?", 2024, section 3.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom, norm

from turnout.accounting import price
from turnout.schemes import CheckIn, EveryStep, FixedAssignment, GaussianNoise, Relation, Scheme

HEIGHTS = np.linspace(0.0, 12.0, 24_001)
DELTA, FALSE_ALARM = 1e-6, 1e-9


def some_step_is_high(height, shift: float, steps: int) -> np.ndarray:
    """P(max > height) of ``steps`` unit Gaussians, one of which has this mean."""
    below = norm.logcdf(np.asarray(height) - shift) + (steps - 1) * norm.logcdf(height)
    return -np.expm1(below)


def loader_delta(epsilon: float, noise: float, steps: int, epochs: int = 1) -> float:
    """A lower bound on a loader's δ: P(A) − e^ε·Q(A) of the best of these events.

    ``epochs`` in which one permutation is reused add up to less noise; of permutations that are
    drawn afresh one epoch is enough for a lower bound.
    """
    gap = np.sqrt(epochs) / noise
    present = some_step_is_high(HEIGHTS, 2 * gap, steps)
    absent = some_step_is_high(HEIGHTS, gap, steps)
    return float(np.max(present - np.exp(epsilon) * absent))


def scheme(noise: float, participation) -> Scheme:
    return Scheme(GaussianNoise(noise), participation, Relation.ZERO_OUT)


def test_one_reused_permutation_exceeds_the_epsilon_of_fixed_assignment():
    epsilon = price(scheme(1.0, FixedAssignment(250, epochs=4)), DELTA).epsilon.upper
    assert epsilon == pytest.approx(5.480, abs=1e-3)
    assert loader_delta(epsilon, 1.0, 250, 4) == pytest.approx(0.0186, abs=1e-4)
    claimed = price(scheme(0.8, FixedAssignment(10_000, epochs=4)), 1.03e-5).epsilon.upper
    assert claimed <= 4.0
    assert loader_delta(4.0, 0.8, 10_000, 4) == pytest.approx(0.226, abs=1e-3)


def test_a_new_permutation_per_epoch_exceeds_the_epsilon_of_check_ins():
    epsilon = price(scheme(1.0, CheckIn(250, windows=4)), DELTA).epsilon.upper
    assert epsilon == pytest.approx(0.7534, abs=1e-4)
    assert loader_delta(epsilon, 1.0, 250) > 0.011


def test_independent_assignment_stays_within_its_bound():
    """Negative control: independent batches do not reveal the batch of an absent record."""
    for participation, epochs in ((FixedAssignment(250, epochs=4), 4), (CheckIn(250), 1)):
        epsilon = price(scheme(1.0, participation), DELTA).epsilon.upper
        present = some_step_is_high(HEIGHTS, np.sqrt(epochs), 250)
        absent = some_step_is_high(HEIGHTS, 0.0, 250)
        assert np.max(present - np.exp(epsilon) * absent) <= DELTA


@pytest.mark.parametrize("reused", [True, False])
def test_the_bound_recommended_for_a_loader_holds(reused):
    """No amplification: all other batches reveal the batch of a record in every epoch."""
    epsilon = price(scheme(1.0, EveryStep(4)), DELTA).epsilon.upper
    assert loader_delta(epsilon, 1.0, 250, 4 if reused else 1) <= DELTA


def releases(generator, runs: int, steps: int, epochs: int, hers: float, *, reused: bool):
    """Noisy sums of a loader that really shuffles, C = σ = 1, shape (runs, epochs, steps)."""
    sums = np.empty((runs, epochs, steps))
    records = np.append(np.full(steps - 1, -1.0), hers)
    for run in range(runs):
        order = generator.permutation(steps)
        for epoch in range(epochs):
            sums[run, epoch] = records[order]
            order = order if reused else generator.permutation(steps)
    return sums + generator.standard_normal(sums.shape)


@pytest.mark.parametrize("reused", [True, False])
@pytest.mark.parametrize("hers", [1.0, 0.0])
def test_simulated_releases_of_a_loader_have_the_computed_probabilities(hers, reused):
    runs, steps, epochs, height = 4_000, 20, 4, 3.0
    seen = releases(np.random.default_rng(22), runs, steps, epochs, hers, reused=reused) + 1.0
    evidence = seen.sum(axis=1) / np.sqrt(epochs) if reused else seen[:, 0]
    gap = np.sqrt(epochs) if reused else 1.0
    high = np.count_nonzero(evidence.max(axis=1) > height)
    chance = float(some_step_is_high(height, (1 + hers) * gap, steps))
    assert binom.sf(high - 1, runs, chance) > FALSE_ALARM
    assert binom.cdf(high, runs, chance) > FALSE_ALARM
    other = float(some_step_is_high(height, (2 - hers) * gap, steps))
    assert min(binom.sf(high - 1, runs, other), binom.cdf(high, runs, other)) < FALSE_ALARM


def test_the_command_help_says_that_a_shuffling_loader_has_no_analysis():
    from click.testing import CliRunner

    from turnout.cli.accounting import account

    text = " ".join(CliRunner().invoke(account, ["--help"]).output.split())
    assert "A data loader that shuffles records is none of these" in text
