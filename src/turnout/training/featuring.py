"""Records as the model sees them, with the features of large data sets kept in the user's cache."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from turnout.data.layout import Allocate, Kept, Shelf
from turnout.learning.features import FeatureMap, apply_features, first_features
from turnout.training.workload import Phase

FUNCTIONS = 1
"""Version of the feature functions that have names: with another one nothing kept is read."""

KEPT_BYTES = 2**24
"""Features of fewer bytes are computed anew each time, which takes a second at most."""

_ROOM, _NAME, _MIB = "features", "features", 2**20
_DIGESTED_AT_ONCE = 2**24


def features_of(features: FeatureMap | None, inputs: NDArray[Any], phase: Phase) -> NDArray[Any]:
    """The features of inputs, as `apply_features` gives them; large ones are memory-mapped.

    What is kept is found by digests of the inputs, of the user's code and by the versions of
    PyTorch and of these functions. Its first rows are computed anew and compared: code may depend
    on more than its own file.

    Raises:
        ParameterError: as `apply_features`.
        StorageError: the cache cannot be written.
    """
    if features is None:
        return inputs
    first = first_features(features, inputs)
    if first.nbytes // len(first) * len(inputs) < KEPT_BYTES:
        return apply_features(features, inputs)
    shelf = Shelf.of(_ROOM, [*_versions(features), _digest(inputs)])
    found = shelf.kept()
    if found is not None and not np.array_equal(found.arrays[_NAME][: len(first)], first):
        shelf.clear()

    def make(allocate: Allocate) -> Kept:
        return Kept({_NAME: apply_features(features, inputs, allocate)}, {})

    kept, made = shelf.keep(make)
    if made:
        size = shelf.size_bytes() / _MIB
        phase.note(
            f"{features.text} of {len(inputs):,} inputs kept in {shelf.folder}: "
            f"{size:,.1f} MiB, a function of private data"
        )
    return kept.arrays[_NAME]


def _versions(features: FeatureMap) -> list[object]:
    """All that features depend on but inputs."""
    code = [[one.name, one.digest] for one in features.code]
    return [FUNCTIONS, torch.__version__, features.text, code]


def _digest(inputs: NDArray[Any]) -> str:
    """Digest of an array's numbers, type and shape; it may be memory-mapped."""
    digest = hashlib.blake2b(f"{inputs.dtype.str} {inputs.shape}".encode(), digest_size=16)
    rows = max(1, _DIGESTED_AT_ONCE // max(1, inputs.nbytes // len(inputs)))
    for start in range(0, len(inputs), rows):
        digest.update(np.ascontiguousarray(inputs[start : start + rows]).data)
    return digest.hexdigest()
