"""Test accuracy of MNIST and Fashion-MNIST against ε, with one image per client.

python benchmarks/accuracy.py [--data mnist,fashion] [--epsilon 0.5,1,2,3,8] [--seeds 3]
                              [--json FILE] [--out docs/figures/accuracy.svg]

The picture contains published points for comparison. The plans are the examples `mnist` and
`fashion` with another ε and learning rate. Features, learning rates and clip norms were chosen by
training on 54,000 training images and testing on the other 6,000; the test images are used only for
the printed accuracies. Runs that the JSON file contains are not repeated. A run takes about a
minute and a half on two cores, most of it for computing the features the first time.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path

from matplotlib.axes import Axes

import turnout as tn
from turnout.plans import Plan, example_plan
from turnout.reporting.drawing import LOOKS, Picture
from turnout.reporting.surroundings import machine, versions

FIGURE = Path(__file__).parents[1] / "docs" / "figures" / "accuracy.svg"
EPSILONS = (0.5, 1.0, 2.0, 3.0, 8.0)
LEARNING_RATES = {0.5: 0.06, 1.0: 0.12}
"""Learning rates that differ from that of the example."""
TITLES = {"mnist": "MNIST", "fashion": "Fashion-MNIST"}

PUBLISHED = {  # (ε, test accuracy in %) at δ = 1e-5, as published
    "mnist": {
        "Abadi et al. 2016": [(0.5, 90.0), (2.0, 95.0), (8.0, 97.0)],
        "Papernot et al. 2020": [(2.93, 98.1)],
        "Tramèr and Boneh 2021": [(2.93, 98.7)],
    },
    "fashion": {
        "Papernot et al. 2020": [(2.7, 86.1)],
        "Tramèr and Boneh 2021": [(2.7, 89.7)],
    },
}
MARKS = dict(zip(PUBLISHED["mnist"], ("Poisson", "shuffling", "Poisson RDP"), strict=True))
"""Colour and marker of the published points."""


def measured(name: str, epsilon: float, seed: int) -> dict[str, float | str]:
    """Accuracy in percent, certified ε and seconds of one run."""
    plan = Plan.from_toml(example_plan(name).read_text("utf-8"))
    document = plan.model_dump(mode="json", exclude_none=True)
    document["privacy"]["epsilon"] = epsilon
    document["run"]["seed"] = seed
    rate = LEARNING_RATES.get(epsilon)
    if rate is not None:
        document["optimizer"]["learning_rate"] = rate
    start = time.perf_counter()
    run = tn.train(Plan.model_validate(document))
    return {
        "data": name,
        "target": epsilon,
        "seed": seed,
        "accuracy": 100 * run.accuracy,
        "epsilon": run.guarantee.epsilon.upper,
        "seconds": time.perf_counter() - start,
        "versions": versions(),
        "machine": machine(),
    }


def table(found: list[dict]) -> str:
    """Table in Markdown of means and ranges over seeds."""
    lines = ["| data | ε ≤ | accuracy | seeds | seconds |", "|---|---|---|---|---|"]
    for name, title in TITLES.items():
        for epsilon in EPSILONS:
            runs = [one for one in found if (one["data"], one["target"]) == (name, epsilon)]
            if runs:
                scores = [one["accuracy"] for one in runs]
                each = ", ".join(f"{score:.2f}" for score in scores)
                seconds = statistics.mean(one["seconds"] for one in runs)
                lines.append(
                    f"| {title} | {epsilon:g} | {statistics.mean(scores):.2f} % "
                    f"| {each} | {seconds:.0f} |"
                )
    return "\n".join(lines)


def picture(found: list[dict]) -> Picture:
    """Picture of mean accuracy against ε, with ranges over seeds as bars, and published points."""

    def draw(axes: list[Axes], ink: str) -> None:
        for axis, name in zip(axes, TITLES, strict=True):
            _draw_data(axis, name, [one for one in found if one["data"] == name])

    return Picture(
        "accuracy",
        "Test accuracy against ε, one image a client",
        "Add/remove, δ = 1e-5; mean of three seeds, bars from the least to the largest.",
        draw,
        len(TITLES),
        len(TITLES),
    )


def _draw_data(axis: Axes, name: str, runs: list[dict]) -> None:
    look = LOOKS["check-in"]
    targets = sorted({one["target"] for one in runs})
    scores = [[one["accuracy"] for one in runs if one["target"] == each] for each in targets]
    means = [statistics.mean(some) for some in scores]
    axis.plot(targets, means, color=look.colour, linewidth=2, label="turnout, random check-ins")
    for target, some in zip(targets, scores, strict=True):
        axis.plot([target, target], [min(some), max(some)], color=look.colour, linewidth=4)
    for source, points in PUBLISHED[name].items():
        mark = LOOKS[MARKS[source]]
        axis.plot(*zip(*points, strict=True), **{**mark.line(), "linestyle": "none"}, label=source)
    axis.set_xscale("log")
    axis.set_xticks(EPSILONS, [f"{each:g}" for each in EPSILONS])
    axis.minorticks_off()
    axis.set_xlabel("ε")
    axis.set_ylabel("test accuracy (%)")
    axis.set_title(TITLES[name])


def main() -> None:
    """Run what the file does not contain yet, print the table and draw the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="mnist,fashion")
    parser.add_argument("--epsilon", default=",".join(f"{each:g}" for each in EPSILONS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--out", type=Path, default=FIGURE)
    given = parser.parse_args()
    # Results of earlier runs are kept; each new result is stored at once.
    found: list[dict] = []
    if given.json is not None and given.json.exists():
        found = json.loads(given.json.read_text())
    done = {(one["data"], one["target"], one["seed"]) for one in found}
    for name in given.data.split(","):
        for epsilon in map(float, given.epsilon.split(",")):
            for seed in range(1, given.seeds + 1):
                if (name, epsilon, seed) in done:
                    continue
                found.append(measured(name, epsilon, seed))
                print(found[-1], flush=True)
                if given.json is not None:
                    given.json.write_text(json.dumps(found, indent=1))
    print(table(found))
    picture(found).write(given.out)


if __name__ == "__main__":
    main()
