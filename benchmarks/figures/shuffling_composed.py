"""Figures 5.4 to 5.6 of Girgis 2023: composed and sampled shuffles, with turnout's curves.

The panels of 5.4 are those of the thesis. For 5.5 and 5.6 its text states δ = 1e-8, γ, ε₀ = 2, n
and k, but not the numbers of rounds: here T runs from 10 or 100 to 10⁵, and T = 10⁴ in the panels
over n.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from curves import Curve, Panel, line, picture
from scipy.special import gammaln, logsumexp
from shuffling import LOCAL, LOCAL_TICKS, Participation, in_print, priced, ratios

from turnout.accounting.published import shuffled_training, shuffling_rdp
from turnout.accounting.published.renyi import RenyiFormula, RenyiLowerFormula
from turnout.accounting.published.shuffled_training import kov_of_shuffle
from turnout.core.bounds import Bounds
from turnout.reporting.drawing import Picture
from turnout.schemes import (
    EveryStep,
    FixedSize,
    NonAdaptiveRandomizer,
    PureRandomizer,
    SelfSampling,
)

DELTA = 1e-8
ROUNDS = (10, 10**2, 10**3, 10**4, 10**5)
MANY_ROUNDS = ROUNDS[1:]  # smaller ε would need orders beyond `LARGEST`
CLIENTS = (10**4, 3 * 10**4, 10**5, 3 * 10**5, 10**6)
LARGEST = 1024  # largest order of curves that need all smaller integer orders
HOPELESS = 1e3  # a curve above this value leaves the panel
ZHU_WANG = "Rényi divergence, sampled (5.3.1 with Zhu and Wang 2019)"
BELOW = "Rényi divergence of binary response, sampled (5.3.3 with Zhu and Wang 2019)"
WANG = "Rényi divergence, sampled (5.3.1 with Wang et al. 2019)"
Point = tuple[float, int, int]
"""Parameters ε₀, n and T of a point."""
Method = tuple[str, Callable[[Point], float], str]
"""Meaning, function for ε at a point, and legend text if it differs from that of the meaning."""


def figure_5_4() -> Picture:
    """ε of T shuffles by RDP, by strong composition and by composed privacy losses."""
    panels = []
    # Panels over T and over n for each ε₀, then panels over ε₀ for each n.
    for local_epsilon in (0.5, 2.0):
        panels.append(
            composed_panel(
                f"ε₀ = {local_epsilon:g}, n = 10⁶",
                ROUNDS,
                "rounds T",
                lambda t, e=local_epsilon: (e, 10**6, int(t)),
            )
        )
        panels.append(
            composed_panel(
                f"ε₀ = {local_epsilon:g}, T = 10⁴",
                CLIENTS,
                "clients n",
                lambda n, e=local_epsilon: (e, int(n), 10**4),
            )
        )
    for clients, text in ((10**5, "10⁵"), (10**6, "10⁶")):
        panel = composed_panel(
            f"n = {text}, T = 10⁴", LOCAL, "ε₀", lambda e, n=clients: (float(e), n, 10**4)
        )
        panel.ticks = (LOCAL_TICKS, ())
        panels.append(panel)
    # All panels in two columns.
    return picture(
        "shuffling-5-4",
        "ε of T rounds of shuffled messages at δ = 1e-8, by analysis",
        "ε of many rounds of shuffled messages at delta 1e-8 by published bounds and by ours.",
        panels,
        columns=2,
    )


def composed_panel(
    title: str, grid: Sequence[float], x_label: str, at: Callable[[float], Point]
) -> Panel:
    """One panel of Figure 5.4."""
    return panel_of(
        title,
        grid,
        x_label,
        at,
        [
            ("EFM19", efm19, ""),
            ("clones KOV", clones_and_kov, ""),
            ("RDP 5.3.1", theorem_5_3_1, ""),
            *ours(lambda point: EveryStep(point[2])),
            ("RDP below", theorem_5_3_3, ""),
        ],
    )


def panel_of(
    title: str,
    grid: Sequence[float],
    x_label: str,
    at: Callable[[float], Point],
    methods: list[Method],
) -> Panel:
    """Panel of several methods; their ratios to turnout's bound are printed."""
    print(f"  {title}")

    def curve(meaning: str, value: Callable[[Point], float], words: str) -> Curve:
        def shown(x: float) -> float:
            found = value(at(x))
            return found if found < HOPELESS else math.nan

        return line(meaning, grid, shown, words)

    curves = [curve(*method) for method in methods]
    own = next(curve for curve in curves if curve.meaning == "turnout")
    for other in curves:
        if other is not own:
            ratios(f"{other.words} over turnout", other, own)
    return Panel(f"{title}, δ = 1e-8", grid, x_label, "ε", curves)


def efm19(point: Point) -> float:
    local_epsilon, clients, rounds = point
    bound = shuffling_rdp.efm19_remark_1(local_epsilon, clients)
    return bound.composed(rounds).epsilon(DELTA)


def clones_and_kov(point: Point) -> float:
    local_epsilon, clients, rounds = point
    return kov_of_shuffle(local_epsilon, clients, DELTA, rounds)


def theorem_5_3_1(point: Point) -> float:
    local_epsilon, clients, rounds = point
    return shuffling_rdp.theorem_5_3_1(local_epsilon, clients).composed(rounds).epsilon(DELTA)


def theorem_5_3_3(point: Point) -> float:
    local_epsilon, clients, rounds = point
    bound = shuffling_rdp.theorem_5_3_3(local_epsilon, clients).composed(rounds)
    return bound.smallest_provable_epsilon(DELTA)


def ours(participation: Callable[[Point], Participation]) -> list[Method]:
    """Curves of `price` for any ε₀-randomizers, of the clones bound, and of a lower bound."""

    def bounds(point: Point, kind: type[PureRandomizer]) -> Bounds:
        return priced(kind(point[0]), point[1], DELTA, participation(point))

    return [
        ("turnout", lambda point: bounds(point, PureRandomizer).upper, ""),
        (
            "clones",
            lambda point: in_print(point[0], point[1], DELTA, participation(point)),
            "",
        ),
        (
            "attained",
            lambda point: bounds(point, NonAdaptiveRandomizer).lower or math.nan,
            "",
        ),
    ]


def figure_5_5() -> Picture:
    """ε of shuffles of Poisson-sampled clients (self-sampling)."""
    panels = []
    # One panel for each n; the curves are those of the thesis and turnout's.
    for clients, text in ((10**6, "10⁶"), (10**7, "10⁷")):
        panels.append(
            panel_of(
                f"γ = 0.001, ε₀ = 2, n = {text}",
                MANY_ROUNDS,
                "rounds T",
                lambda t, n=clients: (2.0, n, int(t)),
                [
                    ("clones KOV", sampled_clones_and_kov(0.001), ""),
                    ("RDP 5.3.1", by_coins(0.001), ZHU_WANG),
                    *ours(lambda point: SelfSampling(0.001, point[2])),
                    ("RDP below", by_coins_below(0.001), BELOW),
                ],
            )
        )
    return picture(
        "shuffling-5-5",
        "ε of T shuffles of Poisson-sampled clients (self-sampling)",
        "ε of many rounds of Poisson-sampled shuffled messages at delta 1e-8.",
        panels,
    )


def sampled_clones_and_kov(rate: float) -> Callable[[Point], float]:
    """Clones bound for γn messages, amplified by sampling at rate γ, under strong composition."""

    def epsilon(point: Point) -> float:
        local_epsilon, clients, rounds = point
        sampled = round(rate * clients)
        return kov_of_shuffle(
            local_epsilon,
            clients,
            DELTA,
            rounds,
            bound=lambda e, n, d: shuffled_training.lemma_4_3_1(e, n, sampled, d),
        )

    return epsilon


def by_coins(rate: float) -> Callable[[Point], float]:
    """Theorem 5.3.1 for γn messages, amplified by a bound for Poisson sampling of any mechanism.

    Zhu and Wang 2019, "Poisson subsampled Rényi differential privacy", Theorem 5. The theorem is
    stated for add-remove and assumes exactly γn messages; the curve is drawn as in the thesis.
    """

    def epsilon(point: Point) -> float:
        local_epsilon, clients, rounds = point
        base = shuffling_rdp.theorem_5_3_1(local_epsilon, round(rate * clients))
        formula = RenyiFormula(poisson_sampled(base, rate), LARGEST).composed(rounds)
        return formula.epsilon(DELTA)

    return epsilon


def by_coins_below(rate: float) -> Callable[[Point], float]:
    """The same bound, with what binary response attains in place of Theorem 5.3.1."""

    def epsilon(point: Point) -> float:
        local_epsilon, clients, rounds = point
        base = shuffling_rdp.theorem_5_3_3(local_epsilon, round(rate * clients))
        formula = RenyiLowerFormula(poisson_sampled(base, rate), LARGEST).composed(rounds)
        return formula.smallest_provable_epsilon(DELTA)

    return epsilon


def poisson_sampled(
    base: RenyiFormula | RenyiLowerFormula, rate: float
) -> Callable[[np.ndarray], np.ndarray]:
    """Ln D_α at integer orders of a Poisson-sampled mechanism, from those of the mechanism."""
    logs_of = moments_table(base)

    def one(order: int) -> float:
        j = np.arange(3.0, order + 1)
        log_terms = log_choices(order, j) + (order - j) * math.log1p(-rate) + j * math.log(rate)
        first = (order - 1) * math.log1p(-rate) + math.log1p((order - 1) * rate)
        second = (order - 2) * math.log1p(-rate) + 2 * math.log(rate)
        second += math.log(order * (order - 1) / 2)
        moments = logs_of(order)
        return float(
            logsumexp([first, second + moments[2], *(math.log(3) + log_terms + moments[3:])])
        )

    return lambda orders: np.array([one(int(order)) for order in orders])


def figure_5_6() -> Picture:
    """ε of shuffles of a uniform subset of the clients."""
    panels = []
    # Panels over T for each k, then one panel over n.
    for sampled, text in ((10**3, "10³"), (10**4, "10⁴")):
        panels.append(
            subset_panel(
                f"n = 10⁶, k = {text}, ε₀ = 2",
                ROUNDS,
                "rounds T",
                lambda t: (2.0, 10**6, int(t)),
                sampled,
            )
        )
    panels.append(
        subset_panel(
            "k = 10³, ε₀ = 2, T = 10⁴", CLIENTS, "clients n", lambda n: (2.0, int(n), 10**4), 10**3
        )
    )
    return picture(
        "shuffling-5-6",
        "ε of T shuffles of k of n clients, a uniform subset",
        "ε of many rounds of shuffled messages of some clients at delta 1e-8.",
        panels,
    )


def subset_panel(
    title: str,
    grid: Sequence[float],
    x_label: str,
    at: Callable[[float], Point],
    sampled: int,
) -> Panel:
    """One panel of Figure 5.6."""

    # Each function returns ε of one method at a point (ε₀, n, T).
    def participation(point: Point) -> FixedSize:
        return FixedSize(sampled, point[1], point[2])

    def kov(point: Point) -> float:
        return sampled_clones_and_kov(sampled / point[1])(point)

    def theorem_5_4_1(point: Point) -> float:
        bound = shuffled_training.theorem_5_4_1(point[0], point[1], sampled)
        return bound.composed(point[2]).epsilon(DELTA)

    def theorem_5_4_2(point: Point) -> float:
        bound = shuffled_training.theorem_5_4_2(point[0], point[1], sampled)
        return bound.composed(point[2]).smallest_provable_epsilon(DELTA)

    def wang(point: Point) -> float:
        base = shuffling_rdp.theorem_5_3_1(point[0], sampled)
        moments = subset_sampled(base, sampled / point[1], point[0])
        return RenyiFormula(moments, LARGEST).composed(point[2]).epsilon(DELTA)

    return panel_of(
        title,
        grid,
        x_label,
        at,
        [
            ("clones KOV", kov, ""),
            ("RDP 5.3.1", wang, WANG),
            ("RDP 5.4.1", theorem_5_4_1, ""),
            *ours(participation),
            ("RDP below", theorem_5_4_2, ""),
        ],
    )


def subset_sampled(
    base: RenyiFormula, rate: float, pure_epsilon: float
) -> Callable[[np.ndarray], np.ndarray]:
    """Ln D_α at integer orders of a mechanism on a uniform subset.

    Wang, Balle and Kasiviswanathan 2019, "Subsampled Rényi differential privacy and analytical
    moments accountant", Theorem 9.
    """
    logs_of = moments_table(base)
    # ln min(2, (e^ε − 1)^j)
    growth = math.log(math.expm1(pure_epsilon))

    def one(order: int) -> float:
        j = np.arange(3.0, order + 1)
        moments = logs_of(order)
        pairs = 2 * math.log(rate) + math.log(order * (order - 1) / 2)
        pairs += min(
            math.log(4 * math.expm1(moments[2])), moments[2] + min(math.log(2), 2 * growth)
        )
        rest = j * math.log(rate) + log_choices(order, j) + moments[3:]
        return float(logsumexp([0.0, pairs, *(rest + np.minimum(math.log(2), j * growth))]))

    return lambda orders: np.array([one(int(order)) for order in orders])


def moments_table(base: RenyiFormula | RenyiLowerFormula) -> Callable[[int], np.ndarray]:
    """Ln D_0 … ln D_A of a formula, computed once."""
    known = np.zeros(2)

    def up_to(order: int) -> np.ndarray:
        nonlocal known
        if known.size <= order:
            more = np.arange(float(known.size), min(2.0 * order, LARGEST) + 1)
            known = np.concatenate([known, base.log_moments(more)])
        return known[: order + 1]

    return up_to


def log_choices(order: int, j: np.ndarray) -> np.ndarray:
    """Ln C(α, j)."""
    return gammaln(order + 1) - gammaln(j + 1) - gammaln(order - j + 1)
