"""Means where a client has many rows, all of which are protected together, in the local model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from turnout.core import checks
from turnout.core.errors import ParameterError
from turnout.core.values import distinct
from turnout.estimation.private.answers import Cost, Mean
from turnout.estimation.private.columns import entry_blocks, vector_blocks
from turnout.estimation.private.estimates import answered_mean
from turnout.estimation.user_level_means import UserLevelMean
from turnout.randomness import Source


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
    """The mean over clients of the means of what each of them holds.

    Args:
        path: a file, see `vector_blocks`: one sample a row, with a column that says whose; or,
            without ``client``, one client a row, whose samples of one number are its columns.
        epsilon: ε₀ of both messages of a client, for all its samples together.
        radius: samples lie in [−radius, radius]^d.
        deviation: samples are about so far from a common mean, each coordinate (sub-Gaussian).
        source: where randomness comes from.
        columns: of a file with several.
        client: the column that says whose sample a row is.
        samples: as many has every client at least; needed with ``client``.
        missing: the number that stands for a missing sample; None: such rows are refused.
        chance: that a client's mean may be cut, if ``deviation`` and ``samples`` are true.

    Raises:
        UnsupportedError: too few clients to find the range at this ε₀.
    """
    means, held = _means(path, columns, client, missing)
    if client is None:
        if samples is not None:
            raise ParameterError("samples", samples, "none without --client: one row is a client")
        samples = held
    elif samples is None:
        raise ParameterError("samples", samples, "beside --client, a whole number of at least 1")
    checks.count(samples=samples)
    n, dimension = means.shape
    scheme = UserLevelMean(dimension, epsilon, radius, deviation, samples, n, chance)
    found = scheme.estimate(means, source)
    cost = Cost(
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
    about_offset = answered_mean(found.offset, cost)
    rows = "clients' means, where none of them is cut"
    return replace(about_offset, value=found.value, rows=rows)


def _means(
    path: Path, columns: Sequence[str], client: str | None, missing: float | None
) -> tuple[NDArray[np.float64], int]:
    """Each client's mean, shape (n, d), and the number of columns of the file."""
    if client is not None and not columns:
        raise ParameterError("column", None, "beside --client, the columns that are averaged")
    rows = np.concatenate(list(vector_blocks(path, columns, missing)))
    if client is None:
        return rows.mean(axis=1, keepdims=True), rows.shape[1]
    whose, _ = distinct(str(name) for block in entry_blocks(path, client) for name in block)
    counts = np.bincount(whose)
    sums = [np.bincount(whose, weights=column) for column in rows.T]
    return np.stack(sums, axis=1) / counts[:, None], rows.shape[1]
