"""Tables and figures from the numbers of benchmarks/bandits.py."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from turnout.core.files import write
from turnout.reporting.drawing import DASHED, LOOKS, SOLID, Picture

MODELS = ("central", "shuffled", "local")
ORDERS = {
    "central": "√T + 1/ε (Theorem 6.3.1)",
    "shuffled": "√T + 1/ε (Theorem 6.5.1)",
    "local": "√T/ε₀ (Theorem 6.4.1)",
}
INTRODUCTION = """# Table 6.1 of the thesis with measured slopes, and an ablation

`python benchmarks/bandits.py` writes this page and its figures, in an hour on one core (one study
needs MABWiser). The table is Table 6.1 of Girgis 2023, the thesis ([bandits.md](bandits.md)).
Actions and θ are uniform on the sphere, rewards are ±1, and δ = 1e-6. A cell has the mean regret
and, after the semicolon, the 95 % quantile over the runs. *Printed* is the algorithm as printed in
the thesis. The true ε of the printed algorithm is twice the stated ε in the central model, and
unknown in the shuffled model ([errata.md](errata.md)). "2/ε" means that the noise is increased so
that the stated ε holds.

The regret of the printed algorithms depends on the base of the logarithm in q = (2T)^{1/log T} and
on the constant B of the core set; the thesis states neither. The next section uses the natural
logarithm and B = 1. The following table has the regret for other choices, over 60 of the seeds of
the next section:

| log, B | without privacy | central | central 2/ε |
|---|---|---|---|
| natural, 1 | 7,210 | 8,373 | 9,462 |
| natural, 16 | 7,210 | 9,583 | 11,033 |
| to base 2, 1 | 9,318 | 10,563 | 11,376 |
| to base 2, 16 | 9,318 | 11,488 | 13,706 |
| to base 10, 1 | 5,789 | 6,457 | 7,324 |

Lemma 6.3.2 also allows a core set of value 2d; the core set of turnout has value 1.01d.
"""
PEERS = """LinUCB on noisy statistics uses
tree-based Gaussian noise in batches of 100 in the central model (Shariff and Sheffet 2018),
Gaussian noise of each client in batches of 1,000 in the local model (Zheng et al. 2020), and
randomized bits in batches of 5,000 in the shuffled model (after Chowdhury and Zhou 2022). Each of
these algorithms is (1, 1e-6)-DP by certified accounting, where replace-one changes a client's
action, context and reward together."""


def draw(found: dict[str, Any], folder: Path) -> None:
    """Write all figures into a folder, and all tables into table-6-1.md next to the folder."""
    parts = [INTRODUCTION]
    if "main" in found:
        found = found | {"main": found["main"] | found.get("others", {})}
    parts += [make(found[name]) for name, make in TABLES.items() if name in found]
    write(folder.parent / "table-6-1.md", "\n".join(parts))
    for name, make in FIGURES.items():
        if name in found:
            picture = make(found[name])
            picture.write(folder / f"{picture.name}.svg")


def _cell(entry: dict[str, float] | None) -> str:
    return "–" if entry is None else f"{entry['mean']:,.0f}; {entry['high']:,.0f}"


def _table(title: str, head: list[str], rows: list[list[str]]) -> str:
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    return f"## {title}\n\n" + "\n".join(lines) + "\n"


def main_table(found: dict[str, Any]) -> str:
    """Table of regrets by policy and trust model."""
    models = ("none", *MODELS)
    rows = [
        [words, *(_cell(found.get(f"{name} {model}")) for model in models)]
        for words, name in (
            ("elimination, proved", "elimination"),
            ("Thompson on private sums", "thompson"),
            ("as printed", "printed"),
            ("LinUCB", "LinUCB"),
            ("phased elimination", "phased"),
            ("LinUCB on noisy statistics (actions are protected too)", "private LinUCB"),
        )
    ]
    noisy = _cell(found.get("printed central 2/ε"))
    rows[2][2] += f" ({noisy} with 2/ε)"
    uniform = found["elimination none"]["uniform"]
    title = "T = 1e5, K = 10, d = 2, ε = 1, 100 seeds"
    play = f"Uniformly drawn actions have a regret of {uniform:,.0f}."
    return _table(title, ["", *models], rows) + f"\n{play} {PEERS}\n"


def ablation_of(title: str) -> Any:
    """Table with one regret per row."""

    def make(found: dict[str, Any]) -> str:
        return _table(title, ["", "regret"], [[n, _cell(entry)] for n, entry in found.items()])

    return make


def coverage_close(found: dict[str, int]) -> str:
    """Table of runs that dropped the better of two actions whose gap is 0.003."""
    rows = [[name, str(lost)] for name, lost in found.items()]
    title = (
        "Runs of 1,000 that drop the best of two actions 0.003 apart: at most 100 at failure 0.1"
    )
    return _table(title, ["", "runs"], rows)


def coverage(found: dict[str, int]) -> str:
    """Table of runs that dropped the best action."""
    counts: dict[str, list[str]] = {}
    for name, lost in found.items():
        counts.setdefault(name.split(", ", 1)[1], []).append(str(lost))
    rows = [[words, *cells] for words, cells in counts.items()]
    title = "Runs of 1,000 that drop the best of two actions at failure 0.1 (ε = 0.1, T = 1e5)"
    return _table(title, ["widths", *MODELS], rows) + (
        "\nAt most 100 may, up to chance. Means are ±5e-5, so that nothing tells the two apart: "
        "what is wrong drops the best action more often.\n"
    )


def grouped(title: str, first: str) -> Any:
    """Table with a row for each setting, and a column for each policy and trust model."""

    def make(found: dict[str, Any]) -> str:
        names = list(dict.fromkeys(name for entry in found.values() for name in entry))
        rows = [[key, *(_cell(entry.get(name)) for name in names)] for key, entry in found.items()]
        return _table(title, [first, *names], rows)

    return make


def slopes(found: dict[str, Any]) -> str:
    """Table of regret against T, with the exponent of a power law over the last two decades."""
    horizons = list(found)
    head = ["", *(f"T = {float(h):.0e}".replace("e+0", "e") for h in horizons), "slope", "order"]
    rows = []
    for model in MODELS:
        for policy in ("elimination", "thompson", "printed"):
            means = [found[h][f"{policy} {model}"]["mean"] for h in horizons]
            last = horizons[-1], horizons[-3]
            ratio = means[-1] / means[-3]
            slope = math.log(ratio) / math.log(float(last[0]) / float(last[1]))
            order = ORDERS[model] if policy != "thompson" else "measured only"
            rows.append(
                [f"{policy}, {model}", *(f"{m:,.0f}" for m in means), f"{slope:.2f}", order]
            )
    return _table("Regret against T at ε = 1: slope of log regret from 1e5 to 1e7", head, rows)


def against_epsilon(found: dict[str, Any]) -> Picture:
    """Figure 6.2a of the thesis, with the printed algorithms and ours."""
    free = found["none"]
    epsilons = [key for key in found if key != "none"]

    def fill(axes: list[Any], ink: str) -> None:
        for axis, policy in zip(axes, ("printed", "elimination"), strict=True):
            for model in MODELS:
                kind = DASHED if policy == "printed" else SOLID
                look = LOOKS[f"bandit {model}"]
                means = [found[e][f"{policy} {model}"]["mean"] for e in epsilons]
                axis.plot([float(e) for e in epsilons], means, **look.line(kind))
                axis.lines[-1].set_label(look.words)
            level = free[f"{policy} none"]["mean"]
            axis.axhline(level, color=ink, linewidth=1, linestyle=":", label="without privacy")
            axis.set(xscale="log", yscale="log", xlabel="ε", ylabel="regret")
            axis.set_title("as printed" if policy == "printed" else "turnout, proved elimination")

    text = (
        "Regret against ε at T = 1e6, K = 10, d = 2: the thesis' algorithms as printed, and ours."
    )
    return Picture("bandits-6-2a", "Regret against ε, T = 10⁶", text, fill, panels=2, columns=2)


def with_core_sets(found: dict[str, Any]) -> Picture:
    """Figure 6.2b of the thesis."""
    lines = {
        "ours, core set": "core set",
        "ours, all actions": "all actions",
        "printed, core set": "printed core set",
        "printed, all actions": "printed all actions",
    }

    def fill(axes: list[Any], ink: str) -> None:
        (axis,) = axes
        for name, look in lines.items():
            kind = DASHED if name.startswith("printed") else SOLID
            means = [entry[name]["mean"] for entry in found.values()]
            axis.plot([float(e) for e in found], means, **LOOKS[look].line(kind))
            axis.lines[-1].set_label(LOOKS[look].words)
        axis.set(xscale="log", yscale="log", xlabel="ε", ylabel="regret")

    text = "Regret against ε at T = 1e7, K = 1000, d = 2, central, with and without core sets."
    return Picture("bandits-6-2b", "What a core set buys, K = 1000", text, fill)


def against_horizon(found: dict[str, Any]) -> Picture:
    """Figure of regret against T for both policies."""

    def fill(axes: list[Any], ink: str) -> None:
        for axis, policy in zip(axes, ("elimination", "thompson"), strict=True):
            for model in MODELS:
                look = LOOKS[f"bandit {model}"]
                means = [entry[f"{policy} {model}"]["mean"] for entry in found.values()]
                axis.plot([float(t) for t in found], means, **look.line(), label=look.words)
            axis.set(xscale="log", yscale="log", xlabel="pulls T", ylabel="regret")
            proved = policy == "elimination"
            axis.set_title("proved elimination" if proved else "Thompson, measured")

    text = "Regret against the horizon at ε = 1, K = 10, d = 2, of both policies."
    return Picture("bandits-horizon", "Regret against T, ε = 1", text, fill, panels=2, columns=2)


def against_epsilon_in_contexts(found: dict[str, Any]) -> Picture:
    """Figure of regret against ε for both policies and each task; bands of 90 % of the runs."""

    # One panel for each task and policy, with one band for each trust model.
    def fill(axes: list[Any], ink: str) -> None:
        pairs = [(t, p) for t in ("synthetic", "MNIST") for p in ("elimination", "thompson")]
        for axis, (task, policy) in zip(axes, pairs, strict=True):
            entries = {k.split(" = ")[1]: v for k, v in found.items() if k.startswith(f"{task}, ε")}
            epsilons = [float(e) for e in entries]
            for model in MODELS:
                look, cells = LOOKS[f"bandit {model}"], _cells(entries, f"{policy} {model}")
                low, high = cells["low"], cells["high"]
                axis.fill_between(epsilons, low, high, color=look.colour, alpha=0.2, linewidth=0)
                axis.plot(epsilons, cells["mean"], **look.line(), label=look.words)
            free = found[f"{task}, none"][f"{policy} none"]
            axis.axhline(free["mean"], color=ink, linewidth=1, linestyle=":")
            axis.lines[-1].set_label("without privacy")
            axis.axhline(free["uniform"], color=ink, linewidth=1, linestyle="--")
            axis.lines[-1].set_label("uniform play")
            axis.set(xscale="log", yscale="log", xlabel="ε", ylabel="regret")
            axis.set_title(f"{task}, {'elimination' if policy == 'elimination' else 'Thompson'}")

    text = (
        "Contextual regret against ε on a synthetic task and on MNIST, of elimination and Thompson "
        "sampling under three trust models: means of 5 and 10 runs, with bands between their 5 % "
        "and 95 % points."
    )
    return Picture("bandit-contexts", "Contextual regret against ε", text, fill, 4, 2)


def _cells(entries: dict[str, Any], name: str) -> dict[str, list[float]]:
    return {k: [entry[name][k] for entry in entries.values()] for k in ("mean", "low", "high")}


TABLES = {
    "main": main_table,
    "ablation": ablation_of("Elimination without one of its ideas (central, as above)"),
    "sizes": grouped("Other sizes, ε = 1 (sizes differ in seeds: 100, 20, 20)", "size"),
    "gaps": grouped("Gap between the two best actions, T = 1e5, K = 10, 20 seeds", "gap"),
    "epsilons": grouped("Figure 6.2a: T = 1e6, K = 10, 20 seeds", "ε"),
    "slopes": slopes,
    "coverage_close": coverage_close,
    "coverage": coverage,
    "contexts": grouped(
        "Contexts of a known distribution: synthetic (T = 1e5, 5 seeds), "
        "MNIST (T = 60,000, 10 seeds)",
        "task",
    ),
    "mabwiser": ablation_of("Comparison with MABWiser, no privacy, T = 1e4, K = 10, 5 seeds"),
    "core_sets": grouped("Figure 6.2b: T = 1e7, K = 1000, central", "ε"),
}
FIGURES = {
    "epsilons": against_epsilon,
    "core_sets": with_core_sets,
    "slopes": against_horizon,
    "contexts": against_epsilon_in_contexts,
}
