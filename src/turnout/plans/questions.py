"""A question to accounting without a plan around it: what is this worth, or which noise?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

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
from turnout.plans.refusals import MISSING, refusal
from turnout.spec import GaussianNoise, Relation, ReleaseRule, Scheme

if TYPE_CHECKING:
    from turnout.accounting import Guarantee

SCHEMES = {
    "none": "every-step",
    "poisson": "poisson",
    "check-in": "check-in",
    "sliding": "sliding",
    "k-subset": "k-subset",
}
"""What a question calls a law, and what a plan calls it."""


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


def ask(flags: Mapping[str, object]) -> Question:
    """The question that command-line flags put.

    Args:
        flags: by name without dashes, None where not given; ``scheme`` is a key of `SCHEMES`.

    Raises:
        ParameterError: a flag, named with its value and what is allowed.
    """
    given = {name: value for name, value in flags.items() if value is not None}
    scheme = given.pop("scheme", None)
    if scheme not in SCHEMES:
        value = MISSING if scheme is None else scheme
        raise ParameterError("--scheme", value, f"one of {', '.join(map(repr, SCHEMES))}")
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


def calibrate(question: Question) -> tuple[float, Guarantee]:
    """The noise multiplier that meets the question's ε, and what it is worth.

    Returns:
        a noise multiplier whose proved ε is at most the target.

    Raises:
        ParameterError: no target.
        UnsupportedError: no sound analysis is known.
        NumericalError: nothing can be certified.
    """
    from turnout.accounting import calibrate_noise, price

    promise = question.promise
    if promise.epsilon is None:
        raise ParameterError("--epsilon", MISSING, "a finite number above 0")
    noise_multiplier = calibrate_noise(question.scheme_for, promise.epsilon, promise.delta)
    scheme = question.scheme_for(noise_multiplier)
    return noise_multiplier, price(scheme, promise.delta, promise.tolerance)
