"""One check-in a window, the other ways to come, and the papers' bounds for check-ins.

The setting is a client who, in each of r windows of t steps, takes part once in a sum of clipped
updates with Gaussian noise σ. Everything else answers the question "and if the client came
otherwise?", or is a paper's bound for the same thing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from turnout.accounting.divergence.curves import Direction, PairCurve, Side, epsilon_at
from turnout.accounting.divergence.pairs import GaussianPair
from turnout.accounting.pricing import price
from turnout.accounting.published.allocation_rdp import corollary_4_7
from turnout.accounting.published.check_ins_approximate import (
    at_total_delta,
    theorem_3_2_approximate,
)
from turnout.accounting.published.comparison.methods import Method, Quote
from turnout.accounting.published.random_allocation import corollary_3_12, theorem_4_1
from turnout.accounting.published.results import PrivacyPoint, Status
from turnout.accounting.shuffling import shuffled_gaussian
from turnout.core.errors import ParameterError, UnsupportedError
from turnout.schemes import (
    CheckIn,
    EveryStep,
    GaussianNoise,
    ParticipationLaw,
    PoissonSampling,
    Relation,
    Scheme,
    TrustModel,
)
from turnout.schemes.parameters import hold_members

_RENYI_ORDERS = (256, 512, 1024)  # largest orders of a Rényi curve, tried while they help
_LOCAL_DELTAS = range(10, 60, 2)  # powers of 1/10 tried for δ₀ of a Gaussian message


@dataclass(frozen=True, slots=True)
class Setting:
    """One point of a comparison: σ over the clip norm, r windows of t steps, δ.

    Attributes:
        relation: the neighbouring relation of every method that has none of its own.
        clients: n, who send a message each where messages are shuffled; None where unknown.
        tolerance: relative width of the brackets asked for.
    """

    noise_multiplier: float
    window: int
    windows: int
    delta: float
    relation: Relation
    clients: int | None = None
    tolerance: float = 1e-2

    def __post_init__(self) -> None:
        hold_members(self, relation=Relation)


def priced(law: Callable[[Setting], ParticipationLaw]) -> Callable[[Setting], Quote]:
    """ε of the setting's noise under a participation law, priced exactly."""

    def quote(setting: Setting) -> Quote:
        scheme = Scheme(GaussianNoise(setting.noise_multiplier), law(setting), setting.relation)
        return Quote.of(price(scheme, setting.delta, setting.tolerance).epsilon)

    return quote


def shuffling(setting: Setting) -> Quote:
    """All clients' messages of a window, each with noise σ of its own, shuffled."""
    if setting.clients is None:
        raise UnsupportedError("needs the number of clients (--clients)")
    return Quote(
        shuffled_gaussian(setting.noise_multiplier, setting.clients, setting.delta, setting.windows)
    )


def allocation_rdp(setting: Setting) -> Quote:
    """Theorem 4.6 of random allocation, composed and converted."""
    _needs_absence(setting)
    best = math.inf
    for order in _RENYI_ORDERS:
        curve = corollary_4_7(setting.noise_multiplier, setting.window, largest_order=order)
        before, best = best, min(best, curve.composed(setting.windows).epsilon(setting.delta))
        if best > 0.99 * before:
            break
    return Quote(best)


def allocation_by_poisson(setting: Setting) -> Quote:
    """Theorem 3.2 of random allocation; for several windows Corollary 3.12."""
    _needs_absence(setting)
    pair, steps = GaussianPair(setting.noise_multiplier), setting.window * setting.windows
    return Quote(corollary_3_12(pair, steps, setting.delta, setting.windows))


def allocation_by_decomposition(setting: Setting) -> Quote:
    """Theorem 4.1 of random allocation."""
    _needs_absence(setting)
    _needs_one_window(setting)
    pair = GaussianPair(setting.noise_multiplier)
    return Quote(theorem_4_1(pair, setting.window, setting.delta))


def check_ins_3_2(setting: Setting) -> Quote:
    """Theorem 3.2 of random check-ins, branch for (ε₀, δ₀), at the best δ₀ that was tried."""
    _needs_one_window(setting)
    message = PairCurve(GaussianPair(setting.noise_multiplier / 2), Direction.REMOVE, Side.UPPER)
    found = [
        epsilon
        for power in _LOCAL_DELTAS
        if (epsilon := _check_ins_at(setting, message, 10.0**-power)) is not None
    ]
    if not found:
        raise UnsupportedError("vacuous: its factor 8 on epsilon_0 leaves nothing of delta")
    return Quote(min(found))


def _check_ins_at(setting: Setting, message: PairCurve, local_delta: float) -> float | None:
    """ε with this δ₀; None where the theorem is vacuous."""
    local_epsilon = epsilon_at(message, local_delta, Side.UPPER)
    if local_epsilon == 0:
        return None

    def point(delta: float) -> PrivacyPoint:
        return theorem_3_2_approximate(local_epsilon, local_delta, setting.window, delta)

    try:
        return at_total_delta(point, setting.delta)
    except (UnsupportedError, ParameterError):
        return None


def _needs_absence(setting: Setting) -> None:
    if setting.relation is Relation.REPLACE_ONE:
        raise UnsupportedError("compares presence with absence; says nothing about replace-one")


def _needs_one_window(setting: Setting) -> None:
    if setting.windows > 1:
        raise UnsupportedError("is about one window; several are not composed here")


_REMOVE = ("remove",)
METHODS: tuple[Method[Setting], ...] = (
    Method(
        "check-in",
        "one check-in a window, aggregated: exact law, both directions",
        priced(lambda setting: CheckIn(setting.window, setting.windows)),
    ),
    Method(
        "Poisson",
        "Poisson sampling at rate 1/window, as many steps: exact PLD",
        priced(lambda s: PoissonSampling(1 / s.window, s.window * s.windows)),
    ),
    Method(
        "shuffling",
        "every client's message with noise of its own, shuffled once a window: as ε₀-messages, "
        "with the Gaussian's (ε₀, δ₀)",
        shuffling,
        Relation.REPLACE_ONE,
        ("replace",),
        TrustModel.SHUFFLED,
    ),
    Method(
        "RDP 4.6",
        "random allocation, Theorem 4.6: exact Rényi divergences of orders up to 1024, converted",
        allocation_rdp,
        directions=_REMOVE,
    ),
    Method(
        "alloc. 3.2",
        "random allocation, Theorem 3.2 (Corollary 3.12): Poisson sampling at a larger rate",
        allocation_by_poisson,
        directions=_REMOVE,
    ),
    Method(
        "alloc. 4.1",
        "random allocation, Theorem 4.1: Poisson sampling that took the client",
        allocation_by_decomposition,
        directions=_REMOVE,
        status=Status.REPRODUCTION,
    ),
    Method(
        "check-ins 3.2",
        "random check-ins, Theorem 3.2 with (ε₀, δ₀): one client a step",
        check_ins_3_2,
        Relation.REPLACE_ONE,
        ("replace",),
    ),
    Method(
        "no amplif.",
        "one Gaussian a window at a known step: exact",
        priced(lambda setting: EveryStep(setting.windows)),
    ),
)
"""The compared methods, ours first."""
