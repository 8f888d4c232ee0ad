"""From a scheme to its blocks: which dominating pair, how often, under which relation.

docs/design/protocols.md derives the sensitivities that stand here.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch

from turnout.accounting.divergence.blocks import Block, FixedSizeBlock, PairBlock
from turnout.accounting.divergence.dominating_pairs import Dominating, dominating
from turnout.accounting.divergence.neighbour_bounds import Decomposition, Hop, Run
from turnout.accounting.divergence.pairs import GaussianPair
from turnout.accounting.laws.check_ins.block import AllocationBlock
from turnout.accounting.laws.k_subset import SubsetBlock
from turnout.accounting.laws.replace_one import Closeness, under_replacement
from turnout.accounting.shuffling.messages import PublishedRandomizer
from turnout.accounting.shuffling.sampling.averaged import SHUFFLED_RANDOMIZERS, averaged_window
from turnout.accounting.shuffling.schemes import message_cap, shuffled
from turnout.core import checks
from turnout.core.errors import UnsupportedError
from turnout.spec import (
    ApproximateRandomizer,
    AvailabilityCheckIn,
    CheckIn,
    DiscreteGaussianNoise,
    EveryStep,
    FixedAssignment,
    FixedSize,
    GaussianNoise,
    KSubset,
    LaplaceNoise,
    PoissonSampling,
    PureRandomizer,
    Randomizer,
    Relation,
    ReleaseRule,
    RoundedGaussianNoise,
    Scheme,
    SelfSampling,
    SlidingWindow,
    SpeakingOrder,
    TrustModel,
)
from turnout.spec.randomizers import is_adaptive


def decompose(scheme: Scheme, steps: int | None = None) -> Decomposition:
    """The blocks of a scheme's first ``steps`` steps (of the whole run if None).

    Raises:
        ParameterError: steps that the scheme does not have.
        UnsupportedError: no sound analysis is known for this release rule, law and relation.
    """
    steps = steps_of(scheme, steps)
    if scheme.trust is TrustModel.SHUFFLED:
        return shuffled(scheme, steps, scheme.randomizer)
    require_central(scheme)
    if scheme.release is ReleaseRule.AVERAGED:
        return _averaged(scheme, steps, scheme.randomizer)
    if isinstance(scheme.participation, FixedSize):
        return _fixed_size(scheme, steps)
    if scheme.release is ReleaseRule.ONE_CLIENT:
        return _one_client(scheme, steps)
    return _aggregated(scheme, steps)


def steps_of(scheme: Scheme, steps: int | None) -> int:
    """The first ``steps`` steps of a scheme as a number that it has; all if None.

    Raises:
        ParameterError: no whole number from 0 to the steps of the whole run.
    """
    whole = scheme.participation.steps
    if steps is None:
        return whole
    checks.count(0, steps=steps)
    checks.at_most("the scheme's steps", whole, steps=steps)
    return int(steps)


def _aggregated(scheme: Scheme, steps: int) -> Decomposition:
    law, replaced = scheme.participation, scheme.relation is Relation.REPLACE_ONE
    if isinstance(law, EveryStep):
        # With no chance involved the neighbours differ by up to 2C in each step: exact.
        worst = dominating(scheme.randomizer, 2.0 if replaced else 1.0)
        return Decomposition(blocks_of(law, worst, worst, steps))
    alone = dominating(scheme.randomizer, 1.0)
    hop = blocks_of(law, alone, alone, steps)
    if not replaced:
        return Decomposition(hop)
    _require_own_draws(law)
    return _replaced(scheme, hop)


def _one_client(scheme: Scheme, steps: int) -> Decomposition:
    """She may displace somebody else's update, 2C; alone she moves C."""
    law, relation = scheme.participation, scheme.relation
    _require_own_draws(law)
    alone = dominating(scheme.randomizer, 1.0)
    hop = blocks_of(law, dominating(scheme.randomizer, 2.0), alone, steps)
    if relation is Relation.ADD_REMOVE:
        return Decomposition(hop)
    if relation is Relation.ZERO_OUT or isinstance(law, KSubset):
        null = blocks_of(law, alone, alone, steps) if relation is Relation.ZERO_OUT else hop
        return Decomposition(hop, null)
    # Her record, the other one and whomever she displaces are any two within 2C.
    upper = under_replacement(hop.upper, Closeness.ANY_TWO)
    private = isinstance(scheme.randomizer, PureRandomizer | ApproximateRandomizer)
    closeness = Closeness.ANY_TWO if private else Closeness.TO_ABSENCE
    lower = under_replacement(hop.lower, closeness)
    method = "any two of record, other record and the displaced one within 2C, composed as PLD"
    return Decomposition(Hop(upper, lower, method, tight=False, symmetric=True))


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
def _(law: FixedAssignment, upper: Dominating, lower: Dominating, steps: int) -> Hop:
    epochs, rest = divmod(steps, law.window)
    if epochs == 0:
        chance = law.probability * rest / law.window
        runs = [[(_window(worst, rest, chance), 1)] if chance else [] for worst in (upper, lower)]
    else:
        # Of a begun epoch she has taken part in at most the whole and at least nothing.
        runs = [
            [(_window(_summed(worst, times), law.window, law.probability), 1)]
            if law.probability
            else []
            for worst, times in ((upper, epochs + (rest > 0)), (lower, epochs))
        ]
    return Hop(runs[0], runs[1], "exact law of random allocation, one slot kept in all epochs")


def _summed(worst: Dominating, times: int) -> Dominating:
    """What a slot shows that she holds so many times: Gaussian ratios multiply to a Gaussian's."""
    if times == 1:
        return worst
    if not isinstance(worst.pair, GaussianPair):
        raise UnsupportedError("a slot kept over several epochs is priced for Gaussian noise only")
    return Dominating(GaussianPair(worst.pair.noise_multiplier / times**0.5))


@blocks_of.register
def _(law: SlidingWindow, upper: Dominating, lower: Dominating, steps: int) -> Hop:
    seen = min(steps, law.window)

    def run(worst: Dominating) -> Run:
        return [(_window(worst, seen, seen / law.window), 1)]

    return Hop(run(upper), run(lower), "exact law of random allocation in her own window")


@blocks_of.register
def _(law: KSubset, upper: Dominating, lower: Dominating, steps: int) -> Hop:
    windows, full = -(-steps // law.window), steps // law.window

    def run(worst: Dominating, count: int) -> Run:
        block = SubsetBlock(worst.pair, law.window, law.picks, 1.0, worst.leak)
        return [(block, count)] if count else []

    return Hop(
        run(upper, windows),
        run(lower, full),
        "k-subset by one statistic of its steps, below the bound of k windows",
        tight=False,
    )


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


_OWN_DRAWS = (
    EveryStep,
    PoissonSampling,
    SelfSampling,
    CheckIn,
    SlidingWindow,
    KSubset,
    FixedAssignment,
)
"""Laws under which a client's steps depend neither on its record nor on who else comes."""


def _require_own_draws(law: object) -> None:
    """Refuses a law for which replace-one and one-client releases are not proved."""
    if type(law) not in _OWN_DRAWS:
        raise UnsupportedError(
            f"replace-one and one-client releases are not known under {type(law).__name__}"
        )


_OPPOSABLE = (GaussianNoise, LaplaceNoise, DiscreteGaussianNoise, RoundedGaussianNoise)
"""Noise under which two records can pull to opposite sides with full strength."""


def _replaced(scheme: Scheme, hop: Hop) -> Decomposition:
    """One record against another (docs/design/replacement.md); over her absence if need be."""
    law, randomizer = scheme.participation, scheme.randomizer
    if isinstance(law, KSubset):
        return Decomposition(hop, hop)
    if isinstance(randomizer, PureRandomizer | ApproximateRandomizer):
        run = under_replacement(hop.upper, Closeness.ANY_TWO)
        method = "any two of record, other record and absence alike, composed as PLD"
        return Decomposition(Hop(run, run, method, tight=False))
    if isinstance(randomizer, _OPPOSABLE):
        run = under_replacement(hop.upper)
        method = "worst two records, exactly, composed as PLD"
        return Decomposition(Hop(run, run, method, symmetric=True))
    return Decomposition(hop, hop)


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


def _averaged(
    scheme: Scheme, steps: int, randomizer: Randomizer | PublishedRandomizer
) -> Decomposition:
    """Blocks of averaged check-ins, whose counts are public: other clients' noise hides a client.

    Where their number is known they are a shuffle, whose order of speaking is hidden by
    construction (`shuffling.sampling.averaged`); else the client may be alone in its slot, seen
    with nothing but its own noise, which is exact (a run with one client).
    """
    law, population = scheme.participation, scheme.population
    if scheme.order is SpeakingOrder.KNOWN:
        raise UnsupportedError(
            "averaged check-ins hide each other only where each client draws the step unseen; "
            "where their order is 'known', price them without a population and an order"
        )
    if scheme.relation is Relation.ADD_REMOVE:
        raise UnsupportedError(
            "averaged check-ins release how many clients came, which add-remove does not "
            "protect; use zero-out or replace-one, or the aggregated release"
        )
    if not isinstance(law, CheckIn):
        raise UnsupportedError(
            "averaged releases are priced for check-in participation only, not under "
            f"{type(law).__name__}"
        )
    reach = 1.0 if scheme.relation is Relation.ZERO_OUT else 2.0
    if isinstance(randomizer, SHUFFLED_RANDOMIZERS) and population and law.probability:
        return _averaged_shuffle(randomizer, law, population, steps, reach)
    windows, full = -(-steps // law.window), steps // law.window
    worst = dominating(scheme.randomizer, reach)
    upper = _repeated(worst, windows)
    lower = upper
    if law.probability < 1:
        # Where a window shows nothing, an adversary can draw the null release for himself.
        upper = upper if law.probability > 0 else []
        lower = [(_step(worst, law.probability), full)] if full and upper else []
    method = "one unamplified release a window (the counts are public)"
    return Decomposition(Hop(upper, lower, method))


def _averaged_shuffle(
    randomizer: object, law: CheckIn, population: int, steps: int, reach: float
) -> Decomposition:
    full, rest = divmod(steps, law.window)
    upper: list[tuple[Block, int]] = []
    lower: list[tuple[Block, int]] = []
    for share, count in ((1.0, full), (rest / law.window, 1 if rest else 0)):
        if count:
            chance = law.probability * share
            window = averaged_window(randomizer, population, chance, reach)
            upper.append((window.upper, count))
            if window.lower is not None:
                lower.append((window.lower, count))
    method = "shuffle of all who come to a window, windows composed as PLD"
    cap = message_cap(randomizer, -(-steps // law.window))
    return Decomposition(Hop(upper, lower, method, tight=False, cap=cap))


def published(scheme: Scheme) -> Decomposition | None:
    """The blocks of a whole run by the smallest published bound; None where `decompose` has those.

    Messages of adaptive ε₀-randomizers, shuffled or of averaged check-ins, rest on Theorem 3 of
    docs/design/shuffling.md, which is ours. Clones 2021 (feldman2021clones, Theorem 3.1) is the
    smallest bound in print.
    """
    randomizer, steps = scheme.randomizer, scheme.participation.steps
    if not isinstance(randomizer, PureRandomizer):
        return None
    in_print = PublishedRandomizer(randomizer.epsilon0)
    if scheme.trust is TrustModel.SHUFFLED:
        return shuffled(scheme, steps, in_print) if is_adaptive(randomizer) else None
    if scheme.release is ReleaseRule.AVERAGED and scheme.population is not None:
        return _averaged(scheme, steps, in_print)
    return None


def require_central(scheme: Scheme) -> None:
    """Refuses a trust model under which nobody hides check-ins and single updates.

    Raises:
        UnsupportedError: the trust model is not central.
    """
    if scheme.trust is not TrustModel.CENTRAL:
        raise UnsupportedError(
            f"this analysis trusts the coordinator; trust = {scheme.trust.value!r} has none"
        )


def is_per_client(scheme: Scheme) -> bool:
    """Whether clients have windows of their own, so that ε differs between them."""
    return isinstance(scheme.participation, AvailabilityCheckIn)
