"""Blanket pairs: what a shuffler's view of one client's message is worth, in five numbers.

Neighbours differ in one client's record (replace-one). The client's message is of kind *high*,
*low* or
neutral: in one world with masses (v_h, v_l, v₃), in the other with (v_l, v_h, v₃). Every other
client's message is, independently, high or low with mass β each and neutral with mass β₃; else
its sender is known and it is worth nothing. The view is how many of the n messages are high, low
and neutral.

Notation
    ε₀ > 0         of the local randomizer, under replacement; above 600 it counts as 600
    e, K           e^{ε₀}, e^ε
    v_h, v_l, v₃   `high`, `low`, `neutral`
    β, β₃          `share`, `neutral_share`
    p, q           laws of a message that holds one or the other of two records
    m              max(p, q)/e, or less: what every law of another's message is at least
    α              in (0, 1/(e + 1)]: with which chance the victim's message is low, if two of
                   the client's records differ as much as they can; total variation is (e − 1)α
    a₃(α)          1 − (e + 1)α

**The worst that any ε₀-randomizers can do.** Two laws of an ε₀-randomizer at total variation
(e − 1)α, and max(p, q)/e, which every other law is at least, make a trinomial pair. The gain of one
message, (p − Kq)/m under m, then is

    A = e − K or B = 1 − eK   with chance α each,
    D = e(1 − K)              with chance (1 − (e + 1)α)/e,
    0                         else.

The chances are linear in α, the mean is 1 − K for every α, and D and 0 lie between B and A: by the
chord over [B, A] the gain rises with α in convex order. So δ(K), which is E[(sum of n gains)₊]/n,
rises with α for every K and n, and the supremum over α is its largest value, 1/(e + 1): the pair of
the stronger clones bound. If randomizers are chosen by the messages before, each gain is, whatever
came before, at most that one in convex order, which is enough where the order of speaking is hidden
(`turnout.schemes.SpeakingOrder`). docs/design/shuffling.md has the proofs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from turnout.core import checks
from turnout.core.errors import ParameterError

_LARGEST_LOCAL_EPSILON = 600.0  # more is as good as none: e^{ε₀} must be a number
_ROUNDING = 1e-12


@dataclass(frozen=True, slots=True)
class BlanketPair:
    """One victim's message against those of the others.

    Attributes:
        high: v_h, the mass of the likelier kind.
        low: v_l, of the less likely one, 0 < v_l < v_h.
        share: β in (0, ½], with which another's message is high, and with which it is low.
        neutral_share: β₃; positive if the victim's message may be neutral.
    """

    high: float
    low: float
    share: float
    neutral_share: float = 0.0

    def __post_init__(self) -> None:
        checks.positive(high=self.high, low=self.low, share=self.share)
        checks.non_negative(neutral_share=self.neutral_share)
        if not self.low < self.high:
            raise ParameterError("low", self.low, f"below high = {self.high:g}")
        if self.high + self.low > 1.0 + _ROUNDING:
            raise ParameterError("high", self.high, f"at most 1 - low = {1 - self.low:g}")
        if 2 * self.share + self.neutral_share > 1.0 + _ROUNDING:
            raise ParameterError("share", self.share, "at most half of what is not neutral")
        if self.neutral > 0 and not self.neutral_share > 0:
            raise ParameterError("neutral_share", self.neutral_share, "a number above 0")

    @property
    def neutral(self) -> float:
        """v₃, with which the victim's message is worth nothing in either world."""
        rest = 1.0 - self.high - self.low
        return rest if rest > _ROUNDING else 0.0

    @property
    def neutral_ratio(self) -> float:
        """v₃/β₃, 0 where nothing is neutral."""
        return self.neutral / self.neutral_share if self.neutral > 0 else 0.0

    @property
    def local_epsilon(self) -> float:
        """ln(v_h/v_l): alone in the world, the message costs no more."""
        return math.log(self.high / self.low)


def clones_pair(local_epsilon: float) -> BlanketPair:
    """The pair of the clones bound, for any ε₀-randomizers, adaptive ones too.

    Source: Feldman, McMillan and Talwar 2021 (feldman2021clones), Theorem 3.1.
    Status: proved, upper bound, if the order of speaking is hidden (`SpeakingOrder`) or one
    randomizer is fixed beforehand. R(x⁰) = qU + (1 − q)V and R(x¹) = (1 − q)U + qV for some laws U
    and V, q = e/(e + 1), and every other message has a law ≥ ½(R(x⁰) + R(x¹))/e = ½(U + V)/e.

    >>> clones_pair(1.0).share == 0.5 * math.exp(-1)
    True
    """
    e, high, low = _response(local_epsilon)
    return BlanketPair(high, low, 0.5 / e)


def stronger_clones_pair(local_epsilon: float) -> BlanketPair:
    """The pair of the stronger clones bound.

    Source: Feldman, McMillan and Talwar 2023 (feldman2023stronger), Theorem 3.1, of which an
    erratum took the proof back for general randomizers.
    Status: proved, upper bound: it is `trinomial_pair` at its supremum over α; see `worst_pair`.
    """
    _, high, low = _response(local_epsilon)
    return BlanketPair(high, low, low)


def trinomial_pair(local_epsilon: float, alpha: float) -> BlanketPair:
    """The pair of one non-adaptive randomizer and two records at total variation (e − 1)α.

    Source: the privacy blanket (balle2019blanket), of two records' laws P and P'.
    Status: proved, upper bound. With Q₀ and Q₁ along (P − P')₊ and (P' − P)₊, P = eαQ₀ + αQ₁ + a₃Q*
    and P' = αQ₀ + eαQ₁ + a₃Q* for some law Q*, and every other record's law is at least
    max(P, P')/e = αQ₀ + αQ₁ + (a₃/e)Q*.
    """
    e, _, low = _response(local_epsilon)
    checks.positive(alpha=alpha)
    if alpha > low * (1.0 + _ROUNDING):
        raise ParameterError("alpha", alpha, f"at most 1/(exp(local_epsilon) + 1) = {low:g}")
    alpha = min(alpha, low)
    neutral = max(1.0 - (e + 1.0) * alpha, 0.0) if alpha < low else 0.0
    return BlanketPair(e * alpha, alpha, alpha, neutral / e)


def kary_pair(local_epsilon: float, values: int) -> BlanketPair:
    """The pair of k-ary randomized response.

    Status: proved, upper bound. With α = 1/(e + k − 1), a message of any record has mass α at least
    on each of the k values: the victim's own in one world is high, its own in the other low.
    """
    checks.count(2, values=values)
    e, _, _ = _response(local_epsilon)
    alpha = 1.0 / (e + (values - 1))
    return BlanketPair(e * alpha, alpha, alpha, (values - 2) * alpha)


def hadamard_pair(local_epsilon: float) -> BlanketPair:
    """The pair of Hadamard response, whatever its order.

    Status: proved, upper bound. Two records share half of their likely messages, so a quarter of
    all messages is likely for the first only, high, and a quarter for the second only, low. The
    rest is e times or just as likely as in the blanket; that it is all the former, and less often,
    is larger in convex order.
    """
    e, high, low = _response(local_epsilon)
    return BlanketPair(0.5 * high, 0.5 * low, 0.5 * low, 0.5 / e)


def third_value_pair(local_epsilon: float) -> BlanketPair:
    """The law of three-valued randomized response when all others hold the third value.

    Status: exact, so a lower bound for all ε₀-randomizers together.
    """
    e, _, _ = _response(local_epsilon)
    low = 1.0 / (e + 2.0)
    return BlanketPair(e * low, low, low, e * low)


def _response(local_epsilon: float) -> tuple[float, float, float]:
    """e, and the masses e/(e + 1) and 1/(e + 1)."""
    checks.positive(local_epsilon=local_epsilon)
    e = math.exp(min(local_epsilon, _LARGEST_LOCAL_EPSILON))
    return e, e / (e + 1.0), 1.0 / (e + 1.0)


def worst_pair(local_epsilon: float, total_variation: float = 1.0) -> BlanketPair:
    """The pair that shuffled messages of an ε₀-randomizer are worth at most.

    Source: Theorems 2 and 3 of docs/design/shuffling.md. Without a bound on the total variation
    this is the pair of Feldman, McMillan and Talwar 2023 (feldman2023stronger), Theorem 3.1, by
    another proof.
    Status: proved, upper bound at every K and n, in both directions, for one randomizer that was
    fixed before (Theorem 2), and for randomizers that differ from message to message and are chosen
    by the messages before (Theorem 3, ours, reviewed independently, unpublished), as long as any
    two clients' laws for the same message are within a factor e and the order of speaking is
    uniform and unknown to the adversary and to whoever chooses. Never above `clones_pair`.

    The total variation is at most how far apart any two laws of one message are, in (0, 1], where
    more is known than that they are within (e − 1)/(e + 1).

    >>> worst_pair(1.0) == stronger_clones_pair(1.0)
    True
    """
    if not 0.0 < total_variation <= 1.0:
        raise ParameterError("total_variation", total_variation, "a number above 0, at most 1")
    widest = stronger_clones_pair(local_epsilon)
    alpha = total_variation / math.expm1(min(local_epsilon, _LARGEST_LOCAL_EPSILON))
    return widest if alpha >= widest.share else trinomial_pair(local_epsilon, alpha)
