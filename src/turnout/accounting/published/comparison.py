"""Comparisons: ε by every method that applies at one setting, for check-ins and for shuffles.

A `Method` is one curve of a comparison; its `Quote` is ε at a setting, with a lower bound if the
method has one. `METHODS` are the methods of a `Setting` (check-ins), `SHUFFLE_METHODS` those of a
`ShuffleSetting`. `api`, `plans` and `reporting` evaluate them; they build on `pricing` and on the
other modules of this package.

**Check-ins.** A client takes part once in each of r windows of t steps, in a sum of clipped updates
with Gaussian noise σ. A method bounds ε of this participation, by this package or by a paper, or
gives ε of another participation of the client, such as Poisson sampling.

**Shuffles.** In each round every client, or a uniform subset of k of the n clients, sends one
message of an ε₀-LDP randomizer through a shuffler. Neighbours differ in one client's record.
Bounds for randomizers that may depend on earlier messages need an order of speaking that is uniform
and unknown to the adversary and to the party that chooses the randomizers (`SpeakingOrder.HIDDEN`).

A paper's bound is one point (ε, δ) for one round of all clients. If clients are sampled, the point
is used as in Lemma 4.3.1 of Girgis 2023. Several rounds are composed by the privacy region of
Kairouz, Oh and Viswanath 2015, which is the smallest bound that follows from (ε, δ) alone. Bounds
of this package are composed as whole privacy curves.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Generic, TypeVar

from turnout.accounting.divergence.blocks import Block
from turnout.accounting.divergence.composition import run_epsilon
from turnout.accounting.divergence.curves import Direction, PairCurve, Side, epsilon_at
from turnout.accounting.divergence.pairs import GaussianPair
from turnout.accounting.pricing import price
from turnout.accounting.published.check_ins import (
    at_total_delta,
    theorem_3_2_approximate,
    theorem_5_1,
)
from turnout.accounting.published.random_allocation import (
    corollary_3_12,
    corollary_4_7,
    theorem_4_1,
)
from turnout.accounting.published.renyi import RenyiFormula
from turnout.accounting.published.results import PrivacyPoint, Status
from turnout.accounting.published.shuffled_training import (
    kov_of_shuffle,
    lemma_4_3_1,
    theorem_5_4_1,
)
from turnout.accounting.published.shuffling import (
    blanket_2019_bennett,
    blanket_2019_hoeffding,
    clones_2021_closed_form,
    efm19_corollary_9,
)
from turnout.accounting.published.shuffling_rdp import theorem_5_3_1, theorem_5_3_2
from turnout.accounting.shuffling import shuffled_gaussian
from turnout.accounting.shuffling.blanket import BlanketBlock, clones_2021
from turnout.accounting.shuffling.blanket_pairs import (
    BlanketPair,
    clones_pair,
    stronger_clones_pair,
)
from turnout.accounting.shuffling.sampled_rounds import SubsampledBlock
from turnout.core.bounds import Bounds
from turnout.core.errors import ParameterError, UnsupportedError
from turnout.schemes import (
    CheckIn,
    EveryStep,
    FixedSize,
    GaussianNoise,
    HadamardResponse,
    KaryResponse,
    NonAdaptiveRandomizer,
    Participation,
    PoissonSampling,
    PureRandomizer,
    Randomizer,
    Relation,
    Scheme,
    SpeakingOrder,
    TrustModel,
)
from turnout.schemes.parameters import hold_members

SettingType = TypeVar("SettingType")


@dataclass(frozen=True, slots=True)
class Quote:
    """ε by one method at one setting, with a lower bound if the method has one."""

    epsilon: float
    epsilon_lower: float | None = None

    @classmethod
    def of(cls, bounds: Bounds) -> Quote:
        """Quote with the upper and the lower bound on ε."""
        return cls(bounds.upper, bounds.lower)


@dataclass(frozen=True, slots=True)
class Method(Generic[SettingType]):
    """Method of a comparison: its name, its ε at a setting, and what this ε covers.

    Attributes:
        about: description, in one line.
        quote: function from a setting to ε. It raises an UnsupportedError if the method does not
            apply, and a NumericalError if no bound can be certified.
        relation: neighbouring relation; None for the relation of the setting.
        directions: directions that the method's ε covers; "remove" alone is no guarantee.
        trust: trust model.
        status: whether the bound is proved.
        side: UPPER if ε is never below the true value; LOWER if ε is never above the true value,
            which is no guarantee.
    """

    name: str
    about: str
    quote: Callable[[SettingType], Quote]
    relation: Relation | None = None
    directions: tuple[str, ...] = ("remove", "add")
    trust: TrustModel = TrustModel.CENTRAL
    status: Status = Status.PROVED
    side: Side = Side.UPPER


_RENYI_ORDERS = (256, 512, 1024)  # largest orders of a Rényi curve, tried while they help
_LOCAL_DELTAS = range(10, 60, 2)  # powers of 1/10 tried for δ₀ of a Gaussian message


@dataclass(frozen=True, slots=True)
class Setting:
    """Check-ins to compare: noise multiplier σ, r windows of t steps, and δ.

    Attributes:
        relation: neighbouring relation of every method that does not fix its relation.
        clients: number of clients n, each of which sends one message in shuffles; None if unknown.
        tolerance: requested relative width of the bounds on ε.
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


def compared_check_ins(
    participation_of: Callable[[Setting], Participation],
) -> Callable[[Setting], Quote]:
    """Function from a setting to bounds on ε of its Gaussian noise under a participation.

    The bounds are those of `price`. ``participation_of`` is a function from the setting to the
    participation.
    """

    def quote(setting: Setting) -> Quote:
        participation = participation_of(setting)
        noise = GaussianNoise(setting.noise_multiplier)
        scheme = Scheme(noise, participation, setting.relation)
        return Quote.of(price(scheme, setting.delta, setting.tolerance).epsilon)

    return quote


def shuffling(setting: Setting) -> Quote:
    """ε if all clients' messages of a window, each with noise σ, are shuffled.

    Raises:
        UnsupportedError: the setting has no number of clients.
    """
    if setting.clients is None:
        raise UnsupportedError("the method needs the number of clients (--clients)")
    return Quote(
        shuffled_gaussian(setting.noise_multiplier, setting.clients, setting.delta, setting.windows)
    )


def allocation_rdp(setting: Setting) -> Quote:
    """ε by Theorem 4.6 of random allocation, after composition and conversion to (ε, δ).

    Raises:
        UnsupportedError: the relation does not compare a client with its absence.
    """
    _needs_absence(setting)
    best = math.inf
    for order in _RENYI_ORDERS:
        curve = corollary_4_7(setting.noise_multiplier, setting.window, largest_order=order)
        before, best = best, min(best, curve.composed(setting.windows).epsilon(setting.delta))
        if best > 0.99 * before:
            break
    return Quote(best)


def allocation_by_poisson(setting: Setting) -> Quote:
    """ε by Theorem 3.2 of random allocation, or by Corollary 3.12 for several windows.

    Raises:
        UnsupportedError: the relation does not compare a client with its absence, or the bound does
            not apply.
    """
    _needs_absence(setting)
    pair, steps = GaussianPair(setting.noise_multiplier), setting.window * setting.windows
    return Quote(corollary_3_12(pair, steps, setting.delta, setting.windows))


def allocation_by_decomposition(setting: Setting) -> Quote:
    """ε by Theorem 4.1 of random allocation.

    Raises:
        UnsupportedError: the relation does not compare a client with its absence, or the setting
            has several windows.
    """
    _needs_absence(setting)
    _needs_one_window(setting)
    pair = GaussianPair(setting.noise_multiplier)
    return Quote(theorem_4_1(pair, setting.window, setting.delta))


def check_ins_3_2(setting: Setting) -> Quote:
    """Smallest ε by Theorem 3.2 of random check-ins for (ε₀, δ₀) over the tried values of δ₀.

    Raises:
        UnsupportedError: the setting has several windows, or the theorem proves nothing at any δ₀
            that was tried.
    """
    _needs_one_window(setting)
    message = PairCurve(GaussianPair(setting.noise_multiplier / 2), Direction.REMOVE, Side.UPPER)
    found = [
        epsilon
        for power in _LOCAL_DELTAS
        if (epsilon := _check_ins_at(setting, message, 10.0**-power)) is not None
    ]
    if not found:
        raise UnsupportedError(
            "the theorem is vacuous here: its factor 8 on epsilon_0 uses up all of delta"
        )
    return Quote(min(found))


def _check_ins_at(setting: Setting, message: PairCurve, local_delta: float) -> float | None:
    """ε by Theorem 3.2 of random check-ins at one δ₀; None if the theorem is vacuous there."""
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
        raise UnsupportedError(
            "the theorem compares a client with its absence: it has no bound under replace-one"
        )


def _needs_one_window(setting: Setting) -> None:
    if setting.windows > 1:
        raise UnsupportedError(
            "the theorem covers one window; several windows are not composed here"
        )


_REMOVE = ("remove",)
METHODS: tuple[Method[Setting], ...] = (
    Method(
        "check-in",
        "one check-in per window, aggregated: exact distribution, both directions",
        compared_check_ins(lambda setting: CheckIn(setting.window, setting.windows)),
    ),
    Method(
        "Poisson",
        "Poisson sampling at rate 1/window, with the same number of steps: exact PLD",
        compared_check_ins(lambda s: PoissonSampling(1 / s.window, s.window * s.windows)),
    ),
    Method(
        "shuffling",
        "each client adds Gaussian noise to its own message, and a window's messages are shuffled: "
        "bounded as messages of (ε₀, δ₀)-randomizers",
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
        "random allocation, Theorem 4.1: Poisson sampling, given that the client takes part",
        allocation_by_decomposition,
        directions=_REMOVE,
        status=Status.REPRODUCTION,
    ),
    Method(
        "check-ins 3.2",
        "random check-ins, Theorem 3.2 for (ε₀, δ₀)-randomizers: one client per step",
        check_ins_3_2,
        Relation.REPLACE_ONE,
        ("replace",),
    ),
    Method(
        "no amplif.",
        "one Gaussian release per window, at a known step: exact",
        compared_check_ins(lambda setting: EveryStep(setting.windows)),
    ),
)
"""The compared methods; those of this package are first."""


_Bound = Callable[[float, int, float], float]
"""(ε₀, n, δ) ↦ ε of one round."""


@dataclass(frozen=True, slots=True)
class ShuffleSetting:
    """Shuffled messages to compare: ε₀ of a message, n clients, δ, and T rounds.

    Each round is shuffled anew.

    Attributes:
        sampled: k, the size of the uniform subset of clients that send; None if all send.
        tolerance: requested relative width of the bounds on ε.
    """

    epsilon0: float
    clients: int
    delta: float
    rounds: int = 1
    sampled: int | None = None
    tolerance: float = 1e-2

    @property
    def participation(self) -> EveryStep | FixedSize:
        """Participation of the clients in the rounds."""
        if self.sampled is None:
            return EveryStep(self.rounds)
        return FixedSize(self.sampled, self.clients, self.rounds)


@lru_cache(maxsize=64)
def _shuffle_bounds(setting: ShuffleSetting, randomizer: Randomizer) -> Bounds:
    """Bounds on ε of shuffled messages of a randomizer, by `price`."""
    scheme = Scheme(
        randomizer,
        setting.participation,
        Relation.REPLACE_ONE,
        trust=TrustModel.SHUFFLED,
        population=setting.clients,
        order=SpeakingOrder.HIDDEN,
    )
    return price(scheme, setting.delta, setting.tolerance).epsilon


def compared_shuffles(
    randomizer: Callable[[float], Randomizer],
) -> Callable[[ShuffleSetting], Quote]:
    """Function from a setting to both bounds on ε of shuffled messages of a randomizer.

    ``randomizer`` is a function of ε₀.
    """
    return lambda setting: Quote.of(_shuffle_bounds(setting, randomizer(setting.epsilon0)))


def attained(setting: ShuffleSetting) -> Quote:
    """Lower bound on ε that some ε₀-randomizer attains when its messages are shuffled.

    Raises:
        UnsupportedError: the lower bound is 0.
    """
    lower = _shuffle_bounds(setting, NonAdaptiveRandomizer(setting.epsilon0)).lower
    if lower <= 0:
        raise UnsupportedError("the lower bound on epsilon is 0")
    return Quote(lower, lower)


def composed_pair(pair: Callable[[float], BlanketPair]) -> Callable[[ShuffleSetting], Quote]:
    """Function from a setting to ε by a dominating pair of one round, composed over rounds."""

    def quote(setting: ShuffleSetting) -> Quote:
        senders = setting.clients if setting.sampled is None else setting.sampled
        block: Block = BlanketBlock(pair(setting.epsilon0), senders)
        if setting.sampled is not None:
            block = SubsampledBlock(block, senders / setting.clients)
        run = [(block, setting.rounds)]
        amplified = run_epsilon(run, Direction.REMOVE, Side.UPPER, setting.delta, 0)
        return Quote(min(amplified, setting.rounds * setting.epsilon0))

    return quote


def stated(*bounds: _Bound, composed: bool = False) -> Callable[[ShuffleSetting], Quote]:
    """Function from a setting to ε by a paper's bounds on one round of all clients.

    If several bounds are given, the smallest is used. Sampling and composition use only (ε, δ) of a
    round. With ``composed`` the function raises an UnsupportedError for a single round.
    """

    def all_clients(epsilon0: float, clients: int, delta: float) -> float:
        return min(bound(epsilon0, clients, delta) for bound in bounds)

    def quote(setting: ShuffleSetting) -> Quote:
        # Bound on one round, of all clients or of a sample.
        if composed and setting.rounds == 1:
            raise UnsupportedError("composition needs two rounds or more")
        one_round = all_clients
        if setting.sampled is not None:
            one_round = _sampled(all_clients, setting.sampled)
        # Several rounds are composed from the (ε, δ) of one round.
        n, delta = setting.clients, setting.delta
        if setting.rounds == 1:
            return Quote(one_round(setting.epsilon0, n, delta))
        found = kov_of_shuffle(setting.epsilon0, n, delta, setting.rounds, bound=one_round)
        return Quote(found)

    return quote


def _sampled(bound: _Bound, sampled: int) -> _Bound:
    """Bound on one round in which ``sampled`` of the clients send."""
    return lambda epsilon0, clients, delta: lemma_4_3_1(
        epsilon0, clients, sampled, delta, bound=bound
    )


def converted(
    theorem: Callable[[float, int], RenyiFormula],
) -> Callable[[ShuffleSetting], Quote]:
    """Function from a setting to ε by a Rényi bound on one round of all clients.

    Raises:
        UnsupportedError: the function is called with a setting in which only some clients send.
    """

    def quote(setting: ShuffleSetting) -> Quote:
        if setting.sampled is not None:
            raise UnsupportedError(
                "the theorem covers rounds of all clients only; see Theorem 5.4.1"
            )
        formula = theorem(setting.epsilon0, setting.clients)
        return Quote(formula.composed(setting.rounds).epsilon(setting.delta))

    return quote


def thesis_5_4_1(setting: ShuffleSetting) -> Quote:
    """ε by Theorem 5.4.1 of the thesis, after composition and conversion to (ε, δ).

    Raises:
        UnsupportedError: all clients send in the setting.
    """
    if setting.sampled is None:
        raise UnsupportedError("the theorem covers sampled clients only (--sampled)")
    formula = theorem_5_4_1(setting.epsilon0, setting.clients, setting.sampled)
    return Quote(formula.composed(setting.rounds).epsilon(setting.delta))


def unshuffled_quote(setting: ShuffleSetting) -> Quote:
    """Bounds on ε of the setting's messages without a shuffler, each linked to its sender.

    Raises:
        UnsupportedError: only some clients send in the setting.
    """
    if setting.sampled is not None:
        raise UnsupportedError(
            "without a shuffler everyone sees which clients were sampled, so sampling is not "
            "analysed"
        )
    scheme = Scheme(PureRandomizer(setting.epsilon0), setting.participation, Relation.REPLACE_ONE)
    return Quote.of(price(scheme, setting.delta, setting.tolerance).epsilon)


def _method(
    name: str,
    about: str,
    quote: Callable[[ShuffleSetting], Quote],
    *,
    side: Side = Side.UPPER,
    trust: TrustModel = TrustModel.SHUFFLED,
) -> Method[ShuffleSetting]:
    """Method for shuffles under replace-one, the only relation of `ShuffleSetting`."""
    return Method(name, about, quote, None, ("replace",), trust, Status.PROVED, side)


SHUFFLE_METHODS: tuple[Method[ShuffleSetting], ...] = (
    _method(
        "adaptive",
        "any ε₀-randomizers, which may depend on earlier messages, in a hidden order of speaking: "
        "the default",
        compared_shuffles(PureRandomizer),
    ),
    _method(
        "non-adaptive",
        "any ε₀-randomizer that is chosen beforehand and used by all clients, in any order",
        compared_shuffles(NonAdaptiveRandomizer),
    ),
    _method(
        "attained",
        "lower bound on ε of binary or 3-valued response: no bound for all randomizers is smaller",
        attained,
        side=Side.LOWER,
    ),
    _method(
        "binary RR",
        "binary randomized response, with the worst records of all other clients",
        compared_shuffles(KaryResponse),
    ),
    _method(
        "Hadamard",
        "Hadamard response, with the worst records of all other clients",
        compared_shuffles(HadamardResponse),
    ),
    _method(
        "clones",
        "clones 2021, Theorem 3.1, computed numerically, in a hidden order of speaking; rounds "
        "composed as PLD",
        composed_pair(clones_pair),
    ),
    _method(
        "clones KOV",
        "clones 2021 for one round; rounds composed from their (ε, δ)",
        stated(clones_2021, composed=True),
    ),
    _method(
        "clones 2023",
        "stronger clones 2023, whose proof was withdrawn by an erratum; another proof, not found "
        "in print, is in docs/design/shuffling.md; the default uses the same pair",
        composed_pair(stronger_clones_pair),
    ),
    _method(
        "clones form", "clones 2021, Theorem 3.1 in closed form", stated(clones_2021_closed_form)
    ),
    _method(
        "blanket",
        "privacy blanket 2019, by Hoeffding or Bennett; one non-adaptive randomizer",
        stated(blanket_2019_hoeffding, blanket_2019_bennett),
    ),
    _method("check-ins", "random check-ins, Theorem 5.1", stated(theorem_5_1)),
    _method("EFM19", "Erlingsson et al. 2019, Corollary 9", stated(efm19_corollary_9)),
    _method(
        "RDP 5.3.1", "thesis, Theorem 5.3.1: Rényi divergences, converted", converted(theorem_5_3_1)
    ),
    _method(
        "RDP 5.3.2", "thesis, Theorem 5.3.2: Rényi divergences, converted", converted(theorem_5_3_2)
    ),
    _method(
        "RDP 5.4.1",
        "thesis, Theorem 5.4.1: Rényi divergences for sampled clients, converted",
        thesis_5_4_1,
    ),
    _method(
        "no shuffler",
        "the same messages without a shuffler, each linked to its sender: exact",
        unshuffled_quote,
        trust=TrustModel.LOCAL,
    ),
)
"""The compared methods for shuffles; those of this package are first."""
