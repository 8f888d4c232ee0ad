"""Conformance test of a randomizer: sampler, estimate, bytes and ε agree.

`assert_randomizer` enumerates the exact distribution of the messages of each value. The function
checks that the randomizer's `probabilities` are this distribution, that no ratio of its
probabilities under two values exceeds e^{ε₀}, that the ε of the enumerated messages is at most the
accountant's ε of `priced_as`, that messages are packed and unpacked without change, and that the
estimate has the stated bias and at most the stated squared error. So the randomizer must be small:
few values and at most 1024 messages.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turnout.accounting import epsilon_upper, shuffled_price
from turnout.core.errors import ParameterError, UnsupportedError
from turnout.estimation import FrequencyTally, estimate_frequencies
from turnout.randomizers import FrequencyRandomizer
from turnout.randomizers.interface import level_above
from turnout.randomizers.subset import BitmapRandomizer
from turnout.randomizers.vectors import VectorRandomizer
from turnout.randomness import SimulationStreams, Source
from turnout.schemes import NonAdaptiveRandomizer, PureRandomizer, Relation, Scheme
from turnout.schemes.participation.every_step import EveryStep
from turnout.testing.enumeration import enumerate_outputs

MessageDistribution = dict[int, Fraction]
"""Exact probabilities of messages by their numbers."""

_MOST_PATHS, _MOST_MESSAGES = 20_000, 1024
_DELTAS = (0.02, 0.1, 0.3)
_SENT = 64  # number of messages of each value whose bytes are checked
_ROUNDING = 1e-9


def assert_randomizer(randomizer: Any, values: Sequence[Any] | None = None) -> None:
    """Fail unless a randomizer agrees with its stated properties and with ε of its `priced_as`.

    The test requires that

    * the sampler has the distribution of `probabilities`, if the randomizer has this method;
    * no message's probability under one value exceeds e^{ε₀} times that under another value, with
      ε₀ of `priced_as`;
    * ε of one message, and of two shuffled messages, is at most the accountant's ε of `priced_as`;
    * messages are packed into `message_bits` bits each and unpacked without change;
    * the estimate of a value has the value as its mean, up to the stated bias of vectors, and a
      mean squared error of at most `mse_bound`.

    Args:
        randomizer: randomizer of one item, of a bit or of a vector.
        values: possible values of a client; None for all items or both bits.

    Raises:
        AssertionError: a requirement fails; the message names it.
        UnsupportedError: too many messages, a sampler that cannot be enumerated and has no method
            `probabilities`, or a `priced_as` without an analysis.
    """
    held = range(getattr(randomizer, "items", 2)) if values is None else values
    distributions = [_distribution(randomizer, value) for value in held]
    _assert_level(randomizer, distributions)
    _assert_written(randomizer, held)
    for value, distribution in zip(held, distributions, strict=True):
        _assert_unbiased(randomizer, value, distribution)
    _assert_priced(randomizer.priced_as, distributions)


def _distribution(randomizer: Any, value: Any) -> MessageDistribution:
    """Exact distribution of the sampler or, if it cannot be enumerated, the stated distribution."""
    # The stated distribution, if the randomizer states one.
    stated: MessageDistribution | None = None
    if hasattr(randomizer, "probabilities"):
        chances = enumerate(map(Fraction, randomizer.probabilities(value)))
        stated = {number: chance for number, chance in chances if chance}
    # The exact distribution of the sampler, where it can be enumerated.
    try:
        sampled = enumerate_outputs(
            lambda source: _numbers(randomizer, [value], source)[0], _MOST_PATHS
        )
    except UnsupportedError:
        if stated is None:
            raise
        sampled = stated
    distribution = {int(str(number)): chance for number, chance in sampled.items() if chance}
    if len(distribution) > _MOST_MESSAGES:
        raise UnsupportedError(
            f"{len(distribution)} messages are too many to compare with each other: "
            f"expected at most {_MOST_MESSAGES}"
        )
    # Both must agree.
    for number in distribution.keys() | (stated or {}).keys() if stated is not None else ():
        found, said = distribution.get(number, Fraction(0)), (stated or {}).get(number, Fraction(0))
        same = math.isclose(found, said, rel_tol=_ROUNDING, abs_tol=1e-14)
        assert same, (
            f"message {number} of the value {value} is sent with probability {found}: "
            f"expected {said}, as in probabilities"
        )
    return distribution


def _encoded(randomizer: Any, held: NDArray, source: Source) -> NDArray:
    """Messages of some values, with public questions if the randomizer has them."""
    if getattr(randomizer, "public", False):
        return randomizer.encode(held, source, randomizer.draw_questions(len(held), source))
    return randomizer.encode(held, source)


def _numbers(randomizer: Any, values: Sequence[Any], source: Source) -> list[int]:
    """Randomized messages of ``values``, each encoded as one whole number."""
    messages = _encoded(randomizer, np.asarray(values), source)
    if isinstance(randomizer, BitmapRandomizer):
        return [sum(int(word) << (64 * i) for i, word in enumerate(row)) for row in messages]
    if isinstance(randomizer, VectorRandomizer):
        return np.atleast_1d(np.ravel_multi_index(tuple(messages.T), randomizer.radices)).tolist()
    return messages.tolist()


def _message(randomizer: Any, number: int) -> NDArray:
    """Message that `_numbers` encodes as ``number``, as an array of one row."""
    if isinstance(randomizer, BitmapRandomizer):
        words = [number >> (64 * i) & (2**64 - 1) for i in range(-(-randomizer.items // 64))]
        return np.array([words], dtype=np.uint64)
    if isinstance(randomizer, VectorRandomizer):
        return np.array([np.unravel_index(number, randomizer.radices)], dtype=np.int64)
    return np.array([number], dtype=np.int64)


def _assert_level(randomizer: Any, distributions: Sequence[MessageDistribution]) -> None:
    """Require that ε₀ of `priced_as` equals the randomizer's ε₀ and bounds all ratios."""
    if not isinstance(randomizer.priced_as, PureRandomizer):
        return
    level = randomizer.priced_as.epsilon0
    stated = randomizer.epsilon0
    assert level == stated, f"epsilon0 = {stated}: expected {level}, the ε₀ in priced_as"
    for one, other in permutations(distributions, 2):
        for number, chance in one.items():
            assert number in other, f"message {number} is impossible for some values"
            found = level_above(max(chance / other[number], Fraction(1)))
            assert found <= level * (1 + 1e-12), (
                f"message {number} has ε₀ = {found}: expected at most {level}"
            )


def _assert_written(randomizer: Any, values: Sequence[Any]) -> None:
    """Require that bytes round-trip and have the stated length."""
    source = SimulationStreams(1).source("conformance")
    held = np.repeat(np.asarray(values), _SENT, axis=0)
    messages = _encoded(randomizer, held, source)
    bits = len(held) * randomizer.message_bits
    try:
        data = randomizer.pack(messages)
    except ParameterError as error:
        raise AssertionError(f"{len(held)} messages do not fit into {bits} bits") from error
    found = 8 * len(data)
    assert found == bits, f"{len(held)} messages are packed into {found} bits: expected {bits}"
    asked = [messages // randomizer.reply_count] if getattr(randomizer, "public", False) else []
    read = randomizer.unpack(data, len(held), *asked)
    assert np.array_equal(read, messages), "unpack does not return the packed messages"


def _assert_unbiased(randomizer: Any, value: Any, distribution: MessageDistribution) -> None:
    """Require an unbiased estimate with a squared error within the stated bound."""
    truth = np.asarray(value, dtype=np.float64)
    if isinstance(randomizer, FrequencyRandomizer):
        truth = np.eye(randomizer.items)[value]
    if isinstance(randomizer, VectorRandomizer):
        truth = truth + randomizer.bias(truth[None])
    estimates = [_estimate(randomizer, _message(randomizer, number)) for number in distribution]
    chances = np.array([float(chance) for chance in distribution.values()])
    mean = np.tensordot(chances, estimates, axes=1)
    scale = float(np.abs(estimates).max())
    assert np.allclose(mean, truth, atol=_ROUNDING * scale), (
        f"the estimate of {value} has the mean {mean}: expected {truth}"
    )
    errors = [float(np.sum((estimate - truth) ** 2)) for estimate in estimates]
    error, bound = float(chances @ errors), randomizer.mse_bound(1)
    assert error <= bound * (1 + _ROUNDING), (
        f"the squared error is {error}: expected at most {bound}"
    )


def _estimate(randomizer: Any, message: NDArray) -> NDArray[np.float64]:
    """Estimate of a client's value from one message: frequencies, a number or a vector."""
    if isinstance(randomizer, FrequencyRandomizer):
        return estimate_frequencies(FrequencyTally.of(randomizer, message), "raw").frequencies
    if isinstance(randomizer, VectorRandomizer):
        return randomizer.mean(randomizer.total(message), 1)
    return randomizer.decode(message)[0]


def _assert_priced(priced_as: Any, distributions: Sequence[MessageDistribution]) -> None:
    """Require that ε of one message, and of two shuffled messages, is at most the accountant's."""
    known = sorted({number for each in distributions for number in each})
    rows = np.array([[float(each.get(number, 0)) for number in known] for each in distributions])
    alone = Scheme(priced_as, EveryStep(1), Relation.REPLACE_ONE)
    for delta in _DELTAS:
        price = epsilon_upper(alone, delta)
        _assert_within(rows, price, delta, "one message")
        if isinstance(priced_as, NonAdaptiveRandomizer):
            price = shuffled_price([(priced_as, 1)], 2, delta)
            for other in rows:
                both = np.array([_shuffled(row, other) for row in rows])
                _assert_within(both, price, delta, "two shuffled messages")


def _assert_within(rows: NDArray[np.float64], price: float, delta: float, what: str) -> None:
    """Require δ at ε = ``price`` between each two distributions (rows) to be at most ``delta``."""
    for one, other in permutations(rows, 2):
        true = float(np.maximum(one - math.exp(price) * other, 0.0).sum())
        assert true <= delta * (1 + _ROUNDING), (
            f"δ of {what} at ε = {price:g} is {true:g}: expected at most {delta:g}"
        )


def _shuffled(one: NDArray[np.float64], other: NDArray[np.float64]) -> NDArray[np.float64]:
    """Distribution of the unordered pair of two messages, drawn from ``one`` and ``other``."""
    ordered = np.outer(one, other)
    return np.triu(ordered + np.tril(ordered, -1).T).ravel()
