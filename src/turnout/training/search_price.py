"""The price of a search on private clients, and the noise with which it meets its target."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from turnout.core.bounds import Bounds
from turnout.core.errors import ParameterError
from turnout.plans import Plan, PreparedPlan
from turnout.plans.plan import TuneSection
from turnout.plans.preparation import MOST_STEPS
from turnout.schemes import EveryStep, GaussianNoise, Scheme
from turnout.training.held_out import HeldOut

if TYPE_CHECKING:
    from turnout.accounting import Guarantee, Stopping


@dataclass(frozen=True, slots=True, eq=False)
class SearchPrice:
    """The cost of a search on private clients.

    Attributes:
        guarantee: of the best run's model, its values and its score together, to every client.
        one_run: ε upper bound of one run alone, without search.
        stopping: the law of the number of runs, which is public; the number is not.
        noise_multiplier: of each run.
        score_deviation: standard deviation of the noise on a score.
    """

    guarantee: Guarantee
    one_run: float
    stopping: Stopping
    noise_multiplier: float
    score_deviation: float


def search_price(
    plan: Plan, section: TuneSection, held: HeldOut
) -> tuple[PreparedPlan, SearchPrice]:
    """A candidate's scheme and the price of the search, at most the plan's target.

    A client is in the runs or in their scores, never in both, so that the search costs it the
    larger of the two, not their sum.

    Raises:
        ParameterError: given noise does not meet the target.
        UnsupportedError: no sound analysis is known for this combination.
    """
    from turnout.accounting import calibrate_selection, price, selected

    privacy, law = plan.privacy, held.workload.law
    if law.steps > MOST_STEPS:
        raise ParameterError("participation.steps", law.steps, f"at most {MOST_STEPS:,} in all")
    stopping = stopping_law(section)

    def run(noise: float) -> Scheme:
        release, unit = plan.protocol.release, privacy.unit
        return Scheme(GaussianNoise(noise), law, privacy.relation, release, unit)

    def score(noise: float) -> Scheme:
        return Scheme(GaussianNoise(noise), EveryStep(1), privacy.relation, unit=privacy.unit)

    noise = privacy.noise_multiplier
    if noise is None:
        assert privacy.epsilon is not None
        noise, guarantee = calibrate_selection(run, stopping, privacy.epsilon, privacy.delta)
    else:
        guarantee = selected(run(noise), stopping, privacy.delta)
    target = privacy.epsilon or guarantee.epsilon.upper
    if guarantee.epsilon.upper > target:
        expected = f"at least {guarantee.epsilon.upper:.4g}, which the search costs with this noise"
        raise ParameterError("privacy.epsilon", target, expected)
    score_noise, of_score = calibrate_selection(score, stopping, target, privacy.delta)
    total = _larger(guarantee, of_score)
    found = SearchPrice(
        guarantee=total,
        one_run=price(run(noise), privacy.delta).epsilon.upper,
        stopping=stopping,
        noise_multiplier=noise,
        score_deviation=score_noise / held.clients,
    )
    return PreparedPlan(plan, held.workload.population, run(noise), total), found


def stopping_law(section: TuneSection) -> Stopping:
    """The law of the number of runs."""
    from turnout.accounting import Stopping

    mean = float(section.candidates)
    if section.stopping == "poisson":
        return Stopping.poisson(mean)
    return Stopping.negative_binomial(mean, 0.0 if section.stopping == "logarithmic" else 1.0)


def _larger(runs: Guarantee, scores: Guarantee) -> Guarantee:
    """The guarantee of the runs, raised to that of the scores where these cost more."""

    def raised(bounds: Bounds) -> Bounds:
        return Bounds(bounds.lower, max(bounds.upper, scores.epsilon.upper))

    directions = {name: raised(bounds) for name, bounds in runs.directions.items()}
    return replace(runs, epsilon=raised(runs.epsilon), directions=directions)
