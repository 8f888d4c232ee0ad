"""What an ε means for one person: bets, errors and certainties instead of a logarithm.

docs/explanation.md says what each number is and what is proved about it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from turnout.accounting.meaning.gaussian_dp import GaussianFit, gaussian_fit
from turnout.accounting.meaning.membership import Certainty, bayes_success, certainty
from turnout.accounting.meaning.profile import Profile, profile_down_to
from turnout.accounting.meaning.trade_off import TradeOff
from turnout.core import checks
from turnout.core.bounds import Bounds
from turnout.core.errors import NumericalError
from turnout.reporting.words import CLAIMS, RELATIONS, WATCHERS, rounded_down, rounded_up
from turnout.spec import Relation, Scheme

if TYPE_CHECKING:
    from turnout.accounting import Guarantee

EVEN = 0.5
"""The prior of somebody who thinks both worlds equally likely."""
FALSE_POSITIVE_RATES = (0.001, 0.01, 0.1)
"""At which true positive rates are told; the text tells that at `SHOWN_RATE`."""
SHOWN_RATE = 0.01
_NO_GAIN = 1e-5  # a gain that rounding a percentage would drown


@dataclass(frozen=True, eq=False)
class Explanation:
    """A scheme's price, as what the best attacker can do.

    Attributes:
        guarantee: the price that is explained.
        priors: what an attacker may think beforehand; the first is `EVEN`.
        profile: δ(ε), from which all else follows.
        fit: the Gaussian trade-off below the scheme's, None where there is none.
    """

    guarantee: Guarantee
    priors: tuple[float, ...]
    profile: Profile
    fit: GaussianFit | None

    @cached_property
    def trade_offs(self) -> dict[str, TradeOff]:
        """Error curves by what is claimed: each direction by its name in the guarantee."""
        forward = TradeOff.of(self.profile)
        if self.guarantee.relation is Relation.REPLACE_ONE:
            return {"replace": forward}
        return {"remove": forward, "add": forward.inverse()}

    @property
    def advantage(self) -> Bounds:
        """True minus false positives at the best threshold."""
        return TradeOff.of(self.profile).advantage

    def success(self, prior: float) -> Bounds:
        """How often the best guess is right."""
        return bayes_success(self.profile, prior)

    def found(self, direction: str, rate: float) -> Bounds:
        """True positives at a false positive rate."""
        curve = self.trade_offs[direction]
        found = curve.true_positive_rate(rate)
        # Under replace-one either world may be the first one.
        return found | curve.inverse().true_positive_rate(rate) if direction == "replace" else found

    def certainty(self, prior: float) -> Certainty:
        """Bounds on how sure an attacker becomes of either claim, but for a chance of δ each."""
        return certainty(self.profile, prior, self.guarantee.delta)

    def record(self) -> dict[str, Any]:
        """The explanation as JSON-ready values."""
        fit = self.fit
        return {
            **_named("advantage", self.advantage),
            "guesses": [self._guess(prior) for prior in self.priors],
            "true_positive_rates": [
                {
                    "false_positive_rate": rate,
                    **{name: _named("rate", self.found(name, rate)) for name in self.trade_offs},
                }
                for rate in FALSE_POSITIVE_RATES
            ],
            "gaussian": fit
            and {**_named("mu", fit.mu), "delta": fit.delta, "epsilon": fit.epsilon},
        }

    def _guess(self, prior: float) -> dict[str, float]:
        """What holds at one prior."""
        sure = self.certainty(prior)
        return {
            "prior": prior,
            **_named("success", self.success(prior)),
            "success_without_looking": max(prior, 1.0 - prior),
            **_named("most_certain_of_presence", sure.presence),
            **_named("most_certain_of_absence", sure.absence),
        }

    def rows(self) -> dict[str, str]:
        """The explanation in words, row by row."""
        relation = self.guarantee.relation
        rows = {
            "as a bet": f"two worlds: {RELATIONS[relation]}. {WATCHERS[self.guarantee.trust]} "
            "bets on one of them, at even odds. He wins "
            f"{_percent(self.success(EVEN))} of such bets; a coin wins 50 %",
            "advantage": f"{_percent(self.advantage)}: true minus false positives, at the best "
            "threshold",
        }
        rows |= {f"prior {100 * prior:g} %": self._prior_in_words(prior) for prior in self.priors}
        worst = Bounds(0.0, 0.0)
        for name in self.trade_offs:
            worst = worst | self.found(name, SHOWN_RATE)
        blind = f"{100 * SHOWN_RATE:g} %"
        rows["true positives"] = (
            f"{_percent(worst)} at {blind} false positives; a coin finds {blind}"
        )
        return {**rows, "Gaussian": self._gaussian()}

    def _prior_in_words(self, prior: float) -> str:
        """How often somebody with that prior is right, and how sure he becomes."""
        success, blind = self.success(prior), max(prior, 1.0 - prior)
        gain = success.upper - blind
        right = f"{_percent(success)} of the time, without looking {100 * blind:g} %"
        if gain < _NO_GAIN:
            points = rounded_up(100 * gain, 2)
            right = f"{100 * blind:g} % of the time; looking adds at most {points} points"
        sure = self.certainty(prior)
        claim, denial = CLAIMS[self.guarantee.relation]
        return (
            f"the best guess is right {right}. But for a chance of δ = {self.guarantee.delta:g} "
            f"an attacker becomes {_percent(sure.presence)} sure that {claim}, and "
            f"{_percent(sure.absence)} sure that {denial}"
        )

    def _gaussian(self) -> str:
        """The fit in words."""
        if self.fit is None:
            return "no Gaussian trade-off lies below what is proved"
        mu = rounded_up(self.fit.mu.upper, 5)
        return (
            f"{mu}-GDP down to δ = {self.guarantee.delta:g} (not below "
            f"{rounded_down(self.fit.mu.lower, 5)}): no easier than telling a draw of N(0, 1) from "
            f"one of N({mu}, 1)"
        )


def explain(scheme: Scheme, guarantee: Guarantee, prior: float | None = None) -> Explanation:
    """What a scheme's guarantee means for one client.

    Args:
        scheme: what happens.
        guarantee: its price.
        prior: what an attacker thinks beforehand, strictly between 0 and 1, besides `EVEN`.

    Raises:
        ParameterError: a prior out of range.
        UnsupportedError: clients have windows of their own.
        NumericalError: the profile cannot be certified down to the guarantee's δ.
    """
    priors = (EVEN,) if prior is None or prior == EVEN else (EVEN, prior)
    checks.open_unit(prior=priors[-1])
    marks = [abs(math.log((1.0 - prior) / prior)) for prior in priors]
    profile = profile_down_to(scheme, guarantee.delta, marks)
    try:
        fit = gaussian_fit(profile, guarantee.delta)
    except NumericalError:  # two hops may prove no more at ε = 0 than δ ≤ 1
        fit = None
    return Explanation(guarantee, priors, profile, fit)


def _named(name: str, bounds: Bounds) -> dict[str, float]:
    """Both bounds; the upper one by the name alone."""
    return {name: bounds.upper, f"{name}_lower": bounds.lower}


def _percent(bounds: Bounds) -> str:
    """Both bounds as percentages, rounded outwards."""
    low, high = rounded_down(100 * bounds.lower), rounded_up(100 * bounds.upper)
    return f"at most {high} % (at least {low} %)"
