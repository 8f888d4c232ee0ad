"""Mechanisms that protect rewards: the learner receives one noisy sum for each action of a batch.

`CentralSums` adds discrete Laplace noise to the sums; `LocalBits` and `ShuffledBits` randomize each
reward to one bit; `BareSums` has no privacy. `Channels` describes the distributions of the messages
and of the noise, from which `turnout.bandits.policy` computes confidence widths.

One object executes, simulates and analyses a mechanism. A client has one reward, for one action in
one batch. Earlier releases do not depend on this reward, and later releases depend on it only
through the release of its batch. So the ε of a run is the largest ε of its batches
(docs/design/bandits.md, "One batch a client").

Notation: n the number of pulls of an action in a batch; S the sum of their rewards, each ±1, so
that replacing one reward changes S by 2; μ the mean reward; κ = (e^{ε₀} − 1)/(e^{ε₀} + 1) the
factor by which randomizing a bit multiplies its mean. A released sum consists of n messages z = ±1
of mean m = κμ and of discrete Laplace noise Z with P(Z = x) ∝ q^{|x|}, q = e^{−1/scale}. The log
moments are ψ(x) = ln E e^{x(z − m)} and φ(x) = ln E e^{xZ}.
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
_CUBIC = 0.12831  # upper bound on 2/(9√3), a sixth of the largest third cumulant of a bit ±1
_MANY = 64  # for more sums than this, a bound that is faster to compute is used


@dataclass(frozen=True, eq=False)
class Channels:
    """Public parameters of the distribution of each action's released sum in a batch.

    Attributes:
        pulls: number n of pulls of each action, shape (k,).
        attenuation: factor κ between the mean reward and the mean of a message, shape (k,).
        rate: 1/scale of the discrete Laplace noise on each sum; infinite without noise.
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

        Args:
            bits: variance of a message of each action, shape (k,).
        """
        return (self.pulls * bits + self.noise_variance) / (self.pulls * self.attenuation) ** 2

    def log_moments(
        self, weights: FloatArray, scales: FloatArray, low: FloatArray, high: FloatArray
    ) -> FloatArray:
        """Upper bounds on the log moments ln E e^{λΣ w·(sum − mean of the sum)}.

        Args:
            weights: weights w of the sums, one combination in each row, shape (m, k).
            scales: values λ > 0 for each combination, shape (m, levels).
            low: lower bound on the mean reward of each action, shape (k,).
            high: upper bound on the mean reward of each action, shape (k,).

        Returns:
            Upper bounds, shape (m, levels). For few sums they are the exact suprema over all means
            in [low, high]; for many sums they follow from a cubic bound.
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
        """Upper bounds on the log moments, from a cubic bound on the log moment of a message.

        The bound is ψ(x) ≤ v·x²/2 + `_CUBIC`·|x|³, where v is the largest variance of a message.
        Sums over actions are computed once for all λ. For the log moment φ of the noise, φ(x)/x²
        increases with |x|, so the value at the largest |x| is an upper bound for all actions.
        """
        # Sums of weighted squares and cubes, which do not depend on λ.
        variances = 1.0 - np.clip(0.0, low, high) ** 2
        sizes = np.abs(weights)
        squares = sizes * sizes
        ones = np.ones_like(variances)
        square, plain = (squares @ np.column_stack([self.pulls * variances, ones])).T
        squares *= sizes  # a power would take longer
        cube = squares @ self.pulls.astype(np.float64)
        # Upper bound for the messages, then for the noise.
        bits = 0.5 * square[:, None] * scales**2 + _CUBIC * cube[:, None] * scales**3
        if np.isinf(self.rate):
            return bits
        most = np.maximum(sizes.max(axis=1), 1e-100)[:, None]
        steepest = laplace_log_moments(scales * most, self.rate) / most**2
        return bits + plain[:, None] * steepest


def bit_log_moments(x: FloatArray, low: FloatArray, high: FloatArray) -> FloatArray:
    """Largest log moment ψ(x) of a message over all means m from ``low`` to ``high``, rounded up.

    ψ(x) = ln(cosh x + m·sinh x) − m·x is concave in m, and largest at m = 1/x − coth x. The result
    is at most 1 + 1e-9 times the true value. The arguments are broadcast.
    """
    # The mean in [low, high] with the largest value.
    small = np.abs(x) < _SERIES
    y = np.where(small, 1.0, x)
    worst = np.where(small, 0.0, 1.0 / y - 1.0 / np.tanh(y))
    mean = np.clip(worst, low, high)
    with np.errstate(divide="ignore"):  # ln 0 occurs for a mean of ±1
        # cosh y + m·sinh y = e^{|y|}·(1 + s·m)/2 + e^{−|y|}·(1 − s·m)/2, where s is the sign of y.
        signed = mean * np.sign(y)
        size = np.abs(y)
        exact = size + np.log1p(-0.5 * (1.0 - signed) * -np.expm1(-2.0 * size)) - signed * size
    # For small x the formula loses digits; use the upper bound of the series instead.
    series = 0.5 * (1.0 - mean**2) * x**2 + _CUBIC * np.abs(x) ** 3
    return np.where(small, series, np.maximum(exact, 0.0) + 1e-15 * size)


def laplace_log_moments(x: FloatArray, rate: float) -> FloatArray:
    """Log moment φ(x) of discrete Laplace noise, shape of ``x``; infinite for |x| ≥ rate.

    E e^{xZ} = (1 − q)²/((1 − q·e^x)(1 − q·e^{−x})) for noise Z, where q = e^{−rate}.
    """
    if np.isinf(rate):
        return np.zeros_like(x)
    inside = np.abs(x) < rate
    y = np.where(inside, x, 0.0)
    # φ(x) = −ln(1 − (sinh(x/2)/sinh(rate/2))²).
    ratio = np.sinh(0.5 * y) / np.sinh(0.5 * rate)
    return np.where(inside, -np.log1p(-np.minimum(ratio**2, 1.0 - 1e-15)), np.inf)


_SENSITIVITY = 2
_FEWEST_HIDDEN = 8  # with fewer pulls, shuffling does not lower ε at any practical δ
_GRID = 1.2  # ratio of successive numbers of pulls for which ε₀ is computed
_MOST_LOCAL = 9.0  # largest ε₀ of the search: such a bit is wrong once in 8,000 times
_SEARCH_WIDTH, _SLACK, _TRIES = 1e-3, 0.01, 30


class BatchMechanism(ABC):
    """Interface of mechanisms, which randomize rewards and release noisy sums of a batch.

    Rewards are ±1 (`rounded_rewards`). Clients run `messages`, and the learner runs `release`.
    `simulated` draws released sums from the same distribution without drawing single rewards.
    """

    word: ClassVar[str]
    trust: ClassVar[TrustModel | None]

    @abstractmethod
    def channels(self, pulls: IntArray) -> Channels:
        """Distributions of the sums of a batch with the given numbers of pulls, shape (k,)."""

    @abstractmethod
    def messages(self, rewards: IntArray, pulls: int, source: Source) -> IntArray:
        """Messages of ±1 from the clients that pull one action, shape of ``rewards``.

        Args:
            rewards: rewards of the clients, each ±1.
            pulls: number of pulls of the action in the batch.
            source: source of the clients' randomness.
        """

    @abstractmethod
    def release(self, totals: IntArray, source: Source) -> IntArray:
        """Released sums, from the total of the messages of each action, shape (k,)."""

    @abstractmethod
    def epsilon(self, batches: Iterable[IntArray]) -> Bounds:
        """Proved bounds on ε of a whole run at `delta`, under replacement of one client's reward.

        Args:
            batches: number of pulls of each action, shape (k,), for each released batch.
        """

    @property
    def delta(self) -> float:
        """δ of the guarantee; 0 for pure ε."""
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
    """Mechanism without privacy, which releases exact sums."""

    word = "none"
    trust = None

    def channels(self, pulls: IntArray) -> Channels:
        """Distributions of the sums, without attenuation and without noise."""
        return Channels(pulls, np.ones(pulls.size), np.inf)

    def messages(self, rewards: IntArray, pulls: int, source: Source) -> IntArray:
        """The rewards, without randomization."""
        return rewards

    def release(self, totals: IntArray, source: Source) -> IntArray:
        """The totals, without noise."""
        return totals

    def epsilon(self, batches: Iterable[IntArray]) -> Bounds:
        """Infinite lower and upper bound, as the mechanism has no privacy."""
        return Bounds(np.inf, np.inf)


@dataclass(frozen=True)
class CentralSums(BatchMechanism):
    """Central mechanism: discrete Laplace noise on the sum of each action, of sensitivity 2.

    Source: thesis, Algorithm 6.3.1, with a correction. Its noise Lap(1/ε) assumes a sensitivity of
        1 and is 2ε-DP (docs/errata.md). This class uses the sensitivity 2, and noise in whole
        numbers.

    Attributes:
        epsilon_asked: ε, above 0.

    Raises:
        ParameterError: a parameter outside its domain.

    >>> CentralSums(1.0).epsilon([np.array([5, 9])]).upper
    1.0
    """

    epsilon_asked: float
    word = "central"
    trust = TrustModel.CENTRAL

    def __post_init__(self) -> None:
        checks.positive(epsilon=self.epsilon_asked)
        self.noise  # noqa: B018  raises an error for an ε whose noise would exceed 64 bits

    @cached_property
    def noise(self) -> SumNoise:
        """Noise that is added to each sum."""
        return laplace_noise(self.epsilon_asked, _SENSITIVITY)

    @property
    def priced_as(self) -> PureRandomizer:
        """Randomizer from which the accountant computes the ε of a batch."""
        return PureRandomizer(self.noise.epsilon)

    def channels(self, pulls: IntArray) -> Channels:
        """Distributions of the sums, without attenuation and with noise."""
        t, s = self.noise.scale
        return Channels(pulls, np.ones(pulls.size), s / t)

    def messages(self, rewards: IntArray, pulls: int, source: Source) -> IntArray:
        """The rewards without randomization, since the learner is trusted."""
        return rewards

    def release(self, totals: IntArray, source: Source) -> IntArray:
        """Totals of the actions plus discrete Laplace noise, shape (k,)."""
        return totals + self.noise.draw(totals.size, source)

    def epsilon(self, batches: Iterable[IntArray]) -> Bounds:
        """Bounds on ε, which are equal: two totals that differ by 2 attain the ratio e^ε."""
        del batches
        t, s = self.noise.scale
        return Bounds(
            min(_SENSITIVITY * s / t, self.noise.epsilon) * (1 - 1e-15), self.priced_as.epsilon0
        )


@dataclass(frozen=True)
class LocalBits(BatchMechanism):
    """Local mechanism: each client sends its reward as one randomized bit.

    Source: thesis, Algorithm 6.3.2, with Warner's randomized response instead of Laplace noise. For
        rewards of ±1 this response has the least variance of all ε₀-DP messages of one bit.

    Attributes:
        epsilon_asked: ε of the run, which is ε₀ of a message, from 1e-12 to 30.

    Raises:
        ParameterError: a parameter outside its domain.
    """

    epsilon_asked: float
    word = "local"
    trust = TrustModel.LOCAL

    def __post_init__(self) -> None:
        check_level(self.epsilon_asked)

    @property
    def priced_as(self) -> KaryResponse:
        """Randomizer from which the accountant computes the ε of a message."""
        return bit_randomizer(self.epsilon_asked).private_priced_as

    def channels(self, pulls: IntArray) -> Channels:
        """Distributions of the sums, with attenuation by the randomized bits."""
        return Channels(pulls, np.full(pulls.size, attenuation(self.epsilon_asked)), np.inf)

    def messages(self, rewards: IntArray, pulls: int, source: Source) -> IntArray:
        """Randomized bits ±1 of the clients, in the shape of ``rewards``."""
        return randomized_bits(rewards, self.epsilon_asked, source)

    def release(self, totals: IntArray, source: Source) -> IntArray:
        """Totals without further noise, since the messages are randomized."""
        return totals

    def epsilon(self, batches: Iterable[IntArray]) -> Bounds:
        """Bounds on ε of a run, both equal to ε₀, which two different rewards attain."""
        del batches
        return Bounds(self.priced_as.epsilon0 * (1 - 1e-15), self.priced_as.epsilon0)


@dataclass(frozen=True)
class ShuffledBits(BatchMechanism):
    """Shuffled mechanism: each client sends its reward as one randomized bit.

    The level ε₀ of the bit is the largest that the number of pulls permits.

    A message reveals its action, so a client is hidden only among the n clients that pull the same
    action in the same batch. ε₀ is the largest level at which n shuffled binary responses are
    (ε, δ)-DP by their exact distribution; if n is too small, ε₀ is ε.

    Source: thesis, Algorithm 6.4.1, with corrections. The algorithm counts the pulls of all actions
        of a batch, and uses the clones bound outside its range of validity (docs/errata.md).

    Attributes:
        epsilon_asked: ε, from 1e-12 to 30.
        delta_asked: δ in (0, 1).

    Raises:
        ParameterError: a parameter outside its domain.
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
        """δ of a batch, which is also the δ of the run."""
        return self.delta_asked

    def local_epsilons(self, pulls: IntArray) -> FloatArray:
        """Local level ε₀ of the bits of each action, in the shape of ``pulls``."""
        found = [local_epsilon(self.epsilon_asked, self.delta_asked, int(n)) for n in pulls]
        return np.array(found)

    def channels(self, pulls: IntArray) -> Channels:
        """Distributions of the sums; actions with more pulls have less attenuation."""
        kappas = [attenuation(level) for level in self.local_epsilons(pulls)]
        return Channels(pulls, np.array(kappas), np.inf)

    def messages(self, rewards: IntArray, pulls: int, source: Source) -> IntArray:
        """Randomized bits of the clients; the shuffler and the sum hide their senders."""
        level = local_epsilon(self.epsilon_asked, self.delta_asked, pulls)
        return randomized_bits(rewards, level, source)

    def release(self, totals: IntArray, source: Source) -> IntArray:
        """Totals without further noise, since the messages are randomized."""
        return totals

    def epsilon(self, batches: Iterable[IntArray]) -> Bounds:
        """Bounds on ε of a run: the largest ε of an action in a batch, by exact distributions.

        The lower bound is attained if all other clients of this action have the same reward.
        """
        # The least number of pulls for each level ε₀: it has the largest ε.
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
    """Factor κ between the mean of a bit and the mean of the randomized bit."""
    return float(1 - bit_randomizer(level).blanket)


def randomized_bits(bits: IntArray, level: float, source: Source) -> IntArray:
    """Randomized responses to bits of ±1, shape (n,), at privacy level ε₀ = ``level``.

    Each bit is replaced by a uniform bit with the blanket probability of the randomizer.
    """
    ignored = source.bernoulli(bit_randomizer(level).blanket, bits.size)
    return np.where(ignored, 2 * source.below(2, bits.size) - 1, bits)


def local_epsilon(epsilon: float, delta: float, pulls: int) -> float:
    """Level ε₀, at least ε, at which the shuffled bits of n pulls are (ε, δ)-DP.

    The result is never above the largest such level. A level that is valid for n pulls is valid for
    more pulls. So the level is computed only on a grid of numbers of pulls with ratio 1.2, and the
    result is the level of the largest grid point that is at most ``pulls``.
    """
    if pulls < _FEWEST_HIDDEN:
        return epsilon
    step = math.ceil(math.log(pulls / _FEWEST_HIDDEN) / math.log(_GRID)) + 1
    while step > 0 and _grid_pulls(step) > pulls:
        step -= 1
    for before in range(0, step, 100):  # fill the cache, so that the recursion is not deep
        _grid_epsilon(epsilon, delta, before)
    return _grid_epsilon(epsilon, delta, step)


@lru_cache(maxsize=2**16)
def _grid_epsilon(epsilon: float, delta: float, step: int) -> float:
    """Level ε₀ at one grid point, searched upwards from the level of the previous grid point."""
    if step == 0:
        return epsilon
    pulls, most = _grid_pulls(step), max(epsilon, _MOST_LOCAL)
    low, high = _grid_epsilon(epsilon, delta, step - 1), most
    # For many messages ε is about proportional to e^{ε₀/2}/√n, so ε₀ grows by about ln 1.2.
    guess = low + math.log(_GRID)
    for _ in range(_TRIES):
        if high - low < _SEARCH_WIDTH:
            break
        # Test the guess: if its ε is small enough, it is a new lower end.
        guess = guess if low < guess < high else 0.5 * (low + high)
        cost = shuffled_price([(KaryResponse(guess, 2), 1)], pulls, delta)
        low, high = (guess, high) if cost <= epsilon else (low, guess)
        if (1.0 - _SLACK) * epsilon <= cost <= epsilon:
            break
        # Next guess: a step of Newton's method for the same approximation.
        guess += 1.9 * math.log((1.0 - 0.5 * _SLACK) * epsilon / cost)
    return low


def _grid_pulls(step: int) -> int:
    """Number of pulls at one point of the grid."""
    return round(_FEWEST_HIDDEN * _GRID**step)


@lru_cache(maxsize=4096)
def _bits_price(level: float, pulls: int, delta: float) -> Bounds:
    """Lower and upper bound on ε of the shuffled bits of n ``pulls``."""
    return price(shuffled(KaryResponse(level, 2), pulls), delta).epsilon
