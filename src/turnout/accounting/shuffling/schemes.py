"""Blocks of schemes of shuffled messages, of sampled bits and of averaged check-ins.

`shuffled_blocks` returns the `Decomposition` of the rounds that one draw covers. `averaged_window`
returns the blocks of one window of averaged check-ins. `SubsampledBits` and `SelfSampledBits` bound
δ(K) of sampled bits of some of the clients; `WorseOrderBlock` and `MinOfBlocks` combine blocks.
`decomposition` uses this module, which builds on `messages`, `sampled_bits` and `sampled_rounds`.
docs/design/shuffling.md has the proofs. Neighbours differ in one client's record (replace-one).

Notation
    n    number of clients
    N    number of messages of a round; the N < n senders are a uniform subset
    γ    N/n               K = e^ε
    q    probability that a client sends a message, independently of the others

**Sampled bits of some of the clients** (section "Sampled bits" of the proofs). The bits of a round
without the client are N slots for N of the n − 1 others. A round with the client is the same except
for one slot, which may be any of the N: so the client hides in N slots with probability γ, and no
message has to be made up. `sampled_bits.Slots` has the bound, which for a fixed j rises with γ, is
convex in γ, and falls as N rises. *Self-sampling*: N is observed. For N₁ ≤ N ≤ N₂ the bound is that
of N₁ slots, with γ spread on N₁/n and N₂/n with its mean unchanged. N = n has probability qⁿ and is
a round of all clients.

**Averaged check-ins** (section "Averaged check-ins" of the proofs). Each client of a window draws a
step, and a step releases the average of its messages: Algorithm 2 of Balle, Kairouz, McMahan,
Thakkar and Guha Thakurta 2020 (balle2020checkins). The number of clients of each step does not
depend on records. Given these numbers, the window is a shuffle of all its clients: the clients are
in a uniform order, and a step's randomizer may depend on the averages of earlier steps. So the
bounds for adaptive randomizers apply for any number of steps, to all n clients or, if each client
takes part with a probability, to those that take part. The bounds need an unknown order of
speaking: each client draws the step by random bits that no step releases, so given the numbers
every order is equally likely, and the coordinator updates the model by averages and counts alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from turnout.accounting.divergence.blocks import (
    Block,
    CurvePair,
    Decomposition,
    NeighbourBound,
    PairBlock,
)
from turnout.accounting.divergence.curves import BestCurve, Curve, Direction, Side
from turnout.accounting.divergence.pairs import GaussianPair
from turnout.accounting.divergence.work import remembered
from turnout.accounting.shuffling.lower_bounds import IdenticalOthersBlock
from turnout.accounting.shuffling.messages import (
    IdenticalOthersMessages,
    PublishedRandomizer,
    UpperMessages,
    one_round,
)
from turnout.accounting.shuffling.sampled_bits import (
    SampledBitsBlock,
    SampledBitsRound,
    Slots,
    flip_of,
)
from turnout.accounting.shuffling.sampled_mixtures import dilutions, groups_from
from turnout.accounting.shuffling.sampled_rounds import SelfSamplingBlock, SubsampledBlock
from turnout.core import checks
from turnout.core.errors import ParameterError, UnsupportedError
from turnout.schemes import (
    ApproximateRandomizer,
    AttainedVariation,
    GaussianNoise,
    NonAdaptiveRandomizer,
    PureRandomizer,
    Randomizer,
    Relation,
    ReleaseRule,
    RepeatedMessages,
    Scheme,
    SpeakingOrder,
)
from turnout.schemes.normal_form import Always, Bernoulli, Cohort, Draw, ReleasedSteps
from turnout.schemes.randomizers import is_adaptive


def shuffled_blocks(
    scheme: Scheme, part: ReleasedSteps, randomizer: Randomizer | PublishedRandomizer
) -> Decomposition:
    """Blocks of the rounds that one draw covers, with a new shuffle in each round.

    Args:
        scheme: scheme with trust model "shuffled".
        part: draw and the number of its released steps.
        randomizer: randomizer of every message, as accounting treats it.

    Raises:
        ParameterError: the scheme has no number of clients.
        UnsupportedError: no analysis is known, or the order of speaking is not hidden.
    """
    # Raise an error for schemes without an analysis.
    _require_analysis(scheme)
    draw, rounds = part.draw, part.full
    clients = _population(scheme, draw)
    # All clients in every round.
    if isinstance(draw, Always):
        if isinstance(randomizer, RepeatedMessages):  # each message counts as one more round
            randomizer, rounds = randomizer.each, rounds * randomizer.messages
        one = one_round(randomizer, clients)
        lower = one.lower
        if lower is not None and _has_ordered_lower_blocks(randomizer):
            lower = WorseOrderBlock(lower, 1.0)
        return _rounds(randomizer, one.upper, lower, rounds, one.method)
    # A uniform subset, or self-sampling.
    if isinstance(draw, Cohort):
        return _subsampled(randomizer, draw, rounds)
    if isinstance(draw, Bernoulli) and draw.hidden:
        return _self_sampling(randomizer, draw, clients, rounds)
    raise UnsupportedError(
        "no analysis of shuffled messages is known for "
        f"participation = {type(scheme.participation).__name__} with draws {type(draw).__name__}; "
        "use participation = 'every-step', 'fixed-size' or 'self-sampling'"
    )


def _subsampled(randomizer: object, draw: Cohort, steps: int) -> Decomposition:
    # Bounds for the sample from those for its messages; lower bounds need identical others.
    one, rate = one_round(randomizer, draw.size), draw.size / draw.population
    upper: Block = SubsampledBlock(one.upper, rate)
    lower: Block | None = None
    if one.identical_others is not None:
        lower = SubsampledBlock(one.identical_others, rate, identical_others=True)
        if _has_ordered_lower_blocks(randomizer):
            lower = WorseOrderBlock(lower, rate)
    # Sampled bits have a tighter upper bound.
    if one.bits is not None and draw.size < draw.population:
        upper = SampledBitsBlock(SubsampledBits(one.bits, draw.size, draw.population))
        lower = None if lower is None else WorseOrderBlock(lower, rate)
    return _rounds(randomizer, upper, lower, steps, f"{one.method}, of a uniform sample")


def _self_sampling(randomizer: object, draw: Bernoulli, clients: int, steps: int) -> Decomposition:
    one = one_round(randomizer, clients)
    if draw.rate == 0:
        return _rounds(randomizer, one.upper, None, 0, "no client participates")
    # Mixtures over the number of messages; lower bounds need identical others.
    upper: Block = SelfSamplingBlock(UpperMessages(randomizer), clients, draw.rate)
    lower: Block | None = None
    if one.identical_others is not None:
        lower = SelfSamplingBlock(
            IdenticalOthersMessages(randomizer), clients, draw.rate, identical_others=True
        )
        if _has_ordered_lower_blocks(randomizer):
            lower = WorseOrderBlock(lower, draw.rate)
    # Sampled bits have a tighter upper bound.
    if one.bits is not None and draw.rate < 1:
        upper = SampledBitsBlock(SelfSampledBits(one.bits, clients, draw.rate))
        lower = None if lower is None else WorseOrderBlock(lower, draw.rate)
    return _rounds(randomizer, upper, lower, steps, f"{one.method}, of self-sampling clients")


def _has_ordered_lower_blocks(randomizer: object) -> bool:
    """True if a randomizer's lower blocks hold for only one order of the two worlds."""
    one = randomizer.each if isinstance(randomizer, RepeatedMessages) else randomizer
    return isinstance(one, AttainedVariation)


def _rounds(
    randomizer: object, upper: Block, lower: Block | None, rounds: int, method: str
) -> Decomposition:
    method = method if rounds <= 1 else f"{method}, rounds composed as PLD"
    above = [(upper, rounds)] if rounds else []
    beneath = [(lower, rounds)] if rounds and lower is not None else []
    return Decomposition(NeighbourBound(above, beneath, method, tight=False, symmetric=True))


def _require_analysis(scheme: Scheme) -> None:
    if scheme.relation is not Relation.REPLACE_ONE:
        raise UnsupportedError(
            "shuffled messages reveal the number of senders, which "
            f"{scheme.relation.value} would have to hide; use relation = 'replace-one'"
        )
    if scheme.release is not ReleaseRule.AGGREGATED:
        raise UnsupportedError(
            f"release = {scheme.release.value!r}: expected 'aggregated', since a shuffler "
            "releases all messages"
        )
    _require_hidden_order(scheme)


def _require_hidden_order(scheme: Scheme) -> None:
    """Raise an error for randomizers that depend on earlier messages, unless the order is hidden.

    Private randomizers alone do not suffice: if the first client is known and later randomizers
    repeat the first message, the shuffle does not hide the first client.
    """
    if scheme.order is SpeakingOrder.HIDDEN or not is_adaptive(scheme.randomizer):
        return
    declared = "is not declared" if scheme.order is None else f"is {scheme.order.value!r}"
    pure = isinstance(scheme.randomizer, PureRandomizer)
    fixed = ", or use NonAdaptiveRandomizer (non-adaptive)" if pure else ", or also"
    raise UnsupportedError(
        f"the order of speaking {declared}: {type(scheme.randomizer).__name__} may depend on "
        "earlier messages, so a bound needs an order that is uniform and unknown to the "
        "adversary and to the party that chooses the next randomizer; declare order = "
        f"{SpeakingOrder.HIDDEN.value!r} if the order is uniform and unknown{fixed} if all clients "
        "use one randomizer that is chosen before the round"
    )


def _population(scheme: Scheme, draw: Draw) -> int:
    population = draw.population if isinstance(draw, Cohort) else scheme.population
    if population is None:
        raise ParameterError("population", None, "the number of clients, a whole number >= 1")
    return population


SHUFFLED_RANDOMIZERS = (PureRandomizer, PublishedRandomizer, ApproximateRandomizer, GaussianNoise)
"""Types of randomizers that `averaged_window` accepts."""


@dataclass(frozen=True, slots=True)
class AveragedWindow:
    """Blocks of one window of averaged check-ins; ``lower`` is None if no lower bound is known."""

    upper: Block
    lower: Block | None


def averaged_window(
    randomizer: object, population: int, probability: float, sensitivity: float = 2.0
) -> AveragedWindow:
    """Upper and lower block of one window of averaged check-ins, or of its released part.

    Source: docs/design/shuffling.md, "Averaged check-ins", whose Theorems 3 and 4 replace
    Theorem 4.1 of balle2020checkins. Windows are composed, because the clients of each window draw
    new steps.

    Args:
        randomizer: randomizer of every message. The function that maps a record to the input of the
            randomizer may change from step to step, and may depend on earlier outputs. So the bound
            uses no property of a pure randomizer except its ε₀.
        population: n, the number of clients, including the victim; all follow the protocol.
        probability: probability in (0, 1] that a client has taken part. After s of m steps this is
            p₀·s/m, where p₀ is the probability to take part in the window.
        sensitivity: largest distance of a client's two records, in units of the clip norm: 2 under
            replace-one, 1 if one of the two is the null record.

    Raises:
        ParameterError: an argument is outside its domain.
        UnsupportedError: no analysis of averaged messages of this randomizer is known.
    """
    checks.count(population=population)
    # Randomizers that bound the given one from above and from below.
    adaptive, attained = _adaptive(randomizer)
    if isinstance(attained, GaussianNoise):
        attained = GaussianNoise(2.0 / sensitivity * attained.noise_multiplier)
    # A shuffle of all clients, or of those who take part.
    uppers = UpperMessages(adaptive)
    lowers = None if attained is None else SummedMessages(attained)
    lower = None
    if probability == 1.0:
        upper = uppers(population)
        if lowers is not None:
            lower = SubsampledBlock(lowers(population), 1.0, identical_others=True)
    else:
        upper = SelfSamplingBlock(uppers, population, probability)
        if lowers is not None:
            lower = SelfSamplingBlock(lowers, population, probability, identical_others=True)
    if sensitivity < 2.0 and isinstance(randomizer, GaussianNoise):
        # The blocks above allow distances of 2C between records; here the client's two records are
        # closer, and the bound without any other message may be smaller.
        alone = PairBlock(GaussianPair(randomizer.noise_multiplier / sensitivity))
        upper = MinOfBlocks(upper, alone)
    return AveragedWindow(upper, lower)


def _adaptive(randomizer: object) -> tuple[object, object]:
    """Randomizer for the upper bound, and randomizer for the lower bound (None if unknown)."""
    if isinstance(randomizer, PureRandomizer):
        pure = PureRandomizer(randomizer.epsilon0)
        known = type(randomizer) in (PureRandomizer, NonAdaptiveRandomizer)
        return pure, pure if known else None
    if isinstance(randomizer, PublishedRandomizer):
        return randomizer, None
    if isinstance(randomizer, ApproximateRandomizer):
        return randomizer, PureRandomizer(randomizer.epsilon0)
    if isinstance(randomizer, GaussianNoise):
        return randomizer, randomizer
    raise UnsupportedError(
        f"no analysis of averaged messages is known for {type(randomizer).__name__}"
    )


@dataclass(frozen=True, slots=True)
class SummedMessages:
    """Function from n to the block of the sum of n messages; all other clients hold one record.

    The averages and the counts of a window determine this sum. The sum of shuffled bits reveals as
    much as the bits; the sum of Gaussian messages is Gaussian.

    Attributes:
        randomizer: randomizer of every message.
    """

    randomizer: object

    def __call__(self, clients: int) -> Block:
        """Block of the sum of ``clients`` messages."""
        if isinstance(self.randomizer, PureRandomizer):
            return IdenticalOthersBlock(self.randomizer.epsilon0, clients)
        assert isinstance(self.randomizer, GaussianNoise)
        sigma = self.randomizer.noise_multiplier
        return PairBlock(GaussianPair(0.5 * sigma * math.sqrt(clients)))


@dataclass(frozen=True, slots=True)
class MinOfBlocks:
    """Block with the smaller of two upper bounds on the same step, at each K."""

    one: Block
    other: Block

    @property
    def loss_deviation(self) -> float:
        """Smaller one of the approximate standard deviations of both blocks' privacy losses."""
        return min(self.one.loss_deviation, self.other.loss_deviation)

    def curve(self, direction: Direction, side: Side, delta: float, refinement: int) -> Curve:
        """Smaller of the two blocks' upper curves at each K, tight near the given δ."""
        blocks = (self.one, self.other)
        return BestCurve(side, [b.curve(direction, side, delta, refinement) for b in blocks])

    def curves(self, side: Side, delta: float, refinement: int) -> CurvePair:
        """Upper curves of both blocks, of which the smaller is used at each K."""
        one, other = (block.curves(side, delta, refinement) for block in (self.one, self.other))
        floors = min(one.floors[0], other.floors[0]), min(one.floors[1], other.floors[1])
        return CurvePair(side, [*one.remove, *other.remove], [*one.add, *other.add], floors)


_ROUNDING = 1e-9  # relative, of a mixture

_FEW = 4.0  # deviations of N below which every N is a single group

_SWAPPED_FROM, _HIDDEN = 1 / 3, 0.3  # γ, and the loss deviation of a client that surely sends

_EDGES = np.array([-9, -7, -5.5, -4.5, -3.75, *np.arange(-3, 3.1, 0.75), 5])  # of groups of N


@dataclass(frozen=True, slots=True)
class SubsampledBits:
    """Upper bound on δ(K) of sampled bits of a uniform subset of N < n clients.

    Attributes:
        local_epsilon: ε₀ of each bit.
        messages: N, number of clients in the subset, each of which sends one bit.
        population: n, number of clients.
    """

    local_epsilon: float
    messages: int
    population: int

    def __post_init__(self) -> None:
        checks.positive(local_epsilon=self.local_epsilon)
        checks.count(messages=self.messages, population=self.population)
        if self.messages >= self.population:
            expected = f"below population = {self.population}"
            raise ParameterError("messages", self.messages, expected)

    @property
    def loss_deviation(self) -> float:
        """Approximate standard deviation of the likelihood ratio: γ times that of N messages."""
        hidden = SampledBitsRound(self.local_epsilon, self.messages).loss_deviation
        return self.messages / self.population * hidden

    def delta(self, k: float) -> float:
        """Upper bound on δ(K)."""
        return _hidden(self.local_epsilon, self.messages, self.messages / self.population, k)


@dataclass(frozen=True, slots=True)
class SelfSampledBits:
    """Upper bound on δ(K) of sampled bits of clients that each send with probability q.

    Attributes:
        local_epsilon: ε₀ of each bit.
        population: n, number of clients.
        rate: q, probability that a client sends a message, in (0, 1].
    """

    local_epsilon: float
    population: int
    rate: float

    def __post_init__(self) -> None:
        checks.positive(local_epsilon=self.local_epsilon, rate=self.rate)
        checks.count(population=self.population)
        checks.probability(rate=self.rate)

    @property
    def loss_deviation(self) -> float:
        """Approximate standard deviation of the likelihood ratio at the mean number of messages."""
        messages = max(round(self.population * self.rate), 1)
        return self.rate * SampledBitsRound(self.local_epsilon, messages).loss_deviation

    def delta(self, k: float) -> float:
        """Upper bound on δ(K)."""
        all_send = math.exp(self.population * math.log(self.rate))
        total = 0.0
        if all_send > 0.0:
            total = all_send * SampledBitsRound(self.local_epsilon, self.population).delta(k)
        for messages, spread in _spread(self.population, self.rate):
            for rate, weight in spread:
                total += weight * _hidden(self.local_epsilon, messages, rate, k)
        return min(total * (1.0 + _ROUNDING), 1.0)


def _hidden(local_epsilon: float, messages: int, rate: float, k: float) -> float:
    """Upper bound on δ(K) of a client whose bit is in one of ``messages`` slots."""
    return Slots(local_epsilon, messages, rate, flip_of(local_epsilon)).delta(k)


@remembered
def _spread(population: int, rate: float) -> list[tuple[int, list[tuple[float, float]]]]:
    """Smallest N of each group of N < n, and the rates γ and weights that bound this group."""
    mean = population * rate
    deviation = math.sqrt(mean * (1.0 - rate)) + 1.0
    edges = np.rint(mean + deviation * _EDGES)
    if deviation < _FEW:
        edges = np.append(edges, np.arange(math.floor(mean - 5 * deviation), edges[-1]))
    first = np.unique(np.clip(np.append(edges, 1.0), 1, population)).astype(np.int64)
    found: list[tuple[int, list[tuple[float, float]]]] = []
    for group in groups_from(first, population, rate, Side.UPPER):
        if group.first < population:
            last = min(group.last, population - 1)
            fewer = group._replace(last=last, mean=min(group.mean, last))
            found.append((group.first, dilutions(fewer, population, Side.UPPER)))
    return found


@dataclass(frozen=True, slots=True)
class WorseOrderBlock:
    """Block for lower bounds with identical others, in the order of P and Q with the larger loss.

    All other clients hold one record. The client holds another record in one world only: in P for
    the *remove* direction of the base block, in Q for the *add* direction. For one round the lower
    curve is the larger of both directions at each K; for composition it is the curve of one order
    of the two worlds.

    Attributes:
        base: block of rounds in which the client takes part with probability γ, with curves of
            both directions.
        rate: γ.
    """

    base: Block
    rate: float

    @property
    def loss_deviation(self) -> float:
        """Approximate standard deviation of the likelihood ratio, that of the base block."""
        return self.base.loss_deviation

    @property
    def swapped(self) -> bool:
        """True if the *add* and *remove* directions of the base block are exchanged.

        To first order in ε the *add* direction has the larger tail if γ ≥ 1/3. But the privacy loss
        of the *add* direction is at most −ln(1 − γ), which is small where other clients do not hide
        the client.
        """
        return self.rate > _SWAPPED_FROM and self.loss_deviation < _HIDDEN * self.rate

    def curve(self, direction: Direction, side: Side, delta: float, refinement: int) -> Curve:
        """Curve that is tight near the given δ; a lower curve is the larger of both at each K."""
        if side is Side.UPPER:
            other = Direction.ADD if direction is Direction.REMOVE else Direction.REMOVE
            return self.base.curve(other if self.swapped else direction, side, delta, refinement)
        curves = [self.base.curve(one, side, delta, refinement) for one in Direction]
        return BestCurve(side, curves)

    def curves(self, side: Side, delta: float, refinement: int) -> CurvePair:
        """Curves of both directions, for one order of the two worlds."""
        pair = self.base.curves(side, delta, refinement)
        if not self.swapped:
            return pair
        return CurvePair(side, pair.add, pair.remove, (pair.floors[1], pair.floors[0]))
