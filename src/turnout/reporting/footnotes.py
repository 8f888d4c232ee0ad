"""Footnotes of a guarantee: its assumptions, and the privacy that is left without them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Self

from turnout.reporting.words import rounded_up
from turnout.schemes import (
    ApproximateRandomizer,
    EveryStep,
    NonAdaptiveRandomizer,
    PureRandomizer,
    Relation,
    RepeatedMessages,
    Scheme,
    SpeakingOrder,
    TrustModel,
)

_HINT = (
    "--clients says how many clients there are; if they all follow the protocol, their noise hides "
    "this client too, and a smaller ε may be proved"
)
_AS_PURE = "any ε₀-DP randomizer; the lower bound is that of the worst one"
_PUBLISHED = "clones 2021 (Feldman, McMillan and Talwar 2021, Theorem 3.1)"
_HIDDEN_ORDER = (
    "clients speak in a uniform order that neither an adversary nor whoever chooses the next "
    "randomizer knows"
)
_DRAWN_UNSEEN = "each client draws the step of a window unseen"


@dataclass(frozen=True, slots=True)
class Unshuffled:
    """The privacy of one client's messages against somebody who sees whose they are.

    Attributes:
        epsilon: of all rounds together, never below the true one; None where nothing is proved.
        delta: its own δ; 0 where ε is pure.
        each: what one message is worth.
        rounds: messages that the client sends at most.
    """

    epsilon: float | None
    delta: float
    each: str
    rounds: int

    def record(self) -> dict[str, Any]:
        """As JSON-ready values."""
        return {"epsilon": self.epsilon, "delta": self.delta}

    def words(self) -> str:
        """As a line of a table."""
        kind = f"δ = {self.delta:.10g}" if self.delta else "pure"
        total = f"ε = {self.epsilon:.10g} ({kind}, local)"
        if self.epsilon is None:
            total = "nothing is proved"
        return total if self.rounds == 1 else f"{total}: {self.rounds:,} messages of {self.each}"


@dataclass(frozen=True, slots=True)
class Footnotes:
    """Everything under a guarantee; empty under most.

    Attributes:
        unshuffled: what is left without the shuffler, where there is one.
        published: ε by the smallest published bound, where the guarantee rests on one of ours
            that is smaller; never below the true one.
        assumptions: what must hold besides the trust model.
        priced_as: what the randomizer counts as, where that is less than what it is.
        hint: which option might prove more.
    """

    unshuffled: Unshuffled | None = None
    published: float | None = None
    assumptions: tuple[str, ...] = ()
    priced_as: str | None = None
    hint: str | None = None

    @classmethod
    def of(cls, scheme: Scheme, delta: float) -> Self:
        """Those of a scheme's price at δ."""
        from turnout.accounting import published_epsilon

        shuffled = scheme.trust is TrustModel.SHUFFLED
        averaged = scheme.release.shows_counts
        assumed = _assumed(scheme)
        hopeful = averaged and not assumed and scheme.relation is not Relation.ADD_REMOVE
        of_class = isinstance(scheme.randomizer, NonAdaptiveRandomizer) and not shuffled
        return cls(
            unshuffled(scheme, delta) if shuffled else None,
            published_epsilon(scheme, delta),
            assumed,
            _AS_PURE if of_class else None,
            _HINT if hopeful else None,
        )

    def record(self) -> dict[str, Any]:
        """As JSON-ready values, of what there is."""
        found = {
            "without_shuffler": self.unshuffled and self.unshuffled.record(),
            "published": self.published and {"bound": _PUBLISHED, "epsilon": self.published},
            "assumptions": list(self.assumptions),
            "priced_as": self.priced_as,
            "hint": self.hint,
        }
        return {name: value for name, value in found.items() if value}

    def rows(self) -> dict[str, str]:
        """In words, of what there is."""
        found = {
            "published": self.published and f"ε = {rounded_up(self.published, 5)} by {_PUBLISHED}",
            "no shuffler": self.unshuffled and self.unshuffled.words(),
            "assumes": "; ".join(self.assumptions),
            "priced as": self.priced_as,
            "hint": self.hint,
        }
        return {name: value for name, value in found.items() if value}


def unshuffled(scheme: Scheme, delta: float) -> Unshuffled:
    """The privacy of shuffled messages if everybody saw who sent which.

    T messages of an (ε₀, δ₀)-randomizer are (T·ε₀, T·δ₀)-private together; Gaussian ones add up to
    one, which is priced exactly.
    """
    randomizer, rounds = scheme.randomizer, scheme.participation.steps
    if isinstance(randomizer, RepeatedMessages):
        randomizer, rounds = randomizer.each, rounds * randomizer.messages
    if isinstance(randomizer, PureRandomizer):
        each = f"ε₀ = {randomizer.epsilon0:g}"
        return Unshuffled(_times(rounds, randomizer.epsilon0), 0.0, each, rounds)
    if isinstance(randomizer, ApproximateRandomizer):
        each = f"ε₀ = {randomizer.epsilon0:g} and δ₀ = {randomizer.delta0:g}"
        lost = _times(rounds, randomizer.delta0)
        if lost >= 1:
            return Unshuffled(None, 1.0, each, rounds)
        return Unshuffled(_times(rounds, randomizer.epsilon0), lost, each, rounds)
    from turnout.accounting import epsilon_upper

    central = replace(scheme, trust=TrustModel.CENTRAL, population=None)

    def seen(times: int) -> float:
        alone = replace(central, participation=EveryStep(times))
        return float(rounded_up(epsilon_upper(alone, delta), 5))

    return Unshuffled(seen(rounds), delta, f"ε = {seen(1):g}", rounds)


def _assumed(scheme: Scheme) -> tuple[str, ...]:
    """Assumptions behind a number of clients and their order."""
    clients = scheme.population
    if clients is None:
        return ()
    if clients == 1:
        return ("the client is the only one: nobody hides it",)
    follow = f"all {clients:,} clients follow the protocol"
    if scheme.release.shows_counts:
        return (follow, _DRAWN_UNSEEN)
    return (follow, _HIDDEN_ORDER) if scheme.order is SpeakingOrder.HIDDEN else (follow,)


def _times(rounds: int, value: float) -> float:
    """The product of what the value's digits say."""
    return float(rounds * Decimal(repr(value)))
