"""Where dp-accounting has an answer of its own: no amplification, Poisson sampling."""

import pytest
from dp_accounting.pld import privacy_loss_distribution as pld

from turnout.accounting import price
from turnout.schemes import CheckIn, EveryStep, GaussianNoise, PoissonSampling, Relation, Scheme


def priced(sigma: float, law, delta: float):
    return price(Scheme(GaussianNoise(sigma), law, Relation.ADD_REMOVE), delta).epsilon


@pytest.mark.parametrize(("sigma", "steps"), [(1.0, 1), (3.0, 10), (0.5, 2)])
def test_epsilon_of_participation_in_every_step_equals_the_composed_gaussian(sigma, steps):
    theirs = pld.from_gaussian_mechanism(sigma / steps**0.5, value_discretization_interval=1e-4)
    ours = priced(sigma, EveryStep(steps), 1e-6)
    assert ours.upper == pytest.approx(theirs.get_epsilon_for_delta(1e-6), rel=1e-5)
    assert ours.relative_width < 1e-6


@pytest.mark.parametrize("sigma", [0.7, 2.0])
def test_a_window_of_one_step_gives_no_amplification(sigma):
    assert priced(sigma, CheckIn(1, 4), 1e-5).upper == pytest.approx(
        priced(sigma / 2, EveryStep(1), 1e-5).upper, rel=1e-3
    )


@pytest.mark.parametrize(
    ("sigma", "rate", "steps"), [(1.0, 0.01, 1000), (0.8, 0.1, 50), (2.0, 0.5, 20)]
)
def test_poisson_sampling_agrees_with_dp_accounting(sigma, rate, steps):
    """dp-accounting also rounds up, so its ε is above the lower bound and near the upper one."""
    theirs = (
        pld.from_gaussian_mechanism(sigma, sampling_prob=rate, value_discretization_interval=1e-4)
        .self_compose(steps)
        .get_epsilon_for_delta(1e-5)
    )
    ours = priced(sigma, PoissonSampling(rate, steps), 1e-5)
    assert ours.lower <= theirs
    assert ours.upper == pytest.approx(theirs, rel=1e-3)


def test_a_wrong_sampling_rate_is_detected():
    """Negative control for the tolerance above: 1.01 times the rate is outside it."""
    right = priced(1.0, PoissonSampling(0.01, 1000), 1e-5)
    wrong = priced(1.0, PoissonSampling(0.0101, 1000), 1e-5)
    assert wrong.lower > right.upper * (1 + 2e-3)
