"""Regret of private linear bandits: all studies, tables and figures of docs/bandits.md.

python benchmarks/bandits.py [--only STUDY ...] [--out FOLDER] [--draw]

Each finished study is stored in FOLDER/bandits.json, and the finished parts of an interrupted study
in FOLDER/bandits-STUDY.part.json, from which it continues. --draw makes tables and figures of the
stored numbers. Environments are as in §6.6 of the thesis: actions and θ on the sphere, rewards ±1.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from bandit_coverage import coverage

from turnout.bandits import (
    BareSums,
    BatchedThompson,
    CentralSums,
    Elimination,
    LinUCB,
    LocalBits,
    PrivateLinUCB,
    ShuffledBits,
    phased_elimination,
    simulate_bandit,
    sphere_environment,
    two_best_environment,
)
from turnout.bandits.printed import PrintedElimination, PrintedSums
from turnout.randomness import SimulationStreams
from turnout.reporting.surroundings import surroundings

FOLDER = Path(__file__).parents[1] / "docs" / "figures"
DELTA = 1e-6
MODELS = ("none", "central", "shuffled", "local")
EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
GAPS = (0.003, 0.01, 0.03, 0.1)
HORIZONS = (10**4, 10**5, 10**6, 10**7)


def mechanism(model: str, epsilon: float = 1.0) -> Any:
    """Privacy mechanism for a trust model."""
    if model == "shuffled":
        return ShuffledBits(epsilon, DELTA)
    return (
        BareSums()
        if model == "none"
        else {"central": CentralSums, "local": LocalBits}[model](epsilon)
    )


def regrets(
    policy: Any, sums: Any, seeds: int, horizon: int, make: Callable[[SimulationStreams], Any]
) -> dict[str, float]:
    """Mean, 5 % and 95 % quantiles of the regret over seeds; mean regret of uniform play."""
    final, uniform, began = [], [], time.perf_counter()
    for seed in range(seeds):
        streams = SimulationStreams(seed)
        environment = make(streams)
        run = simulate_bandit(policy, environment, sums, horizon, streams)
        final.append(run.regret[-1])
        uniform.append(horizon * environment.gaps.mean())
    return {
        "mean": float(np.mean(final)),
        "low": float(np.quantile(final, 0.05)),
        "high": float(np.quantile(final, 0.95)),
        "uniform": float(np.mean(uniform)),
        "seconds": time.perf_counter() - began,
    }


def sphere(actions: int = 10, dimension: int = 2) -> Callable[[SimulationStreams], Any]:
    """A random environment for each seed, with actions and θ on the sphere."""
    return lambda streams: sphere_environment(
        actions, dimension, streams.generator("bandit", "environment")
    )


def both(models: Iterable[str], seeds: int, horizon: int, make: Any, epsilon: float = 1.0) -> Any:
    """Regrets of our two policies under several trust models."""
    found = {}
    for model in models:
        for name, policy in (("elimination", Elimination()), ("thompson", BatchedThompson())):
            sums = mechanism(model, epsilon)
            found[f"{name} {model}"] = regrets(policy, sums, seeds, horizon, make)
    return found


def printed(
    models: Iterable[str], seeds: int, horizon: int, make: Any, epsilon: float = 1.0
) -> Any:
    """Regrets of the thesis' printed algorithms; the central one with the noise for its ε."""
    found = {}
    for model in models:
        for sensitivity in (1, 2) if model == "central" else (1,):
            sums = PrintedSums(model, epsilon, DELTA, sensitivity)  # type: ignore[arg-type]
            name = f"printed {model}" + (" 2/ε" if sensitivity == 2 else "")
            found[name] = regrets(PrintedElimination(sums), sums, seeds, horizon, make)
    return found


def others() -> Any:
    """Regret of LinUCB with the noise of other papers, T = 1e5, 100 seeds."""
    found = {}
    for model, batch in (("central", 100), ("local", 1000), ("shuffled", 5000)):
        policy = PrivateLinUCB(model, 1.0, DELTA, batch)  # type: ignore[arg-type]
        name = f"private LinUCB {model}"
        found[name] = regrets(policy, policy.mechanism(2), 100, 10**5, sphere())
    return found


def contexts() -> Any:
    """Regret against ε for known distributions of contexts: a synthetic task and MNIST."""
    from bandit_contexts import mnist, synthetic

    found = {}
    for task, make, horizon, seeds in (
        ("synthetic", synthetic, 10**5, 5),
        ("MNIST", mnist, 60_000, 10),
    ):
        for epsilon in EPSILONS:
            part = partial(both, MODELS[1:], seeds, horizon, make, epsilon)
            found[f"{task}, ε = {epsilon:g}"] = part
        found[f"{task}, none"] = partial(both, ["none"], seeds, horizon, make)
    return found


def learned_without_privacy() -> Any:
    """Regret of MABWiser's LinUCB and Thompson sampling on the main table, T = 1e4."""
    from bandit_peers import POLICIES, regret

    found = {}
    for name in POLICIES:
        ends = [regret(name, seed, 10**4) for seed in range(5)]
        found[name] = {"mean": float(np.mean(ends)), "high": float(np.quantile(ends, 0.95))}
    for name, policy in (("our LinUCB", LinUCB()), ("our Thompson", BatchedThompson())):
        found[name] = regrets(policy, BareSums(), 5, 10**4, sphere())
    return found


def main_table() -> Any:
    """Regrets for T = 1e5, K = 10, d = 2, ε = 1, 100 seeds."""
    make = sphere()
    found = both(MODELS, 100, 10**5, make) | printed(MODELS, 100, 10**5, make)
    found["LinUCB none"] = regrets(LinUCB(), BareSums(), 100, 10**5, make)
    found["phased none"] = regrets(phased_elimination(), BareSums(), 100, 10**5, make)
    return found


def ablation() -> Any:
    """Regret without each idea of elimination, in the central model with growth 1.5."""
    variants = {
        "all ideas": {},
        "each action's own width, no contrasts": {"contrasts": False},
        "fresh sums each batch": {"reuse": False},
        "variance taken as 1": {"variances": False},
        "all actions, no core set": {"core_sets": False},
        "growth 2": {"growth": 2.0},
        "failure 0.01": {"failure": 0.01},
        "explore to the end": {"commit": 0.0},
    }
    return {
        name: regrets(Elimination(**options), CentralSums(1.0), 100, 10**5, sphere())
        for name, options in variants.items()
    }


def sizes() -> Any:
    """Regrets for longer horizons, more actions and more dimensions."""
    found = {"T=1e6 K=10 d=2": both(MODELS[1:], 100, 10**6, sphere())}
    wide = both(["central"], 20, 10**7, sphere(1000)) | printed(
        ["central"], 20, 10**7, sphere(1000)
    )
    found["T=1e7 K=1000 d=2"] = wide
    deep = both(["central"], 20, 10**5, sphere(100, 8))
    found["T=1e5 K=100 d=8"] = deep | printed(["central"], 20, 10**5, sphere(100, 8))
    return found


def gaps() -> Any:
    """Regrets for given gaps between the two best actions, T = 1e5."""
    return {
        str(gap): partial(both, MODELS[1:], 20, 10**5, lambda _, gap=gap: two_best_environment(gap))
        for gap in GAPS
    }


def epsilons() -> Any:
    """Regrets of Figure 6.2a: T = 1e6, K = 10."""
    found = {str(e): partial(_with_printed, MODELS[1:], 10**6, e) for e in EPSILONS}
    return found | {"none": partial(_with_printed, ["none"], 10**6)}


def _with_printed(models: Iterable[str], horizon: int, epsilon: float = 1.0) -> Any:
    ours = both(models, 20, horizon, sphere(), epsilon)
    return ours | printed(models, 20, horizon, sphere(), epsilon)


def core_sets() -> Any:
    """Regrets of Figure 6.2b: T = 1e7, K = 1000, with and without a core set."""
    return {str(epsilon): partial(_core_sets, epsilon) for epsilon in (0.1, 1.0, 10.0)}


def _core_sets(epsilon: float) -> Any:
    make, every = sphere(1000), Elimination(core_sets=False)
    return {
        **_printed_without(epsilon),
        "ours, core set": regrets(Elimination(), CentralSums(epsilon), 10, 10**7, make),
        "ours, all actions": regrets(every, CentralSums(epsilon), 4, 10**7, make),
    }


def _printed_without(epsilon: float) -> Any:
    sums = PrintedSums("central", epsilon)
    return {
        f"printed, {words}": regrets(PrintedElimination(sums, core), sums, 10, 10**7, sphere(1000))
        for words, core in (("core set", True), ("all actions", False))
    }


def slopes() -> Any:
    """Regrets of Table 6.1: regret against T at ε = 1."""
    return {str(horizon): partial(_with_printed, MODELS[1:], horizon) for horizon in HORIZONS}


STUDIES = {
    "main": main_table,
    "ablation": ablation,
    "gaps": gaps,
    "sizes": sizes,
    "epsilons": epsilons,
    "slopes": slopes,
    "coverage": coverage,
    "others": others,
    "contexts": contexts,
    "mabwiser": learned_without_privacy,
    "core_sets": core_sets,
}


def finished(name: str, folder: Path) -> Any:
    """Numbers of a study; its unfinished parts are run and stored."""
    kept = folder / f"bandits-{name}.part.json"
    found = json.loads(kept.read_text()) if kept.exists() else {}
    for key, part in STUDIES[name]().items():
        if key not in found:
            found[key] = part() if callable(part) else part
            kept.write_text(json.dumps(found))
            print(f"{name}: {key}", flush=True)
    kept.unlink(missing_ok=True)
    return found


def main() -> None:
    """Run the requested studies and draw their tables and figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=STUDIES, default=list(STUDIES))
    parser.add_argument("--out", type=Path, default=FOLDER)
    parser.add_argument("--draw", action="store_true", help="draw stored results, without running")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    place = asked.out / "bandits.json"
    found = json.loads(place.read_text()) if place.exists() else {}
    for name in [] if asked.draw else asked.only:
        began = time.perf_counter()
        found[name] = finished(name, asked.out)
        found.setdefault("about", {})[name] = surroundings()
        place.write_text(json.dumps(found, indent=1) + "\n")
        print(f"{name}: {time.perf_counter() - began:.0f} s", flush=True)
    from bandit_figures import draw

    draw(found, asked.out)


if __name__ == "__main__":
    main()
