"""Upper bounds on ε of JAX Privacy's batch selection strategies.

`participation` translates a strategy to a participation of turnout, `scheme` adds Gaussian noise,
and `epsilon` returns the bound. A strategy is recognised by its class name and fields, so JAX is
not imported, and ε can be computed where JAX is not installed. A strategy without a known sound
analysis is an error.

Notation: T is the number of a strategy's iterations, c its cycle length, p its sampling
probability.
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
    """Participation whose ε is at least the ε of the strategy; the two are equal if possible.

    The ε of the participation is larger if the strategy's number of iterations is not a multiple of
    its cycle length, since the last cycle is assumed to be complete. It is also larger for
    `CyclicPoissonSampling`, because the groups are assumed to be known to the adversary.

    Args:
        strategy: a `CyclicPoissonSampling`, `BallsInBinsSampling`, `FixedBatchSampling` or
            `BMinSepSampling` of JAX Privacy's `batch_selection`.
        relation: relation of the bound. Groups of equal size are an error under add-remove, since
            their sizes reveal the number of records.
        num_examples: number of records, which only `FixedBatchSampling` needs.

    Raises:
        ParameterError: a value outside its domain, or no ``num_examples`` for `FixedBatchSampling`.
        UnsupportedError: another class, including subclasses; truncated batches; a
            `BMinSepSampling` with a sampling probability below 1; batches drawn with replacement;
            or groups of equal size under add-remove.
    """
    name = _named(strategy)
    if name not in _PARTICIPATIONS:
        raise UnsupportedError(f"no analysis is known for batches of {name}")
    of_relation = checks.choice(Relation, relation=relation)
    return _PARTICIPATIONS[name](strategy, of_relation, num_examples)


def _named(strategy: Any) -> str:
    """Name of the strategy's class, with its module unless the class is JAX Privacy's."""
    of = type(strategy)
    own = of.__module__.partition(".")[0] == "jax_privacy"
    return of.__name__ if own else f"{of.__module__}.{of.__qualname__}"


def scheme(
    strategy: Any,
    noise_multiplier: float,
    relation: Relation | str,
    num_examples: int | None = None,
) -> Scheme:
    """Scheme of a DP-SGD run: Gaussian noise on each batch's sum of clipped gradients.

    The unit is an example. For a `UserSelectionStrategy` the unit is a user, whose examples in a
    batch are clipped together, and ``num_examples`` is the number of users.

    Args:
        strategy: an object of JAX Privacy's `batch_selection`.
        noise_multiplier: standard deviation divided by the clip norm, under every relation. JAX
            Privacy's execution plans divide by the sum's sensitivity. Under replace-one this
            sensitivity is two clip norms, so give twice the value of the execution plan. The noise
            of each batch is fresh: correlated noise (matrix factorization) is not covered.
        relation: relation of the bound; under replace-one the bound assumes that a sum changes by
            up to two clip norms.
        num_examples: see `participation`.

    Raises:
        ParameterError, UnsupportedError: see `participation`.
    """
    unit, chosen = PrivacyUnit.EXAMPLE, strategy
    if _named(strategy) == "UserSelectionStrategy":
        unit, chosen = PrivacyUnit.CLIENT, strategy.base_strategy
    chosen_participation = participation(chosen, relation, num_examples)
    noise = GaussianNoise(noise_multiplier)
    return Scheme(noise, chosen_participation, relation, unit=unit)


def epsilon(
    strategy: Any,
    noise_multiplier: float,
    delta: float,
    relation: Relation | str,
    num_examples: int | None = None,
) -> float:
    """Upper bound on ε of a DP-SGD run at δ in (0, 1); arguments and errors as for `scheme`."""
    return price(scheme(strategy, noise_multiplier, relation, num_examples), delta).epsilon.upper


def _cyclic_poisson(strategy: Any, relation: Relation, _: int | None) -> Participation:
    """Participation of a strategy that samples in each iteration from the next group of records."""
    _refuse_truncated(strategy)
    steps, cycle, rate = strategy.iterations, strategy.cycle_length, strategy.sampling_prob
    checks.count(iterations=steps, cycle_length=cycle)
    checks.probability(sampling_prob=rate)
    # Sizes of groups of equal size reveal the number of records.
    independent = strategy.partition_type.name == "INDEPENDENT"
    if not independent and cycle > 1 and relation is Relation.ADD_REMOVE:
        raise UnsupportedError(
            "groups of equal size reveal the number of records: use partition_type INDEPENDENT, or "
            "another relation than add-remove"
        )
    # Each record draws its group once and is in all rounds of that group.
    if independent and cycle > 1 and rate == 1.0:
        return _kept(steps, cycle)
    # A single round: each record takes part in at most one iteration, rounded up.
    if independent and cycle >= steps > 1:
        return CheckIn(steps, 1, _share(rate * steps, cycle))
    # Otherwise the group counts as known: sampling in each of its rounds.
    rounds = math.ceil(steps / cycle)
    return EveryStep(rounds) if rate == 1.0 else PoissonSampling(rate, rounds)


def _balls_in_bins(strategy: Any, _: Relation, __: int | None) -> Participation:
    """Participation of a strategy in which each record draws one bin of iterations, once."""
    checks.count(iterations=strategy.iterations, cycle_length=strategy.cycle_length)
    return _kept(strategy.iterations, strategy.cycle_length)


def _fixed_batch(strategy: Any, _: Relation, num_examples: int | None) -> Participation:
    """Participation of a strategy whose batches have a public size and contain no record twice."""
    if strategy.replace:
        raise UnsupportedError(
            "batches drawn with replacement have no analysis: draw them without replacement"
        )
    if num_examples is None:
        raise ParameterError("num_examples", None, "the number of records, for FixedBatchSampling")
    return FixedSize(strategy.batch_size, num_examples, strategy.iterations)


def _b_min_sep(strategy: Any, _: Relation, __: int | None) -> Participation:
    """Participation in every ``min_sep``-th iteration, of which the first is fixed or uniform."""
    _refuse_truncated(strategy)
    if strategy.sampling_prob != 1.0:
        raise UnsupportedError(
            f"BMinSepSampling has an analysis only at sampling_prob = 1, not at "
            f"{strategy.sampling_prob}"
        )
    checks.count(iterations=strategy.iterations, min_sep=strategy.min_sep)
    if strategy.warm_start:
        return _kept(strategy.iterations, strategy.min_sep)
    return EveryStep(math.ceil(strategy.iterations / strategy.min_sep))


def _kept(steps: int, cycle: int) -> Participation:
    """Participation of a record in all iterations of one of ``cycle`` bins, drawn once."""
    if cycle == 1:
        return EveryStep(steps)
    if steps <= cycle:
        return CheckIn(steps, 1, _share(steps, cycle))
    return FixedAssignment(cycle, math.ceil(steps / cycle))


def _share(part: float, whole: int) -> float:
    """Quotient ``part / whole``, rounded up, and at most 1."""
    return min(math.nextafter(part / whole, 1.0), 1.0)


def _refuse_truncated(strategy: Any) -> None:
    """Raise an error if the strategy truncates batches, for which no analysis is known."""
    if strategy.truncated_batch_size is not None:
        raise UnsupportedError(
            "truncated batches have no analysis: whether a record is omitted depends on others"
        )


_PARTICIPATIONS: dict[str, Callable[[Any, Relation, int | None], Participation]] = {
    "CyclicPoissonSampling": _cyclic_poisson,
    "BallsInBinsSampling": _balls_in_bins,
    "FixedBatchSampling": _fixed_batch,
    "BMinSepSampling": _b_min_sep,
}
