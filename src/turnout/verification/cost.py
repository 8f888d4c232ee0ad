"""ε of the released steps, recomputed from the scheme alone, between two proved bounds.

How far one client moves a release, in units of the clip norm, is taken from
docs/design/protocols.md. Nothing is imported from `turnout.accounting` and the method is another,
so that an error there is hardly repeated here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from turnout.core.bounds import Bounds
from turnout.core.errors import NumericalError, UnsupportedError
from turnout.schemes import GaussianNoise, Relation, ReleaseRule, Scheme, TrustModel
from turnout.schemes.normal_form import (
    Always,
    Bernoulli,
    DrawTable,
    Form,
    Kept,
    KOf,
    OneOf,
    Staggered,
    normal_form,
)
from turnout.verification.ratios import Side
from turnout.verification.seen_messages import METHOD, seen_runs
from turnout.verification.windows import Run, Window, epsilon, run_law, two_bound_epsilon

Windows = tuple[Window, ...]
"""A run of noisy releases."""


@dataclass(frozen=True, slots=True)
class Analysis:
    """The method by which ε is enclosed.

    Attributes:
        lowers: runs that an adversary really gets, or could make of what is seen.
        bounds: one run that is at least as bad as the truth, or two that are so one after the
            other: to the null record and on to the other record.
        method: in a few words.
    """

    lowers: tuple[Run, ...]
    bounds: tuple[Run] | tuple[Run, Run]
    method: str


@contextmanager
def _certified() -> Iterator[None]:
    """Ends the computation where a number leaves float64: no number comes out of it."""
    try:
        with np.errstate(over="raise", invalid="raise", divide="raise"):
            yield
    except NumericalError:
        raise
    except ArithmeticError as error:
        raise NumericalError(f"the numbers leave float64: {error}") from None


@_certified()
def recomputed(scheme: Scheme, steps: int, delta: float) -> tuple[Bounds, str]:
    """ε after the first ``steps`` steps between two proved bounds, and the method in words.

    Raises:
        UnsupportedError: no independent analysis is written for this scheme.
        NumericalError: the numbers leave what float64 can prove.
    """
    found, lower = analysis(scheme, steps), least(scheme, steps, delta)
    return Bounds(lower, _most(found, delta)), found.method


@_certified()
def least(scheme: Scheme, steps: int, delta: float) -> float:
    """The lower of the two bounds alone; raises as `recomputed`."""
    bounds = [
        epsilon(run_law(run, Side.LOWER, delta), Side.LOWER, delta)
        for run in analysis(scheme, steps).lowers
        if run
    ]
    return max(bounds, default=0.0)


@_certified()
def least_bound(scheme: Scheme, steps: int, delta: float) -> float:
    """A lower bound on ε of the one bounding run, whoever works it out.

    For schemes that are priced by a pair that nothing is known to attain: who charges less than
    this has not charged for the pair. Raises as `recomputed`; also where two runs bound ε.
    """
    found = analysis(scheme, steps)
    if len(found.bounds) != 1:
        raise UnsupportedError("two runs bound this scheme's epsilon, one after the other")
    run = found.bounds[0]
    return epsilon(run_law(run, Side.LOWER, delta), Side.LOWER, delta) if run else 0.0


def _most(found: Analysis, delta: float) -> float:
    if not found.bounds[0]:
        return 0.0
    uppers = {run: run_law(run, Side.UPPER, delta) for run in set(found.bounds)}
    if len(found.bounds) == 1:
        return epsilon(uppers[found.bounds[0]], Side.UPPER, delta)
    first, second = (uppers[run] for run in found.bounds)
    return max(two_bound_epsilon(first, second, delta), two_bound_epsilon(second, first, delta))


def analysis(scheme: Scheme, steps: int) -> Analysis:
    """The runs that enclose ε after the first ``steps`` steps.

    Raises:
        UnsupportedError: no independent analysis is written for this scheme.
    """
    if scheme.trust is TrustModel.LOCAL:
        least_seen, most_seen = seen_runs(scheme, steps)
        return Analysis(() if least_seen is None else (least_seen,), (most_seen,), METHOD)
    noise = scheme.randomizer
    if not isinstance(noise, GaussianNoise):
        raise UnsupportedError(f"{type(noise).__name__} has no independent analysis")
    if scheme.trust is not TrustModel.CENTRAL or scheme.release is ReleaseRule.AVERAGED:
        raise UnsupportedError("only aggregated and one-client releases by a trusted coordinator")
    if steps:
        _WINDOWS.require(scheme.participation)
    alone, law = noise.noise_multiplier, normal_form(scheme.participation)
    lower = _runs(law, alone, steps)[0]
    replaced = scheme.relation is Relation.REPLACE_ONE
    always = all(type(span.draw) is Always for span in law.spans)
    if always and (replaced or scheme.relation is Relation.ZERO_OUT):
        # Both worlds have the client in every step: no bound over its absence, whatever the rule.
        run = _runs(law, alone / 2 if replaced else alone, steps)[1]
        return Analysis((run,), (run,), "the exact law of every step")
    one_client = scheme.release is ReleaseRule.ONE_CLIENT
    upper, back = (_runs(law, n, steps)[1] for n in (alone / 2 if one_client else alone, alone))
    if replaced:
        lowers = (lower, tuple(map(_sum_opposed, lower)))
        return Analysis(
            lowers, (upper, upper), "opposite records' sums below, over the null record above"
        )
    if not one_client:
        exact = "the exact law of the client's slots"
        method = exact if lower == upper else "less than the client's slots below, more above"
        return Analysis((lower,), (upper,), method)
    if scheme.relation is Relation.ADD_REMOVE:
        return Analysis((lower,), (upper,), "alone below, displacing another client above")
    return Analysis((lower,), (upper, back), "alone below, over the null record above")


def _sum_opposed(window: Window) -> Window:
    """Two opposite records, told apart by nothing but the sum of each window's releases."""
    return replace(window, noise=window.noise * window.steps**0.5, steps=1, opposed=True)


def _runs(law: Form, noise: float, steps: int) -> tuple[Windows, Windows]:
    """Presence against absence after ``steps`` steps: (no worse than true, no better)."""
    lower: list[Window] = []
    upper: list[Window] = []
    for draw, full, rest in law.released(steps) if steps else ():
        below, above = _WINDOWS[draw](draw, noise, full, rest)
        lower += _possible(below)
        upper += _possible(above)
    return tuple(lower), tuple(upper)


def _possible(run: Windows) -> Iterator[Window]:
    return (window for window in run if window.count > 0 and window.probability > 0)


def _every_step(draw: Always, noise: float, full: int, rest: int) -> tuple[Windows, Windows]:
    run = (Window(noise / full**0.5),)  # Gaussians add up to one
    return run, run


def _coins(draw: Bernoulli, noise: float, full: int, rest: int) -> tuple[Windows, Windows]:
    run = (Window(noise, 1, float(draw.rate), full),)
    return run, run


def _one_of(draw: OneOf, noise: float, full: int, rest: int) -> tuple[Windows, Windows]:
    run = _check_ins(noise, draw.steps, float(draw.probability), full, rest)
    return run, run


def _check_ins(noise: float, window: int, probability: float, full: int, rest: int) -> Windows:
    """Whole windows, and the one that was begun: the client has come by now if its slot is past."""
    whole = Window(noise, window, probability, full)
    return whole, Window(noise, max(rest, 1), probability * rest / window)


def _staggered(draw: Staggered, noise: float, full: int, rest: int) -> tuple[Windows, Windows]:
    """The client's own window, of which as many slots are past as steps at most."""
    whole, begun = min(draw.steps, draw.window), min(rest, draw.window)
    run = (
        Window(noise, whole, whole / draw.window, full),
        Window(noise, max(begun, 1), begun / draw.window),
    )
    return run, run


def _kept(draw: Kept, noise: float, full: int, rest: int) -> tuple[Windows, Windows]:
    """The slot comes again in every epoch: in one that was begun surely or not at all."""
    window, probability = draw.slot.steps, draw.slot.probability
    whole = Window(noise / draw.epochs**0.5, window, probability, full)
    epochs, left = divmod(rest, window)
    if epochs == 0:
        run = (whole, Window(noise, max(left, 1), probability * left / window))
        return run, run
    least, most = (Window(noise / n**0.5, window, probability) for n in (epochs, epochs + 1))
    return (whole, least), (whole, most if left else least)


def _k_of(draw: KOf, noise: float, full: int, rest: int) -> tuple[Windows, Windows]:
    """Above: a random partition into k blocks, one step in each, all shown. Below: plain sums.

    A uniformly drawn partition of the window into k blocks whose sizes differ by at most one,
    with a uniform step in each, is a uniform subset of k steps; who is told the partition sees k
    windows. The sum of a window's releases is moved by k and has noise of √t; sums of W windows
    add up to one Gaussian. A window that was begun counts above as a whole and below not at all.
    """
    if draw.picks == 1:
        run = _check_ins(noise, draw.steps, 1.0, full, rest)
        return run, run
    begun = full + (rest > 0)
    size, longer = divmod(draw.steps, draw.picks)
    upper = (
        Window(noise, size + 1, 1.0, longer * begun),
        Window(noise, size, 1.0, (draw.picks - longer) * begun),
    )
    if full == 0:
        return (), upper
    return (Window(noise * (draw.steps / full) ** 0.5 / draw.picks),), upper


_WINDOWS: DrawTable[Callable[[Any, float, int, int], tuple[Windows, Windows]]] = DrawTable(
    "an independent analysis",
    {
        Always: _every_step,
        Bernoulli: _coins,
        OneOf: _one_of,
        KOf: _k_of,
        Kept: _kept,
        Staggered: _staggered,
    },
)
"""The windows of whole blocks and of one that was begun; a draw without a row has none."""
