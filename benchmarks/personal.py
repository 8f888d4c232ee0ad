"""Accuracy of personal models against ε: gain of collaboration, and where one model fails.

python benchmarks/personal.py [--only STUDY ...] [--seeds 5] [--json FILE] [--choosing] [--draw]

The tasks are logistic regression on MNIST's deskewed images as histograms of gradients, 588 numbers
per image, or on three characters of Shakespeare's; δ = 1e-5, trusted coordinator, user-level. Every
client is tested on 40 test images of its own classes, or on its role's later text. Runs that the
JSON file contains are not repeated. Then tables are printed, and the accuracy against ε is drawn
next to the file; --draw draws what the file contains. Five seeds take half an hour of one core.

Hyperparameters were chosen only on training data: on 400 clients of the first 16,000 training
images with a fifth of the noise of 2,000 clients, and on the first 320 characters of each role,
tested on the next 80.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from personal_data import digits, next_characters, started

import turnout as tn
from turnout.accounting import gaussian_epsilon
from turnout.learning.algorithm import FedSGD
from turnout.learning.gradients import LocalTraining
from turnout.learning.optimizers import SGD
from turnout.learning.personal import AdaPeD, Alone, PersonalTask, Ridge
from turnout.reporting.drawing import LOOKS, Picture
from turnout.reporting.surroundings import machine, versions

FIGURES = Path(__file__).parents[1] / "docs" / "figures"
DELTA = 1e-5
PRINTED = {3.35: (11.73, 93.32), 13.16: (29.91, 98.51), 27.30: (55.79, 99.01)}
"""Table 4.2: ε as printed, accuracy of DP-FedAvg and of DP-AdaPeD in per cent."""
NO_NOISE = 1e-9
"""Noise multiplier of methods that send nothing."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Hyperparameters chosen for one kind of data.

    Attributes:
        rate: learning rate of the server, with momentum 0.9.
        clip_norm: C of DP-FedAvg and of DP-AdaPeD.
        alone: local training from the beginning.
        tuned: local training after DP-FedAvg.
        local: a client's steps in a round of DP-AdaPeD.
        finish: number of a client's last steps in DP-AdaPeD.
        psi: initial ψ of DP-AdaPeD, without and with a start by DP-FedAvg.
        drawn: a client's steps in a round with the ℓ2 distance.
        strength: λ of the ℓ2 distance.
    """

    rate: float
    clip_norm: float
    alone: LocalTraining
    tuned: LocalTraining
    local: LocalTraining
    finish: int
    psi: tuple[float, float]
    drawn: LocalTraining
    strength: float


IMAGES = Settings(
    rate=256.0,
    clip_norm=0.05,
    alone=LocalTraining(60, 10.0),
    tuned=LocalTraining(20, 10.0),
    local=LocalTraining(2, 10.0),
    finish=20,
    psi=(5.0, 5.0),
    drawn=LocalTraining(5, 2.0),
    strength=0.1,
)
TEXTS = Settings(
    rate=12.0,
    clip_norm=0.1,
    alone=LocalTraining(60, 4.0),
    tuned=LocalTraining(20, 2.0),
    local=LocalTraining(2, 4.0),
    finish=20,
    psi=(5.0, 1.0),
    drawn=LocalTraining(4, 2.0),
    strength=0.02,
)
METHODS = ("fedavg", "adaped", "begun-adaped", "begun-ridge")


@dataclass(frozen=True, slots=True)
class Study:
    """One table: clients, participation and the values of ε (add-remove).

    Attributes:
        clients: number of clients with images; for texts all roles with enough text.
        each: images per client; 0 for texts.
    """

    clients: int
    each: int
    participation: Any
    epsilons: tuple[float, ...]
    permuted: bool = False

    @property
    def settings(self) -> Settings:
        """Hyperparameters for the data of the study."""
        return IMAGES if self.each else TEXTS

    def task(self, seed: int) -> PersonalTask:
        """Learning task with the clients and their data."""
        if not self.each:
            return next_characters(seed)
        return digits(self.clients, self.each, seed, self.permuted)


EVERY, CHECK_INS = tn.EveryStep(12), tn.CheckIn(4, 6)
STUDIES = {
    "pays": Study(2000, 30, EVERY, (1.0,)),
    "pays-check-ins": Study(2000, 30, CHECK_INS, (1.0,)),
    "permuted": Study(300, 30, EVERY, (1.0, 3.0, 8.0), permuted=True),
    "permuted-check-ins": Study(300, 30, CHECK_INS, (3.0,), permuted=True),
    "roles": Study(0, 0, EVERY, (3.0, 8.0, 24.0)),
    "roles-check-ins": Study(0, 0, CHECK_INS, (8.0,)),
    "table-4-2": Study(50, 300, EVERY, tuple(PRINTED)),
}
TITLES = {
    "alone": "local training, ε = 0",
    "fedavg": "DP-FedAvg",
    "tuned": "DP-FedAvg, then local training",
    "adaped": "DP-AdaPeD",
    "begun-adaped": "DP-AdaPeD after DP-FedAvg",
    "begun-ridge": "ℓ2 distance after DP-FedAvg",
}
COLOURS = {
    "fedavg": "Poisson",
    "tuned": "k windows",
    "adaped": "RDP 4.6",
    "begun-adaped": "shuffling",
    "begun-ridge": "no amplif.",
}


def printed_divergence(epsilon: float) -> float:
    """ρ of a printed ε of Table 4.2: ε = ρ + 2√(ρ log(1/δ)), minimised over Rényi orders."""
    log = math.log(1 / DELTA)
    return (math.sqrt(log + epsilon) - math.sqrt(log)) ** 2


def true_epsilons(epsilon: float, factor: float = 10 / 3) -> dict[str, float]:
    """True ε at the noise of a printed ε: by Rényi under replace-one, by PLD under both relations.

    At K = n the whole run is one Gaussian: ρ is ``factor`` times the printed ρ, τ = 10.
    """
    rho = factor * printed_divergence(epsilon)
    multiplier = 1 / math.sqrt(2 * rho)
    return {
        "rdp": rho + 2 * math.sqrt(rho * math.log(1 / DELTA)),
        "replace-one": gaussian_epsilon(multiplier, DELTA),
        "add-remove": gaussian_epsilon(2 * multiplier, DELTA),
    }


def measured(name: str, method: str, epsilon: float | None, seed: int) -> Iterator[dict[str, Any]]:
    """Metrics, noise multiplier and seconds of one run, and of local training after the run."""
    study, began = STUDIES[name], time.process_time()
    task, settings = study.task(seed), study.settings
    noise = NO_NOISE if epsilon is None else noise_for(name, epsilon)

    def row(method: str, run: Any) -> dict[str, Any]:
        metrics = {name: float(values[-1]) for name, values in run.history.metrics.items()}
        asked = {"study": name, "method": method, "epsilon": epsilon, "seed": seed}
        spent = time.process_time() - began
        about = {"versions": versions(), "machine": machine()}
        return {**asked, **metrics, "noise_multiplier": noise, "cpu_seconds": spent, **about}

    def run(algorithm: Any, participation: Any) -> Any:
        scheme = tn.Scheme(tn.GaussianNoise(noise), participation, "add-remove")
        return tn.simulate(
            scheme, algorithm=algorithm, seed=seed, evaluate_every=participation.steps
        )

    def averaged(participation: Any) -> Any:
        server = SGD(settings.rate, momentum=0.9)
        return run(FedSGD(task, server, settings.clip_norm), participation)

    # Each method with its own rule; local training is also measured after DP-FedAvg.
    if method == "alone":
        yield row(method, run(Alone(task, SGD(1.0), 1.0, settings.alone), tn.EveryStep(1)))
    elif method == "fedavg":
        made = averaged(study.participation)
        yield row(method, made)
        tuned = Alone(started(task, made.parameters), SGD(1.0), 1.0, settings.tuned)
        yield row("tuned", run(tuned, tn.EveryStep(1)))
    elif method == "adaped":
        yield row(method, run(adaped(task, settings, settings.psi[0]), study.participation))
    else:
        # A shared model by DP-FedAvg first, then personal models for the remaining steps.
        before, after = parts(study.participation)
        begun = started(task, averaged(before).parameters)
        yield row(method, run(personal_after(method, begun, settings), after))


def personal_after(method: str, task: PersonalTask, settings: Settings) -> Any:
    """Rule with personal models that starts from the shared model of DP-FedAvg."""
    if method == "begun-adaped":
        return adaped(task, settings, settings.psi[1])
    strength, finish = settings.strength, settings.finish
    return Ridge(task, SGD(1.0), 1.0, settings.drawn, finish=finish, strength=strength)


def adaped(task: PersonalTask, settings: Settings, psi: float) -> AdaPeD:
    """DP-AdaPeD with its hyperparameters."""
    server, local = SGD(settings.rate, momentum=0.9), settings.local
    made = AdaPeD(task, server, settings.clip_norm, local, finish=settings.finish, psi=psi)
    return replace(made, shared_rate=10.0, psi_weight=0.1)


def parts(participation: Any) -> tuple[Any, Any]:
    """First three quarters of a participation's steps or windows, and the remaining quarter.

    The draws of the two parts are independent, so that at the same noise they compose to the run of
    the whole participation.
    """
    if isinstance(participation, tn.CheckIn):
        most = 3 * participation.windows // 4
        return replace(participation, windows=most), replace(
            participation, windows=participation.windows - most
        )
    most = 3 * participation.steps // 4
    return tn.EveryStep(most), tn.EveryStep(participation.steps - most)


def noise_for(name: str, epsilon: float) -> float:
    """Noise multiplier for ε; for Table 4.2 the noise multiplier behind the printed ε."""
    target = true_epsilons(epsilon)["add-remove"] if name == "table-4-2" else epsilon
    participation = STUDIES[name].participation
    found = tn.calibrate(participation, epsilon=target, delta=DELTA, relation="add-remove")
    return found.noise_multiplier


def wanted(names: list[str], seeds: range) -> Iterator[tuple[str, str, float | None, int]]:
    """All runs, ordered by seed."""
    for seed in seeds:
        for name in names:
            yield name, "alone", None, seed
            for method in METHODS:
                for epsilon in STUDIES[name].epsilons:
                    yield name, method, epsilon, seed


def table(found: list[dict[str, Any]], metric: str) -> str:
    """Table in Markdown of one metric in percent, mean ± deviation over seeds, by study and ε."""
    heads = "study", "ε", *TITLES.values(), "seeds"
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for study, settings in STUDIES.items():
        for epsilon in settings.epsilons:
            runs = [o for o in measurements(found, study) if o["epsilon"] in (None, epsilon)]
            if runs:
                methods = [[o for o in runs if o["method"] == one] for one in TITLES]
                cells = (cell(one, metric) for one in methods)
                seeds = f"{min(map(len, methods))}"
                lines.append("| " + " | ".join((study, f"{epsilon:g}", *cells, seeds)) + " |")
    return "\n".join(lines)


def cell(runs: list[dict[str, Any]], metric: str) -> str:
    """Mean ± standard deviation over seeds, in percent."""
    values = [100 * one[metric] for one in runs]
    spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.1f}{spread}" if values else ""


def measurements(found: list[dict[str, Any]], study: str) -> list[dict[str, Any]]:
    """Runs of a study, except those by which hyperparameters were chosen."""
    return [one for one in found if one["study"] == study and one["seed"]]


def picture(found: list[dict[str, Any]]) -> Picture:
    """Picture of personal accuracy against ε where one shared model does not suffice."""
    titles = {
        "permuted": "MNIST, labels permuted by client",
        "roles": "Shakespeare's roles, next character",
    }

    def draw(axes: list[Axes], ink: str) -> None:
        # A curve for each method with privacy, and a line for local training, which sends nothing.
        for axis, (study, title) in zip(axes, titles.items(), strict=True):
            runs = measurements(found, study)
            for method, colour in COLOURS.items():
                curve(axis, [o for o in runs if o["method"] == method], method, colour)
            local = [100 * one["personal_accuracy"] for one in runs if one["method"] == "alone"]
            if local:
                level, words = statistics.mean(local), TITLES["alone"]
                axis.axhline(level, color=ink, linewidth=0.8, label=words)
            axis.set_xscale("log")
            ticks = STUDIES[study].epsilons
            axis.set_xticks(ticks, [f"{e:g}" for e in ticks], minor=False)
            axis.set_xticks([], minor=True)
            axis.set_xlabel("ε of a client (add-remove, δ = 1e-5)")
            axis.set_ylabel("personal accuracy (%)")
            axis.set_title(title)

    note = "300 clients of 30 images who each name the digits their own way, and 180 roles."
    return Picture(
        "personal-partitions", "Personal models where no one model serves", note, draw, 2
    )


def curve(axis: Axes, runs: list[dict[str, Any]], method: str, colour: str) -> None:
    """Draw a method's personal accuracy: mean and standard deviation over seeds."""
    values = dict[float, list[float]]()
    for one in runs:
        values.setdefault(one["epsilon"], []).append(100 * one["personal_accuracy"])
    epsilons = sorted(values)
    spreads = [statistics.stdev(values[e]) if len(values[e]) > 1 else 0.0 for e in epsilons]
    means = [statistics.mean(values[e]) for e in epsilons]
    look = LOOKS[colour].line()
    axis.errorbar(epsilons, means, spreads, capsize=3, label=TITLES[method], **look)


def main() -> None:
    """Run what the file does not contain yet, print the tables and draw the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=list(STUDIES), default=list(STUDIES))
    parser.add_argument("--methods", nargs="+", choices=("alone", *METHODS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--json", type=Path, default=FIGURES / "personal.json")
    parser.add_argument(
        "--choosing", action="store_true", help="run only seed 0, for choosing hyperparameters"
    )
    parser.add_argument("--draw", action="store_true")
    given = parser.parse_args()
    # Run what the file does not contain yet, and store each result at once.
    found = json.loads(given.json.read_text("utf-8")) if given.json.exists() else []
    done = {(o["study"], o["method"], o["epsilon"], o["seed"]) for o in found}
    seeds = range(1) if given.choosing else range(1, given.seeds + 1)
    for run in () if given.draw else wanted(given.only, seeds):
        if run not in done and run[1] in (given.methods or run[1]):
            found.extend(measured(*run))
            given.json.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
            print(found[-1], flush=True)
    # True ε of the printed noise, then the tables and the picture.
    for epsilon in PRINTED:
        once, fed_back = true_epsilons(epsilon), true_epsilons(epsilon, 10 / 3 * 10 * 50 / 49)
        print(epsilon, once, "as printed:", fed_back)
    for metric in ("personal_accuracy", "own_class_accuracy"):
        print(metric, table(found, metric), sep="\n\n", end="\n\n")
    if not given.choosing:
        picture(found).write(given.json.with_name("personal-partitions.svg"))


if __name__ == "__main__":
    main()
