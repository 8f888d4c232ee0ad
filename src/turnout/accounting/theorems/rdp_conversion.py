"""From a linear Rényi curve to (ε, δ), by the thesis' closed form.

Source: Girgis 2023 (girgis2023thesis), Chapter 2. `RenyiCurve.epsilon` and `RenyiFormula.epsilon`
are tighter and need no linear curve.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from turnout.accounting.pairs import UNIT_ROUNDOFF
from turnout.accounting.theorems.results import Result, Status
from turnout.core import checks
from turnout.core.errors import ParameterError


def lemma_2_1_5(slope: float, delta: float) -> float:
    """ε = 3·max(ρ ln(1/δ), √(ρ ln(1/δ))) where R_α ≤ αρ at every α > 1.

    Source: Lemma 2.1.5 of Girgis 2023 (girgis2023thesis). A step of its proof takes
    ρ ≤ ρ ln(1/δ), so it needs δ ≤ 1/e, which the thesis does not say: at δ = 0.9 and ρ = 100 it
    gives 32 where Gaussian noise has a true δ of 1.

    Args:
        slope: ρ > 0.
        delta: δ in (0, 1/e].

    Raises:
        ParameterError: δ > 1/e.
    """
    checks.positive(slope=slope)
    checks.open_unit(delta=delta)
    if delta > math.exp(-1):
        raise ParameterError("delta", delta, "at most 1/e (Lemma 2.1.5)")
    return lemma_2_1_5_as_printed(slope, delta) * (1 + 8 * UNIT_ROUNDOFF)


def lemma_2_1_5_as_printed(slope: float, delta: float) -> float:
    """UNSAFE for δ > 1/e: see `lemma_2_1_5`."""
    checks.positive(slope=slope)
    checks.open_unit(delta=delta)
    square = -slope * math.log(delta)
    return 3 * max(square, math.sqrt(square))


def _stated(
    name: str, function: Callable[..., object], holds: str, status: Status = Status.PROVED
) -> Result:
    randomizer = "any with a linear Renyi curve"
    source = "girgis2023thesis, Lemma 2.1.5"
    return Result(name, source, status, None, (), randomizer, holds, function)


RESULTS = (
    _stated("thesis Lemma 2.1.5", lemma_2_1_5, "delta <= 1/e"),
    _stated(
        "thesis Lemma 2.1.5, as printed",
        lemma_2_1_5_as_printed,
        "unsafe for delta > 1/e",
        Status.UNSAFE,
    ),
)
