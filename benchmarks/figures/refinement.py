"""Figures 7.3 and 7.7 to 7.10 and Table 7.1 of Girgis 2023, with turnout's variants.

Errors of 7.7 and 7.8 are measured on drawn messages (simulation randomness); all other values are
formulas.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
from curves import Curve, Panel, line, picture
from limited_answers import PrintedAnswers

from turnout.estimation import clip_and_normalise, project_simplex
from turnout.randomizers import (
    HadamardRandomizer,
    KaryRandomizedResponse,
    OneBitHadamard,
    UnaryEncoding,
)
from turnout.randomness import SimulationStreams
from turnout.refinement import (
    Cascade,
    LimitedAnswers,
    enough_randomness,
    least_key_bits,
    multi_level,
)
from turnout.refinement.limited import binary_entropy
from turnout.reporting.drawing import Picture

SIZE, CLIENTS = 1000, 500_000
RUNS = 20
STREAMS = SimulationStreams(7)
ONE_MESSAGE = "one message for all analysts (turnout, 7.42)"
POST: dict[str, Callable] = {
    "raw": lambda raw: raw,
    "clipped": clip_and_normalise,
    "projected": project_simplex,
}


def figure_7_3() -> Picture:
    grid = np.linspace(0.25, 10, 40)
    panels = []
    for size in (10, 100, 1000):
        curves = [
            line("value", grid, lambda _, k=size: math.log2(k)),
            line("k-ary", grid, key_bits(size, "k-ary")),
            line("Hadamard key", grid, key_bits(size, "hadamard")),
            line("projective key", grid, key_bits(size, "projective")),
            line("least key", grid, lambda e, k=size: least_key_bits(k, e)),
        ]
        panels.append(linear(f"k = {size}", grid, "ε", "bits a client", curves))
    return picture(
        "refinement-7-3",
        "Bits to store a private value, and the key that recovers it",
        "Entropy of keys that recover a private value, against epsilon, for three alphabets.",
        panels,
    )


def key_bits(size: int, family: str) -> Callable[[float], float]:
    return lambda epsilon: multi_level(size, (math.inf, epsilon), family).cascade.key_bits(0)


def figure_7_7() -> Picture:
    grid = [100_000, 150_000, 250_000, 400_000, 600_000, 850_000, 1_000_000]
    panels = [
        Panel(
            f"R = {bits:g}, {text}, ε = 1",
            grid,
            "clients",
            "ℓ1 error",
            variants(grid, lambda n, v, r=bits, p=post: error(int(n), 1.0, r, v)[p]),
            ticks=((10**5, 3 * 10**5, 10**6), (0.1, 0.2, 0.5, 1, 2)),
        )
        for post, text in SHOWN.items()
        for bits in (0.7, 1.0)
    ]
    return picture(
        "refinement-7-7",
        "Error of frequencies with R random bits a client, against clients (k = 1000)",
        "L1 error of the distribution against clients, for 0.7 and 1 random bit a client.",
        panels,
        columns=2,
    )


def figure_7_8() -> Picture:
    grid = [0.1, 0.2, 0.3, 0.45, 0.6, 0.8, 1.0, 1.5, 2.0]
    ticks = (0.1, 0.2, 0.5, 1, 2)
    panels = [
        Panel(
            f"R = {bits:g}, {text}",
            grid,
            "ε",
            "ℓ1 error",
            variants(grid, lambda e, v, r=bits, p=post: error(CLIENTS, float(e), r, v)[p]),
            ticks=(ticks, ticks),
        )
        for bits in (0.6, 0.9, 1.0)
        for post, text in SHOWN.items()
    ]
    return picture(
        "refinement-7-8",
        "Error of frequencies with R random bits a client, against ε (k = 1000)",
        "L1 error of the distribution against epsilon, for 0.6, 0.9 and 1 random bit a client.",
        panels,
        columns=2,
    )


def variants(grid: Sequence[float], value: Callable[[float, str], float]) -> list[Curve]:
    """Two curves: the published mechanism and turnout's."""
    return [line(meaning, grid, lambda x, v=variant: value(x, v)) for variant, meaning in VARIANTS]


SHOWN = {"clipped": "clipped and normalised", "projected": "on the simplex"}
VARIANTS = (("as-printed", "printed"), ("default", "ours"))
ANSWERS = {"as-printed": PrintedAnswers, "default": LimitedAnswers}


@lru_cache(maxsize=512)
def error(clients: int, epsilon: float, bits: float, variant: str) -> dict[str, float]:
    """Mean ℓ1 error over `RUNS` runs, in which the message of every client is drawn."""
    shares = 0.8 ** np.arange(SIZE)
    shares /= shares.sum()
    found = dict.fromkeys(POST, 0.0)
    for run in range(RUNS):
        name = (clients, str(epsilon), str(bits), variant, run)
        generator = STREAMS.generator("values", *name)
        values = np.searchsorted(np.cumsum(shares), generator.random(clients)).clip(0, SIZE - 1)
        answers = ANSWERS[variant](SIZE, epsilon, bits, generator.bytes(32))
        said = answers.encode(values, STREAMS.source("answers", *name))
        raw = answers.frequencies(answers.totals(said))
        for post, apply in POST.items():
            found[post] += float(np.abs(apply(raw) - shares).sum()) / RUNS
    return found


def figure_7_9() -> Picture:
    grid = np.linspace(0.02, 0.98, 25)
    curves = randomness_curves(grid, lambda second: (1.0, float(second)))
    return picture(
        "refinement-7-9",
        "Random bits a client for two privacy levels",
        "Random bits a client for epsilon 1 and a second level, against the second level.",
        [linear("two levels, ε₁ = 1", grid, "ε₂", "bits a client", curves)],
    )


def figure_7_10() -> Picture:
    grid = list(range(1, 11))

    def levels(count: float) -> tuple[float, ...]:
        # As printed: ε_j = 2 − 0.1·j from the second level on.
        return (2.0, *(2 - 0.1 * j for j in range(2, int(count) + 1)))

    return picture(
        "refinement-7-10",
        "Random bits a client for many privacy levels",
        "Random bits a client against the number of privacy levels.",
        [
            linear(
                "ε₁ = 2, ε_j = 2 − 0.1·j",
                grid,
                "analysts",
                "bits a client",
                randomness_curves(grid, levels),
            )
        ],
    )


def randomness_curves(
    grid: Sequence[float], levels: Callable[[float], tuple[float, ...]]
) -> list[Curve]:
    def cascade(x: float) -> Cascade:
        return Cascade(levels(x))

    return [
        line("separate", grid, lambda x: separate_bits(cascade(x))),
        line("ours", grid, lambda x: cascade(x).randomness_bits, ONE_MESSAGE),
        line("first key", grid, lambda x: cascade(x).key_bits(0)),
        line("public", grid, lambda x: enough_randomness(levels(x)[-1])),
    ]


def separate_bits(cascade: Cascade) -> float:
    """Bits of independent messages, one for each level: the trivial scheme."""
    return math.fsum(
        level.entropy_bits(cascade.heavy_count, cascade.order) for level in cascade.levels
    )


def table_7_1() -> Picture:
    """Randomness and error of five mechanisms; the table is printed at ε = 1."""
    grid = [0.1, 0.15, 0.25, 0.4, 0.6, 0.8, 1.0, 1.5, 2.0, 3.0, 4.0]
    # Random bits and errors of the same mechanisms, in the same order.
    bits = [
        line("RAPPOR", grid, lambda e: SIZE * enough_randomness(e / 2)),
        line("k-ary", grid, lambda e: recoverable_bits(e, "k-ary")),
        line("Hadamard message", grid, hadamard_bits),
        line("Hadamard key", grid, lambda e: recoverable_bits(e, "hadamard")),
        line("projective key", grid, lambda e: recoverable_bits(e, "projective")),
        line("least key", grid, lambda e: recoverable_bits(e, "minimal")),
        line("one bit", grid, enough_randomness),
    ]
    errors = [
        line("RAPPOR", grid, lambda e: unary(e).mse_bound(1)),
        line("k-ary", grid, lambda e: KaryRandomizedResponse(e, SIZE).mse_bound(1)),
        line("Hadamard message", grid, lambda e: HadamardRandomizer(e, SIZE).mse_bound(1)),
        line("Hadamard key", grid, lambda e: recovered_error(e, "hadamard")),
        line("projective key", grid, lambda e: recovered_error(e, "projective")),
        line("least key", grid, lambda e: recovered_error(e, "minimal")),
        line("one bit", grid, lambda e: OneBitHadamard(e, SIZE).mse_bound(1)),
    ]
    # Print the column of ε = 1, at which the thesis prints its table.
    one = grid.index(1.0)
    print("  mechanism, random bits a client, n·E‖p̂ − p‖² at ε = 1")
    for r, e in zip(bits, errors, strict=True):
        print(f"  {r.words}, {r.values[one]:.3f}, {e.values[one]:.0f}")
    return picture(
        "refinement-table-7-1",
        "Random bits and error of frequency mechanisms (k = 1000)",
        "Random bits a client and mean squared error of seven mechanisms against epsilon.",
        [
            Panel("Randomness", grid, "ε", "random bits a client", bits),
            Panel("Error", grid, "ε", "n·MSE", errors),
        ],
    )


def unary(epsilon: float) -> UnaryEncoding:
    return UnaryEncoding(epsilon, SIZE, form="symmetric")


def recoverable_bits(epsilon: float, family: str) -> float:
    return multi_level(SIZE, (math.inf, epsilon), family).cascade.randomness_bits


def recovered_error(epsilon: float, family: str) -> float:
    levels = multi_level(SIZE, (math.inf, epsilon), family)
    uniform = np.full(SIZE, 1 / SIZE)
    # As for the other mechanisms, the variance of drawing the clients' values is excluded.
    drawn = float((uniform - uniform**2).sum())
    return float(levels.design.variance(uniform, 1, levels.levels[1]).sum()) - drawn


def hadamard_bits(epsilon: float) -> float:
    """Entropy of a message of Hadamard response given the item, in bits."""
    mechanism = HadamardRandomizer(epsilon, SIZE)
    heavy, order = mechanism.block_rows // 2, mechanism.blocks * mechanism.block_rows
    mass = heavy * math.exp(epsilon) / (heavy * math.exp(epsilon) + order - heavy)
    return binary_entropy(mass) + mass * math.log2(heavy) + (1 - mass) * math.log2(order - heavy)


def linear(
    title: str, grid: Sequence[float], x_label: str, y_label: str, curves: list[Curve]
) -> Panel:
    return Panel(title, grid, x_label, y_label, curves, ("linear", "linear"), (0, None))
