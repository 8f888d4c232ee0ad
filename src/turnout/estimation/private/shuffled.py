"""Choice of the randomizer of shuffled messages, at the largest ε₀ that (ε, δ) allows.

`shuffled_frequencies` and `shuffled_mean` return a randomizer and its privacy cost. For a
given ε₀ the ε after shuffling depends on the randomizer. So `shuffled_means.largest_affordable`
searches for the largest ε₀ of each randomizer before the errors of the randomizers are compared.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from turnout.accounting import shuffled_method, shuffled_price
from turnout.core import checks
from turnout.core.errors import ParameterError, UnsupportedError
from turnout.estimation.private.answers import (
    EstimateCost,
    PrivacyRequest,
    accuracy_notes,
    chosen_randomizer,
    frequency_randomizer,
    makers_of,
    mean_randomizer,
    public_randomness,
)
from turnout.estimation.private.shuffled_means import (
    Affordable,
    ShuffledMean,
    largest_affordable,
    level_of_any,
    predicted_error,
    several_messages,
)
from turnout.randomizers import FrequencyRandomizer
from turnout.randomizers.interface import LARGEST_EPSILON
from turnout.randomizers.vectors import L1Randomizer, L2Randomizer, LInfRandomizer, VectorRandomizer

AnyRandomizer = TypeVar("AnyRandomizer", FrequencyRandomizer, VectorRandomizer)
MEAN_MECHANISMS = ("auto", "one-message", "several-messages")
"""Choices of the number of shuffled messages that a client sends for a mean."""
_NEAR = 1 / 1.05  # several messages must be better than one by more than 5 %


def shuffled_frequencies(
    items: int, privacy: PrivacyRequest, clients: int, *, mechanism: str = "auto"
) -> tuple[FrequencyRandomizer, EstimateCost]:
    """Randomizer of one item whose shuffled messages are (ε, δ)-private, and its privacy cost.

    Args:
        items: k, at least 2.
        privacy: ε, δ and the largest number of bits of a message.
        clients: n, public; all clients follow the protocol.
        mechanism: see `frequency_randomizer`; "auto" compares the mechanisms, each at the largest
            ε₀ that it may use.

    Raises:
        ParameterError: the mechanism is unknown, or no message within the largest number of bits.
        UnsupportedError: the mechanism cannot be used with so many items.
    """
    checks.count(clients=clients)
    found: dict[str, Affordable[FrequencyRandomizer]] = {}
    for name in makers_of(mechanism):
        try:
            found[name] = _frequency_level(name, items, privacy, clients)
        except (ParameterError, UnsupportedError):
            continue  # too few bits for this mechanism, or too many items
    if not found:
        # None is possible: this call raises the error that names the reason.
        frequency_randomizer(_target(privacy), items, mechanism, privacy.bits, public=False)
    fitting = [(name, each.made) for name, each in found.items()]
    chosen, reason = chosen_randomizer(fitting, mechanism, privacy.bits)
    return chosen, _cost(chosen, reason, privacy, clients)


def _frequency_level(
    name: str, items: int, privacy: PrivacyRequest, clients: int
) -> Affordable[FrequencyRandomizer]:
    """Frequency randomizer with the largest ε₀ found for (ε, δ)-private shuffled messages."""

    def make(level: float) -> FrequencyRandomizer:
        return frequency_randomizer(level, items, name, privacy.bits, public=False)[0]

    def price(randomizer: FrequencyRandomizer) -> float:
        return _price(randomizer, privacy, clients)

    return largest_affordable(make, price, _target(privacy), _start(privacy, clients))


def shuffled_mean(
    norm: str,
    dimension: int,
    radius: float,
    privacy: PrivacyRequest,
    clients: int,
    *,
    mechanism: str = "auto",
) -> tuple[VectorRandomizer, EstimateCost]:
    """Randomizer of one vector whose shuffled messages are (ε, δ)-private, and its cost.

    A client sends one message, or several messages, each through a separate shuffler.

    Args:
        norm: see `mean_randomizer`.
        dimension: d.
        radius: r, the largest norm, above 0.
        privacy: ε, δ and the largest number of bits of all messages of a client.
        clients: n, public; all clients follow the protocol.
        mechanism: one of `MEAN_MECHANISMS`; "auto": several messages where their predicted error is
            below that of one message by more than 5 %, else one message.

    Raises:
        ParameterError: the mechanism is unknown, or too few bits for the mechanism.
    """
    # The two mechanisms that can be requested.
    checks.count(clients=clients)
    if mechanism not in MEAN_MECHANISMS:
        raise ParameterError("mechanism", mechanism, f"one of {', '.join(MEAN_MECHANISMS)}")
    if mechanism == "one-message":
        one, _ = _one_message(norm, dimension, radius, privacy, clients)
        return one, _cost(one, f"{mechanism} was requested", privacy, clients)
    target = (_target(privacy), _delta(privacy))
    if mechanism == "several-messages":
        found = several_messages(
            norm, dimension, radius, clients, target, bits=privacy.bits, quick=False
        )
        return found.randomizer, _several_cost(found, f"{mechanism} was requested")
    # "auto": compare one message with several by their predicted errors.
    one, reason = _one_message(norm, dimension, radius, privacy, clients)
    try:
        found = several_messages(norm, dimension, radius, clients, target, bits=privacy.bits)
    except ParameterError:  # too few bits for two messages
        return one, _cost(one, reason, privacy, clients)
    alone, several = (predicted_error(each, clients) for each in (one, found.randomizer))
    figures = f"predicted squared error {several:.2g} from {found.messages} messages, {alone:.2g} "
    if several < _NEAR * alone:
        return found.randomizer, _several_cost(found, figures + "from one")
    return one, _cost(one, f"{reason}; {figures}from this one", privacy, clients)


def _one_message(
    norm: str, dimension: int, radius: float, privacy: PrivacyRequest, clients: int
) -> tuple[VectorRandomizer, str]:
    """Vector randomizer with the largest ε₀ found for (ε, δ), and the reason for the choice."""
    start = _start(privacy, clients)
    shape, reason = mean_randomizer(norm, dimension, start, radius, privacy.bits, public=False)

    def make(level: float) -> VectorRandomizer:
        return at_level(shape, level)

    def price(randomizer: VectorRandomizer) -> float:
        return _price(randomizer, privacy, clients)

    return largest_affordable(make, price, _target(privacy), start).made, reason


def at_level(randomizer: VectorRandomizer, epsilon: float) -> VectorRandomizer:
    """Randomizer of the same form with another local level ε₀.

    Args:
        randomizer: randomizer whose other parameters do not depend on its level.
        epsilon: ε₀ of the new randomizer.

    Raises:
        UnsupportedError: other parameters of the randomizer depend on its level.
    """
    if isinstance(randomizer, L2Randomizer):
        return replace(randomizer, inner=replace(randomizer.inner, epsilon=epsilon))
    if isinstance(randomizer, L1Randomizer | LInfRandomizer):
        return replace(randomizer, epsilon=epsilon)
    raise UnsupportedError(
        f"{type(randomizer).__name__} cannot be built for another ε₀: use another mechanism"
    )


def _delta(privacy: PrivacyRequest) -> float:
    if privacy.delta is None:
        raise ParameterError("delta", None, "a number in (0, 1) for the shuffled model")
    return privacy.delta


def _target(privacy: PrivacyRequest) -> float:
    """Requested ε, or the largest ε₀ that a message may have if that is smaller."""
    return min(privacy.epsilon, LARGEST_EPSILON)


def _start(privacy: PrivacyRequest, clients: int) -> float:
    """First ε₀ of searches, at which every non-adaptive randomizer is (ε, δ)-private."""
    return level_of_any(clients, privacy.epsilon, _delta(privacy))


def _price(
    randomizer: FrequencyRandomizer | VectorRandomizer, privacy: PrivacyRequest, clients: int
) -> float:
    """Upper bound on ε at δ of the randomizer's shuffled messages."""
    return shuffled_price([(randomizer.priced_as, 1)], clients, _delta(privacy))


def _cost(
    randomizer: FrequencyRandomizer | VectorRandomizer,
    reason: str,
    privacy: PrivacyRequest,
    clients: int,
) -> EstimateCost:
    """Privacy cost if each client sends one shuffled message."""
    # ε is an upper bound for the messages of all clients, shuffled together.
    epsilon = _price(randomizer, privacy, clients)
    # The guarantee assumes an honest shuffler and n honest clients.
    assumptions = (
        "a trusted shuffler mixes all messages and drops who sent which",
        f"all {clients:,} clients follow the protocol, and that number is public",
        "without the shuffler only ε₀ is left",
        *accuracy_notes(randomizer),
    )
    return EstimateCost(
        epsilon,
        _delta(privacy),
        "(ε, δ) of all shuffled messages together, an upper bound "
        f"({shuffled_method([(randomizer.priced_as, 1)])})",
        "replace-one",
        "shuffled",
        type(randomizer).__name__,
        reason,
        randomizer.epsilon0,
        randomizer.message_bits,
        public_randomness(randomizer),
        assumptions,
    )


def _several_cost(found: ShuffledMean, reason: str) -> EstimateCost:
    """Privacy cost if each client sends several shuffled messages, composed together."""
    # The guarantee assumes honest shufflers and n honest clients.
    assumptions = (
        f"trusted shufflers, one for each of a client's {found.messages:,} messages, mix it "
        "with the others' of the same number and drop who sent which",
        f"all {found.clients:,} clients follow the protocol, and that number is public",
        "without the shufflers only ε₀ is left",
        *accuracy_notes(found.randomizer),
    )
    # ε is an upper bound for all messages of a client, composed over the shuffles.
    return EstimateCost(
        found.epsilon,
        found.delta,
        f"(ε, δ) of all {found.messages:,} shuffled messages of a client together, an upper bound "
        f"({shuffled_method(found.randomizer.shuffled_as)}; composed over messages as PLD)",
        found.relation,
        found.trust,
        f"{type(found.randomizer).__name__}, each bit in a message of its own",
        reason,
        found.randomizer.epsilon0,
        found.randomizer.message_bits,
        public_randomness(found.randomizer),
        assumptions,
        found.messages,
    )
