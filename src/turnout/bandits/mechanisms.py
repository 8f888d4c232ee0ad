"""Mechanisms that protect rewards: the learner sees one noisy sum for each action of a batch.

`CentralSums` adds discrete Laplace noise, `LocalBits` and `ShuffledBits` randomize each reward to
one bit, `BareSums` protects nothing. `Channels` holds the distributions of the
messages and of the noise on each sum, for the widths of `turnout.bandits.policy`.

One object executes, simulates and analyses a mechanism. A client has one reward, in one batch, of
one action. Releases before do not depend on it and later ones are functions of what is released
and of other clients' rewards, so the ε of a run is that of its costliest batch
(docs/design/bandits.md, "One batch a client").

Notation: n the pulls of an action in a batch, S their rewards' sum (each ±1), so replacing one
reward moves S by 2; κ the factor by which a randomized bit's mean shrinks,
(e^{ε₀} − 1)/(e^{ε₀} + 1). A sum of n messages z of ±1 has mean m = κμ each, plus discrete Laplace
noise Z with P(Z = x) ∝ q^{|x|}, q = e^{−1/scale}; ψ(x) = ln E e^{x(z − m)}, φ(x) = ln E e^{xZ}.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import ClassVar

import numpy as np

from turnout.accounting import price, shuffled_price
from turnout.core import checks
from turnout.core.arrays import FloatArray, IntArray
from turnout.core.bounds import Bounds
from turnout.estimation.private.central import SumNoise, laplace_noise
from turnout.randomizers.indexed import KaryRandomizedResponse
from turnout.randomizers.interface import check_level
from turnout.randomness import Source
from turnout.schemes import KaryResponse, PureRandomizer, TrustModel
from turnout.schemes.scheme import shuffled

_SERIES = 1e-3
_CUBIC = 0.12831  # above 2/(9√3), a sixth of the largest third cumulant of a bit of ±1
_MANY = 64  # sums from which on a bound that is quicker to compute is used


@dataclass(frozen=True, eq=False)
class Channels:
    """Public distributions of the sums of a batch, action by action.

    Attributes:
        pulls: number n of pulls of each action, shape (k,).
        attenuation: factor κ by which the mean of a message shrinks, shape (k,).
        rate: 1/scale of the discrete Laplace noise on each sum; infinite for none.
    """

    pulls: IntArray
    attenuation: FloatArray
    rate: float

    @property
    def noise_variance(self) -> float:
        """Variance of the noise on one sum."""
        if np.isinf(self.rate):
            return 0.0
        return float(0.5 / np.sinh(0.5 * self.rate) ** 2)

    def variances(self, bits: FloatArray) -> FloatArray:
        """Variance of the estimated mean of each action, shape (k,).

        ``bits`` are the variances of the messages, shape (k,).
        """
        return (self.pulls * bits + self.noise_variance) / (self.pulls * self.attenuation) ** 2

    def log_moments(
        self, weights: FloatArray, scales: FloatArray, low: FloatArray, high: FloatArray
    ) -> FloatArray:
        """Upper bounds on ln E e^{λΣ w·(sum − its mean)}, where low ≤ μ ≤ high.

        Args:
            weights: w of each sum, one combination a row, shape (m, k).
            scales: λ > 0 of each combination, shape (m, levels).
            low: lower bound on the mean reward of each action, shape (k,).
            high: upper bound on the mean reward of each action, shape (k,).

        Returns:
            upper bounds, shape (m, levels): exact suprema for few sums, a cubic bound for many.
        """
        low, high = self.attenuation * low, self.attenuation * high
        if self.pulls.size > _MANY:
            return self._cubic(weights, scales, low, high)
        x = scales[:, :, None] * weights[:, None, :]
        each = self.pulls * bit_log_moments(x, low, high) + laplace_log_moments(x, self.rate)
        return each.sum(axis=2)

    def _cubic(
        self, weights: FloatArray, scales: FloatArray, low: FloatArray, high: FloatArray
    ) -> FloatArray:
        """Upper bounds from ψ(x) ≤ vx²/2 + κ₃|x|³/6, without a pass over all sums for each λ.

        φ(x)/x² rises with |x|, so its value at the largest |x| is an upper bound.
        """
        # Weighted squares and cubes, once for all λ.
        variances = 1.0 - np.clip(0.0, low, high) ** 2
        sizes = np.abs(weights)
        squares = sizes * sizes
        ones = np.ones_like(variances)
        square, plain = (squares @ np.column_stack([self.pulls * variances, ones])).T
        squares *= sizes  # a power would take longer
        cube = squares @ self.pulls.astype(np.float64)
        # Upper bound of the messages, then of the noise.
        bits = 0.5 * square[:, None] * scales**2 + _CUBIC * cube[:, None] * scales**3
        if np.isinf(self.rate):
            return bits
        most = np.maximum(sizes.max(axis=1), 1e-100)[:, None]
        steepest = laplace_log_moments(scales * most, self.rate) / most**2
        return bits + plain[:, None] * steepest


def bit_log_moments(x: FloatArray, low: FloatArray, high: FloatArray) -> FloatArray:
    """Largest ψ(x) over all means m with low ≤ m ≤ high, to a relative error of 1e-9.

    ln(cosh x + m·sinh x) − m·x is concave in m, with its largest value at m = 1/x − coth x.
    """
    small = np.abs(x) < _SERIES
    y = np.where(small, 1.0, x)
    worst = np.where(small, 0.0, 1.0 / y - 1.0 / np.tanh(y))
    mean = np.clip(worst, low, high)
    with np.errstate(divide="ignore"):  # ln 0 where a mean of ±1 leaves nothing to chance
        # cosh y + m·sinh y = e^{|y|}·(1 + s·m)/2 + e^{−|y|}·(1 − s·m)/2, s the sign of y
        signed = mean * np.sign(y)
        size = np.abs(y)
        exact = size + np.log1p(-0.5 * (1.0 - signed) * -np.expm1(-2.0 * size)) - signed * size
    series = 0.5 * (1.0 - mean**2) * x**2 + _CUBIC * np.abs(x) ** 3
    return np.where(small, series, np.maximum(exact, 0.0) + 1e-15 * size)


def laplace_log_moments(x: FloatArray, rate: float) -> FloatArray:
    """Log moment φ(x) of discrete Laplace noise; infinite for |x| ≥ rate.

    E e^{xZ} = (1 − q)²/((1 − q·e^x)(1 − q·e^{−x})).
    """
    if np.isinf(rate):
        return np.zeros_like(x)
    inside = np.abs(x) < rate
    y = np.where(inside, x, 0.0)
    # 1/φ's argument is 1 − (sinh(x/2)/sinh(rate/2))².
    ratio = np.sinh(0.5 * y) / np.sinh(0.5 * rate)
    return np.where(inside, -np.log1p(-np.minimum(ratio**2, 1.0 - 1e-15)), np.inf)


_SENSITIVITY = 2
_FEWEST_HIDDEN = 8  # pulls below which shuffling bits is worth nothing at any δ of interest
_GRID = 1.2  # ratio of the numbers of pulls at which ε₀ is found; others take the smaller one's
_MOST_LOCAL = 9.0  # ε₀ from which on a bit is true but for one in 8,000, unless ε is larger
_SEARCH_WIDTH, _SLACK, _TRIES = 1e-3, 0.01, 30


class BatchMechanism(ABC):
    """Mechanism that releases the sums of a batch: a reward randomizer and an aggregator.

    Rewards are ±1 (`rounded_rewards`). `messages` and `release` are what clients and learner run;
    `simulated` draws the same sums in their exact distribution without drawing a reward.
    """

    word: ClassVar[str]
    trust: ClassVar[TrustModel | None]

    @abstractmethod
    def channels(self, pulls: IntArray) -> Channels:
        """Public distributions of the sums of a batch, for n ≥ 1 pulls of each action."""

    @abstractmethod
    def messages(self, rewards: IntArray, pulls: int, source: Source) -> IntArray:
        """Messages of ±1 from the clients of an action that has ``pulls`` in the batch."""

    @abstractmethod
    def release(self, totals: IntArray, source: Source) -> IntArray:
        """Released sums from the totals of the messages, one for each action."""

    @abstractmethod
    def epsilon(self, batches: Iterable[IntArray]) -> Bounds:
        """Proved bounds on ε of a whole run under replace-one of a reward, at `delta`.

        Args:
            batches: number of pulls of each action, for each released batch.
        """

    @property
    def delta(self) -> float:
        """δ; 0 for pure ε."""
        return 0.0

    def simulated(self, pulls: IntArray, means: FloatArray, source: Source) -> IntArray:
        """Released sums of a batch, drawn from their exact distribution, shape (k,).

        Args:
            pulls: number of pulls of each action, at least 1, shape (k,).
            means: mean reward of each action, in [−1, 1], shape (k,).
            source: randomness of a simulation.
        """
        attenuation = self.channels(pulls).attenuation
        ones = [
            source.binomial(int(n), 0.5 * (1.0 + float(kappa * mean)))
            for n, kappa, mean in zip(pulls, attenuation, means, strict=True)
        ]
        return self.release(2 * np.array(ones, np.int64) - pulls, source)


@dataclass(frozen=True)
class BareSums(BatchMechanism):
    """Mechanism without privacy: exact sums."""

    word = "none"
    trust = None

    def channels(self, pulls: IntArray) -> Channels:
        """Channels without attenuation and noise."""
        return Channels(pulls, np.ones(pulls.size), np.inf)

    def messages(self, rewards: IntArray, pulls: int, source: Source) -> IntArray:
        """Rewards as they are, without randomization."""
        return rewards

    def release(self, totals: IntArray, source: Source) -> IntArray:
        """Sums without noise: the totals as they are."""
        return totals

    def epsilon(self, batches: Iterable[IntArray]) -> Bounds:
        """Bounds of infinity."""
        return Bounds(np.inf, np.inf)


@dataclass(frozen=True)
class CentralSums(BatchMechanism):
    """Central mechanism: discrete Laplace noise of ℓ1 sensitivity 2 on the sum of each action.

    Source: thesis, Algorithm 6.3.1, whose Lap(1/ε) takes the sensitivity for 1 and is 2ε-DP
        (docs/errata.md); here the noise is for 2, in whole numbers, as sums are.

    Attributes:
        epsilon_asked: ε, above 0.

    >>> CentralSums(1.0).epsilon([np.array([5, 9])]).upper
    1.0
    """

    epsilon_asked: float
    word = "central"
    trust = TrustModel.CENTRAL

    def __post_init__(self) -> None:
        checks.positive(epsilon=self.epsilon_asked)
        self.noise  # noqa: B018  refuses an ε too small for noise of 64 bits

    @cached_property
    def noise(self) -> SumNoise:
        """Noise of one sum."""
        return laplace_noise(self.epsilon_asked, _SENSITIVITY)

    @property
    def priced_as(self) -> PureRandomizer:
        """Randomizer that accounting analyses in place of the release of a batch."""
        return PureRandomizer(self.noise.epsilon)

    def channels(self, pulls: IntArray) -> Channels:
        """Channels without attenuation, with the noise on each sum."""
        t, s = self.noise.scale
        return Channels(pulls, np.ones(pulls.size), s / t)

    def messages(self, rewards: IntArray, pulls: int, source: Source) -> IntArray:
        """Rewards as they are, since the learner is trusted."""
        return rewards

    def release(self, totals: IntArray, source: Source) -> IntArray:
        """Totals with noise."""
        return totals + self.noise.draw(totals.size, source)

    def epsilon(self, batches: Iterable[IntArray]) -> Bounds:
        """Bounds on ε of the noise, attained: sums two apart have the likelihood ratio e^ε."""
        del batches
        t, s = self.noise.scale
        return Bounds(
            min(_SENSITIVITY * s / t, self.noise.epsilon) * (1 - 1e-15), self.priced_as.epsilon0
        )


@dataclass(frozen=True)
class LocalBits(BatchMechanism):
    """Local mechanism: each client sends one randomized bit.

    Source: thesis, Algorithm 6.3.2, with Warner's response in place of Laplace noise: rewards are
        bits, and this response has the least variance of all ε₀-DP bits.

    Attributes:
        epsilon_asked: ε = ε₀, from 1e-12 to 30.
    """

    epsilon_asked: float
    word = "local"
    trust = TrustModel.LOCAL

    def __post_init__(self) -> None:
        check_level(self.epsilon_asked)

    @property
    def priced_as(self) -> KaryResponse:
        """Randomizer that accounting analyses in place of a message."""
        return bit_randomizer(self.epsilon_asked).private_priced_as

    def channels(self, pulls: IntArray) -> Channels:
        """Channels with attenuated bits."""
        return Channels(pulls, np.full(pulls.size, attenuation(self.epsilon_asked)), np.inf)

    def messages(self, rewards: IntArray, pulls: int, source: Source) -> IntArray:
        """Randomized bits."""
        return randomized_bits(rewards, self.epsilon_asked, source)

    def release(self, totals: IntArray, source: Source) -> IntArray:
        """Totals as they are, since the messages are randomized."""
        return totals

    def epsilon(self, batches: Iterable[IntArray]) -> Bounds:
        """Bounds of ε₀, attained by either bit."""
        del batches
        return Bounds(self.priced_as.epsilon0 * (1 - 1e-15), self.priced_as.epsilon0)


@dataclass(frozen=True)
class ShuffledBits(BatchMechanism):
    """Shuffled mechanism: a randomized bit, at the largest ε₀ that the pulls of its action allow.

    Messages show the action, so only the n pulls of that action in that batch hide a client; ε₀ is
    the largest at which n shuffled binary responses are (ε, δ)-DP by their exact distribution, and
    ε where there are too few pulls.

    Source: thesis, Algorithm 6.4.1, which takes the whole batch's pulls and the clones bound beyond
        its range (docs/errata.md).

    Attributes:
        epsilon_asked: ε, from 1e-12 to 30.
        delta_asked: δ in (0, 1).
    """

    epsilon_asked: float
    delta_asked: float
    word = "shuffled"
    trust = TrustModel.SHUFFLED

    def __post_init__(self) -> None:
        check_level(self.epsilon_asked)
        checks.open_unit(delta=self.delta_asked)

    @property
    def delta(self) -> float:
        """δ of a batch, hence of the run."""
        return self.delta_asked

    def local_epsilons(self, pulls: IntArray) -> FloatArray:
        """ε₀ of the bits of each action, shape of ``pulls``."""
        found = [local_epsilon(self.epsilon_asked, self.delta_asked, int(n)) for n in pulls]
        return np.array(found)

    def channels(self, pulls: IntArray) -> Channels:
        """Channels with attenuated bits; the attenuation is weaker for actions of more pulls."""
        kappas = [attenuation(level) for level in self.local_epsilons(pulls)]
        return Channels(pulls, np.array(kappas), np.inf)

    def messages(self, rewards: IntArray, pulls: int, source: Source) -> IntArray:
        """Randomized bits; the shuffler hides their senders, and a sum has no order."""
        level = local_epsilon(self.epsilon_asked, self.delta_asked, pulls)
        return randomized_bits(rewards, level, source)

    def release(self, totals: IntArray, source: Source) -> IntArray:
        """Totals as they are, since the messages are randomized."""
        return totals

    def epsilon(self, batches: Iterable[IntArray]) -> Bounds:
        """Bounds on ε of the costliest action of all batches, by the exact distribution.

        The lower bound holds where all other clients of that action have the same bit.
        """
        levels: dict[float, int] = {}
        for pulls in batches:
            for n in pulls.tolist():
                level = local_epsilon(self.epsilon_asked, self.delta_asked, n)
                levels[level] = min(n, levels.get(level, n))
        bounds = [_bits_price(level, n, self.delta_asked) for level, n in levels.items()]
        lower, upper = (
            max((getattr(b, s) for b in bounds), default=0.0) for s in ("lower", "upper")
        )
        return Bounds(lower, min(upper, self.epsilon_asked))


@lru_cache(maxsize=4096)
def bit_randomizer(level: float) -> KaryRandomizedResponse:
    """Warner's randomized response at a level, with probabilities that are fractions."""
    return KaryRandomizedResponse(level, 2)


def attenuation(level: float) -> float:
    """Factor κ by which the mean of a bit shrinks: the probability of a true answer."""
    return float(1 - bit_randomizer(level).blanket)


def randomized_bits(bits: IntArray, level: float, source: Source) -> IntArray:
    """Bits of ±1, each replaced by a fair coin with the probability of the blanket."""
    ignored = source.bernoulli(bit_randomizer(level).blanket, bits.size)
    return np.where(ignored, 2 * source.below(2, bits.size) - 1, bits)


def local_epsilon(epsilon: float, delta: float, pulls: int) -> float:
    """Level ε₀, at least ε, at which the shuffled bits of n pulls are (ε, δ)-DP.

    The level is a lower bound on the largest one. A level that holds for a number of pulls holds
    for every larger number, so it is searched on a grid of numbers with ratio 1.2.
    """
    if pulls < _FEWEST_HIDDEN:
        return epsilon
    step = math.ceil(math.log(pulls / _FEWEST_HIDDEN) / math.log(_GRID)) + 1
    while step > 0 and _grid_pulls(step) > pulls:
        step -= 1
    for before in range(0, step, 100):  # so that recursion is never deep
        _grid_epsilon(epsilon, delta, before)
    return _grid_epsilon(epsilon, delta, step)


@lru_cache(maxsize=2**16)
def _grid_epsilon(epsilon: float, delta: float, step: int) -> float:
    """ε₀ at one number of the grid, sought upwards from the number before it."""
    if step == 0:
        return epsilon
    pulls, most = _grid_pulls(step), max(epsilon, _MOST_LOCAL)
    low, high = _grid_epsilon(epsilon, delta, step - 1), most
    # Of many messages ε falls as e^{ε₀/2}/√n, so ε₀ grows by the logarithm of the ratio.
    guess = low + math.log(_GRID)
    for _ in range(_TRIES):
        if high - low < _SEARCH_WIDTH:
            break
        guess = guess if low < guess < high else 0.5 * (low + high)
        cost = shuffled_price([(KaryResponse(guess, 2), 1)], pulls, delta)
        low, high = (guess, high) if cost <= epsilon else (low, guess)
        if (1.0 - _SLACK) * epsilon <= cost <= epsilon:
            break
        guess += 1.9 * math.log((1.0 - 0.5 * _SLACK) * epsilon / cost)
    return low


def _grid_pulls(step: int) -> int:
    """Pulls at one point of the grid."""
    return round(_FEWEST_HIDDEN * _GRID**step)


@lru_cache(maxsize=4096)
def _bits_price(level: float, pulls: int, delta: float) -> Bounds:
    """Both sides of ε of shuffled bits."""
    return price(shuffled(KaryResponse(level, 2), pulls), delta).epsilon
