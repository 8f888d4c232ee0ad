"""Private estimates: requests, results, and the choice of a randomizer with its cost.

`PrivacyRequest` is the request; `Frequencies` and `Mean` are results, each with its `EstimateCost`.
`frequency_randomizer` and `mean_randomizer` choose the randomizer, and `local_cost` is the privacy
cost of one message. `turnout.estimation.private.estimates` applies them to a column of values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from turnout.core import checks
from turnout.core.arrays import FloatArray
from turnout.core.errors import ParameterError, UnsupportedError
from turnout.core.plugins import load
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
"""Assumption about the rows under replace-one."""
MODELS = ("local", "shuffled", "central")
"""Trust models of an estimate."""


@dataclass(frozen=True)
class PrivacyRequest:
    """Privacy that the user requests for an estimate: trust model, ε, δ and relation.

    Attributes:
        epsilon: ε, above 0; in the local model ε₀ of a message.
        trust: one of `MODELS`.
        delta: δ in (0, 1); required for "shuffled", optional for "central", None for "local".
        relation: "add-remove" or "replace-one"; required for "central".
        bits: largest number of bits of a message; None: any number.

    Raises:
        ParameterError: a value is outside its domain, or does not fit the trust model.
    """

    epsilon: float
    trust: str
    delta: float | None = None
    relation: str | None = None
    bits: int | None = None

    def __post_init__(self) -> None:
        # Every trust model has its own δ, relation and bits.
        checks.positive(epsilon=self.epsilon)
        if self.trust not in MODELS:
            raise ParameterError("trust", self.trust, f"one of {', '.join(MODELS)}")
        # The local model has pure ε; the shuffled model needs δ; the central model takes either.
        if self.delta is not None:
            checks.open_unit(delta=self.delta)
        if self.trust == "local" and self.delta is not None:
            raise ParameterError(
                "delta", self.delta, "no δ, since the guarantee of the local model is pure ε"
            )
        if self.trust == "shuffled" and self.delta is None:
            raise ParameterError("delta", None, "a number in (0, 1) for the shuffled model")
        # Only the central model can hide the number of clients (add-remove).
        allowed = (
            ("add-remove", "replace-one") if self.trust == "central" else (None, "replace-one")
        )
        if self.relation not in allowed:
            expected = " or ".join(name for name in allowed if name)
            raise ParameterError("relation", self.relation, f"{expected} (model {self.trust})")
        if self.trust == "central" and self.bits is not None:
            raise ParameterError(
                "bits", self.bits, "no limit, since the central model has no messages"
            )


@dataclass(frozen=True, eq=False)
class Frequencies:
    """Estimated shares of the clients with each item, with confidence limits and privacy cost.

    Attributes:
        values: shares after post-processing, shape (k,).
        raw: unbiased shares (nearly so in the central model under add-remove), shape (k,).
        noise_errors: standard errors of ``raw`` about the shares of *these* clients, from privacy
            noise alone, shape (k,).
        population_errors: standard errors of ``raw`` about the shares of a large population of
            which the clients are a simple random sample, from noise and sampling, shape (k,).
        low, high: confidence limits of each share among these clients, shape (k,).
        population_low, population_high: confidence limits of each share in the population, shape
            (k,).
        confidence: confidence level of the limits of one share.
        clients: n; None where n is private.
        about: n if n is public, else a private estimate of n.
        cost: privacy cost for one client.
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
        """Standard errors of ``raw`` from sampling alone, shape (k,)."""
        return _added(self.noise_errors, self.population_errors)


@dataclass(frozen=True, eq=False)
class Mean:
    """Estimated mean of clipped vectors, with standard errors and privacy cost.

    Attributes:
        value: estimated mean, unbiased except for the clipping of the randomizer, shape (d,).
        noise_errors: standard errors of each coordinate about the mean of *these* clients' clipped
            vectors, from privacy noise alone, shape (d,). Depending on the mechanism they are
            exact, the root mean square over coordinates, or an upper bound.
        population_errors: standard errors about the mean of clipped vectors in a large population
            of which the clients are a simple random sample, from noise and sampling, shape (d,).
        sampling_from: description of the way in which the sampling error was computed.
        mse_bound: upper bound on E‖value − mean‖₂², where mean is that of clipped vectors; in the
            central model an estimate of this expectation.
        clients: n; None where n is private.
        about: n if n is public, else a private estimate of n.
        cost: privacy cost for one client.
        rows: description of the vectors whose mean is estimated.
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
        """Standard errors of ``value`` from sampling alone, shape (d,)."""
        return _added(self.noise_errors, self.population_errors)


def _added(noise: FloatArray, both: FloatArray) -> FloatArray:
    return np.sqrt(np.maximum(both**2 - noise**2, 0.0))


@dataclass(frozen=True)
class EstimateCost:
    """Privacy cost of an estimate for one client, with its trust model.

    Attributes:
        epsilon: upper bound on ε.
        delta: δ; 0 for pure ε.
        kind: kind of the guarantee, such as "pure" (δ = 0).
        relation: "replace-one" or "add-remove".
        trust: "local", "shuffled" or "central".
        mechanism: name of the mechanism.
        reason: reason for the choice of the mechanism.
        local_epsilon: ε₀ of the client's messages; None where a client sends its value in the
            clear.
        message_bits: bits of all messages of a client; None where a client sends its value in the
            clear.
        public_randomness: description of the randomness that all parties know beforehand.
        assumptions: further assumptions of the guarantee.
        messages: number of messages of a client; each message goes through a separate shuffler.
        held: description of the rows that belong to one client.
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
    """The unit that ε protects: all that `held` describes."""

    @property
    def assumed(self) -> tuple[str, ...]:
        """Assumptions of the guarantee; with replace-one they include a public number of rows."""
        return ((PUBLIC_ROWS,) if self.relation == "replace-one" else ()) + self.assumptions

    @property
    def scheme(self) -> Scheme:
        """Scheme that stands for one release with this ε and δ, for compositions and budgets.

        >>> cost = EstimateCost(0.5, 0.0, "pure", "replace-one", "central", "discrete Laplace", "")
        >>> cost.scheme.randomizer
        PureRandomizer(epsilon0=0.5)
        """
        return any_mechanism(self.epsilon, self.delta, self.relation)


def any_mechanism(epsilon: float, delta: float, relation: str) -> Scheme:
    """Scheme that stands for one release of any (ε, δ)-private mechanism with this relation."""
    pure = delta == 0
    made = PureRandomizer(epsilon) if pure else ApproximateRandomizer(epsilon, delta)
    return Scheme(made, EveryStep(1), relation)


NORMS = {"l1": 1.0, "l2": 2.0, "linf": math.inf}
"""Exponent p of the norm that bounds vectors, by name."""

_EXACT = "pure, exact: the largest log-ratio of the message's probabilities"
_NEAR = 1.05  # errors within this factor of the least are ties, decided by fewer bits
_MOST_CODE_BITS, _NEARLY_LEAST = 8, 1.1  # of spherical codes; longer ones are slow to draw


def frequency_randomizer(
    epsilon: float,
    items: int,
    mechanism: str = "auto",
    bits: int | None = None,
    public: bool = True,
) -> tuple[FrequencyRandomizer, str]:
    """Randomizer of one item within a budget of bits, and the reason for the choice.

    Args:
        epsilon: ε₀, above 0, at most 30.
        items: k, at least 2.
        mechanism: one of `all_mechanisms`, or "auto" for the mechanism with the shortest message
            among those whose error bound is at most 5 % above the least.
        bits: largest number of bits of a message; None: any number.
        public: whether the questions to clients may be drawn from public randomness, so that
            messages need not contain the questions. ``public`` is False for shuffled messages,
            since a public question would identify the client that answers the question.

    Raises:
        ParameterError: the mechanism is unknown, or no message within ``bits``.
        UnsupportedError: the mechanism cannot be used with so many items.

    >>> frequency_randomizer(1.0, 1000, "auto", 1)[0].message_bits
    1
    """
    check_level(epsilon)
    checks.count(2, items=items)
    if bits is not None:
        checks.count(bits=bits)
    # Every mechanism, with and without public questions, and those within the budget of bits.
    makers = makers_of(mechanism)
    built = [
        (name, made)
        for name, make in makers.items()
        for made in _variants(make, epsilon, items, public)
    ]
    fitting = [each for each in built if bits is None or each[1].message_bits <= bits]
    # No mechanism works at so small an ε, or none within the budget of bits.
    if not built:
        raise UnsupportedError(
            f"{mechanism}: {items:,} items are too many at this epsilon; use a larger epsilon"
        )
    if not fitting:
        least = min(each.message_bits for _, each in built)
        raise ParameterError("bits", bits, f"at least {least}")
    return chosen_randomizer(fitting, mechanism, bits)


def makers_of(mechanism: str) -> Mapping[str, Callable[..., FrequencyRandomizer]]:
    """Constructors of the named mechanism, or of all mechanisms for "auto".

    Raises:
        ParameterError: the mechanism is unknown.
    """
    known = all_mechanisms()
    if mechanism not in ("auto", *known) and load("randomizers", mechanism):
        known = all_mechanisms()
    if mechanism not in ("auto", *known):
        raise ParameterError("mechanism", mechanism, f"one of auto, {', '.join(known)}")
    return known if mechanism == "auto" else {mechanism: known[mechanism]}


def chosen_randomizer(
    fitting: Sequence[tuple[str, FrequencyRandomizer]], mechanism: str, bits: int | None
) -> tuple[FrequencyRandomizer, str]:
    """Randomizer with the fewest bits among those of nearly least error, and why it was chosen."""
    error = min(each.mse_bound(1) for _, each in fitting)
    near = [each for each in fitting if each[1].mse_bound(1) <= _NEAR * error]
    name, chosen = min(near, key=lambda each: (each[1].message_bits, each[1].mse_bound(1)))
    if mechanism != "auto":
        return chosen, f"{mechanism} was requested"
    within = "" if bits is None else f" within {bits} bits"
    return chosen, f"{name} has the fewest bits within 5 % of the least error bound{within}"


def _variants(
    make: Callable[..., FrequencyRandomizer], epsilon: float, items: int, public: bool
) -> Iterator[FrequencyRandomizer]:
    """Randomizers of a mechanism: the plain one, and one with public questions if it is shorter."""
    try:
        own = make(epsilon, items)
        if not own.gain:  # The resolution of its coins leaves nothing of so small an ε.
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
    """Randomizer of one vector within a budget of bits, and the reason for the choice.

    Args:
        norm: one of `NORMS`.
        dimension: d, at least 1.
        epsilon: ε₀, above 0, at most 30.
        radius: r, the largest norm.
        bits: largest number of bits of a message; None: any number.
        public: whether public randomness may depend on the client's number. ``public`` is False
            for shuffled messages, which must not identify clients.

    Raises:
        ParameterError: an unknown norm, or an argument outside its domain.

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
        reason = "an exact distribution, quickly drawn"
        return L2Randomizer.rotated(dimension, epsilon, radius), reason
    chosen = best_randomizer(NORMS[norm], dimension, epsilon, radius, message_bits=budget)
    return chosen, "the least error bound" + ("" if bits is None else f" within {bits} bits")


def _code(
    dimension: int, epsilon: float, radius: float, most_bits: int
) -> tuple[VectorRandomizer, str]:
    """Spherical code with the fewest bits among those of nearly least error, and why."""
    codes = [
        SphericalCode(dimension, epsilon, radius, code_bits=bits)
        for bits in range(1, most_bits + 1)
    ]
    enough = _NEARLY_LEAST * min(code.worst_squared_error for code in codes)
    chosen = next(code for code in codes if code.worst_squared_error <= enough)
    return chosen, "the fewest bits within a tenth of the least error"


def local_cost(randomizer: FrequencyRandomizer | VectorRandomizer, reason: str) -> EstimateCost:
    """Privacy cost of one message of a client in the local model."""
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
    """Notes on the error that clipping adds: a prediction and a bound."""
    if not isinstance(randomizer, L2Randomizer) or randomizer.worst_squared_bias == 0.0:
        return ()
    kashin = isinstance(randomizer.rotation, KashinFrame)
    about = "most often nothing" if kashin else f"about {randomizer.clipping_error:.2g}"
    return (
        f"for accuracy only: clipping rotated coordinates adds {about} to the squared error, and "
        f"{randomizer.worst_squared_bias:.2g} to its bound",
    )


def public_randomness(randomizer: FrequencyRandomizer | VectorRandomizer) -> str:
    """Description of the public randomness that a randomizer uses."""
    if isinstance(randomizer, VectorRandomizer):
        return randomizer.public_randomness
    asked = isinstance(randomizer, IndexedRandomizer) and randomizer.public
    return "the question that each client is asked" if asked else "none"
