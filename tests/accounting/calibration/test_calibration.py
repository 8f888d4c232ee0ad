"""Calibration of one setting to a target ε: the printed value is certified and near the limit."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
from scipy.optimize import brentq
from scipy.special import log_ndtr

from turnout.accounting import calibration, epsilon_upper, price
from turnout.accounting.bisection import BisectionSearch
from turnout.accounting.calibration import (
    UNKNOWNS,
    Unknown,
    calibrate,
    calibrate_delta,
    calibrate_noise,
)
from turnout.core.errors import NumericalError, ParameterError, UnsupportedError
from turnout.schemes import (
    CheckIn,
    EveryStep,
    FixedAssignment,
    GaussianNoise,
    KSubset,
    Participation,
    PoissonSampling,
    Relation,
    ReleaseRule,
    Scheme,
    SlidingWindow,
)


def scheme(
    sigma: float, participation: Participation, relation=Relation.ADD_REMOVE, **other
) -> Scheme:
    return Scheme(GaussianNoise(sigma), participation, relation, **other)


@dataclass(frozen=True)
class Case:
    name: str
    scheme_for: Callable[[float], Scheme]
    epsilon: float
    delta: float = 1e-6
    limits: tuple[float, float] | None = None

    @property
    def unknown(self) -> Unknown:
        unknown = UNKNOWNS[self.name.partition(",")[0]]
        if self.limits is None:
            return unknown
        return replace(unknown, least=self.limits[0], most=self.limits[1])


REPLACE = Relation.REPLACE_ONE
CASES = [
    Case("noise-multiplier, one window", lambda s: scheme(s, CheckIn(1000)), 0.5),
    Case("noise-multiplier, short window", lambda s: scheme(s, CheckIn(10)), 10.0, 1e-5),
    Case("noise-multiplier, long window", lambda s: scheme(s, CheckIn(10**6)), 0.01, 1e-8),
    Case("noise-multiplier, windows", lambda s: scheme(s, CheckIn(50, 30)), 3.0),
    Case("noise-multiplier, replace-one", lambda s: scheme(s, CheckIn(100), REPLACE), 2.0),
    Case("noise-multiplier, poisson", lambda s: scheme(s, PoissonSampling(0.01, 1000)), 2.0),
    Case("noise-multiplier, alone", lambda s: scheme(s, EveryStep(1000)), 3.0),
    Case("noise-multiplier, much", lambda s: scheme(s, EveryStep(1)), 0.01),
    Case("window", lambda t: scheme(1.0, CheckIn(t)), 0.5),
    Case("window, long", lambda t: scheme(1.0, CheckIn(t)), 0.005),
    Case("window, little noise", lambda t: scheme(0.5, CheckIn(t)), 4.0),
    Case("window, composed", lambda t: scheme(2.0, CheckIn(t, 100)), 1.0),
    Case("window, sliding", lambda t: scheme(1.0, SlidingWindow(t, 2 * t - 1)), 0.3),
    Case("window, stairs", lambda t: scheme(1.0, KSubset(t, 3)), 0.5, limits=(3, 10**6)),
    Case("windows, few", lambda r: scheme(1.0, CheckIn(1000, r)), 1.0),
    Case("windows, one", lambda r: scheme(1.0, CheckIn(1000, r)), 0.2),
    Case("windows, many", lambda r: scheme(2.0, CheckIn(1000, r)), 4.0),
    Case("windows, many long ones", lambda r: scheme(4.0, CheckIn(30_000, r)), 0.2),
    Case("epochs", lambda e: scheme(4.0, FixedAssignment(250, e)), 1.0),
    Case("epochs, many", lambda e: scheme(30.0, FixedAssignment(1000, e)), 1.0),
    Case("epochs, one", lambda e: scheme(1.0, FixedAssignment(250, e)), 1.0),
    Case("probability", lambda p: scheme(1.0, CheckIn(100, 1, p)), 0.01),
    Case("probability, composed", lambda p: scheme(1.0, CheckIn(100, 10, p)), 1.0),
    Case("probability, tiny", lambda p: scheme(0.3, CheckIn(10, 1, p)), 1.0),
    Case("rate", lambda q: scheme(1.0, PoissonSampling(q, 1000)), 1.0),
    Case("rate, one step", lambda q: scheme(1.0, PoissonSampling(q, 1)), 1.0),
    Case("steps, poisson", lambda n: scheme(1.0, PoissonSampling(0.01, n)), 1.0),
    Case("steps, many", lambda n: scheme(2.0, PoissonSampling(0.01, n)), 3.0),
    Case("steps, alone", lambda n: scheme(50.0, EveryStep(n)), 1.0),
    Case("picks", lambda k: scheme(1.0, KSubset(1000, k)), 1.0, limits=(1, 1000)),
    Case("picks, many", lambda k: scheme(2.0, KSubset(10_000, k)), 3.0, limits=(1, 10_000)),
]


priced = functools.lru_cache(maxsize=64)(epsilon_upper)
"""What a search priced is checked without pricing it anew."""


@pytest.fixture
def evaluations(monkeypatch) -> list[float]:
    """Every ε that calibration asked for."""
    asked: list[float] = []

    def counted(one: Scheme, delta: float) -> float:
        asked.append(delta)
        return priced(one, delta)

    monkeypatch.setattr(calibration, "epsilon_upper", counted)
    return asked


def faults(case: Case) -> list[str]:
    """What is wrong with an answer; nothing, of course."""
    found = calibrate(case.scheme_for, case.unknown, case.epsilon, case.delta)
    number = int if case.unknown.whole else float
    value, refused = number(found.value), number(found.refused or math.nan)
    proved = priced(case.scheme_for(value), case.delta)
    wrong = []
    if found.evaluations > 10:
        wrong.append("slow")
    if not case.unknown.whole and float(f"{value:.6g}") != value:
        wrong.append("not as printed")
    if proved > case.epsilon:
        wrong.append("above the target")
    if proved != found.epsilon:
        wrong.append("another bound")
    if priced(case.scheme_for(refused), case.delta) <= case.epsilon:
        wrong.append("the refused one meets the target")
    costlier = -1 if case.unknown.falling else 1
    step = refused - value if case.unknown.whole else math.log(refused / value) / 1e-4
    if not 0 < step * costlier <= 1:
        wrong.append("the refused one is not the next")
    return wrong


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_calibration_finds_the_last_certified_value_in_ten_evaluations(case, evaluations):
    assert faults(case) == []
    assert len(evaluations) <= 10


def test_a_search_that_returns_the_end_of_its_bracket_above_the_target_is_detected(mutate):
    def swapped(search):
        return search.missed

    mutate(calibration, "_met", swapped)
    assert "above the target" in faults(CASES[0])


def test_a_search_that_checks_a_value_before_rounding_it_is_detected(monkeypatch):
    def unrounded(unknown, position):
        return math.exp(-position)

    monkeypatch.setattr(Unknown, "value", unrounded)
    assert "not as printed" in faults(next(case for case in CASES if case.name == "probability"))


def test_a_search_that_only_bisects_is_detected(mutate):
    def halves(search):
        if search.met is None or search.missed is None:
            return search.last.position + (1.0 if search.met is None else -1.0)
        return 0.5 * (search.met.position + search.missed.position)

    mutate(BisectionSearch, "_aim", halves)
    assert "the refused one is not the next" in faults(CASES[0])


@pytest.mark.parametrize(
    ("participation", "epsilon", "delta"),
    [
        (CheckIn(1000), 0.2, None),
        (CheckIn(1000, 10), 1.0, None),
        (CheckIn(100), 6.0, None),
        (EveryStep(1), 3.0, 0.00153711),
        (EveryStep(4), 0.5, None),
    ],
)
def test_calibrated_delta_is_the_smallest_that_meets_the_target_epsilon(
    participation, epsilon, delta, evaluations
):
    one = scheme(1.0, participation)
    found = calibrate_delta(one, epsilon)
    assert len(evaluations) <= 10
    assert epsilon_upper(one, found.value) <= epsilon < epsilon_upper(one, found.value * 0.9998)
    if delta is not None:
        assert found.value == pytest.approx(delta, rel=2e-4)


def gaussian_delta(epsilon: float, mu: float) -> float:
    """The closed form of Balle & Wang 2018."""
    first = float(log_ndtr(-epsilon / mu + mu / 2))
    second = epsilon + float(log_ndtr(-epsilon / mu - mu / 2))
    return math.exp(first) - math.exp(second)


def test_calibration_without_amplification_equals_the_closed_form():
    mu = brentq(lambda mu: gaussian_delta(2.0, mu) - 1e-5, 0.01, 5.0, xtol=1e-14)
    sigma = calibrate(
        lambda s: scheme(s, EveryStep(9)), UNKNOWNS["noise-multiplier"], 2.0, 1e-5
    ).value
    assert 3 / mu <= sigma <= 3 / mu * 1.0002
    steps = calibrate(lambda n: scheme(60.0, EveryStep(n)), UNKNOWNS["steps"], 2.0, 1e-5).value
    assert steps == math.floor((60 * mu) ** 2)
    delta = calibrate_delta(scheme(1.5, EveryStep(1)), 2.0).value
    truth = gaussian_delta(2.0, 1 / 1.5)
    assert truth <= delta <= truth * 1.0002


def test_poisson_noise_agrees_with_dp_accounting():
    import dp_accounting
    from dp_accounting.pld import PLDAccountant

    event = dp_accounting.dp_event
    noise = calibrate(
        lambda s: scheme(s, PoissonSampling(0.02, 50)), UNKNOWNS["noise-multiplier"], 1.0, 1e-6
    ).value
    theirs = dp_accounting.calibrate_dp_mechanism(
        lambda: PLDAccountant(value_discretization_interval=1e-3),
        lambda s: event.SelfComposedDpEvent(
            event.PoissonSampledDpEvent(0.02, event.GaussianDpEvent(s)), 50
        ),
        1.0,
        1e-6,
        dp_accounting.ExplicitBracketInterval(0.5, 3.0),
        tol=1e-3,
    )
    assert noise == pytest.approx(theirs, rel=4e-3)


def test_calibration_finds_the_same_smallest_window_as_a_full_scan():
    costs = {t: epsilon_upper(scheme(1.0, CheckIn(t)), 1e-5) for t in range(1, 33)}
    for target in (3.0, 1.6):
        first = min(t for t, cost in costs.items() if cost <= target)
        found = calibrate(lambda t: scheme(1.0, CheckIn(t)), UNKNOWNS["window"], target, 1e-5)
        assert found.value == first


def test_smaller_tolerance_uses_more_of_the_target():
    def scheme_for(sigma):
        return scheme(sigma, CheckIn(100, 10))

    sigma = UNKNOWNS["noise-multiplier"]
    quick = calibrate(scheme_for, sigma, 1.0, 1e-6)
    sharp = calibrate(scheme_for, sigma, 1.0, 1e-6, tolerance=1e-3)
    assert quick.guarantee is None
    assert sharp.guarantee is not None
    assert sharp.value <= quick.value
    assert sharp.evaluations <= 10
    checked = price(scheme_for(sharp.value), 1e-6, 1e-3)
    assert checked.epsilon == sharp.guarantee.epsilon
    assert 0.999 < checked.epsilon.upper == sharp.epsilon <= 1.0


def test_a_calibration_without_a_certified_bracket_returns_the_quick_value(monkeypatch):
    def refuses(*_):
        raise NumericalError("too wide")

    monkeypatch.setattr(calibration, "price", refuses)
    found = calibrate(
        lambda s: scheme(s, CheckIn(10)), UNKNOWNS["noise-multiplier"], 1.0, 1e-6, tolerance=1e-3
    )
    assert found.guarantee is None
    assert epsilon_upper(scheme(found.value, CheckIn(10)), 1e-6) <= 1.0


@pytest.mark.parametrize(
    ("name", "scheme_for", "epsilon", "limit"),
    [
        ("probability", lambda p: scheme(2.0, CheckIn(100, 1, p)), 2.0, 1.0),
        ("window", lambda t: scheme(4.0, CheckIn(t)), 3.0, 1),
        ("rate", lambda q: scheme(20.0, PoissonSampling(q, 1)), 3.0, 1.0),
    ],
)
def test_calibration_returns_the_limit_of_a_setting_if_the_limit_meets_the_target(
    name, scheme_for, epsilon, limit
):
    found = calibrate(scheme_for, UNKNOWNS[name], epsilon, 1e-6)
    assert (found.value, found.refused) == (limit, None)


@pytest.mark.parametrize(
    ("name", "scheme_for", "line"),
    [
        (
            "windows",
            lambda r: scheme(1.0, CheckIn(10, r)),
            "no value of windows from 1 to 1,000,000 meets epsilon = 0.1: at 1 ε ≤ 2.65",
        ),
        (
            "window",
            lambda t: scheme(1.0, CheckIn(t, 100), release=ReleaseRule.AVERAGED, relation=REPLACE),
            "no value of window from 1 to 10,000,000 meets epsilon = 0.1: at 10,000,000 ε ≤ ",
        ),
        (
            "noise-multiplier",
            lambda sigma: scheme(sigma, EveryStep(10**18)),
            "no value of noise-multiplier from 0.02 to 1e+06 meets epsilon = 0.1: at 1e+06 ε ≤ 5.0",
        ),
        ("steps", lambda n: scheme(1.0, EveryStep(n)), "at 1 ε ≤ 4.8"),
    ],
)
def test_an_error_about_an_unreachable_target_names_the_limit_that_was_tried(
    name, scheme_for, line
):
    with pytest.raises(UnsupportedError) as refusal:
        calibrate(scheme_for, UNKNOWNS[name], 0.1, 1e-6)
    assert line in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_an_unsupported_scheme_is_refused_with_its_own_error():
    with pytest.raises(UnsupportedError, match="add-remove"):
        calibrate(
            lambda t: scheme(1.0, CheckIn(t), release=ReleaseRule.AVERAGED),
            UNKNOWNS["window"],
            1.0,
            1e-6,
        )


@pytest.mark.parametrize(
    "wrong",
    [
        lambda f: calibrate(f, UNKNOWNS["window"], 0.0, 1e-6),
        lambda f: calibrate(f, UNKNOWNS["window"], math.nan, 1e-6),
        lambda f: calibrate(f, UNKNOWNS["window"], 1.0, 1.0),
        lambda f: calibrate(f, UNKNOWNS["window"], 1.0, 1e-6, tolerance=0.0),
        lambda f: calibrate_delta(f(1), -1.0),
        lambda f: calibrate_noise(lambda s: scheme(s, EveryStep(1)), 1.0, 1e-6, 0.0),
    ],
)
def test_an_invalid_target_of_a_calibration_is_refused(wrong):
    with pytest.raises(ParameterError):
        wrong(lambda t: scheme(1.0, CheckIn(t)))


@pytest.mark.parametrize("relative_tolerance", [1e-2, 1e-4, 1e-7])
def test_calibrated_noise_is_the_least_up_to_the_requested_tolerance(relative_tolerance):
    def cost(sigma):
        return epsilon_upper(scheme(sigma, CheckIn(50)), 1e-5)

    sigma = calibrate_noise(lambda s: scheme(s, CheckIn(50)), 1.0, 1e-5, relative_tolerance)
    assert cost(sigma) <= 1.0 < cost(sigma * (1 - 1.5 * relative_tolerance))
