"""`audit`: lower bounds on ε by experiment, to compare with the proved bounds.

An `Audit` is the result; `turnout.auditing` runs the experiments and computes the lower bounds.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from turnout.api.price import Result
from turnout.core import checks
from turnout.core.bounds import Bounds
from turnout.core.errors import NumericalError, ParameterError, UnsupportedError
from turnout.core.optional import require
from turnout.schemes import Relation, Scheme, TrustModel

if TYPE_CHECKING:
    from rich.table import Table

    from turnout.accounting import Guarantee
    from turnout.auditing import Findings, Game, OneRun, Statement
    from turnout.bandits import BatchMechanism as BanditMechanism
    from turnout.learning.algorithm import Algorithm
    from turnout.plans import Plan
    from turnout.protocol.mechanisms import Mechanism, SensitivityBound
    from turnout.runs.workload import Workload

    Played = tuple[Findings | OneRun, Scheme | None]

    from turnout.auditing import Findings, OneRun
    from turnout.reporting.drawing import Picture

TRIALS, CONFIDENCE, CANARIES, FEWEST = 100_000, 0.999, 10_000, 100
MOST_CANARIES = 1_000_000
SERVED_TRIALS = 10_000
Tell = Callable[[int, int], None]


@dataclass(frozen=True, eq=False, repr=False)
class Audit(Result):
    """Result of an audit: a lower bound on ε by experiment, and the proved bounds.

    Attributes:
        found: the experiment, the proved bounds, and the lower bounds by experiment.
        scheme: the audited scheme, or the scheme of the audited plan; None for other objects.
    """

    found: Findings | OneRun
    scheme: Scheme | None = None

    @property
    def epsilon(self) -> Bounds:
        """Proved bounds on ε of the audited object."""
        return self.found.stated.epsilon

    @property
    def epsilon_lower(self) -> float:
        """Lower bound on ε by experiment, which holds with probability `confidence`."""
        return self.found.epsilon_lower

    @property
    def confidence(self) -> float:
        """Lower bound on the probability that no lower bound of this audit exceeds the true ε."""
        return self.found.confidence

    @property
    def consistent(self) -> bool:
        """Whether no lower bound by experiment exceeds the proved upper bound."""
        return self.found.consistent

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready values of the whole audit; ``epsilon`` is the proved upper bound."""
        from turnout.reporting.audits import audit_record

        return audit_record(self.found)

    def table(self) -> Table:
        """Table of the bounds as a ``rich`` renderable, as ``turnout audit`` prints it."""
        from turnout.reporting.audits import audit_table

        return audit_table(self.found)

    def plot(self) -> Picture:
        """Picture of true against false positive rates: the measured rates and the proved bound.

        Raises:
            MissingExtraError: the extra `plots` is not installed.
            UnsupportedError: the audit used one run, whose guesses are too few for a curve.
        """
        require("plots", what="plot")
        from turnout.auditing import Findings
        from turnout.reporting.audits import audit_picture

        if not isinstance(self.found, Findings):
            raise UnsupportedError("an audit with one_run=True has too few guesses for a picture")
        return audit_picture(self.found, self._profile())

    def _profile(self) -> Any:
        """Privacy curve of the audited scheme; None without central trust or a known analysis."""
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
    """Lower bound on ε that an attack attains by experiment, together with the proved bounds.

    Many independent runs are simulated with and without one client (the two worlds), with the
    participation sampler and the mechanism that training uses. The event that distinguishes the two
    worlds is chosen on one part of the trials, and its probabilities are estimated on the other
    part. A correct claim is reported as violated with probability at most 1 − ``confidence``.

    Args:
        of: the audited object: a `Scheme` under central trust; a plan, as in `train`; a randomizer
            of `turnout.randomizers`; a mechanism of `turnout.bandits`; or a function of one input
            that draws its own randomness, such as an estimator.
        example: name of an example plan; given instead of ``of``.
        worlds: two neighbouring inputs of a function, or two inputs of a randomizer; for a
            randomizer None chooses two inputs that are far apart.
        epsilon: claimed ε of a function; None for every other object, which has its own ε.
        delta: δ of a scheme, or claimed δ of a function, at least 0 and below 1; None for a plan,
            which has its own δ.
        trials: number of trials in each world, at least 100; by default 100,000, or 10,000 if
            ``served`` is True.
        confidence: probability that all lower bounds hold together, strictly between 0 and 1.
        deployed: whether to use the integer updates and integer noise of a deployment instead of a
            simulation's floats; for a scheme or a plan.
        served: whether to audit the plan's task as `turnout serve` runs it, with its database and
            restarts; this needs the extras `service` and `train`.
        one_run: whether to audit one training run with many canaries instead of many runs; for a
            scheme or a plan. The audit then uses the largest of δ, δ/10, δ/100, … at which the
            guesses about the canaries can contradict the upper bound on ε.
        canaries: number of canaries of the one run, by default 10,000.
        seed: seed of all random streams; the simulated runs therefore have no privacy.
        tell: function that is called with the number of finished trials and the number of all
            trials.

    Returns:
        The proved bounds on ε and the lower bound by experiment, ``epsilon_lower``. With
        probability at least ``confidence``, ``epsilon_lower`` is not above the true ε.

    Raises:
        ParameterError: a value is outside its domain, or ``of`` cannot be audited.
        UnsupportedError: no audit or no sound analysis is known for the object.

    Source: for many runs, the confidence limits of Clopper and Pearson (1934). With ``one_run``:
    Steinke, Nasr and Jagielski, Privacy auditing with one (1) training run; and Mahloujifar, Melis
    and Chaudhuri, Auditing f-differential privacy in one run.

    >>> import turnout as tn
    >>> audit(tn.Scheme(tn.GaussianNoise(1.0), tn.CheckIn(10), "add-remove"), delta=1e-4,
    ...       trials=20_000).consistent
    True
    """
    # Each argument is within its domain and applies to the chosen audit.
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
            raise ParameterError("delta", delta, "a number of at least 0 and below 1")
    if worlds is not None:
        _require_two(worlds)
    # Settings of an audit with many trials, and of one with one run and canaries.
    settings = {"trials": trials, "confidence": confidence, "seed": seed, "tell": tell}
    once = {"confidence": confidence, "seed": seed, "tell": tell, "canaries": canaries}
    if served and not (example is not None or _names_plan(of)):
        raise ParameterError("served", served, "False, since a served audit needs a plan")
    of_run = isinstance(of, Scheme) or example is not None or _names_plan(of)
    if of_run:
        unused("of a scheme or a plan", worlds=worlds, epsilon=epsilon)
    # A scheme needs a δ.
    if isinstance(of, Scheme):
        unused("of a scheme", example=example)
        asked = given("delta", delta)
        return Audit(*of_scheme(of, asked, once if one_run else settings, one_run, deployed))
    # A plan has its own δ.
    if of_run:
        if delta is not None:
            raise ParameterError("delta", delta, "no value, since the plan has its own δ")
        plan = _plan(of, example)
        if served:
            return Audit(*of_served_task(plan, settings))
        return Audit(*of_plan(plan, once if one_run else settings, one_run, deployed))
    # A randomizer, a mechanism or a function.
    if one_run or deployed:
        name = "one_run" if one_run else "deployed"
        raise ParameterError(name, True, f"False, since {name} needs a scheme or a plan")
    return Audit(*of_outputs(of, worlds, epsilon, delta, settings))


def _require_used(
    one_run: bool, served: bool, deployed: bool, trials: int | None, canaries: int | None
) -> None:
    """Raise an error for arguments that conflict or that the chosen audit does not use."""
    checks.flag(deployed=deployed, served=served, one_run=one_run)
    if deployed and one_run:
        raise ParameterError(
            "deployed", deployed, "False with one_run=True, which simulates a training run"
        )
    if served and (deployed or one_run):
        raise ParameterError("served", served, "False with deployed=True or one_run=True")
    if one_run:
        unused("with one_run=True, which is a single trial", trials=trials)
    else:
        unused("without one_run=True", canaries=canaries)


def _require_two(worlds: Any) -> None:
    """Raise an error unless ``worlds`` consists of two different inputs."""
    try:
        first, second = worlds
    except (TypeError, ValueError):
        raise ParameterError("worlds", worlds, "two inputs") from None
    try:
        same = np.array_equal(np.asarray(first), np.asarray(second))
    except (TypeError, ValueError):  # The inputs are no arrays: they are not compared.
        same = False
    if same:
        raise ParameterError("worlds", worlds, "two inputs that differ")


def _names_plan(of: Any) -> bool:
    from turnout.plans import Plan

    return isinstance(of, str | os.PathLike | Mapping | Plan)


def _plan(of: Any, example: str | None) -> Plan | Path:
    from turnout.plans import Plan, example_plan

    if (of is None) == (example is None):
        raise ParameterError("of", of, "a plan or an example, exactly one of the two")
    if example is not None:
        return example_plan(example)
    return of if isinstance(of, Plan) else Plan.from_mapping(of) if _is_mapping(of) else Path(of)


def _is_mapping(of: Any) -> bool:
    return isinstance(of, Mapping)


# The experiment and the privacy claim for each kind of audited object. Each function returns the
# result of the experiment, and the scheme if a scheme was audited.

_CROWD = 10
"""Number of other clients in each step when a scheme is audited without a plan; also the divisor
of the sum of updates."""
_LEARNING = 0.25  # share of the trials that choose the event, if no ratio of likelihoods is known
_MOST_CROWD = 1000
_SMALLER = 9  # number of values δ, δ/10, δ/100, … that an audit with one run tries
_FREQUENT = 0.05
"""Second δ at which a scheme is audited: at a large δ fewer trials detect an error of a few per
cent."""


def given(name: str, value: float | None) -> float:
    """Value of a required argument.

    Raises:
        ParameterError: the value is None.
    """
    if value is None:
        raise ParameterError(name, value, "a number")
    return value


def unused(why: str, **arguments: object) -> None:
    """Raise an error for arguments that an audit would ignore; ``why`` describes the audit.

    Raises:
        ParameterError: one of the arguments is not None.
    """
    for name, value in arguments.items():
        if value is not None:
            raise ParameterError(name, value, f"no value for an audit {why}")


def stated_by(guarantee: Guarantee) -> Statement:
    """Privacy claim that an audit tests: the bounds on ε in each direction of a guarantee."""
    from turnout.auditing import Statement
    from turnout.reporting.audits import statement_terms

    terms = statement_terms(guarantee.relation.value, guarantee.unit.value, guarantee.trust.value)
    return Statement(guarantee.directions, guarantee.delta, terms)


def of_scheme(
    scheme: Scheme, delta: float, settings: dict[str, Any], one_run: bool, deployed: bool
) -> Played:
    """Audit of a scheme, with updates of norm 1 and ten other clients in each step."""
    from turnout.accounting import price
    from turnout.auditing import play, play_one_run
    from turnout.protocol.mechanisms import mechanism_for

    # One run with many canaries.
    if one_run:
        words = "one simulated run of the scheme"
        return play_one_run(scheme, words, _statements(scheme, delta), **settings), scheme

    # Many trials of the games, in which one canary takes part or not.
    bound = bound_of(scheme, 1.0, 1 if deployed else None)

    def mechanism(dimension: int) -> Mechanism:
        return mechanism_for(scheme, bound(dimension), expected_check_ins=float(_CROWD))

    games = with_simulation(games_of(scheme, mechanism, _CROWD, deployed), scheme, deployed)
    stated = stated_by(price(scheme, delta))
    settings["also"] = also_stated(scheme, delta)
    return play(games, _words("scheme", deployed), stated, **settings), scheme


def _words(what: str, deployed: bool) -> str:
    return f"releases of the {what}" + ", in a deployment's whole numbers" * deployed


def bound_of(
    scheme: Scheme, clip_norm: float, deployed: int | None
) -> Callable[[int], SensitivityBound]:
    """Function from the number of coordinates to the clipping of an update.

    The clipping is that of a simulation if ``deployed`` is None. Otherwise it is that of a
    deployment: the lattice of a model with ``deployed`` parameters, whatever the number of
    coordinates. The audit chooses this number, because each coordinate is one trial.
    """
    from turnout.protocol.lattice import Lattice
    from turnout.protocol.mechanisms import Clipping
    from turnout.schemes import GaussianNoise

    noise = scheme.randomizer
    if deployed is None or not isinstance(noise, GaussianNoise):
        return lambda dimension: Clipping(dimension, clip_norm)
    step = Lattice.for_noise(noise.noise_multiplier, clip_norm, deployed).step
    return lambda dimension: Lattice(step, clip_norm, dimension)


def also_stated(scheme: Scheme, delta: float) -> list[Statement]:
    """Further privacy claim, at δ = 0.05; empty if ``delta`` ≥ 0.05 or no bound is known."""
    from turnout.accounting import price
    from turnout.schemes.participation.availability_check_in import costliest_clients

    if delta >= _FREQUENT:
        return []
    try:
        return [stated_by(price(costliest_clients(scheme), _FREQUENT))]
    except (UnsupportedError, NumericalError):
        return []


def games_of(
    scheme: Scheme, mechanism: Callable[[int], Mechanism], crowd: int, deployed: bool = False
) -> list[Game]:
    """Two experiments: no other clients take part in the steps of a canary, or some do.

    The second experiment is left out if the release reveals the number of participants.
    """
    from turnout.auditing import ReleaseGame
    from turnout.auditing.releases import whole_noise

    alone = ReleaseGame(scheme, mechanism)
    if deployed:  # The deployed quantiser refuses updates that are longer than the clip norm.
        alone = replace(alone, noise=whole_noise, longest=1.0)
    if scheme.release.shows_counts:
        return [alone]
    beside = 1 if scheme.release.asks_one else crowd
    return [alone, replace(alone, crowd=beside)]


def with_simulation(
    games: list[Game],
    scheme: Scheme,
    deployed: bool = False,
    clip_norm: float = 1.0,
    divisor: float | None = None,
) -> list[Game]:
    """Experiments ``games``, the first replaced by a simulation with many canaries if possible."""
    from turnout.auditing import SimulationGame

    if deployed:
        return games
    try:
        alone = SimulationGame(scheme, clip_norm, divisor)
    except UnsupportedError:
        return games
    return [alone, *games[1:]]


def of_plan(plan: Plan | Path, settings: dict[str, Any], one_run: bool, deployed: bool) -> Played:
    """Audit of a plan, with the plan's participation, mechanism, divisor, clip norm and minibatch.

    Raises:
        UnsupportedError: the plan does not have central trust, or no sound analysis is known.
    """
    from turnout.auditing import play
    from turnout.plans import Plan, prepare, read_plan
    from turnout.protocol.mechanisms import mechanism_for, public_divisor
    from turnout.runs.workload import gather

    # The plan as `train` would run it: its data, its noise and its guarantee.
    place = Path() if isinstance(plan, Plan) else plan.parent
    if not isinstance(plan, Plan):
        plan = Plan.of_user(read_plan(plan), place, str(plan))
    workload = gather(plan, place)
    prepared = prepare(plan, workload.population, workload.participation)
    scheme = prepared.scheme
    _require_central(scheme)
    stated = stated_by(prepared.guarantee)
    divisor = public_divisor(scheme, workload.population, plan.protocol.expected_check_ins)
    # One training run with many canaries.
    if one_run:
        return _one_run_of(workload, scheme, plan.privacy.delta, divisor, settings)

    # Many trials of the games, with the plan's mechanism.
    coordinates = _model_of(workload).dimension if deployed else None
    bound = bound_of(scheme, plan.privacy.clip_norm, coordinates)

    def mechanism(dimension: int) -> Mechanism:
        return mechanism_for(
            scheme, bound(dimension), expected_check_ins=divisor, minibatch=plan.protocol.minibatch
        )

    settings["also"] = also_stated(scheme, plan.privacy.delta)
    crowd = min(max(round(divisor or 1.0), 1), _MOST_CROWD)
    games = games_of(scheme, mechanism, crowd, deployed)
    games = with_simulation(games, scheme, deployed, plan.privacy.clip_norm, divisor)
    return play(games, _words("plan", deployed), stated, **settings), scheme


def _require_central(scheme: Scheme) -> None:
    if scheme.trust is not TrustModel.CENTRAL:
        raise UnsupportedError(
            f"privacy.trust = {scheme.trust.value!r}: audit the clients' randomizer, "
            "turnout.audit(randomizer)"
        )


def of_served_task(plan: Plan | Path, settings: dict[str, Any]) -> Played:
    """Audit of the task that `turnout serve` would create from a plan.

    Raises:
        MissingExtraError: the extra `service` or `train` is not installed.
        UnsupportedError: the plan does not have central trust, or no sound analysis is known.
    """
    require("service", "train", what="an audit of a served task")
    from turnout.accounting import price
    from turnout.auditing import play
    from turnout.plans import Plan, read_plan
    from turnout.service.contract.charter import Timing
    from turnout.service.coordinator.new_task import new_task
    from turnout.service.coordinator.served_game import ServedGame

    text, place = (
        (plan.to_toml(), Path()) if isinstance(plan, Plan) else (read_plan(plan), plan.parent)
    )
    # Progress over the trials of both worlds.
    tell, of, done = settings.pop("tell"), 2 * settings["trials"], 0

    def count(played: int) -> None:
        nonlocal done
        done += played
        tell(done, of)

    # The task that a coordinator would serve, played with restarts.
    charter = new_task(text, place, Timing()).charter
    _require_central(charter.scheme)
    game, stated = ServedGame(charter, tell=count), stated_by(price(charter.scheme, charter.delta))
    settings["also"] = also_stated(charter.scheme, charter.delta)
    words = "a served task of the plan, with restarts"
    return play([game], words, stated, **settings), charter.scheme


def _statements(scheme: Scheme, delta: float) -> Iterator[Statement]:
    """Privacy claims of a scheme at δ, δ/10, δ/100, …, to be tested by the guesses of one run."""
    from turnout.accounting import price
    from turnout.schemes.participation.availability_check_in import costliest_clients

    for power in range(_SMALLER):
        try:
            found = price(costliest_clients(scheme), delta / 10**power)
        except NumericalError:
            if power == 0:
                raise
            return
        yield stated_by(found)


def _model_of(workload: Workload) -> Algorithm:
    require("train", what="an audit of a plan's own training")
    from turnout.runs.building import build_algorithm

    return build_algorithm(workload)


def _one_run_of(
    workload: Workload,
    scheme: Scheme,
    delta: float,
    divisor: float | None,
    settings: dict[str, Any],
) -> Played:
    """Audit by one training run of a plan, in which some clients are canaries."""
    from turnout.auditing import play_one_run

    algorithm = _model_of(workload)
    found = play_one_run(
        scheme,
        "one training run of the plan, canaries beside its clients",
        _statements(scheme, delta),
        beside=algorithm,
        clip_norm=algorithm.clip_norm,
        expected_check_ins=divisor,
        **settings,
    )
    return found, scheme


def of_outputs(
    of: Any,
    worlds: tuple[Any, Any] | None,
    epsilon: float | None,
    delta: float | None,
    settings: dict[str, Any],
) -> Played:
    """Audit of a bandit's mechanism, of a randomizer or of a function, from its outputs.

    Raises:
        ParameterError: an argument does not apply to the object, or the object is not a bandit's
            mechanism, a randomizer or a function.
        UnsupportedError: the mechanism has no proved ε.
    """
    from turnout.auditing import (
        OutputGame,
        Statement,
        messages_of,
        play,
        projection_of,
        released_by,
    )
    from turnout.bandits.mechanisms import BatchMechanism as BanditMechanism

    # The outputs in both worlds, and the claim about them.
    projected = None
    if isinstance(of, BanditMechanism):
        if worlds is not None:
            raise ParameterError("worlds", worlds, "no value, since a reward is +1 or −1")
        unused("of a mechanism, which has its own value", epsilon=epsilon, delta=delta)
        outputs, words, stated = _of_rewards(of)
    elif hasattr(of, "encode"):
        unused("of a randomizer, which has its own value", epsilon=epsilon)
        outputs, words = messages_of(of, worlds), f"messages of {type(of).__name__}"
        stated, projected = _of_message(of, delta), projection_of(of, worlds)
    elif callable(of) and worlds is not None:
        outputs, words = released_by(of, worlds), "outputs of a function"
        level = given("epsilon", epsilon)
        checks.non_negative(epsilon=level)
        stated = Statement({"replace": Bounds(0.0, level)}, given("delta", delta), {})
    # Anything else is refused.
    else:
        expected = (
            "a scheme, a plan, a randomizer, a bandit's mechanism, or a function and two worlds"
        )
        raise ParameterError("of", of, expected)
    # A part of the trials chooses the outputs that distinguish the two worlds.
    game = OutputGame(outputs, max(int(_LEARNING * settings["trials"]), 2), projected)
    return play([game], words, stated, **settings), None


def _of_rewards(mechanism: BanditMechanism) -> tuple[Any, str, Statement]:
    """Outputs of bandit runs in two worlds, their description, and the claim to be tested."""
    from turnout.auditing import RewardGame, Statement
    from turnout.bandits import Elimination
    from turnout.reporting.audits import statement_terms

    policy = Elimination(first=24, growth=2.0, commit=0.5, variances=False)
    asked = getattr(mechanism, "epsilon_asked", None)
    if asked is None or mechanism.trust is None:
        raise UnsupportedError(
            f"{type(mechanism).__name__} has no proved ε that an audit could test"
        )
    terms = statement_terms(Relation.REPLACE_ONE.value, "client", mechanism.trust.value)
    stated = Statement({"replace": Bounds(0.0, asked)}, mechanism.delta, terms)
    return RewardGame(mechanism, policy).outputs, "runs of a bandit of 48 pulls", stated


def _of_message(randomizer: Any, delta: float | None) -> Statement:
    """Privacy claim of a randomizer for one message: ε₀ if it is finite, else ε at δ."""
    from turnout.accounting import price
    from turnout.auditing import Statement
    from turnout.reporting.audits import statement_terms
    from turnout.schemes import EveryStep

    terms = statement_terms(Relation.REPLACE_ONE.value, "client", TrustModel.LOCAL.value)
    level = float(randomizer.epsilon0)
    if level < float("inf"):
        return Statement({"replace": Bounds(0.0, level)}, delta or 0.0, terms)
    scheme = Scheme(
        randomizer.priced_as, EveryStep(1), Relation.REPLACE_ONE, trust=TrustModel.LOCAL
    )
    return stated_by(price(scheme, given("delta", delta)))
