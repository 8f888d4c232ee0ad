"""A question to accounting without a plan around it: what is this worth, or which value?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Self

from pydantic import Field, ValidationError

from turnout.core.errors import ParameterError
from turnout.plans.fields import OpenUnit, Positive, Section
from turnout.plans.laws import (
    CheckInSection,
    EveryStepSection,
    KSubsetSection,
    PoissonSection,
    SlidingSection,
)
from turnout.plans.refusals import MISSING, choices, refusal, tables
from turnout.spec import GaussianNoise, Relation, ReleaseRule, Scheme

if TYPE_CHECKING:
    from turnout.accounting import Guarantee
    from turnout.accounting.calibration import Calibration, Unknown

SCHEMES = {
    "none": "every-step",
    "poisson": "poisson",
    "check-in": "check-in",
    "sliding": "sliding",
    "k-subset": "k-subset",
}
"""What a question calls a law, and what a plan calls it."""
NOISE, DELTA = "noise-multiplier", "delta"
"""What can be solved for besides the parameters of a law."""


class _Promise(Section):
    """Noise, relation and δ."""

    relation: Relation = Field(description="the neighbouring relation; there is no default")
    delta: OpenUnit = Field(description="the δ of (ε, δ)")
    noise_multiplier: Positive | None = Field(
        None, description="standard deviation of the noise divided by the clip norm"
    )
    epsilon: Positive | None = Field(None, description="the ε to calibrate to")
    release: ReleaseRule = Field(ReleaseRule.AGGREGATED, description="what a step releases")
    tolerance: OpenUnit = Field(1e-3, description="largest (upper − lower) / upper asked for")


class Question(Section):
    """A participation law and a promise."""

    participation: Annotated[
        EveryStepSection | PoissonSection | CheckInSection | SlidingSection | KSubsetSection,
        Field(discriminator="law"),
    ]
    promise: _Promise

    def scheme_for(self, noise_multiplier: float) -> Scheme:
        """The scheme with that noise."""
        law = self.participation
        # A client's guarantee under sliding windows is her own window's. The run must be so long
        # that somebody's whole window is released: 2·window − 1 slots, warm-up included.
        population = 2 * law.window - 1 if isinstance(law, SlidingSection) else 1
        return Scheme(
            GaussianNoise(noise_multiplier),
            law.spec(population),
            self.promise.relation,
            self.promise.release,
        )

    def answered(self, unknown: str, value: float) -> Self:
        """The question with a value for one parameter of its law or of its promise."""
        key = unknown.replace("-", "_")
        part = "promise" if key in _Promise.model_fields else "participation"
        section: Section = getattr(self, part)
        return self.model_copy(update={part: section.model_copy(update={key: value})})


def ask(flags: Mapping[str, object], unknown: str | None = None) -> Question:
    """The question that command-line flags put.

    Args:
        flags: by name without dashes, None where not given; ``scheme`` is a key of `SCHEMES`.
        unknown: a parameter that is asked for and must not be given; the question then has its
            most private value in its place.

    Raises:
        ParameterError: a flag, named with its value and what is allowed.
    """
    given = {name: value for name, value in flags.items() if value is not None}
    scheme = given.pop("scheme", None)
    if scheme not in SCHEMES:
        value = MISSING if scheme is None else scheme
        raise ParameterError("--scheme", value, f"one of {', '.join(map(repr, SCHEMES))}")
    if unknown is not None:
        given |= _stand_in(unknown, str(scheme), given)
    promise = {name: given.pop(name) for name in _Promise.model_fields if name in given}
    law = {"law": SCHEMES[str(scheme)], **given}
    try:
        question = Question.model_validate({"participation": law, "promise": promise})
        question.scheme_for(1.0)
    except ValidationError as error:
        raise refusal(error, Question, _flag) from None
    except ParameterError as error:
        raise ParameterError(_flag(error.name), error.value, error.expected) from None
    return question


def _flag(key: str) -> str:
    """A dotted key as a command-line flag."""
    name = key.rpartition(".")[2]
    return "--scheme" if name == "law" else "--" + name.replace("_", "-")


def account(question: Question) -> Guarantee:
    """What the question's noise is worth.

    Raises:
        ParameterError: no noise multiplier, or a target beside it.
        UnsupportedError: no sound analysis is known.
        NumericalError: nothing can be certified.
    """
    from turnout.accounting import price

    promise = question.promise
    if promise.noise_multiplier is None:
        raise ParameterError("--noise-multiplier", MISSING, "a finite number above 0")
    scheme = question.scheme_for(promise.noise_multiplier)
    return price(scheme, promise.delta, promise.tolerance)


def calibrate(question: Question, unknown: str = NOISE) -> tuple[Question, Calibration]:
    """The value of one unknown that spends the question's ε.

    Args:
        question: asked with the same unknown.
        unknown: one of `solvable`.

    Returns:
        the question with that value in its place, and what was found. The bounds on ε of both
        `epsilon_upper` and, where it has an answer, `price` are at most the target.

    Raises:
        ParameterError: no target, or no noise multiplier where it is not what is asked for.
        UnsupportedError: no sound analysis is known, or no value meets the target.
        NumericalError: nothing can be certified.
    """
    from turnout.accounting.calibration import calibrate, calibrate_delta

    promise, noise = question.promise, question.promise.noise_multiplier
    if promise.epsilon is None:
        raise ParameterError("--epsilon", MISSING, "a finite number above 0")
    if noise is None:
        raise ParameterError("--noise-multiplier", MISSING, "a finite number above 0")
    if unknown == DELTA:
        scheme = question.scheme_for(noise)
        found = calibrate_delta(scheme, promise.epsilon, tolerance=promise.tolerance)
        return question.answered(DELTA, found.value), found

    def scheme_for(value: float) -> Scheme:
        one = question.answered(unknown, value)
        return one.scheme_for(one.promise.noise_multiplier or noise)

    searched = _within_law(_unknown(unknown), question)
    found = calibrate(
        scheme_for, searched, promise.epsilon, promise.delta, tolerance=promise.tolerance
    )
    return question.answered(unknown, found.value), found


def solvable(scheme: str) -> list[str]:
    """What can be solved for under a law, by the names of flags without their dashes."""
    from turnout.accounting.calibration import UNKNOWNS

    law = SCHEMES[scheme]
    section = next(
        kind
        for kind in tables(Question, "participation")
        if law in choices(kind.model_fields["law"].annotation)
    )
    own = [name for name in UNKNOWNS if name.replace("-", "_") in section.model_fields]
    return [NOISE, *own, DELTA]


def _stand_in(unknown: str, scheme: str, given: Mapping[str, object]) -> dict[str, float]:
    """The most private value of what is asked for, under the name of its flag."""
    allowed, key = solvable(scheme), unknown.replace("-", "_")
    if unknown not in allowed:
        raise ParameterError("--solve-for", unknown, f"one of {', '.join(map(repr, allowed))}")
    if key in given:
        raise ParameterError(_flag(key), given[key], f"nothing beside --solve-for {unknown}")
    return {key: _unknown(unknown).private_limit}


def _unknown(name: str) -> Unknown:
    """What accounting knows of one of `solvable`."""
    from turnout.accounting.calibration import UNKNOWNS
    from turnout.accounting.calibration.unknowns import DELTA as DELTA_UNKNOWN

    return DELTA_UNKNOWN if name == DELTA else UNKNOWNS[name]


def _within_law(unknown: Unknown, question: Question) -> Unknown:
    """The unknown within the limits that the rest of the law leaves: picks fit into a window."""
    law = question.participation
    if isinstance(law, KSubsetSection) and unknown.name == "picks":
        return replace(unknown, most=law.window)
    if isinstance(law, KSubsetSection) and unknown.name == "window":
        return replace(unknown, least=law.picks)
    return unknown
