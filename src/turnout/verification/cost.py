"""What the released steps cost, worked out from the scheme alone, between two proved bounds.

How far one client moves a release, in units of the clip norm, is taken from
docs/design/protocols.md. Nothing is imported from `turnout.accounting` and the method is another,
so that an error there is hardly repeated here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import singledispatch

import numpy as np

from turnout.core.bounds import Bounds
from turnout.core.errors import NumericalError, UnsupportedError
from turnout.spec import (
    CheckIn,
    EveryStep,
    FixedAssignment,
    GaussianNoise,
    KSubset,
    PoissonSampling,
    Relation,
    ReleaseRule,
    Scheme,
    SelfSampling,
    SlidingWindow,
    TrustModel,
)
from turnout.verification.ratios import Side
from turnout.verification.windows import Run, Window, epsilon, run_law, two_hop_epsilon


@dataclass(frozen=True, slots=True)
class Way:
    """How ε is enclosed.

    Attributes:
        lowers: runs that an adversary really gets, or could make of what he gets.
        hops: one run that is at least as bad as the truth, or two that are so one after the
            other: to her absence and on to the other record.
        method: in a few words.
    """

    lowers: tuple[Run, ...]
    hops: tuple[Run] | tuple[Run, Run]
    method: str


def recomputed(scheme: Scheme, steps: int, delta: float) -> tuple[Bounds, str]:
    """ε after the first ``steps`` steps between two proved bounds, and the method in words.

    Raises:
        UnsupportedError: no independent analysis is written for this scheme.
        NumericalError: the numbers leave what float64 can prove.
    """
    with _certified():
        found, lower = way(scheme, steps), _least(scheme, steps, delta)
        return Bounds(lower, _most(found, delta)), found.method


def least(scheme: Scheme, steps: int, delta: float) -> float:
    """The lower of the two bounds alone; raises as `recomputed`."""
    with _certified():
        return _least(scheme, steps, delta)


@contextmanager
def _certified() -> Iterator[None]:
    """Whatever leaves float64 ends the computation: no number comes out of it."""
    try:
        with np.errstate(over="raise", invalid="raise", divide="raise"):
            yield
    except NumericalError:
        raise
    except ArithmeticError as error:
        raise NumericalError(f"the numbers leave float64: {error}") from None


def _least(scheme: Scheme, steps: int, delta: float) -> float:
    bounds = [
        epsilon(run_law(run, Side.LOWER, delta), Side.LOWER, delta)
        for run in way(scheme, steps).lowers
        if run
    ]
    return max(bounds, default=0.0)


def _most(found: Way, delta: float) -> float:
    if not found.hops[0]:
        return 0.0
    uppers = {run: run_law(run, Side.UPPER, delta) for run in set(found.hops)}
    if len(found.hops) == 1:
        return epsilon(uppers[found.hops[0]], Side.UPPER, delta)
    first, second = (uppers[run] for run in found.hops)
    return max(two_hop_epsilon(first, second, delta), two_hop_epsilon(second, first, delta))


def way(scheme: Scheme, steps: int) -> Way:
    """How ε after the first ``steps`` steps is enclosed.

    Raises:
        UnsupportedError: no independent analysis is written for this scheme.
    """
    noise = scheme.randomizer
    if not isinstance(noise, GaussianNoise):
        raise UnsupportedError(f"{type(noise).__name__} has no independent analysis")
    if scheme.trust is not TrustModel.CENTRAL or scheme.release is ReleaseRule.AVERAGED:
        raise UnsupportedError("only aggregated and one-client releases by a trusted coordinator")
    alone, law = noise.noise_multiplier, scheme.participation
    lower = _runs(law, alone, steps)[0]
    replaced = scheme.relation is Relation.REPLACE_ONE
    if isinstance(law, EveryStep) and (replaced or scheme.relation is Relation.ZERO_OUT):
        # Both worlds have her in every step: no hop over her absence, whatever the rule.
        run = _runs(law, alone / 2 if replaced else alone, steps)[1]
        return Way((run,), (run,), "the exact law of every step")
    one_client = scheme.release is ReleaseRule.ONE_CLIENT
    upper, back = (_runs(law, n, steps)[1] for n in (alone / 2 if one_client else alone, alone))
    if replaced:
        lowers = (lower, tuple(map(_sum_opposed, lower)))
        return Way(lowers, (upper, upper), "opposite records' sums below, over her absence above")
    if not one_client:
        exact = "the exact law of her slots"
        method = exact if lower == upper else "less than her slots below, more above"
        return Way((lower,), (upper,), method)
    if scheme.relation is Relation.ADD_REMOVE:
        return Way((lower,), (upper,), "she comes alone below, displaces somebody above")
    return Way((lower,), (upper, back), "she comes alone below, over her absence above")


def _sum_opposed(window: Window) -> Window:
    """Two opposite records, told apart by nothing but the sum of each window's releases."""
    return replace(window, noise=window.noise * window.steps**0.5, steps=1, opposed=True)


def _runs(law: object, noise: float, steps: int) -> tuple[Run, Run]:
    """Her presence against her absence after ``steps`` steps: (no worse than true, no better)."""
    if steps == 0:
        return (), ()
    lower, upper = _windows(law, noise, steps)
    return tuple(_possible(lower)), tuple(_possible(upper))


def _possible(run: Run) -> Iterator[Window]:
    return (window for window in run if window.count > 0 and window.probability > 0)


@singledispatch
def _windows(law: object, noise: float, steps: int) -> tuple[Run, Run]:
    raise UnsupportedError(f"{type(law).__name__} has no independent analysis")


@_windows.register
def _(law: EveryStep, noise: float, steps: int) -> tuple[Run, Run]:
    run = (Window(noise / steps**0.5),)  # Gaussians add up to one
    return run, run


@_windows.register(PoissonSampling)
@_windows.register(SelfSampling)
def _(law: PoissonSampling | SelfSampling, noise: float, steps: int) -> tuple[Run, Run]:
    run = (Window(noise, 1, float(law.rate), steps),)
    return run, run


@_windows.register
def _(law: CheckIn, noise: float, steps: int) -> tuple[Run, Run]:
    run = _check_ins(noise, law.window, float(law.probability), steps)
    return run, run


def _check_ins(noise: float, window: int, probability: float, steps: int) -> Run:
    """Whole windows, and the one that was begun: she has come by now if her slot is past."""
    full, rest = divmod(steps, window)
    whole = Window(noise, window, probability, full)
    return whole, Window(noise, max(rest, 1), probability * rest / window)


@_windows.register
def _(law: SlidingWindow, noise: float, steps: int) -> tuple[Run, Run]:
    seen = min(steps, law.window)
    run = (Window(noise, seen, seen / law.window),)
    return run, run


@_windows.register
def _(law: FixedAssignment, noise: float, steps: int) -> tuple[Run, Run]:
    """Her slot comes again in every epoch: in one that was begun surely or not at all."""
    epochs, rest = divmod(steps, law.window)
    if epochs == 0:
        run = (Window(noise, rest, law.probability * rest / law.window),)
        return run, run
    ends = (Window(noise / n**0.5, law.window, law.probability) for n in (epochs, epochs + 1))
    lower, upper = ((window,) for window in ends)
    return lower, upper if rest else lower


@_windows.register
def _(law: KSubset, noise: float, steps: int) -> tuple[Run, Run]:
    """Above: a random partition into k blocks, one step in each, all shown. Below: plain sums.

    A uniformly drawn partition of the window into k blocks whose sizes differ by at most one,
    with a uniform step in each, is a uniform subset of k steps; who is told the partition sees k
    windows. The sum of a window's releases is moved by k and has noise of √t; sums of W windows
    add up to one Gaussian. A window that was begun counts above as a whole and below not at all.
    """
    if law.picks == 1:
        run = _check_ins(noise, law.window, 1.0, steps)
        return run, run
    full, begun = steps // law.window, -(-steps // law.window)
    size, longer = divmod(law.window, law.picks)
    upper = (
        Window(noise, size + 1, 1.0, longer * begun),
        Window(noise, size, 1.0, (law.picks - longer) * begun),
    )
    if full == 0:
        return (), upper
    return (Window(noise * (law.window / full) ** 0.5 / law.picks),), upper
