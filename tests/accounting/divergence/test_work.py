"""Work budget of a computation of ε: the same for any cache, and never exceeded."""

from __future__ import annotations

import numpy as np
import pytest

from turnout.accounting import calibrate_noise, epsilon_upper, price
from turnout.accounting.decomposition import decompose
from turnout.accounting.divergence import blocks, work
from turnout.accounting.divergence.curves import Side
from turnout.accounting.divergence.work import WorkSpentError, budget, charge, remembered
from turnout.accounting.meaning.profile import profile_curves
from turnout.accounting.participation import check_ins as check_ins
from turnout.core.errors import NumericalError
from turnout.schemes import CheckIn, GaussianNoise, KSubset, Relation, Scheme

ADD, REPLACE = Relation.ADD_REMOVE, Relation.REPLACE_ONE


def scheme(law, sigma: float, relation: Relation = ADD) -> Scheme:
    return Scheme(GaussianNoise(sigma), law, relation)


@pytest.fixture
def store(mutate):
    mutate(work, "_STORE", work._Store())
    return lambda: work._STORE


def test_a_work_budget_ends_a_computation_that_exceeds_it():
    with budget(10) as meter:
        charge(10)
        with pytest.raises(WorkSpentError):
            charge(1)
    assert meter.cut
    with budget(100) as outer:
        with budget(share=0.5) as inner:
            assert inner.limit == 50
            charge(20)
        assert (outer.used, outer.cut) == (20, False)
        with budget(1000) as inner:  # never more than is left
            assert inner.limit == 80
    charge(10**12)  # outside of a question nothing is limited


def test_the_work_of_a_cached_result_counts_once_per_work_budget(store):
    calls = []

    @remembered
    def inner(x: int) -> int:
        calls.append(x)
        charge(x)
        return x

    @remembered
    def outer(x: int) -> int:
        charge(5)
        return inner(x) + inner(x)

    for known in ((), (7,), (7,)):
        with budget(100) as meter:
            assert [inner(x) for x in known] == list(known)
            assert outer(7) == outer(7) == 14
            assert inner(7) == 7
        assert meter.used == 12
    assert calls == [7]
    for clear in (None, outer, inner):  # whatever is known, 12 units are too many for 11
        if clear is not None:
            clear.cache_clear()
        with budget(20) as whole:
            with budget(11) as meter, pytest.raises(WorkSpentError):
                outer(7)
            assert meter.cut
            assert inner(7) == 7  # what an ended budget got done is charged again
        assert whole.used == 18
    with budget(12) as meter:
        outer(7)
        inner.cache_clear()
        assert inner(7) == 7  # forgotten for want of room, and paid
    assert meter.used == 12


def test_failed_computations_use_up_the_work_budget():
    @remembered
    def failing() -> None:
        charge(30)
        raise NumericalError("nothing")

    with budget(100) as meter:
        for _ in range(2):
            with pytest.raises(NumericalError):
                failing()
    assert meter.used == 60


def test_the_cache_keeps_recent_results_within_its_limit_of_bytes(store, mutate):
    mutate(work, "_MOST_BYTES", 10_000)
    calls = []

    @remembered
    def array(n: int) -> np.ndarray:
        calls.append(n)
        return np.zeros(n)

    for n in (500, 501, 500, 502, 500, 501):  # 4 kB each: two are kept
        array(n)
    assert calls == [500, 501, 502, 501]
    assert store()._bytes <= 10_000


@pytest.mark.parametrize("share", [0.1, 0.5, 2.0])
def test_computed_epsilons_do_not_depend_on_the_cache(monkeypatch, mutate, store, share):
    """With an empty cache, and after questions that share blocks, at small and large budgets."""
    asked = scheme(CheckIn(20, 3), 1.5)
    with budget(10**12) as meter:
        whole = price(asked, 1e-6)
    monkeypatch.setattr(work, "QUESTION", int(share * meter.used))
    price(scheme(CheckIn(20, 4), 1.5), 1e-6)
    warm = price(asked, 1e-6)
    mutate(work, "_STORE", work._Store())
    cold = price(asked, 1e-6)
    assert cold.directions == warm.directions
    assert cold.cut_short == warm.cut_short == (share < 1)
    assert (cold.directions == whole.directions) == (share > 1)
    assert cold.epsilon.lower <= whole.epsilon.upper <= cold.epsilon.upper


@pytest.mark.parametrize(
    ("law", "sigma", "delta", "relation"),
    [
        (CheckIn(10, 3), 1e4, 1e-15, ADD),
        (CheckIn(10, 3), 1e8, 1e-30, ADD),
        (CheckIn(10**9, 10), 1.0, 1e-6, ADD),
        (CheckIn(10, 3), 1.0, 1e-6, REPLACE),
        (KSubset(10**6, 1000), 3.0, 1e-15, ADD),
    ],
)
def test_computations_that_exceed_the_work_budget_return_looser_bounds(
    monkeypatch, law, sigma, delta, relation
):
    """A question that is cut short still has both bounds, in order."""
    monkeypatch.setattr(work, "QUESTION", 2 * 10**7)
    asked = scheme(law, sigma, relation)
    with budget(10**12) as meter:
        found = price(asked, delta)
    assert meter.used <= 2 * 10**7
    assert found.cut_short
    assert found.epsilon.lower <= found.epsilon.upper
    assert epsilon_upper(asked, delta) < float("inf")


def test_calibrations_and_privacy_profiles_respect_the_work_budget(monkeypatch):
    monkeypatch.setattr(work, "QUESTION", 10**6)
    found = calibrate_noise(lambda s: scheme(CheckIn(10**8, 10), s), 1.0, 1e-6)
    assert epsilon_upper(scheme(CheckIn(10**8, 10), found), 1e-6) <= 1.0
    with pytest.raises(NumericalError, match="budget of work"):
        profile_curves(scheme(CheckIn(10**8, 10), 1.0))


def test_the_work_on_long_arrays_is_counted():
    with budget(10**9) as meter:
        check_ins.allocation_curve.cache_clear()
        epsilon_upper(scheme(CheckIn(1000), 1.0), 1e-6)
    assert 10**5 < meter.used < 10**8


def test_refinement_ends_at_a_block_whose_curves_are_too_large(mutate, store):
    asked = scheme(CheckIn(20, 3), 1.5)
    whole = price(asked, 1e-6, 1e-5)
    mutate(work, "_STORE", work._Store())
    held = sum(map(work.size_of, blocks_of_a_window(asked)))
    mutate(blocks, "_MOST_BYTES", 2 * held)
    first = price(asked, 1e-6, 1e-5)
    assert first.epsilon.upper > whole.epsilon.upper
    assert first.epsilon.relative_width < 1e-2


def blocks_of_a_window(asked: Scheme) -> list:
    """The curves of both directions on the first grid, about as many as a price holds."""
    (block, _), *_ = decompose(asked).record_against_null.upper
    both = block.curves(Side.UPPER, 1e-10, 0)
    return [*both.remove, *both.add]
