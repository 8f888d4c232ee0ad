"""What a figure is made of, and how it becomes an SVG that is the same every time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FormatStrFormatter, NullLocator

from turnout.core.errors import NumericalError, UnsupportedError
from turnout.reporting.drawing import Palette, Picture

# By what a curve is, not by its figure; ours is the thick one. Colours differ in lightness too.
STYLES = {
    "turnout": {"color": "#c2410c", "linewidth": 2.4, "zorder": 5},
    "local": {"color": "#6b7280", "linestyle": ":"},
    "shuffling": {"color": "#a16207", "linestyle": "-."},
    "poisson": {"color": "#1d4ed8", "linestyle": "--"},
    "poisson rdp": {"color": "#60a5fa", "linestyle": "--"},
    "theorem 3.2": {"color": "#7c3aed", "linestyle": "-.", "marker": "x", "markersize": 4},
    "variance": {"color": "#c084fc", "linestyle": "-"},
    "theorem 4.1": {"color": "#15803d"},
    "rdp": {"color": "#0f766e", "marker": "o", "markersize": 3},
    "dong": {"color": "#be185d", "marker": "s", "markersize": 3},
}


@dataclass(slots=True)
class Curve:
    """One line of a panel.

    Attributes:
        label: in the legend.
        style: a key of `STYLES`.
        values: one a point of the panel's grid; NaN where the method gives none.
        changes: of the style.
    """

    label: str
    style: str
    values: list[float]
    changes: dict = field(default_factory=dict)


@dataclass(slots=True)
class Panel:
    """One pair of axes.

    Attributes:
        title: what stays fixed.
        x: the grid.
        x_label: what x is.
        y_label: what y is.
        curves: the lines.
        scales: of x and y, "log" or "linear".
        limits: smallest and largest y shown, None for what the curves need.
        ticks: of x and y where powers of ten are too few.
        legend: whether it stands beside the panel.
    """

    title: str
    x: Sequence[float]
    x_label: str
    y_label: str
    curves: list[Curve]
    scales: tuple[str, str] = ("log", "log")
    limits: tuple[float | None, float | None] = (None, None)
    ticks: tuple[Sequence[float], Sequence[float]] = ((), ())
    legend: bool = True


def line(
    label: str,
    style: str,
    grid: Sequence[float],
    value: Callable[[float], float],
    changes: dict | None = None,
) -> Curve:
    """A curve point by point; NaN where the method refuses. Prints what it found."""
    values = []
    for x in grid:
        try:
            values.append(value(x))
        except (UnsupportedError, NumericalError):
            values.append(math.nan)
    shown = " ".join("-" if math.isnan(v) else f"{v:.4g}" for v in values)
    print(f"  {label}: {shown}", flush=True)
    return Curve(label, style, values, changes or {})


def relative(panel: Panel, top: float) -> Panel:
    """Every curve divided by ours, the one in the style "turnout" that comes first."""
    ours = next(curve for curve in panel.curves if curve.style == "turnout")
    curves = [
        Curve(
            curve.label,
            curve.style,
            [value / own for value, own in zip(curve.values, ours.values, strict=True)],
            curve.changes,
        )
        for curve in panel.curves
    ]
    shown = [tick for tick in (1, 1.5, 2, 3, 5, 10, 20) if tick <= top]
    return replace(
        panel,
        title="how far above ours",
        y_label=f"{panel.y_label} over turnout's",
        curves=curves,
        scales=(panel.scales[0], "log"),
        limits=(0.9, top),
        ticks=(panel.ticks[0], shown),
        legend=False,
    )


def picture(name: str, title: str, text: str, panels: Sequence[Panel]) -> Picture:
    """The panels one above the other."""

    def draw(axes: list[Axes], palette: Palette) -> None:
        for axis, panel in zip(axes, panels, strict=True):
            for curve in panel.curves:
                style = {"label": curve.label, **STYLES[curve.style], **curve.changes}
                axis.plot(panel.x, curve.values, **style)
            axis.set_xscale(panel.scales[0])
            axis.set_yscale(panel.scales[1])
            axis.set_ylim(*panel.limits)
            for side, ticks in zip((axis.xaxis, axis.yaxis), panel.ticks, strict=True):
                if ticks:
                    side.set_major_locator(FixedLocator(ticks))
                    side.set_major_formatter(FormatStrFormatter("%g"))
                    side.set_minor_locator(NullLocator())
            axis.set(xlabel=panel.x_label, ylabel=panel.y_label, title=panel.title)
            if panel.legend:
                axis.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8)

    return Picture(name, title, text, draw, len(panels))
