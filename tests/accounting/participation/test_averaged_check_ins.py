"""Averaged check-ins analysed as shuffles, against the ε of the paper and an enumeration."""

from __future__ import annotations

import itertools
import math

import check_in_forms
import pytest
import shuffle_truths as truths

from turnout.accounting.divergence.composition import run_epsilon
from turnout.accounting.divergence.curves import Direction, Side
from turnout.accounting.shuffling.blanket import clones_2021
from turnout.accounting.shuffling.schemes import averaged_window
from turnout.core.errors import ParameterError, UnsupportedError
from turnout.schemes import (
    ApproximateRandomizer,
    GaussianNoise,
    KaryResponse,
    LaplaceNoise,
    NonAdaptiveRandomizer,
    PureRandomizer,
)


def view(records, local_epsilon: float, probability: float, steps: int = 2):
    """Probabilities of the counts of participants and the averages that a window shows.

    The model changes: a step flips all records if more than half of the messages before it are
    ones.
    """
    distributions = truths.response(local_epsilon, 2)
    total: dict[tuple, float] = {}
    slots = [*range(steps), None]
    for draws in itertools.product(slots, repeat=len(records)):
        chance = math.prod(1 - probability if d is None else probability / steps for d in draws)
        views: dict[tuple, float] = {(): chance}
        for step in range(steps):
            grown: dict[tuple, float] = {}
            for observed, share in views.items():
                present = sum(count for count, _ in observed)
                flip = 2 * sum(ones for _, ones in observed) > present
                here = [
                    distributions[r ^ flip]
                    for r, d in zip(records, draws, strict=True)
                    if d == step
                ]
                for counts, own in (truths.shuffled(here) if here else {(0, 0): 1.0}).items():
                    key = (*observed, (len(here), counts[1]))
                    grown[key] = grown.get(key, 0.0) + share * own
            views = grown
        for observed, share in views.items():
            total[observed] = total.get(observed, 0.0) + share
    return total


@pytest.mark.parametrize("local_epsilon", [0.6, 2.0])
@pytest.mark.parametrize("probability", [1.0, 0.5])
@pytest.mark.parametrize("steps", [1, 2])
def test_enumerated_delta_of_an_averaged_window_is_at_most_its_bound(
    local_epsilon, probability, steps
):
    window = averaged_window(PureRandomizer(local_epsilon), 4, probability)
    for others in ((0, 0, 0), (0, 0, 1), (0, 1, 1), (1, 1, 1)):
        distributions = [view((own, *others), local_epsilon, probability, steps) for own in (0, 1)]
        for delta in (0.1, 0.03, 0.005):
            epsilon = run_epsilon([(window.upper, 1)], Direction.REMOVE, Side.UPPER, delta, 0)
            for one, other in (distributions, distributions[::-1]):
                assert truths.hockey_stick(one, other, math.exp(epsilon)) <= delta * (1 + 1e-9)


def test_a_window_of_one_step_attains_its_lower_bound():
    """If all other records are equal, averaged bits show what a shuffler shows."""
    for probability in (1.0, 0.5):
        window = averaged_window(PureRandomizer(1.0), 4, probability)
        one, other = (view((own, 0, 0, 0), 1.0, probability, 1) for own in (1, 0))
        assert window.lower is not None
        for delta in (0.1, 0.02):
            remove, add = (
                run_epsilon([(window.lower, 1)], direction, Side.LOWER, delta, 0)
                for direction in Direction
            )
            assert truths.hockey_stick(one, other, math.exp(remove)) >= delta * (1 - 1e-9)
            assert truths.hockey_stick(other, one, math.exp(add)) >= delta * (1 - 1e-9)
            assert max(remove, add) > 0


def test_averaged_window_epsilon_is_below_theorem_4_1():
    """docs/errata.md, random check-ins 5: n = 10⁶, m = 10³, ε₀ = 1, at δ = 10⁻⁶."""
    paper = check_in_forms.theorem_4_1_best_split(1.0, 10**6, 10**3, 1e-6)
    assert paper == pytest.approx(2.49, abs=0.01)
    window = averaged_window(PureRandomizer(1.0), 10**6, 1.0)
    epsilon = run_epsilon([(window.upper, 1)], Direction.REMOVE, Side.UPPER, 1e-6, 0)
    assert epsilon == pytest.approx(0.00351, abs=5e-6)
    assert clones_2021(1.0, 10**6, 1e-6) == pytest.approx(0.0043, abs=5e-5)


@pytest.mark.parametrize(
    "randomizer", [PureRandomizer(1.0), GaussianNoise(4.0), ApproximateRandomizer(1.0, 1e-13)]
)
@pytest.mark.parametrize("windows", [1, 3])
def test_the_lower_bound_of_averaged_windows_is_below_the_upper_bound(randomizer, windows):
    for probability in (0.2, 1.0):
        window = averaged_window(randomizer, 10_000, probability)
        upper = run_epsilon([(window.upper, windows)], Direction.REMOVE, Side.UPPER, 1e-6, 0)
        assert window.lower is not None
        lower = run_epsilon([(window.lower, windows)], Direction.REMOVE, Side.LOWER, 1e-6, 0)
        assert 0 < lower < upper
    # A client that takes part less often has a smaller ε.
    whole = averaged_window(randomizer, 10_000, 1.0).upper
    some = averaged_window(randomizer, 10_000, 0.2).upper
    assert run_epsilon([(some, windows)], Direction.ADD, Side.UPPER, 1e-6, 0) < run_epsilon(
        [(whole, windows)], Direction.ADD, Side.UPPER, 1e-6, 0
    )


def test_non_adaptive_randomizer_has_the_adaptive_bound_in_averaged_windows():
    """The model changes, so the message of a record is not fixed before the window."""
    pure = averaged_window(PureRandomizer(1.0), 1000, 1.0)
    assert averaged_window(NonAdaptiveRandomizer(1.0), 1000, 1.0).upper == pure.upper
    response = averaged_window(KaryResponse(1.0, 4), 1000, 1.0)
    assert response.upper == pure.upper
    assert response.lower is None


def test_unsupported_randomizers_and_probabilities_are_refused():
    with pytest.raises(UnsupportedError, match="averaged"):
        averaged_window(LaplaceNoise(1.0), 10, 1.0)
    with pytest.raises(ParameterError):
        averaged_window(PureRandomizer(1.0), 10, 0.0)
    with pytest.raises(ParameterError):
        averaged_window(PureRandomizer(1.0), 0, 1.0)
