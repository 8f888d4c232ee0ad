"""Figure 3.2 of Girgis 2023, with the improved variants.

A number in [−½, ½] in the local model against Laplace noise, one client; the same
number and unit vectors in R^300 in the shuffled model, n = 1000, δ = 1e-5. The paper takes its
shuffled Laplace and PrivUnit from the closed form of Feldman, McMillan and Talwar; here all levels
are calibrated numerically, by what is proved of a non-adaptive one, of Laplace noise and of bits.
Directions are the client's own: she draws their seed and sends it with her message.
"""

from __future__ import annotations

import math

import numpy as np
from curves import Panel, line, picture

from turnout.accounting import shuffled_price
from turnout.estimation.private.shuffled_levels import largest_affordable, level_of_any
from turnout.estimation.private.shuffled_means import shuffled_l2, shuffled_linf
from turnout.randomizers.vectors import LInfRandomizer, PrivUnit, SphericalCode
from turnout.reporting.drawing import Picture
from turnout.spec import BoundedVariation

N, DELTA, D = 1000, 1e-5, 300
TICKS, LOCAL_TICKS = ((0.25, 0.5, 1, 2, 4), ()), ((0.5, 1, 2, 4, 8), ())
STYLES = {1: ":", 2: "-.", 3: "--", 4: "-"}


def figure_3_2() -> Picture:
    local = np.geomspace(0.5, 8.0, 9)
    first = [line("Laplace", "local", local, lambda e: 2 / e**2)]
    for levels, dashes in STYLES.items():
        first.append(
            line(
                f"as printed, m = {levels}",
                "theorem 4.1",
                local,
                lambda e, m=levels: (
                    LInfRandomizer(1, float(e), 0.5, 1, m, "as-printed").worst_squared_error
                ),
                {"linestyle": dashes},
            )
        )
    first.append(
        line(
            "turnout, best m",
            "turnout",
            local,
            lambda e: LInfRandomizer.best(1, float(e), 0.5).worst_squared_error,
        )
    )
    central = np.array([0.25, 0.5, 1.0, 2.0, 4.0])
    second = [
        line("one message, Laplace", "shuffling", central, lambda e: 2 / laplace_level(e) ** 2 / N),
        line("central, Laplace", "local", central, lambda e: 2 / (e * N) ** 2),
    ]
    for levels, dashes in {4: "--", 6: "-"}.items():
        second.append(
            line(
                f"turnout, m = {levels} messages",
                "turnout",
                central,
                lambda e, m=levels: (
                    shuffled_linf(1, N, float(e), DELTA, samples=1, levels=m, radius=0.5).mse_bound
                ),
                {"linestyle": dashes},
            )
        )
    third = [
        line(
            "one message, PrivUnit",
            "shuffling",
            central,
            lambda e: PrivUnit(D, local_level(e)).worst_squared_error / N,
        ),
        line(
            "one message, 8 bits and a seed of directions",
            "poisson",
            central,
            lambda e: SphericalCode(D, local_level(e), code_bits=8).worst_squared_error / N,
        ),
    ]
    for samples, dashes in {200: "--", 250: "-"}.items():
        for name, style, wide in (("a rotation", "theorem 4.1", 1.0), ("turnout", "turnout", 4.0)):
            third.append(
                line(
                    f"{name}, s = {samples} messages",
                    style,
                    central,
                    lambda e, s=samples, w=wide: (
                        shuffled_l2(D, N, float(e), DELTA, samples=s, redundancy=w).mse_bound
                    ),
                    {"linestyle": dashes},
                )
            )
    mse = "largest E‖error‖²"
    return picture(
        "private-means",
        "Means in the local and in the shuffled model",
        "Error of a mean against ε: Figure 3.2 of Girgis 2023, with the improved variants.",
        [
            Panel(
                "a number in [−½, ½], local, one client", local, "ε₀", mse, first, ticks=LOCAL_TICKS
            ),
            Panel(
                "a number in [−½, ½], n = 1000 shuffled, δ = 1e-5",
                central,
                "ε",
                mse,
                second,
                ticks=TICKS,
            ),
            Panel(
                "unit vectors, d = 300, n = 1000 shuffled, δ = 1e-5",
                central,
                "ε",
                mse,
                third,
                ticks=TICKS,
            ),
        ],
    )


def local_level(epsilon: float) -> float:
    """The largest ε₀ whose n shuffled messages are (ε, δ)-private for any one randomizer."""
    return level_of_any(N, float(epsilon), DELTA)


def laplace_level(epsilon: float) -> float:
    """The same for Laplace noise of scale 1/ε₀ on [−½, ½], of total variation 1 − e^{−ε₀/2}."""

    def price(level: float) -> float:
        return shuffled_price([(BoundedVariation(level, -math.expm1(-level / 2)), 1)], N, DELTA)

    return largest_affordable(float, price, float(epsilon)).made
