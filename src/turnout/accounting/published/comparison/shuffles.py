"""Shuffled local messages: ε by every bound that applies, and what is attained.

The setting: each of n clients sends one message a round, made by an ε₀-LDP randomizer, through a
shuffler; or each round k of them, a uniform subset, do. Neighbours differ in one client's record.
Bounds for randomizers that earlier messages may choose need an order of speaking that is uniform
and unknown to the adversary and to whoever chooses (`SpeakingOrder.HIDDEN`).

Papers state (ε, δ) of one round of all clients. Where clients are sampled such a bound is used as
in Lemma 4.3.1 of Girgis 2023, and several rounds are composed by the privacy region of Kairouz, Oh
and Viswanath 2015, which is all that (ε, δ) allows. Ours are composed as whole privacy curves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from turnout.accounting.divergence.blocks import Block
from turnout.accounting.divergence.curves import Direction, Side
from turnout.accounting.divergence.runs import run_epsilon
from turnout.accounting.pricing import price
from turnout.accounting.published.check_ins import theorem_5_1
from turnout.accounting.published.comparison.methods import Method, Quote
from turnout.accounting.published.renyi import RenyiFormula
from turnout.accounting.published.results import Status
from turnout.accounting.published.shuffling import clones_2021_closed_form, efm19_corollary_9
from turnout.accounting.published.shuffling_blanket import (
    blanket_2019_bennett,
    blanket_2019_hoeffding,
)
from turnout.accounting.published.shuffling_rdp import theorem_5_3_1, theorem_5_3_2
from turnout.accounting.published.shuffling_subsampled import lemma_4_3_1, theorem_5_4_1
from turnout.accounting.published.strong_composition import kov_of_shuffle
from turnout.accounting.shuffling.blanket.blocks import BlanketBlock, clones_2021
from turnout.accounting.shuffling.blanket.pair import BlanketPair, clones_pair, stronger_clones_pair
from turnout.accounting.shuffling.sampling.blocks import SubsampledBlock
from turnout.core.bounds import Bounds
from turnout.core.errors import UnsupportedError
from turnout.schemes import (
    EveryStep,
    FixedSize,
    HadamardResponse,
    KaryResponse,
    NonAdaptiveRandomizer,
    PureRandomizer,
    Randomizer,
    Relation,
    Scheme,
    SpeakingOrder,
    TrustModel,
)

_Bound = Callable[[float, int, float], float]
"""(ε₀, n, δ) ↦ ε of one round."""


@dataclass(frozen=True, slots=True)
class ShuffleSetting:
    """One point of a comparison: ε₀ of one message, n clients, δ, T rounds shuffled afresh.

    Attributes:
        sampled: k of the n clients who send in a round, a uniform subset; None: all.
        tolerance: relative width of the brackets asked for.
    """

    epsilon0: float
    clients: int
    delta: float
    rounds: int = 1
    sampled: int | None = None
    tolerance: float = 1e-2

    @property
    def law(self) -> EveryStep | FixedSize:
        """The participation law of the rounds."""
        if self.sampled is None:
            return EveryStep(self.rounds)
        return FixedSize(self.sampled, self.clients, self.rounds)


@lru_cache(maxsize=64)
def _priced(setting: ShuffleSetting, randomizer: Randomizer) -> Bounds:
    """The price of shuffled messages of a randomizer."""
    scheme = Scheme(
        randomizer,
        setting.law,
        Relation.REPLACE_ONE,
        trust=TrustModel.SHUFFLED,
        population=setting.clients,
        order=SpeakingOrder.HIDDEN,
    )
    return price(scheme, setting.delta, setting.tolerance).epsilon


def priced(randomizer: Callable[[float], Randomizer]) -> Callable[[ShuffleSetting], Quote]:
    """Both sides of ε of shuffled messages of a randomizer, as a function of its ε₀."""
    return lambda setting: Quote.of(_priced(setting, randomizer(setting.epsilon0)))


def attained(setting: ShuffleSetting) -> Quote:
    """An ε that some ε₀-randomizer attains: the lower end of the default."""
    lower = _priced(setting, NonAdaptiveRandomizer(setting.epsilon0)).lower
    if lower <= 0:
        raise UnsupportedError("nothing above 0 was found to be attained")
    return Quote(lower, lower)


def composed_pair(pair: Callable[[float], BlanketPair]) -> Callable[[ShuffleSetting], Quote]:
    """ε by a dominating pair of one round's messages, all rounds' curves composed."""

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
    """ε by the smallest of a paper's bounds on one round of all clients.

    Sampled and composed from (ε, δ) alone; with ``composed`` about several rounds only.
    """

    def everybody(epsilon0: float, clients: int, delta: float) -> float:
        return min(bound(epsilon0, clients, delta) for bound in bounds)

    def quote(setting: ShuffleSetting) -> Quote:
        if composed and setting.rounds == 1:
            raise UnsupportedError("one round has nothing to compose")
        one_round = everybody if setting.sampled is None else _sampled(everybody, setting.sampled)
        n, delta = setting.clients, setting.delta
        if setting.rounds == 1:
            return Quote(one_round(setting.epsilon0, n, delta))
        found = kov_of_shuffle(setting.epsilon0, n, delta, setting.rounds, bound=one_round)
        return Quote(found)

    return quote


def _sampled(bound: _Bound, sampled: int) -> _Bound:
    """A bound on one round of so many sampled clients."""
    return lambda epsilon0, clients, delta: lemma_4_3_1(
        epsilon0, clients, sampled, delta, bound=bound
    )


def converted(
    everybody: Callable[[float, int], RenyiFormula],
) -> Callable[[ShuffleSetting], Quote]:
    """ε by a theorem on Rényi divergences of one round of all clients, composed and converted."""

    def quote(setting: ShuffleSetting) -> Quote:
        if setting.sampled is not None:
            raise UnsupportedError("is about rounds in which everybody sends; see 5.4.1")
        formula = everybody(setting.epsilon0, setting.clients)
        return Quote(formula.composed(setting.rounds).epsilon(setting.delta))

    return quote


def thesis_5_4_1(setting: ShuffleSetting) -> Quote:
    """Theorem 5.4.1 of the thesis, composed and converted."""
    if setting.sampled is None:
        raise UnsupportedError("is about sampled clients (--sampled)")
    formula = theorem_5_4_1(setting.epsilon0, setting.clients, setting.sampled)
    return Quote(formula.composed(setting.rounds).epsilon(setting.delta))


def unshuffled(setting: ShuffleSetting) -> Quote:
    """The same messages, each with its sender's name."""
    if setting.sampled is not None:
        raise UnsupportedError("without a shuffler everybody sees who was sampled")
    scheme = Scheme(PureRandomizer(setting.epsilon0), setting.law, Relation.REPLACE_ONE)
    return Quote.of(price(scheme, setting.delta, setting.tolerance).epsilon)


def _method(
    name: str,
    about: str,
    quote: Callable[[ShuffleSetting], Quote],
    *,
    side: Side = Side.UPPER,
    trust: TrustModel = TrustModel.SHUFFLED,
) -> Method[ShuffleSetting]:
    """A method about one record against another, which is the setting's only relation."""
    return Method(name, about, quote, None, ("replace",), trust, Status.PROVED, side)


SHUFFLE_METHODS: tuple[Method[ShuffleSetting], ...] = (
    _method(
        "adaptive",
        "any ε₀-randomizers, chosen by the messages before, if nobody knows who speaks when: the "
        "default",
        priced(PureRandomizer),
    ),
    _method(
        "non-adaptive",
        "any one ε₀-randomizer for all, chosen beforehand, in any order",
        priced(NonAdaptiveRandomizer),
    ),
    _method(
        "attained",
        "what binary or 3-valued response really costs: no bound for all can be smaller",
        attained,
        side=Side.LOWER,
    ),
    _method(
        "binary RR", "binary randomized response, the others' worst records", priced(KaryResponse)
    ),
    _method("Hadamard", "Hadamard response, the others' worst records", priced(HadamardResponse)),
    _method(
        "clones",
        "clones 2021, Theorem 3.1, numerically, if nobody knows who speaks when; rounds composed "
        "as PLD",
        composed_pair(clones_pair),
    ),
    _method(
        "clones KOV",
        "clones 2021 of one round, composed from (ε, δ)",
        stated(clones_2021, composed=True),
    ),
    _method(
        "clones 2023",
        "stronger clones 2023, whose proof an erratum took back; the pair is proved in "
        "docs/design/shuffling.md, unpublished, and is what the default rests on",
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
    _method("RDP 5.4.1", "thesis, Theorem 5.4.1: the same of sampled clients", thesis_5_4_1),
    _method(
        "no shuffler",
        "the same messages under their senders' names: exact",
        unshuffled,
        trust=TrustModel.LOCAL,
    ),
)
"""The compared methods for shuffles, ours first."""
