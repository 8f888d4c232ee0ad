"""The picture of a comparison: ε by method, and how many times the first method's it is."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from turnout.accounting import Side
from turnout.accounting.published import Status
from turnout.plans.comparisons import Comparison, Curve
from turnout.plans.sweeps import ShuffleSweep
from turnout.reporting.drawing import Palette, Picture
from turnout.reporting.words import rounded_up

_COLOURS = (
    *("#3b82c4", "#d9822b", "#2f9e6e", "#8e5bbf", "#c0504d", "#6b6b6b", "#a07820", "#20343f"),
    "#c2418f",
)
_SYMBOLS = {"epsilon0": "ε₀", "delta": "δ"}
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "")


def comparison_picture(comparison: Comparison) -> Picture:
    """ε against what was swept, in one panel; in the other, over the first method's ε."""
    asked, swept = comparison.asked, (comparison.asked.against or "delta").replace("-", " ")
    ours, first = _epsilons(comparison.curves[0]), comparison.curves[0].method.name
    shown = [(curve, i) for i, curve in enumerate(comparison.curves) if not curve.empty]

    def draw(axes: list[Axes], palette: Palette) -> None:
        for curve, index in shown:
            _draw(axes[0], comparison, curve, index, np.ones(ours.size))
            if index > 0:
                _draw(axes[1], comparison, curve, index, ours)
        at = "" if asked.delta is None else f" at δ = {asked.delta:g}"
        kind = "shuffled" if isinstance(asked, ShuffleSweep) else "central"
        axes[0].set_title(f"ε{at}, {asked.relation.value}, {kind}")
        axes[1].set_title(f"times the ε of {first}")
        axes[1].axhline(1.0, color=_COLOURS[0], linewidth=3)
        axes[1].set_xlabel(_SYMBOLS.get(swept, swept))
        for axis in axes:
            axis.set_xlim(comparison.values[0], comparison.values[-1])
            _scale(axis)
        axes[0].legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0, fontsize=8)

    known = ours[~np.isnan(ours)]
    fall = f"; {first}'s least is {rounded_up(float(known.min()))}" if known.size else ""
    text = (
        f"ε by method against {swept} from {comparison.values[0]:g} to "
        f"{comparison.values[-1]:g}{fall}."
    )
    return Picture("comparison", "What each way to come costs", text, draw, panels=2)


def _draw(
    axis: Axes, comparison: Comparison, curve: Curve, index: int, divisor: np.ndarray
) -> None:
    """One method's line: dashed: about another relation, or not proved; dotted: no guarantee."""
    method, values = curve.method, np.array(comparison.values, dtype=float)
    line, note = "-", ""
    if comparison.relation(method) is not comparison.asked.relation:
        line, note = "--", f" ({comparison.relation(method).value})"
    elif method.directions == ("remove",):
        line, note = ":", " (remove only)"
    elif method.side is Side.LOWER:
        line = ":"
    elif method.status is not Status.PROVED:
        line, note = "--", f" ({method.status.value})"
    high = _epsilons(curve)
    high = np.where(high > _vacuous_above(comparison), np.nan, high) / divisor
    style = _style(index)
    axis.plot(values, high, line, label=method.name + note, **style)
    low = _epsilons(curve, lower=True) / divisor
    axis.fill_between(values, low, high, color=style["color"], alpha=0.25, linewidth=0)


def _style(index: int) -> dict[str, Any]:
    """The style of a method's line; the first one has its colour for itself."""
    if index == 0:
        return {"color": _COLOURS[0], "linewidth": 3.0, "zorder": 3.0}
    again, which = divmod(index - 1, len(_COLOURS) - 1)
    # The same colour again comes with the markers turned by half.
    marker = _MARKERS[(1 + which + again * len(_MARKERS) // 2) % len(_MARKERS)]
    return {"color": _COLOURS[1 + which], "marker": marker, "markersize": 3.5, "linewidth": 1.2}


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
