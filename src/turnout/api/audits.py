"""Audits: lower bounds on ε by experiment, beside the proved ones."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from turnout.api.results import Result
from turnout.core import checks
from turnout.core.bounds import Bounds
from turnout.core.errors import NumericalError, ParameterError, UnsupportedError
from turnout.core.extras import require
from turnout.spec import Relation, Scheme, TrustModel

if TYPE_CHECKING:
    from rich.table import Table

    from turnout.accounting import Guarantee
    from turnout.auditing import Findings, Game, OneRun, Statement
    from turnout.bandits import Mechanism as BanditMechanism
    from turnout.learning.algorithm import Algorithm
    from turnout.plans import Plan
    from turnout.protocol.mechanisms import Mechanism, SensitivityBound
    from turnout.reporting.drawing import Picture
    from turnout.training.workload import Workload

TRIALS, CONFIDENCE, CANARIES, FEWEST = 100_000, 0.999, 1000, 100
_CROWD = 10
"""Other clients in each step where a scheme alone is audited, and the public divisor."""
_LEARNING = 0.25  # of the trials, by which a ratio is learned where none is known
_MOST_CROWD = 1000
_FREQUENT = 0.05
"""δ at which a scheme is audited besides: a mistake of a few per cent shows there first."""
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

    def __repr__(self) -> str:
        from turnout.reporting.words import rounded_down, rounded_up

        word, stated = "consistent" if self.consistent else "violated", self.found.stated
        said = "; ".join([f"δ = {stated.delta:g}", ", ".join(stated.terms.values())])
        return (
            f"Audit({word}: ε ≥ {rounded_down(self.epsilon_lower)} found at "
            f"{100 * self.confidence:g} %, ε ≤ {rounded_up(self.epsilon.upper)} proved; "
            f"{said.removesuffix('; ')})"
        )


def audit(
    of: Any = None,
    *,
    example: str | None = None,
    worlds: tuple[Any, Any] | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    trials: int = TRIALS,
    confidence: float = CONFIDENCE,
    deployed: bool = False,
    one_run: bool = False,
    canaries: int = CANARIES,
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
        trials: of each world, at least 100.
        confidence: strictly between 0 and 1, of all directions together.
        deployed: the whole-number updates and noise of a deployment in place of a simulation's
            floats, of a scheme or a plan.
        one_run: one training run with many canaries in place of many runs, of a scheme or a plan.
        canaries: of one run.
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
    checks.count(FEWEST, trials=trials)
    checks.count(2, canaries=canaries)
    checks.open_unit(confidence=confidence)
    settings = {"trials": trials, "confidence": confidence, "seed": seed, "tell": tell}
    once = {"confidence": confidence, "seed": seed, "tell": tell, "canaries": canaries}
    if deployed and one_run:
        raise ParameterError("deployed", deployed, "False with one_run, which is a simulation")
    if isinstance(of, Scheme):
        return _of_scheme(of, _given("delta", delta), once if one_run else settings, one_run,
                          deployed)  # fmt: skip
    if example is not None or isinstance(of, str | os.PathLike | Mapping) or _is_plan(of):
        if delta is not None:
            raise ParameterError("delta", delta, "none with a plan, which has its own")
        return _of_plan(_plan(of, example), once if one_run else settings, one_run, deployed)
    if one_run or deployed:
        name = "one_run" if one_run else "deployed"
        raise ParameterError(name, True, "False: it is of a scheme or a plan")
    return _of_outputs(of, worlds, epsilon, delta, settings)


def _given(name: str, value: float | None) -> float:
    if value is None:
        raise ParameterError(name, value, "a number")
    return value


def _is_plan(of: Any) -> bool:
    from turnout.plans import Plan

    return isinstance(of, Plan)


def _plan(of: Any, example: str | None) -> Plan | Path:
    from turnout.plans import Plan, example_plan

    if (of is None) == (example is None):
        raise ParameterError("of", of, "a plan or an example, one of them")
    if example is not None:
        return example_plan(example)
    return of if isinstance(of, Plan) else Plan.from_mapping(of) if _is_mapping(of) else Path(of)


def _is_mapping(of: Any) -> bool:
    return isinstance(of, Mapping)


def stated_by(guarantee: Guarantee) -> Statement:
    """The statement of a guarantee, direction by direction."""
    from turnout.auditing import Statement
    from turnout.reporting.audits import statement_terms

    terms = statement_terms(guarantee.relation.value, guarantee.unit.value, guarantee.trust.value)
    return Statement(guarantee.directions, guarantee.delta, terms)


def _of_scheme(
    scheme: Scheme, delta: float, settings: dict[str, Any], one_run: bool, deployed: bool
) -> Audit:
    """Of a scheme alone: updates of norm 1, ten other clients a step."""
    from turnout.accounting import price
    from turnout.auditing import play, play_one_run
    from turnout.protocol.mechanisms import mechanism_for

    if one_run:
        stated = stated_by(price(scheme, delta))
        return Audit(
            play_one_run(scheme, "one simulated run of the scheme", stated, **settings), scheme
        )

    bound = bound_of(scheme, 1.0, 1 if deployed else None)

    def mechanism(dimension: int) -> Mechanism:
        return mechanism_for(scheme, bound(dimension), expected_check_ins=float(_CROWD))

    games = games_of(scheme, mechanism, _CROWD, deployed)
    stated = stated_by(price(scheme, delta))
    settings["also"] = also_stated(scheme, delta)
    return Audit(play(games, _words("scheme", deployed), stated, **settings), scheme)


def _words(what: str, deployed: bool) -> str:
    return f"releases of the {what}" + ", in a deployment's whole numbers" * deployed


def bound_of(
    scheme: Scheme, clip_norm: float, deployed: int | None
) -> Callable[[int], SensitivityBound]:
    """The clipping of a simulation, or of a deployment of a model of so many coordinates.

    It is made for any number of coordinates, which stand for trials; the lattice stays the model's.
    """
    from turnout.protocol.clipping import Clipping
    from turnout.protocol.lattice import Lattice
    from turnout.spec import GaussianNoise

    noise = scheme.randomizer
    if deployed is None or not isinstance(noise, GaussianNoise):
        return lambda dimension: Clipping(dimension, clip_norm)
    step = Lattice.for_noise(noise.noise_multiplier, clip_norm, deployed).step
    return lambda dimension: Lattice(step, clip_norm, dimension)


def also_stated(scheme: Scheme, delta: float) -> list[Statement]:
    """The statement of a scheme at a δ at which events are frequent; none where it has no price."""
    from turnout.accounting import price
    from turnout.plans.preparation import costliest_clients

    if delta >= _FREQUENT:
        return []
    try:
        return [stated_by(price(costliest_clients(scheme), _FREQUENT))]
    except (UnsupportedError, NumericalError):
        return []


def games_of(
    scheme: Scheme, mechanism: Callable[[int], Mechanism], crowd: int, deployed: bool = False
) -> list[Game]:
    """The canary alone in its steps, and among others where that can make a difference."""
    from turnout.auditing import ReleaseGame
    from turnout.auditing.releases import whole_noise

    alone = ReleaseGame(scheme, mechanism)
    if deployed:  # what quantises an update refuses one that was not clipped
        alone = replace(alone, noise=whole_noise, longest=1.0)
    if scheme.release.shows_counts:
        return [alone]
    beside = 1 if scheme.release.asks_one else crowd
    return [alone, replace(alone, crowd=beside)]


def _of_plan(plan: Plan | Path, settings: dict[str, Any], one_run: bool, deployed: bool) -> Audit:
    """Of a plan: its law, its mechanism with its divisor, clip norm and minibatch."""
    from turnout.auditing import play
    from turnout.plans import Plan, prepare, read_plan
    from turnout.protocol.mechanisms import mechanism_for, public_divisor
    from turnout.training.workload import gather

    place = Path() if isinstance(plan, Plan) else plan.parent
    if not isinstance(plan, Plan):
        plan = Plan.from_toml(read_plan(plan), str(plan))
    workload = gather(plan, place)
    prepared = prepare(plan, workload.population, workload.law)
    scheme = prepared.scheme
    if scheme.trust is not TrustModel.CENTRAL:
        raise UnsupportedError(
            f"privacy.trust = {scheme.trust.value!r}: audit the clients' randomizer, "
            "turnout.audit(randomizer)"
        )
    stated = stated_by(prepared.guarantee)
    divisor = public_divisor(scheme, workload.population, plan.protocol.expected_check_ins)
    if one_run:
        return _one_run_of(workload, scheme, stated, divisor, settings)

    coordinates = _model_of(workload).dimension if deployed else None
    bound = bound_of(scheme, plan.privacy.clip_norm, coordinates)

    def mechanism(dimension: int) -> Mechanism:
        return mechanism_for(
            scheme, bound(dimension), expected_check_ins=divisor, minibatch=plan.protocol.minibatch
        )

    settings["also"] = also_stated(scheme, plan.privacy.delta)
    crowd = min(max(round(divisor or 1.0), 1), _MOST_CROWD)
    games = games_of(scheme, mechanism, crowd, deployed)
    return Audit(play(games, _words("plan", deployed), stated, **settings), scheme)


def _model_of(workload: Workload) -> Algorithm:
    require("train", what="an audit of a plan's own training")
    from turnout.training.building import build_algorithm

    return build_algorithm(workload)


def _one_run_of(
    workload: Workload,
    scheme: Scheme,
    stated: Statement,
    divisor: float | None,
    settings: dict[str, Any],
) -> Audit:
    """The plan's own training with canaries beside its clients."""
    from turnout.auditing import play_one_run

    algorithm = _model_of(workload)
    found = play_one_run(
        scheme,
        "one training run of the plan, canaries beside its clients",
        stated,
        beside=algorithm,
        clip_norm=algorithm.clip_norm,
        expected_check_ins=divisor,
        **settings,
    )
    return Audit(found, scheme)


def _of_outputs(
    of: Any,
    worlds: tuple[Any, Any] | None,
    epsilon: float | None,
    delta: float | None,
    settings: dict[str, Any],
) -> Audit:
    """Of a bandit's mechanism, a randomizer, or a function."""
    from turnout.auditing import OutputGame, Statement, messages_of, play, released_by
    from turnout.bandits.mechanisms import Mechanism as BanditMechanism

    if isinstance(of, BanditMechanism):
        if worlds is not None:
            raise ParameterError("worlds", worlds, "none: a reward is +1 or −1")
        outputs, words, stated = _of_rewards(of)
    elif hasattr(of, "encode"):
        outputs, words = messages_of(of, worlds), f"messages of {type(of).__name__}"
        stated = _of_message(of, delta)
    elif callable(of) and worlds is not None:
        outputs, words = released_by(of, worlds), "outputs of a function"
        bounds = Bounds(0.0, _given("epsilon", epsilon))
        stated = Statement({"replace": bounds}, _given("delta", delta), {})
    else:
        expected = (
            "a scheme, a plan, a randomizer, a bandit's mechanism, or a function and two worlds"
        )
        raise ParameterError("of", of, expected)
    game = OutputGame(outputs, max(int(_LEARNING * settings["trials"]), 2))
    return Audit(play([game], words, stated, **settings))


def _of_rewards(mechanism: BanditMechanism) -> tuple[Any, str, Statement]:
    """Runs of a bandit whose mechanism states an ε."""
    from turnout.auditing import RewardGame, Statement
    from turnout.bandits import Elimination
    from turnout.reporting.audits import statement_terms

    policy = Elimination(first=24, growth=2.0, commit=0.5, variances=False)
    asked = getattr(mechanism, "epsilon_asked", None)
    if asked is None or mechanism.trust is None:
        raise UnsupportedError(f"{type(mechanism).__name__} states no ε")
    terms = statement_terms(Relation.REPLACE_ONE.value, "client", mechanism.trust.value)
    stated = Statement({"replace": Bounds(0.0, asked)}, mechanism.delta, terms)
    return RewardGame(mechanism, policy).outputs, "runs of a bandit of 48 pulls", stated


def _of_message(randomizer: Any, delta: float | None) -> Statement:
    """The statement of a randomizer about one message."""
    from turnout.accounting import price
    from turnout.auditing import Statement
    from turnout.reporting.audits import statement_terms
    from turnout.spec import EveryStep

    terms = statement_terms(Relation.REPLACE_ONE.value, "client", TrustModel.LOCAL.value)
    level = float(randomizer.epsilon0)
    if level < float("inf"):
        return Statement({"replace": Bounds(0.0, level)}, delta or 0.0, terms)
    scheme = Scheme(randomizer.law, EveryStep(1), Relation.REPLACE_ONE, trust=TrustModel.LOCAL)
    return stated_by(price(scheme, _given("delta", delta)))
