"""Figure 3.2 of Girgis 2023: private means, with improved variants.

The panels show a number in [−½, ½] of one client in the local model against Laplace noise, and the
same number and unit vectors in R^300 in the shuffled model, n = 1000, δ = 1e-5. The paper takes the
levels of its shuffled Laplace noise and PrivUnit from the closed form of Feldman, McMillan and
Talwar. Here all levels are calibrated numerically, by bounds for one non-adaptive randomizer, for
Laplace noise and for bits. Each client draws the seed of its random directions and sends the seed
with its message.
"""

from __future__ import annotations

import math

import numpy as np
from curves import Panel, line, picture

from turnout.accounting import shuffled_price
from turnout.estimation.private.shuffled_means import (
    largest_affordable,
    level_of_any,
    shuffled_l2,
    shuffled_linf,
)
from turnout.randomizers.vectors import LInfRandomizer, PrivUnit, SphericalCode
from turnout.reporting.drawing import Picture
from turnout.schemes import BoundedVariation

N, DELTA, D = 1000, 1e-5, 300
TICKS, LOCAL_TICKS = ((0.25, 0.5, 1, 2, 4), ()), ((0.5, 1, 2, 4, 8), ())
PRINTED = {1: "printed", 2: "printed 2", 3: "printed 3", 4: "printed 4"}


def figure_3_2() -> Picture:
    # Left panel: one number in the local model, by noise, by printed bits and by turnout's bits.
    local = np.geomspace(0.5, 8.0, 9)
    first = [line("Laplace", local, lambda e: 2 / e**2)]
    for levels, meaning in PRINTED.items():
        first.append(
            line(
                meaning,
                local,
                lambda e, m=levels: (
                    LInfRandomizer(1, float(e), 0.5, 1, m, "as-printed").worst_squared_error
                ),
            )
        )
    first.append(
        line("ours", local, lambda e: LInfRandomizer.best(1, float(e), 0.5).worst_squared_error)
    )
    # Middle panel: the same number from shuffled messages, with the central model as a reference.
    central = np.array([0.25, 0.5, 1.0, 2.0, 4.0])
    second = [
        line("Laplace", central, lambda e: 2 / laplace_level(e) ** 2 / N),
        line("central", central, lambda e: 2 / (e * N) ** 2),
    ]
    for levels, meaning in {4: "ours, less", 6: "ours"}.items():
        second.append(
            line(
                meaning,
                central,
                lambda e, m=levels: (
                    shuffled_linf(1, N, float(e), DELTA, samples=1, levels=m, radius=0.5).mse_bound
                ),
            )
        )
    # Right panel: unit vectors from shuffled messages, by full vectors, directions and bits.
    third = [
        line("PrivUnit", central, lambda e: PrivUnit(D, local_level(e)).worst_squared_error / N),
        line(
            "directions",
            central,
            lambda e: SphericalCode(D, local_level(e), code_bits=8).worst_squared_error / N,
        ),
    ]
    for samples, less in {200: ", less", 250: ""}.items():
        for name, wide in (("rotation", 1.0), ("ours", 4.0)):
            third.append(
                line(
                    f"{name}{less}",
                    central,
                    lambda e, s=samples, w=wide: (
                        shuffled_l2(D, N, float(e), DELTA, samples=s, redundancy=w).mse_bound
                    ),
                )
            )
    # The three panels, whose curves were computed above.
    mse = "largest E‖error‖²"
    return picture(
        "private-means",
        "Error of a mean in the local and in the shuffled model",
        "Error of a mean against ε: Figure 3.2 of Girgis 2023, with the improved variants.",
        [
            Panel(
                "a number in [−½, ½], local, one client", local, "ε₀", mse, first, ticks=LOCAL_TICKS
            ),
            Panel(
                "a number in [−½, ½], n = 1000 shuffled, δ = 1e-5; 6 messages (fewer: 4)",
                central,
                "ε",
                mse,
                second,
                ticks=TICKS,
            ),
            Panel(
                "unit vectors, d = 300, n = 1000 shuffled, δ = 1e-5; 250 messages (fewer: 200)",
                central,
                "ε",
                mse,
                third,
                ticks=TICKS,
            ),
        ],
    )


def local_level(epsilon: float) -> float:
    """Largest ε₀ such that n shuffled messages of any one randomizer are (ε, δ)-private."""
    return level_of_any(N, float(epsilon), DELTA)


def laplace_level(epsilon: float) -> float:
    """Largest ε₀ for Laplace noise of scale 1/ε₀ on [−½, ½], of total variation 1 − e^{−ε₀/2}."""

    def price(level: float) -> float:
        return shuffled_price([(BoundedVariation(level, -math.expm1(-level / 2)), 1)], N, DELTA)

    return largest_affordable(float, price, float(epsilon)).made
