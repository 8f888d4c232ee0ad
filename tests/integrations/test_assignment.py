"""Independent assignment: its law, its bookkeeping, its noise."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from turnout.core.errors import ParameterError, UnsupportedError
from turnout.integrations.assignment import Assignment, assigned_participation, system_gaussian
from turnout.schemes import CheckIn, FixedAssignment, KSubset, PoissonSampling
from turnout.testing import enumerate_outputs


def record_law(law, records, record):
    """Exact law of the batches, over the whole run, in which one record is."""

    def run(source):
        dealt = Assignment(law, records, source)
        epochs = law.steps // dealt.batches
        batches = [batch for _ in range(epochs) for batch in dealt.epoch()]
        return tuple(step for step, batch in enumerate(batches) if record in batch)

    return enumerate_outputs(run)


def promised(law):
    """What the docstrings of the laws say, written down anew."""
    t, half = law.window, Fraction(1, 2)
    match law:
        case FixedAssignment():
            return {tuple(s + e * t for e in range(law.epochs)): Fraction(1, t) for s in range(t)}
        case KSubset():
            one = list(combinations(range(t), law.picks))
            return {pick: Fraction(1, len(one)) for pick in one}
        case CheckIn(probability=0.5):
            return {(): half, **{(s,): half / t for s in range(t)}}
    pairs = [(a, t + b) for a in range(t) for b in range(t)]
    return dict.fromkeys(pairs, Fraction(1, t * t))


LAWS = [
    CheckIn(3, 2),
    CheckIn(3, 1, 0.5),
    FixedAssignment(3, 2),
    KSubset(4, 2),
]


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_a_record_is_in_the_batches_that_its_law_says(law):
    assert record_law(law, 1, 0) == promised(law)


def test_kept_and_afresh_are_different_laws():
    assert record_law(CheckIn(3, 2), 1, 0) != promised(FixedAssignment(3, 2))
    assert record_law(FixedAssignment(3, 2), 1, 0) != promised(CheckIn(3, 2))


def test_two_records_are_independent():
    def both(source):
        batches = list(Assignment(CheckIn(3), 2, source).epoch())
        return tuple(next(i for i, b in enumerate(batches) if r in b) for r in (0, 1))

    assert enumerate_outputs(both) == {(a, b): Fraction(1, 9) for a in range(3) for b in range(3)}


def test_the_choices_of_a_law():
    assert assigned_participation(40, 4) == CheckIn(40, 4)
    assert assigned_participation(40, 4, probability=0.5) == CheckIn(40, 4, 0.5)
    assert assigned_participation(40, 4, kept=True) == FixedAssignment(40, 4)
    assert assigned_participation(40, 4, picks=2) == KSubset(40, 2, 4)
    for wrong in ({"kept": True}, {"probability": 0.5}):
        with pytest.raises(ParameterError, match="picks = 2"):
            assigned_participation(40, 4, picks=2, **wrong)
    with pytest.raises(UnsupportedError, match="not PoissonSampling"):
        Assignment(PoissonSampling(0.1, 10), 5)


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_the_denominator_is_the_expected_size(law):
    picks, probability = getattr(law, "picks", 1), getattr(law, "probability", 1.0)
    assert Assignment(law, 12).expected_batch_size == 12 * picks * probability / law.window


def test_every_batch_has_one_release():
    dealt = Assignment(CheckIn(3, 1), 5)
    with pytest.raises(UnsupportedError, match="a second"):
        dealt.use()
    for step, _ in enumerate(dealt.epoch()):
        dealt.use()
        assert dealt.used == dealt.dealt == step + 1
        with pytest.raises(UnsupportedError, match="a second"):
            dealt.use()
    with pytest.raises(UnsupportedError, match="all 1 epochs"):
        next(dealt.epoch())


def test_a_pass_that_breaks_off_counts_all_that_was_dealt():
    dealt = Assignment(CheckIn(4, 2), 5)
    first = dealt.epoch()
    next(first)
    dealt.use()
    next(first), next(first)
    with pytest.raises(UnsupportedError, match="2 batches came"):
        dealt.use()
    assert dealt.used == 1
    rest = list(dealt.epoch())
    assert (len(rest), dealt.used, dealt.dealt) == (1, 3, 4)


@pytest.mark.parametrize("law", [CheckIn(4, 2), FixedAssignment(4, 2)], ids=str)
def test_a_state_goes_on_with_the_same_batches(law):
    whole = Assignment(law, 50)
    batches = whole.epoch()
    next(batches)
    whole.use()
    next(batches)  # dealt ahead, not used
    state = whole.state_dict()
    again = Assignment(law, 50)
    again.load_state_dict(state)
    assert (again.used, again.dealt) == (1, 1)
    resumed = list(again.epoch())
    drawn = whole._schedule
    assert drawn is not None
    assert all(np.array_equal(batch, drawn.at(1 + i)) for i, batch in enumerate(resumed))
    assert len(resumed) == 3
    if isinstance(law, FixedAssignment):
        assert np.array_equal(next(again.epoch()), drawn.at(4))


def test_a_state_of_another_run_or_an_earlier_time_is_refused():
    mine = Assignment(CheckIn(4, 2), 50)
    early = mine.state_dict()
    with pytest.raises(ParameterError, match="over 51 records"):
        Assignment(CheckIn(4, 2), 51).load_state_dict(early)
    with pytest.raises(ParameterError, match="CheckIn"):
        Assignment(CheckIn(4, 3), 50).load_state_dict(early)
    next(mine.epoch())
    mine.use()
    with pytest.raises(ParameterError, match="used = 0"):
        mine.load_state_dict(early)


def test_the_noise_is_standard_gaussian():
    drawn = system_gaussian(200_000)
    assert stats.kstest(drawn, "norm").pvalue > 1e-9
    assert np.isfinite(drawn).all()
    assert stats.kstest(0.8 * drawn, "norm").pvalue < 1e-9
    assert not np.array_equal(drawn[:10], system_gaussian(10))
