"""Bandit environments: random, with contexts as linear bandits, and replayed reward logs."""

import numpy as np
import pytest

from turnout.bandits import (
    BareSums,
    CentralSums,
    Elimination,
    LinearEnvironment,
    LoggedEnvironment,
    best_features,
    contextual_environment,
    core_set,
    parameter_net,
    read_log,
    simulate_bandit,
    sphere_environment,
    two_best_environment,
)
from turnout.core.errors import InputFileError, ParameterError, UnsupportedError
from turnout.randomness import SimulationStreams
from turnout.testing.frequencies import assert_mean, assert_rejects

ACTIONS = np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.6]])


def test_environments_have_the_stated_means_and_gaps():
    drawn = sphere_environment(7, 3, np.random.default_rng(1))
    assert np.allclose(np.linalg.norm(drawn.actions, axis=1), 1)
    assert drawn.gaps[drawn.best] == 0
    close = two_best_environment(0.02, 6)
    assert np.sort(close.gaps)[1] == pytest.approx(0.02)


@pytest.mark.parametrize(
    ("actions", "parameter", "said"),
    [
        (np.empty((0, 2)), [1.0, 0.0], "actions"),
        ([[0.0, 0.0]], [1.0, 0.0], "actions"),
        ([[1.0, np.nan]], [1.0, 0.0], "actions"),
        ([[1.0, 0.1]], [1.0, 0.0], "actions"),
        ([[1.0, 0.0]], [1.0], "parameter"),
        ([[1.0, 0.0]], [1.0, 1.0], "parameter"),
    ],
)
def test_invalid_bandit_environments_are_refused(actions, parameter, said):
    with pytest.raises(ParameterError, match=said):
        LinearEnvironment(np.array(actions), np.array(parameter))


def contexts(count=300, seed=0):
    """Features of three actions in many contexts, of norm at most 1."""
    drawn = np.random.default_rng(seed).standard_normal((count, 3, 2))
    return drawn / np.maximum(np.linalg.norm(drawn, axis=2, keepdims=True), 1)


def test_a_candidate_parameter_has_the_mean_reward_of_its_best_actions():
    features, truth = contexts(), np.array([0.6, 0.8])
    net = parameter_net(2, 0.05)
    environment = contextual_environment(features, truth, net)
    chosen = np.argmax(features @ net[7], axis=1)
    own = np.mean([features[i, a] @ truth for i, a in enumerate(chosen)])
    assert environment.means[7] == pytest.approx(own)
    # Who knows the parameter loses nothing; one within 0.05 of it little; the opposite much.
    exact = contextual_environment(features, truth, truth[None])
    assert exact.gaps[0] == pytest.approx(0, abs=1e-12)
    assert environment.gaps.min() < 0.01
    assert environment.gaps.max() > 0.5
    assert np.array_equal(best_features(features, net)[7], environment.actions[7])


def test_regret_with_contexts_is_far_below_that_of_uniform_play():
    environment = contextual_environment(contexts(), np.array([0.6, 0.8]), parameter_net(2, 0.1))
    run = simulate_bandit(
        Elimination(), environment, CentralSums(1.0), 20_000, SimulationStreams(2)
    )
    assert run.regret[-1] < 0.2 * 20_000 * environment.gaps.mean()
    assert core_set(environment.actions).rank == 2


@pytest.mark.parametrize(("dimension", "fineness"), [(1, 0.5), (2, 0.1), (3, 0.2), (4, 0.4)])
def test_every_direction_is_near_a_point_of_the_parameter_net(dimension, fineness):
    net = parameter_net(dimension, fineness)
    assert np.allclose(np.linalg.norm(net, axis=1), 1)
    drawn = np.random.default_rng(0).standard_normal((300, dimension))
    drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
    nearest = np.linalg.norm(drawn[:, None] - net[None], axis=2).min(axis=1)
    assert nearest.max() <= fineness
    assert len(net) <= (3 / fineness) ** dimension + 2 * dimension


def test_a_parameter_net_too_large_for_memory_is_refused():
    with pytest.raises(UnsupportedError, match="too many"):
        parameter_net(12, 0.01)


def test_a_reward_log_is_replayed_client_by_client():
    generator = np.random.default_rng(4)
    outcomes = generator.uniform(-1, 1, (4000, 3)) * [0.2, 0.4, 0.1] + [0.1, 0.5, 0.3]
    environment = LoggedEnvironment(ACTIONS, outcomes)
    run = simulate_bandit(Elimination(), environment, CentralSums(2.0), 4000, SimulationStreams(3))
    assert environment.best == 1
    assert run.batches[-1].actions.tolist() == [1]
    sums = [
        environment.sums(BareSums(), run.batches[0], 100, SimulationStreams(seed).source("log"))
        for seed in range(300)
    ]
    rows = outcomes[100 : 100 + run.batches[0].size].mean(axis=0)[run.batches[0].actions]
    means = (np.array(sums) / run.batches[0].pulls)[:, 0]

    def agrees(values):
        assert_mean(values, rows[0])

    agrees(means)
    assert_rejects(agrees, {"another action's": means + 0.2})
    with pytest.raises(ParameterError, match="horizon"):
        environment.sums(BareSums(), run.batches[0], 3999, SimulationStreams(1).source("log"))


def test_a_reward_log_with_a_byte_order_mark_and_blank_lines_is_read(tmp_path):
    text = "client,reward_0,reward_1,reward_2\na,0,0,1\na\0,0,1,0\n\n\n"
    (tmp_path / "log.csv").write_text(text, encoding="utf-8-sig")
    assert read_log(tmp_path / "log.csv", ACTIONS).outcomes.tolist() == [[0, 0, 1], [0, 1, 0]]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("client,reward_0,reward_1,reward_2\na,0,0,1.5\n", "reward_2 = 1.5"),
        ("client,reward_0,reward_1,reward_2\na,0,nan,1\n", "reward_1 = nan"),
        ("client,reward_0,reward_1,reward_2\na,0,,1\n", "reward_1 = "),
        ("client,reward_0,reward_1,reward_2\na,0,0,1\nb,0,0,1\na,0,0,1\n", "client 'a' in lines 2"),
        (
            "client,reward_0,reward_1,reward_2\n\xe9,0,0,1\ne\u0301,0,0,1\n",
            "client '\xe9' in lines 2",
        ),
        ("client,reward_0,reward_1,reward_2\na,0,0,1\n\nb,0,0,1\n", "no client in line 3 of "),
    ],
)
def test_reward_logs_with_repeated_clients_or_invalid_rewards_are_refused(tmp_path, text, said):
    path = tmp_path / "log.csv"
    path.write_text(text)
    with pytest.raises(ParameterError) as refused:
        read_log(path, ACTIONS)
    assert said in str(refused.value)
    path.write_text("who,reward\n")
    with pytest.raises(InputFileError, match="columns"):
        read_log(path, ACTIONS)
    with pytest.raises(InputFileError, match="cannot be read"):
        read_log(tmp_path / "none.csv", ACTIONS)
