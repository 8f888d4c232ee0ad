"""What all windows of a ledger share: who is protected against what."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from turnout.accounting.decomposition import decompose, is_per_client
from turnout.accounting.divergence.blocks import Block, FixedSizeBlock, PairBlock
from turnout.accounting.divergence.neighbour_bounds import Run
from turnout.accounting.divergence.pairs import GaussianPair, Pair
from turnout.accounting.laws.check_ins.block import AllocationBlock
from turnout.core.errors import ParameterError, UnsupportedError
from turnout.spec import (
    CheckIn,
    EveryStep,
    FixedSize,
    KSubset,
    PoissonSampling,
    PrivacyUnit,
    Relation,
    Scheme,
    SelfSampling,
    TrustModel,
)
from turnout.spec.classes import hold_members


@dataclass(frozen=True, slots=True)
class Terms:
    """Relation, unit and trust of a guarantee; every window of a ledger must have the same.

    Attributes:
        relation: the neighbouring relation. No default, on purpose.
        unit: what one record is.
        trust: whom the client must trust.
    """

    relation: Relation
    unit: PrivacyUnit = PrivacyUnit.CLIENT
    trust: TrustModel = TrustModel.CENTRAL

    def __post_init__(self) -> None:
        hold_members(self, relation=Relation, unit=PrivacyUnit, trust=TrustModel)

    @classmethod
    def of(cls, scheme: Scheme) -> Terms:
        """The terms of a scheme."""
        return cls(scheme.relation, scheme.unit, scheme.trust)

    def require(self, scheme: Scheme) -> None:
        """Refuses a scheme with other terms.

        Raises:
            ParameterError: relation, unit or trust differ.
        """
        for name in ("relation", "unit", "trust"):
            ours, theirs = getattr(self, name), getattr(scheme, name)
            if ours is not theirs:
                raise ParameterError(name, theirs.value, f"{ours.value!r}, as in the ledger")

    def run_of(self, scheme: Scheme, steps: int | None = None) -> Run:
        """The blocks of a scheme (of its first steps) that a filter charges: one hop.

        Raises:
            ParameterError: relation, unit or trust differ.
            UnsupportedError: the relation takes two hops here, or clients have windows of
                their own.
        """
        self.require(scheme)
        if is_per_client(scheme):
            raise UnsupportedError(
                "filters and odometers keep one account for all clients, so windows cut from a "
                "trace are refused; charge the smallest window that any client may have"
            )
        parts = decompose(scheme, steps)
        if parts.other is not None:
            raise UnsupportedError(
                f"{scheme.relation.value} takes two hops here, which filters and odometers do "
                "not follow; keep the account under the relation of one hop"
            )
        return parts.present.upper

    def to_dict(self) -> dict[str, Any]:
        """As plain words."""
        return {"relation": self.relation.value, "unit": self.unit.value, "trust": self.trust.value}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Terms:
        """What `to_dict` gave."""
        return cls(data["relation"], data["unit"], data["trust"])


def require_terms(terms: object) -> None:
    """Refuses anything but `Terms`: an account must say who is protected against what.

    Raises:
        ParameterError: a word, None, a scheme.
    """
    if not isinstance(terms, Terms):
        raise ParameterError("terms", terms, "a Terms: relation, unit and trust model")


def run_dominates(large: Run, small: Run) -> bool:
    """Whether ``small`` is *proved* to be no larger than ``large``, whatever ε and direction.

    Blocks are matched in order. False means "not proved", not "larger".
    """
    return len(small) <= len(large) and all(
        few <= many and dominates(block, other)
        for (other, few), (block, many) in zip(small, large, strict=False)
    )


def dominates(large: Block, small: Block) -> bool:
    """Whether the likelihood ratio of ``small`` is proved to be smaller in convex order.

    * A ratio seen with a smaller probability is closer to 1.
    * An average of more independent copies of a ratio is smaller (Marshall & Olkin).
    * Gaussian noise with a larger multiplier is noise added to the noise.

    Outcomes that tell for sure are outside of the ratio's law, so they must be as frequent.
    """
    if type(large) is not type(small):
        return False
    if isinstance(large, PairBlock) and isinstance(small, PairBlock):
        fits = small.probability <= large.probability and small.leak == large.leak
        return fits and _noisier(large.pair, small.pair)
    if isinstance(large, AllocationBlock) and isinstance(small, AllocationBlock):
        fits = small.probability <= large.probability and small.window >= large.window
        return fits and small.leak == large.leak and _noisier(large.pair, small.pair)
    if isinstance(large, FixedSizeBlock) and isinstance(small, FixedSizeBlock):
        fits = small.rate <= large.rate and small.leak == large.leak
        return fits and _noisier(large.pair, small.pair)
    return large == small


def _noisier(large: Pair, small: Pair) -> bool:
    if isinstance(large, GaussianPair) and isinstance(small, GaussianPair):
        return small.noise_multiplier >= large.noise_multiplier
    return large == small


def as_windows(scheme: Scheme, windows: int) -> Scheme:
    """A scheme with another number of windows (or of steps, where steps stand for themselves).

    Raises:
        UnsupportedError: the law is not a sequence of equal windows.
    """
    law = scheme.participation
    if isinstance(law, CheckIn | KSubset):
        return replace(scheme, participation=replace(law, windows=windows))
    if isinstance(law, EveryStep | PoissonSampling | SelfSampling | FixedSize):
        return replace(scheme, participation=replace(law, steps=windows))
    raise UnsupportedError(f"{type(law).__name__} is not a sequence of equal windows")
