"""Baseline policies: less regret than uniform play, and certified ε of the private ones."""

import numpy as np
import pytest
from scipy.stats import norm

from turnout.bandits import (
    BareSums,
    BatchedThompson,
    CentralSums,
    Elimination,
    LinUCB,
    PrivateLinUCB,
    phased_elimination,
    simulate_bandit,
    sphere_environment,
)
from turnout.bandits.private_ucb import pull_sums
from turnout.core.errors import ParameterError, UnsupportedError
from turnout.randomness import SimulationStreams
from turnout.schemes import TrustModel

HORIZON = 5000


def share_of_uniform(policy, mechanism=None, seeds=3):
    """Regret as a share of uniform play's."""
    shares = []
    for seed in range(seeds):
        streams = SimulationStreams(seed)
        environment = sphere_environment(8, 2, streams.generator("environment"))
        run = simulate_bandit(policy, environment, mechanism or BareSums(), HORIZON, streams)
        assert run.pulled[-1] == HORIZON
        shares.append(run.regret[-1] / (HORIZON * environment.gaps.mean()))
    return np.mean(shares)


def test_policies_have_less_regret_than_uniform_play_also_with_privacy():
    assert share_of_uniform(LinUCB()) < 0.1
    assert share_of_uniform(LinUCB(switch=0.0), seeds=1) < 0.1
    assert share_of_uniform(phased_elimination()) < 0.5
    private = share_of_uniform(BatchedThompson(), CentralSums(1.0))
    assert private < 0.05
    assert share_of_uniform(BatchedThompson(guard=Elimination()), CentralSums(1.0)) < 0.05


@pytest.mark.parametrize("model", ["central", "local", "shuffled"])
def test_epsilon_of_private_linucb_is_close_to_the_requested_epsilon(model):
    batch = 100 if model == "shuffled" else 500
    policy = PrivateLinUCB(model, 1.0, 1e-6, batch)
    bounds = policy.epsilon(HORIZON, 2)
    assert 0.9 < bounds.upper <= 1.0
    assert bounds.lower > (0.3 if model == "shuffled" else 0.9)
    assert share_of_uniform(policy, policy.mechanism(2), seeds=1) < 1.5
    assert policy.mechanism(2).epsilon([np.array([HORIZON])]) == bounds
    # More noise for less ε, and a deeper tree for smaller batches.
    tighter = PrivateLinUCB(model, 0.5, 1e-6, batch)
    assert tighter.deviation(HORIZON, 2) > 1.2 * policy.deviation(HORIZON, 2)
    assert PrivateLinUCB("central", 1.0, 1e-6, 10).levels(HORIZON) == 9


def test_all_tree_nodes_that_contain_a_client_compose_to_one_gaussian_release():
    """δ(ε) of N(0, 1) against N(μ, 1) in closed form; omitting levels of the tree is detected."""
    policy = PrivateLinUCB("central", 1.0, 1e-6, batch=100)
    bounds, deviation = policy.epsilon(HORIZON, 2), policy.deviation(HORIZON, 2)

    def delta(epsilon, levels):
        shift = np.sqrt(4.5 * levels) / deviation
        low, high = norm.sf([epsilon / shift - shift / 2, epsilon / shift + shift / 2])
        return low - np.exp(epsilon) * high

    assert policy.levels(HORIZON) == 6
    assert delta(bounds.upper, 6) <= 1e-6 <= delta(bounds.lower, 6)
    assert delta(bounds.upper, 7) > 1e-6
    # With one batch nothing is told anybody before the run ends, so no second level is seen.
    assert PrivateLinUCB("central", 1.0, 1e-6, 100).epsilon(200, 2).lower < 0.8


def test_private_linucb_refuses_messages_of_real_clients():
    mechanism = PrivateLinUCB("local", 1.0, 1e-6).mechanism(2)
    assert mechanism.trust is TrustModel.LOCAL
    assert mechanism.delta == 1e-6
    with pytest.raises(UnsupportedError, match="log"):
        mechanism.messages(np.ones(3, int), 3, SimulationStreams(0).source("x"))


def test_statistics_of_two_clients_differ_by_at_most_the_sensitivity():
    generator = np.random.default_rng(0)
    most = 0.0
    for _ in range(2000):
        a, b = generator.standard_normal((2, 3))
        one = pull_sums(a / np.linalg.norm(a), 1, 1.0)
        other = pull_sums(b / np.linalg.norm(b), 1, -1.0)
        most = max(most, float(np.linalg.norm(one - other)))
    assert 2.1 < most <= np.sqrt(4.5)


def test_invalid_settings_of_baseline_policies_are_refused():
    with pytest.raises(ParameterError, match="model"):
        PrivateLinUCB("none", 1.0, 1e-6)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ParameterError, match="delta"):
        PrivateLinUCB("central", 1.0, 0.0)
    with pytest.raises(ParameterError, match="growth"):
        BatchedThompson(growth=1.0)
