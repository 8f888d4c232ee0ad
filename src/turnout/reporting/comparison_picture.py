"""The picture of a comparison: ε by method, and how many times the first method's it is."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from turnout.accounting import Side
from turnout.accounting.published import Status
from turnout.plans.sweeps import Comparison, Curve, ShuffleSweep
from turnout.reporting.drawing import Picture
from turnout.reporting.palette import DASHED, DOTTED, LOOKS, SOLID
from turnout.reporting.words import rounded_up

_SYMBOLS = {"epsilon0": "ε₀", "delta": "δ", "noise multiplier": "noise multiplier σ"}


def comparison_picture(comparison: Comparison) -> Picture:
    """ε against what was swept, in one panel; in the other, over the first method's ε."""
    asked, swept = comparison.asked, (comparison.asked.against or "delta").replace("-", " ")
    ours, first = _epsilons(comparison.curves[0]), LOOKS[comparison.curves[0].method.name].words
    x_label = _SYMBOLS.get(swept, swept)

    def draw(axes: list[Axes], ink: str) -> None:
        for curve in comparison.curves:
            if not curve.empty:
                _draw(axes[0], comparison, curve, np.ones(ours.size))
                _draw(axes[1], comparison, curve, ours)
        axes[0].set_title(_setting(comparison))
        axes[1].axhline(1.0, color=ink, linewidth=0.8, zorder=1)
        axes[1].set_title(f"Ratio to {first}")
        for axis, y_label in zip(axes, ("ε", "ratio"), strict=True):
            axis.set(xlabel=x_label, ylabel=y_label)
            axis.set_xlim(comparison.values[0], comparison.values[-1])
            _scale(axis)

    known = ours[~np.isnan(ours)]
    fall = f"; the least of {first} is {rounded_up(float(known.min()))}" if known.size else ""
    text = (
        f"ε by method against {swept} from {comparison.values[0]:g} to "
        f"{comparison.values[-1]:g}{fall}."
    )
    what = "shuffled messages" if isinstance(asked, ShuffleSweep) else "taking part"
    title = f"ε of {what} against {x_label}, by analysis"
    return Picture("comparison", title, text, draw, panels=2)


def _setting(comparison: Comparison) -> str:
    """What stays fixed, in one line."""
    asked = comparison.asked
    fixed = asked.fixed() | ({"clients": asked.clients} if asked.clients else {})
    fixed.pop("delta", None)
    told = [
        f"{_SYMBOLS.get(name, name.replace('_', ' '))} {value:,g}" for name, value in fixed.items()
    ]
    delta = "" if asked.delta is None else f" at δ = {asked.delta:g}"
    return f"ε{delta}, {asked.relation.value}: {', '.join(told)}"


def _draw(axis: Axes, comparison: Comparison, curve: Curve, divisor: np.ndarray) -> None:
    """One method's line and its bracket; `palette` has what kinds of line say."""
    method, values = curve.method, np.array(comparison.values, dtype=float)
    kind, note, look = SOLID, "", LOOKS[method.name]
    if comparison.relation(method) is not comparison.asked.relation:
        kind, note = DASHED, f", {comparison.relation(method).value}"
    elif method.directions == ("remove",):
        kind, note = DOTTED, ", remove only"
    elif method.side is Side.LOWER:
        kind = DOTTED
    elif method.status is not Status.PROVED:
        kind, note = DASHED, f", {method.status.value}"
    high = _epsilons(curve)
    high = np.where(high > _vacuous_above(comparison), np.nan, high) / divisor
    axis.plot(values, high, label=look.words + note, **look.line(kind))
    low = _epsilons(curve, lower=True) / divisor
    axis.fill_between(values, low, high, color=look.colour, alpha=0.25, linewidth=0)


def _vacuous_above(comparison: Comparison) -> np.ndarray:
    """The ε of shuffled messages without any shuffler: more than that need not be drawn."""
    if not isinstance(comparison.asked, ShuffleSweep):
        return np.full(len(comparison.values), np.inf)
    settings = [comparison.asked.at(value) for value in comparison.values]
    return np.array([at["epsilon0"] * at.get("rounds", 1) for at in settings])


def _scale(axis: Axes) -> None:
    """Logarithms on both axes, with numbers as people write them."""
    axis.set_xscale("log")
    axis.set_yscale("log")
    for side, subs in ((axis.xaxis, (1.0, 2.0, 5.0)), (axis.yaxis, (1.0,))):
        side.set_major_locator(LogLocator(subs=subs, numticks=12))
        side.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        side.set_minor_formatter(NullFormatter())


def _epsilons(curve: Curve, *, lower: bool = False) -> np.ndarray:
    """Upper (lower) bounds, NaN where there is none or it is 0, which no logarithm has."""
    found = [
        None if isinstance(quote, str) else quote.epsilon_lower if lower else quote.epsilon
        for quote in curve.quotes
    ]
    values = np.array([np.nan if value is None else value for value in found], dtype=float)
    return np.where(values > 0, values, np.nan)
