"""Requests for private estimates, and the privacy cost that an answer states."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from turnout.core import checks
from turnout.core.errors import ParameterError
from turnout.spec import ApproximateRandomizer, EveryStep, PureRandomizer, Scheme

FloatArray = NDArray[np.float64]
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
    cost: Cost

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
    cost: Cost
    rows: str = "rows clipped to the ball"

    @property
    def sampling_errors(self) -> FloatArray:
        """Standard errors from sampling alone, shape (d,)."""
        return _added(self.noise_errors, self.population_errors)


def _added(noise: FloatArray, both: FloatArray) -> FloatArray:
    return np.sqrt(np.maximum(both**2 - noise**2, 0.0))


@dataclass(frozen=True)
class Cost:
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
