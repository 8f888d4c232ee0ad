"""Settings of schemes by name, of which keys of plans, options and questions are made.

Each participation, randomizer, shuffle and privacy target declares its parameters once, as fields
of its dataclass (`turnout.schemes.parameters`). `settings` lists them, and `values_of` checks given
values against them and fills in defaults. `participation_of` makes a participation of such values,
`scheme_of` a whole scheme. A setting that belongs to another participation or randomizer is an
error with the name of its owner. Errors have the user's names of settings, such as ``--window`` for
``window``, which a `Naming` returns.

Readers: `plans.sections` for the table ``[participation]``, `plans.questions` for questions,
`cli.options` for options of commands, `api.calibrate` for the parameters to solve for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any

from turnout.core import checks
from turnout.core.errors import ParameterError
from turnout.schemes.parameters import Checked, Domain, Parameter, open_unit, parameters, positive
from turnout.schemes.randomizers import Randomizer
from turnout.schemes.registry import (
    Participation,
    all_participations,
    participation_names,
    question_randomizers,
    shuffled_randomizers,
)
from turnout.schemes.scheme import RELATION, SHUFFLES, Relation, ReleaseRule, Scheme

Naming = Callable[[str], str]
"""Function from the name of a setting to the name that the user knows it by."""


class _Missing:
    """Marker of a value that was not given."""

    def __repr__(self) -> str:
        return "(missing)"


MISSING = _Missing()
"""Value of a `ParameterError` about a setting that was not given."""

DEFAULT_RANDOMIZER = "gaussian"
"""Randomizer of a question without a shuffler that names none."""


@dataclass(frozen=True, slots=True)
class PrivacyTarget(Checked):
    """Target of a question about a scheme: δ, perhaps ε, and the width of the bounds.

    Attributes:
        delta: δ, strictly between 0 and 1.
        epsilon: target ε, above 0; None where there is none.
        tolerance: largest relative width of the bounds on ε, strictly between 0 and 1.
    """

    delta: float = open_unit("the δ of (ε, δ)")
    epsilon: float | None = positive("the ε to calibrate to", optional=True)
    tolerance: float = open_unit("largest (upper − lower) / upper of the bounds", 1e-3)


RELATION_SETTING = Parameter(
    "relation",
    Domain.CHOICE,
    "the neighbouring relation; there is no default",
    key="relation",
    members=Relation,
)
RELEASE_SETTING = Parameter(
    "release",
    Domain.CHOICE,
    "what a step releases",
    ReleaseRule.AGGREGATED,
    key="release",
    members=ReleaseRule,
)
CLIENTS_SETTING = Parameter(
    "population",
    Domain.COUNT,
    "of averaged releases: number of clients, all of whom follow the protocol",
    key="clients",
    optional=True,
)
"""Settings of a scheme besides those of its participation and randomizer."""


def settings(kind: type[Any]) -> tuple[Parameter, ...]:
    """Settings of a participation, a randomizer, a shuffle or a target, in order of its fields."""
    return tuple(each for each in parameters(kind) if each.public)


def setting_of(kind: type[Any], key: str) -> Parameter:
    """Setting of a class by its key, which the class must have."""
    return next(each for each in settings(kind) if each.key == key)


COMPARISON_TOLERANCE = replace(setting_of(PrivacyTarget, "tolerance"), default=1e-2)
"""Width of the bounds where many methods are compared at many points."""


def noise_setting(kind: type[Any]) -> Parameter | None:
    """Setting that is the amount of noise of a randomizer: its first positive one, or None."""
    return next((each for each in settings(kind) if each.domain is Domain.POSITIVE), None)


def planned_participations() -> Mapping[str, type[Any]]:
    """Participations that plans make of settings alone, by their words in plans."""
    return {names.plan: kind for kind, names in all_participations().items() if _is_planned(kind)}


def scheme_kinds() -> Mapping[str, type[Any]]:
    """Participations of questions and the shuffles, by their words in questions."""
    participations = {
        names.question: kind
        for kind, names in all_participations().items()
        if names.question is not None and _is_planned(kind)
    }
    return participations | dict(SHUFFLES)


def scheme_settings(word: str) -> tuple[Parameter, ...]:
    """Settings of a scheme in questions, by its word, without those of its randomizer."""
    kind = scheme_kinds()[word]
    counted = word not in SHUFFLES and participation_names(kind).averaged_clients
    clients = (CLIENTS_SETTING,) if counted else ()
    release = () if word in SHUFFLES else (RELEASE_SETTING,)
    return (*settings(kind), *clients, RELATION_SETTING, *release)


def _is_planned(kind: type[Any]) -> bool:
    """Whether a plan can build the participation from settings and the number of clients."""
    own = {each.name for each in parameters(kind)}
    return hasattr(kind, "for_plan") or all(each.name in own for each in fields(kind))


def values_of(own: Iterable[Parameter], given: Mapping[str, Any]) -> dict[str, Any]:
    """Values by field name: those given by key, checked, and the defaults of the others.

    Args:
        own: settings; only their keys are read.
        given: values by key.

    Raises:
        ParameterError: a value that is missing, outside its domain or above another one that
            limits it. The error names the key.
    """
    values: dict[str, Any] = {}
    own = tuple(own)
    # Each value by itself, then those that another one limits.
    for each in own:
        value = given.get(each.key, each.default)
        if value is None and each.required:
            raise ParameterError(each.key, MISSING, expected_of(each))
        values[each.name] = each.checked(value)
    for each in own:
        if each.at_most in values:
            limit = values[each.at_most]
            checks.at_most(each.at_most, limit, **{each.key: values[each.name]})
    return values


def expected_of(parameter: Parameter) -> str:
    """Text of an error about a missing value: its description, and the allowed words."""
    if parameter.members is None:
        return f"a value ({parameter.words})"
    return f"{parameter.words}: {one_of(list(parameter.members))}"


def one_of(words: Collection[str]) -> str:
    """Text of the words among which one must be chosen."""
    return f"one of {', '.join(repr(str(word)) for word in words)}"


def participation_of(
    kind: type[Any], values: Mapping[str, Any], population: int | None
) -> Participation:
    """Participation of a kind with the values of its settings.

    Args:
        kind: class of the participation.
        values: values of its settings by field name.
        population: number of clients; None in a question, which does not give it.

    Raises:
        ParameterError: the values do not fit the number of clients.
    """
    if population is None and hasattr(kind, "for_question"):
        return kind.for_question(**values)
    clients = 1 if population is None else population
    if hasattr(kind, "for_plan"):
        return kind.for_plan(clients, **values)
    counted = {each.name for each in fields(kind)} & {"population"}
    return kind(**values, **dict.fromkeys(counted, clients))


def kinds_of(
    given: Mapping[str, Any], names: Naming = str, unknown: str | None = None
) -> tuple[str, str]:
    """Words of the scheme and of the randomizer that given settings describe.

    Args:
        given: values by key, ``scheme`` among them. Without ``randomizer`` the randomizer is
            Gaussian; with a shuffle it follows from the level that is given.
        names: names of settings in texts of errors.
        unknown: key of a setting that is to be solved for and counts as given.

    Raises:
        ParameterError: a word that is no scheme or no randomizer of questions.
    """
    # The scheme, then the randomizer: for a shuffle one whose shuffled messages have an analysis.
    scheme, randomizer = given.get("scheme"), given.get("randomizer")
    known = scheme_kinds()
    if scheme not in known:
        raise ParameterError("scheme", MISSING if scheme is None else scheme, one_of(known))
    if scheme in SHUFFLES:
        randomizer = randomizer or _randomizer_of_level({*given, unknown}, given, names)
        allowed = shuffled_randomizers()
        if randomizer not in allowed:
            expected = f"{one_of(allowed)} with {names('scheme')} {scheme}"
            raise ParameterError("randomizer", randomizer, expected)
    randomizer = randomizer or DEFAULT_RANDOMIZER
    if randomizer not in question_randomizers():
        raise ParameterError("randomizer", randomizer, one_of(question_randomizers()))
    return str(scheme), str(randomizer)


def _randomizer_of_level(
    keys: Collection[str | None], given: Mapping[str, Any], names: Naming
) -> str:
    """Word of the randomizer of shuffled messages, from the level that is given or solved for."""
    noisy = "noise_multiplier" in keys
    if "noise_multiplier" in given and "epsilon0" in keys:
        expected = f"no value with {names('epsilon0')}"
        raise ParameterError("noise_multiplier", given["noise_multiplier"], expected)
    if "delta0" in keys:
        return "approximate"
    return "gaussian" if noisy else "pure"


def scheme_of(given: Mapping[str, Any], names: Naming = str) -> Scheme:
    """Scheme of the given settings, with defaults for the others.

    Args:
        given: values by key: ``scheme``, perhaps ``randomizer``, and settings of both.
        names: the user's names of settings, for errors.

    Raises:
        ParameterError: a value that is missing or outside its domain, or a setting that belongs
            to another scheme or randomizer. The error has the user's name of the setting.
    """
    with renamed(names):
        # Every given setting must belong to the scheme or to its randomizer.
        scheme, randomizer = kinds_of(given, names)
        if scheme in SHUFFLES:
            _check_shuffled(given, scheme, names)
        _check_owners(given, scheme, randomizer, names)
        if scheme in SHUFFLES:
            _check_level(given, randomizer, names)
        # Values of the randomizer first, then of the participation or shuffle.
        protected = randomizer_of(randomizer, given)
        kind = scheme_kinds()[scheme]
        values = values_of(settings(kind), given)
        if scheme in SHUFFLES:
            return kind(**values).scheme(protected)
        # The number of clients counts where a release averages their noisy updates.
        terms = values_of((CLIENTS_SETTING, RELATION_SETTING, RELEASE_SETTING), given)
        if terms["population"] is not None and terms["release"] is not ReleaseRule.AVERAGED:
            averaged = f"{names('release')} {ReleaseRule.AVERAGED.value}"
            raise ParameterError("clients", terms["population"], f"only with {averaged}")
        return Scheme(protected, participation_of(kind, values, None), **terms)


def randomizer_of(word: str, given: Mapping[str, Any]) -> Randomizer:
    """Randomizer that accounting prices, by its word in questions, with given values by key.

    Raises:
        ParameterError: a value that is missing or outside its domain.
    """
    kind = question_randomizers()[word]
    made = kind(**values_of(settings(kind), given))
    return getattr(made, "priced_as", made)


def _check_owners(given: Mapping[str, Any], scheme: str, randomizer: str, names: Naming) -> None:
    """Refuse settings that neither the scheme nor its randomizer has, naming their owners."""
    randomizers = {word: _keys(settings(kind)) for word, kind in question_randomizers().items()}
    schemes = {word: _keys(scheme_settings(word)) for word in scheme_kinds()}
    own = schemes[scheme] | randomizers[randomizer] | {"scheme", "randomizer"}
    for key, value in given.items():
        if key in own:
            continue
        for option, kinds in (("randomizer", randomizers), ("scheme", schemes)):
            if owners := [word for word, keys in kinds.items() if key in keys]:
                expected = f"only with {names(option)} {_any_of(owners)}"
                raise ParameterError(key, value, expected)
        raise ParameterError(key, value, f"one of {', '.join(map(names, sorted(own)))}")


def _keys(own: Iterable[Parameter]) -> set[str]:
    """Keys of settings."""
    return {each.key for each in own}


def _any_of(words: list[str]) -> str:
    """Alternatives as text."""
    *first, last = words
    return f"{', '.join(first)} or {last}" if first else last


def _check_shuffled(given: Mapping[str, Any], scheme: str, names: Naming) -> None:
    """Refuse a relation or a release that shuffled messages cannot have."""
    relation, shuffle = given.get("relation", RELATION.value), f"{names('scheme')} {scheme}"
    if relation != RELATION.value:
        expected = (
            f"{RELATION.value}, the default with {shuffle}: the number of messages is public, so "
            "whether a client took part is not hidden"
        )
        raise ParameterError("relation", relation, expected)
    if "release" in given:
        expected = f"no value with {shuffle}: a shuffler shows all messages"
        raise ParameterError("release", given["release"], expected)


def _check_level(given: Mapping[str, Any], randomizer: str, names: Naming) -> None:
    """Refuse shuffled messages without a randomizer or its level."""
    levels = _keys(settings(question_randomizers()[randomizer]))
    if "randomizer" not in given and not levels & set(given):
        noise = names("noise_multiplier")
        expected = f"the ε₀ of one message, or {noise} for Gaussian noise of each client's own"
        raise ParameterError("epsilon0", MISSING, expected)


@contextmanager
def renamed(names: Naming) -> Iterator[None]:
    """Replace names of settings in errors by the user's names of them."""
    try:
        yield
    except ParameterError as error:
        raise ParameterError(names(error.name), error.value, error.expected) from None
