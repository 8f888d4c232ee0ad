"""The best attacker against a scheme, as functions of its privacy profile.

docs/explanation.md says what each number is and what is proved about it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from turnout.accounting.guarantee import Guarantee
from turnout.accounting.meaning.gaussian_dp import GaussianFit, gaussian_fit
from turnout.accounting.meaning.membership import Certainty, bayes_success, certainty
from turnout.accounting.meaning.profile import Profile, profile_down_to
from turnout.accounting.meaning.trade_off import TradeOff
from turnout.core import checks
from turnout.core.bounds import Bounds
from turnout.core.errors import NumericalError
from turnout.schemes import Relation, Scheme

EVEN = 0.5
"""The prior of somebody who thinks both worlds equally likely."""


@dataclass(frozen=True, eq=False)
class Explanation:
    """A scheme's price, as what the best attacker can do.

    ``priors``: what an attacker may think beforehand, `EVEN` first. ``fit``: the Gaussian trade-off
    below the scheme's, None where there is none.
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
        """Accuracy of the best attack."""
        return bayes_success(self.profile, prior)

    def true_positive_rate(self, direction: str, rate: float) -> Bounds:
        """True positives at a false positive rate."""
        curve = self.trade_offs[direction]
        found = curve.true_positive_rate(rate)
        # Under replace-one either world may be the first one.
        return found | curve.inverse().true_positive_rate(rate) if direction == "replace" else found

    def certainty(self, prior: float) -> Certainty:
        """Bounds on how sure an attacker becomes of either claim, but for a chance of δ each."""
        return certainty(self.profile, prior, self.guarantee.delta)


def explain(scheme: Scheme, guarantee: Guarantee, prior: float | None = None) -> Explanation:
    """The meaning of a scheme's guarantee for one client.

    ``prior``: what an attacker thinks beforehand, strictly between 0 and 1, besides `EVEN`.

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
    except NumericalError:  # two neighbour bounds may prove no more at ε = 0 than δ ≤ 1
        fit = None
    return Explanation(guarantee, priors, profile, fit)
