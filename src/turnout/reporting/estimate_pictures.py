"""The picture of a private estimate, with its error bars."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from turnout.estimation.private.answers import Frequencies, Mean
from turnout.reporting.drawing import Palette, Picture
from turnout.reporting.estimate_tables import order
from turnout.reporting.words import rounded_up

_READABLE = 40  # names that fit under an axis
_LONGEST = 14


def frequency_picture(found: Frequencies, labels: Sequence[str], top: int) -> Picture:
    """The most frequent items' shares, with their intervals."""
    chosen = order(found)[:top]
    wide = np.stack([found.population_low[chosen], found.population_high[chosen]])
    own = np.stack([found.low[chosen], found.high[chosen]])
    title = f"Frequencies, {_guarantee(found)}"
    said = f"{100 * found.confidence:g} % interval"
    return _picture(title, found.values[chosen], (wide, own), [labels[i] for i in chosen], said)


def mean_picture(found: Mean, names: Sequence[str], top: int) -> Picture:
    """The first coordinates, with two standard errors either way."""
    value = found.value[:top]
    wide, own = (
        np.stack([value - 2 * errors[:top], value + 2 * errors[:top]])
        for errors in (found.population_errors, found.noise_errors)
    )
    title = f"Mean, {_guarantee(found)}"
    return _picture(title, value, (wide, own), list(names[:top]), "± 2 standard errors")


def _guarantee(found: Frequencies | Mean) -> str:
    cost = found.cost
    delta = f", δ = {cost.delta:g}" if cost.delta else ""
    return f"{cost.trust}, ε = {rounded_up(cost.epsilon)}{delta}, {cost.relation}"


def _picture(
    title: str,
    values: np.ndarray,
    bars: tuple[np.ndarray, np.ndarray],
    names: list[str],
    said: str,
) -> Picture:
    """A thin bar about the population, a thick one about these clients where it is another."""
    (wide, own), places = bars, np.arange(values.size)
    same = np.array_equal(wide, own)
    about = "these clients, and their population" if same else "population: noise and sampling"

    def draw(axes: list[Axes], palette: Palette) -> None:
        axis = axes[0]
        # Not as errorbar's lengths: after post-processing a value may lie outside its interval.
        label = f"{said} ({about})"
        axis.vlines(places, wide[0], wide[1], color=palette.first, linewidth=1.6, label=label)
        if not same:
            label = f"{said} (these clients: noise alone)"
            axis.vlines(places, own[0], own[1], color=palette.ink, linewidth=4.0, label=label)
        axis.plot(places, values, "o", color=palette.second, markersize=4, label="estimate")
        axis.set_title(title)
        if len(names) <= _READABLE:
            # A dollar sign would begin a formula.
            short = [name[:_LONGEST].replace("$", r"\$") for name in names]
            axis.set_xticks(places, short, rotation=90, fontsize=8)
        axis.legend(fontsize=8)

    return Picture("estimate", "A private estimate", f"{title}; {values.size} values, {said}", draw)
