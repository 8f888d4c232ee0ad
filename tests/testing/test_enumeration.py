"""The enumerator returns exact distributions and refuses samplers that it cannot enumerate."""

from fractions import Fraction

import numpy as np
import pytest

from turnout.core.errors import NumericalError, UnsupportedError
from turnout.testing import enumerate_outputs


def test_enumerating_two_dice_gives_the_exact_distribution_of_the_sum():
    distribution = enumerate_outputs(lambda source: int(source.below(6, 2).sum()))
    assert distribution == {s: Fraction(6 - abs(s - 5), 36) for s in range(11)}


def test_enumerated_bernoulli_draws_have_their_exact_probability():
    distribution = enumerate_outputs(lambda source: source.bernoulli(0.1, 2))
    p = Fraction(0.1)
    assert distribution[(True, True)] == p * p
    assert distribution[(False, True)] == p * (1 - p)


@pytest.mark.parametrize(("p", "expected"), [(0.0, 0), (1.0, 3)])
def test_enumeration_skips_draws_of_probability_zero(p, expected):
    assert enumerate_outputs(lambda source: source.binomial(3, p)) == {expected: 1}
    coins = (expected > 0,) * 3
    assert enumerate_outputs(lambda source: source.bernoulli(p, 3)) == {coins: 1}


def test_enumeration_allows_a_number_of_draws_that_depends_on_earlier_draws():
    distribution = enumerate_outputs(
        lambda source: tuple(source.below(2, int(source.below(3, 1)[0])))
    )
    assert distribution[()] == Fraction(1, 3)
    assert distribution[(1,)] == Fraction(1, 6)
    assert distribution[(0, 1)] == Fraction(1, 12)


def test_enumerated_binomial_draws_have_their_exact_distribution():
    distribution = enumerate_outputs(lambda source: source.binomial(3, 0.25))
    assert distribution == {
        0: Fraction(27, 64),
        1: Fraction(27, 64),
        2: Fraction(9, 64),
        3: Fraction(1, 64),
    }


def test_enumerated_arrays_and_lists_become_tuples():
    distribution = enumerate_outputs(lambda source: [source.below(1, 2), np.float64(0.5)])
    assert distribution == {((0, 0), 0.5): 1}


def test_enumerating_an_outcome_that_cannot_be_compared_is_refused():
    with pytest.raises(UnsupportedError, match="type dict cannot be compared"):
        enumerate_outputs(lambda source: {})


def test_enumerating_a_sampler_with_rejection_is_refused():
    def rejecting(source):
        while source.below(2, 1)[0]:
            pass

    with pytest.raises(UnsupportedError, match="more than 50 sequences"):
        enumerate_outputs(rejecting, max_paths=50)


def test_enumerating_a_draw_from_a_huge_range_is_refused():
    with pytest.raises(UnsupportedError, match="too large to enumerate"):
        enumerate_outputs(lambda source: source.below(2**62, 1))


def test_enumerating_a_sampler_with_hidden_state_is_refused():
    calls = []

    def forgetful(source):
        calls.append(None)
        return source.below(2 + len(calls) % 2, 2)

    with pytest.raises(NumericalError, match="other draws when its draws are replayed"):
        enumerate_outputs(forgetful)
