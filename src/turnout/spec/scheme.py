"""A scheme: everything that accounting, sampling and the protocol must agree on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import get_args

from turnout.core import checks
from turnout.core.errors import ParameterError
from turnout.spec.classes import hold_members, plain_numbers
from turnout.spec.forms import normal_form
from turnout.spec.neighbours import PrivacyUnit, Relation, SpeakingOrder, TrustModel
from turnout.spec.randomizers import FIXED_RANDOMIZERS, Randomizer
from turnout.spec.registry import ParticipationLaw, all_laws, is_registered
from turnout.spec.releases import ReleaseRule

_RANDOMIZERS: tuple[type, ...] = (*get_args(Randomizer), *FIXED_RANDOMIZERS)


@dataclass(frozen=True, slots=True)
class Scheme:
    """What happens, as mathematics: randomizer, who comes when, what is released, against whom.

    Attributes:
        randomizer: protects one contribution.
        participation: who takes part when.
        relation: the neighbouring relation, by its member or its exact word, like release, unit
            and trust; it is held as the member. No default, on purpose.
        release: what a step makes of those who came.
        unit: what one record is.
        trust: whom the client must trust.
        population: clients there are, herself among them, who all follow the protocol; None where
            nobody knows. Only what other clients' messages hide rests on it.
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
        self._check_population()

    def _check_population(self) -> None:
        """A number of clients, and the same one where the law has one too."""
        if self.population is None:
            return
        checks.count(population=self.population)
        own = normal_form(self.participation).population
        if own is not None and self.population != own:
            raise ParameterError("population", self.population, f"the law's own, {own}")
        plain_numbers(self)


def _of_no(name: str, value: object, known: Iterable[type]) -> ParameterError:
    """The error about an object of none of the classes."""
    names = ", ".join(kind.__name__ for kind in known)
    return ParameterError(name, value, f"an object of one of {names}")
