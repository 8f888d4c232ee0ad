"""`tn.price` with ``method``: bounds agree with `compare`, and other schemes are refused."""

from __future__ import annotations

import math

import pytest

import turnout as tn
from turnout.accounting.published.comparison import SHUFFLE_METHODS
from turnout.api.price import METHODS

ANY, ONE = tn.PureRandomizer(0.4), tn.NonAdaptiveRandomizer(0.4)


def epsilon(scheme: tn.Scheme, method: str | None, delta: float = 1e-6) -> tn.Bounds:
    return tn.price(scheme, delta=delta, method=method).epsilon


def test_price_accepts_the_method_names_of_compare():
    known = {method.name for method in SHUFFLE_METHODS}
    assert set(METHODS) - {"tightest", "quick", "published"} < known


@pytest.mark.parametrize("randomizer", [ANY, ONE, tn.KaryResponse(0.4)])
@pytest.mark.parametrize("sampled", [None, 5000])
def test_no_method_has_an_upper_bound_below_an_attained_epsilon(randomizer, sampled):
    scheme = tn.shuffled(randomizer, clients=20_000, rounds=2, sampled=sampled)
    tightest, said = epsilon(scheme, None), []
    assert tightest == epsilon(scheme, "tightest")
    for method in METHODS:
        try:
            found = epsilon(scheme, method)
        except tn.UnsupportedError:
            continue
        said.append(method)
        assert tightest.lower <= found.upper
        if method not in ("tightest", "quick", "clones 2023"):
            assert epsilon(scheme, "published").upper <= found.upper
    assert {"quick", "published", "clones", "clones 2023", "EFM19"} <= set(said)


def test_price_by_a_method_equals_the_value_in_compare():
    scheme = tn.shuffled(ONE, clients=20_000)
    compared = {
        curve.method.name: curve.quotes[0] for curve in tn.compare(scheme, delta=1e-6).curves
    }
    for name in METHODS[3:]:
        quote = compared[name]
        if isinstance(quote, str):
            with pytest.raises(tn.UnsupportedError, match=name):
                epsilon(scheme, name)
        else:
            assert epsilon(scheme, name) == tn.Bounds(0.0, quote.epsilon)


@pytest.mark.parametrize(
    ("scheme", "method", "reason"),
    [
        (tn.shuffled(ANY, clients=100), "blanket", "one randomizer that all clients use"),
        (tn.shuffled(ANY, clients=100), "RDP 5.3.1", "one randomizer that all clients use"),
        (tn.shuffled(ANY, clients=100, order="known"), "clones", "only messages in a hidden"),
        (tn.shuffled(ANY, clients=100, rate=0.5), "clones", "rounds in which all"),
        (tn.shuffled(tn.GaussianNoise(3.0), clients=100), "clones", "ε₀-DP randomizers"),
        (tn.Scheme(ANY, tn.EveryStep(1), relation="replace-one"), "clones", "shuffled messages"),
        (
            tn.Scheme(tn.GaussianNoise(1.0), tn.CheckIn(9), relation="add-remove"),
            "published",
            "no published bound in turnout covers both directions",
        ),
    ],
)
def test_a_method_refuses_schemes_that_it_does_not_cover(scheme, method, reason):
    with pytest.raises(tn.UnsupportedError, match=reason):
        epsilon(scheme, method)


@pytest.mark.parametrize("method", [*METHODS, None])
@pytest.mark.parametrize("wrong", [math.nan, math.inf, 0.0, -1.0, 1.5, None, "x"])
def test_methods_refuse_invalid_delta_and_tolerance(method, wrong):
    messages = tn.shuffled(tn.PureRandomizer(1.0), clients=100_000)
    with pytest.raises(tn.ParameterError, match="delta = "):
        tn.price(messages, delta=wrong, method=method)
    with pytest.raises(tn.ParameterError, match="tolerance = "):
        tn.price(messages, delta=1e-6, tolerance=wrong, method=method)


def test_an_error_about_an_unknown_method_lists_all_methods():
    with pytest.raises(tn.ParameterError, match="method = 'best': expected one of 'tightest', 'qu"):
        epsilon(tn.shuffled(ANY, clients=100), "best")


def test_a_method_with_only_an_upper_bound_has_lower_bound_zero():
    found = tn.price(tn.shuffled(ANY, clients=1000), delta=1e-6, method="clones")
    assert found.epsilon.lower == 0.0
    assert found.guarantee.method.startswith("clones")
    assert found.to_dict()["bracket"]["reason"] == "no lower bound is known"
