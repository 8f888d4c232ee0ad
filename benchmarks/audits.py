"""Audits: ratio of audited lower to proved upper bounds on ε, and trials that detect faults.

The benchmark has three parts. Each is printed as a table and stored in FILE, from which an
interrupted run continues:

* consistent: 100 correct configurations, none of which the audit may report as violated;
* ratios: releases at ε = 3, δ = 1e-4, with 10⁶ trials per world and 99.9 % confidence;
* faults: the fewest trials in a list at which each of five seeds detects the fault, and
  CPU-seconds.

    python benchmarks/audits.py --json FILE [--only PART] [--picture docs/figures/audit.svg]
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import turnout as tn
from turnout.api.audit import also_stated, games_of, stated_by, with_simulation
from turnout.auditing import play
from turnout.protocol.mechanisms import Clipping, mechanism_for
from turnout.reporting.surroundings import machine, versions
from turnout.testing.faults import FAULTS

DELTA, EPSILON, CONFIDENCE = 1e-4, 3.0, 0.999
SMALL, LARGE = 20_000, 1_000_000
FEWEST = (500, 1000, 2000, 3000, 5000, 10_000, 20_000, 50_000)
SEEDS = range(5)
PARTS = ("consistent", "ratios", "faults")


def configurations() -> list[tuple[str, tn.Scheme]]:
    """A hundred schemes whose ε is computed within seconds."""
    participations = {
        "every step": [tn.EveryStep(n) for n in (1, 3)],
        "check-in": [tn.CheckIn(5), tn.CheckIn(10, 10), tn.CheckIn(50, 2, probability=0.5)],
        "Poisson": [tn.PoissonSampling(0.02, 50), tn.PoissonSampling(0.2, 5)],
        "self-sampling": [tn.SelfSampling(0.1, 10)],
        "sliding": [tn.SlidingWindow(10, 30)],
        "kept slot": [tn.FixedAssignment(10, 5)],
    }
    found = [
        (f"{name} {i}, σ = {sigma}, {relation}", participation, sigma, relation, "aggregated")
        for name, all_ in participations.items()
        for i, participation in enumerate(all_)
        for sigma in (0.6, 1.0, 2.0, 4.0)
        for relation in ("add-remove", "zero-out")
    ]
    # Other release rules, and replace-one.
    found += [
        (f"{release} {relation}, σ = {sigma}", tn.CheckIn(5, 2), sigma, relation, release)
        for release, relation in (
            ("one-client", "add-remove"), ("one-client", "zero-out"), ("averaged", "zero-out"),
        )
        for sigma in (0.8, 1.5, 3.0, 6.0)
    ]  # fmt: skip
    found += [
        (f"every step {n}, σ = {sigma}, replace-one", tn.EveryStep(n), sigma, "replace-one",
         "aggregated")
        for n in (1, 4)
        for sigma in (1.0, 2.0, 4.0, 8.0)
    ]  # fmt: skip
    return [
        (name, tn.Scheme(tn.GaussianNoise(sigma), participation, relation, release))
        for name, participation, sigma, relation, release in found
    ]


RELEASES: dict[str, Any] = {
    "one step": tn.EveryStep(1),
    "10 steps": tn.EveryStep(10),
    "check-in, 1 window of 10": tn.CheckIn(10),
    "check-in, 10 windows of 10": tn.CheckIn(10, 10),
    "check-in, 1 window of 100": tn.CheckIn(100),
    "Poisson, 4 steps at 0.1": tn.PoissonSampling(0.1, 4),
    "Poisson, 40 steps at 0.1": tn.PoissonSampling(0.1, 40),
    "slot of 10 kept 5 times": tn.FixedAssignment(10, 5),
    "sliding window of 10": tn.SlidingWindow(10, 30),
    "2 steps of 10": tn.KSubset(10, 2),
    "5 steps of 10": tn.KSubset(10, 5),
}


def played(scheme: tn.Scheme, trials: int, seed: int, fault: str | None = None) -> dict[str, Any]:
    """Row of the table for one audit."""

    def mechanism(dimension: int):
        return mechanism_for(scheme, Clipping(dimension, 1.0), expected_check_ins=10.0)

    games = games_of(scheme, mechanism, 10)
    if fault is None:  # faults change the mechanism or the sampler
        games = with_simulation(games, scheme)
    if fault is not None:
        games = [FAULTS[fault](game) for game in games]  # pyright: ignore[reportArgumentType]
    stated, also = stated_by(tn.price(scheme, delta=DELTA).guarantee), also_stated(scheme, DELTA)
    started = time.process_time()
    found = play(games, "", stated, trials=trials, confidence=CONFIDENCE, seed=seed, also=also)
    return {
        "consistent": found.consistent,
        "directions": {
            name: {"found": counted.epsilon, "upper": stated.directions[name].upper}
            for name, counted in found.found.items()
        },
        "lower": found.epsilon_lower,
        "upper": stated.epsilon.upper,
        "cpu_seconds": time.process_time() - started,
    }


class Kept:
    """Rows by name, stored in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.rows: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}

    def get(self, name: str, compute: Any) -> Any:
        if name not in self.rows:
            self.rows[name] = {**compute(), "versions": versions(), "machine": machine()}
            self._path.write_text(json.dumps(self.rows, indent=1, ensure_ascii=False))
        return self.rows[name]


def consistent(kept: Kept) -> None:
    rows = [
        kept.get(f"consistent: {name}", lambda s=scheme, i=i: played(s, SMALL, i))
        for i, (name, scheme) in enumerate(configurations())
    ]
    wrong = sum(not row["consistent"] for row in rows)
    seconds = sum(row["cpu_seconds"] for row in rows)
    print(f"{len(rows)} configurations, {wrong} violated, {seconds:.0f} CPU-seconds")


def ratios(kept: Kept) -> None:
    print("| release | ε found | upper bound | ratio | CPU-seconds |\n|---|---|---|---|---|")
    for name, participation in RELEASES.items():

        def compute(participation: Any = participation) -> dict[str, Any]:
            found = tn.calibrate(participation, epsilon=EPSILON, delta=DELTA, relation="add-remove")
            return played(found.scheme, LARGE, 0)

        row = kept.get(f"ratio: {name}", compute)
        print(
            f"| {name} | {row['lower']:.3f} | {row['upper']:.3f} | "
            f"{row['lower'] / row['upper']:.2f} | {row['cpu_seconds']:.0f} |",
            flush=True,
        )


def faults(kept: Kept) -> None:
    scheme = tn.calibrate(
        tn.CheckIn(10, 10), epsilon=EPSILON, delta=DELTA, relation="add-remove"
    ).scheme
    print("| mistake | trials | CPU-seconds |\n|---|---|---|")
    for fault in FAULTS:
        for trials in FEWEST:
            rows = [
                kept.get(
                    f"fault: {fault}, {trials}, {seed}",
                    lambda f=fault, n=trials, s=seed: played(scheme, n, s, f),
                )
                for seed in SEEDS
            ]
            if not any(row["consistent"] for row in rows):
                break
        else:
            raise SystemExit(f"The audit detects the fault {fault} at no tried number of trials.")
        mean = sum(row["cpu_seconds"] for row in rows) / len(rows)
        print(f"| {fault} | {trials:,} | {mean:.2f} |", flush=True)


def drawn(kept: Kept, file: Path) -> None:
    """Picture of audited ε over the upper bound: releases (10⁶ trials), configurations (20,000)."""
    from turnout.reporting.drawing import DOTTED, LOOKS, Picture

    large = [(name, kept.rows[f"ratio: {name}"]) for name in RELEASES]
    small = [kept.rows[f"consistent: {name}"] for name, _ in configurations()]

    def draw(axes: list[Any], ink: str) -> None:
        bars, cloud = axes
        places = range(len(large))
        bars.barh(
            list(places), [row["lower"] / row["upper"] for _, row in large],
            color=LOOKS["audit"].colour, height=0.6,
        )  # fmt: skip
        bars.set_yticks(list(places), [name for name, _ in large])
        bars.invert_yaxis()
        bars.axvline(0.7, color=ink, linestyle=DOTTED)
        bars.set_xlim(0, 1)
        bars.set_xlabel("ε lower bound found / ε upper bound")
        bars.set_title("ε = 3, δ = 1e-4, 1,000,000 trials, 99.9 % confidence")
        uppers = [row["upper"] for row in small]
        cloud.plot(
            uppers, [max(row["lower"], 1e-3) for row in small], linestyle="none",
            marker=LOOKS["audit"].marker, color=LOOKS["audit"].colour, markersize=4,
            markerfacecolor="none", label="a configuration, 20,000 trials",
        )  # fmt: skip
        ends = [min(uppers), max(uppers)]
        cloud.plot(ends, ends, color=ink, linestyle=DOTTED, label="the ε upper bound")
        cloud.set_xscale("log")
        cloud.set_yscale("log")
        cloud.set_xlabel("ε upper bound")
        cloud.set_ylabel("ε lower bound found")
        cloud.set_title(f"{len(small)} configurations, none above what is proved")

    text = "Lower bounds on ε that audits found, over the proved upper bounds."
    picture = Picture("audits", "How much of ε an audit finds", text, draw, panels=2)
    picture.write(file)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, required=True, help="JSON file for the rows")
    parser.add_argument("--only", choices=PARTS, help="run only this part")
    parser.add_argument("--picture", type=Path, help="file for the picture, without the faults")
    arguments = parser.parse_args()
    kept = Kept(arguments.json)
    for part in PARTS:
        if arguments.only in (None, part):
            {"consistent": consistent, "ratios": ratios, "faults": faults}[part](kept)
    if arguments.picture is not None:
        drawn(kept, arguments.picture)


if __name__ == "__main__":
    main()
