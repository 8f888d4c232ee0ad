"""δ of random allocation by simulation, with a valid confidence interval.

Source: Feldman and Shenfeld 2025 (feldman2025allocation), Lemma D.1, for Gaussian noise:
remove δ = E_Q[(S − K)₊] = E_P[(1 − K/S)₊], add δ = E_Q[(1 − K·S)₊], where S is the average of t
lognormal ratios. The simulation is an independent check of `turnout.accounting.price`, not a method
for computing guarantees.

Plain sampling needs about 1/δ runs. Here rows are drawn where the integrand is large (`strata`):
with a jump of one score, or with scores tilted towards the threshold K. Weight times integrand is
bounded by a known B in each stratum, so the empirical Bernstein bound of Maurer and Pontil 2009
(maurer2009empirical, Theorem 4) gives an interval at a given level without an estimate of the
variance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from strata import Stratum, add_strata, remove_strata

from turnout.accounting.divergence.curves import Direction
from turnout.accounting.published.results import PublishedResult, Status
from turnout.core import checks
from turnout.core.errors import NumericalError
from turnout.schemes import Relation

_CHUNK = 1 << 20  # number of scores drawn in one block
_LARGEST_EPSILON = 300.0


@dataclass(frozen=True, slots=True)
class Estimate:
    """Confidence interval for one δ.

    Attributes:
        value: unbiased estimate of δ.
        lower: lower end; δ is below it with probability at most ``false_alarm`` / 2.
        upper: upper end; δ is above it with probability at most ``false_alarm`` / 2.
        false_alarm: upper bound on the probability that δ lies outside the interval.
        samples: total number of drawn rows.
    """

    value: float
    lower: float
    upper: float
    false_alarm: float
    samples: int


def lemma_d_1(
    noise_multiplier: float,
    window: int,
    epsilon: float,
    direction: Direction,
    *,
    samples: int,
    generator: np.random.Generator,
    false_alarm: float = 1e-9,
) -> Estimate:
    """δ(ε) of one check-in in a window with Gaussian noise, by simulation.

    Source: Lemma D.1; see the module.

    Args:
        noise_multiplier: σ.
        window: t; a row draws t scores.
        epsilon: ε ≥ 0.
        direction: remove or add. A guarantee needs both.
        samples: rows, at least 4.
        generator: generator of the draws; equal generators give equal results.
        false_alarm: upper bound on the probability that δ lies outside the interval.

    Raises:
        NumericalError: e^ε exceeds the range of floats.
    """
    checks.positive(noise_multiplier=noise_multiplier)
    checks.count(window=window)
    checks.count(4, samples=samples)
    checks.non_negative(epsilon=epsilon)
    checks.open_unit(false_alarm=false_alarm)
    if epsilon > _LARGEST_EPSILON:
        raise NumericalError(f"epsilon = {epsilon:g}: e^epsilon exceeds the range of floats")
    remove = checks.choice(Direction, direction=direction) is Direction.REMOVE
    strata_of = remove_strata if remove else add_strata
    strata = strata_of(1 / noise_multiplier, window, math.exp(epsilon))
    return estimate(strata, window, samples, generator, false_alarm)


def estimate(
    strata: Sequence[Stratum],
    window: int,
    samples: int,
    generator: np.random.Generator,
    false_alarm: float,
) -> Estimate:
    """Sum of the estimates of all strata, with rows and false-alarm rate shared equally."""
    rows = samples // len(strata)
    tail = math.log(4 * len(strata) / false_alarm)  # two bounds for each of two events
    value, error = 0.0, 0.0
    for stratum in strata:
        bound = math.exp(stratum.log_bound)
        if bound == 0:
            continue
        shares = _draw(stratum, rows, window, generator)
        deviation = math.sqrt(2 * float(shares.var(ddof=1)) * tail / rows)
        rounding = 1e-9 + 64 * window * 2.0**-53
        value += bound * float(shares.mean())
        error += bound * (deviation + 7 * tail / (3 * (rows - 1)) + rounding)
    return Estimate(
        value, max(0.0, value - error), min(1.0, value + error), false_alarm, rows * len(strata)
    )


def _draw(stratum: Stratum, rows: int, window: int, generator: np.random.Generator) -> np.ndarray:
    chunk = max(1, _CHUNK // window)
    parts = [stratum.values(generator, min(chunk, rows - start)) for start in range(0, rows, chunk)]
    return np.concatenate(parts)


RESULTS = (
    PublishedResult(
        "random allocation Lemma D.1",
        "feldman2025allocation, Lemma D.1, by simulation",
        Status.SAMPLED,
        Relation.ZERO_OUT,
        ("remove", "add"),
        "Gaussian",
        "one pick; costs window * samples draws",
        lemma_d_1,
    ),
)
