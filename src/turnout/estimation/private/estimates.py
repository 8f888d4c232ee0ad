"""Private estimates from a column of values: frequencies, means, and means of clients' means.

`frequencies` and `mean` read one row for each client. `user_mean` protects all rows of a client
together, in the local model. In the local and the shuffled model each row goes through a
randomizer, block by block, and only the tally of messages is kept. In the central model rows are
summed in whole numbers (`turnout.estimation.private.central`), and noise is added to the sum.
`turnout.api` and the command ``turnout estimate`` call these functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from turnout.core import checks
from turnout.core.arrays import FloatArray
from turnout.core.errors import ParameterError
from turnout.core.values import distinct
from turnout.estimation import FrequencyEstimate, FrequencyTally, collect, estimate_frequencies
from turnout.estimation.means import (
    MeanEstimate,
    MeanTally,
    collect_mean,
    estimate_mean,
    sampling_bounds,
)
from turnout.estimation.private.answers import (
    NORMS,
    EstimateCost,
    Frequencies,
    Mean,
    PrivacyRequest,
    frequency_randomizer,
    local_cost,
    mean_randomizer,
)
from turnout.estimation.private.central import (
    SAMPLING_BOUND,
    central_frequencies,
    central_mean,
    clip_rows,
)
from turnout.estimation.private.columns import Rows, entry_blocks, item_blocks, vector_blocks
from turnout.estimation.private.shuffled import shuffled_frequencies, shuffled_mean
from turnout.estimation.user_level_means import UserLevelMean
from turnout.randomness import Source

LARGEST_SIZE = 2**26
"""Largest number of items: a few arrays of this size fit a usual machine's memory."""
_FAR = 1e100  # largest radius; its square and the inverse of its square are finite floats


def frequencies(
    data: Path | Rows,
    items: int,
    privacy: PrivacyRequest,
    source: Source,
    *,
    labels: tuple[str, ...] = (),
    column: str | None = None,
    mechanism: str = "auto",
    post_processing: str = "simplex",
    confidence: float = 0.95,
    missing: object = None,
) -> Frequencies:
    """Private estimate of the share of clients with each item, with limits and privacy cost.

    Args:
        data: a path to a file, or rows, with one item in each row, see `item_blocks`.
        items: k, at least 2; public, independent of the data.
        privacy: ε, δ, relation and trust model of the estimate.
        source: source of all randomness.
        labels: names of the items, shape (k,); without them items are whole numbers.
        column: name of the column; None if the data have only one.
        mechanism: see `frequency_randomizer`; in the central model "laplace" or "gaussian".
        post_processing: see `estimate_frequencies`.
        confidence: confidence of the intervals, in [0.5, 1).
        missing: public item that replaces a missing value; None: a missing value is an error.

    Raises:
        ParameterError: an argument or a value is outside its domain.
        InputFileError: a file cannot be read.
        UnsupportedError: the mechanism cannot be used with so many items.
    """
    # All arguments are checked before the data are read.
    checks.count(2, items=items)
    checks.at_most("the largest size", LARGEST_SIZE, items=items)
    checks.open_unit(confidence=confidence)
    if confidence < 0.5:
        raise ParameterError("confidence", confidence, "at least 0.5")

    def blocks() -> Iterator[NDArray[np.int64]]:
        return item_blocks(data, items, labels, column, missing)

    # Choose the randomizer and its cost; shuffling needs the number of clients first.
    if privacy.trust == "central":
        return central_frequencies(
            blocks(),
            items,
            privacy,
            source,
            mechanism=mechanism,
            post_processing=post_processing,
            confidence=confidence,
        )
    if privacy.trust == "local":
        randomizer, reason = frequency_randomizer(privacy.epsilon, items, mechanism, privacy.bits)
        cost, clients = local_cost(randomizer, reason), None
    else:
        clients = _clients(blocks)
        randomizer, cost = shuffled_frequencies(items, privacy, clients, mechanism=mechanism)
    # Encode, count and discard one block of messages at a time.
    tally = FrequencyTally.zero(randomizer)
    for block in blocks():
        tally += collect(randomizer, block, source)
    # A file that changed between the passes would make the privacy cost wrong.
    _require_counted(tally.clients, clients)
    return _frequencies(estimate_frequencies(tally, post_processing), confidence, cost)


def _require_counted(answered: int, counted: int | None) -> None:
    """Raise an error if the number of rows changed after the privacy cost was computed."""
    if counted is not None and answered != counted:
        expected = f"{counted:,} rows, as in the first pass: the data must not change"
        raise ParameterError("data", f"{answered:,} rows", expected)


def _frequencies(found: FrequencyEstimate, confidence: float, cost: EstimateCost) -> Frequencies:
    """Estimate of `turnout.estimation`, as `Frequencies` with limits and privacy cost."""
    limits = found.intervals(confidence)
    return Frequencies(
        found.frequencies,
        found.raw,
        found.noise_errors,
        found.population_errors,
        limits.low,
        limits.high,
        limits.low,
        limits.high,
        confidence,
        found.clients,
        found.clients,
        cost,
    )


def mean(
    data: Path | Rows,
    norm: str | None,
    radius: float | None,
    privacy: PrivacyRequest,
    source: Source,
    *,
    interval: tuple[float | None, float | None] = (None, None),
    columns: tuple[str, ...] = (),
    mechanism: str = "auto",
    missing: float | None = None,
) -> Mean:
    """Private estimate of the mean of the clients' clipped vectors, with its privacy cost.

    With an interval, the mean of x − m is estimated for rows x of one number, where m is the middle
    of the interval and half of its length is the radius. Then m is added to the estimate. Since m
    is public, the privacy cost and the errors are those of the mean of x − m.

    Args:
        data: a path to a file, or rows, with one vector in each row, see `vector_blocks`.
        norm: one of `NORMS`; None only for vectors of one coordinate, for which all norms are equal
            and "linf" is used.
        radius: radius of the ball, above 0, in the unit of the values; public, independent of the
            data. None with an interval.
        privacy: ε, δ, relation and trust model of the estimate.
        source: source of all randomness.
        interval: the lower and the upper limit to which a row of one number is clipped; public,
            independent of the data. (None, None) with a radius.
        columns: names of the columns to read; empty: all columns.
        mechanism: see `shuffled_mean`; must be "auto" if trust is not "shuffled".
        missing: public number that replaces a missing number; None: a missing number is an error.

    Raises:
        ParameterError: an argument or a value is outside its domain.
        InputFileError: a file cannot be read.
    """
    # All arguments are checked before the data are read.
    radius, middle = _ball(radius, *interval)
    if norm is not None and norm not in NORMS:
        raise ParameterError("norm", norm, f"one of {', '.join(NORMS)}")

    if privacy.trust != "shuffled" and mechanism != "auto":
        raise ParameterError(
            "mechanism", mechanism, "auto, since only shuffled means have other mechanisms"
        )

    def blocks() -> Iterator[FloatArray]:
        for block in vector_blocks(data, columns, missing):
            # Clip before the subtraction, so that large numbers do not overflow.
            yield block if middle is None else np.clip(block, *interval) - middle

    # The dimension, on which the requirements for the norm and the interval depend.
    dimension = next(blocks()).shape[1]
    if dimension > 1 and middle is not None:
        expected = f"a radius instead of low and high, since a row has {dimension:,} numbers"
        raise ParameterError("radius", None, expected)
    if dimension > 1 and norm is None:
        expected = f"one of {', '.join(NORMS)}, since a row has {dimension:,} numbers"
        raise ParameterError("norm", None, expected)
    found = _centred_mean(
        blocks,
        privacy,
        source,
        norm=norm or "linf",
        dimension=dimension,
        radius=radius,
        mechanism=mechanism,
    )
    if middle is None:
        return found
    # The noise and the errors do not depend on the public middle. Texts name the range that the
    # user gave instead of the radius.
    low, high = interval
    return replace(
        found,
        value=found.value + middle,
        sampling_from=found.sampling_from.replace("radius", "range"),
        rows=f"rows clipped to [{low:.10g}, {high:.10g}]",
    )


def _ball(
    radius: float | None, low: float | None, high: float | None
) -> tuple[float, float | None]:
    """Radius of the ball, and the middle of the interval, which is None without an interval.

    Raises:
        ParameterError: neither a radius nor an interval, or both, or numbers outside their domain.
    """
    # Without an interval, the radius of a ball about 0.
    if low is None and high is None:
        if radius is None:
            expected = "a finite number above 0, or low and high for rows of one number"
            raise ParameterError("radius", None, expected)
        checks.positive(radius=radius)
        if not 1 / _FAR <= radius <= _FAR:
            raise ParameterError("radius", radius, f"from {1 / _FAR:g} to {_FAR:g}")
        return radius, None
    # An interval replaces the radius, and has two limits.
    if radius is not None:
        raise ParameterError("radius", radius, "no radius, since low and high are given")
    checks.number(low=low, high=high)
    assert low is not None
    assert high is not None
    if not max(abs(low), abs(high)) <= _FAR:
        far = low if abs(low) > _FAR else high
        raise ParameterError("low" if far is low else "high", far, f"from {-_FAR:g} to {_FAR:g}")
    # The radius is half of the length, which rounding must not reduce to 0.
    half = (high - low) / 2
    if half < 1 / _FAR:
        raise ParameterError("high", high, f"a number above low = {low:g}")
    return half, low + half


def _centred_mean(
    blocks: Callable[[], Iterator[FloatArray]],
    privacy: PrivacyRequest,
    source: Source,
    *,
    norm: str,
    dimension: int,
    radius: float,
    mechanism: str,
) -> Mean:
    """Private estimate of the mean of vectors that are clipped to a ball about 0.

    Args:
        blocks: function that returns the vectors of all rows, block by block.
        privacy: ε, δ, relation and trust model of the estimate.
        source: source of all randomness.
        norm: one of `NORMS`.
        dimension: d.
        radius: radius of the ball, above 0.
        mechanism: see `mean`.
    """
    # Choose the randomizer and its cost; shuffling needs the number of clients first.
    if privacy.trust == "central":
        return central_mean(
            blocks(), privacy, source, norm=norm, dimension=dimension, radius=radius
        )
    if privacy.trust == "local":
        randomizer, reason = mean_randomizer(norm, dimension, privacy.epsilon, radius, privacy.bits)
        cost, clients = local_cost(randomizer, reason), None
    else:
        clients = _clients(blocks)
        randomizer, cost = shuffled_mean(
            norm, dimension, radius, privacy, clients, mechanism=mechanism
        )
    # Encode, sum and discard one block of messages at a time. Clipped rows lie within the
    # randomizer's own radius, since its ball contains theirs.
    tally: MeanTally | None = None
    for block in blocks():
        start = 0 if tally is None else tally.clients
        part = collect_mean(randomizer, clip_rows(block, norm, radius), source, start)
        tally = part if tally is None else tally + part
    # A file that changed between the passes would make the privacy cost wrong.
    assert tally is not None
    _require_counted(tally.clients, clients)
    return answered_mean(estimate_mean(tally), cost)


def answered_mean(found: MeanEstimate, cost: EstimateCost) -> Mean:
    """Mean of `turnout.estimation`, as a `Mean` with standard errors and privacy cost."""
    noise = np.full(found.value.size, found.noise_error)
    if cost.messages == 1:
        population, sampling_from = found.population_errors, "as the variance of the messages tells"
    else:  # Shuffled messages do not reveal which ones are of the same client.
        norm, radius = found.randomizer.norm, found.randomizer.radius
        sampling = sampling_bounds(found.value, noise, norm, radius, found.clients)
        population = np.hypot(noise, sampling)
        sampling_from = SAMPLING_BOUND
    n = found.clients
    return Mean(found.value, noise, population, sampling_from, found.mse_bound, n, n, cost)


def _clients(blocks: Callable[[], Iterable[NDArray]]) -> int:
    """Number of rows in all blocks, counted in one pass over the data."""
    return sum(len(block) for block in blocks())


def user_mean(
    path: Path,
    epsilon: float,
    radius: float,
    deviation: float,
    source: Source,
    *,
    columns: Sequence[str] = (),
    client: str | None = None,
    samples: int | None = None,
    chance: float = 0.01,
    missing: float | None = None,
) -> Mean:
    """Private estimate of the mean of the clients' means, with user-level privacy.

    All samples of a client are protected together.

    Args:
        path: a file, see `vector_blocks`: one sample in each row, with a column that names the
            client; or, without ``client``, one client in each row, whose columns are samples of one
            number.
        epsilon: ε₀ of both messages of a client, for all its samples together.
        radius: bound on the absolute value of every coordinate of every sample, above 0.
        deviation: σ, above 0: samples are σ²-sub-Gaussian about a common mean in each coordinate.
        source: source of all randomness.
        columns: names of the columns to average; required with ``client``, else empty for all.
        client: the column that names the client of a row.
        samples: least number of samples of a client; required with ``client``.
        missing: number that replaces a missing sample; None: a missing sample is an error.
        chance: γ of `UserLevelMean`, in (0, 1): upper bound on the probability that a client's mean
            is far from the common mean, if ``deviation`` and ``samples`` are correct.

    Raises:
        ParameterError: an argument or a value is outside its domain.
        InputFileError: a file cannot be read.
        UnsupportedError: too few clients to estimate the range at this ε₀.
    """
    # The means of the clients' samples, and the least number of samples.
    means, held = client_means(path, columns, client, missing)
    if client is None:
        if samples is not None:
            raise ParameterError(
                "samples", samples, "no samples without --client, since each row is a client"
            )
        samples = held
    elif samples is None:
        raise ParameterError("samples", samples, "with --client, a whole number of at least 1")
    checks.count(samples=samples)
    # Both messages of all clients, then the estimate with its cost.
    n, dimension = means.shape
    scheme = UserLevelMean(dimension, epsilon, radius, deviation, samples, n, chance)
    found = scheme.estimate(means, source)
    # ε₀ of both messages together is pure and local, for all samples of a client.
    cost = EstimateCost(
        found.epsilon,
        0.0,
        "pure, exact: of both messages of a client, about all its rows",
        "replace-one",
        "local",
        "UserLevelMean",
        f"first the range, in {scheme.bins:,} bins, with ε₀ = {scheme.range_epsilon:.4g}; then the "
        f"mean within ±{scheme.mean_randomizer.radius:.4g} of its middle",
        found.epsilon,
        scheme.message_bits,
        scheme.mean_randomizer.public_randomness,
        (
            f"for accuracy only: {samples:,} samples a client or more, independent, of standard "
            f"deviation {deviation:g} at most; then no client's mean is cut but for a chance of "
            f"{scheme.failure:.2g}",
        ),
        held="all rows with its name" if client else "one row of the file, all that it holds",
    )
    # Standard errors come from the second message; the value adds the middle of the range.
    about_offset = answered_mean(found.offset, cost)
    rows = "clients' means, where none of them is cut"
    return replace(about_offset, value=found.value, rows=rows)


def client_means(
    path: Path, columns: Sequence[str], client: str | None, missing: float | None
) -> tuple[NDArray[np.float64], int]:
    """Mean of each client's samples, shape (n, d), and the number of columns that are averaged.

    Args:
        path: the file, as in `user_mean`.
        columns: names of the columns to average; empty for all, only without ``client``.
        client: name of the column that names the client of a row; None if each row is a client,
            whose samples of one number are in the columns (d = 1).
        missing: number that replaces a missing sample; None: a missing sample is an error.

    Raises:
        ParameterError: ``client`` is given without ``columns``, or a value is missing or is not a
            finite number.
        InputFileError: the file cannot be read.
    """
    if client is not None and not columns:
        raise ParameterError("column", None, "the columns to average, which --client requires")
    rows = np.concatenate(list(vector_blocks(path, columns, missing)))
    if client is None:
        return rows.mean(axis=1, keepdims=True), rows.shape[1]
    whose, _ = distinct(str(name) for block in entry_blocks(path, client) for name in block)
    counts = np.bincount(whose)
    sums = [np.bincount(whose, weights=column) for column in rows.T]
    return np.stack(sums, axis=1) / counts[:, None], rows.shape[1]
