"""Means of unit vectors in R^300 from 1000 clients: error against bits, and a million clients.

python benchmarks/means.py [--million] [--out docs/figures/means_frontier.svg] [--json FILE]

Errors are exact formulas or proved bounds over the worst vectors. Every point is also measured, on
vectors drawn from the sphere, with messages packed into bytes and unpacked again.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from papers.sqkr import SampledSigns

from turnout.estimation.means import MeanTally, collect_mean, estimate_mean
from turnout.randomizers.vectors import (
    CosineRotation,
    L2Randomizer,
    LInfRandomizer,
    PrivUnit,
    SphericalCode,
    VectorRandomizer,
)
from turnout.randomness import SimulationStreams
from turnout.reporting.drawing import DOTTED, LOOKS, Picture
from turnout.reporting.surroundings import surroundings

D, N, RUNS = 300, 1000, 3
LEVELS = (1.0, 4.0, 8.0)
FIGURE = Path(__file__).parents[1] / "docs" / "figures" / "means_frontier.svg"
DRAWN = {  # by meaning; the published mechanism lies far above the panel
    "PrivUnit": "PrivUnit",
    "rotation, separate bits": "rotation, bits",
    "rotation": "rotation",
    "Kashin": "Kashin",
    "SQKR": "SQKR",
    "public directions": "directions",
}
_STREAMS = SimulationStreams(0)


@dataclass(frozen=True)
class Point:
    """Message length and mean squared error of one randomizer."""

    epsilon: float
    name: str
    bits: int
    stated: float
    measured: float
    seconds_per_million: float


def randomizers(epsilon: float) -> list[tuple[str, VectorRandomizer]]:
    """Randomizers of the frontier, each at several message lengths."""
    found: list[tuple[str, VectorRandomizer]] = [
        ("PrivUnit", PrivUnit(D, epsilon)),
        ("as printed", L2Randomizer.as_printed(D, epsilon, clients=N)),
    ]
    for samples in {1, max(1, round(epsilon / 2))}:
        inner = LInfRandomizer(D, epsilon, 3 / D**0.5, samples)
        found.append(("rotation, separate bits", L2Randomizer(inner, CosineRotation(D))))
    for bits in (10, 11, 12, 20, 30, 40):
        found.append(("rotation", L2Randomizer.rotated(D, epsilon, message_bits=bits)))
        found.append(("Kashin", L2Randomizer.best(D, epsilon, message_bits=bits)))
    for samples in range(1, round(1.5 * epsilon) + 1):
        found.append(("SQKR", SampledSigns(D, epsilon, samples=samples)))
    for bits in range(1, 11):
        found.append(("public directions", SphericalCode(D, epsilon, code_bits=bits)))
    distinct = {(name, r.message_bits): (name, r) for name, r in found}
    return list(distinct.values())


def measure(epsilon: float, name: str, randomizer: VectorRandomizer) -> Point:
    """Measured errors over several runs, with messages packed into bytes."""
    vectors = _STREAMS.generator("vectors").normal(size=(N, D))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    errors, started = [], time.perf_counter()
    # Each run draws all messages and sends them through bytes.
    for run in range(RUNS):
        source = _STREAMS.source("clients", name, str(epsilon), run)
        messages = randomizer.encode(vectors, source, run * N)
        data = randomizer.pack(messages)
        assert len(data) == -(-N * randomizer.message_bits // 8)
        tally = MeanTally.of(randomizer, randomizer.unpack(data, N), run * N)
        errors.append(np.sum((estimate_mean(tally).value - vectors.mean(axis=0)) ** 2))
    # Stated error: a formula or bound over the worst vectors.
    seconds = (time.perf_counter() - started) / (RUNS * N) * 1e6
    stated = randomizer.worst_squared_error / N
    if isinstance(randomizer, PrivUnit | SphericalCode):
        stated -= 1 / N  # errors for unit vectors; the worst vector is 0
    bits = randomizer.message_bits
    return Point(epsilon, name, bits, stated, float(np.mean(errors)), seconds)


def picture(points: list[Point]) -> Picture:
    """Picture of error against bits, with one panel for each ε₀."""

    # One curve for each randomizer in a panel for each ε₀.
    def draw(axes: list[Axes], _: str) -> None:
        for axis, epsilon in zip(axes, LEVELS, strict=True):
            for name, meaning in DRAWN.items():
                look = LOOKS[meaning]
                shown = sorted(
                    (p.bits, p.stated) for p in points if (p.epsilon, p.name) == (epsilon, name)
                )
                if name == "PrivUnit":
                    label = f"{look.words}, 9600 bits"
                    axis.axhline(shown[0][1], color=look.colour, linestyle=DOTTED, label=label)
                else:
                    axis.plot(*zip(*shown, strict=True), label=look.words, **look.line())
            axis.set_yscale("log")
            axis.set(xlabel="bits a client", ylabel="E‖error‖²", title=f"ε₀ = {epsilon:g}")
            axis.set_xlim(0, 42)

    return Picture(
        "means_frontier",
        "Error of a mean against the bits that a client sends",
        f"Unit vectors, d = {D}, n = {N}. Bits of public randomness are not counted.",
        draw,
        len(LEVELS),
    )


def million(name: str, randomizer: VectorRandomizer) -> dict[str, float | str]:
    """Error and time for a million clients, in blocks; all hold the same few vectors."""
    few = _STREAMS.generator("few").normal(size=(1000, D)).astype(np.float32)
    few /= 1.0001 * np.linalg.norm(few, axis=1, keepdims=True)
    # One block of clients after another, with one tally.
    tally, started = None, time.perf_counter()
    for block in range(1000):
        source = _STREAMS.source("million", block)
        part = collect_mean(randomizer, few, source, first=1000 * block)
        tally = part if tally is None else tally + part
    assert tally is not None
    seconds = time.perf_counter() - started
    error = float(np.sum((estimate_mean(tally).value - few.mean(axis=0)) ** 2))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {
        "name": name,
        "seconds": seconds,
        "peak_gib": peak,
        "error": error,
        "stated": randomizer.worst_squared_error / 1e6,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--million", action="store_true", help="also measure a million clients")
    parser.add_argument("--out", type=Path, default=FIGURE, help="file for the picture")
    parser.add_argument("--json", type=Path, help="JSON file for the results")
    options = parser.parse_args()
    # Measure each randomizer at each ε₀, and compare with its stated error.
    points = []
    print(f"{'ε₀':>3}  {'randomizer':<24}{'bits':>5}{'stated':>10}{'measured':>10}{'µs each':>9}")
    for epsilon in LEVELS:
        for name, randomizer in randomizers(epsilon):
            point = measure(epsilon, name, randomizer)
            points.append(point)
            print(
                f"{epsilon:>3g}  {name:<24}{point.bits:>5}{point.stated:>10.4g}"
                f"{point.measured:>10.4g}{point.seconds_per_million:>9.0f}",
                flush=True,
            )
    # The picture, and on request a million clients for three randomizers.
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(picture(points).svg())
    runs = []
    if options.million:
        for name, randomizer in (
            ("rotation", L2Randomizer.rotated(D, 4.0, message_bits=20)),
            ("public directions, 2 bits", SphericalCode(D, 4.0, code_bits=2)),
            ("public directions, 4 bits", SphericalCode(D, 4.0, code_bits=4)),
        ):
            runs.append(million(name, randomizer))
            print(
                " ".join(
                    f"{key} {value:.4g}" if isinstance(value, float) else str(value)
                    for key, value in runs[-1].items()
                ),
                flush=True,
            )
    # Write the requested results.
    if options.json:
        options.json.write_text(
            json.dumps(
                {
                    "about": surroundings(),
                    "points": [asdict(p) for p in points],
                    "million": runs,
                },
                indent=1,
            )
        )


if __name__ == "__main__":
    main()
