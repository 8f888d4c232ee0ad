"""Shuffled local messages: ε by every bound that applies, proved, conjectured or attained.

The setting: each of n clients sends one message a round, made by an ε₀-LDP randomizer, through a
shuffler; or each round k of them, a uniform subset, do. Neighbours differ in one client's record.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from turnout.accounting.comparison.methods import Method, Quote
from turnout.accounting.curves import Side
from turnout.accounting.pricing import price
from turnout.accounting.theorems.results import Status
from turnout.core.bounds import Bounds
from turnout.core.errors import UnsupportedError
from turnout.spec import (
    EveryStep,
    FixedRandomizer,
    FixedSize,
    HadamardResponse,
    KaryResponse,
    PureRandomizer,
    Randomizer,
    Relation,
    Scheme,
    TrustModel,
)


@dataclass(frozen=True, slots=True)
class ShuffleSetting:
    """One point of a comparison.

    Attributes:
        epsilon0: ε₀ of one message.
        clients: n.
        delta: δ.
        rounds: T, each shuffled afresh.
        sampled: k of the n clients who send in a round, a uniform subset; None: all.
        tolerance: relative width of the brackets asked for.
    """

    epsilon0: float
    clients: int
    delta: float
    rounds: int = 1
    sampled: int | None = None
    tolerance: float = 1e-2

    @property
    def law(self) -> EveryStep | FixedSize:
        """Who sends in which round."""
        if self.sampled is None:
            return EveryStep(self.rounds)
        return FixedSize(self.sampled, self.clients, self.rounds)


@lru_cache(maxsize=64)
def _priced(setting: ShuffleSetting, randomizer: Randomizer) -> Bounds:
    """What `price` says of shuffled messages of a randomizer."""
    scheme = Scheme(
        randomizer,
        setting.law,
        Relation.REPLACE_ONE,
        trust=TrustModel.SHUFFLED,
        population=setting.clients,
    )
    return price(scheme, setting.delta, setting.tolerance).epsilon


def adaptive(setting: ShuffleSetting) -> Quote:
    """Any ε₀-randomizers, chosen adaptively: the default."""
    return Quote.of(_priced(setting, PureRandomizer(setting.epsilon0)))


def attained(setting: ShuffleSetting) -> Quote:
    """What some ε₀-randomizer does cost: the lower end of the default."""
    lower = _priced(setting, FixedRandomizer(setting.epsilon0)).lower
    if lower <= 0:
        raise UnsupportedError("nothing above 0 was found to be attained")
    return Quote(lower, lower)


def one_randomizer(setting: ShuffleSetting) -> Quote:
    """One randomizer for all clients, fixed before the round."""
    return Quote.of(_priced(setting, FixedRandomizer(setting.epsilon0)))


def binary_response(setting: ShuffleSetting) -> Quote:
    """Binary randomized response, at the others' worst records."""
    return Quote.of(_priced(setting, KaryResponse(setting.epsilon0)))


def hadamard_response(setting: ShuffleSetting) -> Quote:
    """Hadamard response."""
    return Quote.of(_priced(setting, HadamardResponse(setting.epsilon0)))


def unshuffled(setting: ShuffleSetting) -> Quote:
    """The same messages, each with its sender's name."""
    if setting.sampled is not None:
        raise UnsupportedError("without a shuffler it shows who was sampled")
    scheme = Scheme(PureRandomizer(setting.epsilon0), setting.law, Relation.REPLACE_ONE)
    return Quote.of(price(scheme, setting.delta, setting.tolerance).epsilon)


def _method(
    name: str,
    about: str,
    quote: Callable[[ShuffleSetting], Quote],
    *,
    status: Status = Status.PROVED,
    side: Side = Side.UPPER,
    trust: TrustModel = TrustModel.SHUFFLED,
) -> Method[ShuffleSetting]:
    """A method about one record against another, which is the setting's only relation."""
    return Method(name, about, quote, None, ("replace",), trust, status, side)


SHUFFLE_METHODS: tuple[Method[ShuffleSetting], ...] = (
    _method("adaptive", "any ε₀-randomizers, chosen by what came before: the default", adaptive),
    _method("one fixed", "one ε₀-randomizer, fixed before the round", one_randomizer),
    _method("binary RR", "binary randomized response, the others' worst records", binary_response),
    _method("Hadamard", "Hadamard response, the others' worst records", hadamard_response),
    _method(
        "attained",
        "3-ary response whose other clients hold the third value: no bound can be smaller",
        attained,
        side=Side.LOWER,
    ),
    _method(
        "no shuffler",
        "the same messages under their senders' names: exact",
        unshuffled,
        trust=TrustModel.LOCAL,
    ),
)
"""What is compared for shuffles, ours first."""
