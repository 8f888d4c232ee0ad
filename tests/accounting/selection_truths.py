"""The exact distribution of the best of K runs on a small set of outputs, by its definition."""

from __future__ import annotations

from itertools import permutations

import numpy as np

from turnout.accounting import Stopping
from turnout.accounting.meaning.profile import DeltaBounds, Profile
from turnout.schemes import Relation


def hockey_stick(p, q, ratios):
    """Σ (p − K q)₊ for each K."""
    return np.maximum(p[None] - np.asarray(ratios)[:, None] * q[None], 0.0).sum(axis=1)


def exact_profile(p, q, epsilons):
    """The profile of one run whose laws are p and q."""
    ratios = np.exp(epsilons)
    there, back = hockey_stick(p, q, ratios), hockey_stick(q, p, ratios)
    pairs = (DeltaBounds(epsilons, each, each + 1e-15) for each in (there, back))
    return Profile(*pairs, Relation.ADD_REMOVE)


def best_law(p, stopping: Stopping):
    """The law of the best of K runs, outputs in rising order; by sums over K."""
    sums = np.concatenate([[0.0], np.cumsum(p)])
    chances = np.array([weight / 2**62 for weight in stopping.weights])
    values = np.array([chances @ s ** np.arange(1, stopping.most + 1) for s in sums])
    return np.diff(values)


def worst_over_orders(p, q, stopping, epsilons):
    """δ of the best of K at each ε, in the worse direction and under the worst order."""
    worst = np.zeros(len(epsilons))
    for order in permutations(range(len(p))):
        one, two = (best_law(law[list(order)], stopping) for law in (p, q))
        for first, second in ((one, two), (two, one)):
            worst = np.maximum(worst, hockey_stick(first, second, np.exp(epsilons)))
    return worst


def reported_count(p, q, stopping, epsilons):
    """δ of the best of K released beside K itself, in rising order."""
    total = np.zeros(len(epsilons))
    for k, weight in enumerate(stopping.weights, 1):
        alone = Stopping.fixed(k)
        one, two = best_law(p, alone), best_law(q, alone)
        total += weight / 2**62 * hockey_stick(one, two, np.exp(epsilons))
    return total


def pairs():
    """Pairs of laws on two to four outputs."""
    rng = np.random.default_rng(5)
    response = np.array([0.75, 0.25])
    found = [(response, response[::-1]), (np.array([0.1, 0.4, 0.5]), np.array([0.0, 0.3, 0.7]))]
    for size in (3, 4):
        found.extend(tuple(rng.dirichlet(np.full(size, 0.7), 2)) for _ in range(2))
    return found
