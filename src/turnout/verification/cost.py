"""ε of the released steps, recomputed from the scheme alone, between two proved bounds.

`recomputed` returns both bounds and `least` the lower bound. If one run bounds ε from above,
`least_bound` returns a lower bound on the ε of this run. `seen_runs` covers local trust.
docs/design/protocols.md derives how far one client can shift a release, in clip norms. The module
imports nothing from `turnout.accounting` and uses a different method
(`turnout.verification.windows`), so an error of that package is unlikely to be repeated here.

**Local trust**: the adversary observes every message with its sender, as a sequence of windows. The
two distributions of a message under two records have a likelihood ratio in [e^−ε₀, e^ε₀] and a
total variation distance of at most τ. Let δ(k) be the hockey-stick divergence of such a pair of
distributions at the ratio k. Since δ(k) is convex, δ(1) ≤ τ and δ(e^ε₀) = 0, no pair has a δ(k)
above the chord from (1, τ) to (e^ε₀, 0). One pair attains this chord: its likelihood ratio has the
values e^ε₀, 1 and e^−ε₀ with the probabilities a, 1 − a − a·e^ε₀ and a·e^ε₀, where
a = τ/(e^ε₀ − 1). A message that may not be sent adds mass at ratio 1.
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
"""Pairs of the probability that a message is sent and the number of such messages."""


def seen_runs(
    scheme: Scheme, steps: int
) -> tuple[tuple[SeenMessage, ...] | None, tuple[SeenMessage, ...]]:
    """Runs of observed messages that bound ε from below (None if no such run is known) and above.

    Args:
        scheme: scheme under local trust.
        steps: number of released steps, at least 0.

    Raises:
        UnsupportedError: the verifier has no independent analysis of this scheme.
    """
    randomizer = scheme.randomizer
    # Randomizers and releases that have an independent analysis.
    if not isinstance(randomizer, PureRandomizer) or isinstance(randomizer, RepeatedMessages):
        raise UnsupportedError(_unknown_randomizer(randomizer))
    if scheme.relation is Relation.ADD_REMOVE or scheme.release is not ReleaseRule.AGGREGATED:
        raise UnsupportedError(
            f"no independent analysis is known of {scheme.release.value} releases under "
            f"{scheme.relation.value} and local trust: use aggregated releases and "
            f"{Relation.REPLACE_ONE.value}"
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


def _unknown_randomizer(randomizer: object) -> str:
    """Text of the error for a randomizer without an independent analysis."""
    name = type(randomizer).__name__
    return (
        f"no independent analysis is known of the randomizer {name}: use GaussianNoise with "
        "central trust, or one message with a pure epsilon0 with local trust"
    )


def _messages(epsilon0: float, apart: float, chances: Chances) -> tuple[SeenMessage, ...]:
    return tuple(
        SeenMessage(epsilon0, apart, probability, count)
        for probability, count in chances
        if probability > 0 and count > 0
    )


def _total_variation(randomizer: PureRandomizer) -> tuple[float, bool]:
    """Upper bound on a message's total variation; whether two records attain it and ε₀."""
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
    """Messages of the complete windows, and of the incomplete window, which may lack its message.

    Both bounds on ε use the same messages.
    """
    probability = float(draw.probability)
    sent = [(probability, full), (probability * rest / draw.steps, 1)]
    return sent, sent


def _seen_k_of(draw: KOf, full: int, rest: int) -> tuple[Chances, Chances]:
    """Messages that bound ε from below and from above, each sent with probability 1.

    An incomplete window has no message in the bound from below, and up to k messages in the bound
    from above.
    """
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
        lowers: runs that an adversary observes or can derive; the ε of each is a lower bound.
        bounds: one run that bounds ε from above, or two runs whose ε's are composed: one run from
            the first record to the null record, one from the null record to the second record.
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
        raise NumericalError(f"a number is outside the range of float64: {error}") from None


@_certified()
def recomputed(scheme: Scheme, steps: int, delta: float) -> tuple[Bounds, str]:
    """Proved lower and upper bound on ε after the first ``steps`` steps, and the method's name.

    Args:
        scheme: the scheme whose ε is bounded.
        steps: number of released steps, from 0 to the scheme's number of steps.
        delta: δ of the guarantee, between 0 and 1.

    Raises:
        UnsupportedError: the verifier has no independent analysis of this scheme.
        NumericalError: float64 cannot prove the bounds.
    """
    found, lower = analysis(scheme, steps), least(scheme, steps, delta)
    return Bounds(lower, _most(found, delta)), found.method


@_certified()
def least(scheme: Scheme, steps: int, delta: float) -> float:
    """Proved lower bound on ε after the first ``steps`` steps.

    The arguments and errors are those of `recomputed`.
    """
    bounds = [
        epsilon_of_windows(run_distribution(run, OrderSide.LOWER, delta), OrderSide.LOWER, delta)
        for run in analysis(scheme, steps).lowers
        if run
    ]
    return max(bounds, default=0.0)


@_certified()
def least_bound(scheme: Scheme, steps: int, delta: float) -> float:
    """Lower bound on the ε of the run that bounds the scheme's ε from above.

    No pair of records need attain this ε. A ledger whose ε is smaller does not cover the bounding
    run. The arguments and errors are those of `recomputed`.

    Raises:
        UnsupportedError: two runs together, not one, bound the scheme's ε.
    """
    found = analysis(scheme, steps)
    if len(found.bounds) != 1:
        raise UnsupportedError("two runs together bound the scheme's epsilon: expected one run")
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
        UnsupportedError: the verifier has no independent analysis of this scheme.
    """
    # Refuse the schemes that the independent analyses do not cover.
    if scheme.trust is TrustModel.LOCAL:
        least_seen, most_seen = seen_runs(scheme, steps)
        return Analysis(() if least_seen is None else (least_seen,), (most_seen,), METHOD)
    noise = scheme.randomizer
    if not isinstance(noise, GaussianNoise):
        raise UnsupportedError(_unknown_randomizer(noise))
    if scheme.trust is not TrustModel.CENTRAL or scheme.release is ReleaseRule.AVERAGED:
        raise UnsupportedError(
            f"no independent analysis is known of {scheme.release.value} releases under "
            f"{scheme.trust.value} trust: use aggregated or one-client releases and central trust"
        )
    if steps:
        _WINDOWS.require(scheme.participation)
    # The windows from below: an adversary observes the presence of the client alone in its steps.
    alone, form = noise.noise_multiplier, normal_form(scheme.participation)
    lower = _runs(form, alone, steps)[0]
    replaced = scheme.relation is Relation.REPLACE_ONE
    always = all(type(span.draw) is Always for span in form.spans)
    if always and (replaced or scheme.relation is Relation.ZERO_OUT):
        # Both worlds have the client in every step, under either release rule: the distribution is
        # exact, and no bound over the client's absence is needed.
        run = _runs(form, alone / 2 if replaced else alone, steps)[1]
        return Analysis((run,), (run,), "the exact distribution of every step")
    # The windows from above; where one client a step sends, the client may displace another.
    one_client = scheme.release is ReleaseRule.ONE_CLIENT
    back = _runs(form, alone, steps)[1]
    upper = _displacing(form, alone, steps) if one_client else back
    attacks = _attacks(form, lower) if one_client else ()
    # Under replace-one the bound from above passes over the null record, as two runs.
    if replaced:
        lowers = (lower, tuple(map(_sum_opposed, lower)), *attacks)
        return Analysis(
            lowers, (upper, upper), "opposite records' sums below, over the null record above"
        )
    # Under the other relations one run bounds ε from above, unless another client is displaced.
    if not one_client:
        exact = "the exact distribution of the client's slots"
        method = exact if lower == upper else "less than the client's slots below, more above"
        return Analysis((lower,), (upper,), method)
    if scheme.relation is Relation.ADD_REMOVE:
        method = "alone or displacing one client below, any other clients above"
        return Analysis((lower, *attacks), (upper,), method)
    return Analysis((lower,), (upper, back), "alone below, over the null record above")


def _displacing(form: Form, noise: float, steps: int) -> Windows:
    """Run that bounds ε from above if a client's update may displace another client's update.

    If a release sums several steps, the client shifts the release by up to twice the clip norm.
    """
    if _is_stepwise(form):
        run = _runs(form, noise, steps)[1]
        return tuple(replace(window, others=Others.WORST) for window in run)
    return _runs(form, noise / 2, steps)[1]


def _attacks(form: Form, run: Windows) -> tuple[Windows, ...]:
    """Runs that bound ε from below: ``run`` with a second client of opposite update in each step.

    The result is empty if a release sums several steps.
    """
    opposed = tuple(replace(window, others=Others.OPPOSED) for window in run)
    return (opposed,) if run and _is_stepwise(form) else ()


def _is_stepwise(form: Form) -> bool:
    """Whether each release of a window is of one step, not a sum over several steps."""
    return all(type(span.draw) in (Bernoulli, OneOf, Staggered) for span in form.spans)


def _sum_opposed(window: Window) -> Window:
    """Window that bounds ε from below, between opposite records.

    The adversary observes only the sum of the window's releases.
    """
    return replace(window, noise=window.noise * window.steps**0.5, steps=1, opposed=True)


def _runs(form: Form, noise: float, steps: int) -> tuple[Windows, Windows]:
    """Windows for a lower and an upper bound on ε between the client's presence and absence."""
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
    """Complete windows, and the incomplete one, which may end before the client's slot."""
    whole = Window(noise, window, probability, full)
    return whole, Window(noise, max(rest, 1), probability * rest / window)


def _staggered(draw: Staggered, noise: float, full: int, rest: int) -> tuple[Windows, Windows]:
    """Windows of a client whose own windows may extend beyond the last step."""
    whole, begun = min(draw.steps, draw.window), min(rest, draw.window)
    run = (
        Window(noise, whole, whole / draw.window, full),
        Window(noise, max(begun, 1), begun / draw.window),
    )
    return run, run


def _kept(draw: Kept, noise: float, full: int, rest: int) -> tuple[Windows, Windows]:
    """Runs of a client whose slot repeats in every epoch of a block.

    In an incomplete block with at least one complete epoch, an incomplete epoch counts as complete
    in the bound from above, and is left out of the bound from below.
    """
    window, probability = draw.slot.steps, draw.slot.probability
    whole = Window(noise / draw.epochs**0.5, window, probability, full)
    epochs, left = divmod(rest, window)
    if epochs == 0:
        run = (whole, Window(noise, max(left, 1), probability * left / window))
        return run, run
    least, most = (Window(noise / n**0.5, window, probability) for n in (epochs, epochs + 1))
    return (whole, least), (whole, most if left else least)


def _k_of(draw: KOf, noise: float, full: int, rest: int) -> tuple[Windows, Windows]:
    """Runs of a client that takes part in k random steps of each window.

    The bound from above reveals a uniform partition of the window into k blocks whose sizes differ
    by at most one. A uniform step of each block gives a uniform subset of k steps, and an adversary
    who knows the partition observes k windows. The bound from below uses the sum of the
    releases of each window of t steps. The client shifts this sum by k, and the noise of the sum is
    √t times the noise of one step. The sums of all windows add up to one Gaussian. An incomplete
    window counts as complete in the bound from above, and is left out of the bound from below.
    """
    # One pick: the window is exact.
    if draw.picks == 1:
        run = _check_ins(noise, draw.steps, 1.0, full, rest)
        return run, run
    # From above: k blocks a window, of two sizes; an incomplete window counts as complete.
    begun = full + (rest > 0)
    size, longer = divmod(draw.steps, draw.picks)
    upper = (
        Window(noise, size + 1, 1.0, longer * begun),
        Window(noise, size, 1.0, (draw.picks - longer) * begun),
    )
    # From below: the sum of all complete windows.
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
"""Function for each draw that returns the windows of whole blocks and of the incomplete block."""
