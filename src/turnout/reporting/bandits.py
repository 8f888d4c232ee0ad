"""Reports of bandit runs: record, table, picture and page.

`BanditSummary` has the contents of a report; `write_bandit_report` writes its files.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from turnout.accounting import Guarantee
from turnout.core.arrays import FloatArray
from turnout.core.files import write
from turnout.plans.bandit import BanditPlan
from turnout.reporting.surroundings import machine, versions
from turnout.reporting.training_report import PAGE, PICTURES, REPORT, as_json, table_csv
from turnout.reporting.words import guarantee_record, guarantee_rows, rounded_up

if TYPE_CHECKING:
    from rich.table import Table

    from turnout.reporting.drawing import Picture

_HIGH = 0.95
_PUBLIC = (
    "ε covers what the runs release: the noisy sums of each batch, hence all actions that are "
    "pulled. Actions, the horizon and who is asked when are public. Regret is computed from the "
    "hidden parameter, or from a log's own rewards, which a simulation knows: no ε covers it."
)
_SIMULATED = (
    "These runs were simulations with a seed: their ε is what a deployment of the same plan, with "
    "the operating system's randomness, guarantees to a client who has one reward in all."
)


@dataclass(frozen=True, eq=False)
class BanditSummary:
    """Contents of a report of bandit runs.

    Attributes:
        plan: plan of the runs.
        guarantee: guarantee of the run with the largest ε; None without privacy.
        pulls: numbers of pulls at which regret is recorded, shape (points,).
        regret: regret of each run at these numbers of pulls, shape (runs, points).
        uniform: regret of each run if all actions were pulled equally often, shape (runs,).
        batches: number of batches of each run, shape (runs,).
        seconds: running time of all runs together.
        contexts: pair of the number of public contexts and the number of candidate parameters;
            None for a plan without contexts.
    """

    plan: BanditPlan
    guarantee: Guarantee | None
    pulls: FloatArray
    regret: FloatArray
    uniform: FloatArray
    batches: FloatArray
    seconds: float
    contexts: tuple[int, int] | None = None

    @property
    def title(self) -> str:
        """Policy and trust model in a few words."""
        return f"{self.plan.policy.name}, {self.plan.privacy.trust}"

    def record(self) -> dict[str, Any]:
        """JSON-ready contents of report.json; ε is None without privacy."""
        # Without privacy the fields of the guarantee are null.
        final = self.regret[:, -1]
        priced: dict[str, Any] = {"epsilon": None, "epsilon_lower": None, "delta": None}
        if self.guarantee is not None:
            priced = guarantee_record(self.guarantee)
        # Regret is computed without noise, so the record states that ε does not cover it.
        return {
            **priced,
            "regret_covered_by_epsilon": False,
            "regret": float(final.mean()),
            "regret_95": float(np.quantile(final, _HIGH)),
            "regret_of_uniform_play": float(self.uniform.mean()),
            "regret_of_each_run": final.tolist(),
            "runs": len(final),
            "batches": float(self.batches.mean()),
            "seconds": self.seconds,
            **({} if self.contexts is None else {"contexts": self.contexts[0]}),
            "versions": versions(),
            "machine": machine(),
            "plan": self.plan.model_dump(mode="json", exclude_none=True),
        }

    def rows(self) -> dict[str, str]:
        """Rows of the report: names, each with a text on the regret or on a setting."""
        record, environment = self.record(), self.plan.environment
        contexts = {}
        if self.contexts is not None:
            known, candidates = self.contexts
            text = f"{known:,} public contexts, {candidates:,} parameters to choose from"
            contexts = {"contexts": f"{text}; ε covers a client's own context and reward together"}
        return {
            "regret": f"{record['regret']:,.0f}, 95 % of runs below {record['regret_95']:,.0f}",
            "uniform play": f"{record['regret_of_uniform_play']:,.0f}",
            "runs": f"{record['runs']} of {environment.horizon:,} pulls, "
            f"{record['batches']:.1f} batches each",
            "policy": self.plan.policy.registered.summary,
            **contexts,
            "seconds": f"{self.seconds:.1f} s",
        }


def bandit_table(summary: BanditSummary) -> Table:
    """Regret and guarantee as a table."""
    from rich.table import Table

    from turnout.reporting.words import guarantee_table

    if summary.guarantee is not None:
        return guarantee_table(summary.guarantee, summary.title, summary.rows())
    table = Table(title=summary.title, show_header=False, title_justify="left", box=None)
    for name, value in {**summary.rows(), "privacy": "none: rewards are not protected"}.items():
        table.add_row(f"[bold]{name}[/bold]", value)
    return table


def bandit_picture(summary: BanditSummary) -> Picture:
    """Picture of the mean regret over the pulls, with a band that contains 90 % of the runs."""
    from turnout.reporting.drawing import LOOKS, Picture

    # The mean of all runs, and the band between two quantiles.
    def draw(axes: list[Any], ink: str) -> None:
        (axis,), look = axes, LOOKS["ours"]
        low, high = np.quantile(summary.regret, [1 - _HIGH, _HIGH], axis=0)
        axis.fill_between(summary.pulls, low, high, color=look.colour, alpha=0.2, linewidth=0)
        axis.plot(summary.pulls, summary.regret.mean(axis=0), **look.line(), label="mean")
        axis.set_xlabel("pulls")
        axis.set_ylabel("regret")

    # The text alternative.
    final = summary.regret[:, -1]
    text = (
        f"Regret against pulls: mean of {len(final)} runs, {final.mean():,.0f} in the end, and the "
        "band between the 5 % and 95 % points."
    )
    return Picture("regret", "Regret over the run", text, draw)


def write_bandit_report(folder: Path, summary: BanditSummary, plan_text: str) -> None:
    """Write regret.csv, the picture, report.html and, last, report.json.

    Guarantees:
        Each file is complete or absent. If report.json exists, all other files exist.

    Args:
        folder: folder of the report.
        summary: contents of the report.
        plan_text: text of the plan, which the page shows.

    Raises:
        StorageError: a file cannot be written.
    """
    # Write the table, the picture and the page, and last the record.
    picture = bandit_picture(summary)
    low, high = np.quantile(summary.regret, [1 - _HIGH, _HIGH], axis=0)
    mean = summary.regret.mean(axis=0)
    write(folder / "regret.csv", table_csv(pulls=summary.pulls, mean=mean, low=low, high=high))
    write(folder / PICTURES / f"{picture.name}.png", picture.png())
    write(folder / PICTURES / f"{picture.name}.svg", picture.svg())
    write(folder / PAGE, _page(summary, picture, plan_text))
    write(folder / REPORT, as_json(summary.record()))


def _page(summary: BanditSummary, picture: Picture, plan_text: str) -> str:
    """HTML page of a report of bandit runs, with the text of the plan."""
    from turnout._version import __version__
    from turnout.reporting.page import named_cards, sections, template

    # Without a guarantee, the page states that no privacy is provided.
    record, guarantee = summary.record(), summary.guarantee
    epsilon = ("ε upper bound", "none", "no privacy")
    rows, words = [("Privacy", "none: rewards are not protected")], [_PUBLIC]
    if guarantee is not None:
        kind = f"at δ = {guarantee.delta:g}, {guarantee.relation.value}"
        epsilon = ("ε upper bound", rounded_up(guarantee.epsilon.upper), kind)
        rows, words = guarantee_rows(guarantee), [_PUBLIC, _SIMULATED]
    # The regret of most runs, and the regret of a policy that learns nothing, for comparison.
    spread = f"95 % of {record['runs']} runs below {record['regret_95']:,.0f}"
    uniform = f"{record['regret_of_uniform_play']:,.0f}"
    # The page: key figures, guarantee, picture, settings and plan.
    return template("report.html").render(
        title="A private bandit" if guarantee else "A bandit",
        subtitle=summary.title,
        cards=named_cards(
            ("Regret", f"{record['regret']:,.0f}", spread),
            epsilon,
            ("Uniform play", uniform, "regret of pulling all actions equally often"),
        ),
        guarantee_text=words,
        guarantee=rows,
        sections=sections([picture]),
        run=[(name.capitalize(), value) for name, value in summary.rows().items()],
        plan=plan_text.strip(),
        version=__version__,
        randomness=f"Randomness: simulation only (seed {summary.plan.run.seed})",
    )
