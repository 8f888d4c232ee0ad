"""ε of the released steps, recomputed from the scheme alone, between two proved bounds.

`recomputed` gives both bounds, `least` and `least_bound` a lower one; `seen_runs` covers local
trust. How far one client moves a release, in units of the clip norm, is taken from
docs/design/protocols.md. Nothing is imported from `turnout.accounting` and the method is another
(`turnout.verification.windows`), so that an error there is hardly repeated here.

**Local trust**: every message is observed with its sender, as rows of windows. A message under two
records has no ratio outside of [e^−ε₀, e^ε₀] and distributions at most τ apart. Among all such
pairs one is the worst at every ratio k: δ(k) is convex, δ(1) ≤ τ and δ(e^ε₀) = 0, so it lies below
the chord, which is the curve of the ratios e^ε₀, 1 and e^−ε₀ with the probabilities a, 1 − a −
a·e^ε₀ and a·e^ε₀, a = τ/(e^ε₀ − 1). A message that may not be sent adds mass at ratio 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from turnout.core.bounds import Bounds
from turnout.core.errors import NumericalError, UnsupportedError
from turnout.schemes import (
    AttainedVariation,
    BoundedVariation,
    GaussianNoise,
    KaryResponse,
    PureRandomizer,
    Relation,
    ReleaseRule,
    RepeatedMessages,
    SampledBitResponse,
    Scheme,
    TrustModel,
)
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
from turnout.verification.windows import (
    OrderSide,
    Others,
    Run,
    SeenMessage,
    Window,
    epsilon_of_windows,
    run_distribution,
    two_bound_epsilon,
)

METHOD = "each message by itself, seen with its sender"
Chances = list[tuple[float, int]]
"""(probability that a message is sent, how many such messages)."""


def seen_runs(
    scheme: Scheme, steps: int
) -> tuple[tuple[SeenMessage, ...] | None, tuple[SeenMessage, ...]]:
    """Runs of observed messages that bound ε from above (if one is known) and from below.

    Raises:
        UnsupportedError: no independent analysis is written for this scheme.
    """
    randomizer = scheme.randomizer
    # Randomizers and releases that have an independent analysis.
    if not isinstance(randomizer, PureRandomizer) or isinstance(randomizer, RepeatedMessages):
        raise UnsupportedError(f"{type(randomizer).__name__} has no independent analysis")
    if scheme.relation is Relation.ADD_REMOVE or scheme.release is not ReleaseRule.AGGREGATED:
        raise UnsupportedError(
            "local trust has an independent analysis for sums of all messages under "
            "replace-one only"
        )
    if steps:
        _CHANCES.require(scheme.participation)
    # Runs of observed messages, from below and above, draw by draw.
    apart, attained = _total_variation(randomizer)
    lower: Chances = []
    upper: Chances = []
    for draw, full, rest in normal_form(scheme.participation).released(steps) if steps else ():
        below, above = _CHANCES[draw](draw, full, rest)
        lower += below
        upper += above
    # A lower bound needs two records that attain the distance.
    known = attained and scheme.relation is Relation.REPLACE_ONE
    most = _messages(randomizer.epsilon0, apart, upper)
    return _messages(randomizer.epsilon0, apart, lower) if known else None, most


def _messages(epsilon0: float, apart: float, chances: Chances) -> tuple[SeenMessage, ...]:
    return tuple(
        SeenMessage(epsilon0, apart, probability, count)
        for probability, count in chances
        if probability > 0 and count > 0
    )


def _total_variation(randomizer: PureRandomizer) -> tuple[float, bool]:
    """Bound on the total variation of two records, and whether two records attain it and ε₀."""
    largest = math.tanh(randomizer.epsilon0 / 2)
    if isinstance(randomizer, BoundedVariation):
        attained = isinstance(randomizer, AttainedVariation)
        return min(randomizer.total_variation, largest), attained
    binary = isinstance(randomizer, KaryResponse) and randomizer.categories == 2
    return largest, binary or isinstance(randomizer, SampledBitResponse)


def _seen_every_step(draw: Always, full: int, rest: int) -> tuple[Chances, Chances]:
    return [(1.0, full)], [(1.0, full)]


def _seen_coins(draw: Bernoulli, full: int, rest: int) -> tuple[Chances, Chances]:
    sent = [(float(draw.rate), full)]
    return sent, sent


def _seen_one_of(draw: OneOf, full: int, rest: int) -> tuple[Chances, Chances]:
    """Complete windows, and the last one: its message was sent if its step is past."""
    probability = float(draw.probability)
    sent = [(probability, full), (probability * rest / draw.steps, 1)]
    return sent, sent


def _seen_k_of(draw: KOf, full: int, rest: int) -> tuple[Chances, Chances]:
    """Complete windows, and the last one, in which at least 0 and at most k messages were sent."""
    whole = full * draw.picks
    return [(1.0, whole)], [(1.0, whole + min(rest, draw.picks))]


_CHANCES: DrawTable[Callable[[Any, int, int], tuple[Chances, Chances]]] = DrawTable(
    "an independent analysis of messages that are seen",
    {Always: _seen_every_step, Bernoulli: _seen_coins, OneOf: _seen_one_of, KOf: _seen_k_of},
)


Windows = tuple[Window, ...]
"""A run of noisy releases."""


@dataclass(frozen=True, slots=True)
class Analysis:
    """Runs that bound ε from both sides.

    Attributes:
        lowers: runs that an adversary observes or can derive, each a lower bound.
        bounds: one run that is an upper bound, or two that are one after the other: to the null
            record and from it to the other record.
        method: name of the analysis, in a few words.
    """

    lowers: tuple[Run, ...]
    bounds: tuple[Run] | tuple[Run, Run]
    method: str


@contextmanager
def _certified() -> Iterator[None]:
    """Context that turns floating-point overflow into a NumericalError."""
    try:
        with np.errstate(over="raise", invalid="raise", divide="raise"):
            yield
    except NumericalError:
        raise
    except ArithmeticError as error:
        raise NumericalError(f"the numbers leave float64: {error}") from None


@_certified()
def recomputed(scheme: Scheme, steps: int, delta: float) -> tuple[Bounds, str]:
    """Proved lower and upper bound on ε after the first ``steps`` steps, and the method.

    Raises:
        UnsupportedError: no independent analysis is written for this scheme.
        NumericalError: the numbers leave what float64 can prove.
    """
    found, lower = analysis(scheme, steps), least(scheme, steps, delta)
    return Bounds(lower, _most(found, delta)), found.method


@_certified()
def least(scheme: Scheme, steps: int, delta: float) -> float:
    """Proved lower bound on ε after the first ``steps`` steps; raises the errors of
    `recomputed`.
    """
    bounds = [
        epsilon_of_windows(run_distribution(run, OrderSide.LOWER, delta), OrderSide.LOWER, delta)
        for run in analysis(scheme, steps).lowers
        if run
    ]
    return max(bounds, default=0.0)


@_certified()
def least_bound(scheme: Scheme, steps: int, delta: float) -> float:
    """Lower bound on ε of a single run of windows, which no record need attain.

    A ledger that charges less than this has not charged for the bounding run. Raises as
    `recomputed`; also where two runs bound ε.
    """
    found = analysis(scheme, steps)
    if len(found.bounds) != 1:
        raise UnsupportedError("this scheme has no single bounding run: two runs bound its epsilon")
    run = found.bounds[0]
    return (
        epsilon_of_windows(run_distribution(run, OrderSide.LOWER, delta), OrderSide.LOWER, delta)
        if run
        else 0.0
    )


def _most(found: Analysis, delta: float) -> float:
    if not found.bounds[0]:
        return 0.0
    uppers = {run: run_distribution(run, OrderSide.UPPER, delta) for run in set(found.bounds)}
    if len(found.bounds) == 1:
        return epsilon_of_windows(uppers[found.bounds[0]], OrderSide.UPPER, delta)
    first, second = (uppers[run] for run in found.bounds)
    return max(two_bound_epsilon(first, second, delta), two_bound_epsilon(second, first, delta))


def analysis(scheme: Scheme, steps: int) -> Analysis:
    """Runs of windows that bound ε from above and below after the first ``steps`` steps.

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
        raise UnsupportedError(
            "only aggregated and one-client releases under central trust have an "
            "independent analysis"
        )
    if steps:
        _WINDOWS.require(scheme.participation)
    alone, form = noise.noise_multiplier, normal_form(scheme.participation)
    lower = _runs(form, alone, steps)[0]
    replaced = scheme.relation is Relation.REPLACE_ONE
    always = all(type(span.draw) is Always for span in form.spans)
    if always and (replaced or scheme.relation is Relation.ZERO_OUT):
        # Both worlds have the client in every step: no bound over its absence, whatever the rule.
        run = _runs(form, alone / 2 if replaced else alone, steps)[1]
        return Analysis((run,), (run,), "the exact distribution of every step")
    one_client = scheme.release is ReleaseRule.ONE_CLIENT
    back = _runs(form, alone, steps)[1]
    upper = _displacing(form, alone, steps) if one_client else back
    attacks = _attacks(form, lower) if one_client else ()
    if replaced:
        lowers = (lower, tuple(map(_sum_opposed, lower)), *attacks)
        return Analysis(
            lowers, (upper, upper), "opposite records' sums below, over the null record above"
        )
    if not one_client:
        exact = "the exact distribution of the client's slots"
        method = exact if lower == upper else "less than the client's slots below, more above"
        return Analysis((lower,), (upper,), method)
    if scheme.relation is Relation.ADD_REMOVE:
        method = "alone or displacing one client below, any other clients above"
        return Analysis((lower, *attacks), (upper,), method)
    return Analysis((lower,), (upper, back), "alone below, over the null record above")


def _displacing(form: Form, noise: float, steps: int) -> Windows:
    """Run of a client whose update may displace another client's, from above.

    A window that is not a row of single steps is moved by up to 2C.
    """
    if _is_stepwise(form):
        run = _runs(form, noise, steps)[1]
        return tuple(replace(window, others=Others.WORST) for window in run)
    return _runs(form, noise / 2, steps)[1]


def _attacks(form: Form, run: Windows) -> tuple[Windows, ...]:
    """Run with one other client in each step, whose update is opposite to the client's."""
    opposed = tuple(replace(window, others=Others.OPPOSED) for window in run)
    return (opposed,) if run and _is_stepwise(form) else ()


def _is_stepwise(form: Form) -> bool:
    """Whether each step of a window is one release, not a sum of several."""
    return all(type(span.draw) in (Bernoulli, OneOf, Staggered) for span in form.spans)


def _sum_opposed(window: Window) -> Window:
    """Run of two opposite records for a lower bound, by the sum of each window's releases."""
    return replace(window, noise=window.noise * window.steps**0.5, steps=1, opposed=True)


def _runs(form: Form, noise: float, steps: int) -> tuple[Windows, Windows]:
    """Runs of windows with presence against absence after ``steps`` steps, from above and below."""
    lower: list[Window] = []
    upper: list[Window] = []
    for draw, full, rest in form.released(steps) if steps else ():
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
    """Complete windows, and the last one, in which the client took part if its slot is past."""
    whole = Window(noise, window, probability, full)
    return whole, Window(noise, max(rest, 1), probability * rest / window)


def _staggered(draw: Staggered, noise: float, full: int, rest: int) -> tuple[Windows, Windows]:
    """The client's own window, of which at most ``steps`` slots are past."""
    whole, begun = min(draw.steps, draw.window), min(rest, draw.window)
    run = (
        Window(noise, whole, whole / draw.window, full),
        Window(noise, max(begun, 1), begun / draw.window),
    )
    return run, run


def _kept(draw: Kept, noise: float, full: int, rest: int) -> tuple[Windows, Windows]:
    """Runs of a slot that repeats in every epoch; in the last one it is past or not."""
    window, probability = draw.slot.steps, draw.slot.probability
    whole = Window(noise / draw.epochs**0.5, window, probability, full)
    epochs, left = divmod(rest, window)
    if epochs == 0:
        run = (whole, Window(noise, max(left, 1), probability * left / window))
        return run, run
    least, most = (Window(noise / n**0.5, window, probability) for n in (epochs, epochs + 1))
    return (whole, least), (whole, most if left else least)


def _k_of(draw: KOf, noise: float, full: int, rest: int) -> tuple[Windows, Windows]:
    """Runs for k-subsets: from above a revealed random partition into k blocks, from below plain
    sums.

    A uniform partition of the window into k blocks whose sizes differ by at most one, with a
    uniform step in each, is a uniform subset of k steps; an adversary who knows the partition
    observes k windows. The sum of a window's releases is moved by k and has noise of √t; sums of W
    windows add up to one Gaussian. An incomplete window counts above as a whole and below not at
    all.
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
