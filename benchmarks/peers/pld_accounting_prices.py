"""Bounds of pld-accounting on ε of random allocation, with documented and with best settings.

benchmarks/accounting.py runs this script with the interpreter of pld-accounting's environment. It
prints one JSON object per line. Its routes:

default: ``gaussian_allocation_epsilon_range`` as documented, which refines both bounds until
    their distance is within a tenth.
upper-remove, upper-add, lower-remove: one bound in one direction at one step of the loss grid, by
    geometric convolution, the only method that bounds from both sides; then at half the step,
    and so on.
fft-remove: the upper bound by FFT, with more and more points.

The CPU time of each bound is that of its own call only, as if the settings had been known. The
larger of the two upper bounds and the lower bound of *either* direction make a bracket on ε.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any

from metering import arguments, climb, limit_memory, measured
from PLD_accounting import (
    AllocationSchemeConfig,
    BoundType,
    ConvolutionMethod,
    Direction,
    PrivacyParams,
    compose_full_pld,
    gaussian_allocation_directional_pld,
    gaussian_allocation_epsilon_range,
    has_numba,
)

TAIL = 0.01  # share of δ for truncated tails; a smaller share changes no bound by 1e-4
FIRST_STEP = 1.6  # of ε: a wide bracket, but the only answer for long windows
FIRST_POINTS = 10**7
LEVELS = 14
GROWTH = 4.0  # half the step, or four times the points, takes four times as long


def default(asked: PrivacyParams) -> dict[str, Any]:
    upper, lower = gaussian_allocation_epsilon_range(
        delta=asked.require_delta(),
        sigma=asked.sigma,
        num_steps=asked.num_steps,
        num_selected=asked.num_selected,
        num_epochs=asked.num_epochs,
    )
    return {"lower": lower, "upper": upper}


def bound(
    asked: PrivacyParams, config: AllocationSchemeConfig, side: BoundType, direction: Direction
) -> dict[str, Any]:
    loss = gaussian_allocation_directional_pld(
        params=asked, config=config, direction=direction, bound_type=side
    )
    # The given direction is passed as "remove", so that only this direction is composed.
    pld = compose_full_pld(remove_dist=loss, add_dist=None, bound_type=side)
    return {"epsilon": float(pld.get_epsilon_for_delta(asked.require_delta()))}


def geometric_levels(
    asked: PrivacyParams, scale: float, side: BoundType, direction: Direction
) -> Iterator:
    for level in range(LEVELS):
        step = FIRST_STEP * scale / 2**level
        config = AllocationSchemeConfig(
            loss_discretization=step, tail_truncation=TAIL * asked.require_delta()
        )
        yield partial(bound, asked, config, side, direction), {"step": step}


def fft_levels(asked: PrivacyParams, scale: float) -> Iterator:
    """Range of the likelihood ratio, numbers of points, and loss steps that are not coarser."""
    largest = math.exp(min(8 / asked.sigma + 0.5 / asked.sigma**2, 300.0))
    for level in range(LEVELS):
        points = FIRST_POINTS * 4**level
        step = min(1e-3 * scale, 0.1 * largest / points)
        config = AllocationSchemeConfig(
            loss_discretization=step,
            tail_truncation=TAIL * asked.require_delta(),
            max_grid_fft=points,
            convolution_method=ConvolutionMethod.FFT,
        )
        labels = {"step": step, "points": points}
        yield partial(bound, asked, config, BoundType.DOMINATES, Direction.REMOVE), labels


def warm_up() -> None:
    """Compile or load the numba code of every route."""
    asked = PrivacyParams(sigma=1.1, num_steps=20, num_epochs=2, delta=1e-5)
    default(asked)
    for side in (BoundType.DOMINATES, BoundType.IS_DOMINATED):
        for direction in (Direction.REMOVE, Direction.ADD):
            next(geometric_levels(asked, 1.0, side, direction))[0]()
    next(fft_levels(asked, 1.0))[0]()


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    routes = ("default", "upper-remove", "upper-add", "lower-remove", "fft-remove")
    parser.add_argument("route", choices=routes)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    assert has_numba()
    # Compilation is not measured.
    warm_up()
    limit_memory(given.gibibytes)
    asked = PrivacyParams(
        sigma=given.sigma,
        num_steps=given.window,
        num_selected=given.picks,
        num_epochs=given.windows,
        delta=given.delta,
    )
    # One answer with documented settings, or finer and finer bounds.
    if given.route == "default":
        measured(partial(default, asked), given.seconds)
        return

    def enough(row: dict[str, Any]) -> bool:
        """Whether a bound is close enough to the wanted ε, or is that of the smaller direction."""
        if given.route == "upper-add" and row["epsilon"] < given.scale:
            return True
        return abs(row["epsilon"] - given.scale) < 2e-4 * given.scale

    name, direction = given.route.split("-")
    if name == "fft":
        climb(fft_levels(asked, given.scale), given.seconds, GROWTH, enough)
        return
    side = BoundType.DOMINATES if name == "upper" else BoundType.IS_DOMINATED
    levels = geometric_levels(asked, given.scale, side, Direction(direction))
    climb(levels, given.seconds, GROWTH, enough)


if __name__ == "__main__":
    main()
