"""Audits: lower bounds on ε by experiment, beside the proved ones."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from turnout.api import audited
from turnout.api.prices import Result
from turnout.core import checks
from turnout.core.bounds import Bounds
from turnout.core.errors import ParameterError, UnsupportedError
from turnout.core.optional import require
from turnout.schemes import Scheme, TrustModel

if TYPE_CHECKING:
    from rich.table import Table

    from turnout.auditing import Findings, OneRun
    from turnout.plans import Plan
    from turnout.reporting.drawing import Picture

TRIALS, CONFIDENCE, CANARIES, FEWEST = 100_000, 0.999, 10_000, 100
MOST_CANARIES = 1_000_000
SERVED_TRIALS = 10_000
Tell = Callable[[int, int], None]


@dataclass(frozen=True, eq=False, repr=False)
class Audit(Result):
    """A finished audit.

    Attributes:
        found: what was played, what is proved and what was found.
        scheme: what was audited, where it is a scheme or a plan.
    """

    found: Findings | OneRun
    scheme: Scheme | None = None

    @property
    def epsilon(self) -> Bounds:
        """The proved bounds on ε of what was audited."""
        return self.found.stated.epsilon

    @property
    def epsilon_lower(self) -> float:
        """The lower bound on ε that was found, at `confidence`."""
        return self.found.epsilon_lower

    @property
    def confidence(self) -> float:
        """The chance that no lower bound here exceeds the true ε is at least this."""
        return self.found.confidence

    @property
    def consistent(self) -> bool:
        """Whether nothing was found that exceeds what is proved."""
        return self.found.consistent

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON-ready values; ``epsilon`` is the proved upper bound."""
        from turnout.reporting.audits import audit_record

        return audit_record(self.found)

    def table(self) -> Table:
        """The table that the command line prints, for rich to print."""
        from turnout.reporting.audits import audit_table

        return audit_table(self.found)

    def plot(self) -> Picture:
        """True positives by false positives: what was counted beside what is proved.

        Raises:
            MissingExtraError: the extra `plots` is not installed.
            UnsupportedError: one run has too few guesses for a curve.
        """
        require("plots", what="plot")
        from turnout.auditing import Findings
        from turnout.reporting.audits import audit_picture

        if not isinstance(self.found, Findings):
            raise UnsupportedError("one run has too few guesses for a picture")
        return audit_picture(self.found, self._profile())

    def _profile(self) -> Any:
        """The curve of what was priced, where there is one that is quick."""
        from turnout.accounting.meaning.profile import profile_down_to

        if self.scheme is None or self.scheme.trust is not TrustModel.CENTRAL:
            return None
        try:
            return profile_down_to(self.scheme, self.found.stated.delta)
        except UnsupportedError:
            return None

    def _by(self) -> str:
        return "proved" if self.found.stated.terms else "stated"

    def __repr__(self) -> str:
        from turnout.reporting.words import rounded_down, rounded_up

        word, stated = "consistent" if self.consistent else "violated", self.found.stated
        said = "; ".join([f"δ = {stated.delta:g}", ", ".join(stated.terms.values())])
        return (
            f"Audit({word}: ε ≥ {rounded_down(self.epsilon_lower)} found at "
            f"{rounded_down(100 * self.confidence, 6)} %, "
            f"ε ≤ {rounded_up(self.epsilon.upper)} {self._by()}; "
            f"{said.removesuffix('; ')})"
        )


def audit(
    of: Any = None,
    *,
    example: str | None = None,
    worlds: tuple[Any, Any] | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    trials: int | None = None,
    confidence: float = CONFIDENCE,
    deployed: bool = False,
    served: bool = False,
    one_run: bool = False,
    canaries: int | None = None,
    seed: int = 0,
    tell: Tell = lambda done, of: None,
) -> Audit:
    """A lower bound on ε that an attacker reaches by experiment, beside the proved bounds.

    Many independent runs are played with and without one client, against the sampler and the
    mechanism that training runs. The event that tells the worlds apart is chosen on some trials and
    counted on the others. What is right is never found to be violated but with probability
    1 − ``confidence``.

    Args:
        of: a `Scheme` whose noise a trusted coordinator adds; a plan, as `train` takes it; a
            randomizer of `turnout.randomizers`; a mechanism of `turnout.bandits`; or a function of
            one input, such as an estimator, which draws its own randomness.
        example: an example plan by name, in place of ``of``.
        worlds: two neighbouring inputs of a function; of a randomizer two values, by default two
            that are far apart.
        epsilon: what a function states; a randomizer and a mechanism state their own.
        delta: δ; of a scheme, and what a function states. A plan has its own.
        trials: of each world, at least 100; by default 100,000, and 10,000 where ``served``.
        confidence: strictly between 0 and 1, of all directions together.
        deployed: the whole-number updates and noise of a deployment in place of a simulation's
            floats, of a scheme or a plan.
        served: a task of a plan as `turnout serve` runs it, with its database and restarts in place
            of the mechanism alone; the extras `service` and `train`.
        one_run: one training run with many canaries in place of many runs, of a scheme or a plan;
            at the largest δ, from the asked one down, at which its guesses can contradict the ε
            upper bound.
        canaries: of one run, by default 10,000.
        seed: names all random streams; it protects nobody.
        tell: is told the progress: how many are done, of how many.

    Raises:
        ParameterError: a value outside its domain, or nothing that can be audited.
        UnsupportedError: no game is known for it, or it has no price.

    >>> import turnout as tn
    >>> audit(tn.Scheme(tn.GaussianNoise(1.0), tn.CheckIn(10), "add-remove"), delta=1e-4,
    ...       trials=20_000).consistent
    True
    """
    _require_used(one_run, served, deployed, trials, canaries)
    trials = (SERVED_TRIALS if served else TRIALS) if trials is None else trials
    canaries = CANARIES if canaries is None else canaries
    checks.count(FEWEST, trials=trials)
    checks.count(2, canaries=canaries)
    checks.at_most(f"{MOST_CANARIES:,}", MOST_CANARIES, canaries=canaries)
    checks.open_unit(confidence=confidence)
    if delta is not None:
        checks.probability(delta=delta)
        if delta == 1:
            raise ParameterError("delta", delta, "below 1, where everything is private")
    if worlds is not None:
        _require_two(worlds)
    settings = {"trials": trials, "confidence": confidence, "seed": seed, "tell": tell}
    once = {"confidence": confidence, "seed": seed, "tell": tell, "canaries": canaries}
    if served and not (example is not None or _names_plan(of)):
        raise ParameterError("served", served, "False: it is of a plan")
    of_run = isinstance(of, Scheme) or example is not None or _names_plan(of)
    if of_run:
        audited.unused("of a scheme or a plan", worlds=worlds, epsilon=epsilon)
    if isinstance(of, Scheme):
        audited.unused("beside a scheme", example=example)
        asked = audited.given("delta", delta)
        return Audit(
            *audited.of_scheme(of, asked, once if one_run else settings, one_run, deployed)
        )
    if of_run:
        if delta is not None:
            raise ParameterError("delta", delta, "none with a plan, which has its own")
        plan = _plan(of, example)
        if served:
            return Audit(*audited.of_served_task(plan, settings))
        return Audit(*audited.of_plan(plan, once if one_run else settings, one_run, deployed))
    if one_run or deployed:
        name = "one_run" if one_run else "deployed"
        raise ParameterError(name, True, "False: it is of a scheme or a plan")
    return Audit(*audited.of_outputs(of, worlds, epsilon, delta, settings))


def _require_used(
    one_run: bool, served: bool, deployed: bool, trials: int | None, canaries: int | None
) -> None:
    """Refuses ways that exclude each other, and numbers that the chosen one does not use."""
    checks.flag(deployed=deployed, served=served, one_run=one_run)
    if deployed and one_run:
        raise ParameterError("deployed", deployed, "False with one_run, which is a simulation")
    if served and (deployed or one_run):
        raise ParameterError("served", served, "False with deployed and with one_run")
    if one_run:
        audited.unused("with one_run, which is one", trials=trials)
    else:
        audited.unused("without one_run", canaries=canaries)


def _require_two(worlds: Any) -> None:
    """Refuses anything but two worlds that differ."""
    try:
        first, second = worlds
    except (TypeError, ValueError):
        raise ParameterError("worlds", worlds, "two inputs") from None
    try:
        same = np.array_equal(np.asarray(first), np.asarray(second))
    except (TypeError, ValueError):  # of no shape: whoever wrote the function knows them
        same = False
    if same:
        raise ParameterError("worlds", worlds, "two inputs that differ")


def _names_plan(of: Any) -> bool:
    from turnout.plans import Plan

    return isinstance(of, str | os.PathLike | Mapping | Plan)


def _plan(of: Any, example: str | None) -> Plan | Path:
    from turnout.plans import Plan, example_plan

    if (of is None) == (example is None):
        raise ParameterError("of", of, "a plan or an example, one of them")
    if example is not None:
        return example_plan(example)
    return of if isinstance(of, Plan) else Plan.from_mapping(of) if _is_mapping(of) else Path(of)


def _is_mapping(of: Any) -> bool:
    return isinstance(of, Mapping)
