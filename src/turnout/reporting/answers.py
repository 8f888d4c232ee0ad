"""Answers to questions about a scheme, as tables and as JSON.

`answer_table` and `answer_record` return a guarantee with its `Footnotes`, such as its assumptions
and the privacy without a shuffler. `participation_words` and `randomizer_words` describe a scheme
by the names of the command line's options.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Self

from turnout.core.plugins import plugin_of
from turnout.reporting.words import guarantee_record, guarantee_table, rounded_up
from turnout.schemes import (
    ApproximateRandomizer,
    EveryStep,
    NonAdaptiveRandomizer,
    PureRandomizer,
    Randomizer,
    Relation,
    RepeatedMessages,
    Scheme,
    SpeakingOrder,
    TableRandomizer,
    TrustModel,
)
from turnout.schemes.parameters import Domain, parameters
from turnout.schemes.registry import participation_names, question_randomizers
from turnout.schemes.scheme import SHUFFLES, shuffle_of

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from rich.table import Table

    from turnout.accounting import Guarantee
    from turnout.accounting.calibration import Calibration
    from turnout.accounting.meaning.explanation import Explanation

_HINT = (
    "--clients says how many clients there are; if they all follow the protocol, their noise hides "
    "this client too, and a smaller ε may be proved"
)
_AS_PURE = "any ε₀-DP randomizer; the lower bound is that of the worst one"
_PUBLISHED = "clones 2021 (Feldman, McMillan and Talwar 2021, Theorem 3.1)"
_HIDDEN_ORDER = (
    "clients speak in a uniform order that neither an adversary nor the party that chooses "
    "the next "
    "randomizer knows"
)
_DRAWN_UNSEEN = "each client draws the step of a window unseen"


@dataclass(frozen=True, slots=True)
class Unshuffled:
    """Privacy of one client's messages against an adversary who sees the sender of each message.

    Attributes:
        epsilon: upper bound on ε of all rounds together; None where no bound is known.
        delta: δ of that bound; 0 where ε is pure.
        each: privacy level of one message, in words.
        rounds: largest number of messages that the client sends.
    """

    epsilon: float | None
    delta: float
    each: str
    rounds: int

    def record(self) -> dict[str, Any]:
        """JSON-ready ε and δ of the messages without a shuffler."""
        return {"epsilon": self.epsilon, "delta": self.delta}

    def words(self) -> str:
        """ε and δ of the messages without a shuffler, as the text of a table row."""
        kind = f"δ = {self.delta:.10g}" if self.delta else "pure"
        total = f"ε = {self.epsilon:.10g} ({kind}, local)"
        if self.epsilon is None:
            total = "nothing is proved"
        return total if self.rounds == 1 else f"{total}: {self.rounds:,} messages of {self.each}"


@dataclass(frozen=True, slots=True)
class Footnotes:
    """Facts printed below a guarantee; each is None or empty if it does not apply.

    Attributes:
        unshuffled: privacy without a shuffler, if the scheme has a shuffler.
        published: smallest published upper bound on ε, if turnout's own upper bound is smaller.
        assumptions: assumptions besides the trust model.
        priced_as: class of randomizers for which the bound holds, if accounting uses only a
            property of the randomizer.
        hint: advice on an option that may give a smaller bound.
    """

    unshuffled: Unshuffled | None = None
    published: float | None = None
    assumptions: tuple[str, ...] = ()
    priced_as: str | None = None
    hint: str | None = None

    @classmethod
    def of(cls, scheme: Scheme, delta: float) -> Self:
        """Footnotes of a scheme's guarantee at δ."""
        from turnout.accounting import published_epsilon

        shuffled = scheme.trust is TrustModel.SHUFFLED
        averaged = scheme.release.shows_counts
        assumed = _assumed(scheme)
        hopeful = averaged and not assumed and scheme.relation is not Relation.ADD_REMOVE
        of_class = isinstance(scheme.randomizer, NonAdaptiveRandomizer) and not shuffled
        return cls(
            unshuffled(scheme, delta) if shuffled else None,
            published_epsilon(scheme, delta),
            assumed,
            _AS_PURE if of_class else None,
            _HINT if hopeful else None,
        )

    def record(self) -> dict[str, Any]:
        """JSON-ready values of the non-empty footnotes."""
        found = {
            "without_shuffler": self.unshuffled and self.unshuffled.record(),
            "published": self.published and {"bound": _PUBLISHED, "epsilon": self.published},
            "assumptions": list(self.assumptions),
            "priced_as": self.priced_as,
            "hint": self.hint,
        }
        return {name: value for name, value in found.items() if value}

    def rows(self) -> dict[str, str]:
        """Rows of a table for the non-empty footnotes."""
        found = {
            "published": self.published and f"ε = {rounded_up(self.published, 5)} by {_PUBLISHED}",
            "no shuffler": self.unshuffled and self.unshuffled.words(),
            "assumes": "; ".join(self.assumptions),
            "priced as": self.priced_as,
            "hint": self.hint,
        }
        return {name: value for name, value in found.items() if value}


def unshuffled(scheme: Scheme, delta: float) -> Unshuffled:
    """Privacy of a client's messages against an adversary who sees the sender of each message.

    T messages of an (ε₀, δ₀)-randomizer are together (T·ε₀, T·δ₀)-private. For other randomizers,
    such as Gaussian noise, the accountant bounds ε of all T messages at ``delta``.
    """
    # Repeated messages are counted as further rounds.
    randomizer, rounds = scheme.randomizer, scheme.participation.steps
    if isinstance(randomizer, RepeatedMessages):
        randomizer, rounds = randomizer.each, rounds * randomizer.messages
    # Pure and approximate randomizers add up.
    if isinstance(randomizer, PureRandomizer):
        each = f"ε₀ = {randomizer.epsilon0:g}"
        return Unshuffled(_times(rounds, randomizer.epsilon0), 0.0, each, rounds)
    if isinstance(randomizer, ApproximateRandomizer):
        each = f"ε₀ = {randomizer.epsilon0:g} and δ₀ = {randomizer.delta0:g}"
        lost = _times(rounds, randomizer.delta0)
        if lost >= 1:
            return Unshuffled(None, 1.0, each, rounds)
        return Unshuffled(_times(rounds, randomizer.epsilon0), lost, each, rounds)
    # Other randomizers: the accountant's upper bound on ε of all messages together.
    from turnout.accounting import epsilon_upper

    central = replace(scheme, trust=TrustModel.CENTRAL, population=None)

    def seen(times: int) -> float:
        alone = replace(central, participation=EveryStep(times))
        return float(rounded_up(epsilon_upper(alone, delta), 5))

    return Unshuffled(seen(rounds), delta, f"ε = {seen(1):g}", rounds)


def _assumed(scheme: Scheme) -> tuple[str, ...]:
    """Assumptions on the number, the behaviour and the order of clients."""
    clients = scheme.population
    if clients is None:
        return ()
    if clients == 1:
        return ("the client is the only one: no other client hides it",)
    follow = f"all {clients:,} clients follow the protocol"
    if scheme.release.shows_counts:
        return (follow, _DRAWN_UNSEEN)
    return (follow, _HIDDEN_ORDER) if scheme.order is SpeakingOrder.HIDDEN else (follow,)


def _times(rounds: int, value: float) -> float:
    """Product of a count and a value, computed from the value's shortest decimal text.

    So 3 times 0.1 is 0.3.
    """
    return float(rounds * Decimal(repr(value)))


def participation_words(scheme: Scheme) -> dict[str, Any]:
    """Name and parameters of the participation or shuffle, and the release rule."""
    # Name and parameters of the shuffle, or of the participation.
    participation = scheme.participation
    if scheme.trust is TrustModel.SHUFFLED:
        words = _shuffle_words(scheme)
    else:
        names = participation_names(type(participation))
        words = {
            "name": names.question or names.plan,
            **_values(participation, named=names.question),
        }
        if scheme.population is not None:
            words["clients"] = scheme.population
    # The plug-in that defines the participation, if it is not a part of turnout.
    if (plugin := plugin_of(type(participation))) is not None:
        words["plugin"] = str(plugin)
    # The speaking order and the release rule.
    if scheme.order is not None:
        words["order"] = scheme.order.value
    if scheme.trust is not TrustModel.SHUFFLED:
        words["release"] = scheme.release.value
    return words


def randomizer_words(randomizer: Randomizer) -> dict[str, Any]:
    """Name and parameters of the randomizer."""
    kind = type(randomizer)
    if isinstance(randomizer, RepeatedMessages):
        return {**randomizer_words(randomizer.each), "messages": randomizer.messages}
    if isinstance(randomizer, TableRandomizer):
        return {"name": "table", "outcomes": len(randomizer.present)}
    names = {known: name for name, known in question_randomizers().items()}
    own = re.sub(r"(?<!^)(?=[A-Z])", "-", kind.__name__).lower()
    return {"name": names.get(kind, own), **_values(randomizer)}


def _shuffle_words(scheme: Scheme) -> dict[str, Any]:
    """Name and parameters of a scheme's shuffle, without the speaking order."""
    participation, shuffle = scheme.participation, shuffle_of(scheme)
    for name, kind in SHUFFLES.items():
        if isinstance(shuffle, kind):
            return {"name": name, **_values(shuffle)}
    return {
        "name": participation_names(type(participation)).plan,
        **_values(participation),
        "clients": scheme.population,
    }


def _values(spec: DataclassInstance, named: object = True) -> dict[str, Any]:
    """Parameters of a participation, shuffle or randomizer by name.

    If ``named`` is true, only the parameters that are options of the command line are returned.
    """
    return {
        each.key: getattr(spec, each.name)
        if each.domain is Domain.COUNT
        else float(getattr(spec, each.name))
        for each in parameters(type(spec))
        if each.members is None
        if each.public or not named
    }


@dataclass(frozen=True, eq=False, repr=False)
class Answer:
    """Scheme and guarantee, with the calibration and the running time of the accounting.

    Attributes:
        scheme: the scheme; if a parameter was solved for, with the solved value.
        guarantee: bounds on ε of the scheme.
        seconds: running time of the accounting.
        randomizer: name and parameters of the randomizer as the user gave them; None: those of the
            scheme.
        calibration: the solved parameter; None if no parameter was solved for.
        target: target ε of the calibration.
        explanation: meaning of the guarantee for one client, if requested.
    """

    scheme: Scheme
    guarantee: Guarantee
    seconds: float
    randomizer: Mapping[str, Any] | None = None
    calibration: Calibration | None = None
    target: float | None = None
    explanation: Explanation | None = None


def answer_record(answer: Answer) -> dict[str, Any]:
    """JSON-ready scheme, guarantee and footnotes of an answer."""
    record: dict[str, Any] = {
        "randomizer": _randomizer(answer),
        **guarantee_record(answer.guarantee),
        **_footnotes(answer).record(),
        "scheme": participation_words(answer.scheme),
        "seconds": answer.seconds,
    }
    if answer.calibration is not None:
        record = {**_calibration_record(answer.calibration), **record}
    if answer.explanation is not None:
        from turnout.reporting.explanation import explanation_record

        record["explanation"] = explanation_record(answer.explanation)
    return record


def answer_table(answer: Answer) -> Table:
    """Table of an answer: guarantee, scheme and footnotes."""
    # A solved parameter, if there is one, and the scheme.
    rows: dict[str, str] = {}
    if (found := answer.calibration) is not None:
        name = found.unknown.name.replace("-", " ")
        rows[name] = _calibration_words(found, answer.target or 0.0)
    about = {
        "scheme": _in_words(participation_words(answer.scheme)),
        "randomizer": _in_words(_randomizer(answer)),
    }
    # The guarantee, its footnotes, and its meaning if it was requested.
    table = guarantee_table(answer.guarantee, "", rows, about)
    for name, value in _footnotes(answer).rows().items():
        table.add_row(name, value)
    if answer.explanation is not None:
        from turnout.reporting.explanation import explanation_rows

        table.add_row()
        for name, value in explanation_rows(answer.explanation).items():
            table.add_row(name, value)
    return table


def _randomizer(answer: Answer) -> dict[str, Any]:
    return dict(answer.randomizer or randomizer_words(answer.scheme.randomizer))


def _footnotes(answer: Answer) -> Footnotes:
    return Footnotes.of(answer.scheme, answer.guarantee.delta)


def _in_words(part: dict[str, Any]) -> str:
    """Name and parameters of a participation, shuffle or randomizer as one text."""
    name, *fields = part.items()
    said = (f"{key.replace('_', ' ')} {_short(value)}" for key, value in fields)
    return f"{name[1]}: " + ", ".join(said)


def _short(value: object) -> str:
    """Text of a value; a float has at most six significant digits and no trailing zeros."""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _calibration_record(found: Calibration) -> dict[str, Any]:
    """JSON-ready value of the solved parameter, and the nearest value that misses the target."""
    refused = found.refused
    return {
        "solved_for": found.unknown.name,
        "value": _number(found, found.value),
        "next_refused": None if refused is None else _number(found, refused),
    }


def _calibration_words(found: Calibration, target: float) -> str:
    """Calibrated value in words, with the reason why the search stopped at this value."""
    unknown, refused = found.unknown, found.refused
    extreme = "smallest" if unknown.falling else "largest"
    value = unknown.text(found.value)
    if found.value == unknown.costly_limit:
        return f"{value}, the {extreme} value of the search, meets ε ≤ {target:g}"
    if refused is None:
        beyond = "smaller" if unknown.falling else "larger"
        return f"{value}, certified to meet ε ≤ {target:g} (a {beyond} value may meet it, too)"
    text = f"{value}, the {extreme} certified to meet ε ≤ {target:g}"
    apart = unknown.whole and abs(refused - found.value) > 1
    rest = "is not; no value between was tried" if apart else "is not"
    return f"{text} ({unknown.text(refused)} {rest})"


def _number(found: Calibration, value: float) -> float:
    """Value of the calibrated parameter; an int if the parameter is a whole number."""
    return int(value) if found.unknown.whole else value
