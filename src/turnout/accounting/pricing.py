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
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from operator import or_

import numpy as np

from turnout.accounting.decomposition import (
    decompose,
    is_per_client,
    published,
    require_central,
    steps_of,
)
from turnout.accounting.divergence.blocks import (
    Decomposition,
    NeighbourBound,
    PairBlock,
    Run,
    merged_runs,
)
from turnout.accounting.divergence.composition import (
    GridTooLargeError,
    LossGrid,
    is_composed,
    run_curve,
    run_epsilon,
)
from turnout.accounting.divergence.curves import Direction, Side, epsilon_at
from turnout.accounting.divergence.dominating_pairs import dominating
from turnout.accounting.divergence.pairs import UNIT_ROUNDOFF, GaussianPair
from turnout.accounting.guarantee import ABSOLUTE_TOLERANCE, ClientGuarantees, Guarantee
from turnout.accounting.participation.neighbours import window_bound
from turnout.core import checks
from turnout.core.arrays import FloatArray, IntArray
from turnout.core.bounds import Bounds
from turnout.core.errors import NumericalError, UnsupportedError
from turnout.schemes import NonAdaptiveRandomizer, PureRandomizer, Relation, ReleaseRule, Scheme
from turnout.schemes.normal_form import OneOfOwn, normal_form

_LAST_HOP = 100.0  # δ over that at which the second of two hops is made sharp
_REFINEMENTS = 5  # grids tried one after the other until the bracket is narrow enough
_WIDEST = 100.0  # times the tolerance: what the finest grid may leave before it is refused


def price(scheme: Scheme, delta: float, tolerance: float = 1e-3) -> Guarantee:
    """ε of a scheme at δ, as proved bounds in both directions.

    Args:
        scheme: what happens.
        delta: δ, strictly between 0 and 1.
        tolerance: relative width at which refining stops. Where the analysis is exact and ε, the
            larger of both directions', is still known to 100 tolerances only, it is refused; where
            it is not (two neighbour bounds, one client a step, k-subset, shuffles), refining stops
            when the upper bound moves no more.

    Returns:
        The guarantee; ``epsilon.upper`` is never below the true ε, ``epsilon.lower`` never
        above it. ``meets_tolerance`` says whether they are as close as asked.

    Raises:
        UnsupportedError: no sound analysis is known for this combination, or no ε holds at so
            small a δ, because a randomizer's outcomes tell worlds apart for sure too often.
        NumericalError: the tolerance cannot be certified.
    """
    checks.open_unit(delta=delta, tolerance=tolerance)
    if is_per_client(scheme):
        return _price_clients(scheme, delta, tolerance)
    parts = decompose(scheme)
    if dominating(scheme.randomizer, 1.0).infinity_mass > 0:
        _require_above_infinity_mass(parts.record_against_null, delta)
    try:
        directions = decomposition_bounds(parts, scheme.relation, delta, tolerance)
    except NumericalError:
        _require_above_infinity_mass(parts.record_against_null, delta)
        raise
    worst, terms = reduce(or_, directions.values()), (scheme.relation, scheme.unit, scheme.trust)
    method, exact = parts.record_against_null.method, _exact(parts)
    return Guarantee(worst, delta, directions, *terms, method, None, tolerance, exact)


def _require_above_infinity_mass(bound: NeighbourBound, delta: float) -> None:
    """Refuses a δ at which no ε holds, whatever the grids: outcomes that one world cannot have."""
    for direction in Direction:
        log_kept = 0.0
        for block, count in bound.lower:
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
    if is_per_client(scheme):
        clients = _clients(scheme, delta, steps).values()
        return max((max(client.uppers.values()) for client in clients), default=0.0)
    return decomposition_upper(decompose(scheme, steps), delta, shared=shared)


def gaussian_epsilon(noise_multiplier: float, delta: float) -> float:
    """Upper bound on ε of one Gaussian release at δ; both directions are the same.

    The noise multiplier is the noise's standard deviation over the sensitivity.
    """
    block = PairBlock(GaussianPair(noise_multiplier))
    return run_epsilon([(block, 1)], Direction.REMOVE, Side.UPPER, delta, 0)


def published_epsilon(scheme: Scheme, delta: float) -> float | None:
    """Upper bound on ε by the smallest published bound; None where `price` rests on no other."""
    parts = published(scheme)
    return None if parts is None else decomposition_upper(parts, delta)


def decomposition_bounds(
    parts: Decomposition, relation: Relation, delta: float, tolerance: float
) -> dict[str, Bounds]:
    """Proved bounds on ε by direction of a run that is already in blocks.

    Raises:
        NumericalError: the tolerance cannot be certified of the larger one, though it could be.
    """
    if parts.replacement_against_null is None:
        bounds = {
            d: _bracket(parts.record_against_null, d, delta, tolerance)
            for d in parts.record_against_null.directions
        }
        if _exact(parts):
            _require_narrow(bounds.values(), delta, tolerance)
        if relation is Relation.REPLACE_ONE:
            return {"replace": reduce(or_, bounds.values())}
        return {direction.value: value for direction, value in bounds.items()}
    # Two neighbour bounds are not tight; the null record is an allowed neighbour and gives the
    # lower bound.
    record = parts.record_against_null
    shared = record.upper and record.upper == record.lower
    grid = _two_bound_grid(record.upper, delta) if shared else None
    lowers = [run_epsilon(record.lower, d, Side.LOWER, delta, 0, grid=grid) for d in Direction]
    uppers = _two_bound_directions(parts, delta)
    if relation is Relation.REPLACE_ONE:
        return {"replace": Bounds(max(lowers), max(uppers))}
    return {d.value: Bounds(lowers[i], uppers[i]) for i, d in enumerate(Direction)}


def decomposition_upper(parts: Decomposition, delta: float, *, shared: bool = False) -> float:
    """A proved upper bound on ε of a run that is already in blocks, at one fixed grid."""
    if parts.replacement_against_null is not None:
        return max(_two_bound_directions(parts, delta))
    return max(
        _upper(parts.record_against_null, direction, delta, shared=shared)
        for direction in parts.record_against_null.directions
    )


def _exact(parts: Decomposition) -> bool:
    """Whether finer grids make the bracket as narrow as asked."""
    return parts.replacement_against_null is None and parts.record_against_null.exact


def _require_narrow(directions: Iterable[Bounds], delta: float, tolerance: float) -> None:
    """Refuses a wide bracket of the larger ε; a direction that is smaller for sure may be wide."""
    worst = reduce(or_, directions)
    if worst.upper - worst.lower > _WIDEST * tolerance * worst.upper:
        raise _cannot_be_narrowed(worst.lower, worst.upper, delta, tolerance)


def _cannot_be_narrowed(
    lower: float, upper: float, delta: float, tolerance: float
) -> NumericalError:
    return NumericalError(
        f"epsilon in [{lower:.6g}, {upper:.6g}] cannot be narrowed to a relative tolerance "
        f"of {tolerance:g} at delta = {delta:g}"
    )


def _upper(
    bound: NeighbourBound, direction: Direction, delta: float, *, shared: bool = False
) -> float:
    try:
        grid = LossGrid.common(bound.upper, delta) if shared else None
        found = run_epsilon(bound.upper, direction, Side.UPPER, delta, 0, grid=grid)
        return min(found, bound.cap)
    except NumericalError:
        if math.isinf(bound.cap):
            raise
        return bound.cap


def _bracket(bound: NeighbourBound, direction: Direction, delta: float, tolerance: float) -> Bounds:
    """Refine until the bracket is as narrow as asked, or finer grids are of no more use."""
    exact = bound.exact
    closing = (
        bound.tight or bound.upper == bound.lower
    )  # else finer grids hardly move the lower bound
    lower, upper, before, refinement = 0.0, bound.cap, math.inf, 0
    while refinement < _REFINEMENTS:
        try:
            upper = min(upper, run_epsilon(bound.upper, direction, Side.UPPER, delta, refinement))
        except NumericalError as error:
            _require_above_infinity_mass(bound, delta)
            if math.isfinite(bound.cap):
                break
            if isinstance(error, GridTooLargeError):
                if math.isinf(upper):
                    raise
                break
            refinement += 1
            continue
        if closing or math.isinf(before):
            found = run_epsilon(bound.lower, direction, Side.LOWER, delta, refinement, near=upper)
            lower = max(lower, found)
        # A third of the last gain is what all finer grids together have left to gain.
        open_ = upper - lower if exact else min(upper - lower, (before - upper) / 3.0)
        missing, before = open_ / (tolerance * upper + ABSOLUTE_TOLERANCE), upper
        if missing <= 1.0:
            return Bounds(lower, upper)
        # Each refinement divides the width by nearly four: go at once to the one that should do.
        jump = math.ceil(math.log(1.05 * missing, 4)) if exact else 1
        refinement += min(jump, max(_REFINEMENTS - 1 - refinement, 1))
    if math.isinf(upper):
        raise _cannot_be_narrowed(lower, upper, delta, tolerance)
    return Bounds(lower, upper)


def _two_bound_directions(parts: Decomposition, delta: float) -> list[float]:
    """Upper bounds through the reference, in both directions.

    δ(ε₁ + ε₂) ≤ δ_remove(ε₁) + e^{ε₁}·δ_add(ε₂) for P → reference → P'.
    """
    assert parts.replacement_against_null is not None
    record, other = parts.record_against_null.upper, parts.replacement_against_null.upper
    there = _two_bound(record, other, delta)
    return [there, there if record == other else _two_bound(other, record, delta)]


def _two_bound_grid(run: Run, delta: float) -> LossGrid | None:
    """One grid for both hops and the lower bound, which then share the curves of their blocks.

    None where nothing is composed, and where a curve does not come down as far as the last hop
    needs: then each has its own.
    """
    if not is_composed(run):
        return None
    try:
        return LossGrid.of(run, delta / _LAST_HOP)
    except NumericalError:
        return None


def _two_bound(first: Run, second: Run, delta: float) -> float:
    if not first and not second:
        return 0.0
    if not first or not second:
        direction = Direction.REMOVE if first else Direction.ADD
        return run_epsilon(first or second, direction, Side.UPPER, delta, 0)
    grid = _two_bound_grid(first, delta) if first == second else None
    remove = run_curve(first, Direction.REMOVE, Side.UPPER, delta / 2, 0, grid=grid)
    add = run_curve(second, Direction.ADD, Side.UPPER, delta / _LAST_HOP, 0, grid=grid)
    best = math.inf
    for share in np.linspace(0.02, 0.98, 25):
        try:
            first_epsilon = epsilon_at(remove, float(share) * delta, Side.UPPER)
            rest = (1.0 - float(share)) * delta * math.exp(-first_epsilon)
            best = min(best, first_epsilon + epsilon_at(add, rest, Side.UPPER))
        except NumericalError:
            continue
    if math.isinf(best):
        raise NumericalError(f"delta = {delta:.3g} cannot be certified over two neighbour bounds")
    return best * (1 + 1e-12)


@dataclass(frozen=True, slots=True)
class _Client:
    """Everybody with windows of the same sizes: the bound, and its upper ε by direction."""

    bound: NeighbourBound
    uppers: dict[Direction, float]


def _price_clients(scheme: Scheme, delta: float, tolerance: float) -> Guarantee:
    clients = _clients(scheme, delta, None)
    method = next((c.bound.method for c in clients.values()), "nobody") + ", worst client"
    directions = {
        direction.value: _worst(clients.values(), direction, delta, tolerance)
        for direction in Direction
    }
    exact = all(client.bound.exact for client in clients.values())
    if exact:
        _require_narrow(directions.values(), delta, tolerance)
    worst, terms = reduce(or_, directions.values()), (scheme.relation, scheme.unit, scheme.trust)
    each = _each_client(scheme, worst.upper, lambda: clients)
    return Guarantee(worst, delta, directions, *terms, method, each, tolerance, exact)


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
        found = _bracket(client.bound, direction, delta, tolerance)
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
    bounds = {
        key: window_bound(upper, lower, key, draw.probability)
        for key in set(_window_sizes(scheme, steps)[1])
    }
    return {key: _Client(bound, _uppers(bound, delta)) for key, bound in bounds.items()}


def _uppers(bound: NeighbourBound, delta: float) -> dict[Direction, float]:
    """Upper ε of one client by direction."""
    try:
        grid = LossGrid.common(bound.upper, delta)
        return {d: run_epsilon(bound.upper, d, Side.UPPER, delta, 0, grid=grid) for d in Direction}
    except NumericalError:
        _require_above_infinity_mass(bound, delta)
        raise


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
    cap = sum(count * law.epsilon0 for law, count in laws)
    bound = NeighbourBound(run, [], "shuffled messages", tight=False, symmetric=True, cap=cap)
    return decomposition_upper(Decomposition(bound), delta)


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
