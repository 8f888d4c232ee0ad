"""A scheme: everything that accounting, sampling and the protocol must agree on.

There is no default relation anywhere: a number without relation, privacy unit and trust model is
not a guarantee.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, get_args

from turnout.core.errors import ParameterError
from turnout.spec.forms import normal_form
from turnout.spec.parameters import hold_members, plain_numbers
from turnout.spec.randomizers import FIXED_RANDOMIZERS, Randomizer
from turnout.spec.registry import ParticipationLaw, all_laws, is_registered


class Relation(StrEnum):
    """Which two worlds an adversary must not tell apart."""

    ADD_REMOVE = "add-remove"
    """The client was never there."""
    ZERO_OUT = "zero-out"
    """The client takes part with the null record (a zero update)."""
    REPLACE_ONE = "replace-one"
    """The client's record is another one."""


class PrivacyUnit(StrEnum):
    """The unit of privacy: the meaning of "one record"."""

    CLIENT = "client"
    """Everything that one client holds; the client draws when it takes part, with all of it."""
    EXAMPLE = "example"
    """One record, which draws by itself when it takes part and is clipped by itself.

    Where one draw stands for all records of a client, the others betray when a record took part:
    no amplification is left, and this is not the unit of such a scheme.
    """


class TrustModel(StrEnum):
    """The parties that the client must trust for the guarantee to hold."""

    CENTRAL = "central"
    """A coordinator that sees updates and check-in times and adds or guards the noise."""
    LOCAL = "local"
    """Nobody: each message is private on its own."""
    SHUFFLED = "shuffled"
    """A shuffler that hides who sent what."""


class SpeakingOrder(StrEnum):
    """The knowledge of who sends which message of a shuffled round.

    Bounds for randomizers that earlier messages may choose hold for `HIDDEN` alone: who is known to
    speak first can be singled out by what later clients are asked (docs/errata.md has numbers). One
    randomizer that all clients use and that is chosen before the round needs no such condition.
    """

    HIDDEN = "hidden"
    """Uniform, and unknown to the adversary and to whoever chooses the next randomizer."""
    KNOWN = "known"
    """Anything else: order of arrival, or a server that addresses clients one after the other."""


class ReleaseRule(StrEnum):
    """The release rule: how a step turns check-ins into one public model change.

    Guarantees (docs/design/protocols.md derives what each is worth):
        AGGREGATED: the sum of all clipped updates plus one Gaussian, divided by the *public
            expected* number of check-ins; noise is released even when nobody came. A client
            moves the release by at most C when it is added, removed or zeroed out.
        ONE_CLIENT: Algorithm 1 of the check-in paper. One of those who checked in, drawn
            uniformly, sends a noisy update; a dummy (zero) update with noise when nobody
            came. It may displace somebody else's update, so adding a client moves the
            release by up to 2C.
        AVERAGED: Algorithm 2. The average of the noisy updates of all who came; the step is
            skipped when nobody came. The adversary learns the *counts*.
    """

    AGGREGATED = "aggregated"
    ONE_CLIENT = "one-client"
    AVERAGED = "averaged"

    @property
    def asks_one(self) -> bool:
        """Whether one of those who checked in is asked for an update, and not all."""
        return self is ReleaseRule.ONE_CLIENT

    @property
    def shows_counts(self) -> bool:
        """Whether a release tells how many came."""
        return self is ReleaseRule.AVERAGED


_RANDOMIZERS: tuple[type, ...] = (*get_args(Randomizer), *FIXED_RANDOMIZERS)


@dataclass(frozen=True, slots=True)
class Scheme:
    """A scheme as mathematics: randomizer, participation law, release, relation, unit and trust.

    Attributes:
        relation: the neighbouring relation, by its member or its exact word, like release, unit
            and trust; it is held as the member. No default, on purpose.
        population: clients there are, the protected one among them, who all follow the protocol;
            None where nobody knows. Only what other clients' messages hide rests on it.
        order: who may know which client sends which shuffled message, or its name; None where it
            is not declared. Only randomizers that earlier messages may choose rest on it: without
            `SpeakingOrder.HIDDEN` their shuffled messages have no price.

    Raises:
        ParameterError: a word that is no member, naming those there are; an object of a class that
            is no randomizer of `turnout.spec` and no registered law; another population than the
            law's own.
    """

    randomizer: Randomizer
    participation: ParticipationLaw
    relation: Relation
    release: ReleaseRule = ReleaseRule.AGGREGATED
    unit: PrivacyUnit = PrivacyUnit.CLIENT
    trust: TrustModel = TrustModel.CENTRAL
    population: int | None = None
    order: SpeakingOrder | None = None

    if TYPE_CHECKING:  # members or their words go in, members come out

        def __init__(  # noqa: PLR0917
            self,
            randomizer: Randomizer,
            participation: ParticipationLaw,
            relation: Relation | str,
            release: ReleaseRule | str = ReleaseRule.AGGREGATED,
            unit: PrivacyUnit | str = PrivacyUnit.CLIENT,
            trust: TrustModel | str = TrustModel.CENTRAL,
            population: int | None = None,
            order: SpeakingOrder | str | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        if type(self.randomizer) not in _RANDOMIZERS:
            raise _of_no("randomizer", self.randomizer, _RANDOMIZERS)
        if not is_registered(type(self.participation)):
            raise _of_no("participation", self.participation, all_laws())
        hold_members(
            self, relation=Relation, release=ReleaseRule, unit=PrivacyUnit, trust=TrustModel
        )
        if self.order is not None:
            hold_members(self, order=SpeakingOrder)
        if self.population is not None:
            normal_form(self.participation).check_population(self.population)
            plain_numbers(self)


def _of_no(name: str, value: object, known: Iterable[type]) -> ParameterError:
    """The error about an object of none of the classes."""
    names = ", ".join(kind.__name__ for kind in known)
    return ParameterError(name, value, f"an object of one of {names}")
