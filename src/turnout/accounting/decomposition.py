"""From a scheme to its blocks: which dominating pair, how often, under which relation.

docs/design/protocols.md derives the sensitivities that stand here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import singledispatch

from turnout.accounting.blocks import AllocationBlock, Block, FixedSizeBlock, PairBlock
from turnout.accounting.dominating import Dominating, dominating
from turnout.accounting.pairs import GaussianPair
from turnout.core.errors import UnsupportedError
from turnout.spec import (
    AvailabilityCheckIn,
    CheckIn,
    EveryStep,
    FixedSize,
    KSubset,
    PoissonSampling,
    Relation,
    ReleaseRule,
    Scheme,
    SelfSampling,
    SlidingWindow,
    TrustModel,
)

Run = Sequence[tuple[Block, int]]


@dataclass(frozen=True, slots=True)
class Hop:
    """One hop between neighbours: blocks that bound it from above and from below.

    Attributes:
        upper: composed, at least as bad as the truth.
        lower: composed, something an adversary really gets; the same blocks where the
            analysis is exact.
        method: the analysis, in a few words.
    """

    upper: Run
    lower: Run
    method: str


@dataclass(frozen=True, slots=True)
class Decomposition:
    """What must be computed for a scheme.

    Attributes:
        present: her real record against her absence (the reference).
        other: the neighbouring record against the same reference, where the relation takes
            two hops (replace-one; zero-out where the null record displaces somebody); None
            where the reference *is* the neighbour.
    """

    present: Hop
    other: Hop | None = None


def decompose(scheme: Scheme, steps: int | None = None) -> Decomposition:
    """The blocks of a scheme's first ``steps`` steps (of the whole run if None).

    Raises:
        UnsupportedError: no sound analysis is known for this release rule, law and relation.
    """
    law, release, relation = scheme.participation, scheme.release, scheme.relation
    require_central(scheme)
    steps = law.steps if steps is None else steps
    if release is ReleaseRule.AVERAGED:
        return _averaged(scheme, steps)
    if isinstance(law, FixedSize):
        return _fixed_size(scheme, steps)
    alone = dominating(scheme.randomizer, 1.0)
    if release is ReleaseRule.AGGREGATED and isinstance(law, EveryStep):
        # With no chance involved the neighbours differ by up to 2C in each step: exact.
        reach = 2.0 if relation is Relation.REPLACE_ONE else 1.0
        worst = dominating(scheme.randomizer, reach)
        return Decomposition(blocks_of(law, worst, worst, steps))
    if release is ReleaseRule.AGGREGATED:
        hop = blocks_of(law, alone, alone, steps)
        return Decomposition(hop, hop if relation is Relation.REPLACE_ONE else None)
    # One client a step: she may displace somebody else's update, 2C; alone she moves C.
    hop = blocks_of(law, dominating(scheme.randomizer, 2.0), alone, steps)
    if relation is Relation.ADD_REMOVE:
        return Decomposition(hop)
    null = blocks_of(law, alone, alone, steps) if relation is Relation.ZERO_OUT else hop
    return Decomposition(hop, null)


@singledispatch
def blocks_of(law: object, upper: Dominating, lower: Dominating, steps: int) -> Hop:
    """Her presence against her absence under a participation law.

    Args:
        law: the participation law.
        upper: what one step shows at the largest sensitivity, for the upper bound.
        lower: what is really attained, for the lower bound.
        steps: how many steps of the run have been released.
    """
    raise UnsupportedError(f"no analysis is known for {type(law).__name__}")


@blocks_of.register
def _(law: EveryStep, upper: Dominating, lower: Dominating, steps: int) -> Hop:
    return Hop(
        _repeated(upper, steps),
        _repeated(lower, steps),
        "every step, no amplification, exact",
    )


@blocks_of.register(PoissonSampling)
@blocks_of.register(SelfSampling)
def _(law: PoissonSampling | SelfSampling, upper: Dominating, lower: Dominating, steps: int) -> Hop:
    def run(worst: Dominating) -> Run:
        return [(_step(worst, law.rate), steps)] if law.rate > 0 else []

    return Hop(run(upper), run(lower), "Poisson-subsampled steps, composed as PLD")


@blocks_of.register
def _(law: CheckIn, upper: Dominating, lower: Dominating, steps: int) -> Hop:
    full, rest = divmod(steps, law.window)

    def run(worst: Dominating) -> Run:
        parts: list[tuple[Block, int]] = []
        if law.probability > 0 and full:
            parts.append((_window(worst, law.window, law.probability), full))
        if law.probability > 0 and rest:
            # So far she has come with probability p₀·rest/window, then uniformly.
            parts.append((_window(worst, rest, law.probability * rest / law.window), 1))
        return parts

    return Hop(run(upper), run(lower), "exact law of random allocation, windows composed as PLD")


@blocks_of.register
def _(law: SlidingWindow, upper: Dominating, lower: Dominating, steps: int) -> Hop:
    seen = min(steps, law.window)

    def run(worst: Dominating) -> Run:
        return [(_window(worst, seen, seen / law.window), 1)]

    return Hop(run(upper), run(lower), "exact law of random allocation in her own window")


@blocks_of.register
def _(law: KSubset, upper: Dominating, lower: Dominating, steps: int) -> Hop:
    windows, full = -(-steps // law.window), steps // law.window
    blocks: Run = [(_window(upper, law.window // law.picks, 1.0), law.picks * windows)]
    seen: Run = []
    if full and isinstance(lower.pair, GaussianPair):
        # Lower: the adversary adds up a window's outputs, N(k, tσ²) against N(0, tσ²).
        summed = lower.pair.noise_multiplier * law.window**0.5 / law.picks
        seen = _repeated(Dominating(GaussianPair(summed)), full)
    return Hop(blocks, seen, "k-subset bounded by k blocks of 1-of-⌊t/k⌋ (Feldman & Shenfeld 3.11)")


def window_hop(
    upper: Dominating, lower: Dominating, sizes: Sequence[int], probability: float
) -> Hop:
    """One client of an availability law, by how many steps she has in each window."""
    counts = {size: list(sizes).count(size) for size in sorted(set(sizes)) if size > 0}

    def run(worst: Dominating) -> Run:
        if probability == 0:
            return []
        return [(_window(worst, size, probability), n) for size, n in counts.items()]

    return Hop(run(upper), run(lower), "exact law of random allocation in her own windows")


def _step(worst: Dominating, probability: float) -> Block:
    return PairBlock(worst.pair, probability, worst.leak)


def _window(worst: Dominating, window: int, probability: float) -> Block:
    return AllocationBlock(worst.pair, window, probability, worst.leak)


def _repeated(worst: Dominating, times: int) -> Run:
    """The same step again and again; Gaussians add up to one."""
    if times and isinstance(worst.pair, GaussianPair):
        return [(PairBlock(GaussianPair(worst.pair.noise_multiplier / times**0.5)), 1)]
    return [(_step(worst, 1.0), times)] if times else []


def _fixed_size(scheme: Scheme, steps: int) -> Decomposition:
    law = scheme.participation
    assert isinstance(law, FixedSize)
    if scheme.relation is Relation.ADD_REMOVE:
        raise UnsupportedError(
            "fixed-size participation fixes the number of clients, so add-remove is not a "
            "relation between two of its runs; use zero-out or replace-one"
        )
    if scheme.release is not ReleaseRule.AGGREGATED:
        raise UnsupportedError("fixed-size participation is priced for aggregated releases only")
    rate = law.size / law.population
    substituted = dominating(scheme.randomizer, 2.0)
    hop = Hop(
        [(FixedSizeBlock(substituted.pair, rate, substituted.leak), steps)],
        [(_step(dominating(scheme.randomizer, 1.0), rate), steps)],
        "sampling without replacement (Balle et al. 2018, Theorem 11), composed as PLD",
    )
    return Decomposition(hop)


def _averaged(scheme: Scheme, steps: int) -> Decomposition:
    """Algorithm 2 reveals the counts; alone in her slot she is seen with nothing but her noise.

    The amplification that Theorem 4.1 proves comes from the *other* clients' noisy messages and
    needs their number; without it the unamplified price is exact (a run with one client).
    """
    law = scheme.participation
    if scheme.relation is Relation.ADD_REMOVE:
        raise UnsupportedError(
            "averaged check-ins release how many clients came, which add-remove does not "
            "protect; use zero-out or replace-one, or the aggregated release"
        )
    if not isinstance(law, CheckIn):
        raise UnsupportedError("averaged releases are priced for check-in participation only")
    windows, full = -(-steps // law.window), steps // law.window
    reach = 1.0 if scheme.relation is Relation.ZERO_OUT else 2.0
    worst = dominating(scheme.randomizer, reach)
    upper = _repeated(worst, windows)
    lower = upper
    if law.probability < 1:
        # Where a window shows nothing, an adversary can draw the null release for himself.
        upper = upper if law.probability > 0 else []
        lower = [(_step(worst, law.probability), full)] if full and upper else []
    method = "one unamplified release a window (the counts are public)"
    return Decomposition(Hop(upper, lower, method))


def require_central(scheme: Scheme) -> None:
    """Refuses a trust model under which nobody hides check-ins and single updates.

    Raises:
        UnsupportedError: the trust model is not central.
    """
    if scheme.trust is not TrustModel.CENTRAL:
        raise UnsupportedError(
            f"every analysis here trusts the coordinator; trust = {scheme.trust.value!r} has none"
        )


def is_per_client(scheme: Scheme) -> bool:
    """Whether clients have windows of their own, so that ε differs between them."""
    return isinstance(scheme.participation, AvailabilityCheckIn)
