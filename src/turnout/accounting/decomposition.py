"""From a scheme to its blocks: the dominating pair, the number of steps, the relation.

`decompose` returns the `Decomposition` of the first steps of a scheme, `published` the one by the
smallest bound in print. `steps_of`, `require_central` and `is_per_client` are checks for callers.
The module picks among the blocks of `participation` and `shuffling`; `pricing`, `privacy_curve`,
`meaning.profile` and `budgets` compose what it returns.

docs/design/protocols.md derives the sensitivities used here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from turnout.accounting.divergence.blocks import (
    Decomposition,
    FixedSizeBlock,
    NeighbourBound,
    PairBlock,
    joined_decompositions,
)
from turnout.accounting.divergence.dominating_pairs import closed_form, dominating
from turnout.accounting.divergence.unhidden import Turn, Unhidden
from turnout.accounting.participation.neighbours import blocks_of, repeated
from turnout.accounting.participation.turns import Drawn, turns_of
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

if TYPE_CHECKING:
    from turnout.accounting.shuffling.messages import PublishedRandomizer

# What only some schemes need is imported where it is needed: an answer is waited for.


_MOST_COUPLED = 1_000_000
"""Windows from which replace-one goes over the null record: curves of single windows, which a
coupling of two records needs far into the tails, take minutes then, and a bound takes seconds."""


def decompose(scheme: Scheme, steps: int | None = None) -> Decomposition:
    """The blocks of a scheme's first ``steps`` steps (of the whole run if None).

    Raises:
        ParameterError: steps that the scheme does not have.
        UnsupportedError: no sound analysis is known for this release rule, law and relation.
    """
    steps = steps_of(scheme, steps)
    parts = normal_form(scheme.participation).released(steps)
    return _in_a_row([_capped(scheme, part, _of_draw(scheme, part)) for part in parts])


def _capped(scheme: Scheme, part: ReleasedSteps, found: Decomposition) -> Decomposition:
    """The blocks with what the releases would cost if nothing hid them."""
    return replace(found, unhidden=unhidden(scheme, turns_of(part)))


def unhidden(scheme: Scheme, drawn: Sequence[Drawn]) -> Unhidden:
    """A client's releases told to everybody, in a scheme that draws its turns so.

    Both neighbouring worlds draw the same steps. Under replace-one two records may draw different
    ones as well, where that is possible: two releases against absence then cost less than one in
    which the records are as far apart as they can be.
    """
    relation, randomizer, release = scheme.relation, scheme.randomizer, scheme.release
    replaced = relation is Relation.REPLACE_ONE
    displaces = relation is Relation.ADD_REMOVE and release is ReleaseRule.ONE_CLIENT
    single = closed_form(randomizer, 1.0)
    form = closed_form(randomizer, 2.0) if replaced or displaces else single
    hidden = scheme.trust is TrustModel.CENTRAL and release is not ReleaseRule.AVERAGED
    sums = replaced and hidden and release is ReleaseRule.AGGREGATED and 2.0 * single.rho < form.rho
    above = [
        (Turn(single, d.chance, 2 * d.releases), d.count)
        if sums and d.apart
        else (Turn(form, d.chance, d.releases), d.count)
        for d in drawn
    ]
    if not (hidden and isinstance(randomizer, GaussianNoise)):
        return Unhidden(above)
    sure = [d for d in drawn if d.log_sets is not None]
    opposed = replaced and all(d.chance == 1.0 and d.log_sets == 0.0 for d in sure)
    attained = form if opposed else single
    below = [(Turn(attained, d.chance, d.releases, d.log_sets or 0.0), d.count) for d in sure]
    return Unhidden(above, below)


def _of_draw(scheme: Scheme, part: ReleasedSteps) -> Decomposition:
    """The blocks of the steps that one draw decided, which are independent of all others."""
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
    """The first ``steps`` steps of a scheme as a number that it has; all if None."""
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
"""Randomizers whose dominating pair two records have, or are allowed to have."""


def _local(scheme: Scheme, part: ReleasedSteps) -> Decomposition:
    """Messages that everybody sees with their senders."""
    from turnout.accounting.participation.neighbours import seen_blocks

    if scheme.relation is Relation.ADD_REMOVE:
        raise UnsupportedError(
            "messages that are seen with their senders tell who takes part, which add-remove does "
            "not protect; use zero-out or replace-one"
        )
    if scheme.release is not ReleaseRule.AGGREGATED:
        raise UnsupportedError(f"under local trust nothing is known of {scheme.release} releases")
    randomizer, replaced = scheme.randomizer, scheme.relation is Relation.REPLACE_ONE
    messages = 1
    if isinstance(randomizer, RepeatedMessages):
        randomizer, messages = randomizer.each, randomizer.messages
    worst = dominating(randomizer, 2.0 if replaced else 1.0)
    attained = isinstance(randomizer, _OPPOSABLE) or type(randomizer) in _ATTAINED
    return Decomposition(seen_blocks(part, worst, attained, messages))


def _aggregated(scheme: Scheme, part: ReleasedSteps) -> Decomposition:
    replaced = scheme.relation is Relation.REPLACE_ONE
    if isinstance(part.draw, Always):
        # With no chance involved the neighbours differ by up to 2C in each step: exact.
        worst = dominating(scheme.randomizer, 2.0 if replaced else 1.0)
        return Decomposition(blocks_of(part, worst, worst))
    alone = dominating(scheme.randomizer, 1.0)
    bound = blocks_of(part, alone, alone)
    if not replaced:
        return Decomposition(bound)
    _require_own_draws(scheme, part.draw)
    return Decomposition(bound, bound) if _is_long(part) else _replaced(scheme, part.draw, bound)


def _one_client(scheme: Scheme, part: ReleasedSteps) -> Decomposition:
    """The client may displace another one's update, 2C; alone it moves C."""
    relation = scheme.relation
    _require_own_draws(scheme, part.draw)
    alone = dominating(scheme.randomizer, 1.0)
    bound = blocks_of(part, dominating(scheme.randomizer, 2.0), alone)
    if relation is Relation.ADD_REMOVE:
        return Decomposition(bound)
    if relation is Relation.ZERO_OUT or isinstance(part.draw, KOf) or _is_long(part):
        null = blocks_of(part, alone, alone) if relation is Relation.ZERO_OUT else bound
        return Decomposition(bound, null)
    from turnout.accounting.participation.replace_one import Closeness, under_replacement

    # The client's record, the other one and the displaced one are any two within 2C.
    upper = under_replacement(bound.upper, Closeness.ANY_TWO)
    private = isinstance(scheme.randomizer, PureRandomizer | ApproximateRandomizer)
    closeness = Closeness.ANY_TWO if private else Closeness.TO_ABSENCE
    lower = under_replacement(bound.lower, closeness)
    method = "any two of record, other record and the displaced one within 2C, composed as PLD"
    return Decomposition(NeighbourBound(upper, lower, method, tight=False, symmetric=True))


def _is_long(part: ReleasedSteps) -> bool:
    """Whether replace-one is bounded over the null record for the number of draws alone."""
    return part.full > _MOST_COUPLED


_OWN_DRAWS = (Always, Bernoulli, OneOf, KOf, Kept, Staggered)
"""Draws under which a client's steps depend neither on its record nor on who else comes."""


def _require_own_draws(scheme: Scheme, draw: Draw) -> None:
    if type(draw) not in _OWN_DRAWS:
        raise UnsupportedError(
            f"replace-one and one-client releases are not known under {_under(scheme, draw)}"
        )


def _under(scheme: Scheme, draw: Draw) -> str:
    """A law and one of its draws, as error messages name them."""
    return f"{type(scheme.participation).__name__}, whose draws are {type(draw).__name__}"


_OPPOSABLE = (GaussianNoise, LaplaceNoise, DiscreteGaussianNoise, RoundedGaussianNoise)
"""Noise under which two records can pull to opposite sides with full strength."""


def _replaced(scheme: Scheme, draw: Draw, bound: NeighbourBound) -> Decomposition:
    """One record against another (docs/design/replacement.md); over the null record if need be."""
    from turnout.accounting.participation.replace_one import Closeness, under_replacement

    randomizer = scheme.randomizer
    if isinstance(draw, KOf):
        return Decomposition(bound, bound)
    if isinstance(randomizer, PureRandomizer | ApproximateRandomizer):
        run = under_replacement(bound.upper, Closeness.ANY_TWO)
        method = "any two of record, other record and absence alike, composed as PLD"
        return Decomposition(NeighbourBound(run, run, method, tight=False))
    if isinstance(randomizer, _OPPOSABLE):
        run = under_replacement(bound.upper)
        method = "worst two records, exactly, composed as PLD"
        return Decomposition(NeighbourBound(run, run, method, symmetric=True))
    return Decomposition(bound, bound)


def _fixed_size(scheme: Scheme, draw: Cohort, steps: int) -> Decomposition:
    if scheme.relation is Relation.ADD_REMOVE:
        raise UnsupportedError(
            "fixed-size participation fixes the number of clients, so add-remove is not a "
            "relation between two of its runs; use zero-out or replace-one"
        )
    if scheme.release is not ReleaseRule.AGGREGATED:
        raise UnsupportedError("fixed-size participation is priced for aggregated releases only")
    rate = draw.size / draw.population
    substituted = dominating(scheme.randomizer, 2.0)
    upper = [(FixedSizeBlock(substituted.pair, rate, substituted.infinity_mass), steps)]
    alone = dominating(scheme.randomizer, 1.0)
    lower = [(PairBlock(alone.pair, rate, alone.infinity_mass), steps)]
    method = "sampling without replacement (Balle et al. 2018, Theorem 11), composed as PLD"
    return Decomposition(NeighbourBound(upper, lower, method))


def _averaged(
    scheme: Scheme, part: ReleasedSteps, randomizer: Randomizer | PublishedRandomizer
) -> Decomposition:
    """Blocks of averaged check-ins, whose counts are public: other clients' noise hides a client.

    Where their number is known they are a shuffle, whose order of speaking is hidden by
    construction (`shuffling.sampling.averaged`); else the client may be alone in its slot, seen
    with nothing but its own noise, which is exact (a run with one client).
    """
    (draw, full, rest), population = part, scheme.population
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
    if not isinstance(draw, OneOf):
        raise UnsupportedError(
            "averaged releases are priced for check-in participation only, not under "
            f"{_under(scheme, draw)}"
        )
    from turnout.accounting.shuffling.schemes import SHUFFLED_RANDOMIZERS

    sensitivity = 1.0 if scheme.relation is Relation.ZERO_OUT else 2.0
    if isinstance(randomizer, SHUFFLED_RANDOMIZERS) and population and draw.probability:
        return _averaged_shuffle(randomizer, part, population, sensitivity)
    worst = dominating(scheme.randomizer, sensitivity)
    lower = upper = repeated(worst, full + (rest > 0))
    if draw.probability < 1:
        # Where a window shows nothing, an adversary can draw the null release itself.
        upper = upper if draw.probability > 0 else []
        once = PairBlock(worst.pair, draw.probability, worst.infinity_mass)
        lower = [(once, full)] if full and upper else []
    method = "one unamplified release a window (the counts are public)"
    return Decomposition(NeighbourBound(upper, lower, method))


def _averaged_shuffle(
    randomizer: object, part: ReleasedSteps, population: int, sensitivity: float
) -> Decomposition:
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
    """The blocks of a whole run by the smallest published bound; None where `decompose` has those.

    Messages of adaptive ε₀-randomizers, shuffled or of averaged check-ins, rest on Theorem 3 of
    docs/design/shuffling.md, which is ours. Clones 2021 (feldman2021clones, Theorem 3.1) is the
    smallest of the published bounds here.
    """
    randomizer = scheme.randomizer
    if not isinstance(randomizer, PureRandomizer):
        return None
    from turnout.accounting.shuffling.messages import PublishedRandomizer
    from turnout.accounting.shuffling.schemes import shuffled_blocks

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
    """The parts of one run as a whole."""
    return parts[0] if len(parts) == 1 else joined_decompositions(parts)


def require_central(scheme: Scheme) -> None:
    """Refuses a trust model under which nobody hides check-ins and single updates."""
    if scheme.trust is not TrustModel.CENTRAL:
        raise UnsupportedError(
            f"this analysis trusts the coordinator; trust = {scheme.trust.value!r} has none"
        )


def is_per_client(scheme: Scheme) -> bool:
    """Whether clients have windows of their own, so that ε differs between them."""
    return any(type(s.draw) is OneOfOwn for s in normal_form(scheme.participation).spans)
