"""Private estimates as requests and answers, and the choice of a randomizer with its cost.

`PrivacyRequest` is the question; `Frequencies` and `Mean` are answers, each with its
`EstimateCost`. `frequency_randomizer` and `mean_randomizer` choose the randomizer and its level,
`local_cost` is what a client pays. `turnout.estimation.private.estimates` joins them with a column
of values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from turnout.core import checks
from turnout.core.arrays import FloatArray
from turnout.core.errors import ParameterError, UnsupportedError
from turnout.randomizers import FrequencyRandomizer
from turnout.randomizers.indexed import IndexedRandomizer
from turnout.randomizers.interface import all_mechanisms, check_level
from turnout.randomizers.vectors import (
    KashinFrame,
    L2Randomizer,
    SphericalCode,
    VectorRandomizer,
    best_randomizer,
)
from turnout.schemes import ApproximateRandomizer, EveryStep, PureRandomizer, Scheme

PUBLIC_ROWS = (
    "the number of rows is taken as public; rows that a private attribute chose, or that are left "
    "where others have no value, are another question"
)
"""What replace-one assumes of the rows."""
MODELS = ("local", "shuffled", "central")


@dataclass(frozen=True)
class PrivacyRequest:
    """A request for any estimate: the model and its ε, δ and relation.

    Attributes:
        epsilon: ε; ε₀ of a message in the local model.
        trust: one of `MODELS`, whom a client trusts.
        delta: δ; needed for "shuffled", allowed for "central".
        relation: "add-remove" or "replace-one"; needed for "central".
        bits: most bits of a message.
    """

    epsilon: float
    trust: str
    delta: float | None = None
    relation: str | None = None
    bits: int | None = None

    def __post_init__(self) -> None:
        checks.positive(epsilon=self.epsilon)
        if self.trust not in MODELS:
            raise ParameterError("trust", self.trust, f"one of {', '.join(MODELS)}")
        if self.delta is not None:
            checks.open_unit(delta=self.delta)
        if self.trust == "local" and self.delta is not None:
            raise ParameterError("delta", self.delta, "none: the local model's ε is pure")
        if self.trust == "shuffled" and self.delta is None:
            raise ParameterError("delta", None, "a number in (0, 1) for the shuffled model")
        allowed = (
            ("add-remove", "replace-one") if self.trust == "central" else (None, "replace-one")
        )
        if self.relation not in allowed:
            expected = " or ".join(name for name in allowed if name)
            raise ParameterError("relation", self.relation, f"{expected} (model {self.trust})")
        if self.trust == "central" and self.bits is not None:
            raise ParameterError("bits", self.bits, "none: in the central model no message is sent")


@dataclass(frozen=True, eq=False)
class Frequencies:
    """Estimated shares of clients, with what they cost.

    Attributes:
        values: after post-processing, shape (k,).
        raw: unbiased (in the central model under add-remove nearly so), shape (k,).
        noise_errors: standard errors of ``raw`` about the shares of *these* clients, from the
            privacy noise alone, shape (k,).
        population_errors: about the shares of a large population from which the clients are a
            simple random sample, from noise and sampling, shape (k,).
        low, high: limits of each share among these clients at ``confidence``, shape (k,).
        population_low, population_high: limits of each share in the population, shape (k,).
        confidence: of each interval on its own.
        clients: n; None where it is private, and then ``about`` is its private estimate.
        about: clients, as far as may be told.
        cost: what a client pays.
    """

    values: FloatArray
    raw: FloatArray
    noise_errors: FloatArray
    population_errors: FloatArray
    low: FloatArray
    high: FloatArray
    population_low: FloatArray
    population_high: FloatArray
    confidence: float
    clients: int | None
    about: float
    cost: EstimateCost

    @property
    def sampling_errors(self) -> FloatArray:
        """Standard errors from sampling alone, shape (k,)."""
        return _added(self.noise_errors, self.population_errors)


@dataclass(frozen=True, eq=False)
class Mean:
    """An estimated mean of vectors, with what it costs.

    Attributes:
        value: unbiased for the clipped vectors, but for the randomizer's own clipping, shape (d,).
        noise_errors: standard errors of each coordinate about the mean of *these* clients'
            clipped vectors, from the privacy noise alone, shape (d,); of their root mean square,
            or at most.
        population_errors: about the mean of clipped vectors in a large population from which the
            clients are a simple random sample, from noise and sampling, shape (d,).
        sampling_from: where the share of sampling in them comes from.
        rows: what the mean is of.
        mse_bound: of E‖value − mean‖₂², for the clipped vectors; in the central model as estimated.
        clients: n; None where it is private, and then ``about`` is its private estimate.
        about: clients, as far as may be told.
        cost: what a client pays.
    """

    value: FloatArray
    noise_errors: FloatArray
    population_errors: FloatArray
    sampling_from: str
    mse_bound: float
    clients: int | None
    about: float
    cost: EstimateCost
    rows: str = "rows clipped to the ball"

    @property
    def sampling_errors(self) -> FloatArray:
        """Standard errors from sampling alone, shape (d,)."""
        return _added(self.noise_errors, self.population_errors)


def _added(noise: FloatArray, both: FloatArray) -> FloatArray:
    return np.sqrt(np.maximum(both**2 - noise**2, 0.0))


@dataclass(frozen=True)
class EstimateCost:
    """The privacy cost of an estimate to one client, and its trust model.

    Attributes:
        epsilon: ε, never below the true one.
        delta: δ; 0 where ε is pure.
        kind: what kind of statement ε is.
        relation: "replace-one" or "add-remove".
        trust: "local", "shuffled" or "central".
        mechanism: what made the estimate private.
        reason: why that one.
        local_epsilon: exact ε₀ of the client's message; None where it sends its value as it is.
        message_bits: bits of all of a client's messages, as they are serialised; None where it
            sends its value as it is.
        public_randomness: what everybody knows beforehand.
        assumptions: what must hold beside that.
        held: the part of the file that is one client's.
        messages: how many a client sends, each through a shuffler of its own if there are several.
    """

    epsilon: float
    delta: float
    kind: str
    relation: str
    trust: str
    mechanism: str
    reason: str
    local_epsilon: float | None = None
    message_bits: int | None = None
    public_randomness: str = "none"
    assumptions: tuple[str, ...] = ()
    messages: int = 1
    held: str = "one row of the file is one client, all that it holds"

    unit = "client"
    """The unit that ε protects: all that `held` says of one client."""

    @property
    def assumed(self) -> tuple[str, ...]:
        """All assumptions, of which one follows from the relation."""
        return ((PUBLIC_ROWS,) if self.relation == "replace-one" else ()) + self.assumptions

    @property
    def scheme(self) -> Scheme:
        """Any mechanism of this ε and δ, for sums and budgets, towards all who see the answer.

        >>> cost = Cost(0.5, 0.0, "pure", "replace-one", "central", "discrete Laplace", "")
        >>> cost.scheme.randomizer
        PureRandomizer(epsilon0=0.5)
        """
        return any_mechanism(self.epsilon, self.delta, self.relation)


def any_mechanism(epsilon: float, delta: float, relation: str) -> Scheme:
    """One release of any mechanism of this ε and δ; it bounds the composition of all that is."""
    pure = delta == 0
    made = PureRandomizer(epsilon) if pure else ApproximateRandomizer(epsilon, delta)
    return Scheme(made, EveryStep(1), relation)


NORMS = {"l1": 1.0, "l2": 2.0, "linf": math.inf}
"""p of the norm that bounds vectors, by name."""

_EXACT = "pure, exact: the largest log-ratio of the message's probabilities"
_NEAR = 1.05  # errors this near to the least count as no worse, so that fewer bits decide
_MOST_CODE_BITS, _NEARLY_LEAST = 8, 1.1  # of spherical codes; more take long to draw


def frequency_randomizer(
    epsilon: float,
    items: int,
    mechanism: str = "auto",
    bits: int | None = None,
    public: bool = True,
) -> tuple[FrequencyRandomizer, str]:
    """A randomizer of one item within a bit budget, and why it is that one.

    Args:
        epsilon: ε₀, above 0, at most 30.
        items: k, at least 2.
        mechanism: one of `all_mechanisms`, or "auto": the shortest message among those whose error
            bound is within 5 % of the least.
        bits: most bits of a message; None: any number.
        public: whether questions may be public randomness, which saves their bits. Where messages
            are shuffled they may not: nobody knows who was asked what.

    Raises:
        ParameterError: an unknown mechanism, or none with so few bits.

    >>> frequency_randomizer(1.0, 1000, "auto", 1)[0].message_bits
    1
    """
    check_level(epsilon)
    checks.count(2, items=items)
    if bits is not None:
        checks.count(bits=bits)
    makers = makers_of(mechanism)
    built = [
        (name, made)
        for name, make in makers.items()
        for made in _variants(make, epsilon, items, public)
    ]
    fitting = [each for each in built if bits is None or each[1].message_bits <= bits]
    if not built:
        raise UnsupportedError(f"{mechanism}: {items:,} items are too many at this epsilon")
    if not fitting:
        least = min(each.message_bits for _, each in built)
        raise ParameterError("bits", bits, f"at least {least}")
    return chosen_randomizer(fitting, mechanism, bits)


def makers_of(mechanism: str) -> Mapping[str, Callable[..., FrequencyRandomizer]]:
    """The mechanism of that name, or all for "auto".

    Raises:
        ParameterError: an unknown mechanism.
    """
    known = all_mechanisms()
    if mechanism not in ("auto", *known):
        raise ParameterError("mechanism", mechanism, f"auto, {', '.join(known)}")
    return known if mechanism == "auto" else {mechanism: known[mechanism]}


def chosen_randomizer(
    fitting: Sequence[tuple[str, FrequencyRandomizer]], mechanism: str, bits: int | None
) -> tuple[FrequencyRandomizer, str]:
    """The shortest message among those whose error bound is near the least, and why that one."""
    error = min(each.mse_bound(1) for _, each in fitting)
    near = [each for each in fitting if each[1].mse_bound(1) <= _NEAR * error]
    name, chosen = min(near, key=lambda each: (each[1].message_bits, each[1].mse_bound(1)))
    if mechanism != "auto":
        return chosen, f"{mechanism} was asked for"
    within = "" if bits is None else f" within {bits} bits"
    return chosen, f"{name} has the fewest bits within 5 % of the least error bound{within}"


def _variants(
    make: Callable[..., FrequencyRandomizer], epsilon: float, items: int, public: bool
) -> Iterator[FrequencyRandomizer]:
    """A mechanism, with public questions too where they save bits."""
    try:
        own = make(epsilon, items)
        if not own.gain:  # Its coins' steps leave nothing of so small an ε among so many items.
            return
        yield own
        if public and isinstance(own, IndexedRandomizer) and own.index_count > 1:
            yield make(epsilon, items, public=True)
    except ParameterError as error:
        if error.name not in ("items", "cells"):
            raise


def mean_randomizer(
    norm: str,
    dimension: int,
    epsilon: float,
    radius: float,
    bits: int | None = None,
    *,
    public: bool = True,
) -> tuple[VectorRandomizer, str]:
    """A randomizer of one vector within a bit budget, and why it is that one.

    Args:
        norm: one of `NORMS`.
        dimension: d.
        epsilon: ε₀, above 0, at most 30.
        radius: r, the largest norm.
        bits: most bits of a message; None: any number.
        public: whether each client may have public randomness of its own, which would tell a
            shuffler's audience who sent what.

    >>> mean_randomizer("l2", 300, 4.0, 1.0)[0].message_bits
    5
    """
    check_level(epsilon)
    if norm not in NORMS:
        raise ParameterError("norm", norm, f"one of {', '.join(NORMS)}")
    budget = math.inf if bits is None else bits
    if bits is not None:
        checks.count(bits=bits)
    if norm == "l2" and dimension > 1 and public:
        return _code(dimension, epsilon, radius, int(min(budget, _MOST_CODE_BITS)))
    if norm == "l2" and bits is None:
        return L2Randomizer.rotated(dimension, epsilon, radius), "an exact law, quickly drawn"
    chosen = best_randomizer(NORMS[norm], dimension, epsilon, radius, message_bits=budget)
    return chosen, "the least error bound" + ("" if bits is None else f" within {bits} bits")


def _code(
    dimension: int, epsilon: float, radius: float, most_bits: int
) -> tuple[VectorRandomizer, str]:
    """The spherical code of fewest bits that errs little more than the one of most bits."""
    codes = [
        SphericalCode(dimension, epsilon, radius, code_bits=bits)
        for bits in range(1, most_bits + 1)
    ]
    enough = _NEARLY_LEAST * min(code.worst_squared_error for code in codes)
    chosen = next(code for code in codes if code.worst_squared_error <= enough)
    return chosen, "the fewest bits within a tenth of the least error"


def local_cost(randomizer: FrequencyRandomizer | VectorRandomizer, reason: str) -> EstimateCost:
    """The privacy of one message on its own."""
    return EstimateCost(
        randomizer.epsilon0,
        0.0,
        _EXACT,
        "replace-one",
        "local",
        type(randomizer).__name__,
        reason,
        randomizer.epsilon0,
        randomizer.message_bits,
        public_randomness(randomizer),
        accuracy_notes(randomizer),
    )


def accuracy_notes(randomizer: FrequencyRandomizer | VectorRandomizer) -> tuple[str, ...]:
    """The error that clipping adds, as predicted and as bounded; privacy does not rest on it."""
    if not isinstance(randomizer, L2Randomizer) or randomizer.worst_squared_bias == 0.0:
        return ()
    kashin = isinstance(randomizer.rotation, KashinFrame)
    about = "most often nothing" if kashin else f"about {randomizer.clipping_error:.2g}"
    return (
        f"for accuracy only: clipping rotated coordinates adds {about} to the squared error, and "
        f"{randomizer.worst_squared_bias:.2g} to its bound",
    )


def public_randomness(randomizer: FrequencyRandomizer | VectorRandomizer) -> str:
    """Public randomness in words."""
    if isinstance(randomizer, VectorRandomizer):
        return randomizer.public_randomness
    asked = isinstance(randomizer, IndexedRandomizer) and randomizer.public
    return "the question that each client is asked" if asked else "none"
