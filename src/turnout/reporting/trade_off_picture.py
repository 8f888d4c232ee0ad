"""The picture of an explanation: which errors a guesser cannot avoid, and the curve δ(ε)."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes

from turnout.accounting.meaning.explanation import Explanation
from turnout.accounting.meaning.membership import TradeOff, gaussian_trade_off
from turnout.reporting.drawing import Picture
from turnout.reporting.palette import DASHED, DOTTED, LOOKS
from turnout.reporting.words import rounded_up

_RATES = np.unique(np.concatenate([np.geomspace(1e-4, 1.0, 241), np.linspace(0.0, 1.0, 201)]))


def trade_off_picture(explanation: Explanation) -> Picture:
    """Miss rate against false positives, true positives at small rates, and δ against ε."""

    def draw(axes: list[Axes], ink: str) -> None:
        _trade_off(axes[0], explanation, ink)
        _rates(axes[1], explanation, ink)
        _profile(axes[2], explanation, ink)

    advantage = rounded_up(100 * explanation.advantage.upper, 3)
    epsilon = rounded_up(explanation.guarantee.epsilon.upper)
    text = (
        f"Whoever tells the two worlds apart has true minus false positives of at most "
        f"{advantage} %; ε = {epsilon} at δ = {explanation.guarantee.delta:g}."
    )
    return Picture("trade-off", "What an attacker can learn about one client", text, draw, panels=3)


def _trade_off(axis: Axes, explanation: Explanation, ink: str) -> None:
    """The trade-off with its bracket, between chance level and no privacy."""
    curve, look = TradeOff.of(explanation.profile).symmetric(), LOOKS["scheme"]
    lower, upper = curve.lower(_RATES), curve.upper(_RATES)
    axis.plot(_RATES, 1 - _RATES, color=ink, linestyle=DOTTED, label="chance level")
    axis.fill_between(_RATES, lower, upper, color=look.colour, alpha=0.35, linewidth=0)
    axis.plot(_RATES, lower, label=look.words, **look.line())
    if explanation.fit is not None:
        mu = explanation.fit.mu.upper
        label = f"{LOOKS['Gaussian DP'].words} (μ = {rounded_up(mu, 3)})"
        fit = {**LOOKS["Gaussian DP"].line(DASHED), "markevery": 40}
        axis.plot(_RATES, gaussian_trade_off(mu, _RATES), label=label, **fit)
    axis.plot([0, 0, 1], [1, 0, 0], color=ink, alpha=0.5, linewidth=1, label="no privacy")
    axis.set_title("Membership inference: the smallest miss rate at a false positive rate")
    axis.set_xlabel("false positive rate α")
    axis.set_ylabel("miss rate")
    axis.set_xlim(-0.01, 1)
    axis.set_ylim(-0.02, 1.02)


def _rates(axis: Axes, explanation: Explanation, ink: str) -> None:
    """True positives at small false positive rates, in both directions."""
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
    """δ(ε) with brackets and the point that was asked for."""
    guarantee = explanation.guarantee
    floor = guarantee.delta / 10
    for name, bounds in explanation.profile.directions.items():
        look, shown = LOOKS[name], bounds.upper > floor
        epsilons, high = bounds.epsilons[shown], bounds.upper[shown]
        low = np.maximum(bounds.lower[shown], floor)
        axis.fill_between(epsilons, low, high, color=look.colour, alpha=0.35, linewidth=0)
        every = max(1, epsilons.size // 8)
        axis.plot(epsilons, high, label=look.words, **look.line(), markevery=every)
    axis.plot(guarantee.epsilon.upper, guarantee.delta, "s", color=ink, label="the quoted (ε, δ)")
    axis.set_yscale("log")
    axis.set_title("δ upper bound at each ε, by direction")
    axis.set_xlabel("ε")
    axis.set_ylabel("δ")
    axis.set_xlim(left=0)
    axis.set_ylim(floor, 1)
