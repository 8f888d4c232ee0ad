"""CLDP-SGD on MNIST with shuffled messages of 15 bits, as in Figures 4.2 and 5.7 of the thesis.

    python benchmarks/cldp_sgd.py [--figure 4.2 | 5.7] [--seeds 3] [--as-printed] [--draw]

60,000 clients hold one image each, and 10,000 of them participate in a round. Updates are clipped
to 1/100 in each coordinate, and a message contains one sampled coordinate and one bit. The network
is tanh-cnn-13k (d = 13,706, the nearest to the thesis' 13,170). Clients send real messages; no sum
of updates is computed in another way. `--as-printed` uses the printed randomizer, for which one
seed is enough. The script prints Table 4.1, the accuracy during the run, upper and lower bounds on
ε at δ = 1e-5 under replace-one, and the number of sent bits. Runs that the JSON file contains are
not repeated; `--draw` runs nothing and draws both figures from the file: accuracy against ε, as the
thesis does. A run of 480 rounds takes about eight minutes on one core.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from matplotlib.axes import Axes

import turnout as tn
from turnout.data import mnist
from turnout.learning.algorithm import FedSGD
from turnout.learning.examples import Examples
from turnout.learning.models import build_model
from turnout.learning.optimizers import SGD
from turnout.learning.tasks import SupervisedTask
from turnout.randomizers.vectors import LInfRandomizer
from turnout.reporting.drawing import DASHED, LOOKS, Picture
from turnout.reporting.surroundings import machine, versions
from turnout.reporting.words import rounded_down, rounded_up
from turnout.schemes.scheme import shuffled

FIGURES = Path(__file__).parents[1] / "docs" / "figures"
CLIENTS, SAMPLED, CLIP, DELTA, READINGS = 60_000, 10_000, 0.01, 1e-5, 12
PRINTED_DIMENSION = 13_170
"""Printed d, which no strides and paddings give: with 32 filters d is 9,626 + 1,024 s²."""


@dataclass(frozen=True, slots=True)
class Figure:
    """Parameters and published values of a figure of the thesis.

    Attributes:
        epsilon0: ε₀ of a message.
        rounds: number of rounds of the run.
        printed: (ε, accuracy in percent) stated by the thesis, at the ε of its theorem.
    """

    epsilon0: float
    rounds: int
    printed: tuple[tuple[float, float], ...]


Variant = Literal["default", "as-printed"]

STUDIES = {
    "4.2": Figure(2.0, 480, ((5.0, 76.7), (10.0, 87.9))),
    "5.7": Figure(1.5, 1200, ((1.4, 80.0), (2.91, 90.0))),
}


@dataclass(frozen=True, slots=True)
class Rate:
    """Learning rate 0.3, then 0.18 from 7/8 of the run on, as in Figure 4.2.

    In Figure 5.7 of the thesis the lower rate begins after 70 of 200 epochs.
    """

    rounds: int

    def __call__(self, step: int) -> float:
        """Learning rate of a round."""
        return 0.3 if step < self.rounds * 7 // 8 else 0.18


def task() -> SupervisedTask:
    """Learning task with one image per client."""
    data = mnist()
    train, test = (Examples(part.inputs, part.labels) for part in (data.train, data.test))
    return SupervisedTask(build_model("tanh-cnn-13k", (28, 28), 10), train, test)


def table(made: SupervisedTask) -> str:
    """Table 4.1 as printed, and the parameters of the network used here."""
    layers = [
        ("convolution, 8 × 8, stride 2", "16 filters", "16 filters", 16 * 64 + 16),
        ("max pooling, 2 × 2", "", "stride 1", 0),
        ("convolution, 4 × 4, stride 2", "32 filters", "16 filters", 16 * 16 * 16 + 16),
        ("max pooling, 2 × 2", "", "stride 1", 0),
        ("fully connected", "32 units", "32 units", 32 * 256 + 32),
        ("softmax", "10 units", "10 units", 32 * 10 + 10),
    ]
    total = sum(count for *_, count in layers)
    assert total == made.dimension
    rows = [
        "| layer | Table 4.1 | our network | our parameters |",
        "|---|---|---|---|",
        *(f"| {layer} | {printed} | {own} | {count:,} |" for layer, printed, own, count in layers),
        f"| all | 13,170 | | {total:,} |",
    ]
    return "\n".join(rows)


def saving(dimension: int, epsilon0: float = 2.0) -> str:
    """Number of bits of a message, and the number of an update's bits in float32 divided by it."""
    bits = LInfRandomizer(dimension, epsilon0, CLIP).message_bits
    return f"d = {dimension:,}: {bits} bits a message, 1/{32 * dimension / bits:,.0f} of float32"


def measured(made: SupervisedTask, figure: str, variant: Variant, seed: int) -> dict[str, Any]:
    """Rounds, bounds on ε and accuracy at each evaluation of one run, and its bits and seconds."""
    study = STUDIES[figure]
    randomizer = LInfRandomizer(made.dimension, study.epsilon0, CLIP, variant=variant)

    def rounds_of(count: int) -> tn.Scheme:
        return shuffled(randomizer.priced_as, CLIENTS, count, sampled=SAMPLED)

    began, cpu = time.perf_counter(), time.process_time()
    run = tn.simulate(
        rounds_of(study.rounds),
        algorithm=FedSGD(made, SGD(Rate(study.rounds)), CLIP),
        messages=randomizer,
        seed=seed,
        evaluate_every=study.rounds // READINGS,
    )
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    assert run.history is not None
    # ε from both sides after the rounds of each evaluation.
    scores = run.history.metrics["accuracy"]
    every = study.rounds // READINGS
    readings = [every * (i + 1) for i in range(READINGS)]
    prices = [tn.price(rounds_of(count), delta=DELTA).epsilon for count in readings]
    return {
        "setting": [figure, variant, seed],
        "rounds": readings,
        "epsilon": [[one.lower, one.upper] for one in prices],
        "accuracy": [100 * float(score) for score in scores[-READINGS:]],
        "bits": randomizer.message_bits,
        "fewer": 32 * made.dimension / randomizer.message_bits,
        "seconds": seconds,
        "cpu_seconds": cpu,
        "versions": versions(),
        "machine": machine(),
    }


def picture(figure: str, found: list[dict[str, Any]]) -> Picture:
    """Picture of accuracy against ε of the rounds so far, with the thesis' values."""
    study = STUDIES[figure]

    def draw(axes: list[Axes], ink: str) -> None:
        (axis,) = axes
        # Mean accuracy over seeds, with one standard deviation, for each variant that was run.
        for variant, look, kind in (
            ("default", LOOKS["turnout"], "-"),
            ("as-printed", LOOKS["Poisson"], DASHED),
        ):
            runs = [one for one in found if one["setting"][:2] == [figure, variant]]
            if not runs:
                continue
            scores = list(zip(*(one["accuracy"] for one in runs), strict=True))
            means = [statistics.mean(each) for each in scores]
            spreads = [statistics.stdev(each) if len(each) > 1 else 0.0 for each in scores]
            words = {"default": "ours", "as-printed": "the printed randomizer"}[variant]
            axis.errorbar(
                [upper for _, upper in runs[0]["epsilon"]],
                means,
                spreads,
                capsize=3,
                elinewidth=1.2,
                label=f"{words}, at the ε that the run has",
                **look.line(kind),
            )
        # The accuracies that the thesis states.
        axis.plot(
            *zip(*study.printed, strict=True),
            **LOOKS["shuffling"].line(":"),
            label="as the thesis states, at the ε of its theorem",
        )
        axis.set_xscale("log")
        axis.set_xticks([0.1, 1, 10], ["0.1", "1", "10"])
        axis.set_xlabel("ε (replace-one, client, shuffled; δ = 1e-5)")
        axis.set_ylabel("test accuracy (%)")

    return Picture(
        f"cldp-{figure.replace('.', '-')}",
        f"Figure {figure}: shuffled messages of 15 bits on MNIST, ε₀ = {study.epsilon0:g}",
        f"Accuracy against ε over {study.rounds} rounds; bars are one deviation over seeds.",
        draw,
    )


def shown(one: dict[str, Any]) -> str:
    """Description of a run in one line."""
    figure, variant, seed = one["setting"]
    lower, upper = one["epsilon"][-1]
    bracket = f"[{rounded_down(lower)}, {rounded_up(upper)}]"
    scores = " ".join(f"{score:.1f}" for score in one["accuracy"])
    return (
        f"Figure {figure}, {variant}, seed {seed}: {scores} %; ε in {bracket}, "
        f"{one['bits']} bits, 1/{one['fewer']:,.0f} of float32, {one['seconds']:.0f} s "
        f"({one['cpu_seconds']:.0f} CPU-s)"
    )


def main() -> None:
    """Run what the file does not contain yet, or draw the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--figure", choices=STUDIES, nargs="+", default=list(STUDIES))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--as-printed", action="store_true", help="use the printed randomizer")
    parser.add_argument("--json", type=Path, default=FIGURES / "cldp.json")
    parser.add_argument("--draw", action="store_true", help="draw stored results, without running")
    given = parser.parse_args()
    found = json.loads(given.json.read_text("utf-8")) if given.json.exists() else []
    variant = "as-printed" if given.as_printed else "default"
    wanted = [[f, variant, s] for f in given.figure for s in range(1, given.seeds + 1)]
    missing = [each for each in wanted if all(one["setting"] != each for one in found)]
    # Run what is missing and store each result at once; otherwise draw.
    if not given.draw:
        made = task()
        print(table(made), saving(made.dimension), saving(PRINTED_DIMENSION), sep="\n")
        for setting in missing:
            found.append(measured(made, *setting))
            given.json.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
            print(shown(found[-1]), flush=True)
        return
    print("\n".join(map(shown, found)))
    for figure in STUDIES:
        picture(figure, found).write(FIGURES / f"cldp-{figure.replace('.', '-')}.svg")


if __name__ == "__main__":
    main()
