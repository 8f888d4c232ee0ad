"""Convergence of CLDP-SGD: measured slopes in T, k and ε₀, compared with Theorem 4.3.1.

python benchmarks/cldp_convergence.py [--seeds 8] [--json FILE]

The task is logistic regression on eight numbers of 4,000 clients. Updates are clipped in ℓ2 at
L = 1 and sent by `SeededCode`. Algorithm 4.3.1 runs with its schedule η_t = D/(G√t),
G² = L²(1 + f/k), and its projection, here onto ‖θ‖ ≤ D/2. Theorem 4.3.1 of the thesis bounds the
excess loss of the last iterate by D·G·log(T)/√T up to a constant. On logarithmic scales, the script
compares the slope of the excess loss (a mean over seeds) with the slope of G/√T: over a decade of
T, of the number k of clients per round, and of ε₀. Few clients participate per round, so that the
noise of messages dominates G. Otherwise runs are better than the bound, which uses L² in place of
the variance of gradients. The comparison omits the factor log T, which is due to the proof; with
this factor the bound's slope in T would be flatter.
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.optimize import brentq, minimize

import turnout as tn
from turnout.learning.algorithm import FedSGD
from turnout.learning.examples import Examples
from turnout.learning.models import build_model
from turnout.learning.optimizers import SGD, Projected
from turnout.learning.tasks import SupervisedTask
from turnout.randomizers.vectors import SeededCode
from turnout.reporting.surroundings import surroundings
from turnout.schemes.scheme import shuffled

CLIENTS, FEATURES, DIAMETER = 4000, 8, 8.0
ROUNDS, SAMPLED, LEVEL, READINGS = 3000, 10, 1.0, 50
DECADES = {
    "T": [(rounds, SAMPLED, LEVEL) for rounds in (1000, 2150, 4650, 10_000)],
    "k": [(ROUNDS, sampled, LEVEL) for sampled in (3, 6, 14, 30)],
    "ε₀": [(ROUNDS, SAMPLED, level) for level in (0.3, 0.65, 1.4, 3.0)],
}


@dataclass(frozen=True, slots=True)
class Falling:
    """Learning-rate schedule D/(G√t)."""

    scale: float

    def __call__(self, step: int) -> float:
        """Learning rate of a round, counted from 0."""
        return self.scale / math.sqrt(step + 1)


def task() -> SupervisedTask:
    """Learning task with one record per client, which minimises the mean loss of all clients."""
    random = np.random.default_rng(1)
    inputs = random.normal(size=(CLIENTS, FEATURES)).astype(np.float32) / math.sqrt(FEATURES)
    scores = 3 * inputs @ random.normal(size=FEATURES)
    labels = (random.random(CLIENTS) < 1 / (1 + np.exp(-scores))).astype(np.int64)
    examples = Examples(inputs, labels)
    return SupervisedTask(build_model("logistic", (FEATURES,), 2), examples, examples)


def least_loss(made: SupervisedTask) -> float:
    """Least loss F(θ*) within the ball, by a solver without privacy.

    The rows of θ* for the two classes are opposite, so ‖θ*‖ = ‖w‖/√2 for their difference w.
    """
    examples = made._examples
    rows = np.hstack([np.asarray(examples.inputs), np.ones((CLIENTS, 1))])
    signs = 2.0 * np.asarray(examples.labels) - 1

    def minimiser(strength: float) -> np.ndarray:
        def penalised(w: np.ndarray) -> tuple[float, np.ndarray]:
            scores = signs * (rows @ w)
            gradient = -(rows * (signs / (1 + np.exp(scores)))[:, None]).mean(axis=0)
            value = float(np.logaddexp(0, -scores).mean() + strength * (w @ w) / 2)
            return value, gradient + strength * w

        found = minimize(penalised, np.zeros(FEATURES + 1), jac=True, method="L-BFGS-B")
        assert found.success
        return found.x

    def beyond(logarithm: float) -> float:
        norm = float(np.linalg.norm(minimiser(math.exp(logarithm))))
        return norm - math.sqrt(2) * DIAMETER / 2

    w = minimiser(math.exp(float(brentq(beyond, -20, 0))) if beyond(-20) > 0 else 0.0)
    return float(np.logaddexp(0, -signs * (rows @ w)).mean())


def excess(made: SupervisedTask, least: float, setting: tuple[int, int, float], seed: int) -> float:
    """Excess loss F(θ_t) − F(θ*) of one run, averaged over the last fifth of its iterates."""
    rounds, sampled, level = setting
    code = randomizer(made, level)
    noise = math.sqrt(1 + code.worst_squared_error / sampled)
    optimizer = Projected(SGD(Falling(DIAMETER / noise)), DIAMETER / 2)
    run = tn.simulate(
        shuffled(code.priced_as, CLIENTS, rounds, sampled=sampled),
        algorithm=FedSGD(made, optimizer, 1.0),
        messages=code,
        seed=seed,
        evaluate_every=rounds // READINGS,
    )
    assert run.history is not None
    return float(np.mean(run.history.metrics["loss"][-READINGS // 5 :])) - least


def randomizer(made: SupervisedTask, level: float) -> SeededCode:
    """Randomizer of updates of norm at most 1."""
    return SeededCode(made.dimension, level, 1.0, directions=16, preferred=8)


def main() -> None:
    """Print the measured slope and the slope of the bound for each decade."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    made = task()
    least = least_loss(made)
    record: dict[str, object] = {"about": surroundings(), "least loss": least}
    print(f"least loss {least:.4f}\n\n| over | measured slope | bound's | excess losses |")
    print("|---|---|---|---|")
    for name, settings in DECADES.items():
        # Mean excess loss over seeds, and G/√T of the theorem, for each setting.
        losses = [
            float(np.mean([excess(made, least, each, seed) for seed in range(given.seeds)]))
            for each in settings
        ]
        bounds = [
            math.sqrt((1 + randomizer(made, level).worst_squared_error / sampled) / rounds)
            for rounds, sampled, level in settings
        ]
        # Slopes on logarithmic scales over the varied parameter.
        at = {"T": 0, "k": 1, "ε₀": 2}[name]
        where = np.log([each[at] for each in settings])
        slope, bound = (float(np.polyfit(where, np.log(some), 1)[0]) for some in (losses, bounds))
        record[name] = {"slope": slope, "bound": bound, "losses": losses}
        shown = ", ".join(f"{loss:.4f}" for loss in losses)
        print(f"| {name} | {slope:.2f} | {bound:.2f} | {shown} |", flush=True)
    if given.json is not None:
        given.json.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
