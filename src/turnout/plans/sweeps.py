"""Comparisons of methods over a swept parameter.

`sweep` builds a `Sweep`, the request of `turnout compare`, from the options of this command.
`compared` computes ε by every method at every value of the swept parameter; `Sweep.beside` adds
custom schemes to the methods.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from pydantic import Field, ValidationError, field_validator

from turnout.core import checks
from turnout.core.errors import (
    NumericalError,
    ParameterError,
    UnsupportedError,
)
from turnout.core.plugins import load, plugin_of
from turnout.plans.questions import parse_query, question_randomizers
from turnout.plans.refusals import MISSING, refusal
from turnout.plans.sections import Count, OpenUnit, Positive, Section, key_of, optional_key
from turnout.schemes import (
    CheckIn,
    GaussianNoise,
    PureRandomizer,
    Relation,
    TrustModel,
)
from turnout.schemes.parameters import Parameter
from turnout.schemes.scheme import RELATION, SHUFFLES, Shuffle, SubsampledShuffle
from turnout.schemes.settings import (
    COMPARISON_TOLERANCE,
    RELATION_SETTING,
    PrivacyTarget,
    one_of,
    scheme_kinds,
    scheme_settings,
    setting_of,
    settings,
)

if TYPE_CHECKING:
    from turnout.accounting.published.comparison import Method, Quote

_DIGITS = 4  # significant digits of swept values that are not whole numbers
_MOST_POINTS = 1000
_FLAGS = {"first": "--from", "last": "--to"}
_CHECK_IN = "check-in"
_LEAST = {"windows": 1, "rounds": 1}
_WHOLE = ("window", "windows", "clients", "rounds")
_COMMON = frozenset({"noise_multiplier", "epsilon0", "delta", "tolerance"})
"""Parameters of a comparison that all schemes in `Sweep.beside` use."""


class Sweep(Section):
    """Request of a comparison: a swept parameter with its values, and all other parameters.

    Attributes:
        against: name of the swept parameter.
        first: first value of the swept parameter.
        last: last value of the swept parameter.
        delta: δ of (ε, δ).
        relation: neighbouring relation.
    """

    needed: ClassVar[tuple[str, ...]]
    """Parameters without a default, which must be given unless they are swept."""
    parameters: ClassVar[tuple[str, ...]]
    """Parameters that may be swept; those that are not swept are shown as fixed."""
    kept: ClassVar[tuple[str, ...]]
    """Parameters of the methods that cannot be swept."""

    # The types of these fields differ between the two subclasses.
    against: Any
    first: Any
    last: Any
    delta: Any
    relation: Any

    points: Count = Field(12, description="number of values, evenly spaced in their logarithm")
    clients: Count | None = optional_key(Shuffle, "clients")
    tolerance: OpenUnit = key_of(COMPARISON_TOLERANCE)
    listed: tuple[float, ...] = Field(
        (), description="the values, where they are not evenly spaced"
    )
    beside: tuple[str, ...] = Field(
        (),
        description="further participations (of check-ins) or randomizers (of shuffled messages), "
        "each with its settings, such as 'rested pairs=2'",
    )

    @property
    def key(self) -> str:
        """Name of the field that is swept."""
        return self.against.replace("-", "_")

    @property
    def whole(self) -> bool:
        """Whether the values of the swept parameter are whole numbers."""
        return self.key in _WHOLE

    def values(self) -> list[float]:
        """Values of the swept parameter in increasing order, without repetition."""
        if self.listed:
            return sorted(set(self.listed))
        spaced = np.geomspace(self.first, self.last, self.points)
        if self.whole:
            return sorted({round(value) for value in spaced})
        inner = [float(f"{value:.{_DIGITS}g}") for value in spaced[1:-1]]
        return sorted({self.first, *inner, self.last})

    def fixed(self) -> dict[str, float]:
        """Values of the parameters that are not swept."""
        values = {name: getattr(self, name) or _LEAST.get(name) for name in self.parameters}
        return {name: value for name, value in values.items() if name != self.key and value}

    def at(self, value: float) -> dict[str, Any]:
        """Values of all parameters, by name, at one value of the swept parameter."""
        kept = {name: getattr(self, name) for name in self.kept}
        return {**kept, **self.fixed(), self.key: value}


class CheckInSweep(Sweep):
    """Comparison of random check-ins with other participations, all with Gaussian noise."""

    needed: ClassVar[tuple[str, ...]] = ("noise_multiplier", "window")
    parameters: ClassVar[tuple[str, ...]] = ("noise_multiplier", "window", "windows")
    kept: ClassVar[tuple[str, ...]] = ("delta", "relation", "clients", "tolerance")

    against: Literal["noise-multiplier", "window", "windows"] = Field(
        description="the swept parameter"
    )
    first: Positive = Field(description="first value of the swept parameter")
    last: Positive = Field(description="last value of the swept parameter")
    noise_multiplier: Positive | None = optional_key(GaussianNoise, "noise_multiplier")
    window: Count | None = optional_key(CheckIn, "window")
    windows: Count | None = optional_key(CheckIn, "windows")
    delta: OpenUnit = key_of(setting_of(PrivacyTarget, "delta"))
    relation: Relation = key_of(RELATION_SETTING)


class ShuffleSweep(Sweep):
    """Comparison of all bounds for shuffled messages of an ε₀-LDP randomizer."""

    needed: ClassVar[tuple[str, ...]] = ("epsilon0", "clients", "delta")
    parameters: ClassVar[tuple[str, ...]] = ("epsilon0", "clients", "rounds", "sampled", "delta")
    kept: ClassVar[tuple[str, ...]] = ("tolerance",)

    against: Literal["epsilon0", "clients", "rounds", "delta"] | None = Field(
        None, description="the swept parameter"
    )
    first: Positive | None = Field(None, description="first value of the swept parameter")
    last: Positive | None = Field(None, description="last value of the swept parameter")
    epsilon0: Positive | None = optional_key(PureRandomizer, "epsilon0")
    rounds: Count | None = optional_key(Shuffle, "rounds")
    sampled: Count | None = optional_key(SubsampledShuffle, "sampled")
    delta: OpenUnit | None = optional_key(PrivacyTarget, "delta")
    relation: Relation = key_of(replace(RELATION_SETTING, default=RELATION))

    @field_validator("relation")
    @classmethod
    def _shuffled_relation(cls, relation: Relation) -> Relation:
        """The relation, after a check that it is the relation of shuffled messages."""
        if relation is not RELATION:
            raise ParameterError("value", relation.value, f"{RELATION.value}, the relation here")
        return relation

    @property
    def key(self) -> str:
        """Name of the swept parameter; "delta", with its one value, if no parameter is swept."""
        return self.against or "delta"

    def values(self) -> list[float]:
        """Values of the swept parameter in increasing order, without repetition."""
        if self.against is None:
            assert self.delta is not None
            return [self.delta]
        return super().values()


_FAMILIES: dict[str, type[Sweep]] = {_CHECK_IN: CheckInSweep, "shuffle": ShuffleSweep}


def sweep(flags: Mapping[str, object]) -> Sweep:
    """Sweep that the options of `turnout compare` describe.

    Args:
        flags: values by name: ``scheme`` ("check-in" by default, or "shuffle") and the fields of
            `CheckInSweep` or `ShuffleSweep`; None if not given.

    Raises:
        ParameterError: a wrong option; the error has the option, its value and the values that are
            allowed.
    """
    # Choose the class of the comparison, and check that no option belongs only to the other class.
    given = {name: value for name, value in flags.items() if value is not None}
    scheme = given.pop("scheme", _CHECK_IN)
    if scheme in SHUFFLES and scheme not in _FAMILIES:
        expected = "shuffle (use --sampled if a sample of the clients sends messages)"
        raise ParameterError("--scheme", scheme, expected)
    if scheme not in _FAMILIES:
        raise ParameterError("--scheme", scheme, f"one of {', '.join(map(repr, _FAMILIES))}")
    family = _FAMILIES[str(scheme)]
    _check_family(given, str(scheme))
    # Check each value by itself, then the values together.
    try:
        question = family.model_validate(given)
    except ValidationError as error:
        raise refusal(error, family, _flag) from None
    if question.against is None:
        _check_point(question, given)
    else:
        _check_swept(question, given)
    return question


def _check_family(given: Mapping[str, object], scheme: str) -> None:
    """Raise an error for an option that needs another value of ``--scheme``."""
    for other, family in _FAMILIES.items():
        for name in family.model_fields:
            if name in given and name not in _FAMILIES[scheme].model_fields:
                raise ParameterError(_flag(name), given[name], f"only with --scheme {other}")


def _check_point(question: Sweep, given: Mapping[str, object]) -> None:
    """Raise an error for options of a sweep if no parameter is swept."""
    for name in ("first", "last", "points"):
        if name in given:
            raise ParameterError(_flag(name), given[name], "only with --against")
    _check_needed(question)
    _check_sampled(question, question.clients)


def _check_swept(question: Sweep, given: Mapping[str, object]) -> None:
    """Raise an error for a fixed value of the swept parameter, or for a missing parameter."""
    if question.key in given:
        raise ParameterError(
            _flag(question.key), given[question.key], f"no value with --against {question.against}"
        )
    for name in ("first", "last"):
        if getattr(question, name) is None:
            raise ParameterError(_flag(name), MISSING, f"a value with --against {question.against}")
    _check_needed(question)
    _check_ends(question)
    _check_sampled(question, question.first if question.key == "clients" else question.clients)


def _check_needed(question: Sweep) -> None:
    """Raise an error if a parameter without a default has no value."""
    swept, fields = question.key if question.against else None, type(question).model_fields
    for name in question.needed:
        if name != swept and getattr(question, name) is None:
            raise ParameterError(_flag(name), MISSING, f"a value ({fields[name].description})")


def _check_ends(question: Sweep) -> None:
    """Raise an error for ends outside the parameter's domain or in the wrong order."""
    for name in ("first", "last"):
        value = getattr(question, name)
        if question.whole and value != int(value):
            raise ParameterError(
                _flag(name), value, f"a whole number with --against {question.against}"
            )
        if question.key == "delta":
            checks.open_unit(**{_flag(name): value})
    if not question.first < question.last:
        raise ParameterError("--to", question.last, f"more than --from = {question.first:g}")
    if not 2 <= question.points <= _MOST_POINTS:
        raise ParameterError("--points", question.points, f"from 2 to {_MOST_POINTS}")


def _check_sampled(question: Sweep, least_clients: float | None) -> None:
    """Raise an error for a sample that is larger than the number of clients."""
    sampled = getattr(question, "sampled", None)
    if sampled is not None and least_clients is not None and sampled > least_clients:
        expected = f"at most {least_clients:.0f}, the number of clients"
        raise ParameterError("--sampled", sampled, expected)


def _flag(key: str) -> str:
    """Command-line option of a field."""
    return _FLAGS.get(key, "--" + key.replace("_", "-"))


@dataclass(frozen=True, slots=True)
class ComparisonCurve:
    """Bounds of one method at all values of the sweep, with a reason where there is no bound."""

    method: Method[Any]
    quotes: Sequence[Quote | str]

    def blanks(self, values: Sequence[float]) -> list[tuple[float, str]]:
        """Values at which the method has no bound, each with the reason."""
        pairs = zip(values, self.quotes, strict=True)
        return [(value, quote) for value, quote in pairs if isinstance(quote, str)]

    @property
    def empty(self) -> bool:
        """Whether the method has no bound at any value."""
        return all(isinstance(quote, str) for quote in self.quotes)


@dataclass(frozen=True, eq=False, repr=False)
class SweepComparison:
    """Bounds on ε at every value of the swept parameter, with a curve for each method."""

    sweep: Sweep
    values: Sequence[float]
    curves: Sequence[ComparisonCurve]
    seconds: float

    def relation(self, method: Method[Any]) -> Relation:
        """Neighbouring relation of a method's bounds."""
        return method.relation or self.sweep.relation


def compared(
    question: Sweep, watch: Callable[[int, int], None] = lambda done, of: None
) -> SweepComparison:
    """Bounds of every method at every value of a sweep.

    Args:
        question: swept parameter, its values and the other parameters.
        watch: function that is called with the number of bounds computed so far and the number of
            all bounds.
    """
    values, started = question.values(), time.perf_counter()
    methods, settings = _family(question, values)
    quotes: list[list[Quote | str]] = [[] for _ in methods]
    for done, setting in enumerate(settings):
        for index, method in enumerate(methods):
            watch(done * len(methods) + index, len(settings) * len(methods))
            quotes[index].append(_quoted(method, setting))
    curves = [ComparisonCurve(method, row) for method, row in zip(methods, quotes, strict=True)]
    return SweepComparison(question, values, curves, time.perf_counter() - started)


def _family(question: Sweep, values: Sequence[float]) -> tuple[Sequence[Method[Any]], list[Any]]:
    """Methods to compare, and the setting that every method receives at each value of the sweep."""
    from turnout.accounting.published import comparison

    points, shuffled = [question.at(value) for value in values], isinstance(question, ShuffleSweep)
    own = [_own_method(words, shuffled, points[0]) for words in question.beside]
    if shuffled:
        settings = [comparison.ShuffleSetting(**at) for at in points]
        return (*comparison.SHUFFLE_METHODS, *own), settings
    return (*comparison.METHODS, *own), [comparison.Setting(**at) for at in points]


def _own_method(text: str, shuffled: bool, point: Mapping[str, Any]) -> Method[Any]:
    """Method that bounds ε of a further participation, or of messages of a further randomizer.

    Args:
        text: name of the participation or randomizer, and settings that the comparison lacks.
        shuffled: whether ``text`` describes a randomizer, whose messages are shuffled.
        point: parameters of the comparison, by name.

    Raises:
        ParameterError: the name or a setting is unknown, a setting is missing, or the text is not a
            name with settings.
    """
    from turnout.accounting import price
    from turnout.accounting.published.comparison import Method, Quote

    # The name and its settings; a plug-in of an installed package is imported by its name.
    word, own = _name_and_settings(text)
    kinds = question_randomizers if shuffled else scheme_kinds
    if word not in kinds():
        load("randomizers" if shuffled else "participations", word)
    allowed = [name for name in kinds() if shuffled or name not in SHUFFLES]
    if word not in allowed:
        raise ParameterError("beside", word, one_of(allowed))
    _check_settings(text, settings(kinds()[word]), own, point)

    # The bounds use those parameters of the comparison that the scheme has.
    def quote(setting: Any) -> Quote:
        named = {"scheme": word}
        if shuffled:
            shuffle = "subsampled-shuffle" if setting.sampled else "shuffle"
            named = {"scheme": shuffle, "randomizer": word}
        keys = _COMMON | {each.key for each in scheme_settings(named["scheme"])}
        shared = {key: value for key, value in asdict(setting).items() if key in keys}
        found = parse_query({**named, **shared, **own})
        return Quote.of(price(found.scheme, found.target.delta, found.target.tolerance).epsilon)

    # The description of the method names the plug-in and its version.
    plugin = plugin_of(kinds()[word])
    words = text if plugin is None else f"{text} ({plugin})"
    if shuffled:
        about, trust = f"the shuffled messages of the randomizer {words}", TrustModel.SHUFFLED
        return Method(word, about, quote, None, ("replace",), trust)
    return Method(word, f"the participation {words}, with the same noise", quote)


def _check_settings(
    text: str, known: Sequence[Parameter], own: Mapping[str, Any], point: Mapping[str, Any]
) -> None:
    """Raise an error for settings that the scheme does not have, or that have no value."""
    keys = [each.key for each in known if each.public]
    for key in own:
        if key not in keys:
            raise ParameterError("beside", text, f"no {key}, but {one_of(keys)}")
    for each in known:
        has_default = each.default is not None or each.optional or not each.public
        if not has_default and each.key not in {**own, **point}:
            raise ParameterError("beside", text, f"a value {each.key}=… ({each.words})")


def _name_and_settings(text: str) -> tuple[str, dict[str, object]]:
    """Name and values by key in a text such as ``rested pairs=2``."""
    word, *rest = text.split() or [""]
    own: dict[str, object] = {}
    for each in rest:
        key, _, value = each.partition("=")
        if not (key and value):
            raise ParameterError("beside", text, "a name and settings, such as 'rested pairs=2'")
        own[key.lstrip("-").replace("-", "_")] = _number(value)
    return word, own


def _number(value: str) -> float | str:
    """Text as a number, an int if it is whole; the text itself if it is no number."""
    try:
        number = float(value)
    except ValueError:
        return value
    return int(number) if number.is_integer() else number


def _quoted(method: Method[Any], setting: Any) -> Quote | str:
    """Bound on ε of a method, or the reason why there is none."""
    try:
        quote = method.quote(setting)
    except ParameterError as refusal:
        if refusal.name == "local_epsilon":  # a theorem's name of the option --epsilon0
            return f"ε₀ = {refusal.value:g}: expected {refusal.expected}"
        return str(refusal)
    except (UnsupportedError, NumericalError) as refusal:
        return str(refusal)
    return quote if math.isfinite(quote.epsilon) else "the method has no finite ε here"
