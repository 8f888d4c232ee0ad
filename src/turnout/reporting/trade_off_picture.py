"""The picture of an explanation: which errors a guesser cannot avoid, and the curve δ(ε)."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes

from turnout.accounting.meaning.explanation import Explanation
from turnout.accounting.meaning.trade_off import TradeOff, gaussian_trade_off
from turnout.reporting.drawing import Palette, Picture
from turnout.reporting.words import rounded_up

_LEGEND = {"loc": "upper right", "fontsize": 8}
_RATES = np.unique(np.concatenate([np.geomspace(1e-4, 1.0, 241), np.linspace(0.0, 1.0, 201)]))


def trade_off_picture(explanation: Explanation) -> Picture:
    """Miss rate against false positives, true positives at small rates, and δ against ε."""

    def draw(axes: list[Axes], palette: Palette) -> None:
        _trade_off(axes[0], explanation, palette)
        _rates(axes[1], explanation, palette)
        _profile(axes[2], explanation, palette)

    advantage = rounded_up(100 * explanation.advantage.upper, 3)
    epsilon = rounded_up(explanation.guarantee.epsilon.upper)
    text = (
        f"Whoever tells the two worlds apart has true minus false positives of at most "
        f"{advantage} %; ε = {epsilon} at δ = {explanation.guarantee.delta:g}."
    )
    return Picture("trade-off", "What an attacker can do", text, draw, panels=3)


def _trade_off(axis: Axes, explanation: Explanation, palette: Palette) -> None:
    """The trade-off with its bracket, between chance and no privacy."""
    curve = TradeOff.of(explanation.profile).symmetric()
    lower, upper = curve.lower(_RATES), curve.upper(_RATES)
    axis.plot(_RATES, 1 - _RATES, color=palette.ink, linestyle=":", label="chance: 1 − α")
    axis.fill_between(_RATES, lower, upper, color=palette.first, alpha=0.35, linewidth=0)
    axis.plot(_RATES, lower, color=palette.first, label="this scheme, lower bound")
    if explanation.fit is not None:
        mu = explanation.fit.mu.upper
        label = f"{rounded_up(mu, 3)}-GDP"
        axis.plot(
            _RATES, gaussian_trade_off(mu, _RATES), "--", color=palette.second, lw=1, label=label
        )
    axis.plot([0, 0, 1], [1, 0, 0], color=palette.ink, alpha=0.5, linewidth=1, label="no privacy")
    axis.set_title("Errors that a guesser cannot avoid")
    axis.set_xlabel("false positive rate α")
    axis.set_ylabel("miss rate")
    axis.set_xlim(-0.01, 1)
    axis.set_ylim(-0.02, 1.02)
    axis.legend(**_LEGEND)


def _rates(axis: Axes, explanation: Explanation, palette: Palette) -> None:
    """True positives at small false positive rates, in both directions."""
    alpha = _RATES[_RATES > 0]
    for (name, curve), (colour, line) in zip(
        explanation.trade_offs.items(), _styles(palette), strict=False
    ):
        low, high = 1 - curve.upper(alpha), 1 - curve.lower(alpha)
        axis.fill_between(alpha, low, high, color=colour, alpha=0.35, linewidth=0)
        axis.plot(alpha, high, line, color=colour, label=name)
    axis.plot(alpha, alpha, color=palette.ink, linestyle=":", label="chance")
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_title("True positives at few false positives")
    axis.set_xlabel("false positive rate α")
    axis.set_ylabel("true positive rate")
    axis.set_xlim(alpha[0], 1)
    axis.set_ylim(alpha[0], 1.3)
    axis.legend(**{**_LEGEND, "loc": "lower right"})


def _profile(axis: Axes, explanation: Explanation, palette: Palette) -> None:
    """δ(ε) with brackets and the point that was asked for."""
    guarantee = explanation.guarantee
    floor = guarantee.delta / 10
    for (name, bounds), (colour, line) in zip(
        explanation.profile.directions.items(), _styles(palette), strict=False
    ):
        shown = bounds.upper > floor
        epsilons, high = bounds.epsilons[shown], bounds.upper[shown]
        low = np.maximum(bounds.lower[shown], floor)
        axis.fill_between(epsilons, low, high, color=colour, alpha=0.35, linewidth=0)
        axis.plot(epsilons, high, line, color=colour, label=name)
    axis.plot(guarantee.epsilon.upper, guarantee.delta, "o", color=palette.ink, label="quoted")
    axis.set_yscale("log")
    axis.set_title("δ against ε, upper bound")
    axis.set_xlabel("ε")
    axis.set_ylabel("δ")
    axis.set_xlim(left=0)
    axis.set_ylim(floor, 1)
    axis.legend(**_LEGEND)


def _styles(palette: Palette) -> tuple[tuple[str, str], tuple[str, str]]:
    """Colour and line of the first and the second direction."""
    return (palette.first, "-"), (palette.second, "--")
