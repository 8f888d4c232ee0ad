"""Accuracy against ε of one task run in four ways: command line, Python, Ray and Flower.

python benchmarks/one_task.py [--seeds N] [--out FOLDER] [--draw]

The bundled digits are dealt to 143 nodes of ten each. The model is softmax regression; each node
participates in one of four rounds of each of four windows; ε is for zero-out and δ = 1e-3. For the
first three ways the plan's seed determines the run, so they must reach the same accuracy. Flower's
nodes and server draw from the operating system, so its runs are different samples of the same
distribution. Finished runs are stored in FOLDER/one-task.json and not repeated. Flower has its own
environment (benchmarks/peers).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from peers.environment import python as peers_python

import turnout as tn
from turnout.data import digits
from turnout.reporting.drawing import LOOKS, Picture
from turnout.reporting.surroundings import machine, versions

ROOT = Path(__file__).parents[1]
EPSILONS = (0.5, 2.0, 8.0)
CLIENTS, WINDOW, WINDOWS, CLIP, RATE, DELTA = 143, 4, 4, 0.5, 3.0, 1e-3
PLAN = """[data]
name = "digits"
clients = {clients}
[model]
name = "logistic"
[participation]
law = "check-in"
window = {window}
windows = {windows}
[privacy]
relation = "zero-out"
epsilon = {epsilon}
delta = {delta}
clip_norm = {clip}
[optimizer]
learning_rate = {rate}
[run]
seed = {seed}
"""


def plan_of(epsilon: float, seed: int, folder: Path) -> Path:
    """Path of the plan's file."""
    file = folder / f"plan-{epsilon:g}-{seed}.toml"
    file.write_text(
        PLAN.format(
            clients=CLIENTS,
            window=WINDOW,
            windows=WINDOWS,
            clip=CLIP,
            rate=RATE,
            delta=DELTA,
            epsilon=epsilon,
            seed=seed,
        )
    )
    return file


def by_command(epsilon: float, seed: int, folder: Path) -> dict[str, float]:
    """Accuracy and ε of `turnout train`, from its report.json."""
    out = folder / f"command-{epsilon:g}-{seed}"
    program = Path(sys.executable).with_name("turnout")
    command = [str(program), "train", str(plan_of(epsilon, seed, folder)), "--out", str(out)]
    subprocess.run(command, check=True, capture_output=True)
    return _reported(out)


def by_python(epsilon: float, seed: int, folder: Path) -> dict[str, float]:
    """Accuracy and ε of `turnout.train`."""
    out = folder / f"python-{epsilon:g}-{seed}"
    tn.train(plan_of(epsilon, seed, folder), out)
    return _reported(out)


def by_ray(epsilon: float, seed: int, folder: Path) -> dict[str, float]:
    """Accuracy and ε of `turnout.train` on the workers of a Ray cluster."""
    from turnout.integrations.ray import RayEngine

    out = folder / f"ray-{epsilon:g}-{seed}"
    with RayEngine(workers=1) as engine:
        tn.train(plan_of(epsilon, seed, folder), out, engine=engine)
    return _reported(out)


def _reported(out: Path) -> dict[str, float]:
    report = json.loads((out / "report.json").read_text())
    return {"accuracy": report["accuracy"], "epsilon": report["epsilon"]}


def by_flower(epsilon: float, seed: int, folder: Path) -> dict[str, float]:
    """Accuracy and ε of a Flower simulation, at the noise multiplier for ε."""
    participation, state = tn.CheckIn(WINDOW, WINDOWS), folder / f"flower-{epsilon:g}-{seed}"
    sigma = tn.calibrate(participation, epsilon=epsilon, delta=DELTA, relation="zero-out").value
    state.mkdir()
    # The script in the environment of Flower reads the task from a file.
    settings = {
        "data": str(_dealt(seed, folder)),
        "clients": CLIENTS,
        "window": WINDOW,
        "windows": WINDOWS,
        "relation": "zero-out",
        "clip_norm": CLIP,
        "learning_rate": RATE,
        "delta": DELTA,
    }
    file = folder / "settings.json"
    file.write_text(json.dumps(settings))
    surroundings = os.environ | {
        "PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'benchmarks' / 'peers'}",
        "TURNOUT_ONE_TASK": str(file),
        "TURNOUT_SIMULATED_NODES": str(state),
        "FLWR_TELEMETRY_ENABLED": "0",
    }
    # Its last line of output is the result.
    script = ROOT / "benchmarks" / "peers" / "flower_one_task.py"
    command = [str(peers_python("flower")), str(script), repr(sigma)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=surroundings)
    return json.loads(done.stdout.splitlines()[-1])


def _dealt(seed: int, folder: Path) -> Path:
    """File with the digits, a column of ones, and the node of each digit."""
    split, path = digits(), folder / f"digits-{seed}.npz"
    train, test = (
        np.column_stack([x.reshape(len(x), -1), np.ones(len(x))]).astype(np.float32)
        for x in (split.train.inputs, split.test.inputs)
    )
    found: dict[str, Any] = {
        "rows": train,
        "labels": split.train.labels,
        "owner": np.random.default_rng(seed).permutation(len(train)) % CLIENTS,
        "test rows": test,
        "test labels": split.test.labels,
    }
    np.savez(path, **found)
    return path


Way = Callable[[float, int, Path], dict[str, float]]
WAYS: dict[str, tuple[str, Way]] = {
    "command line": ("one way: command line", by_command),
    "Python": ("one way: Python", by_python),
    "Ray": ("one way: Ray", by_ray),
    "Flower": ("one way: Flower", by_flower),
}
"""Colour, marker and legend text of the curve, and the function, for each way."""


def picture(found: dict[str, dict[str, dict[str, float]]]) -> Picture:
    """Picture of accuracy against ε of all four ways: means and ranges over seeds."""

    def fill(axes: list[Any], ink: str) -> None:
        (axis,) = axes
        for way, (look, _) in WAYS.items():
            runs = [_at(found.get(way, {}), epsilon) for epsilon in EPSILONS]
            there = [(e, r) for e, r in zip(EPSILONS, runs, strict=True) if r]
            if not there:
                continue
            epsilons, seen = zip(*there, strict=True)
            low, high = [min(r) for r in seen], [max(r) for r in seen]
            colour = LOOKS[look].colour
            axis.fill_between(epsilons, low, high, color=colour, alpha=0.15, linewidth=0)
            means = [float(np.mean(r)) for r in seen]
            axis.plot(epsilons, means, **LOOKS[look].line(), label=LOOKS[look].words)
        axis.set(xscale="log", xlabel="ε", ylabel="accuracy")
        axis.set_xticks(EPSILONS, [f"{epsilon:g}" for epsilon in EPSILONS])
        axis.set_xticks([], minor=True)

    text = (
        "Accuracy against ε of softmax regression on the digits of 143 nodes, by the command line, "
        "Python, Ray and Flower: means over seeds, with bands from the least to the largest."
    )
    return Picture("one-task", "One task by four ways", text, fill)


def _at(runs: dict[str, dict[str, float]], epsilon: float) -> list[float]:
    return [run["accuracy"] for name, run in runs.items() if name.startswith(f"{epsilon:g} ")]


def main() -> None:
    """Run what is not stored yet, and draw the picture."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--only", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "figures")
    parser.add_argument("--draw", action="store_true", help="draw stored results, without running")
    asked = parser.parse_args()
    kept = asked.out / "one-task.json"
    found = json.loads(kept.read_text()) if kept.exists() else {}
    todo = [(s, e, w) for s in range(asked.seeds) for e in EPSILONS for w in asked.only]
    for seed, epsilon, way in [] if asked.draw else todo:
        name = f"{epsilon:g} seed {seed}"
        if name in found.get(way, {}):
            continue
        with tempfile.TemporaryDirectory() as folder:
            run = WAYS[way][1](epsilon, seed, Path(folder))
        about = {"versions": versions(), "machine": machine()}
        found.setdefault(way, {})[name] = {**run, **about}
        kept.write_text(json.dumps(found, indent=1) + "\n")
        print(way, name, run, flush=True)
    picture(found).write(asked.out / "one-task.svg")


if __name__ == "__main__":
    main()
