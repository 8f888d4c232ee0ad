"""Figures 1–4 of Feldman and Shenfeld 2025, each with a curve of turnout's bound."""

from __future__ import annotations

import logging
import math

import allocation_forms
import numpy as np
from curves import Panel, line, picture, relative
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
from dp_accounting.rdp import RdpAccountant
from dp_accounting.rdp.rdp_privacy_accountant import compute_epsilon
from poisson import composed_epsilon, decomposed_distribution, poisson_epsilon
from scipy.optimize import brentq

from turnout.accounting import calibrate_delta, price
from turnout.accounting.divergence.curves import Direction, PairCurve, Side, epsilon_at
from turnout.accounting.divergence.pairs import GaussianPair
from turnout.accounting.published import random_allocation
from turnout.accounting.shuffling import shuffled_gaussian
from turnout.core.errors import UnsupportedError
from turnout.reporting.drawing import Picture
from turnout.schemes import CheckIn, GaussianNoise, KSubset, Relation, Scheme

ORDERS = [*(1 + i / 20 for i in range(1, 20)), *range(2, 257)]
TOLERANCE = 1e-3
logging.getLogger("absl").setLevel(logging.ERROR)  # warnings about omitted Rényi orders


def scheme(sigma: float, participation: CheckIn | KSubset) -> Scheme:
    return Scheme(GaussianNoise(sigma), participation, Relation.ADD_REMOVE)


def ours(sigma: float, participation: CheckIn | KSubset, delta: float) -> float:
    """Upper bound on ε by turnout: the larger of both directions."""
    return price(scheme(sigma, participation), delta, TOLERANCE).epsilon.upper


def local(sigma: float, delta: float) -> float:
    return epsilon_at(
        PairCurve(GaussianPair(sigma), Direction.REMOVE, Side.UPPER), delta, Side.UPPER
    )


def poisson_rdp(sigma: float, rate: float, steps: int) -> RdpAccountant:
    accountant = RdpAccountant(orders=ORDERS)
    accountant.compose(PoissonSampledDpEvent(rate, GaussianDpEvent(sigma)), steps)
    return accountant


def figure_1() -> Picture:
    window, delta = 10**6, 1e-10
    sigmas = np.geomspace(0.3, 2.0, 12)

    def theorem_3_2(sigma: float) -> float:
        # The ε₀ with the smallest rate is used: only that Poisson run is analysed.
        best = math.inf, 0.0
        for local_epsilon in np.geomspace(0.5, 12, 40):
            try:
                rate = allocation_forms.theorem_3_2_as_printed(
                    GaussianPair(sigma), window, delta, local_epsilon, poisson=lambda _, r, *__: r
                )
            except UnsupportedError:
                continue
            best = min(best, (rate, local_epsilon))
        if math.isinf(best[0]):
            raise UnsupportedError("the theorem is void at these parameters")
        return allocation_forms.theorem_3_2_as_printed(
            GaussianPair(sigma), window, delta, best[1], poisson=poisson_epsilon
        )

    # One curve for each analysis, from no amplification to turnout's bound.
    curves = [
        line("no amplif.", sigmas, lambda s: local(s, delta)),
        # Sensitivity C, as in the paper: twice the noise under the 2C of a replacement.
        line(
            "shuffling",
            sigmas,
            lambda s: shuffled_gaussian(2 * s, window, delta),
        ),
        line(
            "RDP 4.6",
            sigmas,
            lambda s: random_allocation.corollary_4_7(s, window).epsilon(delta),
        ),
        line(
            "alloc. 4.1",
            sigmas,
            lambda s: random_allocation.theorem_4_1(
                GaussianPair(s), window, delta, poisson=poisson_epsilon
            ),
        ),
        line("alloc. 3.2", sigmas, theorem_3_2),
        line(
            "alloc. variance",
            sigmas,
            lambda s: allocation_forms.theorem_3_2_by_variance(
                GaussianPair(s), window, delta, poisson=poisson_epsilon
            ),
        ),
        line(
            "Poisson",
            sigmas,
            lambda s: poisson_epsilon(GaussianPair(s), 1 / window, window, delta),
        ),
        line("turnout", sigmas, lambda s: ours(s, CheckIn(window), delta)),
    ]
    # The values of ε, and their ratios to turnout's.
    panel = Panel(
        "δ = 1e-10, t = 10⁶",
        sigmas,
        "noise multiplier σ",
        "ε",
        curves,
        ticks=((0.3, 0.4, 0.5, 0.7, 1, 1.4, 2), ()),
    )
    return picture(
        "allocation-1",
        "ε of one check-in among a million steps, by analysis",
        "ε against the noise multiplier for one check-in among a million steps, by every method.",
        [panel, relative(panel, 5.0)],
    )


def figure_2() -> Picture:
    window, delta, sigma = 10**4, 1e-8, 1.0
    epochs = [1, 2, 5, 10, 22, 46, 100, 215, 464, 1000]
    curve = random_allocation.corollary_4_7(sigma, window)
    poisson = poisson_rdp(sigma, 1 / window, window)

    # Rényi bounds are composed by addition, privacy-loss distributions by convolution.
    curves = [
        line("Poisson RDP", epochs, lambda e: _rdp_times(poisson, e, delta)),
        line(
            "alloc. 4.1",
            epochs,
            lambda e: composed_epsilon(
                *decomposed_distribution(GaussianPair(sigma), window, delta / int(e)), int(e), delta
            ),
        ),
        line("RDP 4.6", epochs, lambda e: curve.composed(int(e)).epsilon(delta)),
        line(
            "Poisson",
            epochs,
            lambda e: poisson_epsilon(GaussianPair(sigma), 1 / window, int(e) * window, delta),
        ),
        line("turnout", epochs, lambda e: ours(sigma, CheckIn(window, int(e)), delta)),
    ]
    # The values of ε, and their ratios to turnout's.
    panel = Panel("σ = 1, δ = 1e-8, t = 10⁴", epochs, "epochs", "ε", curves)
    return picture(
        "allocation-2",
        "ε of one check-in an epoch against the number of epochs",
        "ε against the number of epochs, one check-in among ten thousand steps in each.",
        [panel, relative(panel, 4.0)],
    )


def figure_3() -> Picture:
    sigma, epsilon = 0.3, 10.0
    windows = [25, 50, 75, 100, 150, 200, 250, 300, 400, 500]

    # Methods that return ε at a δ are inverted by root search over ln δ.
    def delta_at(epsilon_of_delta) -> float:
        low, high = math.log(1e-12), math.log(0.5)
        return math.exp(
            brentq(lambda x: epsilon_of_delta(math.exp(x)) - epsilon, low, high, xtol=5e-3)
        )

    # One curve for each analysis; the figure shows δ, not ε.
    curves = [
        line(
            "Poisson RDP",
            windows,
            lambda t: poisson_rdp(sigma, 1 / t, int(t)).get_delta(epsilon),
        ),
        line(
            "alloc. 4.1",
            windows,
            lambda t: delta_at(
                lambda d: random_allocation.theorem_4_1(
                    GaussianPair(sigma), int(t), d, poisson=poisson_epsilon
                )
            ),
        ),
        line(
            "Poisson",
            windows,
            lambda t: delta_at(lambda d: poisson_epsilon(GaussianPair(sigma), 1 / t, int(t), d)),
        ),
        line(
            "RDP 4.6",
            windows,
            lambda t: random_allocation.corollary_4_7(sigma, int(t)).delta(epsilon),
        ),
        line(
            "turnout",
            windows,
            lambda t: calibrate_delta(scheme(sigma, CheckIn(int(t))), epsilon).value,
        ),
    ]
    # The values of δ, and their ratios to turnout's.
    panel = Panel("σ = 0.3, ε = 10", windows, "steps t", "δ", curves, ("linear", "log"))
    return picture(
        "allocation-3",
        "δ at ε = 10 of one check-in with little noise",
        "δ at ε = 10 against the number of steps, with little noise.",
        [panel, relative(panel, 30.0)],
    )


def figure_4() -> Picture:
    window, delta, sigma = 1024, 1e-6, 1.0
    picks = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]
    # One curve for each analysis; the last one has one step in each of k windows instead.
    curves = [
        line(
            "Dong",
            picks,
            lambda k: allocation_forms.dong_2025(sigma, window, int(k)).epsilon(delta),
        ),
        line(
            "RDP 4.6",
            picks,
            lambda k: random_allocation.corollary_4_7(sigma, window, int(k)).epsilon(delta),
        ),
        line(
            "Poisson RDP",
            picks,
            lambda k: poisson_rdp(sigma, k / window, window).get_epsilon(delta),
        ),
        line(
            "Poisson",
            picks,
            lambda k: poisson_epsilon(GaussianPair(sigma), k / window, window, delta),
        ),
        line(
            "turnout",
            picks,
            lambda k: ours(sigma, KSubset(window, int(k)), delta),
        ),
        line(
            "k windows",
            picks,
            lambda k: ours(sigma, CheckIn(window // int(k), int(k)), delta),
        ),
    ]
    # The values of ε, and their ratios to turnout's.
    panel = Panel("σ = 1, δ = 1e-6, t = 1024", picks, "participations k", "ε", curves)
    return picture(
        "allocation-4",
        "ε of k participations in 1024 steps",
        "ε against the number of steps out of 1024 in which the client takes part.",
        [panel, relative(panel, 4.0)],
    )


def _rdp_times(accountant: RdpAccountant, count: float, delta: float) -> float:
    divergences = [count * value for value in accountant._rdp]
    return compute_epsilon(ORDERS, divergences, delta)[0]
