"""Audits of randomizers, bandits, functions, and of one run with canaries."""

import math

import numpy as np
import pytest

import turnout as tn
from turnout.api import audit as audited
from turnout.auditing.canaries import Canaries, play_one_run
from turnout.auditing.confidence import Statement
from turnout.bandits import CentralSums, LocalBits
from turnout.core.bounds import Bounds
from turnout.core.errors import ParameterError
from turnout.randomizers import (
    GaussianRandomizer,
    KaryRandomizedResponse,
    LaplaceRandomizer,
    LocalHashing,
    UnaryEncoding,
)
from turnout.randomizers.vectors import L2Randomizer, LInfRandomizer, SeededCode
from turnout.simulation.engine import Setup

RANDOMIZERS = [
    KaryRandomizedResponse(1.0, 5),
    LocalHashing(2.0, 16),
    UnaryEncoding(2.0, 8),
    LaplaceRandomizer(1.0, 1.0),
]


@pytest.mark.parametrize("randomizer", RANDOMIZERS, ids=lambda r: type(r).__name__)
def test_the_audit_of_a_randomizer_finds_nine_tenths_of_its_epsilon(randomizer):
    found = tn.audit(randomizer, trials=40_000)
    assert found.consistent
    assert found.epsilon_lower > 0.9 * randomizer.epsilon0


def test_randomizers_of_vectors_and_gaussian_noise_pass_their_audit():
    assert tn.audit(L2Randomizer.best(8, epsilon=1.0, message_bits=4), trials=10_000).consistent
    gaussian = tn.audit(GaussianRandomizer(4.0, 1.0), delta=1e-3, trials=40_000)
    assert gaussian.consistent
    assert gaussian.epsilon_lower > 0.5 * gaussian.epsilon.upper


class Twice(KaryRandomizedResponse):
    """Randomizer that sends two messages of an item and claims the ε of one."""

    def encode(self, values, source):
        return super().encode(values, source) * self.items + super().encode(values, source)


def test_the_audit_detects_a_randomizer_that_sends_two_messages():
    found = tn.audit(Twice(1.0, 5), trials=20_000)
    assert not found.consistent
    assert "violated" in repr(found)


def test_the_audit_of_a_bandit_passes_and_detects_halved_noise():
    assert tn.audit(LocalBits(1.0), trials=500).consistent

    class PrintedNoise(CentralSums):
        def release(self, totals, source):
            return CentralSums(2.0 * self.epsilon_asked).release(totals, source)

    assert not tn.audit(PrintedNoise(1.0), trials=1000).consistent


def estimated(epsilon):
    def estimate(towns):
        found = tn.estimate_frequencies(
            towns,
            categories=["Bonn", "Trier"],
            epsilon=epsilon,
            trust="central",
            relation="replace-one",
        )
        return found.raw

    return estimate


def test_the_audit_of_a_function_compares_its_outputs_on_two_given_data_sets():
    worlds = ["Bonn"] * 3 + ["Trier"] * 2, ["Bonn"] * 2 + ["Trier"] * 3
    settings = {"worlds": worlds, "epsilon": 1.0, "delta": 0.0, "trials": 200}
    assert tn.audit(estimated(1.0), **settings).consistent
    assert not tn.audit(estimated(5.0), **settings).consistent
    with pytest.raises(tn.ParameterError, match="epsilon = None"):
        tn.audit(estimated(1.0), worlds=worlds, delta=0.0)


def test_invalid_audits_are_refused():
    with pytest.raises(tn.ParameterError, match="of = 3: expected a scheme"):
        tn.audit(3)
    scheme = tn.Scheme(tn.LaplaceNoise(1.0), tn.EveryStep(1), "add-remove")
    with pytest.raises(tn.UnsupportedError, match="LaplaceNoise"):
        tn.audit(scheme, delta=1e-4)
    with pytest.raises(tn.ParameterError, match="delta"):
        tn.audit(example="digits", delta=1e-4)
    with pytest.raises(tn.ParameterError, match="trials"):
        tn.audit(tn.Scheme(tn.GaussianNoise(1.0), tn.EveryStep(1), "add-remove"),
                 delta=1e-4, trials=10)  # fmt: skip


def one_run(scheme, upper, canaries=800):
    stated = Statement({"remove": Bounds(0.0, upper)}, 1e-6, {})
    return play_one_run(scheme, "a test", [stated], canaries=canaries, confidence=0.99, seed=4)


@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
def test_the_lower_bound_from_one_run_is_positive_and_below_epsilon(relation):
    noise = 0.4 if relation == "add-remove" else 0.8
    scheme = tn.Scheme(tn.GaussianNoise(noise), tn.CheckIn(3, 4), relation)
    found = one_run(scheme, 3.0)
    truth = tn.price(tn.Scheme(tn.GaussianNoise(noise), tn.EveryStep(4), "add-remove"), delta=1e-6)
    assert 0.5 < found.epsilon_lower < truth.epsilon.upper
    assert not one_run(scheme, 0.5).consistent


def test_an_audit_from_one_run_refuses_clients_with_different_distributions():
    scheme = tn.Scheme(tn.GaussianNoise(1.0), tn.SlidingWindow(3, 9), "add-remove")
    with pytest.raises(tn.UnsupportedError, match="identically distributed"):
        one_run(scheme, 1.0)


def test_each_canary_uses_a_separate_coordinate():
    inside = np.array([True, False, True])
    algorithm = Canaries(inside, 0.0, 0.5)
    total = algorithm.clipped_sum(np.zeros(0), np.array([0, 1, 2])).total
    assert total.tolist() == [0.5, 0.0, 0.5]
    assert algorithm.clipped_sum(np.zeros(0), np.array([2])).total.tolist() == [0.0, 0.0, 0.5]


def test_an_audit_from_one_run_needs_enough_canaries_to_contradict_its_claim():
    scheme = tn.Scheme(tn.GaussianNoise(1.4), tn.CheckIn(10, 10), "add-remove")
    found = tn.audit(scheme, delta=1e-4, one_run=True, canaries=10_000)
    assert found.consistent
    assert found.found.stated.delta < 1e-4
    with pytest.raises(tn.UnsupportedError, match="100 canaries cannot contradict"):
        tn.audit(scheme, delta=1e-4, one_run=True, canaries=100)


def test_an_audit_from_one_run_detects_missing_noise(monkeypatch):
    monkeypatch.setattr(Setup, "noise", lambda self, step: lambda std, size: np.zeros(size))
    scheme = tn.Scheme(tn.GaussianNoise(1.4), tn.CheckIn(10, 10), "add-remove")
    found = tn.audit(scheme, delta=1e-4, one_run=True, canaries=10_000)
    assert not found.consistent


@pytest.mark.parametrize("kind", [SeededCode, LInfRandomizer])
def test_messages_of_many_values_are_scored_by_their_likelihood(kind, mutate):
    honest = tn.audit(kind(650, 4.0), trials=2000)
    assert honest.consistent
    assert honest.epsilon_lower > 0.3
    claimed = Bounds(0.0, 1.0)
    mutate(audited, "_of_message", lambda of, delta: Statement({"replace": claimed}, 0.0, {}))
    assert not tn.audit(kind(650, 4.0), trials=2000).consistent


RESPONSE = KaryRandomizedResponse(1.0, 5)
SCHEME = tn.Scheme(tn.GaussianNoise(1.0), tn.CheckIn(10), "add-remove")


@pytest.mark.parametrize(
    ("of", "options", "words"),
    [
        (RESPONSE, {"delta": -1.0}, "delta"),
        (RESPONSE, {"delta": math.nan}, "delta"),
        (RESPONSE, {"delta": 1.0}, "delta"),
        (RESPONSE, {"epsilon": 0.01}, "has its own"),
        (RESPONSE, {"worlds": (1, 1)}, "differ"),
        (RESPONSE, {"worlds": (1, 2, 3)}, "two inputs"),
        (float, {"worlds": (0, 1), "epsilon": math.nan, "delta": 0.0}, "epsilon"),
        (SCHEME, {"delta": 1e-4, "worlds": (0, 1)}, "worlds"),
        (SCHEME, {"delta": 1e-4, "epsilon": 1.0}, "epsilon"),
        (SCHEME, {"delta": 1e-4, "example": "digits"}, "example"),
        (SCHEME, {"delta": 1e-4, "canaries": 10}, "without one_run"),
        (SCHEME, {"delta": 1e-4, "one_run": True, "trials": 1000}, "with one_run"),
        (SCHEME, {"delta": 1e-4, "one_run": True, "canaries": 10**9}, "canaries"),
        (SCHEME, {"delta": 1e-4, "deployed": "no"}, "deployed"),
    ],
)
def test_audit_options_that_would_be_ignored_are_refused(of, options, words):
    with pytest.raises(ParameterError, match=words):
        tn.audit(of, **options)
