"""Core sets of actions: certified values and small supports, also if actions span a subspace."""

import numpy as np
import pytest

from turnout.bandits import core_set


def spread_actions(count, dimension, seed=0):
    drawn = np.random.default_rng(seed).standard_normal((count, dimension))
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


def value(actions, chosen, shares):
    """The design's value by a pseudo-inverse, in another way than the product computes it."""
    information = actions[chosen].T @ (shares[:, None] * actions[chosen])
    inverse = np.linalg.pinv(information, rcond=1e-12)
    return float(np.einsum("ij,jk,ik->i", actions, inverse, actions).max())


@pytest.mark.parametrize(
    ("count", "dimension"), [(1, 3), (2, 2), (10, 2), (500, 3), (100, 8), (2000, 20), (100_000, 10)]
)
def test_an_optimal_design_has_few_actions_and_a_nearly_optimal_value(count, dimension):
    actions = spread_actions(count, dimension)
    found = core_set(actions)
    rank = min(count, dimension)
    assert found.rank == rank
    assert found.value <= 1.01 * rank
    assert value(actions, found.actions, found.shares) <= 1.01 * rank * (1 + 1e-6)
    assert found.actions.size <= rank * (rank + 1) // 2
    assert found.shares.min() > 0
    assert found.shares.sum() == pytest.approx(1)
    assert np.all(np.diff(found.actions) > 0)


def test_the_uniform_design_has_a_worse_value_than_the_optimal_design():
    actions = spread_actions(300, 5) * np.array([1, 1, 1, 1, 0.01])
    actions = np.vstack([actions, np.eye(5)[-1]])
    assert value(actions, np.arange(301), np.full(301, 1 / 301)) > 10 * 5
    assert core_set(actions).value <= 1.01 * 5


def test_actions_that_do_not_span_the_space_have_an_optimal_design():
    flat = spread_actions(50, 3) @ np.vstack([np.eye(3), np.zeros((4, 3))]).T
    found = core_set(flat)
    assert found.rank == 3
    assert value(flat, found.actions, found.shares) <= 1.01 * 3 * (1 + 1e-6)
    same = np.tile([[0.6, 0.8]], (5, 1))
    assert core_set(same).rank == 1
    assert core_set(same).actions.size == 1


def test_design_with_too_many_actions_is_reduced():
    angles = np.arange(12) * np.pi / 12  # any weights on a regular polygon are optimal
    found = core_set(np.column_stack([np.cos(angles), np.sin(angles)]))
    assert found.actions.size <= 3
    assert found.value <= 2.02
