"""The picture of a private estimate, with its error bars."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from turnout.estimation.private.answers import Frequencies, Mean
from turnout.reporting.drawing import Picture
from turnout.reporting.estimate_tables import order
from turnout.reporting.palette import LOOKS
from turnout.reporting.words import rounded_up

_READABLE = 40  # names that fit under an axis
_LONGEST = 14


def frequency_picture(found: Frequencies, labels: Sequence[str], top: int) -> Picture:
    """The most frequent items' shares, with their intervals."""
    chosen = order(found)[:top]
    wide = np.stack([found.population_low[chosen], found.population_high[chosen]])
    own = np.stack([found.low[chosen], found.high[chosen]])
    said = f"{100 * found.confidence:g} % interval"
    values, names = found.values[chosen], [labels[i] for i in chosen]
    titles = f"Frequencies, {_guarantee(found)}", "item", "share of the clients"
    return _picture(titles, values, (wide, own), names, said)


def mean_picture(found: Mean, names: Sequence[str], top: int) -> Picture:
    """The first coordinates, with two standard errors either way."""
    value = found.value[:top]
    wide, own = (
        np.stack([value - 2 * errors[:top], value + 2 * errors[:top]])
        for errors in (found.population_errors, found.noise_errors)
    )
    titles = f"Mean, {_guarantee(found)}", "coordinate", "mean over the clients"
    return _picture(titles, value, (wide, own), list(names[:top]), "± 2 standard errors")


def _guarantee(found: Frequencies | Mean) -> str:
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
    """A thin bar about the population, a thick one about these clients where it is another."""
    (wide, own), places = bars, np.arange(values.size)
    same = np.array_equal(wide, own)
    about = "these clients, and their population" if same else "population: noise and sampling"

    title, x_label, y_label = titles

    def draw(axes: list[Axes], _: str) -> None:
        axis, look = axes[0], LOOKS["estimate"]
        shown = [("population", wide, about, 1.6)]
        if not same:
            shown.append(("these clients", own, "these clients: noise alone", 4.0))
        # Not as errorbar's lengths: after post-processing a value may lie outside its interval.
        for name, (low, high), whose, width in shown:
            label, colour = f"{said} ({whose})", LOOKS[name].colour
            axis.vlines(places, low, high, color=colour, linewidth=width, label=label)
        axis.plot(places, values, look.marker, color=look.colour, markersize=4, label=look.words)
        axis.set(title=title, xlabel=x_label, ylabel=y_label)
        if len(names) <= _READABLE:
            # A dollar sign would begin a formula.
            short = [name[:_LONGEST].replace("$", r"\$") for name in names]
            axis.set_xticks(places, short, rotation=90, fontsize=8)

    return Picture(
        "estimate",
        f"A private estimate by {x_label}",
        f"{title}; {values.size} values, {said}",
        draw,
    )
