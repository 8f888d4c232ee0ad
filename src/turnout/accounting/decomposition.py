"""Decomposition of a scheme into independent blocks, by randomizer, participation and relation.

`decompose` returns the `Decomposition` of the first steps of a scheme. `published` returns a
decomposition that uses the smallest published bound. `steps_of`, `require_central` and
`is_per_client` are checks for callers. This module chooses among the blocks of `participation` and
`shuffling`; `pricing`, `privacy_curve`, `meaning.profile` and `budgets` compose the blocks.

docs/design/protocols.md derives the sensitivities used here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from turnout.accounting.divergence.blocks import (
    Decomposition,
    NeighbourBound,
    PairBlock,
    joined_decompositions,
)
from turnout.accounting.divergence.composition import is_composed
from turnout.accounting.divergence.dominating_pairs import (
    DominatingPair,
    closed_form,
    dominating,
)
from turnout.accounting.divergence.pairs import GaussianPair
from turnout.accounting.divergence.unhidden import Unhidden, UnhiddenBlock
from turnout.accounting.participation.drawn_blocks import DrawnBlocks, drawn_blocks_of
from turnout.accounting.participation.neighbours import blocks_of, repeated
from turnout.core import checks
from turnout.core.errors import UnsupportedError
from turnout.schemes import (
    ApproximateRandomizer,
    AttainedVariation,
    DiscreteGaussianNoise,
    GaussianNoise,
    LaplaceNoise,
    NonAdaptiveRandomizer,
    PureRandomizer,
    Randomizer,
    Relation,
    ReleaseRule,
    RepeatedMessages,
    RoundedGaussianNoise,
    SampledBitResponse,
    Scheme,
    SpeakingOrder,
    TrustModel,
)
from turnout.schemes.normal_form import (
    Always,
    Bernoulli,
    Cohort,
    Draw,
    Kept,
    KOf,
    OneOf,
    OneOfOwn,
    ReleasedSteps,
    Staggered,
    normal_form,
)
from turnout.schemes.randomizers import is_adaptive
from turnout.schemes.scheme import ShuffledLoader

if TYPE_CHECKING:
    from turnout.accounting.shuffling.messages import PublishedRandomizer

# Modules that only some schemes need are imported inside functions, so that bounds for simple
# schemes start quickly.


_MOST_COUPLED = 1_000_000
"""Largest number of windows in which replace-one compares two records directly.

With more windows the comparison passes through the null record: a direct comparison needs the
curves of single windows far into their tails, which takes minutes instead of seconds.
"""


def decompose(scheme: Scheme, steps: int | None = None) -> Decomposition:
    """Independent blocks of the first ``steps`` steps of a scheme (all steps if None).

    Args:
        scheme: the whole scheme.
        steps: number of first steps, from 0 to the scheme's; the whole run if None.

    Raises:
        ParameterError: the scheme has fewer steps.
        UnsupportedError: no sound analysis is known for this combination of release rule,
            participation and relation.
    """
    steps = steps_of(scheme, steps)
    parts = normal_form(scheme.participation).released(steps)
    found = _in_a_row([_capped(scheme, part, _of_draw(scheme, part)) for part in parts])
    return _upper_alone(found) if isinstance(scheme, ShuffledLoader) else found


def _upper_alone(found: Decomposition) -> Decomposition:
    """Decomposition without lower bounds, for a loader whose shuffled batches are not known."""
    bound = found.record_against_null
    method = f"upper bound for a loader that shuffles, from known batches: {bound.method}"
    return replace(
        found,
        record_against_null=replace(bound, lower=(), attacks=(), tight=False, method=method),
        unhidden=replace(found.unhidden, below=()),
    )


def _capped(scheme: Scheme, part: ReleasedSteps, found: Decomposition) -> Decomposition:
    """Decomposition that also has the blocks for an adversary that observes participation.

    These blocks bound ε from above also if participation is hidden.
    """
    return replace(found, unhidden=unhidden(scheme, drawn_blocks_of(part)))


def unhidden(scheme: Scheme, drawn: Sequence[DrawnBlocks]) -> Unhidden:
    """Blocks of the releases of a client whose participation is observed.

    For the upper bound the two neighbouring worlds are coupled so that the client draws the same
    steps in both worlds. Under replace-one the coupling may instead use disjoint steps for the two
    records, if the participation allows this and ε is smaller. Each participation then counts as
    two releases that compare a record with absence, instead of one release that compares two
    records.

    Args:
        scheme: the whole scheme.
        drawn: blocks of steps in which the client takes part with the same probabilities.
    """
    relation, randomizer, release = scheme.relation, scheme.randomizer, scheme.release
    replaced = relation is Relation.REPLACE_ONE
    displaces = relation is Relation.ADD_REMOVE and release is ReleaseRule.ONE_CLIENT
    single = closed_form(randomizer, 1.0)
    form = closed_form(randomizer, 2.0) if replaced or displaces else single
    # Upper bound: one release per participation, or two against absence where ε is smaller then.
    hidden = scheme.trust is TrustModel.CENTRAL and release is not ReleaseRule.AVERAGED
    sums = replaced and hidden and release is ReleaseRule.AGGREGATED and 2.0 * single.rho < form.rho
    above = [
        (UnhiddenBlock(single, d.chance, 2 * d.releases), d.count)
        if sums and d.apart
        else (UnhiddenBlock(form, d.chance, d.releases), d.count)
        for d in drawn
    ]
    # Lower bound: known for Gaussian noise only, from the draws whose number of sets is known. Two
    # records with opposite updates attain the distance 2C only where both surely take the same
    # steps.
    if not (hidden and isinstance(randomizer, GaussianNoise)):
        return Unhidden(above)
    sure = [d for d in drawn if d.log_sets is not None]
    opposed = replaced and all(d.chance == 1.0 and d.log_sets == 0.0 for d in sure)
    attained = form if opposed else single
    below = [
        (UnhiddenBlock(attained, d.chance, d.releases, d.log_sets or 0.0), d.count) for d in sure
    ]
    return Unhidden(above, below)


def _of_draw(scheme: Scheme, part: ReleasedSteps) -> Decomposition:
    """Blocks of the steps that one draw covers; blocks of different draws are independent."""
    if scheme.trust is TrustModel.SHUFFLED:
        from turnout.accounting.shuffling.schemes import shuffled_blocks

        return shuffled_blocks(scheme, part, scheme.randomizer)
    if scheme.trust is TrustModel.LOCAL:
        return _local(scheme, part)
    if scheme.release is ReleaseRule.AVERAGED:
        return _averaged(scheme, part, scheme.randomizer)
    if isinstance(part.draw, Cohort):
        return _fixed_size(scheme, part.draw, part.full)
    if scheme.release is ReleaseRule.ONE_CLIENT:
        return _one_client(scheme, part)
    return _aggregated(scheme, part)


def steps_of(scheme: Scheme, steps: int | None) -> int:
    """Checked number of first steps of a scheme; if None, the number of all steps of the scheme.

    Raises:
        ParameterError: ``steps`` is below 0, or above the scheme's number of steps.
    """
    whole = scheme.participation.steps
    if steps is None:
        return whole
    checks.count(0, steps=steps)
    checks.at_most("the scheme's steps", whole, steps=steps)
    return int(steps)


_ATTAINED = (
    PureRandomizer,
    NonAdaptiveRandomizer,
    AttainedVariation,
    ApproximateRandomizer,
    SampledBitResponse,
)
"""Randomizers whose dominating pair is attained by two records that the randomizer allows."""


def _local(scheme: Scheme, part: ReleasedSteps) -> Decomposition:
    """Blocks under local trust, where every party observes each message and its sender."""
    from turnout.accounting.participation.neighbours import observed_blocks

    # Combinations without an analysis.
    if scheme.relation is Relation.ADD_REMOVE:
        raise UnsupportedError(
            "trust = 'local' has no analysis under add-remove: messages that are seen with their "
            "senders show which clients take part; use zero-out or replace-one"
        )
    if scheme.release is not ReleaseRule.AGGREGATED:
        raise UnsupportedError(
            f"release = {scheme.release.value!r}: expected 'aggregated' under local trust, "
            "the only release rule with an analysis under local trust"
        )
    # Repeated messages are composed one by one.
    randomizer, replaced = scheme.randomizer, scheme.relation is Relation.REPLACE_ONE
    messages = 1
    if isinstance(randomizer, RepeatedMessages):
        randomizer, messages = randomizer.each, randomizer.messages
    # Dominating pair of one message, and whether two records attain it (for a lower bound).
    worst = dominating(randomizer, 2.0 if replaced else 1.0)
    attained = isinstance(randomizer, _OPPOSABLE) or type(randomizer) in _ATTAINED
    return Decomposition(observed_blocks(part, worst, attained, messages))


def _aggregated(scheme: Scheme, part: ReleasedSteps) -> Decomposition:
    """Blocks of aggregated releases."""
    replaced = scheme.relation is Relation.REPLACE_ONE
    if isinstance(part.draw, Always):
        # Without random draws two records differ by up to 2C in each step: exact.
        worst = dominating(scheme.randomizer, 2.0 if replaced else 1.0)
        return Decomposition(blocks_of(part, worst, worst))
    alone = dominating(scheme.randomizer, 1.0)
    bound = blocks_of(part, alone, alone)
    if not replaced:
        return Decomposition(bound)
    _require_own_draws(scheme, part.draw)
    return Decomposition(bound, bound) if _is_long(part) else _replaced(scheme, part.draw, bound)


def _one_client(scheme: Scheme, part: ReleasedSteps) -> Decomposition:
    """Blocks of one-client releases, where a client's update may replace another client's update.

    If the client's update replaces another update, the output moves by up to 2C, else by up to C.
    """
    relation = scheme.relation
    _require_own_draws(scheme, part.draw)
    if isinstance(part.draw, Always) and relation is not Relation.ADD_REMOVE:
        # The client checks in to every step in both worlds: exact, as a run without others shows.
        return _aggregated(scheme, part)
    bound = _one_client_bound(scheme, part)
    if relation is Relation.ADD_REMOVE:
        return Decomposition(bound)
    # Through the null record, if two records cannot be compared directly. Under zero-out, an attack
    # that compares the client with its absence is valid only if the client is alone.
    alone, apart = (dominating(scheme.randomizer, distance) for distance in (1.0, 2.0))
    zero_out = relation is Relation.ZERO_OUT
    kept = _is_kept(part.draw)
    if _is_long(part) or isinstance(part.draw, KOf) or (kept and zero_out):
        if not zero_out:
            return Decomposition(bound, bound)
        return Decomposition(replace(bound, attacks=()), blocks_of(part, alone, alone))
    noisy = isinstance(scheme.randomizer, _OPPOSABLE)
    if noisy and not kept:
        return _one_client_records(scheme, bound)
    from turnout.accounting.participation.replace_one import Closeness, under_replacement

    # Directly: the messages for the client's record, the other record and the displaced record (or
    # a dummy message) are all outputs of one randomizer.
    run = blocks_of(part, apart, alone)
    upper = under_replacement(run.upper, Closeness.ANY_TWO)
    closeness = Closeness.TO_ABSENCE if noisy else Closeness.ANY_TWO
    lower = run.lower if zero_out else under_replacement(run.lower, closeness)
    method = "any two of record, other record and the displaced one alike, composed as PLD"
    return Decomposition(NeighbourBound(upper, lower, method, tight=False, symmetric=not zero_out))


def _one_client_records(scheme: Scheme, bound: NeighbourBound) -> Decomposition:
    """Blocks of one-client releases with additive noise, by comparing two records directly.

    Source: docs/design/one-client.md, Theorem 2.

    Args:
        scheme: the scheme, under zero-out or replace-one.
        bound: neighbour bound of the client against its absence.
    """
    from turnout.accounting.participation.one_client import under_one_client
    from turnout.accounting.participation.replace_one import under_replacement

    alone, apart = (dominating(scheme.randomizer, distance).pair for distance in (1.0, 2.0))
    zero_out = scheme.relation is Relation.ZERO_OUT
    upper = under_one_client(bound.upper, alone, apart, to_null=zero_out)
    if zero_out:
        # Attacks: the client alone, and one other client of the opposite update in each step.
        known = isinstance(scheme.randomizer, GaussianNoise)
        attacks = (upper,) if known else ()
        method = "record against null record, alone or displacing another client, composed as PLD"
        return Decomposition(
            NeighbourBound(upper, bound.lower, method, tight=False, attacks=attacks)
        )
    # Attacks: one other client whose update is the other record, and the client alone. For composed
    # windows only the attack whose ratios vary more is computed, since each one takes seconds.
    opposed, attacks = bound.attacks[0], (under_replacement(bound.lower),)
    # The variances per step at K = 1: the client alone with updates u and −u has Y = X − X' of
    # variance 4·E(X − 1)², at distance C from the null record; a displaced client has probability ½
    # and distance 2C, so Y has a quarter of the variance of the pair at distance 2C.
    if is_composed(bound.lower):
        varies = 4.0 * (alone.second_moment - 1.0) > 0.25 * (apart.second_moment - 1.0)
        opposed, attacks = (attacks[0] if varies else opposed), ()
    method = "worst two records, alone or displacing another client, composed as PLD"
    return Decomposition(
        NeighbourBound(upper, opposed, method, tight=False, symmetric=True, attacks=attacks)
    )


def _is_kept(draw: Draw) -> bool:
    """Whether a client keeps its slot over several epochs."""
    return isinstance(draw, Kept) and draw.epochs > 1


def _one_client_bound(scheme: Scheme, part: ReleasedSteps) -> NeighbourBound:
    """Neighbour bound of a client against its absence, for one-client releases."""
    worst, attacks = one_client_pairs(scheme.randomizer)
    # A slot that is kept over several epochs has an analysis for Gaussian pairs alone.
    if _is_kept(part.draw) or len(attacks) == 1:
        return blocks_of(part, dominating(scheme.randomizer, 2.0), attacks[0])
    bound = blocks_of(part, worst, attacks[0])
    others = tuple(blocks_of(part, worst, attack).lower for attack in attacks[1:])
    method = f"{bound.method}, alone or displacing another client"
    return replace(bound, method=method, tight=False, attacks=others)


def one_client_pairs(randomizer: Randomizer) -> tuple[DominatingPair, tuple[DominatingPair, ...]]:
    """Pair that dominates one step of one-client releases, and the pairs of one or two attacks.

    The client is compared with its absence. In the first attack the client is alone in each step.
    In the second attack one other client checks in to each step as well.

    Source: docs/design/one-client.md, Theorem 1.

    Args:
        randomizer: randomizer of the released update.

    Returns:
        The dominating pair, for upper bounds; and one or two pairs that attacks attain, for lower
        bounds.
    """
    alone, apart = (dominating(randomizer, distance) for distance in (1.0, 2.0))
    # Randomizers known by ε₀ or total variation have the same pair at both distances.
    if not isinstance(randomizer, _OPPOSABLE):
        return apart, (alone,)
    from turnout.accounting.participation.one_client import one_client_pair, opposed_pair

    worst = DominatingPair(one_client_pair(alone.pair, apart.pair))
    return worst, (alone, DominatingPair(opposed_pair(apart.pair)))


def _is_long(part: ReleasedSteps) -> bool:
    """Whether there are too many windows to compare two records directly under replace-one.

    The bound then goes through the null record.
    """
    return part.full > _MOST_COUPLED


_OWN_DRAWS = (Always, Bernoulli, OneOf, KOf, Kept, Staggered)
"""Draws in which a client's steps depend neither on its record nor on other clients."""


def _require_own_draws(scheme: Scheme, draw: Draw) -> None:
    """Raise an UnsupportedError if the draw of a client's steps depends on other clients."""
    if type(draw) not in _OWN_DRAWS:
        raise UnsupportedError(
            f"{_under(scheme, draw)}: no analysis is known under replace-one or for one-client "
            "releases"
        )


def _under(scheme: Scheme, draw: Draw) -> str:
    """Text that names a participation and one of its draws, for error messages."""
    return f"{type(scheme.participation).__name__}, whose draws are {type(draw).__name__}"


_OPPOSABLE = (GaussianNoise, LaplaceNoise, DiscreteGaussianNoise, RoundedGaussianNoise)
"""Noise for which updates C and −C are the worst two records."""


def _replaced(scheme: Scheme, draw: Draw, bound: NeighbourBound) -> Decomposition:
    """Blocks of aggregated releases under replace-one, by comparing two records if possible.

    If two records cannot be compared directly, two neighbour bounds are combined: one from the
    first record to the null record, and one from the null record to the second record. Source:
    docs/design/replacement.md.
    """
    from turnout.accounting.participation.replace_one import Closeness, under_replacement

    randomizer = scheme.randomizer
    if isinstance(draw, KOf):
        return _replaced_subsets(scheme, draw, bound)
    # Record, other record and absence are exchangeable for randomizers known by ε₀ and δ₀ alone.
    if isinstance(randomizer, PureRandomizer | ApproximateRandomizer):
        run = under_replacement(bound.upper, Closeness.ANY_TWO)
        method = "any two of record, other record and absence alike, composed as PLD"
        return Decomposition(NeighbourBound(run, run, method, tight=False))
    # Opposite updates are the worst two records: exact.
    if isinstance(randomizer, _OPPOSABLE):
        run = under_replacement(bound.upper)
        method = "worst two records, exactly, composed as PLD"
        return Decomposition(NeighbourBound(run, run, method, symmetric=True))
    return Decomposition(bound, bound)


def _replaced_subsets(scheme: Scheme, draw: KOf, bound: NeighbourBound) -> Decomposition:
    """Blocks of k-subsets under replace-one.

    The blocks are exact for Gaussian noise if clients pick half of the steps. For other noise or
    other numbers of picks, the upper bound is the smaller of two bounds: k windows, and two
    neighbour bounds through the null record. An attack with two opposite records gives the lower
    bound. For other randomizers and for begun windows, only the two neighbour bounds are known.
    Source: docs/design/subsets.md, "Half of the steps" and "Two records".
    """
    from turnout.accounting.participation.k_subset import SubsetBlock
    from turnout.accounting.participation.k_subset_records import (
        SubsetRecordsBlock,
        record_windows,
    )
    from turnout.accounting.participation.replace_one import ReplacementBlock

    # Without a comparison of two records: through the null record alone.
    randomizer = scheme.randomizer
    blocks = [(block, count) for block, count in bound.upper if isinstance(block, SubsetBlock)]
    certain = all(block.probability == 1.0 and block.infinity_mass == 0.0 for block, _ in blocks)
    if not (isinstance(randomizer, _OPPOSABLE) and certain and len(blocks) == len(bound.upper)):
        return Decomposition(bound, bound)
    # Two records in general: k windows above, an attack below.
    if not (isinstance(randomizer, GaussianNoise) and draw.steps == 2 * draw.picks):
        lower = [(SubsetRecordsBlock(b.pair, b.window, b.picks), count) for b, count in blocks]
        windows = [(record_windows(b.pair, b.window, b.picks), count) for b, count in blocks]
        upper = [(each, n * count) for parts, count in windows for each, n in parts]
        method = "two records in k windows, or each against the null record, composed as PLD"
        records = NeighbourBound(upper, lower, method, tight=False, symmetric=True)
        return Decomposition(records, through_null=bound)
    # Gaussian noise in half of the steps: the likelihood ratio of a window is that of two steps
    # with √(t/2) times less noise.
    noise = randomizer.noise_multiplier * math.sqrt(2.0 / draw.steps)
    run = [(ReplacementBlock(GaussianPair(noise), 2), count) for _, count in bound.upper]
    method = "worst two records, exactly, composed as PLD"
    return Decomposition(NeighbourBound(run, run, method, symmetric=True))


def _fixed_size(scheme: Scheme, draw: Cohort, steps: int) -> Decomposition:
    """Blocks of uniform client subsets of fixed size, one subset per step."""
    # Combinations without an analysis.
    if scheme.relation is Relation.ADD_REMOVE:
        raise UnsupportedError(
            "relation = 'add-remove': expected 'zero-out' or 'replace-one' with fixed-size "
            "participation, since both neighbours have the same number of clients"
        )
    if scheme.release is not ReleaseRule.AGGREGATED:
        raise UnsupportedError(
            f"release = {scheme.release.value!r}: expected 'aggregated' with fixed-size "
            "participation, the only release rule with an analysis for it"
        )
    from turnout.accounting.participation.fixed_size import cohort_bound

    # The pair of two updates; zero-out can do without it.
    zero_out = scheme.relation is Relation.ZERO_OUT
    try:
        apart = dominating(scheme.randomizer, 2.0)
    except UnsupportedError:
        # Some randomizers have only a pair against the null record, which is enough for zero-out.
        if not zero_out:
            raise
        apart = None
    return Decomposition(
        cohort_bound(
            draw.size / draw.population,
            steps,
            dominating(scheme.randomizer, 1.0),
            apart,
            zero_out=zero_out,
            opposable=isinstance(scheme.randomizer, _OPPOSABLE),
        )
    )


def _averaged(
    scheme: Scheme, part: ReleasedSteps, randomizer: Randomizer | PublishedRandomizer
) -> Decomposition:
    """Blocks of averaged check-ins, which publish the number of clients in each step.

    If the number of clients is known, a window is a shuffle, since nobody observes which client
    draws which step (`shuffling.schemes.averaged_window`). If the number is not known, a client may
    be the only client of its step, so that only the noise of its own message protects the client.
    The bound is then exact, since a run with one client attains it.
    """
    (draw, full, rest), population = part, scheme.population
    # Combinations without an analysis.
    if scheme.order is SpeakingOrder.KNOWN:
        raise UnsupportedError(
            "order = 'known': averaged check-ins have no amplification by their population if the "
            "order shows the step of each client; leave out population and order"
        )
    if scheme.relation is Relation.ADD_REMOVE:
        raise UnsupportedError(
            "averaged releases have no analysis under add-remove: they publish the number of "
            "clients of each step; use zero-out, replace-one or the aggregated release"
        )
    if not isinstance(draw, OneOf):
        raise UnsupportedError(
            f"{_under(scheme, draw)}: averaged releases have an analysis for check-ins only"
        )
    from turnout.accounting.shuffling.schemes import SHUFFLED_RANDOMIZERS

    # With a known number of clients: a shuffle.
    sensitivity = 1.0 if scheme.relation is Relation.ZERO_OUT else 2.0
    if isinstance(randomizer, SHUFFLED_RANDOMIZERS) and population and draw.probability:
        return _averaged_shuffle(randomizer, part, population, sensitivity)
    # Otherwise: one unamplified release per window, which a run with one client attains.
    worst = dominating(scheme.randomizer, sensitivity)
    lower = upper = repeated(worst, full + (rest > 0))
    if draw.probability < 1:
        # A window without the client is no worse: the adversary can simulate such a window.
        upper = upper if draw.probability > 0 else []
        once = PairBlock(worst.pair, draw.probability, worst.infinity_mass)
        lower = [(once, full)] if full and upper else []
    method = "one unamplified release a window (the counts are public)"
    return Decomposition(NeighbourBound(upper, lower, method))


def _averaged_shuffle(
    randomizer: object, part: ReleasedSteps, population: int, sensitivity: float
) -> Decomposition:
    """Blocks of averaged check-ins of a known number of clients; each window is a shuffle."""
    from turnout.accounting.shuffling.schemes import averaged_window

    draw, full, rest = part
    assert isinstance(draw, OneOf)
    windows = [
        (averaged_window(randomizer, population, draw.probability * share, sensitivity), count)
        for share, count in ((1.0, full), (rest / draw.steps, 1 if rest else 0))
        if count
    ]
    upper = [(window.upper, count) for window, count in windows]
    lower = [(window.lower, count) for window, count in windows if window.lower is not None]
    method = "shuffle of all who come to a window, windows composed as PLD"
    return Decomposition(NeighbourBound(upper, lower, method, tight=False))


def published(scheme: Scheme) -> Decomposition | None:
    """Blocks of a whole run from published bounds; None if `decompose` uses only such bounds.

    `decompose` uses only published bounds except for adaptive ε₀-randomizers that are shuffled or
    in averaged check-ins. For these it uses Theorem 3 of docs/design/shuffling.md, which is not
    published. The smallest published bound for these randomizers is Clones 2021. Source:
    feldman2021clones, Theorem 3.1.
    """
    randomizer = scheme.randomizer
    if not isinstance(randomizer, PureRandomizer):
        return None
    # Imported here, since few schemes need these modules.
    from turnout.accounting.shuffling.messages import PublishedRandomizer
    from turnout.accounting.shuffling.schemes import shuffled_blocks

    # Replace the randomizer by its published bound in every part of the run.
    in_print, form = PublishedRandomizer(randomizer.epsilon0), normal_form(scheme.participation)
    parts = form.released(form.steps)
    if scheme.trust is TrustModel.SHUFFLED:
        if not is_adaptive(randomizer):
            return None
        found = [shuffled_blocks(scheme, part, in_print) for part in parts]
    elif scheme.release is ReleaseRule.AVERAGED and scheme.population is not None:
        found = [_averaged(scheme, part, in_print) for part in parts]
    else:
        return None
    return _in_a_row([_capped(scheme, *each) for each in zip(parts, found, strict=True)])


def _in_a_row(parts: Sequence[Decomposition]) -> Decomposition:
    """Decomposition of a whole run from the decompositions of successive parts of the run."""
    return parts[0] if len(parts) == 1 else joined_decompositions(parts)


def require_central(scheme: Scheme) -> None:
    """Raise an UnsupportedError unless the trust model is central.

    Raises:
        UnsupportedError: the trust model is not central.
    """
    if scheme.trust is not TrustModel.CENTRAL:
        raise UnsupportedError(
            f"trust = {scheme.trust.value!r}: expected 'central' for this combination of "
            "participation, release and relation"
        )


def is_per_client(scheme: Scheme) -> bool:
    """Whether clients have different windows, and therefore different ε."""
    return any(type(s.draw) is OneOfOwn for s in normal_form(scheme.participation).spans)
