"""The release rules: whom a step asks, and what it makes of the answers.

| symbol | here | |
|---|---|---|
| C | ``clip_norm_l2`` | ℓ2 bound of one update |
| σ | ``noise_multiplier`` | noise standard deviation over C |
| b | ``minibatch`` | steps accumulated before the model moves |
| n̄ | ``expected_check_ins`` | public number that divides an aggregated sum |

The three rules are closed on purpose: a fourth one needs an analysis before it needs code.
docs/design/protocols.md says what each is worth under which relation.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from turnout.core import checks
from turnout.core.aggregates import Noise, UpdateSum
from turnout.core.errors import ParameterError
from turnout.protocol.messages import ClientIds
from turnout.randomness import Source
from turnout.spec import ReleaseRule, Scheme


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """What a rule makes of one step: a direction, or the reason why there is none."""

    direction: NDArray[np.float64] | None
    skipped: bool = False


@dataclass(frozen=True, slots=True)
class AggregatedRule:
    """Aggregated check-ins: everybody's sum, one Gaussian, a public divisor.

    Guarantees: noise of standard deviation σC is in every release, also when nobody came;
    the divisor is a constant of the run, whoever came.
    """

    noise_std: float
    expected_check_ins: float
    client_noise_allowed = False

    def select(self, arrived: ClientIds, source: Source) -> ClientIds:
        """Everybody who checked in."""
        return arrived

    def release(
        self, updates: UpdateSum, pending: NDArray[np.float64], last: bool, noise: Noise
    ) -> Outcome:
        """(sum + one draw of noise) / expected check-ins."""
        noisy = updates.total + noise(self.noise_std, updates.dimension)
        return Outcome(noisy / self.expected_check_ins)


@dataclass(frozen=True, slots=True)
class OneClientRule:
    """Algorithm 1 of the check-in paper: one uniform client of those who came, or a dummy.

    Guarantees: at most one update is asked for; noise of standard deviation σC is in every
    step, also in a dummy one; the model moves in every b-th step only, by the mean of b steps.
    """

    noise_std: float
    minibatch: int
    client_noise_allowed = True

    def select(self, arrived: ClientIds, source: Source) -> ClientIds:
        """One of those who checked in, uniformly; nobody if nobody did."""
        if arrived.size == 0:
            return arrived
        return arrived[source.below(arrived.size, 1)]

    def release(
        self, updates: UpdateSum, pending: NDArray[np.float64], last: bool, noise: Noise
    ) -> Outcome:
        """The mean of b noisy steps where a minibatch is full; ``pending`` is moved on."""
        if updates.count == 0:
            noisy = noise(self.noise_std, updates.dimension)
        else:
            noisy = updates.with_noise(self.noise_std, noise).total
        filled = pending + noisy
        if not last:
            pending[:] = filled
            return Outcome(None)
        pending[:] = 0.0
        return Outcome(filled / self.minibatch)


@dataclass(frozen=True, slots=True)
class AveragedRule:
    """Algorithm 2 of the check-in paper: the mean of the noisy updates of all who came.

    Guarantees: every update in the mean carries its own noise of standard deviation σC; a
    step to which nobody came is left out. The divisor and the skips show the counts.
    """

    noise_std: float
    client_noise_allowed = True

    def select(self, arrived: ClientIds, source: Source) -> ClientIds:
        """Everybody who checked in."""
        return arrived

    def release(
        self, updates: UpdateSum, pending: NDArray[np.float64], last: bool, noise: Noise
    ) -> Outcome:
        """Mean of the client-noised updates, or a skip."""
        if updates.count == 0:
            return Outcome(None, skipped=True)
        return Outcome(updates.with_noise(self.noise_std, noise).total / updates.count)


Rule = AggregatedRule | OneClientRule | AveragedRule


def rule_for(
    scheme: Scheme,
    *,
    clip_norm_l2: float,
    expected_check_ins: float | None = None,
    minibatch: int = 1,
) -> Rule:
    """The rule that executes ``scheme.release`` with the scheme's noise.

    Args:
        scheme: names the rule and the noise multiplier σ.
        clip_norm_l2: C, the bound on the ℓ2 norm of each update.
        expected_check_ins: n̄ for `ReleaseRule.AGGREGATED`, a public constant; not used by the
            other rules.
        minibatch: b for `ReleaseRule.ONE_CLIENT`; 1 for the other rules.

    Raises:
        ParameterError: a value outside its domain, or a minibatch that the rule does not have.
    """
    checks.positive(clip_norm=clip_norm_l2)
    checks.count(minibatch=minibatch)
    noise_std = scheme.noise_multiplier * clip_norm_l2
    if scheme.release is ReleaseRule.ONE_CLIENT:
        return OneClientRule(noise_std, minibatch)
    if minibatch != 1:
        raise ParameterError("minibatch", minibatch, f"1 with release rule '{scheme.release}'")
    if scheme.release is ReleaseRule.AVERAGED:
        return AveragedRule(noise_std)
    checks.positive(expected_check_ins=expected_check_ins)
    assert expected_check_ins is not None
    return AggregatedRule(noise_std, expected_check_ins)
