"""Arguments that are misspelt, of another type or out of range: each of them is refused."""

import math

import numpy as np
import pytest
from allocation_sampling import lemma_d_1

from turnout.accounting import epsilon_upper, price, spent
from turnout.accounting.budgets import (
    BudgetTerms,
    Ledger,
    Odometer,
    RenyiFilter,
)
from turnout.accounting.decomposition import decompose
from turnout.accounting.divergence.composition import run_epsilon
from turnout.accounting.divergence.curves import Direction, PairCurve, Side, epsilon_at
from turnout.accounting.divergence.pairs import GaussianPair
from turnout.accounting.divergence.renyi import run_renyi
from turnout.accounting.guarantee import Guarantee
from turnout.accounting.meaning.membership import gaussian_trade_off, posterior
from turnout.accounting.meaning.profile import privacy_profile
from turnout.accounting.privacy_curve import PrivacyCurve
from turnout.accounting.published.comparison import Setting
from turnout.accounting.published.random_allocation import engine_poisson
from turnout.accounting.published.shuffling_rdp import blanket_size
from turnout.core.bounds import Bounds
from turnout.core.errors import ParameterError
from turnout.schemes import (
    AvailabilityCheckIn,
    CheckIn,
    EveryStep,
    GaussianNoise,
    KSubset,
    PoissonSampling,
    Relation,
    Scheme,
)

SCHEME = Scheme(GaussianNoise(2.0), CheckIn(10, 2), "add-remove")
TERMS = BudgetTerms.of(SCHEME)
NO_DELTA = ["1e-6", None, True, 0.0, 1.0, -1e-6, math.nan, math.inf, [1e-6], np.array([1e-6])]


@pytest.mark.parametrize("delta", NO_DELTA)
def test_a_delta_that_is_not_between_0_and_1_is_refused(delta):
    for ask in (
        lambda: price(SCHEME, delta),
        lambda: price(SCHEME, 1e-6, tolerance=delta),
        lambda: epsilon_upper(SCHEME, delta),
        lambda: Ledger(TERMS).add(SCHEME).epsilon(delta),
        lambda: PrivacyCurve.of(SCHEME).epsilon(delta),
        lambda: PrivacyCurve.of(SCHEME).to_dp_accounting(delta),
        lambda: engine_poisson(GaussianPair(1.0), 0.1, 10, delta),
    ):
        with pytest.raises(ParameterError, match=r"delta|tolerance"):
            ask()


TRACE = AvailabilityCheckIn(np.ones((2, 6), dtype=bool), 3)


@pytest.mark.parametrize("steps", [-1, 21, 2.0, 2.5, "3", True, math.nan, math.inf, [3]])
@pytest.mark.parametrize("law", [CheckIn(10, 2), EveryStep(20), KSubset(10, 2, 2), TRACE])
def test_step_counts_outside_the_run_are_refused(steps, law):
    """Regression: ε was computed for −1 steps, for 2.5 steps, and for 40 of twenty steps."""
    scheme = Scheme(GaussianNoise(2.0), law, "add-remove")
    with pytest.raises(ParameterError, match="steps"):
        epsilon_upper(scheme, 1e-5, steps)
    if law is not TRACE:
        for ask in (decompose, PrivacyCurve.of, Ledger(TERMS).add):
            with pytest.raises(ParameterError, match="steps"):
                ask(scheme, steps)


def test_counts_of_narrow_numpy_types_do_not_overflow():
    many = Scheme(GaussianNoise(9.0), PoissonSampling(0.1, 200), "add-remove")
    assert epsilon_upper(many, 1e-5, np.uint8(200)) == epsilon_upper(many, 1e-5)
    once = PrivacyCurve.of(many)
    assert once * np.int8(100) == once * 100
    for times in (0, -1, 2.5, True, "2", math.nan, None):
        with pytest.raises(ParameterError, match="times"):
            once * times


@pytest.mark.parametrize("whole", [-1.0, math.nan, True, "1", None, np.array([1.0])])
def test_an_upper_limit_that_is_not_a_number_is_refused(whole):
    with pytest.raises(ParameterError, match="whole"):
        spent(SCHEME, 1e-5, [5], whole)


@pytest.mark.parametrize("word", ["add_remove", "Add-Remove", None, True])
def test_names_of_relations_are_accepted_and_other_words_refused(word):
    parts = PrivacyCurve.of(SCHEME).parts
    bounds = Bounds(0.0, 1.0)
    for build in (
        BudgetTerms,
        lambda given: PrivacyCurve(parts, given, "client", "central"),
        lambda given: Guarantee(bounds, 1e-5, {}, given, "client", "central", "by hand"),
        lambda given: Setting(1.0, 10, 1, 1e-5, given),
    ):
        assert build("add-remove").relation is Relation.ADD_REMOVE
        with pytest.raises(ParameterError, match="'add-remove', 'zero-out', 'replace-one'"):
            build(word)


def test_directions_and_bound_sides_accept_only_their_names():
    """Regression: a wrong word was read as the other direction, or as the lower side."""
    curve = run_renyi(decompose(SCHEME).record_against_null.upper, (2.0, 4.0), 1e-9)
    assert curve.of("remove") == curve.remove != curve.add
    pair, run = GaussianPair(1.0), decompose(SCHEME).record_against_null.upper
    upper = PairCurve(pair, Direction.REMOVE, Side.UPPER)
    assert PairCurve(pair, "remove", "upper") == upper
    assert epsilon_at(upper, 1e-5, "upper") == epsilon_at(upper, 1e-5, Side.UPPER)
    for direction in Direction:
        quoted = run_epsilon(run, direction.value, "upper", 1e-5, 0)
        assert quoted == run_epsilon(run, direction, Side.UPPER, 1e-5, 0)
    sampled = {"samples": 50, "generator": np.random.default_rng(1)}
    for wrong in ("removal", "Remove", None, True, "replace"):
        for ask in (
            lambda wrong=wrong: curve.of(wrong),
            lambda wrong=wrong: PairCurve(pair, wrong, Side.UPPER),
            lambda wrong=wrong: PairCurve(pair, Direction.ADD, wrong),
            lambda wrong=wrong: epsilon_at(upper, 1e-5, wrong),
            lambda wrong=wrong: run_epsilon(run, wrong, Side.UPPER, 1e-5, 0),
            lambda wrong=wrong: run_epsilon(run, Direction.ADD, wrong, 1e-5, 0),
            lambda wrong=wrong: lemma_d_1(2.0, 10, 1.0, wrong, **sampled),
        ):
            with pytest.raises(ParameterError, match=r"direction|side"):
                ask()


@pytest.mark.parametrize("terms", ["add-remove", None, SCHEME, Relation.ADD_REMOVE])
def test_budgets_without_valid_terms_are_refused(terms):
    for build in (
        lambda: Ledger(terms),
        lambda: RenyiFilter.of(terms, 1.0, 1e-5, most_windows=5),
        lambda: Odometer(terms),
    ):
        with pytest.raises(ParameterError, match="terms"):
            build()


def _edited(account, path, value):
    data = account.to_dict()
    inner = data
    for part in path[:-1]:
        inner = inner[part]
    inner[path[-1]] = value
    return data


ENTRY = ("entries", 0)
EDITS = [
    *[((*ENTRY, "count"), wrong) for wrong in (-5, 0, "2", 1.5, True, None, math.nan)],
    (("terms", "relation"), "zero_out"),
    (("terms", "unit"), "record"),
    (("kind",), "Ledger"),
    (("epsilon",), math.nan),
    (("epsilon",), "1.0"),
    (("delta",), 0.0),
]


@pytest.mark.parametrize(("path", "value"), EDITS)
def test_an_edited_dictionary_of_a_filter_is_refused(path, value):
    account = RenyiFilter.of(TERMS, 2.0, 1e-5, most_windows=9).spend(SCHEME)
    assert RenyiFilter.from_dict(account.to_dict()) == account
    nested = path[0] in ("entries", "terms")
    edited = _edited(account, ("odometer", *path) if nested else path, value)
    with pytest.raises(ParameterError):
        RenyiFilter.from_dict(edited)


def test_edited_ledgers_and_odometers_are_refused():
    ledger = Ledger(TERMS).add(SCHEME)
    odometer = Odometer(TERMS, most_windows=9).record(SCHEME)
    assert Ledger.from_dict(ledger.to_dict()) == ledger
    assert Odometer.from_dict(odometer.to_dict()) == odometer
    for path, wrong in ((("kind",), "odometer"), (("phases", 0, "steps"), "3")):
        with pytest.raises(ParameterError, match=r"kind|steps"):
            Ledger.from_dict(_edited(ledger, path, wrong))
    for name in ("remove", "add"):
        for wrong in ("0.1", True, None):
            with pytest.raises(ParameterError, match="divergences"):
                Odometer.from_dict(_edited(odometer, (*ENTRY, "charge", name, 0), wrong))


def test_privacy_profiles_refuse_arguments_that_are_not_numbers():
    once = Scheme(GaussianNoise(1.0), EveryStep(1), "add-remove")
    for epsilons in ("1.0", True, ["0.5"], None, [True, False], [math.nan], [1j]):
        with pytest.raises(ParameterError, match="epsilons"):
            privacy_profile(once, epsilons, refinement=0)
    for refinement in (-1, 0.5, "0", True):
        with pytest.raises(ParameterError, match="refinement"):
            privacy_profile(once, np.array([0.5]), refinement=refinement)
    for shift in (1.0, "1", None, Bounds(-1.0, 1.0)):
        with pytest.raises(ParameterError, match="shift"):
            posterior(0.5, shift)
    for mu, alpha in ((-1.0, 0.5), (math.nan, 0.5), (1j, 0.5), (1.0, "0.5"), (1.0, True), (1.0, 2)):
        with pytest.raises(ParameterError, match=r"mu|alpha"):
            gaussian_trade_off(mu, alpha)


def test_helper_functions_of_theorems_check_their_arguments():
    for rate, steps in ((-1.0, 10), (True, 10), ("0.1", 10), (0.1, True), (0.1, 2.5), (0.0, 1)):
        with pytest.raises(ParameterError, match=r"rate|steps"):
            engine_poisson(GaussianPair(1.0), rate, steps, 1e-5)
    for epsilon0, clients in ((-1.0, 10), (True, 10), (1.0, True), (1.0, 0), (1.0, 2.5)):
        with pytest.raises(ParameterError, match=r"local_epsilon|clients"):
            blanket_size(epsilon0, clients)
