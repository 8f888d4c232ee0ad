"""Turnout's price of JAX Privacy's batch selection strategies.

A strategy is read by its class' name and fields, so JAX is not imported, and a plan can be priced
where it is not installed. Whatever is not known for sure to have a sound analysis is refused.

Notation: T is a strategy's iterations, c its cycle length, p its sampling probability.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from turnout.accounting import price
from turnout.core import checks
from turnout.core.errors import ParameterError, UnsupportedError
from turnout.schemes import (
    CheckIn,
    EveryStep,
    FixedAssignment,
    FixedSize,
    GaussianNoise,
    Participation,
    PoissonSampling,
    PrivacyUnit,
    Relation,
    Scheme,
)


def participation(
    strategy: Any, relation: Relation | str, num_examples: int | None = None
) -> Participation:
    """A law that costs no less than the strategy, and as much wherever one of ours is the same.

    Costs more than the strategy: a cycle that does not divide T, of which the last one counts as
    whole; groups of a `CyclicPoissonSampling`, which count as known.

    Args:
        strategy: an object of JAX Privacy's `batch_selection`.
        relation: of the price; groups of equal size are refused under add-remove, where their
            sizes would tell.
        num_examples: records there are, which `FixedBatchSampling` alone needs.

    Raises:
        UnsupportedError: a strategy that has no price here: batches that are truncated, a
            `BMinSepSampling` with p < 1, batches drawn with replacement, any class that is not
            named above, subclasses of those too.
    """
    name = _named(strategy)
    if name not in _LAWS:
        raise UnsupportedError(f"batches of {name} have no price here")
    return _LAWS[name](strategy, checks.choice(Relation, relation=relation), num_examples)


def _named(strategy: Any) -> str:
    """The name of JAX Privacy's class; with its module where it is anybody else's."""
    of = type(strategy)
    own = of.__module__.partition(".")[0] == "jax_privacy"
    return of.__name__ if own else f"{of.__module__}.{of.__qualname__}"


def scheme(
    strategy: Any,
    noise_multiplier: float,
    relation: Relation | str,
    num_examples: int | None = None,
) -> Scheme:
    """The scheme of a DP-SGD run: Gaussian noise on each batch's sum of clipped gradients.

    The unit is an example; of a `UserSelectionStrategy` it is a user, whose examples of a batch are
    clipped together, and ``num_examples`` counts users.

    Args:
        strategy: an object of JAX Privacy's `batch_selection`.
        noise_multiplier: standard deviation over the clip norm, under every relation; JAX
            Privacy's execution plans count it over a sum's sensitivity, which under replace-one is
            two clip norms, so theirs counts twice here. The noise of each batch is fresh: this is
            no price of correlated noise (matrix factorization).
        relation: under replace-one a sum moves by two clip norms, which the price counts.
        num_examples: see `participation`.
    """
    unit, chosen = PrivacyUnit.EXAMPLE, strategy
    if _named(strategy) == "UserSelectionStrategy":
        unit, chosen = PrivacyUnit.CLIENT, strategy.base_strategy
    law = participation(chosen, relation, num_examples)
    return Scheme(GaussianNoise(noise_multiplier), law, relation, unit=unit)


def epsilon(
    strategy: Any,
    noise_multiplier: float,
    delta: float,
    relation: Relation | str,
    num_examples: int | None = None,
) -> float:
    """Upper bound on ε of a DP-SGD run at δ; arguments and errors are those of `scheme`."""
    return price(scheme(strategy, noise_multiplier, relation, num_examples), delta).epsilon.upper


def _cyclic_poisson(strategy: Any, relation: Relation, _: int | None) -> Participation:
    """Poisson sampling of one group in every c-th iteration."""
    _refuse_truncated(strategy)
    steps, cycle, rate = strategy.iterations, strategy.cycle_length, strategy.sampling_prob
    checks.count(iterations=steps, cycle_length=cycle)
    checks.probability(sampling_prob=rate)
    independent = strategy.partition_type.name == "INDEPENDENT"
    if not independent and cycle > 1 and relation is Relation.ADD_REMOVE:
        raise UnsupportedError(
            "groups of equal size tell how many records there are: partition_type INDEPENDENT, or "
            "another relation than add-remove"
        )
    if independent and cycle > 1 and rate == 1.0:
        return _kept(steps, cycle)
    if independent and cycle >= steps > 1:
        return CheckIn(steps, 1, _share(rate * steps, cycle))
    rounds = math.ceil(steps / cycle)
    return EveryStep(rounds) if rate == 1.0 else PoissonSampling(rate, rounds)


def _balls_in_bins(strategy: Any, _: Relation, __: int | None) -> Participation:
    """Each record in the iterations of a bin that it draws once."""
    checks.count(iterations=strategy.iterations, cycle_length=strategy.cycle_length)
    return _kept(strategy.iterations, strategy.cycle_length)


def _fixed_batch(strategy: Any, _: Relation, num_examples: int | None) -> Participation:
    """A batch of a public size, drawn without replacement."""
    if strategy.replace:
        raise UnsupportedError("batches drawn with replacement have no price here")
    if num_examples is None:
        raise ParameterError("num_examples", None, "the number of records, for FixedBatchSampling")
    return FixedSize(strategy.batch_size, num_examples, strategy.iterations)


def _b_min_sep(strategy: Any, _: Relation, __: int | None) -> Participation:
    """With p = 1 a record is in every ``min_sep``-th iteration, from a uniform one or the first."""
    _refuse_truncated(strategy)
    if strategy.sampling_prob != 1.0:
        raise UnsupportedError(
            f"BMinSepSampling has a price here at sampling_prob 1 alone, not "
            f"{strategy.sampling_prob}"
        )
    checks.count(iterations=strategy.iterations, min_sep=strategy.min_sep)
    if strategy.warm_start:
        return _kept(strategy.iterations, strategy.min_sep)
    return EveryStep(math.ceil(strategy.iterations / strategy.min_sep))


def _kept(steps: int, cycle: int) -> Participation:
    """One of ``cycle`` bins, drawn once and kept; of fewer iterations than bins, at most one."""
    if cycle == 1:
        return EveryStep(steps)
    if steps <= cycle:
        return CheckIn(steps, 1, _share(steps, cycle))
    return FixedAssignment(cycle, math.ceil(steps / cycle))


def _share(part: float, whole: int) -> float:
    """The quotient, not below it."""
    return min(math.nextafter(part / whole, 1.0), 1.0)


def _refuse_truncated(strategy: Any) -> None:
    if strategy.truncated_batch_size is not None:
        raise UnsupportedError(
            "truncated batches have no price here: who is left out depends on the others"
        )


_LAWS: dict[str, Callable[[Any, Relation, int | None], Participation]] = {
    "CyclicPoissonSampling": _cyclic_poisson,
    "BallsInBinsSampling": _balls_in_bins,
    "FixedBatchSampling": _fixed_batch,
    "BMinSepSampling": _b_min_sep,
}
