"""Meaning of an ε for one client, in words and as JSON.

`explanation_rows` returns the rows of a table, `explanation_record` JSON-ready values.
"""

from __future__ import annotations

from typing import Any

from turnout.accounting.meaning.explanation import EVEN, Explanation
from turnout.core.bounds import Bounds
from turnout.reporting.words import CLAIMS, RELATIONS, WATCHERS, of_unit, rounded_down, rounded_up

FALSE_POSITIVE_RATES = (0.001, 0.01, 0.1)
"""False positive rates at which `explanation_record` has the true positive rate."""
SHOWN_RATE = 0.01
"""False positive rate at which `explanation_rows` has the true positive rate."""
_NO_GAIN = 1e-5  # a smaller gain would be invisible in the printed percentages


def explanation_record(explanation: Explanation) -> dict[str, Any]:
    """JSON-ready values of an explanation: an upper and a lower bound on each quantity."""
    # Advantage, accuracy at each prior, true positive rates by direction, and the Gaussian fit.
    fit = explanation.fit
    return {
        **_named("advantage", explanation.advantage),
        "guesses": [_guess(explanation, prior) for prior in explanation.priors],
        "true_positive_rates": [
            {
                "false_positive_rate": rate,
                **{
                    name: _named("rate", explanation.true_positive_rate(name, rate))
                    for name in explanation.trade_offs
                },
            }
            for rate in FALSE_POSITIVE_RATES
        ],
        "gaussian": fit and {**_named("mu", fit.mu), "delta": fit.delta, "epsilon": fit.epsilon},
    }


def _guess(explanation: Explanation, prior: float) -> dict[str, float]:
    """JSON-ready accuracy and certainty of the best attacker at one prior."""
    sure = explanation.certainty(prior)
    return {
        "prior": prior,
        **_named("success", explanation.success(prior)),
        "success_without_looking": max(prior, 1.0 - prior),
        **_named("most_certain_of_presence", sure.presence),
        **_named("most_certain_of_absence", sure.absence),
    }


def explanation_rows(explanation: Explanation) -> dict[str, str]:
    """Explanation in words: rows of name and text, upper bounds rounded up."""
    relation = explanation.guarantee.relation
    bounded = _bounded_below(explanation)
    # Accuracy at even odds, with the two worlds that the attacker tells apart.
    rows = {
        "membership inference": f"accuracy {_percent(explanation.success(EVEN), bounded)}; chance "
        f"level 50 %. {WATCHERS[explanation.guarantee.trust]} guesses, at even odds, which of two "
        f"worlds holds: {of_unit(RELATIONS[relation], explanation.guarantee.unit)}",
        "advantage": f"{_percent(explanation.advantage, bounded)}: true minus false "
        "positives, at the best threshold",
    }
    # Accuracy at further priors.
    rows |= {
        f"prior {100 * prior:g} %": _prior_in_words(explanation, prior)
        for prior in explanation.priors
    }
    # The larger true positive rate of both directions.
    worst = Bounds(0.0, 0.0)
    for name in explanation.trade_offs:
        worst = worst | explanation.true_positive_rate(name, SHOWN_RATE)
    blind = f"{100 * SHOWN_RATE:g} %"
    rows["true positives"] = (
        f"{_percent(worst, bounded)} at {blind} false positives; chance level {blind}"
    )
    return {**rows, "Gaussian": _gaussian(explanation)}


def _bounded_below(explanation: Explanation) -> bool:
    """Whether a lower bound on the success of an attacker is known."""
    return bool(explanation.profile.worst.lower.any())


def _prior_in_words(explanation: Explanation, prior: float) -> str:
    """Accuracy and certainty of an attacker with the given prior, in words."""
    bounded = _bounded_below(explanation)
    success, blind = explanation.success(prior), max(prior, 1.0 - prior)
    gain = success.upper - blind
    right = f"{_percent(success, bounded)} of the time, without looking {100 * blind:g} %"
    if gain < _NO_GAIN:
        points = rounded_up(100 * gain, 2)
        right = f"{100 * blind:g} % of the time; looking adds at most {points} points"
    sure = explanation.certainty(prior)
    guarantee = explanation.guarantee
    claim, denial = (of_unit(one, guarantee.unit) for one in CLAIMS[guarantee.relation])
    return (
        f"the best guess is right {right}. But for a chance of δ = {guarantee.delta:g} "
        f"an attacker becomes {_percent(sure.presence, bounded)} sure that {claim}, and "
        f"{_percent(sure.absence, bounded)} sure that {denial}"
    )


def _gaussian(explanation: Explanation) -> str:
    """Smallest μ whose Gaussian trade-off lies below the proved one, in words."""
    fit = explanation.fit
    if fit is None:
        return "no Gaussian trade-off lies below what is proved"
    mu = rounded_up(fit.mu.upper, 5)
    least = f" (not below {rounded_down(fit.mu.lower, 5)})" if _bounded_below(explanation) else ""
    return (
        f"{mu}-GDP down to δ = {explanation.guarantee.delta:g}{least}: no easier than "
        f"telling a draw of N(0, 1) from one of N({mu}, 1)"
    )


def _named(name: str, bounds: Bounds) -> dict[str, float]:
    """The upper bound under ``name``, and the lower bound under the name with "_lower" appended."""
    return {name: bounds.upper, f"{name}_lower": bounds.lower}


def _percent(bounds: Bounds, bounded: bool) -> str:
    """Bounds as percentages, rounded outwards; only the upper bound if no lower one is known."""
    low, high = rounded_down(100 * bounds.lower), rounded_up(100 * bounds.upper)
    return f"at most {high} % (at least {low} %)" if bounded else f"at most {high} %"
