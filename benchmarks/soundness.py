"""Soundness: proved bounds on δ of random schemes, against programs that share no code with them.

    python benchmarks/soundness.py                # 3,800 questions, about ten minutes of one core
    python benchmarks/soundness.py --control      # negative control: ε for 3 % more noise

A question is a scheme and an ε. Its reference is δ of explicit worlds, computed from the definition
of the mechanism: enumeration of all outputs, quadrature over outputs, closed forms of Gaussian and
Laplace noise, or dp-accounting. The upper bound must not be below the reference. If the worlds are
the worst case, the lower bound must not be above it. Each family of schemes has one function
here, which draws a scheme and returns it with the reference.

The table has one row for each family: schemes, questions, the smallest ratio of upper bound to
reference, the largest ratio of lower bound to reference, the schemes without a certified answer,
and the questions whose bound is on the wrong side. The exit code is 1 if there are such questions.
The negative control expects some in each family with Gaussian noise.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.special import ndtr
from scipy.stats import binom, hypergeom

import turnout as tn
from turnout.reporting.surroundings import machine, versions
from turnout.schemes import Participation
from turnout.schemes.participation.availability_check_in import AvailabilityCheckIn

EPSILONS = 6  # questions of a scheme
LEAST = 1e-9  # least reference δ of a question
ROUNDING = 1e-13  # absolute error of all references, of sums of doubles
CONTROL = 1.03  # factor of the noise in the negative control

Draw = tuple[float, set[int]]
"""Probability of a set of steps, and the set."""
Reference = Callable[[float], tuple[float, float]]
"""Lower and upper end of the reference δ at one ε."""


@dataclass(frozen=True)
class Case:
    """A random scheme and its reference.

    Attributes:
        scheme: the scheme whose bounds are checked.
        delta: the reference.
        worst: whether the worlds are the worst ones, so that lower bounds are checked too.
        error: relative error of the reference.
    """

    scheme: tn.Scheme
    delta: Reference
    worst: bool = True
    error: float = 1e-9


@dataclass
class Row:
    """Results of one family."""

    family: str
    schemes: int = 0
    questions: int = 0
    upper: float = math.inf
    lower: float = 0.0
    refused: int = 0
    wrong: list[str] = field(default_factory=list)


def sides(*deltas: float) -> tuple[float, float]:
    """Both ends of a reference that is known exactly: the largest δ of several directions."""
    return max(deltas), max(deltas)


def outer(parts: list[np.ndarray]) -> np.ndarray:
    """Product distribution of independent outputs, as one vector."""
    whole = np.ones(1)
    for part in parts:
        whole = np.outer(whole, part).ravel()
    return whole


# --- Gaussian noise: closed forms and quadrature over all outputs but one --------------------


def gaussian(mu: float, k: float) -> float:
    """H_k of N(μ, 1) against N(0, 1), at any k > 0."""
    return float(ndtr(mu / 2 - math.log(k) / mu) - k * ndtr(-mu / 2 - math.log(k) / mu))


def every_step(rng: np.random.Generator) -> Case:
    """Composition of Gaussian noise in every step."""
    sigma, steps = float(rng.uniform(0.5, 20)), int(rng.integers(1, 200))
    relation = str(rng.choice(["add-remove", "zero-out", "replace-one"]))
    mu = (2 if relation == "replace-one" else 1) * math.sqrt(steps) / sigma
    scheme = tn.Scheme(tn.GaussianNoise(sigma), tn.EveryStep(steps), relation)
    return Case(scheme, lambda e: sides(gaussian(mu, math.exp(e))))


def laplace(rng: np.random.Generator) -> Case:
    """One release with Laplace noise."""
    scale = float(rng.uniform(0.3, 5))
    relation = str(rng.choice(["add-remove", "replace-one"]))
    reach = (2 if relation == "replace-one" else 1) / scale
    scheme = tn.Scheme(tn.LaplaceNoise(scale), tn.EveryStep(1), relation)
    return Case(scheme, lambda e: sides(max(0.0, -math.expm1((e - reach) / 2))))


def poisson_step(rng: np.random.Generator) -> Case:
    """One Poisson step with Gaussian noise."""
    mu, rate = float(rng.uniform(0.2, 3)), float(rng.uniform(0.01, 0.99))

    def delta(epsilon: float) -> tuple[float, float]:
        k = math.exp(epsilon)
        kept = 1 - k * (1 - rate)
        add = kept * gaussian(mu, k * rate / kept) if kept > 0 else 0.0
        # H of Q against P and of P against Q agree for Gaussian noise.
        return sides(rate * gaussian(mu, 1 + (k - 1) / rate), add)

    participation = tn.PoissonSampling(rate, 1)
    return Case(tn.Scheme(tn.GaussianNoise(1 / mu), participation, "add-remove"), delta)


def poisson_run(rng: np.random.Generator) -> Case:
    """Several Poisson steps with Gaussian noise, between two estimates of dp-accounting."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    sigma, rate = float(rng.uniform(0.7, 4)), float(rng.uniform(0.01, 0.6))
    steps = int(rng.integers(2, 40))
    low, high = (
        pld.from_gaussian_mechanism(
            sigma,
            value_discretization_interval=1e-3,
            pessimistic_estimate=pessimistic,
            use_connect_dots=pessimistic,
            sampling_prob=rate,
        ).self_compose(steps)
        for pessimistic in (False, True)
    )

    def delta(epsilon: float) -> tuple[float, float]:
        return float(low.get_delta_for_epsilon(epsilon)), float(high.get_delta_for_epsilon(epsilon))

    participation = tn.PoissonSampling(rate, steps)
    return Case(tn.Scheme(tn.GaussianNoise(sigma), participation, "add-remove"), delta)


def scores(dimension: int, mu: float, points: int) -> tuple[np.ndarray, np.ndarray]:
    """Quadrature nodes z of all steps but the last, shape (dimension, nodes), and their weights."""
    axis, step = np.linspace(-8.5 - 2 * mu, 8.5 + 2 * mu, points, retstep=True)
    weight = np.exp(-0.5 * axis**2) * step / math.sqrt(2 * math.pi)
    # All combinations, the last axis running fastest; without axes one node of weight 1.
    grids = np.meshgrid(*[axis] * dimension, indexing="ij")
    nodes = np.array([grid.ravel() for grid in grids] or np.zeros((0, 1)))
    return nodes, outer([weight] * dimension)


POINTS = {0: 1, 1: 20_001, 2: 801, 3: 91}  # nodes of an axis, by the number of axes
ERRORS = {0: 1e-9, 1: 1e-6, 2: 1e-4, 3: 5e-3}  # relative errors of the trapezoidal sums


def affine_parts(x: np.ndarray, picks: int, probability: float) -> tuple[np.ndarray, np.ndarray]:
    """Pair (a, b) such that a window's ratio is a + b·X, where X is the ratio of the last step."""
    steps = x.shape[0] + 1
    sums = [np.ones(x.shape[1])] + [np.zeros(x.shape[1]) for _ in range(picks)]
    for ratio in x:
        for i in range(picks, 0, -1):
            sums[i] = sums[i] + sums[i - 1] * ratio
    share = probability / math.comb(steps, picks)
    return 1 - probability + share * sums[picks], share * sums[picks - 1]


def window_add_remove(mu: float, steps: int, picks: int, probability: float) -> Reference:
    """δ of one window of Gaussian steps against the client's absence, in both directions."""
    z, weights = scores(steps - 1, mu, POINTS[steps - 1])
    a, b = affine_parts(np.exp(mu * z - mu**2 / 2), picks, probability)

    def delta(epsilon: float) -> tuple[float, float]:
        k = math.exp(epsilon)
        with np.errstate(divide="ignore", invalid="ignore"):
            # S > K where the last score is above `at`; S < 1/K where it is below `under`.
            at = (np.log(np.maximum((k - a) / b, 0.0)) + mu**2 / 2) / mu
            under = (np.log(np.maximum((1 / k - a) / b, 0.0)) + mu**2 / 2) / mu
        remove = b * ndtr(mu - at) - (k - a) * ndtr(-at)
        add = (1 - k * a) * ndtr(under) - k * b * ndtr(under - mu)
        return sides(float(weights @ np.maximum(remove, 0)), float(weights @ np.maximum(add, 0)))

    return delta


def window_replaced(mu: float, steps: int, picks: int, probability: float) -> Reference:
    """δ of one window of Gaussian steps for two opposite records."""
    z, weights = scores(steps - 1, mu, POINTS[steps - 1])
    a, b = affine_parts(np.exp(mu * z - mu**2 / 2), picks, probability)
    other, slope = affine_parts(np.exp(-mu * z - mu**2 / 2), picks, probability)
    w = math.exp(-(mu**2) / 2)

    def delta(epsilon: float) -> tuple[float, float]:
        k = math.exp(epsilon)
        # a − K·other + b·w·y − K·slope·w/y rises in y = e^{μz}; its root without cancellation.
        rest = a - k * other
        root = np.sqrt(rest**2 + 4 * k * b * slope * w * w)
        far = rest > 0
        y = np.where(far, 2 * k * slope * w, root - rest) / np.where(far, rest + root, 2 * b * w)
        at = np.log(y) / mu
        value = rest * ndtr(-at) + b * ndtr(mu - at) - k * slope * ndtr(-mu - at)
        return sides(float(weights @ np.maximum(value, 0)))

    return delta


def gaussian_window(rng: np.random.Generator) -> Case:
    """One window of up to four Gaussian steps, one or several picks, both relations."""
    steps = int(rng.integers(1, 5))
    picks = int(rng.integers(1, steps + 1))
    mu = float(rng.uniform(0.25, 2.0 if steps < 4 else 1.3))
    relation = str(rng.choice(["add-remove", "replace-one"]))
    probability = float(rng.choice([1.0, rng.uniform(0.05, 1.0)])) if picks == 1 else 1.0
    of = window_replaced if relation == "replace-one" else window_add_remove
    if picks > 1:
        participation, epochs = tn.KSubset(steps, picks, 1), 1
    elif rng.random() < 0.3:  # one slot in all epochs is one window of less noise
        epochs = int(rng.integers(1, 6))
        participation = tn.FixedAssignment(steps, epochs, probability)
    else:
        participation, epochs = tn.CheckIn(steps, 1, probability), 1
    scheme = tn.Scheme(tn.GaussianNoise(math.sqrt(epochs) / mu), participation, relation)
    return Case(scheme, of(mu, steps, picks, probability), error=ERRORS[steps - 1])


def composed_windows(rng: np.random.Generator) -> Case:
    """Several windows of two or three Gaussian steps, by plain convolution of rounded losses."""
    steps, windows = int(rng.integers(2, 4)), int(rng.integers(2, 12))
    mu, probability = float(rng.uniform(0.3, 1.3)), float(rng.choice([1.0, rng.uniform(0.1, 1)]))
    relation = str(rng.choice(["add-remove", "replace-one"]))
    # Likelihood ratios of one window at quadrature nodes, in both worlds.
    z, weights = scores(steps, mu, {2: 401, 3: 81}[steps])
    s = 1 - probability + probability * np.exp(mu * z - mu**2 / 2).mean(axis=0)
    other = np.ones_like(s)
    if relation == "replace-one":
        other = 1 - probability + probability * np.exp(-mu * z - mu**2 / 2).mean(axis=0)
    size = 1e-3

    # Losses are rounded down and up, so that the true δ lies between the two results.
    def tail(p: np.ndarray, q: np.ndarray, epsilon: float) -> tuple[float, float]:
        found = []
        for rounded in (np.floor, np.ceil):
            bins = rounded(np.log(p / q) / size).astype(np.int64)
            low = int(bins.min())
            masses = np.bincount(bins - low, weights=weights * p)
            length = windows * (masses.size - 1) + 1
            total = np.fft.irfft(np.fft.rfft(masses, 2 * length) ** windows, 2 * length)[:length]
            losses = (windows * low + np.arange(length)) * size
            above = losses > epsilon
            found.append(float(total[above] @ -np.expm1(epsilon - losses[above])))
        return found[0], found[1]

    def delta(epsilon: float) -> tuple[float, float]:
        directions = [tail(s, other, epsilon), tail(other, s, epsilon)]
        return max(d[0] for d in directions), max(d[1] for d in directions)

    participation = tn.CheckIn(steps, windows, probability)
    scheme = tn.Scheme(tn.GaussianNoise(1 / mu), participation, relation)
    return Case(scheme, delta, error=1e-4)


# --- worlds that need not be the worst ones: only upper bounds are checked -------------------


def grid_delta(p: np.ndarray, q: np.ndarray, epsilon: float) -> float:
    """Larger hockey stick of two distributions on the same outputs."""
    k = math.exp(epsilon)
    return max(float(np.maximum(p - k * q, 0).sum()), float(np.maximum(q - k * p, 0).sum()))


EDGES = np.concatenate([[-np.inf], np.linspace(-14.0, 14.0, 1401), [np.inf]])


def bells(mean: float, sigma: float) -> np.ndarray:
    """Masses of a normal distribution between `EDGES`; cells of outputs only lower δ."""
    scores = (EDGES - mean) / sigma
    below, above = np.diff(ndtr(scores)), -np.diff(ndtr(-scores))
    return np.where(scores[1:] > 0, above, below)


def cohort(rng: np.random.Generator) -> Case:
    """One or two steps with a cohort of fixed size, for a random substitute and record."""
    sigma, steps = float(rng.uniform(0.5, 2)), int(rng.integers(1, 3))
    population = int(rng.integers(2, 20))
    size = int(rng.integers(1, population))
    relation = str(rng.choice(["zero-out", "replace-one"]))
    worlds = [np.ones(1), np.ones(1)]
    for _ in range(steps):
        substitute, record = rng.uniform(-1, 1), float(rng.choice([-1.0, 1.0]))
        substitute = float(rng.choice([-record, record, substitute]))
        neighbour = -record if relation == "replace-one" else 0.0
        rate = size / population
        for i, mean in enumerate((record, neighbour)):
            step = (1 - rate) * bells(substitute, sigma) + rate * bells(mean, sigma)
            worlds[i] = np.outer(worlds[i], step).ravel()
    scheme = tn.Scheme(tn.GaussianNoise(sigma), tn.FixedSize(size, population, steps), relation)
    return Case(scheme, lambda e: sides(grid_delta(worlds[0], worlds[1], e)), worst=False)


def one_client(rng: np.random.Generator) -> Case:
    """A window of one or two one-client releases, for random other clients in each step."""
    sigma, steps = float(rng.uniform(0.6, 2)), int(rng.integers(1, 3))
    relation = str(rng.choice(["add-remove", "zero-out", "replace-one"]))
    probability = float(rng.choice([1.0, rng.uniform(0.2, 1.0)]))
    record = float(rng.choice([-1.0, 1.0]))
    neighbour = -record if relation == "replace-one" else 0.0
    # Distribution of each step's release, a mixture over the client that is chosen uniformly.
    absent, present, changed = [], [], []
    for _ in range(steps):
        others = [float(rng.choice([-1.0, 0.0, 1.0])) for _ in range(int(rng.integers(0, 3)))]
        rest = sum((bells(u, sigma) for u in others), np.zeros(EDGES.size - 1))
        alone = rest / len(others) if others else bells(0.0, sigma)
        absent.append(alone)
        for kind, update in ((present, record), (changed, neighbour)):
            kind.append((rest + bells(update, sigma)) / (len(others) + 1))

    # Mixture over the uniform slot of the client, and over its absence.
    def run(kind: list[np.ndarray]) -> np.ndarray:
        whole = (1 - probability) * outer(absent)
        for slot in range(steps):
            mixed = [kind[i] if i == slot else absent[i] for i in range(steps)]
            whole = whole + probability / steps * outer(mixed)
        return whole

    p = run(present)
    q = outer(absent) if relation == "add-remove" else run(changed)
    scheme = tn.Scheme(
        tn.GaussianNoise(sigma),
        tn.CheckIn(steps, 1, probability),
        relation,
        release="one-client",
    )
    return Case(scheme, lambda e: sides(grid_delta(p, q, e)), worst=False)


# --- finite mechanisms: all outputs and all draws are enumerated ------------------------------


def drawn_sets(rng: np.random.Generator) -> tuple[Participation, int, list[Draw]]:
    """A participation, its number of steps, and the probability of each set of steps."""
    kinds = ["check-in", "windows", "sliding", "subset", "poisson", "self", "every"]
    kind = str(rng.choice(kinds))
    chance = float(rng.choice([1.0, rng.uniform(0.1, 1.0)]))
    # One uniform step of a window.
    if kind in ("check-in", "sliding"):  # a client's own window is a window of its own
        t = int(rng.integers(1, 6))
        chance = 1.0 if kind == "sliding" else chance
        sets = [(chance / t, {i}) for i in range(t)] + [(1 - chance, set())]
        sliding = tn.SlidingWindow(t, slots=3 * t) if kind == "sliding" else None
        return sliding or tn.CheckIn(t, 1, chance), t, sets
    # One uniform step in each of two windows.
    if kind == "windows":
        t = 2
        one = [(chance / t, {i}) for i in range(t)] + [(1 - chance, set())]
        both = [(p * q, a | {t + i for i in b}) for p, a in one for q, b in one]
        return tn.CheckIn(t, 2, chance), 2 * t, both
    # A uniform subset of k steps.
    if kind == "subset":
        t = int(rng.integers(2, 6))
        k = int(rng.integers(1, t + 1))
        subsets = list(itertools.combinations(range(t), k))
        return tn.KSubset(t, k, 1), t, [(1 / len(subsets), set(s)) for s in subsets]
    t = int(rng.integers(1, 6))
    # Independent participation in each step, or participation in all steps.
    if kind in ("poisson", "self"):
        rate = float(rng.uniform(0.05, 0.95))
        every = [
            (rate ** len(s) * (1 - rate) ** (t - len(s)), set(s))
            for n in range(t + 1)
            for s in itertools.combinations(range(t), n)
        ]
        drawn = tn.PoissonSampling if kind == "poisson" else tn.SelfSampling
        return drawn(rate, t), t, every
    return tn.EveryStep(t), t, [(1.0, set(range(t)))]


def table(rng: np.random.Generator) -> Case:
    """A random table under any participation, by enumeration of all draws and outputs."""
    outcomes = int(rng.integers(2, 4))
    present, absent = rng.dirichlet(np.ones(outcomes), 2)
    if rng.random() < 0.2:
        absent = np.append(absent[:-1] / absent[:-1].sum(), 0.0)
    participation, steps, sets = drawn_sets(rng)
    q = outer([absent] * steps)
    p = sum(c * outer([present if i in s else absent for i in range(steps)]) for c, s in sets)
    relation = str(rng.choice(["add-remove", "zero-out"]))
    scheme = tn.Scheme(
        tn.TableRandomizer(present.tolist(), absent.tolist()), participation, relation
    )
    return Case(scheme, lambda e: sides(grid_delta(np.asarray(p), q, e)), error=1e-8)


def availability(rng: np.random.Generator) -> Case:
    """A random table for clients that are available in different steps; the worst client counts."""
    present, absent = rng.dirichlet(np.ones(2), 2)
    steps = int(rng.integers(1, 7))
    window = int(rng.integers(1, steps + 1))
    chance = float(rng.choice([1.0, rng.uniform(0.1, 1.0)]))
    available = rng.random((int(rng.integers(1, 4)), steps)) < 0.6
    q, worlds = outer([absent] * steps), []
    for client in available:
        # Windows are independent: the product over windows of mixtures over the client's own steps.
        parts = []
        for start in range(0, steps, window):
            own = [i for i in range(start, min(start + window, steps)) if client[i]]
            length = min(window, steps - start)
            without, chosen = outer([absent] * length), chance if own else 0.0
            part = (1 - chosen) * without
            for i in own:
                mixed = [present if start + j == i else absent for j in range(length)]
                part = part + chosen / len(own) * outer(mixed)
            parts.append(part)
        worlds.append(outer(parts))
    # The scheme must cover every client, so the reference is the largest δ of all clients.
    scheme = tn.Scheme(
        tn.TableRandomizer(present.tolist(), absent.tolist()),
        AvailabilityCheckIn(available, window, chance),
        str(rng.choice(["add-remove", "zero-out"])),
    )
    return Case(scheme, lambda e: sides(*(grid_delta(p, q, e) for p in worlds)), error=1e-8)


def discrete_window(rng: np.random.Generator) -> Case:
    """One window of one or two steps with discrete or rounded Gaussian noise, in both relations."""
    sigma, steps = float(rng.uniform(0.5, 2.5)), int(rng.integers(1, 3))
    chance = float(rng.choice([1.0, rng.uniform(0.1, 1.0)]))
    relation = str(rng.choice(["add-remove", "replace-one"]))
    reach = math.ceil(9 * sigma) + 2
    outputs = np.arange(-reach, reach + 1)
    discrete = bool(rng.random() < 0.5)

    # Probabilities of the noisy output: discrete Gaussian, or a rounded Gaussian.
    def law(mean: int) -> np.ndarray:
        if discrete:
            masses = np.exp(-(((outputs - mean) / sigma) ** 2) / 2)
            wide = np.arange(-40 * reach, 40 * reach + 1)
            return masses / np.exp(-((wide / sigma) ** 2) / 2).sum()
        far = np.abs(outputs - mean)
        return ndtr((0.5 - far) / sigma) - ndtr((-0.5 - far) / sigma)

    # Mixture over the client's uniform slot, and over its absence.
    def run(record: int) -> np.ndarray:
        whole = (1 - chance) * outer([law(0)] * steps)
        for slot in range(steps):
            mixed = [law(record if i == slot else 0) for i in range(steps)]
            whole = whole + chance / steps * outer(mixed)
        return whole

    p, q = run(1), run(-1) if relation == "replace-one" else outer([law(0)] * steps)
    noise = tn.DiscreteGaussianNoise if discrete else tn.RoundedGaussianNoise
    scheme = tn.Scheme(noise(sigma), tn.CheckIn(steps, 1, chance), relation)
    return Case(scheme, lambda e: sides(grid_delta(p, q, e)), error=1e-7)


def sampled_shuffle(rng: np.random.Generator) -> Case:
    """One round of binary responses of a uniform subset of the clients, for all other values."""
    epsilon0, clients = float(rng.uniform(0.2, 3)), int(rng.integers(2, 25))
    sampled = int(rng.integers(1, clients + 1))
    flip = 1 / (1 + math.exp(epsilon0))

    def count(ones: int, zeros: int) -> np.ndarray:
        """Distribution of the number of ones among the responses to given values."""
        return np.convolve(
            binom.pmf(range(ones + 1), ones, 1 - flip), binom.pmf(range(zeros + 1), zeros, flip)
        )

    def world(value: int, ones: int) -> np.ndarray:
        """Number of ones among the sampled responses, given the number of other clients' ones."""
        whole, rest = np.zeros(sampled + 1), clients - 1
        for mine in (0, 1):  # whether the client is in the subset
            share = sampled / clients if mine else 1 - sampled / clients
            drawn = sampled - mine
            if share == 0:
                continue
            for picked in range(max(0, drawn - rest + ones), min(ones, drawn) + 1):
                chance = hypergeom.pmf(picked, rest, ones, drawn)
                one, zero = picked + mine * value, drawn - picked + mine * (1 - value)
                whole += share * chance * count(one, zero)
        return whole

    worlds = [(world(0, ones), world(1, ones)) for ones in range(clients)]
    scheme = tn.shuffled(tn.KaryResponse(epsilon0, 2), clients=clients, sampled=sampled)
    reference = lambda e: sides(*(grid_delta(p, q, e) for p, q in worlds))  # noqa: E731
    return Case(scheme, reference, worst=False)


def binary_shuffle(rng: np.random.Generator) -> Case:
    """One round of shuffled binary responses, for the worst values of the other clients."""
    epsilon0, clients = float(rng.uniform(0.2, 4)), int(rng.integers(2, 40))
    flip = 1 / (1 + math.exp(epsilon0))
    worlds = []
    for ones in range(clients):
        zeros = clients - 1 - ones
        others = np.convolve(
            binom.pmf(range(ones + 1), ones, 1 - flip), binom.pmf(range(zeros + 1), zeros, flip)
        )
        p = np.convolve(others, [1 - flip, flip])
        worlds.append((p, np.convolve(others, [flip, 1 - flip])))
    scheme = tn.shuffled(tn.KaryResponse(epsilon0, 2), clients=clients)
    return Case(scheme, lambda e: sides(*(grid_delta(p, q, e) for p, q in worlds)), error=1e-8)


def kary_shuffle(rng: np.random.Generator) -> Case:
    """One round of shuffled k-ary responses of a few clients, for all values of the others."""
    epsilon0, clients, k = float(rng.uniform(0.2, 3)), int(rng.integers(2, 5)), 3
    stay = math.exp(epsilon0) / (math.exp(epsilon0) + k - 1)
    rows = np.full((k, k), (1 - stay) / (k - 1))
    np.fill_diagonal(rows, stay)

    def histogram(values: tuple[int, ...]) -> np.ndarray:
        counts = np.zeros([clients + 1] * k)
        for messages in itertools.product(range(k), repeat=clients):
            chance = math.prod(rows[v, m] for v, m in zip(values, messages, strict=True))
            counts[tuple(messages.count(v) for v in range(k))] += chance
        return counts.ravel()

    worlds = [
        (histogram((0, *rest)), histogram((1, *rest)))
        for rest in itertools.combinations_with_replacement(range(k), clients - 1)
    ]
    scheme = tn.shuffled(tn.KaryResponse(epsilon0, k), clients=clients)
    return Case(scheme, lambda e: sides(*(grid_delta(p, q, e) for p, q in worlds)), error=1e-8)


FAMILIES = {
    every_step: 150,
    laplace: 150,
    poisson_step: 250,
    poisson_run: 250,
    gaussian_window: 240,
    composed_windows: 60,
    cohort: 500,
    one_client: 60,
    table: 900,
    availability: 250,
    discrete_window: 250,
    sampled_shuffle: 200,
    binary_shuffle: 340,
    kary_shuffle: 200,
}
"""Families, with the number of questions of each."""


def asked(case: Case, rng: np.random.Generator) -> Iterator[tuple[float, float, float]]:
    """Random ε of a scheme at which the reference is large enough, with the reference's ends."""
    for epsilon in itertools.islice(rng.uniform(0, 1, 40) ** 2 * 5, 40):
        low, high = case.delta(float(epsilon))
        if low > LEAST:
            yield float(epsilon), low, high


def at_epsilon(row: Row, case: Case, epsilon: float, low: float, high: float) -> None:
    """Compare the bounds on ε at the reference's δ with the ε at which the reference has this δ."""
    upper = tn.price(case.scheme, delta=low).epsilon.upper
    lower = tn.price(case.scheme, delta=high).epsilon.lower
    row.questions += 1
    row.upper, row.lower = min(row.upper, upper / epsilon), max(row.lower, lower / epsilon)
    if upper < epsilon * (1 - case.error) - ROUNDING or lower > epsilon * (1 + case.error):
        row.wrong.append(f"{case.scheme} at δ = {low!r}: [{lower}, {upper}], reference {epsilon!r}")


def check(row: Row, case: Case, rng: np.random.Generator, *, control: bool) -> None:
    """Compare the bounds of one scheme with the reference at random ε."""
    scheme = case.scheme
    if control:
        assert isinstance(scheme.randomizer, tn.GaussianNoise)
        noise = tn.GaussianNoise(scheme.randomizer.noise_multiplier * CONTROL)
        scheme = replace(scheme, randomizer=noise)
    availability = isinstance(scheme.participation, AvailabilityCheckIn)
    curve = None if availability else tn.PrivacyCurve.of(scheme)
    row.schemes += 1
    for epsilon, low, high in itertools.islice(asked(case, rng), EPSILONS):
        try:
            if curve is None:  # clients differ, so there are bounds on ε, not one curve of δ
                at_epsilon(row, case, epsilon, low, high)
                continue
            found = curve.delta(epsilon)
        except tn.NumericalError:  # no bound was certified within the limit on computing work
            row.refused += 1
            return
        row.questions += 1
        row.upper = min(row.upper, found.upper / low)
        below = found.upper < low * (1 - case.error) - ROUNDING
        above = False
        if case.worst:
            row.lower = max(row.lower, found.lower / high)
            above = found.lower > high * (1 + case.error) + ROUNDING
        if below or above:
            row.wrong.append(f"{scheme} at ε = {epsilon!r}: {found}, reference {low!r} to {high!r}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Proved bounds on δ against other programs.")
    parser.add_argument("--share", type=float, default=1.0, help="of the questions [default: 1]")
    parser.add_argument("--seed", type=int, default=1, help="of the questions [default: 1]")
    parser.add_argument("--only", help="name of one family")
    parser.add_argument("--control", action="store_true", help="compute ε for 3 %% more noise")
    given = parser.parse_args()
    print(f"{versions()}\n{machine()}\nseed {given.seed}", flush=True)
    columns = ("family", "schemes", "questions", "upper/ref.", "lower/ref.", "refused", "wrong")
    print(f"{columns[0]:17}" + "".join(f"{name:>13}" for name in (*columns[1:], "CPU-s")))
    rows = []
    # Draw schemes of each family until it has its number of questions.
    for family, questions in FAMILIES.items():
        if given.only not in (None, family.__name__):
            continue
        row, rng = Row(family.__name__), np.random.default_rng(given.seed)
        began = time.process_time()
        while row.questions < questions * given.share:
            case = family(rng)
            if given.control and not isinstance(case.scheme.randomizer, tn.GaussianNoise):
                break
            check(row, case, rng, control=given.control)
        if not row.schemes:
            continue
        rows.append(row)
        cells = [f"{row.schemes}", f"{row.questions}", f"{row.upper:.7f}", f"{row.lower:.7f}"]
        cells += [f"{row.refused}", f"{len(row.wrong)}", f"{time.process_time() - began:.1f}"]
        print(f"{row.family:17}" + "".join(f"{cell:>13}" for cell in cells), flush=True)
    # In the negative control, each family must show bounds on the wrong side; otherwise none may.
    wrong = [line for row in rows for line in row.wrong]
    if given.control:
        missed = [row.family for row in rows if not row.wrong]
        print(f"control: wrong prices found in {len(rows) - len(missed)} of {len(rows)} families")
        sys.exit(f"not found in {', '.join(missed)}" if missed else 0)
    print(f"{sum(row.questions for row in rows)} questions, {len(wrong)} on the wrong side")
    print(*wrong[:20], sep="\n")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
