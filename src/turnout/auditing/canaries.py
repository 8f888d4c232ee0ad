"""Audit by one training run with many canaries, through all parts of an ordinary run.

`play_one_run` plays the run; `epsilon_by_guesses` and `gaussian_mu_by_guesses` compute lower bounds
on ε and on μ of Gaussian DP from the number of correct guesses.

A canary is a client whose update has the length C along a coordinate in which all other updates are
0. Each canary is in the run with probability ½, independently; canaries outside the run send
nothing (or, under replace-one, the opposite update). Engine, coordinator, sampler and noise are
those of any simulated run, and the plan's model is trained in the same run. The canaries' updates
have the length C, so they need no clipping.

| symbol | here | |
|---|---|---|
| m | ``canaries`` | number of canaries, each in the run with probability ½ |
| r | ``guesses`` | number of canaries for which the audit guesses whether they were in the run |
| v | ``correct`` | number of correct guesses |
| β | ``error`` | the probability that a bound exceeds the true ε |
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, ndtr, ndtri
from scipy.stats import binom

from turnout.auditing.confidence import LOG_RATIOS, Statement, exponents
from turnout.core import checks
from turnout.core.aggregates import UpdateSum
from turnout.core.arrays import FloatArray
from turnout.core.bounds import bisected, grown
from turnout.core.errors import ParameterError, UnsupportedError
from turnout.core.showing import shows_shapes
from turnout.learning.algorithm import Algorithm, Batched, ClientStates, ServerState
from turnout.participation.schedule import blocks
from turnout.randomness import SimulationStreams
from turnout.schemes import GaussianNoise, Relation, ReleaseRule, Scheme
from turnout.schemes.normal_form import Always, Bernoulli, Kept, KOf, OneOf, normal_form
from turnout.simulation import Simulation

LARGEST_EPSILON = 60.0
"""Largest lower bound on ε or μ that a search returns."""
_SHARES = (1.0, 0.5, 0.25, 0.1, 0.05, 0.02, 0.01)
"""Shares of the canaries for which guesses are made; each share is a separate try."""
_NARROW = 1e-9


def p_value(canaries: int, guesses: int, correct: int, epsilon: float, delta: float) -> float:
    """Upper bound on the probability of at least v correct guesses in an (ε, δ)-DP run.

    Source: Steinke, Nasr and Jagielski, Privacy auditing with one (1) training run
        (steinke2023auditing), Theorem 5.2.

    Args:
        canaries: number of canaries m.
        guesses: number of guesses r, at most m; r may depend on the run's output.
        correct: number of correct guesses v, at most r.
        epsilon: ε, at least 0.
        delta: δ, from 0 to 1.

    Returns:
        Pr[Binomial(r, e^ε/(1 + e^ε)) ≥ v] + 2mδ·max_i Pr[v > Binomial ≥ v − i]/i, at most 1.

    Raises:
        ParameterError: more guesses than canaries, or more correct guesses than guesses.
    """
    checks.at_most("canaries", canaries, guesses=guesses)
    checks.at_most("guesses", guesses, correct=correct)
    rate = float(expit(epsilon))
    tail = float(binom.sf(correct - 1, guesses, rate))
    if delta == 0 or correct == 0:
        return min(tail, 1.0)
    i = np.arange(1, correct + 1)
    near = binom.sf(correct - i - 1, guesses, rate) - tail
    return min(tail + 2.0 * canaries * delta * float(np.max(near / i)), 1.0)


def epsilon_by_guesses(
    canaries: int, guesses: int, correct: int, delta: float, error: float
) -> float:
    """Lower bound on ε from correct guesses, above the true ε with probability at most ``error``.

    The bound is the largest ε, rounded down, whose `p_value` is at most ``error``; it is 0 if there
    is no such ε, and at most `LARGEST_EPSILON`. The source, the errors and the other arguments are
    those of `p_value`.

    >>> round(epsilon_by_guesses(1000, 100, 99, 1e-5, 0.05), 3)
    3.003
    """
    return _largest_refused(
        lambda epsilon: p_value(canaries, guesses, correct, epsilon, delta) <= error
    )


def _largest_refused(refused: Callable[[float], bool]) -> float:
    """Largest ε (or μ) that the test ``refused`` rejects, rounded down; 0 if it rejects none."""
    if not refused(0.0):
        return 0.0
    around = grown(lambda epsilon: not refused(epsilon), 1.0, LARGEST_EPSILON)
    if around is None:
        return LARGEST_EPSILON
    return bisected(lambda epsilon: not refused(epsilon), *around, gap=_NARROW).failing


def gaussian_mu_by_guesses(canaries: int, guesses: int, correct: int, error: float) -> float:
    """Lower bound on μ from correct guesses, for a run that is exactly μ-Gaussian DP.

    Source: Mahloujifar, Melis and Chaudhuri, Auditing f-differential privacy in one run
        (mahloujifar2025auditing), the audit by correct guesses, with the trade-off function
        G_μ. The bound does not apply to a run with another trade-off function.

    The arguments, the errors and the probability of failure are those of `epsilon_by_guesses`.
    """
    checks.at_most("guesses", guesses, correct=correct)

    def excess(mu: float) -> float:
        return _excess(canaries, guesses, correct, error, mu)

    if excess(0.0) <= 0.0:
        return 0.0
    high = 1.0
    while excess(high) > 0.0:
        high *= 2.0
        if high > LARGEST_EPSILON:
            return LARGEST_EPSILON
    return bisected(lambda mu: excess(mu) <= 0.0, 0.0, high, gap=_NARROW).failing


def _excess(canaries: int, guesses: int, correct: int, error: float, mu: float) -> float:
    """Number that is above 0 if μ-Gaussian DP is rejected by the correct guesses.

    The number is the least possible probability mass of guesses under μ-Gaussian DP minus the
    actual mass. In the loop, ``right`` is the least probability that a canary is guessed correctly
    and more than i guesses in all are correct; ``wrong`` is the same for a wrong guess. Each step
    from i to i − 1 applies the trade-off function to both.
    """
    right = error * correct / canaries
    wrong = error * (guesses - correct) / canaries
    for i in range(correct - 1, -1, -1):
        least = max(wrong, float(ndtr(ndtri(right) - mu)))
        if least == wrong:
            break
        more = min(right + i / (guesses - i) * (least - wrong), 1.0)
        wrong, right = least, more
    return right + wrong - guesses / canaries


@dataclass(frozen=True, slots=True)
class Guessed:
    """Numbers of guesses about the canaries of one run, and lower bounds on ε and μ from them.

    Attributes:
        canaries: number of canaries.
        guesses: number of guesses; if several numbers were tried, the one with the largest bound.
        correct: number of correct guesses.
        epsilon: lower bound on ε, corrected for the numbers of guesses that were tried.
        gaussian_mu: lower bound on μ if the trade-off is Gaussian, with the same correction.
    """

    canaries: int
    guesses: int
    correct: int
    epsilon: float
    gaussian_mu: float


def bounds_by_guesses(
    scores: FloatArray, inside: NDArray[np.bool_], delta: float, error: float
) -> Guessed:
    """Lower bounds on ε and μ from guesses ranked by score.

    The audit guesses that canaries with the highest scores are in the run and, in some tries, that
    canaries with the lowest scores are not. The largest bound of all tries is used, after a
    correction for the number of tries.

    Args:
        scores: larger for canaries that seem to be in the run, shape (m,).
        inside: whether each canary is in the run, shape (m,).
        delta: δ, from 0 to 1.
        error: probability, strictly between 0 and 1, with which each of the two bounds may exceed
            the true value.

    Raises:
        ParameterError: shapes that differ, or ``error`` outside its domain.
    """
    if scores.shape != inside.shape or scores.ndim != 1:
        raise ParameterError("scores", scores.shape, f"shape {inside.shape}")
    checks.open_unit(error=error)
    # Divide the error among the tries, so that all their bounds hold together.
    ranked = inside[np.argsort(-scores, kind="stable")]
    tries = sorted(_tries(ranked))
    share, m = error / len(tries), len(ranked)
    bounds = [epsilon_by_guesses(m, r, v, delta, share) for r, v in tries]
    best = max(range(len(tries)), key=lambda i: (bounds[i], tries[i][0]))
    mu = max(gaussian_mu_by_guesses(m, r, v, share) for r, v in tries)
    return Guessed(m, *tries[best], bounds[best], mu)


def largest_bound(canaries: int, delta: float, error: float) -> float:
    """Largest lower bound on ε that `bounds_by_guesses` can return, if every guess is correct."""
    tries = _tries(np.ones(canaries, np.bool_))
    share = error / len(tries)
    return max(epsilon_by_guesses(canaries, r, r, delta, share) for r, _ in tries)


def _tries(ranked: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Numbers of guesses and of correct guesses in each try.

    Tries guess canaries of the highest scores only, or of the highest and the lowest scores. The
    number of tries does not depend on the run.
    """
    m, tries = len(ranked), []
    for share in _SHARES:
        r = max(int(share * m), 2)
        half = r // 2
        both = int(ranked[:half].sum()) + int((~ranked[m - (r - half) :]).sum())
        tries.append((r, both))
        if share < 1.0:
            tries.append((r, int(ranked[:r].sum())))
    return tries


_INDEPENDENT = (Always, Bernoulli, Kept, KOf, OneOf)
"""Draws with the same distribution for every client, independent between clients."""


@shows_shapes()
@dataclass(frozen=True, eq=False)
class OneRun:
    """Outcome of an audit by one run with canaries.

    Attributes:
        game: description of the run.
        stated: the proved bounds on ε of the run.
        found: numbers of guesses, and the lower bounds from them.
        scores: scores of the canaries, shape (m,); larger if the canary seems to be in the run.
        inside: whether each canary is in the run, shape (m,).
        confidence: with at least this probability, the lower bound does not exceed the true ε.
        seed: seed of all random streams.
        seconds: running time.
        metrics: metrics of the model that the same run trains; empty without a model.
    """

    game: str
    stated: Statement
    found: Guessed
    scores: FloatArray
    inside: NDArray[np.bool_]
    confidence: float
    seed: int
    seconds: float
    metrics: Mapping[str, float] = field(default_factory=dict)

    @property
    def epsilon_lower(self) -> float:
        """Lower bound on ε, valid for every trade-off function."""
        return self.found.epsilon

    @property
    def gaussian_mu(self) -> float:
        """Lower bound on μ, valid if the trade-off function is that of Gaussian DP."""
        return self.found.gaussian_mu

    @property
    def consistent(self) -> bool:
        """True if the audit's lower bound on ε is at most the proved upper bound."""
        return self.found.epsilon <= self.stated.epsilon.upper


class Canaries:
    """Algorithm whose last m clients are canaries; the other clients are those of ``beside``.

    The first clients and coordinates are those of the given algorithm, the last clients and
    coordinates those of the canaries. The server state is that of the given algorithm.

    Args:
        inside: whether each canary sends the update C, shape (m,).
        outside: update of the other canaries in units of C, 0 or −1.
        clip_norm: C.
        beside: the given algorithm, which is trained; if None, the run has only canaries.

    Raises:
        UnsupportedError: the given algorithm's clients have states.
    """

    def __init__(
        self,
        inside: NDArray[np.bool_],
        outside: float,
        clip_norm: float,
        beside: (Algorithm | None) = None,
    ) -> None:
        if beside is not None and not isinstance(beside, Batched):
            raise UnsupportedError(
                "an audit with canaries needs an algorithm whose clients have no states"
            )
        self._sent = np.where(inside, clip_norm, outside * clip_norm)
        self._beside = beside
        self.clip_norm = clip_norm
        self.clients = 0 if beside is None else beside.population
        self.coordinates = 0 if beside is None else beside.dimension
        self.population = self.clients + inside.size
        self.dimension = self.coordinates + inside.size
        self.seen: list[FloatArray] = []

    def init(self, generator: np.random.Generator) -> ServerState:
        """Initial server state of the given algorithm."""
        return {} if self._beside is None else self._beside.init(generator)

    def sent(self, state: ServerState) -> NDArray[np.floating]:
        """Vector that the given algorithm sends to clients; empty if there are only canaries."""
        return np.zeros(0) if self._beside is None else self._beside.sent(state)

    def model(self, state: ServerState) -> NDArray[np.floating]:
        """Parameters of the given algorithm's model; empty if there are only canaries."""
        return np.zeros(0) if self._beside is None else self._beside.model(state)

    def init_client(self, client: int) -> None:
        """State of a client before its first step: None, since clients have no states."""

    def client_update(
        self, sent: NDArray[np.floating], client_state: Any, client: int, generator: Any
    ) -> tuple[NDArray[np.floating], None]:
        """Update of one client, shape (d + m,), and None as its state."""
        return self.clipped_sum(sent, np.array([client])).total, None

    def clipped_sum(self, sent: NDArray[np.floating], clients: NDArray[np.integer]) -> UpdateSum:
        """Sum of these clients' updates, (d + m,): coordinates of the model, then of canaries."""
        total = np.zeros(self.dimension)
        real = clients[clients < self.clients]
        if real.size and isinstance(self._beside, Batched):
            total[: self.coordinates] = self._beside.clipped_sum(sent, real).total
        canaries = clients[clients >= self.clients] - self.clients
        np.add.at(total, self.coordinates + canaries, self._sent[canaries])
        return UpdateSum(total, clients.size)

    def server_update(
        self, state: ServerState, direction: NDArray[np.float64], move: int
    ) -> ServerState:
        """Server state after the given algorithm's update; records the canaries' coordinates.

        Args:
            state: server state of the given algorithm.
            direction: released mean of the updates, shape (d + m,).
            move: number of the update of the model.
        """
        self.seen.append(direction[self.coordinates :].copy())
        if self._beside is None:
            return state
        return self._beside.server_update(state, direction[: self.coordinates], move)

    def evaluate(
        self, state: ServerState, clients: ClientStates | None = None
    ) -> Mapping[str, float]:
        """Metrics of the given algorithm; a loss of 0 if there are only canaries."""
        return {"loss": 0.0} if self._beside is None else self._beside.evaluate(state, clients)


def play_one_run(
    scheme: Scheme,
    words: str,
    statements: Iterable[Statement],
    *,
    canaries: int,
    confidence: float,
    seed: int,
    beside: Algorithm | None = None,
    clip_norm: float = 1.0,
    expected_check_ins: float | None = None,
    tell: Callable[[int, int], None] = lambda done, of: None,
) -> OneRun:
    """Lower bounds on ε from one simulated run with canaries, and the proved bounds that they test.

    Args:
        scheme: a scheme with aggregated releases, and draws that are independent and identically
            distributed over clients.
        words: description of the run.
        statements: proved bounds on ε, each at one δ; the audit tests the first of them that
            correct guesses could contradict.
        canaries: m, at least 2.
        confidence: probability that the lower bound on ε holds, strictly between 0 and 1.
        seed: seed of all random streams.
        beside: an algorithm that is trained in the same run; None if only canaries take part.
        clip_norm: C, the length of a canary's update.
        expected_check_ins: the public divisor; by default the expected number of participants.
        tell: function that is called with the number of steps done and the number of all steps.

    Raises:
        ParameterError: ``canaries`` or ``confidence`` outside its domain.
        UnsupportedError: clients' draws differ or depend on each other; releases are not
            aggregated; or there are too few canaries to contradict any of the proved bounds, even
            if every guess is correct.
    """
    # Check the arguments, and choose the statement that is tested.
    checks.count(2, canaries=canaries)
    checks.open_unit(confidence=confidence)
    require_independent(scheme)
    stated = _refutable(statements, canaries, 1.0 - confidence)
    # Draw which canaries are in the run, and simulate it.
    started, streams = time.perf_counter(), SimulationStreams(seed)
    inside = streams.source("audit", "canaries").bernoulli(0.5, canaries)
    seen, metrics = simulated(
        scheme, inside, clip_norm, expected_check_ins, seed, beside=beside, tell=tell
    )
    # Guess by the likelihood ratios, and compute the bounds.
    scores = log_ratios(scheme, seen)
    found = bounds_by_guesses(scores, inside, stated.delta, 1.0 - confidence)
    return OneRun(
        words, stated, found, scores, inside, confidence, seed,
        time.perf_counter() - started, metrics,
    )  # fmt: skip


def simulated(
    scheme: Scheme,
    inside: NDArray[np.bool_],
    clip_norm: float,
    expected_check_ins: float | None,
    seed: int,
    *,
    beside: Algorithm | None = None,
    tell: Callable[[int, int], None] = lambda done, of: None,
) -> tuple[FloatArray, dict[str, float]]:
    """Canaries' coordinates in all releases of one simulated run, and the model's metrics.

    Args:
        scheme: scheme of the run.
        inside: which canaries are in the run, shape (m,).
        clip_norm: C.
        expected_check_ins: the public divisor; by default the expected number of participants.
        seed: seed of all random streams.
        beside: an algorithm that is trained in the same run; None if only canaries take part.
        tell: function that is called with the number of steps done and the number of all steps.

    Returns:
        The coordinates in units of C, shape (steps, m), and the last metrics of the model, empty
        without a model.

    Raises:
        KeyboardInterrupt: the run was interrupted.
    """
    # Canaries outside the run send the opposite update or nothing, by the relation.
    outside = -1.0 if scheme.relation is Relation.REPLACE_ONE else 0.0
    algorithm = Canaries(inside, outside, clip_norm, beside)
    simulation = Simulation(
        scheme,
        algorithm,
        expected_check_ins=expected_check_ins,
        seed=seed,
        evaluate_every=scheme.participation.steps,
    )
    # An interrupted run lacks the last steps, so no bound can be computed.
    result = simulation.run(on_progress=lambda done: tell(done.step, done.steps))
    if not result.finished:
        raise KeyboardInterrupt
    # Releases are averages over the divisor; multiply by it for sums in units of C.
    divisor = simulation.divisor
    assert divisor is not None
    metrics = {} if beside is None else {k: float(v[-1]) for k, v in result.history.metrics.items()}
    return np.array(algorithm.seen) * (divisor / clip_norm), metrics


def _refutable(statements: Iterable[Statement], canaries: int, error: float) -> Statement:
    """First of the proved bounds whose upper bound is below the largest possible lower bound."""
    for stated in statements:
        if largest_bound(canaries, stated.delta, error) > stated.epsilon.upper:
            return stated
    raise UnsupportedError(
        f"{canaries:,} canaries cannot contradict the ε upper bound at {1 - error:g} confidence, "
        "even if every guess were correct: use more canaries, or a smaller confidence"
    )


def require_independent(scheme: Scheme) -> None:
    """Raise an UnsupportedError unless canaries are independent and identically distributed.

    Raises:
        UnsupportedError: noise other than Gaussian noise of the coordinator, a rule whose releases
            depend on the number of participants, or clients whose draws differ or depend on each
            other.
    """
    # The bound on many canaries is for sums with Gaussian noise.
    if not isinstance(scheme.randomizer, GaussianNoise):
        raise UnsupportedError(
            "an audit with many canaries in one run needs Gaussian noise of the coordinator"
        )
    if scheme.release is not ReleaseRule.AGGREGATED:
        raise UnsupportedError(
            "an audit with many canaries in one run needs aggregated releases, "
            f"not {scheme.release.value}"
        )
    # The canaries must take part independently of each other.
    for span in normal_form(scheme.participation).spans:
        if not isinstance(span.draw, _INDEPENDENT):
            kind = type(span.draw).__name__
            raise UnsupportedError(
                "an audit with many canaries in one run needs clients with identically "
                f"distributed, independent draws, not {kind}"
            )


def log_ratios(scheme: Scheme, seen: FloatArray) -> FloatArray:
    """Log likelihood ratios of the canaries from their coordinates in all releases, shape (m,).

    Args:
        scheme: scheme with Gaussian noise; only its noise, participation and relation are used.
        seen: the coordinates in units of C, shape (steps, m).
    """
    assert isinstance(scheme.randomizer, GaussianNoise)
    noise, form = scheme.randomizer.noise_multiplier, normal_form(scheme.participation)
    # The log ratio of a run is the sum over its independent blocks.
    total = np.zeros(seen.shape[1])
    for block in blocks(scheme.participation):
        rows = seen[block.first_step : block.first_step + block.steps]
        draw = form.at_step(block.first_step).span.draw
        for sign, a in exponents(scheme.relation, rows, noise):
            total += sign * LOG_RATIOS[draw](draw, a)
    return total
