"""Personal models under ε: Table 4.2, where collaboration pays, and partitions no one model serves.

python benchmarks/personal.py [--only STUDY ...] [--seeds 5] [--json FILE] [--features FILE]
                              [--draw]

Logistic regression on MNIST's scattering maps averaged to 2×2 (324 numbers an image, unit norm),
δ = 1e-5, trusted coordinator, user-level; every client is judged on 40 test images of its own
classes. Runs that the JSON file holds are not done again; --draw makes tables and the figure of
what is there. Settings were chosen by a few runs of seed 0, which is in no
table, on the same pool of test images.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

import turnout as tn
from turnout.accounting import gaussian_epsilon
from turnout.datasets import mnist
from turnout.learning.examples import Examples
from turnout.learning.features import apply_features, build_features
from turnout.learning.fedsgd import FedSGD
from turnout.learning.holdings import Holdings
from turnout.learning.local_updates import LocalTraining
from turnout.learning.models import logistic
from turnout.learning.optimizers import SGD
from turnout.learning.personal_models import AdaPeD, Alone, Ridge
from turnout.learning.personal_tasks import PersonalTask, judged_on_own_classes
from turnout.reporting.drawing import Picture
from turnout.reporting.palette import LOOKS

FIGURES = Path(__file__).parents[1] / "docs" / "figures"
DELTA, OWN, JUDGED = 1e-5, 3, 40
PRINTED = {3.35: (11.73, 93.32), 13.16: (29.91, 98.51), 27.30: (55.79, 99.01)}
"""Table 4.2: ε as printed, accuracy of DP-FedAvg and of DP-AdaPeD in per cent."""


_IMAGES: dict[str, NDArray[Any]] = {}


def images(kept: Path | None = None) -> dict[str, NDArray[Any]]:
    """Features and labels of MNIST, by name; computed once, or read from a file that keeps them."""
    if _IMAGES:
        return _IMAGES
    if kept is not None and kept.exists():
        with np.load(kept) as arrays:
            _IMAGES.update(arrays)
        return _IMAGES
    features, data = build_features("scattering", Path()), mnist()
    for name, part in (("train", data.train), ("test", data.test)):
        starts = range(0, len(part), 2000)
        _IMAGES[name] = np.concatenate(
            [_averaged(apply_features(features, part.inputs[k : k + 2000])) for k in starts]
        )
        _IMAGES[f"{name}_labels"] = np.asarray(part.labels, dtype=np.int64)
    if kept is not None:
        np.savez(kept, allow_pickle=False, **_IMAGES)
    return _IMAGES


def _averaged(maps: NDArray[Any]) -> NDArray[np.float32]:
    """81 maps of 7×7 averaged to 2×2, of unit norm."""
    corners = np.asarray(maps, np.float32).reshape(len(maps), -1, 7, 7)
    corners = corners[:, :, [0, 1, 2, 4, 5, 6]][..., [0, 1, 2, 4, 5, 6]]
    flat = corners.reshape(len(maps), -1, 2, 3, 2, 3).mean((3, 5)).reshape(len(maps), -1)
    return flat / np.linalg.norm(flat, axis=1, keepdims=True)


def own_classes_task(
    clients: int, each: int, seed: int, permuted: bool, local: LocalTraining
) -> PersonalTask:
    """Clients with images of three classes; ``permuted``: each names the digits its own way."""
    data, rng = images(), np.random.default_rng(seed)
    x, y = data["train"], data["train_labels"]
    t, u = data["test"], data["test_labels"]
    places = [rng.permutation(np.flatnonzero(y == digit)) for digit in range(10)]
    records, taken = list[NDArray[np.int64]](), np.zeros(10, dtype=np.int64)
    for _ in range(clients):
        for digit, many in zip(rng.permutation(10)[:OWN], _shares(each), strict=True):
            start = taken[digit] % max(1, places[digit].size - many)
            records.append(places[digit][start : start + many])
            taken[digit] += many
    chosen = np.concatenate(records)
    held = Holdings(np.arange(0, clients * each + 1, each), np.arange(clients * each))
    tested = judged_on_own_classes(y[chosen], held, u, JUDGED, rng)
    x, y, t, u = x[chosen], y[chosen], t[tested.records], u[tested.records]
    if permuted:
        names = np.stack([rng.permutation(10) for _ in range(clients)])
        y = names[np.repeat(np.arange(clients), each), y]
        u = names[np.repeat(np.arange(clients), np.diff(tested.offsets)), u]
    tested = Holdings(tested.offsets, np.arange(len(u)))
    examples, judged = Examples(x, y, "class"), Examples(t, u, "class")
    model = logistic((x.shape[1],), 10)
    return PersonalTask(model, examples, judged, holdings=held, tested=tested, local=local)


def _shares(each: int) -> list[int]:
    """Images of each of a client's classes."""
    return [each // OWN + (k < each % OWN) for k in range(OWN)]


@dataclass(frozen=True, slots=True)
class Study:
    """One table: clients, participation and the ε that are asked for (add-remove)."""

    clients: int
    each: int
    law: Any
    epsilons: tuple[float, ...]
    permuted: bool = False
    methods: tuple[str, ...] = ("fedavg", "adaped", "ridge")


STUDIES = {
    "table-4-2": Study(50, 300, tn.EveryStep(12), tuple(PRINTED)),
    "pays": Study(2000, 30, tn.EveryStep(12), (1.0,)),
    "pays-check-ins": Study(2000, 30, tn.CheckIn(4, 6), (1.0,), methods=("fedavg", "adaped")),
    "pays-poisson": Study(
        2000, 30, tn.PoissonSampling(0.25, 24), (1.0,), methods=("fedavg", "adaped")
    ),
    "permuted": Study(
        2000, 30, tn.EveryStep(12), (1.0, 8.0), permuted=True, methods=("fedavg", "adaped")
    ),
}
TITLES = {
    "fedavg": "DP-FedAvg",
    "adaped": "DP-AdaPeD",
    "ridge": "drawn by an ℓ2 distance",
    "alone": "local training",
}
COLOURS = {"fedavg": "Poisson", "adaped": "check-in", "ridge": "shuffling", "alone": "no amplif."}


def printed_divergence(epsilon: float) -> float:
    """ρ of a printed ε of Table 4.2: ε = ρ + 2√(ρ log(1/δ)), minimised over Rényi orders."""
    log = math.log(1 / DELTA)
    return (math.sqrt(log + epsilon) - math.sqrt(log)) ** 2


def true_epsilons(epsilon: float, factor: float = 10 / 3) -> dict[str, float]:
    """What a printed ε is under replace-one by Rényi divergence, and by PLD in both relations.

    At K = n the whole run is one Gaussian: ρ is ``factor`` times the printed one, τ = 10.
    """
    rho = factor * printed_divergence(epsilon)
    multiplier = 1 / math.sqrt(2 * rho)
    return {
        "rdp": rho + 2 * math.sqrt(rho * math.log(1 / DELTA)),
        "replace-one": gaussian_epsilon(multiplier, DELTA),
        "add-remove": gaussian_epsilon(2 * multiplier, DELTA),
    }


def algorithm(method: str, study: Study, seed: int) -> Any:
    """A method with its settings."""
    few = study.clients < 100
    step = LocalTraining(1, 1.0)
    task = own_classes_task(study.clients, study.each, seed, study.permuted, step)
    server = SGD(10.0)
    if method == "fedavg":
        return FedSGD(task, SGD(64.0 if few else 256.0, momentum=0.9), 0.05)
    if method == "adaped":
        local = LocalTraining(2, 40.0)
        return AdaPeD(task, server, 1.0, local, finish=40, shared_rate=100.0, psi=5.0)
    if method == "ridge":
        return Ridge(task, server, 1.0, LocalTraining(2, 40.0), finish=40, strength=0.003)
    return Alone(task, SGD(1.0), 1.0, LocalTraining(60, 40.0))


def measured(name: str, method: str, epsilon: float | None, seed: int) -> dict[str, Any]:
    """One run: metrics of its end, noise, ε of both relations, seconds of this process."""
    study, began = STUDIES[name], time.process_time()
    law = study.law if epsilon is not None else tn.EveryStep(1)
    target = epsilon
    if epsilon is not None and name == "table-4-2":
        target = true_epsilons(epsilon)["add-remove"]
    multiplier = 1.0
    if target is not None:
        found = tn.calibrate(law, epsilon=target, delta=DELTA, relation="add-remove")
        multiplier = found.noise_multiplier
    scheme = tn.Scheme(tn.GaussianNoise(multiplier), law, "add-remove")
    made = algorithm(method, study, seed)
    run = tn.simulate(scheme, algorithm=made, seed=seed, evaluate_every=law.steps)
    assert run.history is not None
    metrics = {name: float(values[-1]) for name, values in run.history.metrics.items()}
    spent = time.process_time() - began
    asked = {"study": name, "method": method, "epsilon": epsilon, "seed": seed}
    return {**asked, **metrics, "noise_multiplier": multiplier, "cpu_seconds": spent}


def wanted(names: list[str], seeds: int) -> Iterator[tuple[str, str, float | None, int]]:
    """All runs, seed by seed."""
    for seed in range(1, seeds + 1):
        for name in names:
            yield name, "alone", None, seed
            for method in STUDIES[name].methods:
                for epsilon in STUDIES[name].epsilons:
                    yield name, method, epsilon, seed


def summarized(found: list[dict[str, Any]]) -> list[tuple[str, str, float | None, list[str]]]:
    """Rows of the table: study, method, ε, and accuracies in per cent, mean ± deviation."""
    rows, groups = list[tuple[str, str, float | None, list[str]]](), dict[Any, list[Any]]()
    for one in found:
        groups.setdefault((one["study"], one["method"], one["epsilon"]), []).append(one)
    for (study, method, epsilon), runs in groups.items():
        cells = []
        for metric in ("personal_accuracy", "own_class_accuracy", "shared_accuracy"):
            values = [100 * one[metric] for one in runs if metric in one]
            spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
            cells.append(f"{statistics.mean(values):.1f}{spread}" if values else "")
        rows.append((study, method, epsilon, [*cells, str(len(runs))]))
    return rows


def table(found: list[dict[str, Any]]) -> str:
    """The runs in Markdown."""
    heads = "study", "method", "ε", "personal", "among own classes", "shared model", "seeds"
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for study, method, epsilon, cells in summarized(found):
        price = "0" if epsilon is None else f"{epsilon:g}"
        lines.append("| " + " | ".join((study, TITLES[method], price, *cells)) + " |")
    return "\n".join(lines)


def picture(found: list[dict[str, Any]]) -> Picture:
    """Figure 4.3's question where no one model serves: personal accuracy against ε."""
    runs = [one for one in found if one["study"] == "permuted"]

    def draw(axes: list[Axes], ink: str) -> None:
        (axis,) = axes
        for method in ("fedavg", "adaped"):
            epsilons = sorted({one["epsilon"] for one in runs if one["method"] == method})
            columns = [
                [
                    100 * r["personal_accuracy"]
                    for r in runs
                    if r["method"] == method and r["epsilon"] == e
                ]
                for e in epsilons
            ]
            spreads = [statistics.stdev(c) if len(c) > 1 else 0.0 for c in columns]
            means = [statistics.mean(c) for c in columns]
            look = LOOKS[COLOURS[method]].line()
            axis.errorbar(epsilons, means, spreads, capsize=3, label=TITLES[method], **look)
        local = [100 * one["personal_accuracy"] for one in runs if one["method"] == "alone"]
        axis.axhline(
            statistics.mean(local), color=ink, linewidth=0.8, label="local training, ε = 0"
        )
        axis.set_xlabel("ε of a client (add-remove, δ = 1e-5)")
        axis.set_ylabel("personal accuracy (%)")
        axis.legend()

    note = "MNIST, 2,000 clients of 30 images who each name the digits their own way."
    return Picture("personal-4-3", "Personal models where no one model serves", note, draw)


def main() -> None:
    """Runs what the file does not hold yet, prints the tables and draws."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=list(STUDIES), default=list(STUDIES))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--json", type=Path, default=FIGURES / "personal.json")
    parser.add_argument("--features", type=Path, help="an .npz file that keeps the features")
    parser.add_argument("--draw", action="store_true")
    given = parser.parse_args()
    found = json.loads(given.json.read_text("utf-8")) if given.json.exists() else []
    if not given.draw:
        images(given.features)
        done = {(o["study"], o["method"], o["epsilon"], o["seed"]) for o in found}
        for run in wanted(given.only, given.seeds):
            if run not in done:
                found.append(measured(*run))
                given.json.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
                print(found[-1], flush=True)
    for epsilon in PRINTED:
        once, fed_back = true_epsilons(epsilon), true_epsilons(epsilon, 10 / 3 * 10 * 50 / 49)
        print(epsilon, once, "as printed:", fed_back)
    print(table(found))
    if given.draw:
        picture(found).write(FIGURES / "personal-4-3.svg")


if __name__ == "__main__":
    main()
