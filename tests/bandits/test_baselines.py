"""Baselines: regret below uniform play's, and ε of the private ones by certified accounting."""

import numpy as np
import pytest

from turnout.bandits import (
    BareSums,
    BatchedThompson,
    CentralSums,
    Elimination,
    LinUCB,
    PrivateLinUCB,
    phased_elimination,
    simulate,
    sphere_environment,
)
from turnout.bandits.private_ucb import _joined
from turnout.core.errors import ParameterError
from turnout.randomness import SimulationStreams

HORIZON = 5000


def share_of_uniform(policy, mechanism=None, seeds=3):
    """Regret as a share of uniform play's."""
    shares = []
    for seed in range(seeds):
        streams = SimulationStreams(seed)
        environment = sphere_environment(8, 2, streams.generator("environment"))
        run = simulate(policy, environment, mechanism or BareSums(), HORIZON, streams)
        assert run.pulled[-1] == HORIZON
        shares.append(run.regret[-1] / (HORIZON * environment.gaps.mean()))
    return np.mean(shares)


def test_policies_are_better_than_uniform_play_and_private_ones_cost_little():
    assert share_of_uniform(LinUCB()) < 0.1
    assert share_of_uniform(LinUCB(switch=0.0), seeds=1) < 0.1
    assert share_of_uniform(phased_elimination()) < 0.5
    private = share_of_uniform(BatchedThompson(), CentralSums(1.0))
    assert private < 0.05
    assert share_of_uniform(BatchedThompson(guard=Elimination()), CentralSums(1.0)) < 0.05


@pytest.mark.parametrize("model", ["central", "local", "shuffled"])
def test_private_linucb_is_priced_by_what_it_releases(model):
    policy = PrivateLinUCB(model, 1.0, 1e-6, batch=500)
    assert 0.9 < policy.epsilon(HORIZON, 2) <= 1.0
    assert share_of_uniform(policy, seeds=1) < 1.5
    # More noise for less ε, and a deeper tree for smaller batches.
    tighter = PrivateLinUCB(model, 0.5, 1e-6, batch=500)
    assert tighter.deviation(HORIZON, 2) > 1.2 * policy.deviation(HORIZON, 2)
    assert PrivateLinUCB("central", 1.0, 1e-6, 10).levels(HORIZON) == 9


def test_two_clients_are_as_far_apart_as_the_noise_is_for():
    generator = np.random.default_rng(0)
    most = 0.0
    for _ in range(2000):
        a, b = generator.standard_normal((2, 3))
        one = _joined(a / np.linalg.norm(a), 1, 1.0)
        other = _joined(b / np.linalg.norm(b), 1, -1.0)
        most = max(most, float(np.linalg.norm(one - other)))
    assert 2.1 < most <= np.sqrt(4.5)


def test_wrong_settings_are_refused():
    with pytest.raises(ParameterError, match="model"):
        PrivateLinUCB("none", 1.0, 1e-6)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ParameterError, match="delta"):
        PrivateLinUCB("central", 1.0, 0.0)
    with pytest.raises(ParameterError, match="growth"):
        BatchedThompson(growth=1.0)
