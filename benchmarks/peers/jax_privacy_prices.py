"""ε of JAX Privacy's batch selections: its own accounting compared with turnout's.

PYTHONPATH=src "$(python benchmarks/peers/environment.py jax-privacy)" \\
    benchmarks/peers/jax_privacy_prices.py [--samples N] [--json FILE]

JAX Privacy uses dp-accounting's privacy-loss distributions for Poisson sampling, Rényi divergences
for batches of a fixed size, and Monte Carlo for balls in bins: the ε at which the estimated δ is
the required δ, and the larger ε that may be reported from so many samples (its `get_base_delta`).
Its noise multiplier is relative to the sensitivity of a sum, which under replace-one is two clip
norms; turnout's is relative to the clip norm.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dp_accounting
import numpy as np
from jax_privacy import batch_selection as batches
from jax_privacy.experimental import accounting
from jax_privacy.experimental.monte_carlo import delta_calculation, sample_generation
from scipy.optimize import brentq

from turnout.accounting import price
from turnout.integrations.jax_privacy import scheme

SIGMA, DELTA, RECORDS = 1.0, 1e-3, 2000
INDEPENDENT = batches.PartitionType.INDEPENDENT


def by_pld(event: Any) -> float:
    """ε of an event by dp-accounting's privacy-loss distributions."""
    return dp_accounting.pld.PLDAccountant().compose(event).get_epsilon(DELTA)


def by_renyi(event: Any) -> float:
    """ε of an event under replace-one by dp-accounting's Rényi divergences."""
    relation = dp_accounting.NeighboringRelation.REPLACE_ONE
    accountant = dp_accounting.rdp.RdpAccountant(neighboring_relation=relation)
    return accountant.compose(event).get_epsilon(DELTA)


def sampled(strategy: Any, samples: int) -> dict[str, float]:
    """Monte Carlo ε of the larger direction: the estimate, and the value that may be reported."""
    losses = [
        sample_generation.get_privacy_loss_sample(
            strategy, SIGMA, np.ones(1), seed, positive_sample=positive, num_samples=samples
        )[0]
        for seed, positive in enumerate((True, False))
    ]
    least = delta_calculation.get_base_delta(samples, DELTA)

    def at(delta: float) -> float:
        def excess(epsilon: float) -> float:
            found = delta_calculation.delta_from_epsilon_and_samples
            return max(float(found(epsilon, one)) for one in losses) - delta

        return float(brentq(excess, 0.0, 100.0, xtol=1e-6))

    return {"theirs": at(DELTA), "theirs, certified": at(least)}


def cases(samples: int) -> list[tuple[str, Any, str, Callable[[], dict[str, float]]]]:
    """Description, strategy, relation and ε of each case."""

    def poisson(rate: float, steps: int, bands: int = 1) -> Callable[[], dict[str, float]]:
        make = accounting.amplified_bandmf_event
        event = make(SIGMA, steps, num_bands=bands, sampling_prob=rate)
        return lambda: {"theirs": by_pld(event)}

    # Batches of a fixed size, for accounting by Rényi divergences.
    fixed = accounting.fixed_dpsgd_event(SIGMA, 160, dataset_size=RECORDS, batch_size=50)
    balls, cyclic = batches.BallsInBinsSampling, batches.CyclicPoissonSampling
    # Poisson batches, cyclic batches, balls in bins, and batches of a fixed size.
    return [
        ("Poisson, p = 1/40, T = 160", cyclic(0.025, 160), "add-remove", poisson(0.025, 160)),
        (
            "cyclic Poisson, p = 1/4, c = 10, T = 160",
            cyclic(0.25, 160, cycle_length=10, partition_type=INDEPENDENT),
            "add-remove",
            poisson(0.25, 160, 10),
        ),
        (
            "cyclic, p = 1, c = 40, T = 160, independent groups",
            cyclic(1.0, 160, cycle_length=40, partition_type=INDEPENDENT),
            "zero-out",
            poisson(1.0, 160, 40),
        ),
        *(
            (
                f"balls in bins, c = 40, T = {steps}",
                balls(steps, 40),
                "zero-out",
                lambda steps=steps: sampled(balls(steps, 40), samples),
            )
            for steps in (40, 160, 400)
        ),
        (
            "batches of 50 of 2,000, T = 160",
            batches.FixedBatchSampling(50, 160),
            "replace-one",
            lambda: {"theirs": by_renyi(fixed)},
        ),
    ]


def main() -> None:
    """Print a table, and write JSON if requested."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=100_000)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    rows = []
    for words, strategy, relation, theirs in cases(asked.samples):
        began = time.process_time()
        noise = SIGMA * (2.0 if relation == "replace-one" else 1.0)
        ours = price(scheme(strategy, noise, relation, RECORDS), DELTA).epsilon
        between = time.process_time()
        row = {"case": words, "relation": relation, "lower": ours.lower, "upper": ours.upper}
        row |= {"seconds": between - began, **theirs()}
        row["their seconds"] = time.process_time() - between
        rows.append(row)
        best = row.get("theirs, certified", row["theirs"])
        print(
            f"{words} ({relation}): ours {ours.lower:.4f} to {ours.upper:.4f}, theirs "
            f"{row['theirs']:.4f}, to report {best:.4f}, ratio {best / ours.upper:.3f}; "
            f"{row['seconds']:.2f} and {row['their seconds']:.2f} CPU-seconds",
            flush=True,
        )
    if asked.json:
        asked.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
