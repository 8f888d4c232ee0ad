"""Regret of MABWiser's policies without privacy, in the environments of bandits.py.

`pip install mabwiser` is needed only for this benchmark. MABWiser has no parameter shared by all
arms: its LinUCB learns the mean of each arm from a constant context, as UCB1 and Thompson sampling
do, and information about one arm is not used for others.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from packages import named_packages

from turnout.bandits import sphere_environment
from turnout.randomness import SimulationStreams

POLICIES = ("MABWiser UCB1", "MABWiser Thompson sampling", "MABWiser LinUCB")
_BATCH = 100  # pulls between fits; a fit costs as much as a pull


def regret(name: str, seed: int, horizon: int) -> float:
    """Regret of one run whose policy is refitted after every hundred pulls."""
    streams = SimulationStreams(seed)
    environment = sphere_environment(10, 2, streams.generator("bandit", "environment"))
    generator = streams.generator("bandit", "peer")
    learner, total = _learner(name, seed), 0.0
    for begin in range(0, horizon, _BATCH):
        size = min(_BATCH, horizon - begin)
        context = {"contexts": np.ones((size, 1))} if name.endswith("LinUCB") else {}
        chosen = np.arange(size) % 10 if begin == 0 else _chosen(learner, size, context)
        bits = generator.random(size) < 0.5 * (1.0 + environment.means[chosen])
        total += float(environment.gaps[chosen].sum())
        learner.partial_fit(chosen.tolist(), bits.astype(int).tolist(), **context)
    return total


def _chosen(learner: Any, size: int, context: dict[str, Any]) -> np.ndarray:
    """Arms of the next pulls; without a context each pull is predicted separately."""
    if context:
        return np.array(learner.predict(**context))
    return np.array([learner.predict() for _ in range(size)])


def _learner(name: str, seed: int) -> Any:
    with named_packages():
        from mabwiser.mab import MAB, LearningPolicy  # pyright: ignore[reportMissingImports]

    policy = {
        "MABWiser UCB1": LearningPolicy.UCB1(alpha=1.0),
        "MABWiser Thompson sampling": LearningPolicy.ThompsonSampling(),
        "MABWiser LinUCB": LearningPolicy.LinUCB(alpha=1.0),
    }[name]
    return MAB(list(range(10)), policy, seed=seed)
