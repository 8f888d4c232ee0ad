"""Blocks of shuffled messages of some of the clients: a uniform subset, or self-sampling.

`SubsampledBlock` is a round of a uniform subset, `SelfSamplingBlock` a round of self-sampling.
`sampled_price` returns an upper bound over all numbers of messages at once, where such a bound is
known: a `SampledCurve`, `SampledApproximate` or `SampledGaussian`. `schemes` makes the blocks; they
build on `sampled_mixtures`. docs/design/shuffling.md ("Sampling") has the proofs.

Neighbours differ in one client's record (replace-one), so the number of messages does not depend
on this record.

Notation
    n    number of clients
    q    probability that a client sends a message, independently of the others
    N    number of messages of a round, Bin(n, q); the senders are a uniform subset
    γ    N/n               K = e^ε
    δ_N  δ(K) of N shuffled messages, the worst case over all records; falls in N, convex in K

**Uniform subset** (Balle, Barthe and Gaboardi 2018, balle2018subsampling, Theorem 10 with their
advanced joint convexity). δ(K) ≤ γ·δ_N(K'), K' = 1 + (K − 1)/γ: the round is (1 − γ)M₀ + γM₁
against (1 − γ)M₀ + γM₁', where any two of M₀, M₁ and M₁' are messages of neighbouring records.

**Identical others.** If all others hold the record that replaces the victim's, then M₀ = M₁' = Q
and the round is exactly (1 − γ)Q + γP against Q (`curves.DilutedCurve`, both directions). This is a
lower bound, and in the direction *remove* its formula equals that of the upper bound.

**Self-sampling.** Given N, which is observed, the senders are a uniform subset; see
`sampled_mixtures`. `sampled_price` takes one mean over N and the kinds of the messages together,
instead of a bound for every N.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from turnout.accounting.divergence.blocks import Block, CurvePair
from turnout.accounting.divergence.curves import (
    Curve,
    Direction,
    PairCurve,
    Side,
    diluted,
    epsilon_at,
    nodes_down_to,
    upper_polygon,
)
from turnout.accounting.divergence.pairs import UNIT_ROUNDOFF, GaussianPair
from turnout.accounting.divergence.work import remembered
from turnout.accounting.shuffling.approximate import (
    CHOICES,
    ApproximateMessagesBlock,
    Blanket,
    GaussianMessagesBlock,
    HiddenCurve,
    InfinityMassBound,
    LocalCurve,
    Rung,
    rungs_by_ratio,
)
from turnout.accounting.shuffling.blanket import BlanketBlock
from turnout.accounting.shuffling.blanket_pairs import stronger_clones_pair
from turnout.accounting.shuffling.lower_bounds import IdenticalGaussianBlock, IdenticalOthersBlock
from turnout.accounting.shuffling.sampled_mixtures import (
    Grain,
    MessageBlocks,
    Mixture,
    Sample,
    SampledCurve,
    best_curve,
    dilution_of,
    floor_of,
    wide_curve,
)
from turnout.core import checks
from turnout.core.arrays import FloatArray, IntArray
from turnout.core.errors import NumericalError, ParameterError, UnsupportedError

_ROUNDING = 32 * UNIT_ROUNDOFF
_FEWER = 4  # the factor τ multiplies a bound on a grid that is coarser by this


@dataclass(frozen=True, slots=True)
class SampledApproximate:
    """Upper bound on δ(K) of self-sampling with messages of (ε₀, δ₀)-randomizers.

    Notation: see `approximate`. Each of the n − 1 others sends a message with probability q, so
    τ = (n − 1)·q·τ₁ here, with τ₁ the distance of one message. D is the bound for n − 1 clients
    that take part independently, so D is at most q. The bound of a single message holds too.

    Attributes:
        hidden: bounds if other messages hide the victim, one for each blanket pair.
        alone: bound of a single message, δ₀ included, averaged over γ.
    """

    hidden: Sequence[HiddenCurve]
    alone: Mixture
    rate: float
    delta0: float

    @property
    def floor(self) -> float:
        """Limit q·δ₀ of δ for large ε, the probability that the victim sends and is identified."""
        return min(self.rate * self.delta0 * (1.0 + _ROUNDING), 1.0)

    def delta(self, k: FloatArray) -> FloatArray:
        """Upper bound on δ at each K ≥ 1, shape of ``k``; the bound may rise from some K on."""
        return np.minimum(self.hidden_delta(k), self.alone.delta(k))

    def hidden_delta(self, k: FloatArray) -> FloatArray:
        """Upper bound on δ if other messages hide the victim, shape of ``k``."""
        hidden = np.minimum.reduce([curve.delta(k) for curve in self.hidden])
        value = self.rate * self.delta0 + (1.0 - self.delta0) * hidden
        return np.minimum(value * (1.0 + _ROUNDING), 1.0)


@dataclass(frozen=True, slots=True)
class SampledGaussian:
    """Upper bound on δ(K) of self-sampling with Gaussian messages: the smallest over several ε₀.

    The same ε₀ is used for all numbers of messages; it may change with K.

    Attributes:
        alone: bound of a single message, averaged over γ.
    """

    noise_multiplier: float
    sample: Sample
    grain: Grain
    alone: Mixture

    @property
    def floor(self) -> float:
        """Limit of δ for large ε, always 0: every δ has a finite ε."""
        return 0.0

    def delta(self, k: FloatArray) -> FloatArray:
        """Value δ(K) of the curve at each K ≥ 1, shape of ``k``."""
        ratios = np.atleast_1d(np.asarray(k, dtype=float)).ravel()
        values = self.alone.delta(ratios)
        n, q = self.sample.population, self.sample.rate
        middle, inner = max(round(n * q), 1), 1.0 + (ratios - 1.0) / q
        for rung, chosen in rungs_by_ratio(self.noise_multiplier, middle, inner):
            found = _rung(self, rung).hidden_delta(ratios[chosen])
            values[chosen] = np.minimum(values[chosen], found)
        return values.reshape(np.shape(k))


@remembered
def _rung(price: SampledGaussian, rung: Rung) -> SampledApproximate:
    hidden = _hidden(price.sample, price.grain, rung)
    return SampledApproximate([hidden], price.alone, price.sample.rate, rung.delta0)


def _hidden(sample: Sample, grain: Grain, rung: Rung) -> HiddenCurve:
    """Upper bound on δ if other messages hide the victim, for one blanket pair."""
    n, q = sample.population, sample.rate
    pair, distance = Blanket.of(*rung)
    few = Grain(max(grain.groups // _FEWER, 1), grain.fine / _FEWER, grain.lost)
    base, fewer = SampledCurve(pair, n, q, grain), SampledCurve(pair, max(n - 1, 1), q, few)
    return HiddenCurve(base, fewer, (n - 1) * q * distance, q)


def _approximate(
    sample: Sample, grain: Grain, block: ApproximateMessagesBlock
) -> SampledApproximate:
    epsilon0, delta0 = block.price(1).epsilon0, block.delta0
    hidden = [_hidden(sample, grain, Rung(epsilon0, delta0, choice)) for choice in CHOICES]
    local = InfinityMassBound(LocalCurve(epsilon0), delta0, Side.UPPER)
    return SampledApproximate(hidden, Mixture.alone(sample, local), sample.rate, delta0)


SampledPrice = SampledCurve | SampledApproximate | SampledGaussian
"""δ(K) of a self-sampling round, from above."""


def sampled_price(sample: Sample, grain: Grain) -> SampledPrice | None:
    """Upper bound on δ(K) of a round, averaged over its number of messages in one calculation.

    The result is None if no such bound is known.

    Args:
        sample: self-sampling round, with the blocks of its messages.
        grain: resolution of the numbers of messages.
    """
    block = sample.base(sample.population)
    if isinstance(block, BlanketBlock):
        return SampledCurve(block.upper, sample.population, sample.rate, grain)
    if isinstance(block, IdenticalOthersBlock):
        pair = stronger_clones_pair(block.local_epsilon)
        return SampledCurve(pair, sample.population, sample.rate, grain)
    if isinstance(block, ApproximateMessagesBlock):
        return _approximate(sample, grain, block)
    if isinstance(block, GaussianMessagesBlock | IdenticalGaussianBlock):
        sigma = block.noise_multiplier
        message = PairCurve(GaussianPair(sigma / 2), Direction.REMOVE, Side.UPPER)
        return SampledGaussian(sigma, sample, grain, Mixture.alone(sample, message))
    return None


_LARGEST_HINT = 0.5
_APART = 3e-3  # relative distance of the ε's between which the one at δ is searched
_BRACKETS = 14
_LEAST_EPSILON, _LARGEST_EPSILON = 1e-9, 600.0
_DENSITY, _REACHED = 10.0, 0.5
_FURTHER, _AT_ONCE = 1.02, 8
_LOST = 3e-5  # part of δ that may be left out
_SINGLE, _COMPOSED = Grain(40, 300.0, _LOST), Grain(24, 100.0, _LOST)  # one round, one of many
_LINE_ROUNDING = 1e-9  # of a line, relative to what it is the sum of


@dataclass(frozen=True, slots=True)
class SubsampledBlock:
    """Round in which a uniform subset of k of n clients sends messages that are shuffled.

    Source: Balle, Barthe and Gaboardi 2018 (balle2018subsampling); see the module's header.

    Attributes:
        base: block of k shuffled messages under replace-one; its curves bound both directions.
        rate: γ = k/n in (0, 1].
        identical_others: whether all records of ``base`` are equal in Q, and all but the client's
            in P. Then the curve of the sample is exact, and lower curves exist.
    """

    base: Block
    rate: float
    identical_others: bool = False

    def __post_init__(self) -> None:
        _rate(self.rate)

    @property
    def loss_deviation(self) -> float:
        """Approximate standard deviation of the privacy loss of the pair diluted at the rate γ."""
        return self.rate * self.base.loss_deviation

    def curve(self, direction: Direction, side: Side, delta: float, refinement: int) -> Curve:
        """Curve that is tight near the given δ; lower curves need ``identical_others``."""
        _require_side(side, identical_others=self.identical_others)
        if self.identical_others and direction is Direction.ADD:
            # The δ at which the base must be tight is not known beforehand.
            return best_curve(self.curves(side, delta, refinement), direction)
        hint = min(_LARGEST_HINT, delta / self.rate)
        base = self.base.curve(direction, side, hint, refinement)
        return diluted(base, Direction.REMOVE, self.rate)

    def curves(self, side: Side, delta: float, refinement: int) -> CurvePair:
        """Curves tight from δ = 1 down to the given δ; lower ones need ``identical_others``."""
        _require_side(side, identical_others=self.identical_others)
        # Curves of the base at δ/γ, and their floors diluted.
        base = self.base.curves(side, min(_LARGEST_HINT, delta / self.rate), refinement)
        floors = self.rate * base.floors[0], self.rate * base.floors[1]
        if self.identical_others and self.rate < 1:
            floors = floors[0], 0.0  # the victim may be absent, so no output is impossible in P
        # Every curve of the base, diluted by its direction.
        return CurvePair(
            side,
            [diluted(c, Direction.REMOVE, self.rate) for c in base.remove],
            [
                diluted(
                    c, dilution_of(Direction.ADD, identical_others=self.identical_others), self.rate
                )
                for c in base.add
            ],
            floors,
        )


@dataclass(frozen=True, slots=True)
class SelfSamplingBlock:
    """Round in which each of n clients sends a message with probability q (self-sampling).

    The number of messages is observed. Source: the module's header; docs/errata.md, thesis 4.

    Attributes:
        base: the block of N shuffled messages, for every N ≥ 1, as in `SubsampledBlock`.
        rate: q in (0, 1].
        identical_others: as in `SubsampledBlock`, for every N.
    """

    base: MessageBlocks
    population: int
    rate: float
    identical_others: bool = False

    def __post_init__(self) -> None:
        checks.count(population=self.population)
        _rate(self.rate)

    @property
    def loss_deviation(self) -> float:
        """Approximate standard deviation of the loss at the mean number of messages."""
        return self.mean.loss_deviation

    @property
    def sample(self) -> Sample:
        """Description of the sample, over whose number of messages the bounds are averaged."""
        return Sample(self.base, self.population, self.rate, self.identical_others)

    @property
    def mean(self) -> SubsampledBlock:
        """Round of a uniform subset whose size is about the mean number of messages."""
        messages = min(max(round(self.population * self.rate), 1), self.population)
        return SubsampledBlock(
            self.base(messages), messages / self.population, self.identical_others
        )

    def curve(self, direction: Direction, side: Side, delta: float, refinement: int) -> Curve:
        """Curve that is tight near the given δ; a lower curve needs ``identical_others``."""
        _require_side(side, identical_others=self.identical_others)
        return _near(self, direction, side, delta, refinement)

    def curves(self, side: Side, delta: float, refinement: int) -> CurvePair:
        """Curves tight from δ = 1 down to the given δ; lower ones need ``identical_others``."""
        _require_side(side, identical_others=self.identical_others)
        return _down_to(self, side, delta, refinement)


@dataclass(frozen=True, slots=True, eq=False)
class _StepCurve:
    """Lower curve that is a step function: a bound on δ at one K holds at all smaller K."""

    nodes: FloatArray
    values: FloatArray

    def delta(self, k: FloatArray) -> FloatArray:
        return np.append(self.values, 0.0)[np.searchsorted(self.nodes, k, side="left")]

    def slope(self, k: FloatArray) -> FloatArray:
        return np.zeros(np.shape(k))


@dataclass(frozen=True, slots=True, eq=False)
class _TangentCurve:
    """Lower curve below a convex curve: the larger of the tangents at the two nodes around K."""

    nodes: FloatArray
    values: FloatArray
    slopes: FloatArray

    def delta(self, k: FloatArray) -> FloatArray:
        left, right, _ = self._lines(k)
        return np.maximum(np.maximum(left, right), 0.0)

    def slope(self, k: FloatArray) -> FloatArray:
        """Slope of the higher tangent, shape of ``k``."""
        left, right, index = self._lines(k)
        later = np.minimum(index + 1, self.nodes.size - 1)
        return np.where(left >= right, self.slopes[index], self.slopes[later])

    def _lines(self, k: FloatArray) -> tuple[FloatArray, FloatArray, IntArray]:
        index = np.searchsorted(self.nodes, k, side="right") - 1
        later = np.minimum(index + 1, self.nodes.size - 1)
        return self._line(k, index), self._line(k, later), index

    def _line(self, k: FloatArray, index: IntArray) -> FloatArray:
        rise = self.slopes[index] * (k - self.nodes[index])
        return self.values[index] + rise - _LINE_ROUNDING * (self.values[index] + np.abs(rise))


@remembered
def _near(
    block: SelfSamplingBlock, direction: Direction, side: Side, delta: float, refinement: int
) -> Curve:
    """Curve from bounds at a few values of K around the K at which δ(K) is the given δ."""
    # The mixture as a function of K, and a first guess of ε.
    mixture = _priced(block, direction, side, _grain(_SINGLE, delta, refinement), refinement)
    guess = max(_guess(block, direction, side, delta), _LEAST_EPSILON)
    known: dict[float, float] = {0.0: block.rate if side is Side.UPPER else 0.0}
    apart = _APART
    for _ in range(_BRACKETS):
        # Bounds at four values of ε around the guess, added to those known already.
        epsilons = guess * (1.0 + apart * np.array([-1.0, 0.0, 1.0, 3.0]))
        values = mixture.delta(np.exp(epsilons))
        known.update(zip(epsilons.tolist(), values.tolist(), strict=True))
        # The interval known to contain the crossing; a short one is enough.
        low = max((e for e, value in known.items() if value > delta), default=0.0)
        high = min((e for e, value in known.items() if value <= delta and e > 0), default=math.inf)
        if high <= max(low * (1.0 + 2.5 * _APART), _LEAST_EPSILON):
            return _through_few(known, side)
        # Else guess by a line through ln δ, or widen.
        if low > 0.0 and math.isfinite(high):
            guess, apart = _crossing(known, low, high, delta), _APART
        else:
            apart = min(4.0 * apart, 0.9)
            guess = high / (1.0 + apart) if math.isfinite(high) else low * (1.0 + 2.0 * apart)
        if guess * (1.0 + 3.0 * apart) > _LARGEST_EPSILON:
            break
    if side is Side.LOWER or min(known.values()) <= delta:
        return _through_few(known, side)  # less tight, but still a proved bound
    raise NumericalError(
        f"delta = {delta:.3g} cannot be certified: the bound on delta of the sampled round stays "
        "above it at every epsilon tried"
    )


def _grain(first: Grain, delta: float, refinement: int) -> Grain:
    """Resolution at which a curve is tight down to the given δ."""
    lost = first.lost * _REACHED * delta
    return Grain(first.groups << refinement, first.fine * 2**refinement, lost)


def _priced(
    block: SelfSamplingBlock, direction: Direction, side: Side, grain: Grain, refinement: int
) -> Mixture | SampledPrice:
    """Bound on δ(K) at any K; an upper bound by `sampled_price` where this is known."""
    if side is Side.UPPER:
        found = sampled_price(block.sample, grain)
        if found is not None:
            return found
    return Mixture.of(block.sample, direction, side, grain.lost / _LOST, refinement)


def _guess(block: SelfSamplingBlock, direction: Direction, side: Side, delta: float) -> float:
    """Estimate of the ε at which the mixture reaches δ, from the mean number of messages."""
    mean = block.mean
    curve = mean.curve(Direction.REMOVE, side, delta, 0)
    if block.identical_others and direction is Direction.ADD:
        curve = mean.curve(direction, side, delta, 0)
    try:
        return epsilon_at(curve, delta, side)
    except NumericalError:  # on average less than one message, so the bound for one is too large
        return block.loss_deviation


def _crossing(known: dict[float, float], low: float, high: float, delta: float) -> float:
    """Estimate of the ε at which a curve equals δ, by linear interpolation of ln δ.

    If δ is 0 at one end, δ is interpolated instead of ln δ. The estimate is never close to an end.
    """
    if known[high] <= 0.0:
        share = 1.0 - delta / known[low]
        return low + min(max(share, 0.02), 0.98) * (high - low)
    logs = [math.log(max(known[e], 1e-300)) for e in (low, high)]
    share = (logs[0] - math.log(delta)) / max(logs[0] - logs[1], 1e-12)
    return low + min(max(share, 0.02), 0.98) * (high - low)


def _through_few(known: dict[float, float], side: Side) -> Curve:
    nodes = np.array(sorted(known))
    values = np.array([known[float(node)] for node in nodes])
    if side is Side.UPPER:
        return upper_polygon(np.exp(nodes), values)
    return _StepCurve(np.exp(nodes), values)


@remembered
def _down_to(block: SelfSamplingBlock, side: Side, delta: float, refinement: int) -> CurvePair:
    """Curves of both directions, tight from δ = 1 down to the given δ."""
    directions = list(Direction) if block.identical_others else [Direction.REMOVE]
    found = [_polygon(block, direction, side, delta, refinement) for direction in directions]
    (remove, under_remove), (add, under_add) = found[0], found[-1]
    return CurvePair(side, [remove], [add], (under_remove, under_add))


def _polygon(
    block: SelfSamplingBlock, direction: Direction, side: Side, delta: float, refinement: int
) -> tuple[Curve, float]:
    """Polygon through bounds at several K, and the limit of δ for large ε."""
    # Bounds at the first nodes.
    nodes = _nodes(block, delta, refinement)
    mixture = _priced(block, direction, side, _grain(_COMPOSED, delta, refinement), refinement)
    values = mixture.delta(nodes)
    # A lower curve of a mixture lies above its tangents at the nodes.
    if isinstance(mixture, Mixture) and side is Side.LOWER:
        return _TangentCurve(nodes, values, mixture.slope(nodes)), mixture.floor
    # A round of few messages reveals more than one of the mean number, so δ may fall slowly: add
    # larger K until δ is near its limit.
    while values[-1] > mixture.floor * (1.0 + 1e-9) + _REACHED * delta:
        furthest = max(math.log(nodes[-1]), block.loss_deviation)
        if not furthest < _LARGEST_EPSILON:
            raise NumericalError(
                f"delta = {delta:.3g} cannot be certified: the bound on delta of the sampled round "
                f"stays above it up to epsilon = {_LARGEST_EPSILON:g}"
            )
        further = np.exp(furthest * _FURTHER ** np.arange(1, _AT_ONCE + 1))
        nodes, values = np.append(nodes, further), np.append(values, mixture.delta(further))
    return upper_polygon(nodes, values), mixture.floor


def _nodes(block: SelfSamplingBlock, delta: float, refinement: int) -> FloatArray:
    """Values of K from 1 to where the bound at the mean number of messages reaches δ.

    The values are denser around the standard deviation of the loss, where the curve bends.
    """
    mean = block.mean
    base = wide_curve(mean.base, Direction.REMOVE, Side.UPPER, delta, refinement)
    curve = diluted(base, Direction.REMOVE, mean.rate)
    cut = floor_of(mean.base, Side.UPPER) * mean.rate * (1.0 + 1e-9) + _REACHED * delta

    def priced(k: float, _: Side) -> float:
        return float(curve.delta(np.array(k)))

    return nodes_down_to(priced, cut, mean.loss_deviation, _DENSITY * 2 ** (refinement / 2))


def _require_side(side: Side, *, identical_others: bool) -> None:
    if side is Side.LOWER and not identical_others:
        raise UnsupportedError(
            "a lower bound for a sample of the clients needs identical records of all other clients"
        )


def _rate(rate: float) -> None:
    checks.probability(rate=rate)
    if rate == 0:
        raise ParameterError("rate", rate, "a number above 0, since at 0 no client sends a message")
