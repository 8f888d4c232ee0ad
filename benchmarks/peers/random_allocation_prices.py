"""Bounds of random-allocation on ε of random allocation, with documented and with best settings.

benchmarks/accounting.py runs this script with the interpreter of random-allocation's environment.
It prints one JSON object per line. Three routes:

default: the settings of the package's own examples.
upper: the least of its upper bounds ("combined"), with finer and finer privacy-loss distributions.
lower: its lower bound, which covers only one window, with a narrow search: the default search
    returns the ε at which the bound is slightly *below* δ, which is no lower bound.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from metering import arguments, climb, limit_memory, measured
from random_allocation.comparisons.structs import Direction, PrivacyParams, SchemeConfig, Verbosity
from random_allocation.random_allocation_scheme import (
    allocation_epsilon_combined,
    allocation_epsilon_lower_bound,
    direct,
)

ORDERS = list(range(2, 61))  # Rényi orders, as in the package's examples
FEWER_ORDERS = list(range(2, 41))  # partitions of 60 take twenty seconds to enumerate
FIRST_STEP = 1e-3  # step of the privacy-loss grid; the default is 1e-4
LEVELS = 6


def settings(
    step: float = 1e-4, tolerance: float = 1e-3, orders: list[int] = ORDERS
) -> SchemeConfig:
    return SchemeConfig(
        discretization=step,
        allocation_direct_alpha_orders=orders,
        epsilon_tolerance=tolerance,
        verbosity=Verbosity.NONE,
    )


def upper(asked: PrivacyParams, config: SchemeConfig) -> dict[str, Any]:
    direct.generate_partitions.cache_clear()
    direct.allocation_RDP_remove.cache_clear()
    by_direction = {
        direction.value: allocation_epsilon_combined(asked, config, direction)
        for direction in (Direction.REMOVE, Direction.ADD)
    }
    return {"upper": max(by_direction.values()), "directions": by_direction}


def lower(asked: PrivacyParams, config: SchemeConfig) -> dict[str, Any]:
    return {"lower": allocation_epsilon_lower_bound(asked, config)}


def default(asked: PrivacyParams) -> dict[str, Any]:
    found = upper(asked, settings())
    return found if asked.num_epochs > 1 else {**lower(asked, settings()), **found}


def levels(asked: PrivacyParams) -> Iterator:
    for level in range(LEVELS):
        step = FIRST_STEP / 4**level
        yield partial(upper, asked, settings(step, 1e-6, FEWER_ORDERS)), {"step": step}


def settled() -> Callable[[dict[str, Any]], bool]:
    """Function that decides whether a finer grid no longer helps."""
    least = [math.inf]

    def enough(row: dict[str, Any]) -> bool:
        before, least[0] = least[0], min(least[0], row["upper"])
        return math.isfinite(before) and least[0] > before * (1 - 1e-3)

    return enough


def warm_up() -> None:
    """Compile or load the numba code, once for each length of a partition."""
    for length in range(1, ORDERS[-1] + 1):
        parts = (1,) * length
        direct.compute_exp_term(partition=parts, alpha=length, num_steps=100, sigma=1.0)
    asked = PrivacyParams(sigma=1.1, num_steps=20, delta=1e-5)
    allocation_epsilon_combined(asked, SchemeConfig(allocation_direct_alpha_orders=[2, 3]))
    lower(asked, settings())


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("route", choices=("default", "upper", "lower"))
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    warm_up()
    limit_memory(given.gibibytes)
    asked = PrivacyParams(
        sigma=given.sigma, num_steps=given.window, num_epochs=given.windows, delta=given.delta
    )
    if given.route == "default":
        measured(partial(default, asked), given.seconds)
    elif given.route == "upper":
        climb(levels(asked), given.seconds, 1.0, settled())
    else:
        measured(partial(lower, asked, settings(tolerance=1e-6 * given.scale)), given.seconds)


if __name__ == "__main__":
    main()
