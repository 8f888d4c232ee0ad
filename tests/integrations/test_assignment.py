"""Independent assignment: distribution of the batches, bookkeeping, noise."""

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


def batches_of_record(participation, records, record):
    """Exact distribution of the batches of the whole run in which one record is."""

    def run(source):
        dealt = Assignment(participation, records, source)
        epochs = participation.steps // dealt.batches
        batches = [batch for _ in range(epochs) for batch in dealt.epoch()]
        return tuple(step for step, batch in enumerate(batches) if record in batch)

    return enumerate_outputs(run)


def promised(participation):
    """Distribution that the participation's docstring promises, written independently."""
    t, half = participation.window, Fraction(1, 2)
    match participation:
        case FixedAssignment():
            return {
                tuple(s + e * t for e in range(participation.epochs)): Fraction(1, t)
                for s in range(t)
            }
        case KSubset():
            one = list(combinations(range(t), participation.picks))
            return {pick: Fraction(1, len(one)) for pick in one}
        case CheckIn(probability=0.5):
            return {(): half, **{(s,): half / t for s in range(t)}}
    pairs = [(a, t + b) for a in range(t) for b in range(t)]
    return dict.fromkeys(pairs, Fraction(1, t * t))


PARTICIPATIONS = [
    CheckIn(3, 2),
    CheckIn(3, 1, 0.5),
    FixedAssignment(3, 2),
    KSubset(4, 2),
]


@pytest.mark.parametrize("participation", PARTICIPATIONS, ids=str)
def test_the_batches_of_a_record_have_the_distribution_of_the_participation(participation):
    assert batches_of_record(participation, 1, 0) == promised(participation)


def test_batches_kept_and_batches_drawn_anew_per_epoch_have_different_distributions():
    assert batches_of_record(CheckIn(3, 2), 1, 0) != promised(FixedAssignment(3, 2))
    assert batches_of_record(FixedAssignment(3, 2), 1, 0) != promised(CheckIn(3, 2))


def test_two_records_are_assigned_to_batches_independently():
    def both(source):
        batches = list(Assignment(CheckIn(3), 2, source).epoch())
        return tuple(next(i for i, b in enumerate(batches) if r in b) for r in (0, 1))

    assert enumerate_outputs(both) == {(a, b): Fraction(1, 9) for a in range(3) for b in range(3)}


def test_assigned_participation_returns_the_participation_of_its_arguments():
    assert assigned_participation(40, 4) == CheckIn(40, 4)
    assert assigned_participation(40, 4, probability=0.5) == CheckIn(40, 4, 0.5)
    assert assigned_participation(40, 4, kept=True) == FixedAssignment(40, 4)
    assert assigned_participation(40, 4, picks=2) == KSubset(40, 2, 4)
    with pytest.raises(ParameterError, match="picks = 2"):
        assigned_participation(40, 4, picks=2, kept=True)
    with pytest.raises(ParameterError, match="picks = 2"):
        assigned_participation(40, 4, picks=2, probability=0.5)
    with pytest.raises(UnsupportedError, match="not PoissonSampling"):
        Assignment(PoissonSampling(0.1, 10), 5)


@pytest.mark.parametrize("participation", PARTICIPATIONS, ids=str)
def test_expected_batch_size_is_the_mean_size(participation):
    picks, probability = (
        getattr(participation, "picks", 1),
        getattr(participation, "probability", 1.0),
    )
    assert (
        Assignment(participation, 12).expected_batch_size
        == 12 * picks * probability / participation.window
    )


def test_a_second_release_of_a_batch_is_refused():
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


def test_an_interrupted_pass_counts_all_returned_batches():
    dealt = Assignment(CheckIn(4, 2), 5)
    first = dealt.epoch()
    next(first)
    dealt.use()
    next(first), next(first)
    with pytest.raises(UnsupportedError, match="2 batches were fetched"):
        dealt.use()
    assert dealt.used == 1
    rest = list(dealt.epoch())
    assert (len(rest), dealt.used, dealt.dealt) == (1, 3, 4)


@pytest.mark.parametrize("participation", [CheckIn(4, 2), FixedAssignment(4, 2)], ids=str)
def test_a_restored_state_continues_with_the_same_batches(participation):
    whole = Assignment(participation, 50)
    batches = whole.epoch()
    next(batches)
    whole.use()
    next(batches)  # returned ahead, not used
    state = whole.state_dict()
    again = Assignment(participation, 50)
    again.load_state_dict(state)
    assert (again.used, again.dealt) == (1, 1)
    resumed = list(again.epoch())
    drawn = whole._schedule
    assert drawn is not None
    assert all(np.array_equal(batch, drawn.at(1 + i)) for i, batch in enumerate(resumed))
    assert len(resumed) == 3
    if isinstance(participation, FixedAssignment):
        assert np.array_equal(next(again.epoch()), drawn.at(4))


def test_a_state_of_another_run_or_an_earlier_step_is_refused():
    mine = Assignment(CheckIn(4, 2), 50)
    early = mine.state_dict()
    with pytest.raises(ParameterError, match="with 51 records"):
        Assignment(CheckIn(4, 2), 51).load_state_dict(early)
    with pytest.raises(ParameterError, match="CheckIn"):
        Assignment(CheckIn(4, 3), 50).load_state_dict(early)
    next(mine.epoch())
    mine.use()
    with pytest.raises(ParameterError, match="used = 0"):
        mine.load_state_dict(early)


def test_system_gaussian_is_standard_normal():
    drawn = system_gaussian(200_000)
    assert stats.kstest(drawn, "norm").pvalue > 1e-9
    assert np.isfinite(drawn).all()
    assert stats.kstest(0.8 * drawn, "norm").pvalue < 1e-9
    assert not np.array_equal(drawn[:10], system_gaussian(10))
