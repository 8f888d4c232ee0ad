"""Audits as JSON, table and picture: measured lower bounds and proved upper bounds.

`audit_record` returns JSON-ready values, `audit_table` a table, `audit_picture` a picture, and
`verdict` the outcome in one sentence.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from turnout.accounting import gaussian_epsilon
from turnout.auditing import Counted, Findings, OneRun, Statement
from turnout.reporting.words import bounds_record, rounded_down, rounded_up

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from rich.table import Table

    from turnout.accounting.meaning.profile import Profile
    from turnout.reporting.drawing import Picture

Found = Findings | OneRun

_EVENTS = {True: "above", False: "not above"}


def audit_record(found: Found) -> dict[str, Any]:
    """JSON-ready bounds, counts and settings of an audit.

    ``audit_lower`` is the lower bound on ε by experiment, at the stated confidence; ``epsilon`` and
    ``epsilon_lower`` are the proved bounds.
    """
    # Every audit has the bounds by experiment and by proof.
    stated = found.stated
    record: dict[str, Any] = {
        "consistent": found.consistent,
        "game": found.game,
        "audit_lower": found.epsilon_lower,
        **bounds_record(stated.epsilon),
        "delta": stated.delta,
        **stated.terms,
        "gaussian_mu": found.gaussian_mu,
        "audit_lower_if_gaussian": gaussian_lower(found),
        "confidence": found.confidence,
        "seed": found.seed,
    }
    # An audit in one run has counts of guesses; other audits have counts of each direction.
    if isinstance(found, OneRun):
        return record | _one_run_record(found)
    record["trials"] = found.trials
    record["directions"] = _directions_record(stated, found.found)
    record["also"] = [
        {"delta": at.stated.delta, "directions": _directions_record(at.stated, at.found)}
        for at in found.also
    ]
    return record | {"seconds": found.seconds}


def _directions_record(stated: Statement, found: Mapping[str, Counted]) -> dict[str, Any]:
    """JSON-ready counts of events, and bounds on ε, for each direction."""
    return {
        name: {
            "audit_lower": counted.epsilon,
            **bounds_record(stated.directions[name]),
            "statistic": counted.event.statistic,
            "event": _EVENTS[counted.event.above],
            "threshold": counted.event.threshold,
            "likely": counted.likely,
            "rare": counted.rare,
            "counted_trials": counted.trials,
        }
        for name, counted in found.items()
    }


def _one_run_record(found: OneRun) -> dict[str, Any]:
    """JSON-ready counts of guesses, metrics of the model, and the running time."""
    guesses = found.found
    return {
        "canaries": guesses.canaries,
        "guesses": guesses.guesses,
        "correct": guesses.correct,
        "metrics": dict(found.metrics),
        "seconds": found.seconds,
    }


def gaussian_lower(found: Found) -> float:
    """Lower bound on ε at the audit's δ, valid if the trade-off is that of Gaussian DP.

    The bound follows from the audit's lower bound on μ; it is 0 if δ or the bound on μ is 0.
    """
    mu, delta = found.gaussian_mu, found.stated.delta
    return gaussian_epsilon(1.0 / mu, delta) if mu > 0 and delta > 0 else 0.0


def verdict(found: Found) -> str:
    """Outcome of an audit in one sentence."""
    lower, upper = found.epsilon_lower, found.stated.epsilon.upper
    sure = f"{rounded_down(100 * found.confidence, 6)} % confidence"
    # Consistent: the lower bound is at most the proved upper bound.
    if found.consistent:
        return (
            f"consistent: the ε lower bound found, {rounded_down(lower)} ({sure}), is within the "
            f"ε upper bound {rounded_up(upper)}"
        )
    # Violated: state the direction and the δ of the largest excess.
    where = ""
    if isinstance(found, Findings):
        at, name = found.violated[0]
        lower, upper = at.found[name].epsilon, at.stated.directions[name].upper
        where = f" in the direction {name} at δ = {at.stated.delta:g}"
    return (
        f"violated: the ε lower bound found{where}, {rounded_down(lower)} ({sure}), is above the "
        f"ε upper bound {rounded_up(upper)}: what runs is not what was priced"
    )


def audit_table(found: Found) -> Table:
    """Audit as a table of names and values."""
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    for name, text in _rows(found).items():
        table.add_row(f"  {name}", text)
    return table


def _rows(found: Found) -> dict[str, str]:
    """Rows of an audit's table: name and text."""
    stated = found.stated
    # The game, and the bounds that are compared.
    rows = {
        "game": found.game,
        "verdict": verdict(found),
        "ε lower bound found": rounded_down(found.epsilon_lower, 5),
        "ε upper bound": rounded_up(stated.epsilon.upper),
        "δ": f"{stated.delta:g}",
    }
    # The counts, and the lower bound if the trade-off were Gaussian.
    rows |= _one_run_rows(found) if isinstance(found, OneRun) else _direction_rows(found)
    if (lower := gaussian_lower(found)) > 0:
        rows["if Gaussian"] = (
            f"ε lower bound {rounded_down(lower)}, by μ ≥ {rounded_down(found.gaussian_mu)}, "
            "if the trade-off is that of Gaussian DP"
        )
    # The terms of the claim, and the confidence.
    rows |= {name.replace("_", " "): text for name, text in stated.terms.items()}
    sure = rounded_down(100 * found.confidence, 6)
    rows["confidence"] = f"{sure} % that no lower bound found is too large"
    return rows


def _direction_rows(found: Findings) -> dict[str, str]:
    """Rows with the bounds and counts of each direction."""
    rows = {}
    # The best event of each direction, with its counts in both worlds.
    for name, counted in found.found.items():
        upper = found.stated.directions[name].upper
        rows[f"direction {name}"] = (
            f"{rounded_down(counted.epsilon, 5)} found, upper bound {rounded_up(upper)}: "
            f"{counted.event.statistic} {_EVENTS[counted.event.above]} "
            f"{counted.event.threshold:.4g} in {counted.likely:,} trials of {counted.trials:,}, "
            f"and in {counted.rare:,} of the other world"
        )
    # The bounds at further values of δ.
    for at in found.also:
        rows[f"at δ = {at.stated.delta:g}"] = "; ".join(
            f"{name} {rounded_down(counted.epsilon, 5)} found, upper bound "
            f"{rounded_up(at.stated.directions[name].upper)}"
            for name, counted in at.found.items()
        )
    return rows | {"trials": f"{found.trials:,} of each world"}


def _one_run_rows(found: OneRun) -> dict[str, str]:
    """Row with the number of canaries and the number of correct guesses."""
    guesses = found.found
    return {
        "canaries": f"{guesses.canaries:,} in one run; {guesses.correct:,} of {guesses.guesses:,} "
        "guesses are right",
    }


def audit_picture(found: Findings, profile: Profile | None = None) -> Picture:
    """Picture of true positive rates by false positive rate: measured, and the proved maximum.

    Args:
        found: an audit with trials of both worlds.
        profile: privacy profile of the audited scheme, from which the maximum follows; None: the
            maximum follows from the stated (ε, δ) alone.
    """
    from turnout.reporting.drawing import Picture

    def draw(axes: list[Axes], ink: str) -> None:
        for axis, name in zip(axes, found.found, strict=True):
            _draw_direction(axis, found, name, profile, ink)

    return Picture("audit", "What an attacker found, and what none can find", verdict(found), draw,
                   panels=len(found.found))  # fmt: skip


def _draw_direction(
    axis: Axes, found: Findings, name: str, profile: Profile | None, ink: str
) -> None:
    """Draw one direction: the proved maximum, the measured rates, and the chosen event."""
    from turnout.reporting.drawing import DOTTED, LOOKS

    # The largest true positive rate that the guarantee allows.
    counted, rates = found.found[name], found.rates[name]
    rare = np.geomspace(max(1.0 / counted.trials, 1e-7), 1.0, 300)
    look = LOOKS["scheme"]
    axis.plot(rare, _largest(found, name, profile, rare), label=look.words, **look.line())
    # The measured rates of all events, and of the event that gives the bound.
    axis.plot(
        rates.rare, rates.likely, linestyle="none", marker="o", markersize=3,
        color=LOOKS["audit"].colour, label=LOOKS["audit"].words,
    )  # fmt: skip
    shares = counted.rare / counted.trials, counted.likely / counted.trials
    axis.plot(*shares, "s", color=ink, label="the event that was chosen beforehand")
    # The chance level; both axes are logarithmic, as small rates matter most.
    axis.plot(rare, rare, color=ink, linestyle=DOTTED, label="chance level")
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlim(rare[0], 1)
    axis.set_ylim(max(rare[0], 1e-6), 1.3)
    axis.set_title(f"Direction {name}: how often the event happens in either world")
    axis.set_xlabel("false positive rate")
    axis.set_ylabel("true positive rate")


def _largest(found: Findings, name: str, profile: Profile | None, rare: np.ndarray) -> np.ndarray:
    """Largest true positive rates that the guarantee allows at the false positive rates ``rare``.

    Each pair (ε, δ) of the guarantee allows at most e^ε·rare + δ; the smallest of these limits is
    returned.
    """
    if profile is None:
        epsilon, delta = found.stated.directions[name].upper, found.stated.delta
        lines: list[tuple[float, float]] = [(epsilon, delta)]
    else:
        bounds = profile.directions[name]
        lines = list(zip(bounds.epsilons.tolist(), bounds.upper.tolist(), strict=True))
    each = [np.exp(epsilon) * rare + delta for epsilon, delta in lines]
    return np.minimum(np.min(each, axis=0), 1.0)


def statement_terms(relation: str, unit: str, trust: str) -> Mapping[str, str]:
    """Relation, unit and trust model, under the keys that JSON answers use."""
    return {"relation": relation, "unit": unit, "trust_model": trust}
