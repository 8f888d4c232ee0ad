"""Figure for Balle, Kairouz, McMahan, Thakkar and Guha Thakurta 2020, with turnout's curves.

Their Figure 1 is a sketch of the protocol. Their Figure 2 compares Theorem 5.1 (shuffling) with
Erlingsson et al. 2019; the right column shows that comparison. The left column does the same for
check-ins, Theorem 3.2. The theorem is stated for replace-one. If the client's slot is left to
another client, each step of its proof has a smaller difference, so it also holds under add-remove.
"""

from __future__ import annotations

import math

import numpy as np
from curves import Curve, Panel, line, picture

from turnout.accounting import price
from turnout.accounting.published import check_ins
from turnout.accounting.published.shuffling import stronger_clones_2023
from turnout.core.errors import UnsupportedError
from turnout.reporting.drawing import Picture
from turnout.schemes import CheckIn, PureRandomizer, Relation, ReleaseRule, Scheme

DELTA = 1e-6
TICKS = ((0.1, 0.2, 0.5, 1, 2, 4), ())
SIZES = (10**3, 10**4, 10**5)


def figure_5() -> Picture:
    local = np.geomspace(0.1, 4.0, 12)
    nobody = line("no amplif.", local, float, "no amplification: ε₀ itself")

    def panel(title: str, curves: list[Curve]) -> Panel:
        axes = (local, "ε₀ of one message", "ε")
        return Panel(title, *axes, [*curves, nobody], limits=(None, 10.0), ticks=TICKS)

    # Left column: check-ins into m steps. Right column: shuffles of n clients, n = m.
    panels = []
    for size in SIZES:
        number = f"{size:,}".replace(",", " ")
        first = [
            line("check-ins 3.2", local, lambda e, m=size: check_ins.theorem_3_2(e, m, DELTA)),
            line("turnout", local, lambda e, m=size: exact(e, m, DELTA)),
        ]
        second = [
            line("check-ins", local, lambda e, n=size: check_ins.theorem_5_1(e, n, DELTA)),
            line("EFM19", local, lambda e, n=size: erlingsson_2019(e, n, DELTA)),
            line("turnout", local, lambda e, n=size: stronger_clones_2023(float(e), n, DELTA)),
        ]
        panels.append(panel(f"Check-in, add-remove, m = {number}", first))
        panels.append(panel(f"Shuffle, replace-one, n = {number}", second))
    return picture(
        "check-ins",
        "ε of one check-in among m steps, and of n shuffled messages (δ = 1e-6)",
        "ε against the ε₀ of the randomizer: check-ins into m steps, and n shuffled clients.",
        panels,
        columns=2,
    )


def erlingsson_2019(local_epsilon: float, clients: int, delta: float) -> float:
    """Bound of Erlingsson et al., Corollary 9: 12ε₀√(ln(1/δ)/n) for ε₀ < ½, n ≥ 1000, δ < 1/100."""
    if local_epsilon >= 0.5 or clients < 1000 or delta >= 0.01:
        raise UnsupportedError("Corollary 9 does not cover these parameters")
    return 12 * local_epsilon * math.sqrt(-math.log(delta) / clients)


def exact(local_epsilon: float, window: int, delta: float) -> float:
    """ε of one check-in under add-remove by turnout, the larger of both directions.

    Whichever other client has the same slot, two messages of an ε₀-randomizer are no easier to
    distinguish than those of binary randomized response.
    """
    scheme = Scheme(
        PureRandomizer(float(local_epsilon)),
        CheckIn(window),
        Relation.ADD_REMOVE,
        release=ReleaseRule.ONE_CLIENT,
    )
    return price(scheme, delta).epsilon.upper
