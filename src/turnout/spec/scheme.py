"""A scheme: everything that accounting, sampling and the protocol must agree on."""

from __future__ import annotations

from dataclasses import dataclass

from turnout.core import checks
from turnout.core.errors import ParameterError, UnsupportedError
from turnout.spec.neighbours import PrivacyUnit, Relation, SpeakingOrder, TrustModel
from turnout.spec.participation import ParticipationLaw
from turnout.spec.randomizers import GaussianNoise, Randomizer
from turnout.spec.releases import ReleaseRule


@dataclass(frozen=True, slots=True)
class Scheme:
    """What happens, as mathematics: randomizer, who comes when, what is released, against whom.

    Attributes:
        randomizer: protects one contribution.
        participation: who takes part when.
        relation: the neighbouring relation. No default, on purpose.
        release: what a step makes of those who came.
        unit: what one record is.
        trust: whom the client must trust.
        population: clients there are, herself among them, who all follow the protocol; None where
            nobody knows. Only what other clients' messages hide rests on it.
        order: who may know which client sends which shuffled message, or its name; None where it
            is not declared. Only randomizers that earlier messages may choose rest on it: without
            `SpeakingOrder.HIDDEN` their shuffled messages have no price.
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
        if self.population is not None:
            checks.count(population=self.population)
        if self.order is not None:
            object.__setattr__(self, "order", _order(self.order))

    @property
    def noise_multiplier(self) -> float:
        """σ of Gaussian noise, the one randomizer that training executes.

        Raises:
            UnsupportedError: the randomizer is another one.
        """
        if not isinstance(self.randomizer, GaussianNoise):
            raise UnsupportedError(
                f"only Gaussian noise has a noise multiplier, not {type(self.randomizer).__name__}"
            )
        return self.randomizer.noise_multiplier


def _order(value: str) -> SpeakingOrder:
    """The order of this name.

    Raises:
        ParameterError: there is none.
    """
    try:
        return SpeakingOrder(value)
    except ValueError:
        expected = f"one of {', '.join(repr(order.value) for order in SpeakingOrder)}"
        raise ParameterError("order", value, expected) from None
