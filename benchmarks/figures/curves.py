"""Curves and panels of a figure, drawn as an SVG file whose bytes are reproducible."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FormatStrFormatter, NullLocator

from turnout.core.errors import NumericalError, UnsupportedError
from turnout.reporting.drawing import DASHED, DOTTED, LOOKS, SOLID, Picture

MOST_MARKERS = 16

KINDS = {
    **dict.fromkeys(("RDP 4.6", "alloc. 3.2", "alloc. variance", "alloc. 4.1", "Dong"), DOTTED),
    **dict.fromkeys(("attained", "RDP below"), DOTTED),
    **dict.fromkeys(("Poisson", "Poisson RDP"), DASHED),
}
"""Kinds of line that are not solid, by meaning: see `turnout.reporting.drawing`.

The papers' bounds for random allocation cover only the *remove* direction, and the values of ε of
Poisson sampling are not certified.
"""


@dataclass(slots=True)
class Curve:
    """One curve of a panel.

    Attributes:
        meaning: a key of `LOOKS`.
        values: one value for each grid point; NaN where the method has no answer.
        words: text in the legend.
    """

    meaning: str
    values: list[float]
    words: str


@dataclass(slots=True)
class Panel:
    """One pair of axes.

    Attributes:
        title: the fixed parameters.
        x: the grid.
        x_label: meaning of x.
        y_label: meaning of y.
        curves: the curves.
        scales: scales of x and y, "log" or "linear".
        limits: smallest and largest y shown; None for the range of the curves.
        ticks: ticks of x and y where powers of ten are too few.
    """

    title: str
    x: Sequence[float]
    x_label: str
    y_label: str
    curves: list[Curve]
    scales: tuple[str, str] = ("log", "log")
    limits: tuple[float | None, float | None] = (None, None)
    ticks: tuple[Sequence[float], Sequence[float]] = ((), ())


def line(
    meaning: str, grid: Sequence[float], value: Callable[[float], float], words: str = ""
) -> Curve:
    """Curve computed and printed point by point; NaN where the method raises an error.

    ``words`` is the legend text, if it differs from that of the meaning.
    """
    values = []
    for x in grid:
        try:
            values.append(value(x))
        except (UnsupportedError, NumericalError):
            values.append(math.nan)
    shown = " ".join("-" if math.isnan(v) else f"{v:.4g}" for v in values)
    curve = Curve(meaning, values, words or LOOKS[meaning].words)
    print(f"  {curve.words}: {shown}", flush=True)
    return curve


def relative(panel: Panel, top: float) -> Panel:
    """Panel in which every curve is divided by turnout's curve."""
    ours = next(curve for curve in panel.curves if curve.meaning == "turnout")
    curves = [
        replace(curve, values=[v / own for v, own in zip(curve.values, ours.values, strict=True)])
        for curve in panel.curves
    ]
    shown = [tick for tick in (1, 1.5, 2, 3, 5, 10, 20) if tick <= top]
    return replace(
        panel,
        title="Ratio to turnout's upper bound",
        y_label=f"ratio of {panel.y_label}",
        curves=curves,
        scales=(panel.scales[0], "log"),
        limits=(0.9, top),
        ticks=(panel.ticks[0], shown),
    )


def picture(name: str, title: str, text: str, panels: Sequence[Panel], columns: int = 1) -> Picture:
    """Picture with the panels in rows."""

    def draw(axes: list[Axes], _: str) -> None:
        for axis, panel in zip(axes, panels, strict=True):
            for curve in panel.curves:
                look = LOOKS[curve.meaning].line(KINDS.get(curve.meaning, SOLID))
                every = -(-len(panel.x) // MOST_MARKERS)
                axis.plot(panel.x, curve.values, label=curve.words, markevery=every, **look)
            axis.set_xscale(panel.scales[0])
            axis.set_yscale(panel.scales[1])
            axis.set_ylim(*panel.limits)
            for side, ticks in zip((axis.xaxis, axis.yaxis), panel.ticks, strict=True):
                if ticks:
                    side.set_major_locator(FixedLocator(ticks))
                    side.set_major_formatter(FormatStrFormatter("%g"))
                    side.set_minor_locator(NullLocator())
            axis.set(xlabel=panel.x_label, ylabel=panel.y_label, title=panel.title)

    return Picture(name, title, text, draw, len(panels), columns)
