"""Figures for one shuffle: Figure 2 of the check-in paper, 5.2 and 5.3 of Girgis 2023.

Each figure has turnout's curves. Where the thesis does not state the parameters of a panel, the
nearest stated ones are used: Figure 5.4's ε₀ = 0.5 and 2 and n = 10⁵ and 10⁶. Figure 2's n are
powers of ten, at δ = 1e-6.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import pairwise

import numpy as np
from curves import Curve, Panel, line, picture
from shuffled_renyi.divergence import alike_renyi, blanket_renyi

from turnout.accounting import price
from turnout.accounting.decomposition import published
from turnout.accounting.pricing import decomposition_upper
from turnout.accounting.published import check_ins, shuffling, shuffling_rdp
from turnout.accounting.published.shuffling import blanket_2019_bennett, blanket_2019_hoeffding
from turnout.accounting.shuffling import clones_2021
from turnout.accounting.shuffling.blanket import BlanketBlock
from turnout.accounting.shuffling.messages import PublishedRandomizer, one_round
from turnout.core.bounds import Bounds
from turnout.reporting.drawing import Picture
from turnout.schemes import (
    EveryStep,
    FixedSize,
    KaryResponse,
    NonAdaptiveRandomizer,
    PureRandomizer,
    Randomizer,
    Relation,
    Scheme,
    SelfSampling,
    SpeakingOrder,
    TrustModel,
)

DELTA = 1e-6
LOCAL = (0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0)
LOCAL_TICKS = (0.1, 0.2, 0.5, 1, 2, 3, 4)
CLIENTS = (10**4, 3 * 10**4, 10**5, 3 * 10**5, 10**6)
ORDERS = (2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0)
Participation = EveryStep | FixedSize | SelfSampling
SIZES = (10**3, 10**4, 10**5, 10**6)


def figure_2() -> Picture:
    """Theorem 5.1 and Erlingsson et al. against ε₀, for four numbers of clients."""
    grid = (0.1, 0.15, 0.25, 0.4, 0.6, 0.8, 1.0, 1.5, 2.0, 3.0, 4.0)
    # The bounds for each n, and the ratio of the older bound to Theorem 5.1 at the next smaller n.
    drawn = {clients: amplification(grid, clients) for clients in SIZES}
    for clients, larger in pairwise(SIZES):
        text = f"Erlingsson et al., n = {larger:,}, over Theorem 5.1, n = {clients:,}"
        ratios(text, drawn[larger][1], drawn[clients][0])
    panels = [
        Panel(
            f"n = {clients:,}".replace(",", " "),
            grid,
            "ε₀ of one message",
            "ε",
            [*drawn[clients], line("no shuffler", grid, float)],
            limits=(1e-4, 10.0),
            ticks=(LOCAL_TICKS, ()),
        )
        for clients in SIZES
    ]
    return picture(
        "shuffling-2",
        "ε of n shuffled messages (δ = 1e-6, replace-one)",
        "ε of n shuffled messages against the ε₀ of each, by two published bounds and by ours.",
        panels,
        columns=2,
    )


def amplification(grid: Sequence[float], clients: int) -> list[Curve]:
    """Three bounds for one n."""
    methods: tuple[tuple[str, Callable[[float], float]], ...] = (
        ("check-ins", lambda e: check_ins.theorem_5_1(e, clients, DELTA)),
        ("EFM19", lambda e: shuffling.efm19_theorem_7(e, clients, DELTA)),
        ("turnout", lambda e: certified(e, clients, DELTA).upper),
    )
    print(f"  n = {clients:,}")
    curves = [line(meaning, grid, lambda e, f=value: shown(f(e), e)) for meaning, value in methods]
    for other in curves[:2]:
        ratios(f"{other.words}, over turnout", other, curves[2])
    return curves


def figure_5_2() -> Picture:
    """Figure 5.2: Rényi divergences against the order, against ε₀ and against n."""
    # Panels over the order, over ε₀ and over n.
    panels = [
        renyi_panel(f"ε₀ = {e:g}, n = 10⁶", ORDERS, "order α", lambda a, e=e: (e, 10**6, a))
        for e in (0.5, 2.0)
    ]
    for order, clients in ((4.0, 10**5), (64.0, 10**6)):
        power = round(math.log10(clients))
        panel = renyi_panel(
            f"α = {order:g}, n = 10{'⁰¹²³⁴⁵⁶'[power]}",
            LOCAL,
            "ε₀",
            lambda e, a=order, n=clients: (e, n, a),
        )
        panel.ticks = (LOCAL_TICKS, ())
        panels.append(panel)
    panels.append(
        renyi_panel("ε₀ = 2, α = 16", CLIENTS, "clients n", lambda n: (2.0, int(n), 16.0))
    )
    return picture(
        "shuffling-5-2",
        "Rényi divergence of shuffled messages",
        "Rényi divergence of shuffled messages by published bounds and by ours.",
        panels,
        columns=2,
    )


def renyi_panel(
    title: str,
    grid: Sequence[float],
    x_label: str,
    at: Callable[[float], tuple[float, int, float]],
) -> Panel:
    """One panel of Figure 5.2; ``at`` returns (ε₀, n, α) of a point."""
    print(f"  {title}")
    curves = [
        line(meaning, grid, lambda x, f=value: shown(f(*at(x)), at(x)[0]), words)
        for meaning, value, words in (
            ("EFM19", efm19_rdp, ""),
            ("RDP 5.3.2", theorem_5_3_2_rdp, ""),
            ("RDP 5.3.1", theorem_5_3_1_rdp, ""),
            ("turnout", ours_rdp, "turnout's upper bound"),
            ("clones", clones_rdp, ""),
            ("RDP below", theorem_5_3_3_rdp, ""),
        )
    ]
    for other in (*curves[:3], *curves[4:]):
        ratios(f"{other.words} over turnout", other, curves[3])
    return Panel(title, grid, x_label, "divergence", curves)


def shown(value: float, local_epsilon: float) -> float:
    """NaN for a value far above that of a single message, which would leave the panel."""
    return value if value <= 10 * local_epsilon else math.nan


def efm19_rdp(local_epsilon: float, clients: int, order: float) -> float:
    return shuffling_rdp.efm19_remark_1(local_epsilon, clients).divergence(order)


def theorem_5_3_1_rdp(local_epsilon: float, clients: int, order: float) -> float:
    return shuffling_rdp.theorem_5_3_1(local_epsilon, clients).divergence(order)


def theorem_5_3_2_rdp(local_epsilon: float, clients: int, order: float) -> float:
    return shuffling_rdp.theorem_5_3_2(local_epsilon, clients).divergence(order)


def theorem_5_3_3_rdp(local_epsilon: float, clients: int, order: float) -> float:
    """Rényi divergence of Theorem 5.3.3 in the larger direction; the thesis shows one direction."""
    one, other = alike_renyi(local_epsilon, clients, (order,))
    return float(max(one[0], other[0]))


def ours_rdp(local_epsilon: float, clients: int, order: float) -> float:
    """Rényi divergence of the pair that `price` uses for any ε₀-randomizers."""
    return block_rdp(PureRandomizer(local_epsilon), clients, order)


def clones_rdp(local_epsilon: float, clients: int, order: float) -> float:
    """Rényi divergence of the clones pair, the best published bound."""
    return block_rdp(PublishedRandomizer(local_epsilon), clients, order)


def block_rdp(
    randomizer: PureRandomizer | PublishedRandomizer, clients: int, order: float
) -> float:
    block = one_round(randomizer, clients).upper
    assert isinstance(block, BlanketBlock)
    return blanket_renyi(block.upper, clients, (order,)).remove[0]


def figure_5_3() -> Picture:
    """Figure 5.3: ε at δ = 1e-6 against n and against ε₀."""
    panels = []
    # Panels over n for each ε₀, then panels over ε₀ for each n.
    for local_epsilon in (0.5, 2.0):
        panel = epsilon_panel(
            f"ε₀ = {local_epsilon:g}, δ = 1e-6",
            CLIENTS,
            "clients n",
            lambda n, e=local_epsilon: (e, int(n)),
        )
        panels.append(panel)
    for clients, text in ((10**5, "10⁵"), (10**6, "10⁶")):
        panel = epsilon_panel(
            f"n = {text}, δ = 1e-6", LOCAL, "ε₀", lambda e, n=clients: (float(e), n)
        )
        panel.ticks = (LOCAL_TICKS, ())
        panels.append(panel)
    return picture(
        "shuffling-5-3",
        "ε of n shuffled messages at δ = 1e-6, by analysis",
        "ε of shuffled messages at delta 1e-6 by published bounds and by ours.",
        panels,
        columns=2,
    )


def epsilon_panel(
    title: str,
    grid: Sequence[float],
    x_label: str,
    at: Callable[[float], tuple[float, int]],
) -> Panel:
    """One panel of Figure 5.3; ``at`` returns (ε₀, n) of a point."""
    print(f"  {title}")

    methods: tuple[tuple[str, Callable[[float, int], float]], ...] = (
        ("EFM19", efm19),
        ("blanket", blanket_2019),
        ("clones form", clones_closed),
        ("RDP 5.3.2", theorem_5_3_2),
        ("RDP 5.3.1", theorem_5_3_1),
        ("turnout", lambda e, n: certified(e, n, DELTA).upper),
        ("clones", clones_numeric),
        ("binary RR", binary_response),
        ("attained", lambda e, n: attained(e, n, DELTA)),
    )
    curves = [
        line(meaning, grid, lambda x, f=value: shown(f(*at(x)), at(x)[0]))
        for meaning, value in methods
    ]
    for other in (*curves[:5], *curves[6:]):
        ratios(f"{other.words} over turnout", other, curves[5])
    return Panel(title, grid, x_label, "ε", curves)


def efm19(local_epsilon: float, clients: int) -> float:
    return shuffling_rdp.efm19_remark_1(local_epsilon, clients).epsilon(DELTA)


def theorem_5_3_1(local_epsilon: float, clients: int) -> float:
    return shuffling_rdp.theorem_5_3_1(local_epsilon, clients).epsilon(DELTA)


def theorem_5_3_2(local_epsilon: float, clients: int) -> float:
    return shuffling_rdp.theorem_5_3_2(local_epsilon, clients).epsilon(DELTA)


def blanket_2019(local_epsilon: float, clients: int) -> float:
    """ε by the smaller of two published blanket bounds, for one non-adaptive randomizer."""
    return min(
        method(local_epsilon, clients, DELTA)
        for method in (blanket_2019_bennett, blanket_2019_hoeffding)
    )


def clones_closed(local_epsilon: float, clients: int) -> float:
    return shuffling.clones_2021_closed_form(local_epsilon, clients, DELTA)


def clones_numeric(local_epsilon: float, clients: int) -> float:
    return clones_2021(local_epsilon, clients, DELTA)


def binary_response(local_epsilon: float, clients: int) -> float:
    return certified(local_epsilon, clients, DELTA, KaryResponse(local_epsilon)).upper


def certified(
    local_epsilon: float, clients: int, delta: float, randomizer: Randomizer | None = None
) -> Bounds:
    """ε by `price` of one shuffle of any ε₀-randomizers, or of the given randomizer."""
    return priced(randomizer or PureRandomizer(float(local_epsilon)), clients, delta, EveryStep(1))


def attained(local_epsilon: float, clients: int, delta: float) -> float:
    """Lower bound on ε, attained by some ε₀-randomizer; NaN where no attained value is known."""
    randomizer = NonAdaptiveRandomizer(float(local_epsilon))
    return priced(randomizer, clients, delta, EveryStep(1)).lower or math.nan


@lru_cache(maxsize=1024)
def priced(
    randomizer: Randomizer, clients: int, delta: float, participation: Participation
) -> Bounds:
    """ε by `price` of shuffled messages under replace-one, in a secret random order."""
    return price(shuffle(randomizer, clients, participation), delta, 1e-2).epsilon


def in_print(
    local_epsilon: float, clients: int, delta: float, participation: Participation
) -> float:
    """ε of the same messages by the smallest published bound for any ε₀-randomizers."""
    parts = published(shuffle(PureRandomizer(local_epsilon), clients, participation))
    assert parts is not None
    return decomposition_upper(parts, delta)


def shuffle(randomizer: Randomizer, clients: int, participation: Participation) -> Scheme:
    """Scheme of messages shuffled in a secret random order."""
    return Scheme(
        randomizer,
        participation,
        Relation.REPLACE_ONE,
        trust=TrustModel.SHUFFLED,
        population=int(clients),
        order=SpeakingOrder.HIDDEN,
    )


def ratios(text: str, one: Curve, other: Curve) -> None:
    """Print the ratio of one curve to the other at each grid point."""
    values = np.array(one.values) / np.array(other.values)
    print(f"  -> {text}: " + " ".join("-" if np.isnan(v) else f"{v:.3g}" for v in values))
