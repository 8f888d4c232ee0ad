"""Privacy guarantee of a scheme: certified lower and upper bounds on its ε.

`price` returns a `Guarantee` with both bounds. `epsilon_upper` returns only the upper bound, on one
grid, and `client_guarantees` the upper bound of each client. `decomposition_bounds` and
`decomposition_upper` bound ε of runs that are given as blocks. `gaussian_epsilon` bounds ε of one
Gaussian release, and `published_epsilon` returns the smallest published bound. `shuffled_price`
bounds ε of shuffled messages if all clients use the same randomizers. A scheme is turned into
blocks by `decomposition`; `divergence.composition` composes the blocks. `calibration`, `meaning`
and `budgets` build on this module.

The ε of `shuffled_price` is valid for every order in which clients send, since the randomizer is
chosen before the round (Theorem 2 of docs/design/shuffling.md). If the output distributions of two
records are known, or differ less than ε₀ allows (`BoundedVariation`), ε is smaller than for the
ε₀-randomizer with the largest ε.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache, partial, reduce
from operator import or_

import numpy as np

from turnout.accounting.decomposition import (
    decompose,
    is_per_client,
    one_client_pairs,
    published,
    require_central,
    steps_of,
    unhidden,
)
from turnout.accounting.divergence.blocks import (
    Decomposition,
    GridTooLargeError,
    NeighbourBound,
    PairBlock,
    merged_runs,
    shared_run,
)
from turnout.accounting.divergence.composition import (
    LossGrid,
    certified,
    run_epsilon,
    two_bound_epsilon,
    two_bound_grid,
)
from turnout.accounting.divergence.curves import Direction, Side
from turnout.accounting.divergence.dominating_pairs import DominatingPair, dominating
from turnout.accounting.divergence.pairs import UNIT_ROUNDOFF, GaussianPair
from turnout.accounting.divergence.unhidden import ClosedForm, Unhidden, UnhiddenBlock
from turnout.accounting.divergence.work import SPENT, WorkSpentError, budget, question
from turnout.accounting.guarantee import ABSOLUTE_TOLERANCE, ClientGuarantees, Guarantee
from turnout.accounting.participation.drawn_blocks import in_windows
from turnout.accounting.participation.neighbours import window_bound
from turnout.core import checks
from turnout.core.arrays import FloatArray, IntArray
from turnout.core.bounds import Bounds
from turnout.core.errors import NumericalError, UnsupportedError
from turnout.schemes import NonAdaptiveRandomizer, PureRandomizer, Relation, ReleaseRule, Scheme
from turnout.schemes.normal_form import OneOfOwn, normal_form

_REFINEMENTS = 5  # levels of grids, tried until the bracket is narrow enough


def price(scheme: Scheme, delta: float, tolerance: float = 1e-3) -> Guarantee:
    """Privacy guarantee of a scheme at δ: proved bounds on ε in both directions.

    Args:
        scheme: randomizer, participation, neighbouring relation, unit and trust model.
        delta: δ, strictly between 0 and 1.
        tolerance: relative width of the bounds on ε at which refinement stops, strictly between 0
            and 1. If the analysis is not exact (two neighbour bounds, one client per step,
            k-subsets, shuffles), refinement stops when finer grids no longer lower the upper bound.

    Returns:
        The guarantee; ``epsilon.upper`` is never below the true ε, ``epsilon.lower`` never above
        the true ε. ``meets_tolerance`` is true if the distance between both bounds is within the
        tolerance.

    Raises:
        ParameterError: δ or the tolerance is out of range.
        UnsupportedError: no sound analysis is known for this combination, or no ε holds at so small
            a δ, because outcomes that are possible in only one of the two neighbouring worlds are
            likelier than δ.
        NumericalError: no upper bound can be certified.

    Source: docs/design/accounting.md.
    """
    checks.open_unit(delta=delta, tolerance=tolerance)
    with question():
        if is_per_client(scheme):
            return _price_clients(scheme, delta, tolerance)
        return _price_alike(scheme, delta, tolerance)


def _price_alike(scheme: Scheme, delta: float, tolerance: float) -> Guarantee:
    """Privacy guarantee of a scheme in which all clients have the same participation."""
    parts = decompose(scheme)
    if dominating(scheme.randomizer, 1.0).infinity_mass > 0:
        _require_above_infinity_mass(parts.record_against_null, delta)
    try:
        directions, cut = _directions(parts, scheme.relation, delta, tolerance)
    except NumericalError:
        _require_above_infinity_mass(parts.record_against_null, delta)
        raise
    worst, terms = reduce(or_, directions.values()), (scheme.relation, scheme.unit, scheme.trust)
    method, exact = _method(parts, delta, worst.upper), _exact(parts)
    return Guarantee(worst, delta, directions, *terms, method, None, tolerance, exact, cut)


def _require_above_infinity_mass(bound: NeighbourBound, delta: float) -> None:
    """Raise an UnsupportedError if outcomes possible in only one world have a probability ≥ δ."""
    for direction in Direction:
        # Upper bound on ln of the probability that no block has such an outcome: a block without a
        # certified curve is treated as one that never has such an outcome.
        log_kept = 0.0
        for block, count in bound.lower:
            with suppress(NumericalError, WorkSpentError), certified(0.1):
                floor = block.curves(Side.LOWER, 0.1, 0).floor(direction)
                log_kept += count * math.log1p(-min(floor, 1.0 - UNIT_ROUNDOFF))
        infinity_mass = -math.expm1(log_kept)
        if infinity_mass >= delta * (1.0 - 1e-9):
            raise UnsupportedError(
                f"delta = {delta:g}: expected more than {infinity_mass:.3g}, the probability of "
                "outcomes that only one of two neighbouring inputs can produce"
            )


def epsilon_upper(
    scheme: Scheme, delta: float, steps: int | None = None, *, shared: bool = False
) -> float:
    """Upper bound on ε after the first steps of a scheme, computed on one fixed grid.

    The function is quicker than `price`: it computes only the upper bound, and only on the first
    grid that `price` tries. So its result is never below the upper bound that `price` returns.

    Args:
        scheme: the whole scheme.
        delta: δ, strictly between 0 and 1.
        steps: number of steps, from 0 to the scheme's; the whole run if None.
        shared: whether to use a finer grid that is the same for most numbers of steps; bounds for
            many numbers of steps then take little longer than one bound.

    Returns:
        ε, never below the true value. If clients have windows of different sizes, the ε of the
        client with the largest ε.

    Raises:
        ParameterError: δ or the number of steps is out of range.
        UnsupportedError: no sound analysis is known for this combination, or no ε holds at δ.
        NumericalError: no upper bound can be certified.

    Source: docs/design/accounting.md.
    """
    checks.open_unit(delta=delta)
    steps = steps_of(scheme, steps)
    with question():
        if is_per_client(scheme):
            clients = _clients(scheme, delta, steps).values()
            return max((max(client.uppers.values()) for client in clients), default=0.0)
        return decomposition_upper(decompose(scheme, steps), delta, shared=shared)


def gaussian_epsilon(noise_multiplier: float, delta: float) -> float:
    """Upper bound on ε of one Gaussian release at δ; both directions have the same ε.

    Args:
        noise_multiplier: standard deviation of the noise over the sensitivity, positive.
        delta: δ, strictly between 0 and 1.

    Returns:
        ε, rounded up, so never below the true value.

    Raises:
        ParameterError: the noise multiplier is not positive.

    Source: docs/design/accounting.md, table of pairs.
    """
    block = PairBlock(GaussianPair(noise_multiplier))
    try:
        return run_epsilon([(block, 1)], Direction.REMOVE, Side.UPPER, delta, 0)
    except NumericalError:  # e^ε exceeds the largest float
        return ClosedForm.gaussian(1.0 / noise_multiplier).epsilon(delta)


def published_epsilon(scheme: Scheme, delta: float) -> float | None:
    """Upper bound on ε of a scheme by the smallest published bound that applies.

    Args:
        scheme: the whole scheme.
        delta: δ, strictly between 0 and 1.

    Returns:
        ε, never below the true value; None if `price` itself uses only published results.

    Raises:
        UnsupportedError: the published bound does not cover the scheme.
        NumericalError: no upper bound can be certified.

    Source: `decomposition.published` (feldman2021clones, Theorem 3.1).
    """
    with question():
        parts = published(scheme)
        return None if parts is None else decomposition_upper(parts, delta)


def decomposition_bounds(
    parts: Decomposition, relation: Relation, delta: float, tolerance: float
) -> dict[str, Bounds]:
    """Lower and upper bounds on ε, by direction, of a run that is given as blocks.

    Args:
        parts: blocks of the run.
        relation: neighbouring relation; it determines the names of the directions.
        delta: δ, strictly between 0 and 1.
        tolerance: relative width of the bounds at which refinement stops, strictly between 0 and 1.

    Raises:
        UnsupportedError: no ε holds at so small a δ.
        NumericalError: no upper bound can be certified.
    """
    return _directions(parts, relation, delta, tolerance)[0]


def _directions(
    parts: Decomposition, relation: Relation, delta: float, tolerance: float
) -> tuple[dict[str, Bounds], bool]:
    """Bounds on ε by direction, and whether refinement ended because the work budget was spent."""
    with question() as meter:
        if parts.replacement_against_null is None:
            bounds = _one_bound_brackets(parts, delta, tolerance)
        else:
            bounds = _two_bound_brackets(parts, delta)
    if relation is Relation.REPLACE_ONE:
        return {"replace": reduce(or_, bounds.values())}, meter.cut
    return {direction.value: value for direction, value in bounds.items()}, meter.cut


def _one_bound_brackets(
    parts: Decomposition, delta: float, tolerance: float
) -> dict[Direction, Bounds]:
    """Bounds on ε from one neighbour bound; both directions get equal parts of the work budget."""
    bounds: dict[Direction, Bounds] = {}
    directions = parts.record_against_null.directions
    for direction in directions:
        with budget(share=1.0 / (len(directions) - len(bounds))):
            bounds[direction] = _bracket(parts, direction, delta, tolerance)
    return bounds


def _two_bound_brackets(parts: Decomposition, delta: float) -> dict[Direction, Bounds]:
    """Bounds on ε for a relation that needs two neighbour bounds; the bounds are not tight.

    The null record is an allowed neighbouring record. So a lower bound on the ε between a record
    and the null record is a lower bound on ε of the relation.
    """
    record = parts.record_against_null
    # Upper bounds may use as much work as `epsilon_upper` has; lower bounds use the rest.
    with budget():
        uppers = _two_bound_directions(parts, delta, parts.unhidden.upper(delta))
    # If upper and lower blocks agree, lower bounds reuse the grid of the upper bounds.
    shared = record.upper and record.upper == record.lower
    try:
        grid = two_bound_grid(record.upper, delta) if shared else None
        lowers = [_lower(record, d, delta, grid) for d in Direction]
    except WorkSpentError:
        lowers = [0.0, 0.0]
    return {
        d: _bounds(parts, d, delta, lower, upper)
        for d, lower, upper in zip(Direction, lowers, uppers, strict=True)
    }


def _bounds(
    parts: Decomposition, direction: Direction, delta: float, lower: float, upper: float
) -> Bounds:
    """Bounds on ε; the lower bound is at least that of an adversary that observes participation."""
    certain = direction is Direction.ADD
    return Bounds(max(lower, parts.unhidden.lower(delta, certain=certain)), upper)


def _lower(bound: NeighbourBound, d: Direction, delta: float, grid: LossGrid | None) -> float:
    """Lower bound on ε on one grid; 0 if no lower bound can be certified."""
    best = 0.0
    for run in bound.lowers:
        with suppress(NumericalError):
            best = max(best, run_epsilon(run, d, Side.LOWER, delta, 0, grid=grid))
    return best


def decomposition_upper(parts: Decomposition, delta: float, *, shared: bool = False) -> float:
    """Upper bound on ε of a run that is given as blocks, computed on one fixed grid.

    Args:
        parts: blocks of the run.
        delta: δ, strictly between 0 and 1.
        shared: whether to use a finer grid that is the same for most numbers of steps.

    Returns:
        ε of the larger direction, never below the true value.

    Raises:
        NumericalError: no upper bound can be certified.
    """
    cap = parts.unhidden.upper(delta)
    with question():
        if parts.replacement_against_null is not None:
            return max(_two_bound_directions(parts, delta, cap))
        return max(_uppers(parts, delta, shared=shared).values())


def _method(parts: Decomposition, delta: float, upper: float) -> str:
    """Short name of the analysis from which a given upper bound on ε results."""
    method = parts.record_against_null.method
    capped = upper == parts.unhidden.upper(delta)
    return f"{method}; at most what unamplified releases cost" if capped else method


def _exact(parts: Decomposition) -> bool:
    """True if finer grids narrow the bounds on ε to any requested width."""
    return parts.replacement_against_null is None and parts.record_against_null.exact


def _upper(
    bound: NeighbourBound, direction: Direction, delta: float, *, shared: bool = False
) -> float:
    """Upper bound on ε of a run in one direction, on one grid.

    If ``shared``, runs with most other numbers of steps use the same grid.
    """
    run = shared_run(bound.upper) if shared else bound.upper
    grid = LossGrid.common(run, delta) if shared else None
    return run_epsilon(run, direction, Side.UPPER, delta, 0, grid=grid)


def _cap(parts: Decomposition, delta: float) -> float:
    """Upper bound on ε in both directions, computed without blocks that compare two records."""
    cap = parts.unhidden.upper(delta)
    if parts.through_null is None:
        return cap
    run = parts.through_null.upper
    with suppress(NumericalError, WorkSpentError), budget(share=0.5):
        cap = min(cap, two_bound_epsilon(run, run, delta))
    return cap


def _capped(bound: Callable[[], float], cap: float) -> float:
    """Smaller of an upper bound on ε and a cap; the cap if the bound cannot be computed.

    Raises:
        NumericalError: neither the bound nor the cap can be certified.
    """
    try:
        return min(bound(), cap)
    except NumericalError:
        if math.isinf(cap):
            raise
    except WorkSpentError:
        if math.isinf(cap):
            raise NumericalError(SPENT) from None
    return cap


def _bracket(parts: Decomposition, direction: Direction, delta: float, tolerance: float) -> Bounds:
    """Bounds on ε in one direction, refined to the tolerance or until finer grids do not help."""
    bound = parts.record_against_null
    exact = bound.exact
    # If the blocks are not tight, finer grids hardly raise the lower bound: compute it once.
    closing = bound.tight or bound.upper == bound.lower
    lower, upper, before, refinement = 0.0, _cap(parts, delta), math.inf, 0
    refusal = f"no upper bound on epsilon can be certified at delta = {delta:g}"
    while refinement < _REFINEMENTS:
        # Both bounds on this grid; bounds of coarser grids stay valid, so the best ones are kept.
        try:
            upper = min(upper, run_epsilon(bound.upper, direction, Side.UPPER, delta, refinement))
            if closing or math.isinf(before):
                found = _lower_epsilon(bound, direction, delta, refinement, upper)
                lower = max(lower, found)
        except WorkSpentError:
            refusal = SPENT
            break
        except NumericalError as error:
            _require_above_infinity_mass(bound, delta)
            if isinstance(error, GridTooLargeError):
                break
            refinement += 1
            continue
        # Remaining gap; if it cannot close, finer grids gain about a third of the last gain.
        open_ = upper - lower if exact else min(upper - lower, (before - upper) / 3.0)
        missing, before = open_ / (tolerance * upper + ABSOLUTE_TOLERANCE), upper
        if missing <= 1.0:
            break
        # Each level divides the width by nearly four: go to the level that should suffice.
        jump = math.ceil(math.log(1.05 * missing, 4)) if exact else 1
        refinement += min(jump, max(_REFINEMENTS - 1 - refinement, 1))
    if math.isinf(upper):
        raise NumericalError(refusal)
    return _bounds(parts, direction, delta, lower, upper)


def _lower_epsilon(
    bound: NeighbourBound, direction: Direction, delta: float, refinement: int, near: float
) -> float:
    """Largest of the lower bounds on ε that all attacks give, on grids of one refinement.

    Raises:
        NumericalError: the bound of the first attack cannot be certified.
    """
    best = run_epsilon(bound.lower, direction, Side.LOWER, delta, refinement, near=near)
    for run in bound.attacks:
        with suppress(NumericalError):
            found = run_epsilon(run, direction, Side.LOWER, delta, refinement, near=near)
            best = max(best, found)
    return best


def _two_bound_directions(parts: Decomposition, delta: float, cap: float) -> list[float]:
    """Upper bounds on ε through the null record, in both directions, each at most the cap."""
    assert parts.replacement_against_null is not None
    record, other = parts.record_against_null.upper, parts.replacement_against_null.upper
    there = _capped(partial(two_bound_epsilon, record, other, delta), cap)
    if record == other:
        return [there, there]
    return [there, _capped(partial(two_bound_epsilon, other, record, delta), cap)]


@dataclass(frozen=True, slots=True)
class _Client:
    """Blocks of the clients with the same window sizes, and upper bounds on ε of these clients."""

    parts: Decomposition
    uppers: dict[Direction, float]


def _price_clients(scheme: Scheme, delta: float, tolerance: float) -> Guarantee:
    """Privacy guarantee of a scheme whose clients have windows of different sizes."""
    # One upper bound for each kind of client.
    with budget() as meter:
        clients = _clients(scheme, delta, None)
    found = (client.parts.record_against_null.method for client in clients.values())
    method = f"{next(found, 'no client')}, worst client"
    # The rest of the work budget refines the bounds of the clients with the largest ε.
    with budget() as rest:
        directions = {
            direction.value: _worst(clients.values(), direction, delta, tolerance)
            for direction in Direction
        }
    exact = all(_exact(client.parts) for client in clients.values())
    worst, terms = reduce(or_, directions.values()), (scheme.relation, scheme.unit, scheme.trust)
    each = _each_client(scheme, worst.upper, lambda: clients)
    cut = meter.cut or rest.cut
    return Guarantee(worst, delta, directions, *terms, method, each, tolerance, exact, cut)


def client_guarantees(scheme: Scheme, delta: float, worst: float) -> ClientGuarantees:
    """Upper bounds on ε per client, for clients with windows of different sizes.

    The bounds are computed when ``epsilon_upper`` of the result is first read.

    Args:
        scheme: a scheme whose participation gives each client its own windows.
        delta: δ, strictly between 0 and 1.
        worst: proved upper bound on ε of the client with the largest ε, valid for every client.

    Returns:
        Upper bounds, never below the true ε of a client, and window sizes per client.

    Raises:
        UnsupportedError: windows do not differ by client.
    """
    return _each_client(scheme, worst, lambda: _clients(scheme, delta, None))


def _each_client(
    scheme: Scheme, worst: float, clients: Callable[[], dict[tuple[int, ...], _Client]]
) -> ClientGuarantees:
    """Upper bounds on ε per client, computed when the result is first read."""
    sizes, keys = _window_sizes(scheme, None)

    def find() -> FloatArray:
        with question():
            found = clients()
        return np.array([min(max(found[key].uppers.values()), worst) for key in keys])

    return ClientGuarantees(find, sizes)


def _worst(
    clients: Iterable[_Client], direction: Direction, delta: float, tolerance: float
) -> Bounds:
    """Bounds on the largest ε of all clients; bounds that cannot be the largest are not refined."""
    worst = Bounds(0.0, 0.0)
    for client in sorted(clients, key=lambda c: -c.uppers[direction]):
        if client.uppers[direction] <= worst.upper:
            break
        found = _bracket(client.parts, direction, delta, tolerance)
        # The grid of one client may be coarser than the shared one of `epsilon_upper`: keep the
        # smaller upper bound.
        worst = worst | Bounds(found.lower, min(found.upper, client.uppers[direction]))
    return worst


def _clients(scheme: Scheme, delta: float, steps: int | None) -> dict[tuple[int, ...], _Client]:
    """Blocks and upper bounds on ε of each kind of client, keyed by the sorted window sizes."""
    # Combinations without an analysis.
    draw, kind = _own_draw(scheme), type(scheme.participation).__name__
    require_central(scheme)
    if scheme.release is ReleaseRule.AVERAGED or scheme.relation is Relation.REPLACE_ONE:
        raise UnsupportedError(
            f"{kind}, in which each client draws among its own steps, has no analysis for relation "
            f"{scheme.relation.value} with {scheme.release.value} releases: use add-remove or "
            "zero-out, and aggregated or one-client releases"
        )
    if scheme.release is ReleaseRule.ONE_CLIENT and scheme.relation is Relation.ZERO_OUT:
        raise UnsupportedError(
            f"{kind}, in which each client draws among its own steps, has no analysis for "
            "one-client releases under zero-out: use add-remove"
        )
    # With one-client releases the client may displace another client, or be alone in its step.
    upper = dominating(scheme.randomizer, 1.0)
    attacks: Sequence[DominatingPair] = [upper]
    if scheme.release is ReleaseRule.ONE_CLIENT:
        upper, attacks = one_client_pairs(scheme.randomizer)
    found: dict[tuple[int, ...], _Client] = {}
    kinds = sorted(set(_window_sizes(scheme, steps)[1]))
    # One bound for each kind of client, with an equal share of the work that is left.
    for sizes in kinds:
        drawn = in_windows(draw.probability, *Counter(sizes).items())
        bound, *others = (window_bound(upper, one, sizes, draw.probability) for one in attacks)
        bound = replace(bound, attacks=tuple(other.lower for other in others), tight=not others)
        parts = Decomposition(bound, unhidden=unhidden(scheme, drawn))
        try:
            with budget(share=1.0 / (len(kinds) - len(found))):
                found[sizes] = _Client(parts, _uppers(parts, delta, shared=True))
        except NumericalError:
            _require_above_infinity_mass(bound, delta)
            raise
    return found


def _uppers(parts: Decomposition, delta: float, *, shared: bool = False) -> dict[Direction, float]:
    """Upper bounds on ε in each direction, on one fixed grid."""
    bound, cap, found = parts.record_against_null, _cap(parts, delta), {}
    for direction in bound.directions:
        with budget(share=1.0 / (len(bound.directions) - len(found))):
            found[direction] = _capped(partial(_upper, bound, direction, delta, shared=shared), cap)
    return found


def _window_sizes(scheme: Scheme, steps: int | None) -> tuple[IntArray, list[tuple[int, ...]]]:
    """Window sizes of each client, and each client's sorted positive sizes in the first steps."""
    draw = _own_draw(scheme)
    sizes = draw.block_sizes()
    begun = sizes.shape[1] if steps is None else -(-steps // draw.steps)
    return sizes, [tuple(sorted(row[row > 0].tolist())) for row in sizes[:, :begun]]


def _own_draw(scheme: Scheme) -> OneOfOwn:
    """The only draw of a participation, in which a client draws from steps of its own.

    Raises:
        UnsupportedError: the participation has several draws, or a draw of another kind.
    """
    spans = normal_form(scheme.participation).spans
    draw = spans[0].draw
    if len(spans) > 1 or not isinstance(draw, OneOfOwn):
        raise UnsupportedError(
            f"{type(scheme.participation).__name__} combines windows that differ by client with "
            "other draws: no analysis is known"
        )
    return draw


Messages = Sequence[tuple[PureRandomizer, int]]
"""Randomizers of one client's messages, and the number of messages by each."""


@lru_cache(maxsize=1024)
def _shuffled_price(
    messages: tuple[tuple[PureRandomizer, int], ...], n: int, delta: float
) -> float:
    """Upper bound on ε of the shuffled messages of n clients, without checks of the arguments."""
    from turnout.accounting.shuffling.messages import one_round  # slow to import

    run = merged_runs([(one_round(each, n).upper, count) for each, count in messages])
    named = [(UnhiddenBlock(ClosedForm.pure(each.epsilon0)), count) for each, count in messages]
    bound = NeighbourBound(run, [], "shuffled messages", tight=False, symmetric=True)
    return decomposition_upper(Decomposition(bound, unhidden=Unhidden(named)), delta)


def shuffled_price(messages: Messages, clients: int, delta: float) -> float:
    """Upper bound on ε if, for each i, the i-th messages of all n clients are shuffled together.

    Source: docs/design/shuffling.md; the messages of a client are composed numerically.

    Args:
        messages: pairs of a randomizer and the number of messages that a client sends with it; the
            messages are independent given the client's record.
        clients: n ≥ 1, the number of clients; all of them must follow the protocol.
        delta: δ, strictly between 0 and 1.

    Returns:
        ε under replace-one, never below the true value, and never above the sum of the ε₀ of a
        client's messages.

    Raises:
        ParameterError: the number of clients or δ is out of range.
        UnsupportedError: clients may use different randomizers, because randomizers are chosen
            adaptively.
        NumericalError: no upper bound can be certified.

    >>> from turnout.schemes import KaryResponse
    >>> round(shuffled_price([(KaryResponse(4.0, 2), 1)], 10**6, 1e-8), 4)
    0.032
    """
    _require_shared(messages)
    checks.count(clients=clients)
    checks.open_unit(delta=delta)
    return _shuffled_price(tuple(messages), clients, delta)


def shuffled_method(messages: Messages) -> str:
    """Short names, sorted and separated by commas, of the analyses that `shuffled_price` uses.

    Raises:
        UnsupportedError: clients may use different randomizers.
    """
    from turnout.accounting.shuffling.messages import one_round  # slow to import

    _require_shared(messages)
    return ", ".join(sorted({one_round(each, 1).method for each, _ in messages}))


def _require_shared(messages: Messages) -> None:
    """Raise an UnsupportedError for randomizers that may differ between clients."""
    for each, _ in messages:
        if not isinstance(each, NonAdaptiveRandomizer):
            raise UnsupportedError(
                f"shuffled messages of {type(each).__name__} have no analysis: clients may use "
                "different randomizers, and public randomness would show which client sent a "
                "message; use a randomizer that all clients share"
            )
