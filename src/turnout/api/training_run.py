"""Schemes of training runs, from numbers of records and epochs, batch size and sampler.

`training_run` returns the `Scheme` of a DP-SGD run, for `price`, `calibrate` and the rest of the
package. `compare_samplers` returns ε of the run under all ways to draw batches, as a
`SamplerComparison`.

Libraries differ: 60,000 records in batches of 256 are 234 or 235 batches, and the rate of Poisson
sampling is 256/60000, 1/234 or 1/235. The schemes here have the largest rate, the largest number of
steps and the smallest window of these, so that their ε covers all of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from turnout.api.price import Price, Result, price
from turnout.core import checks
from turnout.core.errors import ParameterError, UnsupportedError
from turnout.reporting.words import rounded_up
from turnout.schemes import (
    CheckIn,
    EveryStep,
    FixedSize,
    GaussianNoise,
    Participation,
    PoissonSampling,
    PrivacyUnit,
    Relation,
    Scheme,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

SAMPLERS = {
    "poisson": "Poisson sampling: each record is in each batch with the same probability",
    "check-in": "random check-in: each record draws one batch of each epoch",
    "fixed-size": "a uniform subset of one size, drawn anew for each batch",
    "shuffle": "a shuffling loader: a permutation of all records, cut into batches",
}
"""Ways to draw batches, and what each does."""
LOADER = (
    "DataLoader(shuffle=True) is none of the first three: its batches depend on each other. It has "
    "the ε of batches that the attacker knows, which is a proved upper bound."
)
_COLUMNS = {
    Relation.ADD_REMOVE: "added or removed",
    Relation.ZERO_OUT: "made blank",
    Relation.REPLACE_ONE: "replaced",
}


def training_run(
    *,
    records: int,
    batch_size: int,
    epochs: int,
    noise_multiplier: float,
    sampler: str,
    relation: Relation | str,
) -> Scheme:
    """Scheme of a DP-SGD run: Gaussian noise on the sum of a batch's clipped gradients.

    The unit is one record. The sum of a batch is divided by ``batch_size``, not by the number of
    records that were drawn.

    Args:
        records: number of training records, at least 1.
        batch_size: expected number of records in a batch, from 1 to ``records``.
        epochs: number of passes over the data, at least 1.
        noise_multiplier: standard deviation of the noise over the clip norm, above 0.
        sampler: how batches are drawn, a key of `SAMPLERS`: "poisson", "check-in", "fixed-size" or
            "shuffle". For "shuffle" the scheme reveals the batches: its ε is an upper bound on the
            ε of the loader, but its lower bound does not hold for the loader.
        relation: neighbouring relation, "add-remove", "zero-out" or "replace-one".

    Returns:
        The scheme with the largest rate and number of steps that a library may use. The upper
        bound on its ε holds for the run; the lower bound is that of this scheme, and may lie above
        the ε of a run with a smaller rate.

    Raises:
        ParameterError: an unknown sampler or relation, or a number outside its domain.
        UnsupportedError: "shuffle" or "fixed-size" under add-remove, where the number of records
            is public.

    >>> import turnout as tn
    >>> run = tn.training_run(records=60_000, batch_size=256, epochs=60, noise_multiplier=1.1,
    ...                       sampler="poisson", relation="add-remove")
    >>> run.participation
    PoissonSampling(rate=0.004273504273504274, steps=14100)
    >>> tn.price(run, delta=1e-5)
    Price(ε = 2.39, δ = 1e-05; add-remove, example, central)
    """
    if sampler not in SAMPLERS:
        raise ParameterError("sampler", sampler, f"one of {', '.join(map(repr, SAMPLERS))}")
    participation = _participation(records, batch_size, epochs, sampler)
    noise = GaussianNoise(noise_multiplier)
    scheme = Scheme(noise, participation, relation, unit=PrivacyUnit.EXAMPLE)
    if scheme.relation is Relation.ADD_REMOVE and sampler in ("fixed-size", "shuffle"):
        raise UnsupportedError(
            f"sampler = {sampler!r} has no ε under add-remove, since batches of one size show the "
            "number of records: use another relation, or sampler 'poisson' or 'check-in'"
        )
    return scheme


def _participation(records: int, batch_size: int, epochs: int, sampler: str) -> Participation:
    """Participation of one record in a run, from the sampler that draws the batches."""
    checks.count(records=records, batch_size=batch_size, epochs=epochs)
    if batch_size > records:
        raise ParameterError("batch_size", batch_size, f"at most the number of records, {records}")
    # A last, smaller batch counts as a step, but is left out of the number of batches from which
    # the sampling rate and the window follow: ε is then never below that of the run.
    whole, steps = records // batch_size, -(-records // batch_size) * epochs
    if sampler == "poisson":
        return PoissonSampling(1 / whole, steps)
    if sampler == "check-in":
        return CheckIn(whole, epochs)
    if sampler == "fixed-size":
        return FixedSize(batch_size, records, steps)
    return EveryStep(epochs)


@dataclass(frozen=True, eq=False, repr=False)
class SamplerComparison(Result):
    """Values of ε of one training run under several samplers and relations.

    Attributes:
        run: records, batch size, epochs and noise multiplier.
        delta: δ of every ε.
        prices: price by sampler and relation, or a text with the reason for a missing price.
        seconds: elapsed time.
    """

    run: dict[str, Any]
    delta: float
    prices: dict[tuple[str, Relation], Price | str]
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready values; ``epsilon`` is an upper bound, or None if no bound is known.

        ``epsilon_lower`` is a lower bound for the scheme that `training_run` returns.
        """
        # One row for each sampler and relation, with the reason if there is no ε.
        rows = [
            {
                "sampler": sampler,
                "relation": relation.value,
                "epsilon": found.epsilon.upper if isinstance(found, Price) else None,
                "epsilon_lower": _lower(sampler, found),
                "reason": found if isinstance(found, str) else None,
            }
            for (sampler, relation), found in self.prices.items()
        ]
        # The run, δ and the privacy unit, which hold for all rows.
        unit = PrivacyUnit.EXAMPLE.value
        return {
            **self.run,
            "delta": self.delta,
            "unit": unit,
            "rows": rows,
            "seconds": self.seconds,
        }

    def table(self) -> RenderableType:
        """Table with a row for each sampler, and notes, for rich."""
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        # One column for each relation.
        relations = list(dict.fromkeys(relation for _, relation in self.prices))
        table = Table(title=f"ε at δ = {self.delta:g}: one record is …", title_justify="left")
        table.add_column("batches are drawn by")
        for relation in relations:
            table.add_column(f"{_COLUMNS[relation]}\n({relation.value})", justify="right")
        # One row for each sampler; each reason for a missing ε is listed once.
        reasons: list[str] = []
        for sampler in dict.fromkeys(sampler for sampler, _ in self.prices):
            cells = []
            for relation in relations:
                found = self.prices[sampler, relation]
                cells.append(_cell(found))
                if isinstance(found, str) and found not in reasons:
                    reasons.append(found)
            table.add_row(sampler, *cells)
        # Notes on the run, the samplers and the missing values.
        numbers = ", ".join(f"{key.replace('_', ' ')} {value:g}" for key, value in self.run.items())
        notes = [f"{numbers}; proved upper bounds; trust model central."]
        notes += [f"{name}: {about}." for name, about in SAMPLERS.items()]
        notes += [LOADER, *(f"–: {reason}" for reason in reasons)]
        return Group(table, *map(Text, notes))

    def __repr__(self) -> str:
        shown = ", ".join(
            f"{sampler} {relation.value} ε = {_cell(found)}"
            for (sampler, relation), found in self.prices.items()
        )
        return f"SamplerComparison({shown}; δ = {self.delta:g}, example, central)"


def _cell(found: Price | str) -> str:
    """Text of the upper bound on ε, rounded up; a dash if no bound is known."""
    return rounded_up(found.epsilon.upper) if isinstance(found, Price) else "–"


def _lower(sampler: str, found: Price | str) -> float | None:
    """Lower bound on ε; None for a loader that shuffles, where no lower bound is known."""
    return found.epsilon.lower if isinstance(found, Price) and sampler != "shuffle" else None


def compare_samplers(
    *,
    records: int,
    batch_size: int,
    epochs: int,
    noise_multiplier: float,
    delta: float,
    sampler: str | None = None,
    relation: Relation | str | None = None,
    tolerance: float = 1e-2,
    watch: Callable[[int, int], None] = lambda done, of: None,
) -> SamplerComparison:
    """Values of ε of a training run by sampler and relation, side by side.

    Args:
        records: see `training_run`.
        batch_size: see `training_run`.
        epochs: see `training_run`.
        noise_multiplier: see `training_run`.
        delta: δ, strictly between 0 and 1.
        sampler: only this way to draw batches; all ways if None.
        relation: only this neighbouring relation; all relations if None.
        tolerance: relative width of the bounds on ε at which refinement stops.
        watch: called with the numbers of computed and of all values.

    Returns:
        Upper bounds, never below the ε of the run, and lower bounds on the ε of each scheme that
        `training_run` returns.

    Raises:
        ParameterError: an unknown sampler or relation, or a number outside its domain.
        NumericalError: an upper bound cannot be certified.
    """
    # The samplers and relations to compare, and the run.
    started = time.perf_counter()
    samplers = [sampler] if sampler is not None else list(SAMPLERS)
    relations = (
        [checks.choice(Relation, relation=relation)] if relation is not None else list(_COLUMNS)
    )
    run = {
        "records": records,
        "batch_size": batch_size,
        "epochs": epochs,
        "noise_multiplier": noise_multiplier,
    }
    # The price of each pair, or the reason why it has none.
    pairs = [(each, kind) for each in samplers for kind in relations]
    prices: dict[tuple[str, Relation], Price | str] = {}
    for done, (each, kind) in enumerate(pairs):
        watch(done, len(pairs))
        try:
            scheme = training_run(**run, sampler=each, relation=kind)
            prices[each, kind] = price(scheme, delta=delta, tolerance=tolerance)
        except UnsupportedError as error:
            prices[each, kind] = str(error)
    watch(len(pairs), len(pairs))
    return SamplerComparison(run, delta, prices, time.perf_counter() - started)
