"""Schemes of training runs, from numbers of records and epochs, batch size and sampler.

`training_run` returns the `Scheme` of a DP-SGD run, for `price`, `calibrate` and the rest of the
package. `compare_samplers` returns ε of the run under all ways to draw batches, or the noise
multipliers that meet a target ε, as a `SamplerComparison`.

Libraries differ: 60,000 records in batches of 256 are 234 or 235 batches, and the rate of Poisson
sampling is 256/60000, 1/234 or 1/235. A scheme of this module has the largest rate, the largest
number of steps and the smallest window of these, so that its ε covers the runs of all libraries.
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
from turnout.schemes.scheme import ShuffledLoader

if TYPE_CHECKING:
    from rich.console import RenderableType

    from turnout.api.calibrate import CalibratedPrice

SAMPLERS = {
    "poisson": "Poisson sampling: each record is in each batch with the same probability",
    "check-in": "random check-in: each record draws one batch of each epoch",
    "fixed-size": "a uniform subset of one size, drawn anew for each batch",
    "shuffle": "a shuffling loader: a permutation of all records, cut into batches",
}
"""Ways to draw batches, and what each does."""
_BOUND = "has the ε of batches that the attacker knows, which is a proved upper bound."
_ALONE = f"DataLoader(shuffle=True) {_BOUND}"
LOADER = (
    "DataLoader(shuffle=True) is none of the first three: its batches depend on each other. It "
    f"{_BOUND}"
)
_QUOTED = (
    "Quote zero-out if the secret is whether a record was used (other libraries call this relation "
    "add-remove), and replace-one if the secret is also which record was used: "
    "docs/which-guarantee.md."
)
_ADVICE = (
    "For a smaller {smaller} at the same {same}, draw batches by independent check-ins (sampler "
    "check-in) or by Poisson sampling: docs/tutorials/pytorch.md."
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
            "shuffle". For "shuffle" ε is computed as if the batches were known. The result is
            an upper bound on the ε of the data loader; no lower bound is known.
        relation: neighbouring relation, "add-remove", "zero-out" or "replace-one".

    Returns:
        The scheme with the largest sampling rate and number of steps that a library may use. The
        upper bound on its ε holds for the run. The lower bound holds for this scheme only; it can
        exceed the ε of a run with a smaller rate.

    Raises:
        ParameterError: an unknown sampler or relation, or a number outside its domain.
        UnsupportedError: the sampler is "shuffle" or "fixed-size" and the relation is
            "add-remove"; batches of one size reveal the number of records.

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
    kind = ShuffledLoader if sampler == "shuffle" else Scheme
    scheme = kind(noise, participation, relation, unit=PrivacyUnit.EXAMPLE)
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
    """Values of ε, or noise multipliers, of a training run by sampler and relation.

    Attributes:
        run: records, batch size and epochs, and the noise multiplier unless it was solved for.
        delta: δ of every ε.
        prices: price by sampler and relation, or a text with the reason why there is none. With a
            target each price is a `CalibratedPrice`.
        seconds: elapsed time.
        target: target ε, which the noise multiplier of each price meets; None if none was given.
    """

    run: dict[str, Any]
    delta: float
    prices: dict[tuple[str, Relation], Price | str]
    seconds: float
    target: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready values; ``epsilon`` is an upper bound, or None if no bound is known.

        ``epsilon_lower`` is a lower bound for the scheme that `training_run` returns. With a target
        each row has its ``noise_multiplier``, or None.
        """
        # One row for each sampler and relation, with the reason if there is no ε.
        rows = [
            {
                "sampler": sampler,
                "relation": relation.value,
                **({} if self.target is None else {"noise_multiplier": _noise(found)}),
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
            **({} if self.target is None else {"target_epsilon": self.target}),
            "delta": self.delta,
            "unit": unit,
            "rows": rows,
            "seconds": self.seconds,
        }

    def table(self) -> RenderableType:
        """Table with a row for each sampler, and notes below, as a ``rich`` renderable."""
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        # One column for each relation.
        samplers = list(dict.fromkeys(sampler for sampler, _ in self.prices))
        relations = list(dict.fromkeys(relation for _, relation in self.prices))
        title = f"ε at δ = {self.delta:g}: one record is …"
        if self.target is not None:
            title = f"σ for ε ≤ {self.target:g}, δ = {self.delta:g}; a record is …"
        table = Table(title=title, title_justify="left")
        table.add_column("batches are drawn by")
        for relation in relations:
            table.add_column(f"{_COLUMNS[relation]}\n({relation.value})", justify="right")
        # One row for each sampler; each reason for a missing ε is listed once.
        reasons: list[str] = []
        for sampler in samplers:
            cells = []
            for relation in relations:
                found = self.prices[sampler, relation]
                cells.append(_cell(found))
                if isinstance(found, str) and found not in reasons:
                    reasons.append(found)
            table.add_row(sampler, *cells)
        return Group(table, *map(Text, self._notes(samplers, reasons)))

    def _notes(self, samplers: list[str], reasons: list[str]) -> list[str]:
        """Notes below the table: the run, the samplers, missing values, and the relation to use."""
        # The run, and what its numbers are.
        numbers = ", ".join(f"{key.replace('_', ' ')} {value:g}" for key, value in self.run.items())
        shown = "proved upper bounds"
        if self.target is not None:
            shown = f"σ is the noise multiplier, in units of the clip norm; {shown} on ε"
        notes = [f"{numbers}; {shown}; trust model central."]
        # The samplers of the table.
        notes += [f"{name}: {SAMPLERS[name]}." for name in samplers]
        if "shuffle" in samplers:
            notes.append(LOADER if len(samplers) > 1 else _ALONE)
        notes += [f"–: {reason}" for reason in reasons]
        # The relation to quote, and the samplers with a smaller ε.
        notes.append(_QUOTED)
        if not {"shuffle", "fixed-size"}.isdisjoint(samplers):
            smaller, same = ("ε", "noise") if self.target is None else ("σ", "ε")
            notes.append(_ADVICE.format(smaller=smaller, same=same))
        return notes

    def __repr__(self) -> str:
        letter = "ε" if self.target is None else "σ"
        shown = ", ".join(
            f"{sampler} {relation.value} {letter} = {_cell(found)}"
            for (sampler, relation), found in self.prices.items()
        )
        target = "" if self.target is None else f"ε ≤ {self.target:g}, "
        return f"SamplerComparison({shown}; {target}δ = {self.delta:g}, example, central)"


def _cell(found: Price | str) -> str:
    """Text of a noise multiplier that was solved for, or of the upper bound on ε, rounded up.

    The text is a dash if there is no such value.
    """
    if isinstance(found, str):
        return "–"
    noise = _noise(found)
    return rounded_up(found.epsilon.upper) if noise is None else f"{noise:g}"


def _noise(found: Price | str) -> float | None:
    """Noise multiplier that was solved for; None without a target or if there is no price."""
    if isinstance(found, str) or found.calibration is None:
        return None
    return found.calibration.value


def _lower(sampler: str, found: Price | str) -> float | None:
    """Lower bound on ε; None for a loader that shuffles, where no lower bound is known."""
    return found.epsilon.lower if isinstance(found, Price) and sampler != "shuffle" else None


def compare_samplers(
    *,
    records: int,
    batch_size: int,
    epochs: int,
    delta: float,
    noise_multiplier: float | None = None,
    epsilon: float | None = None,
    sampler: str | None = None,
    relation: Relation | str | None = None,
    tolerance: float = 1e-2,
    watch: Callable[[int, int], None] = lambda done, of: None,
) -> SamplerComparison:
    """Values of ε, or least noise for a target ε, of a training run by sampler and relation.

    Args:
        records: see `training_run`.
        batch_size: see `training_run`.
        epochs: see `training_run`.
        delta: δ, strictly between 0 and 1.
        noise_multiplier: see `training_run`; None if a target ε is given.
        epsilon: target ε, for which the least noise multipliers are returned; None if the noise
            multiplier is given.
        sampler: the only sampler to compute; all samplers if None.
        relation: the only neighbouring relation to compute; all relations if None.
        tolerance: relative width of the bounds on ε at which refinement stops.
        watch: function that is called with the number of computed values and the number of all
            values.

    Returns:
        Upper bounds, never below the ε of the run, and lower bounds on the ε of the schemes that
        `training_run` returns. With a target, the upper bound at each noise multiplier is at most
        the target.

    Raises:
        ParameterError: the sampler or relation is unknown, a number is outside its domain, or not
            exactly one of the noise multiplier and the target ε is given.
        NumericalError: an upper bound cannot be certified.
    """
    # The samplers and relations to compare, and the run.
    started = time.perf_counter()
    if (noise_multiplier is None) == (epsilon is None):
        expected = (
            "a value, unless the target epsilon is given"
            if epsilon is None
            else ("no value, since the target epsilon is given")
        )
        raise ParameterError("noise_multiplier", noise_multiplier, expected)
    samplers = [sampler] if sampler is not None else list(SAMPLERS)
    relations = (
        [checks.choice(Relation, relation=relation)] if relation is not None else list(_COLUMNS)
    )
    run: dict[str, Any] = {"records": records, "batch_size": batch_size, "epochs": epochs}
    if noise_multiplier is not None:
        run["noise_multiplier"] = noise_multiplier
    # The price of each pair, or the reason why it has none.
    pairs = [(each, kind) for each in samplers for kind in relations]
    prices: dict[tuple[str, Relation], Price | str] = {}
    for done, (each, kind) in enumerate(pairs):
        watch(done, len(pairs))
        try:
            asked = {**run, "sampler": each, "relation": kind}
            prices[each, kind] = (
                price(training_run(**asked), delta=delta, tolerance=tolerance)
                if epsilon is None
                else least_noise(asked, epsilon=epsilon, delta=delta, tolerance=tolerance)
            )
        except UnsupportedError as error:
            prices[each, kind] = str(error)
    watch(len(pairs), len(pairs))
    return SamplerComparison(run, delta, prices, time.perf_counter() - started, epsilon)


def least_noise(
    run: dict[str, Any], *, epsilon: float, delta: float, tolerance: float = 1e-3
) -> CalibratedPrice:
    """Least noise multiplier of a training run whose upper bound on ε is at most the target.

    Args:
        run: arguments of `training_run` without the noise multiplier.
        epsilon: target ε.
        delta: δ, strictly between 0 and 1.
        tolerance: relative width of the bounds on ε at which refinement stops.

    Raises:
        ParameterError: an unknown sampler or relation, or a number outside its domain.
        UnsupportedError: the run has no ε, or no noise multiplier meets the target.
        NumericalError: no bound can be certified.
    """
    from turnout.api.calibrate import calibrate

    return calibrate(
        lambda value: training_run(**run, noise_multiplier=value),
        epsilon=epsilon,
        delta=delta,
        solve_for="noise-multiplier",
        tolerance=tolerance,
    )
