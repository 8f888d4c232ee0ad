"""Laws of a question about shuffled messages: one section for each scheme.

No plan has them: training sends updates to a coordinator, not messages through a shuffler.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Self

from pydantic import Field, model_validator

from turnout.core import checks
from turnout.core.errors import ParameterError
from turnout.plans.fields import Count, Probability, Section
from turnout.plans.laws import LAW, section_of
from turnout.schemes import CheckIn, Randomizer, ReleaseRule, Scheme, SpeakingOrder
from turnout.schemes.registry import shuffled_randomizers
from turnout.schemes.scheme import RELATION, shuffled

CLIENTS = "clients there are, all of whom follow the protocol"
ROUNDS = "rounds, each of which is shuffled afresh"
ORDER = "who may know which client sends which message"
MISSING_LEVEL = (
    "the ε₀ of one message, or --noise-multiplier for Gaussian noise of each client's own"
)


class ShuffleSection(Section):
    """Every client sends one message a round through a shuffler."""

    law: Literal["shuffle"] = Field(description=LAW)
    clients: Count = Field(description=CLIENTS)
    rounds: Count = Field(1, description=ROUNDS)
    order: SpeakingOrder | None = Field(None, description=ORDER)


class SubsampledShuffleSection(Section):
    """Each round the shuffler asks ``sampled`` of all clients, a uniform subset."""

    law: Literal["subsampled-shuffle"] = Field(description=LAW)
    sampled: Count = Field(description="clients who send a message in a round")
    clients: Count = Field(description=CLIENTS)
    rounds: Count = Field(1, description=ROUNDS)
    order: SpeakingOrder | None = Field(None, description=ORDER)

    @model_validator(mode="after")
    def _sampled_of_clients(self) -> Self:
        checks.at_most("clients", self.clients, sampled=self.sampled)
        return self


class SelfSamplingShuffleSection(Section):
    """Each round each client sends a message with probability ``rate``, drawn on the client."""

    law: Literal["self-sampling-shuffle"] = Field(description=LAW)
    rate: Probability = Field(description="chance of a client in a round")
    clients: Count = Field(description=CLIENTS)
    rounds: Count = Field(1, description=ROUNDS)
    order: SpeakingOrder | None = Field(None, description=ORDER)


class CountedCheckInSection(section_of(CheckIn)):
    """Check-ins of a known number of clients, whose noisy updates hide each other if averaged."""

    clients: Count | None = Field(None, description=CLIENTS)


Shuffled = ShuffleSection | SubsampledShuffleSection | SelfSamplingShuffleSection
"""The laws under which a shuffler hides who sent what."""
SHUFFLED: Mapping[str, type[Shuffled]] = {
    "shuffle": ShuffleSection,
    "subsampled-shuffle": SubsampledShuffleSection,
    "self-sampling-shuffle": SelfSamplingShuffleSection,
}
"""Their sections, by the words of schemes whose messages go through a shuffler."""


def shuffled_scheme(law: Shuffled, randomizer: Randomizer) -> Scheme:
    """The scheme of shuffled messages, in a hidden order if nothing is said and it matters."""
    return shuffled(randomizer, **law.model_dump(exclude={"law"}))


def shuffled_flags(scheme: str, given: dict[str, object], unknown: str | None) -> dict[str, object]:
    """The given flags of a question about shuffled messages, with what need not be said.

    Raises:
        ParameterError: a relation, release or randomizer that shuffled messages do not have.
    """
    relation, release = given.get("relation", RELATION.value), given.get("release")
    if relation != RELATION.value:
        expected = (
            f"{RELATION.value}, the default with --scheme {scheme}: everybody sees how many "
            "messages there are, so whether a client took part is not hidden"
        )
        raise ParameterError("--relation", relation, expected)
    if release is not None:
        expected = f"nothing beside --scheme {scheme}: a shuffler shows all messages"
        raise ParameterError("--release", release, expected)
    kind = given.get("randomizer") or _inferred(given, unknown)
    known = shuffled_randomizers()
    if kind not in known:
        expected = f"one of {', '.join(map(repr, known))} beside --scheme {scheme}"
        raise ParameterError("--randomizer", kind, expected)
    return {**given, "relation": relation, "randomizer": kind}


def counted_population(law: CountedCheckInSection, release: ReleaseRule) -> int | None:
    """The number of clients that hide each other at a check-in.

    Raises:
        ParameterError: a number of clients where it counts for nothing.
    """
    if law.clients is not None and release is not ReleaseRule.AVERAGED:
        raise ParameterError("--clients", law.clients, "--release averaged beside it")
    return law.clients


def _inferred(given: dict[str, object], unknown: str | None) -> str:
    """The randomizer that is meant by the one level that is given, or asked for."""
    noise = given.get("noise_multiplier")
    if noise is not None and ("epsilon0" in given or unknown == "epsilon0"):
        raise ParameterError("--noise-multiplier", noise, "either it or --epsilon0")
    if "delta0" in given:
        return "approximate"
    if noise is not None or unknown == "noise-multiplier":
        return "gaussian"
    return "pure"
