"""The price of a scheme: certified lower and upper bounds on its ε.

`price` returns a `Guarantee` with both bounds, `epsilon_upper` the upper bound alone on one grid,
`client_guarantees` the upper bound of each client. `decomposition_bounds` and `decomposition_upper`
price runs that are already in blocks. `gaussian_epsilon` and `published_epsilon` are upper bounds
for one release and by the smallest published result. `shuffled_price` is the price of shuffled
messages of one randomizer that all clients use. The module turns a scheme into blocks by
`decomposition` and composes them by `divergence.composition`; `calibration`, `meaning` and
`budgets` build on it.

`shuffled_price` does not depend on the order of speaking, since the randomizer is chosen beforehand
(Theorem 2 of docs/design/shuffling.md). Where the distributions of two records differ less than ε₀
allows (`BoundedVariation`), or are known, ε is smaller than by the worst pair of all
ε₀-randomizers.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial, reduce
from operator import or_

import numpy as np

from turnout.accounting.decomposition import (
    decompose,
    is_per_client,
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
)
from turnout.accounting.divergence.composition import (
    LossGrid,
    certified,
    run_epsilon,
    two_bound_epsilon,
    two_bound_grid,
)
from turnout.accounting.divergence.curves import Direction, Side
from turnout.accounting.divergence.dominating_pairs import dominating
from turnout.accounting.divergence.pairs import UNIT_ROUNDOFF, GaussianPair
from turnout.accounting.divergence.unhidden import ClosedForm, Turn, Unhidden
from turnout.accounting.divergence.work import SPENT, WorkSpentError, budget, question
from turnout.accounting.guarantee import ABSOLUTE_TOLERANCE, ClientGuarantees, Guarantee
from turnout.accounting.participation.neighbours import window_bound
from turnout.accounting.participation.turns import in_windows
from turnout.core import checks
from turnout.core.arrays import FloatArray, IntArray
from turnout.core.bounds import Bounds
from turnout.core.errors import NumericalError, UnsupportedError
from turnout.schemes import NonAdaptiveRandomizer, PureRandomizer, Relation, ReleaseRule, Scheme
from turnout.schemes.normal_form import OneOfOwn, normal_form

_REFINEMENTS = 5  # grids tried one after the other until the bracket is narrow enough


def price(scheme: Scheme, delta: float, tolerance: float = 1e-3) -> Guarantee:
    """ε of a scheme at δ, as proved bounds in both directions.

    Args:
        scheme: what happens.
        delta: δ, strictly between 0 and 1.
        tolerance: relative width at which refining stops. Where the analysis is not exact (two
            neighbour bounds, one client a step, k-subset, shuffles), it stops when the upper bound
            moves no more.

    Returns:
        The guarantee; ``epsilon.upper`` is never below the true ε, ``epsilon.lower`` never
        above it. ``meets_tolerance`` says whether they are as close as asked.

    Raises:
        UnsupportedError: no sound analysis is known for this combination, or no ε holds at so
            small a δ, because a randomizer's outcomes tell worlds apart for sure too often.
        NumericalError: no upper bound can be certified.
    """
    checks.open_unit(delta=delta, tolerance=tolerance)
    with question():
        if is_per_client(scheme):
            return _price_clients(scheme, delta, tolerance)
        return _price_alike(scheme, delta, tolerance)


def _price_alike(scheme: Scheme, delta: float, tolerance: float) -> Guarantee:
    """The price where all clients draw alike."""
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
    """Refuses a δ at which no ε holds, whatever the grids: outcomes that one world cannot have."""
    for direction in Direction:
        log_kept = 0.0
        for block, count in bound.lower:
            with suppress(NumericalError, WorkSpentError), certified(0.1):  # else nothing is known
                floor = block.curves(Side.LOWER, 0.1, 0).floor(direction)
                log_kept += count * math.log1p(-min(floor, 1.0 - UNIT_ROUNDOFF))
        infinity_mass = -math.expm1(log_kept)
        if infinity_mass >= delta * (1.0 - 1e-9):
            raise UnsupportedError(
                f"delta = {delta:g} must exceed {infinity_mass:.3g}, the chance of outcomes that "
                "show for sure which of the two worlds is so"
            )


def epsilon_upper(
    scheme: Scheme, delta: float, steps: int | None = None, *, shared: bool = False
) -> float:
    """A proved upper bound on ε after the first ``steps`` steps, at one fixed grid.

    Quicker than `price`: one side only, on the first grid that `price` tries, so never below what
    `price` returns. With ``shared`` the grid is a finer one that most numbers of steps have in
    common, so that pricing many of them costs little more than one.
    """
    checks.open_unit(delta=delta)
    steps = steps_of(scheme, steps)
    with question():
        if is_per_client(scheme):
            clients = _clients(scheme, delta, steps).values()
            return max((max(client.uppers.values()) for client in clients), default=0.0)
        return decomposition_upper(decompose(scheme, steps), delta, shared=shared)


def gaussian_epsilon(noise_multiplier: float, delta: float) -> float:
    """Upper bound on ε of one Gaussian release at δ; both directions are the same.

    The noise multiplier is the noise's standard deviation over the sensitivity.
    """
    block = PairBlock(GaussianPair(noise_multiplier))
    try:
        return run_epsilon([(block, 1)], Direction.REMOVE, Side.UPPER, delta, 0)
    except NumericalError:  # e^ε is no float any more
        return ClosedForm.gaussian(1.0 / noise_multiplier).epsilon(delta)


def published_epsilon(scheme: Scheme, delta: float) -> float | None:
    """Upper bound on ε by the smallest published bound; None where `price` rests on no other."""
    with question():
        parts = published(scheme)
        return None if parts is None else decomposition_upper(parts, delta)


def decomposition_bounds(
    parts: Decomposition, relation: Relation, delta: float, tolerance: float
) -> dict[str, Bounds]:
    """Proved bounds on ε by direction of a run that is already in blocks.

    Raises:
        NumericalError: no upper bound can be certified.
    """
    return _directions(parts, relation, delta, tolerance)[0]


def _directions(
    parts: Decomposition, relation: Relation, delta: float, tolerance: float
) -> tuple[dict[str, Bounds], bool]:
    """Bounds by direction, and whether the budget of work ended their refinement."""
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
    """Bounds where the reference is the neighbour; the work is shared out among directions."""
    bounds: dict[Direction, Bounds] = {}
    directions = parts.record_against_null.directions
    for direction in directions:
        with budget(share=1.0 / (len(directions) - len(bounds))):
            bounds[direction] = _bracket(parts, direction, delta, tolerance)
    return bounds


def _two_bound_brackets(parts: Decomposition, delta: float) -> dict[Direction, Bounds]:
    """Bounds where a relation takes two neighbour bounds.

    They are not tight; the null record is an allowed neighbour and gives the lower bound.
    """
    record = parts.record_against_null
    with budget():  # as much as `epsilon_upper` has, and lower bounds the rest
        uppers = _two_bound_directions(parts, delta, parts.unhidden.upper(delta))
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
    """Bounds, the lower one raised to what is known without a grid."""
    certain = direction is Direction.ADD
    return Bounds(max(lower, parts.unhidden.lower(delta, certain=certain)), upper)


def _lower(bound: NeighbourBound, d: Direction, delta: float, grid: LossGrid | None) -> float:
    """A lower bound on one grid; 0 where none can be certified."""
    try:
        return run_epsilon(bound.lower, d, Side.LOWER, delta, 0, grid=grid)
    except NumericalError:
        return 0.0


def decomposition_upper(parts: Decomposition, delta: float, *, shared: bool = False) -> float:
    """A proved upper bound on ε of a run that is already in blocks, at one fixed grid."""
    cap = parts.unhidden.upper(delta)
    with question():
        if parts.replacement_against_null is not None:
            return max(_two_bound_directions(parts, delta, cap))
        return max(_uppers(parts, delta, shared=shared).values())


def _method(parts: Decomposition, delta: float, upper: float) -> str:
    """The analysis behind an upper bound, in a few words."""
    method = parts.record_against_null.method
    capped = upper == parts.unhidden.upper(delta)
    return f"{method}; at most what unamplified releases cost" if capped else method


def _exact(parts: Decomposition) -> bool:
    """Whether finer grids make the bracket as narrow as asked."""
    return parts.replacement_against_null is None and parts.record_against_null.exact


def _upper(
    bound: NeighbourBound, direction: Direction, delta: float, *, shared: bool = False
) -> float:
    grid = LossGrid.common(bound.upper, delta) if shared else None
    return run_epsilon(bound.upper, direction, Side.UPPER, delta, 0, grid=grid)


def _capped(bound: Callable[[], float], cap: float) -> float:
    """An upper bound, or the cap where that is lower, or the bound costs too much work.

    Raises:
        NumericalError: neither can be certified.
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
    """Refine until the bracket is as narrow as asked, or finer grids are of no more use."""
    bound = parts.record_against_null
    exact = bound.exact
    closing = (
        bound.tight or bound.upper == bound.lower
    )  # else finer grids hardly move the lower bound
    lower, upper, before, refinement = 0.0, parts.unhidden.upper(delta), math.inf, 0
    refusal = f"no upper bound on epsilon can be certified at delta = {delta:g}"
    while refinement < _REFINEMENTS:
        try:
            upper = min(upper, run_epsilon(bound.upper, direction, Side.UPPER, delta, refinement))
            if closing or math.isinf(before):
                found = run_epsilon(
                    bound.lower, direction, Side.LOWER, delta, refinement, near=upper
                )
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
        # A third of the last gain is what all finer grids together have left to gain.
        open_ = upper - lower if exact else min(upper - lower, (before - upper) / 3.0)
        missing, before = open_ / (tolerance * upper + ABSOLUTE_TOLERANCE), upper
        if missing <= 1.0:
            break
        # Each refinement divides the width by nearly four: go at once to the one that should do.
        jump = math.ceil(math.log(1.05 * missing, 4)) if exact else 1
        refinement += min(jump, max(_REFINEMENTS - 1 - refinement, 1))
    if math.isinf(upper):
        raise NumericalError(refusal)
    return _bounds(parts, direction, delta, lower, upper)


def _two_bound_directions(parts: Decomposition, delta: float, cap: float) -> list[float]:
    """Upper bounds through the reference, in both directions, or a cap that is lower."""
    assert parts.replacement_against_null is not None
    record, other = parts.record_against_null.upper, parts.replacement_against_null.upper
    there = _capped(partial(two_bound_epsilon, record, other, delta), cap)
    if record == other:
        return [there, there]
    return [there, _capped(partial(two_bound_epsilon, other, record, delta), cap)]


@dataclass(frozen=True, slots=True)
class _Client:
    """Everybody with windows of the same sizes: the blocks, and their upper ε by direction."""

    parts: Decomposition
    uppers: dict[Direction, float]


def _price_clients(scheme: Scheme, delta: float, tolerance: float) -> Guarantee:
    with budget() as meter:
        clients = _clients(scheme, delta, None)
    found = (client.parts.record_against_null.method for client in clients.values())
    method = f"{next(found, 'nobody')}, worst client"
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
    """ε of each client of a scheme in which clients have windows of their own, when asked for.

    Args:
        scheme: of all clients.
        delta: δ.
        worst: a proved upper bound on the costliest client's ε, which no client's exceeds.
    """
    return _each_client(scheme, worst, lambda: _clients(scheme, delta, None))


def _each_client(
    scheme: Scheme, worst: float, clients: Callable[[], dict[tuple[int, ...], _Client]]
) -> ClientGuarantees:
    sizes, keys = _window_sizes(scheme, None)

    def find() -> FloatArray:
        with question():
            found = clients()
        return np.array([min(max(found[key].uppers.values()), worst) for key in keys])

    return ClientGuarantees(find, sizes)


def _worst(
    clients: Iterable[_Client], direction: Direction, delta: float, tolerance: float
) -> Bounds:
    """Bounds of the costliest client, refined until no other can cost more."""
    worst = Bounds(0.0, 0.0)
    for client in sorted(clients, key=lambda c: -c.uppers[direction]):
        if client.uppers[direction] <= worst.upper:
            break
        found = _bracket(client.parts, direction, delta, tolerance)
        # Grids of their own may be coarser: never above the bound that `epsilon_upper` has.
        worst = worst | Bounds(found.lower, min(found.upper, client.uppers[direction]))
    return worst


def _clients(scheme: Scheme, delta: float, steps: int | None) -> dict[tuple[int, ...], _Client]:
    """Upper ε of every kind of client, by the sorted sizes of its windows."""
    draw = _own_draw(scheme)
    require_central(scheme)
    if scheme.release is ReleaseRule.AVERAGED or scheme.relation is Relation.REPLACE_ONE:
        raise UnsupportedError(
            "availability windows are priced under add-remove or zero-out, for aggregated or "
            "one-client releases"
        )
    if scheme.release is ReleaseRule.ONE_CLIENT and scheme.relation is Relation.ZERO_OUT:
        raise UnsupportedError("one-client releases over availability windows need add-remove")
    one_client = scheme.release is ReleaseRule.ONE_CLIENT
    upper = dominating(scheme.randomizer, 2.0 if one_client else 1.0)
    lower = dominating(scheme.randomizer, 1.0)
    found: dict[tuple[int, ...], _Client] = {}
    kinds = sorted(set(_window_sizes(scheme, steps)[1]))
    for sizes in kinds:
        turns = in_windows(draw.probability, *Counter(sizes).items())
        bound = window_bound(upper, lower, sizes, draw.probability)
        parts = Decomposition(bound, unhidden=unhidden(scheme, turns))
        try:
            with budget(share=1.0 / (len(kinds) - len(found))):
                found[sizes] = _Client(parts, _uppers(parts, delta, shared=True))
        except NumericalError:
            _require_above_infinity_mass(bound, delta)
            raise
    return found


def _uppers(parts: Decomposition, delta: float, *, shared: bool = False) -> dict[Direction, float]:
    """A proved upper bound of each direction, at one fixed grid."""
    bound, cap, found = parts.record_against_null, parts.unhidden.upper(delta), {}
    for direction in bound.directions:
        with budget(share=1.0 / (len(bound.directions) - len(found))):
            found[direction] = _capped(partial(_upper, bound, direction, delta, shared=shared), cap)
    return found


def _window_sizes(scheme: Scheme, steps: int | None) -> tuple[IntArray, list[tuple[int, ...]]]:
    """Window sizes of every client, and those of windows begun so far, sorted, without 0."""
    draw = _own_draw(scheme)
    sizes = draw.block_sizes()
    begun = sizes.shape[1] if steps is None else -(-steps // draw.steps)
    return sizes, [tuple(sorted(row[row > 0].tolist())) for row in sizes[:, :begun]]


def _own_draw(scheme: Scheme) -> OneOfOwn:
    """The draw of a law under which clients have steps of their own; refuses others beside it."""
    spans = normal_form(scheme.participation).spans
    draw = spans[0].draw
    if len(spans) > 1 or not isinstance(draw, OneOfOwn):
        raise UnsupportedError(
            f"{type(scheme.participation).__name__} has steps of clients' own beside other draws, "
            "which has no analysis"
        )
    return draw


Messages = Sequence[tuple[PureRandomizer, int]]
"""The laws of one client's messages, and how many there are of each."""


@lru_cache(maxsize=1024)
def _shuffled_price(laws: tuple[tuple[PureRandomizer, int], ...], n: int, delta: float) -> float:
    from turnout.accounting.shuffling.messages import one_round  # slow to import

    run = merged_runs([(one_round(law, n).upper, count) for law, count in laws])
    named = [(Turn(ClosedForm.pure(law.epsilon0)), count) for law, count in laws]
    bound = NeighbourBound(run, [], "shuffled messages", tight=False, symmetric=True)
    return decomposition_upper(Decomposition(bound, unhidden=Unhidden(named)), delta)


def shuffled_price(messages: Messages, clients: int, delta: float) -> float:
    """ε of the messages of n clients, each message shuffled with the others' of its number.

    Source: docs/design/shuffling.md; composed numerically over a client's messages.

    Args:
        messages: of each client, independent of each other given the client's record.
        clients: n ≥ 1, all of whom follow the protocol.
        delta: δ in (0, 1).

    Returns:
        ε under replace-one, never below the true one and never above the sum of the ε₀.

    Raises:
        UnsupportedError: a law that not all clients share.

    >>> from turnout.schemes import KaryResponse
    >>> round(shuffled_price([(KaryResponse(4.0, 2), 1)], 10**6, 1e-8), 4)
    0.032
    """
    _require_shared(messages)
    checks.count(clients=clients)
    checks.open_unit(delta=delta)
    return _shuffled_price(tuple(messages), clients, delta)


def shuffled_method(messages: Messages) -> str:
    """The analyses of `shuffled_price`, in a few words."""
    from turnout.accounting.shuffling.messages import one_round  # slow to import

    _require_shared(messages)
    return ", ".join(sorted({one_round(law, 1).method for law, _ in messages}))


def _require_shared(messages: Messages) -> None:
    for law, _ in messages:
        if not isinstance(law, NonAdaptiveRandomizer):
            raise UnsupportedError(
                f"shuffled messages of {type(law).__name__}: no law is known that all clients "
                "share; public randomness would tell who sent what"
            )
