"""Guarantees in words, tables and JSON, and bounds rounded to the safe side.

`guarantee_table`, `guarantee_rows` and `guarantee_record` always state relation, unit and trust
model. `rounded_up` and `rounded_down` return bounds as text. `Headline` formats the headline metric
of a run.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from turnout.core.bounds import Bounds
from turnout.schemes import PrivacyUnit, Relation, TrustModel

if TYPE_CHECKING:
    from rich.table import Table

    from turnout.accounting import Guarantee

RELATIONS = {
    Relation.ADD_REMOVE: "this client took part, or was never there",
    Relation.ZERO_OUT: "this client took part with its data, or with an empty record",
    Relation.REPLACE_ONE: "this client's data are these, or any other",
}
"""The two neighbouring worlds of each relation."""

UNITS = {
    PrivacyUnit.CLIENT: "everything that one client holds",
    PrivacyUnit.EXAMPLE: "one record, which draws its steps and is clipped by itself; all records "
    "of one client together are protected less",
}
"""The data that each privacy unit protects."""

TRUST = {
    TrustModel.CENTRAL: "the coordinator is trusted: it sees single updates and who checks in "
    "when, and adds the noise; all others see the released models only",
    TrustModel.LOCAL: "no party is trusted: each message is private on its own",
    TrustModel.SHUFFLED: "a shuffler is trusted to hide who sent what",
}
"""The parties that must be trusted in each trust model."""

WATCHERS = {
    TrustModel.CENTRAL: "An adversary who knows all else and sees every released model",
    TrustModel.LOCAL: "An adversary who knows all else and sees the client's messages",
    TrustModel.SHUFFLED: "An adversary who knows all other clients' data and sees all shuffled "
    "messages",
}
"""The adversary against whom the guarantee of each trust model holds."""

_SEEN = {
    TrustModel.CENTRAL: "every released model",
    TrustModel.LOCAL: "every message of the client's own",
    TrustModel.SHUFFLED: "all shuffled messages",
}
DIRECTIONS = {
    "remove": "the client took part; could an attacker tell?",
    "add": "the client did not take part; could an attacker tell?",
    "replace": "the client's data are these, not others; could an attacker tell?",
}
"""The attacker's question in each direction of the comparison of two worlds."""
CLAIMS = {
    Relation.ADD_REMOVE: ("the client took part", "the client was never there"),
    Relation.ZERO_OUT: ("the client took part with its data", "its record was empty"),
    Relation.REPLACE_ONE: ("the client's data are these", "the client's data are others"),
}
"""What is true about the client in the first and in the second world of each relation."""


def of_unit(text: str, unit: PrivacyUnit) -> str:
    """Text about a client, rewritten for the given privacy unit."""
    return text.replace("client", "record") if unit is PrivacyUnit.EXAMPLE else text


def kind_rows(relation: Relation, unit: PrivacyUnit, trust: TrustModel) -> list[tuple[str, str]]:
    """Rows (name, text) with the values and meanings of relation, unit and trust model."""
    return [
        ("relation", f"{relation.value}: {of_unit(RELATIONS[relation], unit)}"),
        ("unit", f"{unit.value}: {UNITS[unit]}"),
        ("trust model", f"{trust.value}: {TRUST[trust]}"),
    ]


def certainty_in_words(
    sides: tuple[float, float],
    delta: float,
    relation: Relation,
    unit: PrivacyUnit = PrivacyUnit.CLIENT,
    trust: TrustModel = TrustModel.CENTRAL,
) -> str:
    """Guarantee for one client or record against an attacker with even odds, in words.

    Args:
        sides: upper bounds, in [0, 1], on the attacker's certainty of the first and of the second
            world at the prior ½, from `turnout.accounting.meaning.membership`.
        delta: δ of the guarantee.
        relation: neighbouring relation, which defines the two worlds.
        unit: privacy unit.
        trust: trust model.
    """
    presence, absence = map(sure, sides)
    claim, denial = CLAIMS[relation]
    said = (
        f"Take any one client and two worlds: {RELATIONS[relation]}. An adversary who sees "
        f"{_SEEN[trust]} and knows everything about all other clients, and who first thought the "
        f"two worlds equally likely, can become at most {presence} sure that "
        f"{claim}, and at most {absence} sure that {denial}; for either claim, "
        f"a chance of at most δ = {delta:g} that this fails is left. This follows from δ at every "
        "ε, not from the one ε that is quoted."
    )
    return of_unit(said, unit)


def sure(posterior: float) -> str:
    """Probability as a percentage, rounded up.

    >>> sure(0.97224)
    '97.23 %'
    """
    return f"{rounded_up(100 * posterior, 4)} %"


def rounded_up(value: float, digits: int = 4) -> str:
    """Decimal text of ``value`` with ``digits`` significant digits, never below ``value``.

    >>> rounded_up(3.14159), rounded_up(3.0)
    ('3.142', '3')
    """
    return _rounded(value, digits, ROUND_CEILING)


def rounded_down(value: float, digits: int = 4) -> str:
    """Decimal text of ``value`` with ``digits`` significant digits, never above ``value``."""
    return _rounded(value, digits, ROUND_FLOOR)


def at_least(bounds: Bounds, digits: int = 4) -> str:
    """Lower bound as text, rounded down; the text states if 0 only means that none is known.

    >>> at_least(Bounds(0.5, 1.0)), at_least(Bounds(0.0, 0.0)), at_least(Bounds(0.0, 1.0))
    ('0.5', '0', '0: no lower bound is known')
    """
    unknown = bounds.lower == 0 < bounds.upper
    return "0: no lower bound is known" if unknown else rounded_down(bounds.lower, digits)


def _rounded(value: float, digits: int, rounding: str) -> str:
    """Decimal text of a float, rounded exactly in the direction of ``rounding``."""
    exact = Decimal(value)
    if not exact.is_finite() or exact == 0:
        return f"{value:g}"
    last = Decimal(1).scaleb(exact.adjusted() - digits + 1)
    return f"{float(exact.quantize(last, rounding)):.{digits}g}"


def guarantee_record(guarantee: Guarantee) -> dict[str, Any]:
    """JSON-ready values of a guarantee; ``epsilon`` is the upper bound."""
    # Bounds on ε, δ and the terms of the guarantee.
    record = {
        **bounds_record(guarantee.epsilon),
        "delta": guarantee.delta,
        "relation": guarantee.relation.value,
        "unit": guarantee.unit.value,
        "trust_model": guarantee.trust.value,
        "directions": {
            name: bounds_record(bounds) for name, bounds in guarantee.directions.items()
        },
        "method": guarantee.method,
    }
    # The reason for a wide bracket.
    if not guarantee.meets_tolerance:
        record["bracket"] = {
            "relative_width": guarantee.epsilon.relative_width,
            "tolerance": guarantee.tolerance,
            "reason": _why_wide(guarantee),
            "cut_short": guarantee.cut_short,
        }
    return record


def bounds_record(bounds: Bounds) -> dict[str, float]:
    """JSON-ready bounds on ε; ``epsilon`` is the upper bound, ``epsilon_lower`` the lower bound."""
    return {"epsilon": bounds.upper, "epsilon_lower": bounds.lower}


def bracket_rows(guarantee: Guarantee) -> dict[str, str]:
    """Row with the gap between the bounds on ε and the reason for it; empty if the gap is small.

    The gap is relative to ε. The result is empty also if no lower bound is known, unless the search
    for the bounds reached its limit on computing work.
    """
    said = guarantee.epsilon.lower == 0 and not guarantee.cut_short
    if guarantee.meets_tolerance or said:
        return {}
    wide = f"{100 * guarantee.epsilon.relative_width:.3g} % wide"
    asked = f"{100 * guarantee.tolerance:g} % asked"
    return {"bracket": f"{wide} ({asked}): {_why_wide(guarantee)}"}


def _why_wide(guarantee: Guarantee) -> str:
    """Reason for which the bounds on ε are not close, in words."""
    if guarantee.cut_short:
        return "the budget of work was spent (counted, so it is the same on every machine)"
    if guarantee.epsilon.lower == 0:
        return "no lower bound is known"
    return "the refinement stopped" if guarantee.exact else "the analysis is not tight"


def guarantee_table(
    guarantee: Guarantee, title: str, rows: dict[str, str], about: dict[str, str] | None = None
) -> Table:
    """Table of a guarantee, with given rows above it.

    Args:
        guarantee: the guarantee.
        title: title of the table.
        rows: rows at the top, as texts by name.
        about: rows that describe the scheme, placed after the rows of ε and δ; None: no such rows.
    """
    from rich.table import Table

    # The given rows come first.
    table = Table(title=title, show_header=False, title_justify="left", box=None, padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows.items():
        table.add_row(name, value)
    # The guarantee with the lower bound, the scheme, and each direction.
    epsilon = guarantee.epsilon
    table.add_row("ε upper bound", f"[bold]{rounded_up(epsilon.upper, 5)}[/bold]")
    table.add_row("δ", f"{guarantee.delta:g}")
    table.add_row("ε lower bound", at_least(epsilon, 5))
    for name, value in (bracket_rows(guarantee) | (about or {})).items():
        table.add_row(name, value)
    for name, bounds in guarantee.directions.items():
        ends = f"{rounded_up(bounds.upper, 5)} (lower bound {at_least(bounds, 5)})"
        table.add_row(f"direction {name}", f"{ends}: {of_unit(DIRECTIONS[name], guarantee.unit)}")
    # The terms of the guarantee, and its analysis.
    for name, value in kind_rows(guarantee.relation, guarantee.unit, guarantee.trust):
        table.add_row(name, value)
    table.add_row("method", guarantee.method)
    return table


def guarantee_rows(guarantee: Guarantee) -> list[tuple[str, str]]:
    """Rows (name, text) of a guarantee for an HTML page."""
    epsilon = guarantee.epsilon
    kinds = kind_rows(guarantee.relation, guarantee.unit, guarantee.trust)
    # Both bounds on ε, and δ.
    rows = [
        ("ε", f"at most {rounded_up(epsilon.upper, 5)}, at least {at_least(epsilon, 5)}"),
        *((name.capitalize(), value) for name, value in bracket_rows(guarantee).items()),
        ("δ", f"{guarantee.delta:g}"),
    ]
    # Each direction, then the terms of the guarantee.
    rows += [
        (
            f"Direction “{name}”",
            f"at most {rounded_up(bounds.upper, 5)}, at least {at_least(bounds, 5)} "
            f"({of_unit(DIRECTIONS[name], guarantee.unit)})",
        )
        for name, bounds in guarantee.directions.items()
    ]
    return [
        *rows,
        *((name.capitalize(), value) for name, value in kinds),
        ("Method", guarantee.method),
    ]


PERSONAL = "personal_accuracy"
"""Name of the accuracy of clients' own models on their own classes, which no ε covers."""


@dataclass(frozen=True, slots=True)
class Headline:
    """Names and formatting of the headline metric in titles, axes and cards.

    Attributes:
        name: name of the metric in the history of a run.
    """

    name: str

    @property
    def is_share(self) -> bool:
        """Whether the metric is a share of examples, which is printed in per cent."""
        return self.name.endswith("accuracy") or self.name.startswith("top-")

    @property
    def title(self) -> str:
        """Name of the metric on the test set, as the title of an axis."""
        return f"Test {self.words}"

    @property
    def words(self) -> str:
        """Name of the metric within a sentence."""
        if self.name in ("rmse", "mae", "auc"):
            return self.name.upper()
        return self.name.replace("_", " ")

    @property
    def axis(self) -> str:
        """Label of an axis that shows the metric, with its unit."""
        return f"{self.words}, %" if self.is_share else self.words

    def drawn(self, values: NDArray[np.floating]) -> NDArray[np.floating]:
        """Values of the metric in the unit of the axis, shape of ``values``."""
        return 100 * values if self.is_share else values

    def text(self, value: float, digits: int = 2) -> str:
        """Text of a value of the metric.

        A share is printed in per cent with ``digits`` decimals, another value with ``digits`` + 2
        significant digits.
        """
        return f"{value:.{digits}%}" if self.is_share else f"{value:.{digits + 2}g}"

    def interval(self, value: float, records: int) -> tuple[float, float] | None:
        """Wilson's 95 % interval of a share of ``records`` records; None for other metrics.

        `PERSONAL` has no interval, since the records of one client are not independent.
        """
        if not self.is_share or self.name == PERSONAL:
            return None
        # Centre and half-width of the interval, for the 97.5 % quantile z of N(0, 1).
        z = 1.959963984540054
        middle = (value + z * z / (2 * records)) / (1 + z * z / records)
        spread = value * (1 - value) / records + (z / (2 * records)) ** 2
        half = z / (1 + z * z / records) * math.sqrt(spread)
        return max(0.0, middle - half), min(1.0, middle + half)

    def lost(self, better: float, worse: float) -> str:
        """Difference ``better`` − ``worse`` as text; for shares in percentage points."""
        if self.is_share:
            return f"{100 * (better - worse):.2f} points"
        return f"{better - worse:.4g}"
