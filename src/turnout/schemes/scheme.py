"""Schemes: what accounting, sampling, protocol and verification must agree on.

`Scheme` joins a randomizer, a participation, a release rule and a relation; `shuffled` builds one
whose messages pass a shuffler, which hides who sent what. The relation has no default: a number
without relation, privacy unit and trust model is no guarantee.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, get_args

from turnout.core.errors import ParameterError
from turnout.schemes.normal_form import normal_form
from turnout.schemes.parameters import (
    Checked,
    chance,
    choice,
    count,
    hold_members,
    plain_numbers,
)
from turnout.schemes.randomizers import FIXED_RANDOMIZERS, Randomizer, is_adaptive
from turnout.schemes.registry import Participation, all_participations, is_registered


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
            is no randomizer of `turnout.schemes` and no registered law; another population than the
            law's own.
    """

    randomizer: Randomizer
    participation: Participation
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
            participation: Participation,
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
            raise _of_no("participation", self.participation, all_participations())
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


RELATION = Relation.REPLACE_ONE
"""The one relation of shuffled messages: everybody sees how many messages there are."""


def shuffled(
    randomizer: Randomizer,
    clients: int,
    rounds: int = 1,
    *,
    sampled: int | None = None,
    rate: float | None = None,
    order: SpeakingOrder | str | None = None,
) -> Scheme:
    """The scheme of clients who send one message a round through a shuffler, under replace-one.

    Args:
        randomizer: of one message.
        clients: clients there are, all of whom follow the protocol.
        rounds: rounds, each of which is shuffled afresh.
        sampled: clients who send in a round, a uniform subset; all if not given.
        rate: probability with which each client, independently, sends in a round.
        order: who may know which client sends which message. By default it is hidden where earlier
            messages may choose the randomizer, and the guarantee then lists it as an assumption.

    Raises:
        ParameterError: both ``sampled`` and ``rate``, or a value outside its domain.

    >>> from turnout.schemes import KaryResponse
    >>> shuffled(KaryResponse(1.0), clients=1000, rounds=2).trust.value
    'shuffled'
    """
    if sampled is not None and rate is not None:
        raise ParameterError("rate", rate, "none with sampled")
    if sampled is not None:
        return SubsampledShuffle(sampled, clients, rounds, order).scheme(randomizer)
    if rate is not None:
        return SelfSamplingShuffle(rate, clients, rounds, order).scheme(randomizer)
    return Shuffle(clients, rounds, order).scheme(randomizer)


_CLIENTS = "clients there are, all of whom follow the protocol"
_ROUNDS = "rounds, each of which is shuffled afresh"
_ORDER = (
    "who may know which client sends which message; hidden: nobody, the default with pure and "
    "approximate, which need it; known: anything else"
)


class _Shuffled(Checked):
    """Base of the shuffles, whose fields are the settings of a scheme of shuffled messages."""

    __slots__ = ()

    if TYPE_CHECKING:
        clients: int
        rounds: int
        order: SpeakingOrder | str | None

        def participation(self) -> Participation:
            """Participation of the clients, one step for each round."""
            ...

    def scheme(self, randomizer: Randomizer) -> Scheme:
        """Scheme of the shuffled messages, in a hidden order where it matters and none is given."""
        order = self.order
        if order is None and is_adaptive(randomizer):
            order = SpeakingOrder.HIDDEN
        return Scheme(
            randomizer,
            self.participation(),
            RELATION,
            trust=TrustModel.SHUFFLED,
            population=self.clients,
            order=order,
        )


# Each participation is imported where it is used: the files of the others stay unloaded.


@dataclass(frozen=True, slots=True)
class Shuffle(_Shuffled):
    """Every client sends one message a round through a shuffler."""

    clients: int = count(_CLIENTS)
    rounds: int = count(_ROUNDS, 1)
    order: SpeakingOrder | str | None = choice(SpeakingOrder, _ORDER, optional=True)

    def participation(self) -> Participation:
        """Participation of all clients in every round."""
        from turnout.schemes.participation.every_step import EveryStep

        return EveryStep(self.rounds)


@dataclass(frozen=True, slots=True)
class SubsampledShuffle(_Shuffled):
    """Each round, ``sampled`` of all clients, a uniform subset, send a message to a shuffler."""

    sampled: int = count("clients who send a message in a round", at_most="clients")
    clients: int = count(_CLIENTS)
    rounds: int = count(_ROUNDS, 1)
    order: SpeakingOrder | str | None = choice(SpeakingOrder, _ORDER, optional=True)

    def participation(self) -> Participation:
        """Participation of a uniform subset of the clients in each round."""
        from turnout.schemes.participation.fixed_size import FixedSize

        return FixedSize(self.sampled, self.clients, self.rounds)


@dataclass(frozen=True, slots=True)
class SelfSamplingShuffle(_Shuffled):
    """Each round each client sends a message with probability ``rate``, drawn on the client."""

    rate: float = chance("chance of a client in a round")
    clients: int = count(_CLIENTS)
    rounds: int = count(_ROUNDS, 1)
    order: SpeakingOrder | str | None = choice(SpeakingOrder, _ORDER, optional=True)

    def participation(self) -> Participation:
        """Participation of each client in each round by a coin of its own."""
        from turnout.schemes.participation.self_sampling import SelfSampling

        return SelfSampling(self.rate, self.rounds)


SHUFFLES: Mapping[str, type[Shuffle | SubsampledShuffle | SelfSamplingShuffle]] = {
    "shuffle": Shuffle,
    "subsampled-shuffle": SubsampledShuffle,
    "self-sampling-shuffle": SelfSamplingShuffle,
}
"""Classes of the shuffles by their names in questions."""


def shuffle_of(scheme: Scheme) -> Shuffle | SubsampledShuffle | SelfSamplingShuffle | None:
    """Shuffle whose scheme this is, whatever its randomizer; None for any other scheme."""
    if scheme.trust is not TrustModel.SHUFFLED or scheme.population is None:
        return None
    from turnout.schemes.participation.every_step import EveryStep
    from turnout.schemes.participation.fixed_size import FixedSize
    from turnout.schemes.participation.self_sampling import SelfSampling

    match scheme.participation:
        case EveryStep(steps):
            return Shuffle(scheme.population, steps, scheme.order)
        case FixedSize(size, population, steps):
            return SubsampledShuffle(size, population, steps, scheme.order)
        case SelfSampling(rate, steps):
            return SelfSamplingShuffle(rate, scheme.population, steps, scheme.order)
    return None
