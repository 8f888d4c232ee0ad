"""Schemes: the description of a task that accounting, sampling, protocol and verification share.

`Scheme` consists of a randomizer, a participation, a release rule, a neighbouring relation, a
privacy unit and a trust model. `shuffled` builds a scheme whose messages pass through a shuffler,
which hides the senders; `Shuffle`, `SubsampledShuffle` and `SelfSamplingShuffle` hold settings of a
shuffler.
The relation has no default, since ε is meaningless without it.
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
    """Neighbouring relation: the way in which two neighbouring data sets differ."""

    ADD_REMOVE = "add-remove"
    """The client's record is in one data set and not in the other."""
    ZERO_OUT = "zero-out"
    """In one data set the client has the null record, whose update is zero."""
    REPLACE_ONE = "replace-one"
    """The client has different records in the two data sets."""


class PrivacyUnit(StrEnum):
    """Unit of privacy: the data that the neighbouring relation adds, removes or replaces."""

    CLIENT = "client"
    """All data of one client; the client draws its steps once, for all its records."""
    EXAMPLE = "example"
    """One record; each record has its own draw of steps and is clipped separately.

    It cannot be the unit of a scheme in which all records of a client share one draw. There the
    other records reveal when a record takes part, so that participation amplifies nothing.
    """


class TrustModel(StrEnum):
    """Trust model: the parties that a client must trust for the guarantee to hold."""

    CENTRAL = "central"
    """A coordinator that sees updates and check-in times. It adds the noise or keeps it secret."""
    LOCAL = "local"
    """No other party: each message by itself is private."""
    SHUFFLED = "shuffled"
    """A shuffler that hides which client sent which message."""


class SpeakingOrder(StrEnum):
    """Whether an adversary knows which client sends which message of a shuffled round.

    If randomizers may depend on earlier messages, bounds hold only for `HIDDEN`: the randomizers of
    later clients can single out a client that is known to send the first message (docs/errata.md
    has numbers). A randomizer that is chosen before the round and used by all clients needs no such
    condition.
    """

    HIDDEN = "hidden"
    """A uniform order, unknown to the adversary and to the party that chooses randomizers."""
    KNOWN = "known"
    """Any other order, such as the order of arrival, or an order that the server chooses."""


class ReleaseRule(StrEnum):
    """Release rule: how a step turns the updates of its check-ins into one public model change.

    Guarantees, with C the clip norm (docs/design/protocols.md derives the privacy of each rule):
        AGGREGATED: the sum of all clipped updates plus Gaussian noise is divided by the *public
            expected* number of check-ins. A step without check-ins releases noise. Adding,
            removing or zeroing out a client changes the sum by at most C.
        ONE_CLIENT: Algorithm 1 of the check-in paper. A uniform client among those that checked in
            sends a noisy update; a step without check-ins releases a zero update with noise. An
            added client may replace another client's update, so it changes the release by at most
            2C.
        AVERAGED: Algorithm 2 of the check-in paper. The average of the noisy updates of all
            check-ins is released; a step without check-ins is skipped. The adversary learns the
            *number* of check-ins.
    """

    AGGREGATED = "aggregated"
    ONE_CLIENT = "one-client"
    AVERAGED = "averaged"

    @property
    def asks_one(self) -> bool:
        """Whether a step requests the update of only one of the clients that checked in."""
        return self is ReleaseRule.ONE_CLIENT

    @property
    def shows_counts(self) -> bool:
        """Whether a release reveals the number of check-ins."""
        return self is ReleaseRule.AVERAGED


_RANDOMIZERS: tuple[type, ...] = (*get_args(Randomizer), *FIXED_RANDOMIZERS)


@dataclass(frozen=True, slots=True)
class Scheme:
    """Mathematical description of a task, from which its privacy guarantee follows.

    Members of enumerations (relation, release, unit, trust, order) may be given as their texts,
    such as ``"add-remove"``; the attributes are members.

    Attributes:
        randomizer: randomizer of one contribution.
        participation: rule that decides in which steps each client takes part.
        relation: neighbouring relation; it has no default.
        release: rule by which a step releases a model change.
        unit: unit of privacy.
        trust: parties that a client must trust.
        population: number of clients that follow the protocol, including the protected client; None
            if the number is unknown. Amplification by other clients' messages needs the number.
        order: whether an adversary knows which client sends which shuffled message; None if not
            declared. If randomizers may depend on earlier messages, shuffled messages have a
            guarantee only with `SpeakingOrder.HIDDEN`.

    Raises:
        ParameterError: a text names no member of its enumeration, the class of the randomizer is
            unknown, the participation is not registered, or the population differs from that of
            the participation.
    """

    randomizer: Randomizer
    participation: Participation
    relation: Relation
    release: ReleaseRule = ReleaseRule.AGGREGATED
    unit: PrivacyUnit = PrivacyUnit.CLIENT
    trust: TrustModel = TrustModel.CENTRAL
    population: int | None = None
    order: SpeakingOrder | None = None

    if TYPE_CHECKING:  # arguments may be members or their texts; attributes are members

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


class ShuffledLoader(Scheme):
    """Scheme of a data loader that shuffles records; ε is computed as if all batches were public.

    The upper bounds on ε hold for the loader. Accounting returns no lower bounds, because the lower
    bounds for known batches do not hold for the loader.
    """

    __slots__ = ()


def _of_no(name: str, value: object, known: Iterable[type]) -> ParameterError:
    """Error about an object of an unknown class, with the names of the known classes."""
    names = ", ".join(kind.__name__ for kind in known)
    return ParameterError(name, value, f"an object of one of the classes {names}")


RELATION = Relation.REPLACE_ONE
"""The only relation of shuffled messages, since the number of messages is public."""


def shuffled(
    randomizer: Randomizer,
    clients: int,
    rounds: int = 1,
    *,
    sampled: int | None = None,
    rate: float | None = None,
    order: SpeakingOrder | str | None = None,
) -> Scheme:
    """Scheme of clients that send one message a round to a shuffler, with relation replace-one.

    Args:
        randomizer: randomizer of one message.
        clients: number of clients, all of which follow the protocol.
        rounds: number of rounds; the messages of each round are shuffled separately.
        sampled: size of the uniform subset of clients that send a message in a round; None: all.
        rate: probability with which each client independently sends a message in a round.
        order: whether an adversary knows which client sends which message. If the randomizer may
            depend on earlier messages, the default is hidden, and the guarantee lists it as an
            assumption.

    Raises:
        ParameterError: both ``sampled`` and ``rate`` are given, or a value is outside its domain.

    >>> from turnout.schemes import KaryResponse
    >>> shuffled(KaryResponse(1.0), clients=1000, rounds=2).trust.value
    'shuffled'
    """
    if sampled is not None and rate is not None:
        raise ParameterError("rate", rate, "no value, since sampled is given")
    if sampled is not None:
        return SubsampledShuffle(sampled, clients, rounds, order).scheme(randomizer)
    if rate is not None:
        return SelfSamplingShuffle(rate, clients, rounds, order).scheme(randomizer)
    return Shuffle(clients, rounds, order).scheme(randomizer)


_CLIENTS = "number of clients that follow the protocol"
_ROUNDS = "number of rounds, which are shuffled independently of each other"
_ORDER = (
    "order in which clients send their messages. hidden: a uniform order that no other party "
    "knows. known: any other order. The randomizers pure and approximate require hidden, which is "
    "their default"
)


class _Shuffled(Checked):
    """Base class of `Shuffle`, `SubsampledShuffle` and `SelfSamplingShuffle`."""

    __slots__ = ()

    if TYPE_CHECKING:
        clients: int
        rounds: int
        order: SpeakingOrder | str | None

        def participation(self) -> Participation:
            """Participation of the clients; each of its steps is one round of the shuffler."""
            ...

    def scheme(self, randomizer: Randomizer) -> Scheme:
        """Scheme of the shuffled messages with the given randomizer.

        If the randomizer is adaptive and `order` is None, the scheme assumes a uniform order of the
        clients that neither the adversary nor the party that chooses the randomizers knows
        (`SpeakingOrder.HIDDEN`).
        """
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


# Participations are imported inside functions, so that only the files of those in use are loaded.


@dataclass(frozen=True, slots=True)
class Shuffle(_Shuffled):
    """Settings of a shuffler: every client sends one message in each round.

    Raises:
        ParameterError: a parameter is outside its domain.
    """

    clients: int = count(_CLIENTS)
    rounds: int = count(_ROUNDS, 1)
    order: SpeakingOrder | str | None = choice(SpeakingOrder, _ORDER, optional=True)

    def participation(self) -> Participation:
        """Participation of all clients in every round."""
        from turnout.schemes.participation.every_step import EveryStep

        return EveryStep(self.rounds)


@dataclass(frozen=True, slots=True)
class SubsampledShuffle(_Shuffled):
    """Settings of a shuffler: a uniform subset of the clients sends a message in each round.

    Raises:
        ParameterError: a parameter is outside its domain.
    """

    sampled: int = count("number of clients that send a message in each round", at_most="clients")
    clients: int = count(_CLIENTS)
    rounds: int = count(_ROUNDS, 1)
    order: SpeakingOrder | str | None = choice(SpeakingOrder, _ORDER, optional=True)

    def participation(self) -> Participation:
        """Participation of a uniform subset of the clients in each round."""
        from turnout.schemes.participation.fixed_size import FixedSize

        return FixedSize(self.sampled, self.clients, self.rounds)


@dataclass(frozen=True, slots=True)
class SelfSamplingShuffle(_Shuffled):
    """Settings of a shuffler: each client draws in each round whether it sends a message.

    Raises:
        ParameterError: a parameter is outside its domain.
    """

    rate: float = chance("probability with which a client participates in a round")
    clients: int = count(_CLIENTS)
    rounds: int = count(_ROUNDS, 1)
    order: SpeakingOrder | str | None = choice(SpeakingOrder, _ORDER, optional=True)

    def participation(self) -> Participation:
        """Self-sampling of the clients in each round."""
        from turnout.schemes.participation.self_sampling import SelfSampling

        return SelfSampling(self.rate, self.rounds)


SHUFFLES: Mapping[str, type[Shuffle | SubsampledShuffle | SelfSamplingShuffle]] = {
    "shuffle": Shuffle,
    "subsampled-shuffle": SubsampledShuffle,
    "self-sampling-shuffle": SelfSamplingShuffle,
}
"""Classes of the shuffles by the values of ``--scheme`` that select them."""


def shuffle_of(scheme: Scheme) -> Shuffle | SubsampledShuffle | SelfSamplingShuffle | None:
    """Settings of the shuffler of a scheme, without its randomizer; None for other schemes."""
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
