"""Meanings of the words of a guarantee, for a reader who never saw them before."""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

from turnout.core.bounds import Bounds
from turnout.schemes import PrivacyUnit, Relation, TrustModel

RELATIONS = {
    Relation.ADD_REMOVE: "this client took part, or was never there",
    Relation.ZERO_OUT: "this client took part with its data, or with an empty record",
    Relation.REPLACE_ONE: "this client's data are these, or any other",
}
"""The two worlds that must look alike."""

UNITS = {
    PrivacyUnit.CLIENT: "everything that one client holds",
    PrivacyUnit.EXAMPLE: "one record, which draws its steps and is clipped by itself; all records "
    "of one client together are protected less",
}
"""The unit that is protected."""

TRUST = {
    TrustModel.CENTRAL: "the coordinator is trusted: it sees single updates and who checks in "
    "when, and adds the noise; everybody else sees the released models only",
    TrustModel.LOCAL: "nobody is trusted: each message is private on its own",
    TrustModel.SHUFFLED: "a shuffler is trusted to hide who sent what",
}
"""The parties that could break the guarantee."""

WATCHERS = {
    TrustModel.CENTRAL: "Somebody who knows all else and sees every released model",
    TrustModel.LOCAL: "Somebody who knows all else and sees the client's messages",
    TrustModel.SHUFFLED: "Somebody who knows what all others hold and sees all shuffled messages",
}
"""The adversary against whom the guarantee holds."""

_SEEN = {
    TrustModel.CENTRAL: "every released model",
    TrustModel.LOCAL: "every message of the client's own",
    TrustModel.SHUFFLED: "all shuffled messages",
}
DIRECTIONS = {
    "remove": "the client took part; could anybody tell?",
    "add": "the client did not take part; could anybody tell?",
    "replace": "the client's data are these, not others; could anybody tell?",
}
"""The question of each direction of the comparison."""
CLAIMS = {
    Relation.ADD_REMOVE: ("the client took part", "the client was never there"),
    Relation.ZERO_OUT: ("the client took part with its data", "its record was empty"),
    Relation.REPLACE_ONE: ("the client's data are these", "the client's data are others"),
}
"""The attacker's claim in either world."""


def of_unit(text: str, unit: PrivacyUnit) -> str:
    """A text about a client, said of the unit that is protected."""
    return text.replace("client", "record") if unit is PrivacyUnit.EXAMPLE else text


def kind_rows(relation: Relation, unit: PrivacyUnit, trust: TrustModel) -> list[tuple[str, str]]:
    """Name and meaning of the three words without which an ε says nothing."""
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
    """The guarantee to one client, or record, about an attacker with even odds.

    Upper bounds on the attacker's certainty of presence and of absence are the two ``sides``, both
    in [0, 1], from `turnout.accounting.meaning.membership` at the prior ½.
    """
    presence, absence = map(sure, sides)
    claim, denial = CLAIMS[relation]
    said = (
        f"Take any one client and two worlds: {RELATIONS[relation]}. Somebody who sees "
        f"{_SEEN[trust]} and knows everything about all other clients, and who first thought the "
        f"two worlds equally likely, can become at most {presence} sure that "
        f"{claim}, and at most {absence} sure that {denial}; for either claim, "
        f"a chance of at most δ = {delta:g} that this fails is left. This follows from δ at every "
        "ε, not from the one ε that is quoted."
    )
    return of_unit(said, unit)


def sure(posterior: float) -> str:
    """A probability as a percentage that is not too small.

    >>> sure(0.97224)
    '97.23 %'
    """
    return f"{rounded_up(100 * posterior, 4)} %"


def rounded_up(value: float, digits: int = 4) -> str:
    """A decimal number of so many significant digits that is not below ``value``.

    >>> rounded_up(3.14159), rounded_up(3.0)
    ('3.142', '3')
    """
    return _rounded(value, digits, ROUND_CEILING)


def rounded_down(value: float, digits: int = 4) -> str:
    """A decimal number of so many significant digits that is not above ``value``."""
    return _rounded(value, digits, ROUND_FLOOR)


def at_least(bounds: Bounds, digits: int = 4) -> str:
    """The lower bound, or that none is known above 0.

    >>> at_least(Bounds(0.5, 1.0)), at_least(Bounds(0.0, 0.0)), at_least(Bounds(0.0, 1.0))
    ('0.5', '0', '0: no lower bound is known')
    """
    unknown = bounds.lower == 0 < bounds.upper
    return "0: no lower bound is known" if unknown else rounded_down(bounds.lower, digits)


def _rounded(value: float, digits: int, rounding: str) -> str:
    """Exact decimal rounding of a float."""
    exact = Decimal(value)
    if not exact.is_finite() or exact == 0:
        return f"{value:g}"
    last = Decimal(1).scaleb(exact.adjusted() - digits + 1)
    return f"{float(exact.quantize(last, rounding)):.{digits}g}"
