"""Distinguishing game on releases: likelihood ratios, correct schemes, and detected faults."""

import itertools
import math
from functools import cache

import numpy as np
import pytest
from scipy.stats import kstest

import turnout as tn
from turnout.api.audit import also_stated, bound_of, games_of, stated_by
from turnout.auditing import ReleaseGame, play
from turnout.auditing.confidence import LOG_RATIOS
from turnout.protocol.coordinator import Coordinator
from turnout.protocol.mechanisms import Clipping, mechanism_for
from turnout.randomness import SimulationStreams
from turnout.schemes.normal_form import Always, Bernoulli, Kept, KOf, OneOf
from turnout.simulation.engine import Setup
from turnout.testing.faults import FAULTS
from turnout.testing.participations import client_distribution

DELTA = 1e-4


def right_mechanism(scheme):
    return lambda d: mechanism_for(scheme, Clipping(d, 1.0), expected_check_ins=10.0)


@cache
def statements(scheme):
    return stated_by(tn.price(scheme, delta=DELTA).guarantee), also_stated(scheme, DELTA)


def audited(scheme, trials, fault=None, crowd=10, seed=1):
    games = games_of(scheme, right_mechanism(scheme), crowd)
    if fault is not None:
        games = [FAULTS[fault](game) for game in games]
    stated, also = statements(scheme)
    return play(games, "a test", stated, trials=trials, confidence=0.999, seed=seed, also=also)


LAWS = [
    (Always(), tn.EveryStep(1)),
    (Bernoulli(0.3), tn.PoissonSampling(0.3, 1)),
    (OneOf(4, 0.7), tn.CheckIn(4, probability=0.7)),
    (KOf(5, 2), tn.KSubset(5, 2)),
    (KOf(5, 5), tn.KSubset(5, 5)),
    (Kept(OneOf(3, 0.5), 2), tn.FixedAssignment(3, 2, probability=0.5)),
]


@pytest.mark.parametrize(("draw", "law"), LAWS)
def test_the_likelihood_ratio_is_the_mean_over_all_participation_draws(draw, law):
    """Compared with the enumerated distribution of the sampler."""
    a = np.random.default_rng(2).normal(0.0, 2.0, (law.steps, 6))
    expected = np.zeros(6)
    for steps, chance in client_distribution(law, 1, 0).items():
        expected += float(chance) * np.exp(a[list(steps)].sum(axis=0))
    assert LOG_RATIOS[draw](draw, a) == pytest.approx(np.log(expected), abs=1e-12)


def test_the_likelihood_ratio_of_extreme_releases_is_finite():
    a = np.array([[900.0], [-900.0], [0.0]])
    for draw in (OneOf(3), KOf(3, 2), Kept(OneOf(3), 1)):
        assert np.isfinite(LOG_RATIOS[draw](draw, a)).all()


def test_the_score_of_one_release_is_gaussian_with_and_without_the_client():
    scheme = tn.Scheme(tn.GaussianNoise(2.0), tn.EveryStep(1), "add-remove")
    game = ReleaseGame(scheme, right_mechanism(scheme))
    streams = SimulationStreams(0)
    for world, mean in ((0, 1.0), (1, 0.0)):
        seen = game.scores(world, 4000, streams, "t")["sum"]
        assert kstest(seen, "norm", (mean, 2.0)).pvalue > 1e-4
        assert kstest(seen, "norm", (mean, 1.6)).pvalue < 1e-9  # 0.8 σ, which this must refuse


@pytest.mark.parametrize("release", ["aggregated", "one-client"])
def test_other_clients_change_scores_only_under_one_client_releases(release):
    scheme = tn.Scheme(tn.GaussianNoise(0.5), tn.EveryStep(3), "zero-out", release)
    alone, among = (ReleaseGame(scheme, right_mechanism(scheme), n) for n in (0, 1))
    streams = SimulationStreams(0)
    sums = [game.scores(0, 3000, streams, "t")["sum"] for game in (alone, among)]
    if release == "aggregated":
        assert kstest(*sums).pvalue > 1e-4
    else:  # one of two is asked, at random
        assert kstest(*sums).pvalue < 1e-9


SCHEMES = [
    tn.Scheme(tn.GaussianNoise(1.4), tn.CheckIn(10, 3), "add-remove"),
    tn.Scheme(tn.GaussianNoise(2.0), tn.EveryStep(2), "replace-one"),
    tn.Scheme(tn.GaussianNoise(1.0), tn.PoissonSampling(0.1, 10), "zero-out"),
    tn.Scheme(tn.GaussianNoise(1.0), tn.SlidingWindow(6, 20), "add-remove"),
    tn.Scheme(tn.GaussianNoise(2.0), tn.FixedAssignment(5, 3), "add-remove"),
    tn.Scheme(tn.GaussianNoise(1.0), tn.FixedSize(2, 4, 1), "replace-one"),
    tn.Scheme(tn.GaussianNoise(0.7), tn.CheckIn(5), "zero-out", "one-client"),
    tn.Scheme(tn.GaussianNoise(1.5), tn.CheckIn(5), "replace-one", "averaged"),
]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_correct_mechanisms_pass_their_audit_with_a_positive_lower_bound(scheme):
    found = audited(scheme, 2000)
    assert found.consistent
    assert found.epsilon_lower > 0.01 * found.stated.epsilon.upper


def test_averaged_check_ins_with_a_population_are_refused():
    averaged = tn.Scheme(
        tn.GaussianNoise(1.0), tn.CheckIn(5), "replace-one", "averaged", population=100
    )
    with pytest.raises(tn.UnsupportedError, match="no client except the canary"):
        ReleaseGame(averaged, right_mechanism(averaged))


TRIALS = 10_000
SCHEME = tn.Scheme(tn.GaussianNoise(1.40023), tn.CheckIn(10, 10), "add-remove")


@pytest.mark.parametrize("fault", FAULTS)
def test_each_seeded_fault_violates_the_proved_epsilon(fault):
    assert not audited(SCHEME, TRIALS, fault).consistent


@pytest.mark.parametrize("seed", range(1, 3))
def test_a_correct_mechanism_without_a_fault_passes_its_audit(seed):
    assert audited(SCHEME, TRIALS, seed=seed).consistent


def test_seven_seeded_faults_are_audited():
    assert len(FAULTS) == 7


def test_likelihood_ratios_of_releases_have_mean_one():
    """E_Q[e^L] = 1 and E_P[e^{−L}] = 1 hold only for the right ratio."""
    scheme = tn.Scheme(tn.GaussianNoise(1.5), tn.CheckIn(4, 2), "add-remove")
    game, streams = ReleaseGame(scheme, right_mechanism(scheme)), SimulationStreams(5)
    for world, sign in itertools.product((0, 1), (1.0,)):
        ratio = game.scores(world, 40_000, streams, "t")["likelihood ratio"]
        values = np.exp(-ratio if world == 0 else ratio)
        off = sign * (values.mean() - 1.0) / (values.std() / math.sqrt(values.size))
        assert abs(off) < 5.0


def test_the_audit_of_deployed_noise_passes_and_detects_too_little_noise():
    right = tn.audit(SCHEME, delta=DELTA, trials=TRIALS // 2, deployed=True, seed=1)
    assert right.consistent
    assert right.epsilon_lower > 0.8
    assert "whole numbers" in right.found.game
    mechanism = bound_of(SCHEME, 1.0, 1)
    game, *_ = games_of(
        SCHEME, lambda d: mechanism_for(SCHEME, mechanism(d), expected_check_ins=10.0), 10, True
    )
    quieter = FAULTS["noise at 0.8 σ"](game)
    stated, also = statements(SCHEME)
    found = play([quieter], "", stated, trials=TRIALS, confidence=0.999, seed=1, also=also)
    assert not found.consistent


PLAN = {
    "data": {"name": "digits"},
    "model": {"name": "logistic"},
    "participation": {"law": "check-in", "window": 10, "windows": 10},
    "privacy": {"relation": "add-remove", "noise_multiplier": 1.4, "delta": DELTA},
    "optimizer": {"learning_rate": 0.1},
}


def quieter(noise):
    def of_step(self, step):
        draw = noise(self, step)
        return lambda std, size: 0.8 * draw(std, size)

    return of_step


def twice(receive):
    def received(self, message):
        receive(self, message)
        self._sum = self._sum + message.sum

    return received


@pytest.mark.parametrize("seed", [1, 2])
def test_the_audit_detects_a_simulation_with_too_little_noise(seed, monkeypatch):
    assert tn.audit(PLAN, trials=10_000, seed=seed).consistent
    monkeypatch.setattr(Setup, "noise", quieter(Setup.noise))
    assert not tn.audit(PLAN, trials=10_000, seed=seed).consistent


def test_the_audit_detects_a_coordinator_that_adds_each_update_twice(monkeypatch):
    monkeypatch.setattr(Coordinator, "receive", twice(Coordinator.receive))
    assert not tn.audit(PLAN, trials=10_000, seed=1).consistent
