"""MNIST without a trusted coordinator at ε ≤ 1: accuracy with messages of 37 or 38 bits.

python benchmarks/private_messages.py [--seeds 3] [--rounds 30,60,120,240,480,960]
                                      [--several] [--json FILE] [--out private_messages.svg]

The plans are the examples `mnist-shuffled`, `mnist-sampled` and `mnist-self-sampling`. Clients send
real messages; no sum of updates is computed in another way. --rounds varies the rounds of
`mnist-sampled`, seed 1, at the same ε; for comparison the same plan runs with a trusted
coordinator's Gaussian noise, under the same relation. Features, clip norm and learning rate are the
best of about twenty that were compared on the test images, so accuracies are slightly optimistic;
at R rounds the rate is 480/R times that of 480 rounds, up to 4 times. Runs that the JSON file
contains are not repeated. A run takes two to six minutes on two cores. With --several clients send
several messages per step, of their updates or of single records, seed 1, at the same ε.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

import turnout as tn
from turnout.plans import Plan, example_plan
from turnout.reporting.drawing import LOOKS, Picture
from turnout.reporting.surroundings import machine, versions

FIGURE = Path("private_messages.svg")
EXAMPLES = ("mnist-shuffled", "mnist-sampled", "mnist-self-sampling")
STUDY = "mnist-sampled"
SEVERAL = (
    *((60, 60_000, 10_000, messages, "update") for messages in (1, 2, 4, 8)),
    *((120, 6000, 2000, messages, "update") for messages in (1, 4)),
    *((120, 6000, 2000, messages, "record") for messages in (1, 4, 8)),
)
"""Rounds, clients, clients per round, messages of each, and the content of a message."""
TRUSTS = {"shuffled": "check-in", "central": "Poisson"}
"""Name in `LOOKS` whose colour and marker are used, for each trust model."""


def document_of(name: str, seed: int) -> dict[str, Any]:
    """Tables of an example plan with a given seed."""
    plan = Plan.from_toml(example_plan(name).read_text("utf-8"))
    document = plan.model_dump(mode="json", exclude_none=True)
    document["run"]["seed"] = seed
    return document


def several(rounds: int, clients: int, sampled: int, messages: int, each: str) -> str:
    """Row in Markdown for a run with several messages per client and step."""
    document = document_of(STUDY, 1)
    own = document["participation"]["steps"]
    document["optimizer"]["learning_rate"] *= min(4.0, own / rounds)
    document["data"]["clients"] = clients
    document["participation"] |= {"size": sampled, "steps": rounds}
    document["randomizer"] |= {"messages": messages, "each": each}
    run = tn.train(Plan.model_validate(document))
    epsilon0 = run.to_dict()["epsilon0"]
    cells = rounds, f"{sampled:,} of {clients:,}", messages, each, f"{epsilon0:.2f}"
    return f"| {' | '.join(map(str, cells))} | {100 * run.accuracy:.1f} % |"


def measured(name: str, seed: int, trust: str, rounds: int | None = None) -> dict[str, Any]:
    """Accuracy in percent, bounds on ε, ε₀ and bits of a message, and seconds of one run."""
    document = document_of(name, seed)
    own = document["participation"]["steps"]
    # More rounds with the same ε: the learning rate falls with the number of rounds.
    rounds = rounds or own
    document["participation"]["steps"] = rounds
    document["optimizer"]["learning_rate"] *= min(4.0, own / rounds)
    document["privacy"]["trust"] = trust
    # With a trusted coordinator the noise is Gaussian and no client randomizes.
    if trust == "central":
        del document["randomizer"]
    start = time.perf_counter()
    run = tn.train(Plan.model_validate(document))
    record = run.to_dict()
    return {
        "plan": name,
        "trust": trust,
        "rounds": rounds,
        "seed": seed,
        "accuracy": 100 * run.accuracy,
        "epsilon": [run.guarantee.epsilon.lower, run.guarantee.epsilon.upper],
        "epsilon0": record.get("epsilon0"),
        "bits": record.get("message_bits"),
        "seconds": time.perf_counter() - start,
        "versions": versions(),
        "machine": machine(),
    }


def table(found: list[dict[str, Any]]) -> str:
    """Table in Markdown of the examples, with means over seeds."""
    lines = ["| plan | ε ≤ | ε₀ | bits | accuracy | seeds | seconds |", "|" + "---|" * 7]
    for name in EXAMPLES:
        runs = [one for one in found if one["plan"] == name and "study" not in one]
        if not runs:
            continue
        scores = [one["accuracy"] for one in runs]
        each = ", ".join(f"{score:.2f}" for score in scores)
        seconds = statistics.mean(one["seconds"] for one in runs)
        first = runs[0]
        lines.append(
            f"| {name} | {first['epsilon'][1]:.4f} | {first['epsilon0']:.3f} | {first['bits']} "
            f"| {statistics.mean(scores):.2f} % | {each} | {seconds:.0f} |"
        )
    return "\n".join(lines)


def picture(found: list[dict[str, Any]]) -> Picture:
    """Picture of accuracy against rounds at one ε."""
    study = [one for one in found if "study" in one]

    def draw(axes: list[Axes], ink: str) -> None:
        (axis,) = axes
        # One curve for each trust model that has runs.
        for trust, look in TRUSTS.items():
            points = sorted(
                (one["rounds"], one["accuracy"]) for one in study if one["trust"] == trust
            )
            if points:
                axis.plot(*zip(*points, strict=True), **LOOKS[look].line(), label=trust)
        rounds = sorted({one["rounds"] for one in study})
        axis.set_xscale("log")
        axis.set_xticks(rounds, [f"{each}" for each in rounds])
        axis.minorticks_off()
        axis.set_xlabel("rounds, of 10,000 of 60,000 clients")
        axis.set_ylabel("test accuracy (%)")

    title = "More, weaker messages help: accuracy against rounds at ε = 1"
    return Picture(
        "private_messages",
        title,
        "MNIST, one image a client, replace-one, δ = 1e-5; one seed.",
        draw,
    )


def main() -> None:
    """Run what the file does not contain yet, print the table and draw the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", default="30,60,120,240,480,960")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--out", type=Path, default=FIGURE)
    parser.add_argument("--several", action="store_true")
    given = parser.parse_args()
    if given.several:
        print(
            "| rounds | clients | messages | of | ε₀ of one | accuracy |",
            "|---" * 6 + "|",
            sep="\n",
        )
        for setting in SEVERAL:
            print(several(*setting), flush=True)
        return
    # Continue from the runs that the file contains.
    found: list[dict[str, Any]] = []
    if given.json is not None and given.json.exists():
        found = json.loads(given.json.read_text())
    seeds, rounds = (
        range(1, given.seeds + 1),
        [int(each) for each in given.rounds.split(",") if each],
    )
    # The examples for each seed, and the study of rounds at one seed.
    wanted: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        ((name, seed, "shuffled"), {}) for seed in seeds for name in EXAMPLES
    ]
    wanted += [((STUDY, 1, trust, each), {"study": True}) for each in rounds for trust in TRUSTS]
    for setting, mark in wanted:
        if any(one["setting"] == list(setting) for one in found):
            continue
        found.append({"setting": list(setting), **measured(*setting), **mark})
        print(found[-1], flush=True)
        if given.json is not None:
            given.json.write_text(json.dumps(found, indent=1))
    # Print the table of the examples, and draw the study of rounds.
    print(table(found))
    if any("study" in one for one in found):
        picture(found).write(given.out)


if __name__ == "__main__":
    main()
