"""Pictures of answers: comparisons, explanations of an ε, and private estimates.

`comparison_picture`, `trade_off_picture`, `frequency_picture`, `level_picture` and `mean_picture`
show the same numbers as the tables of `turnout.reporting.comparison`, `explanation` and
`estimates`, and of `turnout.api.refine`. The modules of tables do not import Matplotlib, which is
an optional package.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from turnout.accounting import Side
from turnout.accounting.meaning.explanation import Explanation
from turnout.accounting.meaning.membership import TradeOff, gaussian_trade_off
from turnout.accounting.published import Status
from turnout.estimation.private.answers import Frequencies, Mean
from turnout.plans.sweeps import ComparisonCurve, ShuffleSweep, SweepComparison
from turnout.refinement import LevelEstimate
from turnout.reporting.drawing import DASHED, DOTTED, LOOKS, SOLID, Look, Picture
from turnout.reporting.estimates import order
from turnout.reporting.words import rounded_up

_SYMBOLS = {"epsilon0": "ε₀", "delta": "δ", "noise multiplier": "noise multiplier σ"}


def comparison_picture(comparison: SweepComparison) -> Picture:
    """Picture of each method's ε, and of the ratio of this ε to that of the first method.

    The horizontal axis shows the swept parameter.
    """
    asked, swept = comparison.sweep, (comparison.sweep.against or "delta").replace("-", " ")
    ours, first = _epsilons(comparison.curves[0]), LOOKS[comparison.curves[0].method.name].words
    x_label, looks = _SYMBOLS.get(swept, swept), _looks(comparison.curves)

    # Two panels: ε of each method, and its ratio to the first method's ε.
    def draw(axes: list[Axes], ink: str) -> None:
        for curve, look in zip(comparison.curves, looks, strict=True):
            if not curve.empty:
                _draw(axes[0], comparison, curve, look, np.ones(ours.size))
                _draw(axes[1], comparison, curve, look, ours)
        axes[0].set_title(_setting(comparison))
        axes[1].axhline(1.0, color=ink, linewidth=0.8, zorder=1)
        axes[1].set_title(f"Ratio to {first}")
        for axis, y_label in zip(axes, ("ε", "ratio"), strict=True):
            axis.set(xlabel=x_label, ylabel=y_label)
            axis.set_xlim(comparison.values[0], comparison.values[-1])
            _scale(axis)

    # The text alternative quotes the smallest ε of the first method.
    known = ours[~np.isnan(ours)]
    fall = f"; the least of {first} is {rounded_up(float(known.min()))}" if known.size else ""
    text = (
        f"ε by method against {swept} from {comparison.values[0]:g} to "
        f"{comparison.values[-1]:g}{fall}."
    )
    what = "shuffled messages" if isinstance(asked, ShuffleSweep) else "taking part"
    title = f"ε of {what} against {x_label}, by analysis"
    return Picture("comparison", title, text, draw, panels=2)


def _looks(curves: Sequence[ComparisonCurve]) -> list[Look]:
    """Colour, marker and legend text of each method, in the order of the methods.

    A method that is not in `LOOKS`, such as a participation that the user adds, gets a colour that
    no other drawn method has, as long as one is left.
    """
    names = [curve.method.name for curve in curves]
    drawn = {name for name, curve in zip(names, curves, strict=True) if not curve.empty}
    taken = {LOOKS[name].colour for name in drawn if name in LOOKS}
    left = {look.colour: look for look in LOOKS.values() if look.marker}
    spare = itertools.cycle(
        [look for colour, look in left.items() if colour not in taken] or list(left.values())
    )
    return [
        LOOKS[name] if name in LOOKS else replace(next(spare), words=curve.method.about)
        for name, curve in zip(names, curves, strict=True)
    ]


def _setting(comparison: SweepComparison) -> str:
    """Fixed parameters of a comparison, in one line."""
    asked = comparison.sweep
    fixed = asked.fixed() | ({"clients": asked.clients} if asked.clients else {})
    fixed.pop("delta", None)
    told = [
        f"{_SYMBOLS.get(name, name.replace('_', ' '))} {value:,g}" for name, value in fixed.items()
    ]
    delta = "" if asked.delta is None else f" at δ = {asked.delta:g}"
    return f"ε{delta}, {asked.relation.value}: {', '.join(told)}"


def _draw(
    axis: Axes,
    comparison: SweepComparison,
    curve: ComparisonCurve,
    look: Look,
    divisor: np.ndarray,
) -> None:
    """Draw one method's ε divided by ``divisor``, with a band from lower to upper bound."""
    # The kind of line and a note in the legend show what the bound guarantees; see `drawing`.
    method, values = curve.method, np.array(comparison.values, dtype=float)
    kind, note = SOLID, ""
    if comparison.relation(method) is not comparison.sweep.relation:
        kind, note = DASHED, f", {comparison.relation(method).value}"
    elif method.directions == ("remove",):
        kind, note = DOTTED, ", remove only"
    elif method.side is Side.LOWER:
        kind = DOTTED
    elif method.status is not Status.PROVED:
        kind, note = DASHED, f", {method.status.value}"
    # The upper bound as a line, where it is informative, and a band down to the lower bound.
    high = _epsilons(curve)
    high = np.where(high > _vacuous_above(comparison), np.nan, high) / divisor
    axis.plot(values, high, label=look.words + note, **look.line(kind))
    low = _epsilons(curve, lower=True) / divisor
    axis.fill_between(values, low, high, color=look.colour, alpha=0.25, linewidth=0)


def _vacuous_above(comparison: SweepComparison) -> np.ndarray:
    """ε without a shuffler at each value of the swept parameter; larger bounds are not drawn."""
    if not isinstance(comparison.sweep, ShuffleSweep):
        return np.full(len(comparison.values), np.inf)
    settings = [comparison.sweep.at(value) for value in comparison.values]
    return np.array([at["epsilon0"] * at.get("rounds", 1) for at in settings])


def _scale(axis: Axes) -> None:
    """Set logarithmic scales on both axes, with plain numbers."""
    axis.set_xscale("log")
    axis.set_yscale("log")
    for side, subs in ((axis.xaxis, (1.0, 2.0, 5.0)), (axis.yaxis, (1.0,))):
        side.set_major_locator(LogLocator(subs=subs, numticks=12))
        side.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        side.set_minor_formatter(NullFormatter())


def _epsilons(curve: ComparisonCurve, *, lower: bool = False) -> np.ndarray:
    """Upper bounds on ε, or lower bounds if ``lower``; NaN where a bound is 0 or unknown.

    A bound of 0 cannot be drawn on a logarithmic scale.
    """
    found = [
        None if isinstance(quote, str) else quote.epsilon_lower if lower else quote.epsilon
        for quote in curve.quotes
    ]
    values = np.array([np.nan if value is None else value for value in found], dtype=float)
    return np.where(values > 0, values, np.nan)


_RATES = np.unique(np.concatenate([np.geomspace(1e-4, 1.0, 241), np.linspace(0.0, 1.0, 201)]))


def trade_off_picture(explanation: Explanation) -> Picture:
    """Picture of an explanation in three panels.

    The panels show miss rates against false positive rates, true positive rates at small false
    positive rates, and the privacy profile δ(ε).
    """

    def draw(axes: list[Axes], ink: str) -> None:
        _trade_off(axes[0], explanation, ink)
        _rates(axes[1], explanation, ink)
        _profile(axes[2], explanation, ink)

    advantage = rounded_up(100 * explanation.advantage.upper, 3)
    epsilon = rounded_up(explanation.guarantee.epsilon.upper)
    text = (
        f"An attacker's true positive rate minus its false positive rate is at most {advantage} %; "
        f"ε = {epsilon} at δ = {explanation.guarantee.delta:g}."
    )
    return Picture("trade-off", "What an attacker can learn about one client", text, draw, panels=3)


def _trade_off(axis: Axes, explanation: Explanation, ink: str) -> None:
    """Draw a band between the trade-off's bounds, and lines for chance level and no privacy."""
    curve, look = TradeOff.of(explanation.profile).symmetric(), LOOKS["scheme"]
    lower, upper = curve.lower(_RATES), curve.upper(_RATES)
    # The chance level, the band, and the proved lower bound on the miss rate.
    axis.plot(_RATES, 1 - _RATES, color=ink, linestyle=DOTTED, label="chance level")
    axis.fill_between(_RATES, lower, upper, color=look.colour, alpha=0.35, linewidth=0)
    axis.plot(_RATES, lower, label=look.words, **look.line())
    # The Gaussian trade-off below the proved one, and the trade-off without privacy.
    if explanation.fit is not None:
        mu = explanation.fit.mu.upper
        label = f"{LOOKS['Gaussian DP'].words} (μ = {rounded_up(mu, 3)})"
        fit = {**LOOKS["Gaussian DP"].line(DASHED), "markevery": 40}
        axis.plot(_RATES, gaussian_trade_off(mu, _RATES), label=label, **fit)
    axis.plot([0, 0, 1], [1, 0, 0], color=ink, alpha=0.5, linewidth=1, label="no privacy")
    # Titles and limits of the axes.
    axis.set_title("Membership inference: the smallest miss rate at a false positive rate")
    axis.set_xlabel("false positive rate α")
    axis.set_ylabel("miss rate")
    axis.set_xlim(-0.01, 1)
    axis.set_ylim(-0.02, 1.02)


def _rates(axis: Axes, explanation: Explanation, ink: str) -> None:
    """Draw bounds on true positive rates at small false positive rates, for each direction."""
    # For each direction, a band between the bounds, and the upper bound as a line.
    alpha = _RATES[_RATES > 0]
    for name, curve in explanation.trade_offs.items():
        look, low, high = LOOKS[name], 1 - curve.upper(alpha), 1 - curve.lower(alpha)
        axis.fill_between(alpha, low, high, color=look.colour, alpha=0.35, linewidth=0)
        axis.plot(alpha, high, label=look.words, **look.line(), markevery=40)
    axis.plot(alpha, alpha, color=ink, linestyle=DOTTED, label="chance level")
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_title("Membership inference: the largest true positive rate, by direction")
    axis.set_xlabel("false positive rate α")
    axis.set_ylabel("true positive rate")
    axis.set_xlim(alpha[0], 1)
    axis.set_ylim(alpha[0], 1.3)


def _profile(axis: Axes, explanation: Explanation, ink: str) -> None:
    """Draw bounds on δ(ε) for each direction, and the pair (ε, δ) that is explained."""
    guarantee = explanation.guarantee
    floor = guarantee.delta / 10
    # For each direction, a band between the bounds on δ, and the upper bound as a line.
    for name, bounds in explanation.profile.directions.items():
        look, shown = LOOKS[name], bounds.upper > floor
        epsilons, high = bounds.epsilons[shown], bounds.upper[shown]
        low = np.maximum(bounds.lower[shown], floor)
        axis.fill_between(epsilons, low, high, color=look.colour, alpha=0.35, linewidth=0)
        every = max(1, epsilons.size // 8)
        axis.plot(epsilons, high, label=look.words, **look.line(), markevery=every)
    # The quoted point, on a logarithmic scale of δ.
    axis.plot(guarantee.epsilon.upper, guarantee.delta, "s", color=ink, label="the quoted (ε, δ)")
    axis.set_yscale("log")
    axis.set_title("δ upper bound at each ε, by direction")
    axis.set_xlabel("ε")
    axis.set_ylabel("δ")
    axis.set_xlim(left=0)
    axis.set_ylim(floor, 1)


_READABLE = 40  # largest number of names under an axis


_LONGEST = 14  # letters of a name under an axis
_LEVELS = 8  # number of looks of privacy levels; a ninth level has the first look again


def frequency_picture(found: Frequencies, labels: Sequence[str], top: int) -> Picture:
    """Picture of the estimated shares of the most frequent items, with confidence intervals.

    Args:
        found: the estimate.
        labels: name of each item, for all k items.
        top: largest number of items in the picture.
    """
    chosen = order(found)[:top]
    wide = np.stack([found.population_low[chosen], found.population_high[chosen]])
    own = np.stack([found.low[chosen], found.high[chosen]])
    said = f"{100 * found.confidence:g} % interval"
    values, names = found.values[chosen], [labels[i] for i in chosen]
    titles = f"Frequencies, {_guarantee(found)}", "item", "share of the clients"
    return _picture(titles, values, (wide, own), names, said)


def level_picture(
    levels: Sequence[LevelEstimate], labels: Sequence[str], confidence: float, top: int
) -> Picture:
    """Picture of items' shares at each privacy level, with confidence intervals.

    The picture contains the ``top`` items that have the largest shares at the first level.

    Args:
        levels: estimates at each privacy level.
        labels: name of each item, for all k items.
        confidence: coverage probability of an interval.
        top: largest number of items in the picture.
    """
    # The most frequent items of the first level, in the same places at each level.
    chosen = np.argsort(-levels[0].raw, kind="stable")[:top].tolist()
    names = [labels[int(item)] for item in chosen]
    said = f"{100 * confidence:g} % interval"
    shift = 0.6 / len(levels)

    # One group of points and intervals for each level, moved sideways.
    def draw(axes: list[Axes], _: str) -> None:
        (axis,), places = axes, np.arange(len(chosen))
        for number, level in enumerate(levels):
            at = places + (number - (len(levels) - 1) / 2) * shift
            low, high = level.interval(confidence)[:, chosen]
            look = LOOKS[f"level {1 + number % _LEVELS}"]
            axis.vlines(at, low, high, color=look.colour, linewidth=1.6)
            label = f"ε = {level.epsilon:g}, {said}"
            shares = level.frequencies[chosen]
            axis.plot(at, shares, look.marker, color=look.colour, markersize=4, label=label)
        axis.set(xlabel="item", ylabel="share of the clients")
        _name_places(axis, places, names)

    text = f"Shares of {len(chosen)} items at {len(levels)} levels, {said}, replace-one, local."
    return Picture("levels", "Frequencies by privacy level", text, draw)


def mean_picture(found: Mean, names: Sequence[str], top: int) -> Picture:
    """Picture of the first coordinates of an estimated mean, each ± two standard errors.

    Args:
        found: the estimate.
        names: name of each coordinate, for all d coordinates.
        top: largest number of coordinates in the picture.
    """
    value = found.value[:top]
    wide, own = (
        np.stack([value - 2 * errors[:top], value + 2 * errors[:top]])
        for errors in (found.population_errors, found.noise_errors)
    )
    titles = f"Mean, {_guarantee(found)}", "coordinate", "mean over the clients"
    return _picture(titles, value, (wide, own), list(names[:top]), "± 2 standard errors")


def _guarantee(found: Frequencies | Mean) -> str:
    """Trust model, ε, δ and relation of an estimate, in a few words."""
    cost = found.cost
    delta = f", δ = {cost.delta:g}" if cost.delta else ""
    return f"{cost.trust}, ε = {rounded_up(cost.epsilon)}{delta}, {cost.relation}"


def _picture(
    titles: tuple[str, str, str],
    values: np.ndarray,
    bars: tuple[np.ndarray, np.ndarray],
    names: list[str],
    said: str,
) -> Picture:
    """Picture of estimates, each with two intervals.

    The thin interval bounds the value in the population, the thick interval the value among the
    clients in the data.

    Args:
        titles: title of the panel, and labels of its two axes.
        values: estimates of the drawn items or coordinates, shape (places,).
        bars: lower and upper ends of the intervals, shape (2, places), first for the population,
            then for the clients in the data.
        names: names of the items or coordinates.
        said: kind of interval, for the legend.
    """
    (wide, own), places = bars, np.arange(values.size)
    same = np.array_equal(wide, own)
    about = "these clients, and their population" if same else "population: noise and sampling"

    title, x_label, y_label = titles

    def draw(axes: list[Axes], _: str) -> None:
        axis, look = axes[0], LOOKS["estimate"]
        shown = [("population", wide, about, 1.6)]
        if not same:
            shown.append(("these clients", own, "these clients: noise alone", 4.0))
        # `errorbar` needs values inside their intervals; post-processing may move them outside.
        for name, (low, high), whose, width in shown:
            label, colour = f"{said} ({whose})", LOOKS[name].colour
            axis.vlines(places, low, high, color=colour, linewidth=width, label=label)
        axis.plot(places, values, look.marker, color=look.colour, markersize=4, label=look.words)
        axis.set(title=title, xlabel=x_label, ylabel=y_label)
        _name_places(axis, places, names)

    return Picture(
        "estimate",
        f"A private estimate by {x_label}",
        f"{title}; {values.size} values, {said}",
        draw,
    )


def _name_places(axis: Axes, places: np.ndarray, names: Sequence[str]) -> None:
    """Write names under an axis, if there are at most `_READABLE`."""
    if len(names) <= _READABLE:
        # Matplotlib would read a dollar sign as the start of a formula.
        short = [name[:_LONGEST].replace("$", r"\$") for name in names]
        axis.set_xticks(places, short, rotation=90, fontsize=8)
