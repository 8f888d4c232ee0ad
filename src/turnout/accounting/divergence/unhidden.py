"""Closed-form bounds on a client's releases for an adversary that knows the participation.

`Unhidden` holds the releases of a client. `Unhidden.upper` and `Unhidden.lower` compute bounds on ε
from `ClosedForm`, the bounds on one release. Every result of the accountant lies between these two
bounds. The bounds also give a result where a numerical computation would need too large a grid.

Upper: an adversary that knows in which steps a client takes part sees the composition of these
releases, and more knowledge never lowers δ. Lower: the adversary tests one event for each set of
steps that a client may draw. Each event is as likely as in a run whose steps are known. In the
other world the union of s events is at most s times as likely as one of them.
docs/design/accounting.md, "What nothing hides", has both proofs.

Notation: μ is a sensitivity over the noise's standard deviation, x the score of a threshold, Φ and
φ the normal distribution and density, m(x) Mills' ratio (1 − Φ(x))/φ(x), u the unit round-off.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from scipy.special import erfcx, gammaln, log_ndtr

from turnout.accounting.divergence.curves import Side
from turnout.accounting.divergence.pairs import UNIT_ROUNDOFF
from turnout.core.bounds import bisected

_DIGITS = 2e-9  # more than a root of the other analyses errs by, which thus keep their digits
_ROUNDINGS = 32.0 * UNIT_ROUNDOFF  # of a score, a tail or Mills' ratio, each relative
_DEVIATIONS = (-1.0, 0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 9.0)  # about which a number of blocks is tried
_MOST_NEWTON_STEPS = 20
_RELATIVE = 1e-14  # more than logarithms, of factorials too, err by relatively


@dataclass(frozen=True, slots=True)
class ClosedForm:
    """Upper bounds on one release, in numbers that add up under composition.

    Attributes:
        squared_mu: μ² of Gaussian noise; 0 for any other release.
        epsilon0: ε₀ of a release without Gaussian noise, infinite where no pure bound holds.
        rho: ρ of zero-concentrated differential privacy, for every kind of release.
        delta0: probability that the release reveals the client; the other bounds are for the
            remaining probability.
    """

    squared_mu: float = 0.0
    epsilon0: float = 0.0
    rho: float = 0.0
    delta0: float = 0.0

    @classmethod
    def gaussian(cls, mu: float) -> ClosedForm:
        """Closed-form bounds on ε of a Gaussian release whose means differ by μ deviations."""
        return cls(squared_mu=mu * mu, rho=0.5 * mu * mu)

    @classmethod
    def pure(cls, epsilon0: float, delta0: float = 0.0) -> ClosedForm:
        """Closed-form bounds of any (ε₀, δ₀)-DP release, with ρ = ε₀²/2.

        Source: bun2016concentrated, 1.4.
        """
        return cls(epsilon0=epsilon0, rho=0.5 * epsilon0 * epsilon0, delta0=delta0)

    def epsilon(self, delta: float) -> float:
        """Upper bound on ε at δ; infinite if none is known, as for Gaussian noise at δ = 0."""
        if delta < self.delta0 or not math.isfinite(self.squared_mu):
            return math.inf
        delta = (delta - self.delta0) * (1.0 - 4.0 * UNIT_ROUNDOFF)
        if delta == 0.0:
            return self.epsilon0 if self.squared_mu == 0.0 else math.inf
        mu = math.sqrt(self.squared_mu) * (1.0 + 4.0 * UNIT_ROUNDOFF)
        gaussian = gaussian_epsilon(mu, delta, Side.UPPER) if mu > 0.0 else 0.0
        concentrated = self.rho + 2.0 * math.sqrt(self.rho * -math.log(delta))
        return min(self.epsilon0 + gaussian * (1.0 + _DIGITS), concentrated * (1.0 + _DIGITS))


UNKNOWN = ClosedForm(epsilon0=math.inf, rho=math.inf)
"""Nothing is known in closed form."""


@dataclass(frozen=True, slots=True)
class UnhiddenBlock:
    """Block of steps, independent of other blocks, in which a client may take part.

    Attributes:
        form: closed-form bounds of one release of the client.
        chance: probability that the client takes part in the block.
        releases: number of steps of the block in which a participating client takes part.
        log_sets: ln of the number of equally likely sets of such steps.
    """

    form: ClosedForm
    chance: float = 1.0
    releases: int = 1
    log_sets: float = 0.0


UnhiddenRun = Sequence[tuple[UnhiddenBlock, int]]
"""Blocks, and how many there are of each."""


@dataclass(frozen=True, slots=True)
class Unhidden:
    """Releases of a client whose participation is observed, with bounds on ε from both sides.

    Attributes:
        above: blocks for an upper bound: at least as many releases as the client's, each with at
            least as large a loss.
        below: blocks for a lower bound: Gaussian releases of some client, compared with a world in
            which the client has no release.
    """

    above: UnhiddenRun = ((UnhiddenBlock(UNKNOWN), 1),)
    below: UnhiddenRun = ()

    def __mul__(self, times: int) -> Unhidden:
        """Releases of repeated blocks, with participation drawn anew in each repetition."""
        above, below = (
            [(block, count * times) for block, count in sides] for sides in (self.above, self.below)
        )
        return Unhidden(above, below)

    def upper(self, delta: float) -> float:
        """Upper bound on ε at δ in both directions; infinite if none is known."""
        uncertain = sum(block.chance < 1.0 for block, _ in self.above)
        share = 0.5 * delta / uncertain if uncertain else 0.0
        whole, missed = ClosedForm(), 0.0
        for block, count in self.above:
            blocks = count if block.chance == 1.0 else most_blocks(count, block.chance, share)
            missed += share if blocks < count else 0.0
            whole = _with(whole, block.form, blocks * block.releases)
        return whole.epsilon(delta - missed)

    def lower(self, delta: float, *, certain: bool) -> float:
        """Lower bound on ε at δ in the remove direction, and in both directions if ``certain``.

        With ``certain`` only releases at known steps count; without such releases the bound is 0.
        """
        if certain and any(block.chance < 1.0 or block.log_sets > 0.0 for block, _ in self.below):
            return 0.0
        always = all(block.chance == 1.0 for block, _ in self.below)
        tries = [math.inf] if always else [*_DEVIATIONS, math.inf]
        return max((self._by_event(delta, each) for each in tries), default=0.0)

    def _by_event(self, delta: float, deviations: float) -> float:
        """Lower bound on ε from one event: the client takes part in j blocks of each kind.

        j is ``deviations`` standard deviations above the mean number of blocks in which the client
        takes part, or the number of all blocks if ``deviations`` is infinite.
        """
        # For each kind of block: number of blocks with participation, number of such sets,
        # probability and releases. Roundings lower the bound.
        squared_mu = log_sets = log_chance = 0.0
        for block, count in self.below:
            p, mean = block.chance, block.chance * count
            spread = math.sqrt(mean * (1.0 - p))
            blocks = count if math.isinf(deviations) else round(mean + deviations * spread)
            blocks = min(max(blocks, 0), count)
            ways, slack = _log_choose(count, blocks)
            log_sets += ways + slack + blocks * block.log_sets * (1.0 + _RELATIVE)
            log_chance += ways - slack + blocks * math.log(p)
            log_chance += (count - blocks) * math.log1p(-p) if blocks < count else 0.0
            squared_mu += blocks * block.releases * block.form.squared_mu
        # Bound on ε of the releases of the event at δ over its probability.
        log_delta = math.log(delta) - log_chance
        if not (squared_mu > 0.0 and log_delta < 0.0):
            return 0.0
        mu = math.sqrt(squared_mu) * (1.0 - 4.0 * UNIT_ROUNDOFF)
        found = gaussian_epsilon(mu, math.exp(log_delta), Side.LOWER) * (1.0 - _DIGITS)
        return max(found - log_sets + log_chance, 0.0)


ANYTHING = Unhidden()
"""No bound on the releases is known."""


def _with(whole: ClosedForm, form: ClosedForm, releases: int) -> ClosedForm:
    """Closed form of ``whole`` composed with ``releases`` further releases of ``form``."""
    if releases == 0:
        return whole
    log_kept = math.log1p(-whole.delta0) + releases * math.log1p(-form.delta0)
    return ClosedForm(
        whole.squared_mu + releases * form.squared_mu,
        whole.epsilon0 + releases * form.epsilon0,
        whole.rho + releases * form.rho,
        -math.expm1(log_kept) * (1.0 + _DIGITS),
    )


def most_blocks(count: int, chance: float, tail: float) -> int:
    """Upper bound on the number N of blocks in which a client takes part.

    N exceeds the bound with probability at most ``tail``, by Chernoff's bound
    Pr[N > j] ≤ exp(−count·KL((j + 1)/count ‖ chance)).
    """

    def rare(blocks: float) -> bool:
        a = (math.floor(blocks) + 1) / count
        if a > 1.0 or a <= chance:
            return a > 1.0
        more = a * math.log(a / chance)
        less = (1.0 - a) * (math.log1p(-a) - math.log1p(-chance)) if a < 1.0 else 0.0
        error = _RELATIVE * (abs(more) + abs(less) + a)
        return -count * (more + less - error) <= math.log(tail)

    if chance <= 0.0 or tail <= 0.0:
        return 0 if chance <= 0.0 else count
    return math.floor(bisected(rare, -1.0, float(count), gap=0.25).holding)


def _log_choose(count: int, blocks: int) -> tuple[float, float]:
    """Logarithm of a binomial coefficient, and a bound on the error of this logarithm."""
    if blocks in (0, count):
        return 0.0, 0.0
    terms = [float(gammaln(n + 1.0)) for n in (count, blocks, count - blocks)]
    return terms[0] - terms[1] - terms[2], _RELATIVE * sum(terms)


@lru_cache(maxsize=256)
def gaussian_epsilon(mu: float, delta: float, side: Side) -> float:
    """Upper or lower bound on ε of N(μ, 1) against N(0, 1) at δ, for ε of any size.

    With x = ε/μ − μ/2, δ = Φ(−x) − φ(x)·m(x + μ) = Φ(−x)·(1 − m(x + μ)/m(x)). This formula has no
    e^ε; the root is found in x, and ε is a linear function of x.
    """
    upper = side is Side.UPPER
    log_delta = math.log(delta)

    def below(x: float) -> bool:
        """True if δ at x is certainly below the target (upper) or may be below it (lower)."""
        least, most = _log_delta(x, mu)
        return most <= log_delta if upper else not least > log_delta

    # Between ε = 0 and a bound on the normal quantile of δ, a narrow bracket around an estimate.
    least, most = -0.5 * mu, math.sqrt(-2.0 * log_delta) + 1.0
    if below(least):
        return 0.0
    guess = _gaussian_root(mu, log_delta, least, most)
    for width in (1e-12 * (1.0 + abs(guess)), 1e-9 * (1.0 + abs(guess)), most - least):
        left, right = max(guess - width, least), min(guess + width, most)
        if (left == least or not below(left)) and (right == most or below(right)):
            break
    found = bisected(below, left, right, gap=1e-13, relative=1e-13)
    x = found.holding if upper else found.failing
    # ε from x, with its rounding error moved to the side.
    rounding = 16.0 * UNIT_ROUNDOFF * (abs(x) * mu + mu * mu)
    epsilon = mu * (x + 0.5 * mu)
    return max(epsilon + rounding if upper else epsilon - rounding, 0.0)


def _gaussian_root(mu: float, log_delta: float, least: float, most: float) -> float:
    """Estimate of the x at which ln δ has a given value, by steps of Newton's method.

    The derivative of ln δ by x is −μ·m(x + μ)/(m(x) − m(x + μ)).
    """
    x = most
    for _ in range(_MOST_NEWTON_STEPS):
        here, there = (float(erfcx(y / math.sqrt(2.0))) for y in (x, x + mu))
        if not 0.0 < there < here < math.inf:
            break
        value = float(log_ndtr(-x)) + math.log1p(-there / here)
        x, before = x + (value - log_delta) * (here - there) / (mu * there), x
        x = min(max(x, least), most)
        if abs(x - before) <= 1e-14 * (1.0 + abs(x)):
            break
    return x


def _log_delta(x: float, mu: float) -> tuple[float, float]:
    """Bounds on ln δ at ε = μ(x + μ/2)."""
    log_tail = float(log_ndtr(-x))
    here, there = (float(erfcx(y / math.sqrt(2.0))) for y in (x, x + mu))
    ratio = there / here
    error = _ROUNDINGS * (1.0 + x * x + abs(log_tail))
    lost = _ROUNDINGS * ratio / (1.0 - ratio) if ratio < 1.0 else math.inf
    if lost < 1e-3:
        value = log_tail + math.log1p(-ratio)
        return value - error - lost, value + error + lost
    # m is convex, so for a μ as small as this 1 − m(x + μ)/m(x) is at most, and nearly, this:
    most = mu * (math.sqrt(2.0 / math.pi) / here - x)
    return -math.inf, log_tail + math.log(most) + error + _DIGITS
