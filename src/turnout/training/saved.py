"""A trained model as a file: its parameters, and what is proved and public about them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turnout.core.errors import StorageError
from turnout.core.files import write
from turnout.data import ClientData
from turnout.plans.sections import ModelSection
from turnout.reporting.summary import Outcome, clip_words, model_card, protection_record, test_words
from turnout.reporting.training_report import PLAN
from turnout.reporting.words import guarantee_record

MODEL, CARD = "model.safetensors", "MODEL_CARD.md"
FORMAT = "turnout model 1"
LAST, AVERAGED = "last", "averaged"
_FACTS = "turnout"
_NEEDED = {
    *("sha256", "handed_out", "guarantee", "model", "module", "features", "target", "outputs"),
    *("input_shape", "input_dtype", "classes", "data"),
}


@dataclass(frozen=True, slots=True, eq=False)
class SavedModel:
    """A model file's contents.

    Attributes:
        parameters: float32 (dimension,) by name: the last iterate and, where there is one, the
            average.
        facts: what `facts_of` says.
    """

    parameters: Mapping[str, NDArray[np.float32]]
    facts: Mapping[str, Any]


def write_model(
    folder: Path, outcome: Outcome, data: ClientData, tuned: Mapping[str, Any] | None = None
) -> None:
    """Writes the model and its card, each whole or not at all.

    The model of a search says how it was tuned; the metrics of its run are not for release.

    Raises:
        StorageError: the folder cannot be written.
    """
    from safetensors.numpy import save

    vectors = {LAST: outcome.last}
    if outcome.prepared.plan.optimizer.averaging != "none":
        vectors[AVERAGED] = outcome.parameters
    kept = {name: np.ascontiguousarray(v, dtype=np.float32) for name, v in vectors.items()}
    facts = facts_of(outcome, data) | {"sha256": _digest(kept)}
    if tuned is not None:
        facts |= {"metrics": {}, "tuned": dict(tuned)}
    text = json.dumps(facts, allow_nan=False, ensure_ascii=False, sort_keys=True)
    write(folder / MODEL, save(kept, {_FACTS: text}))
    write(folder / CARD, model_card(facts))


def facts_of(outcome: Outcome, data: ClientData) -> dict[str, Any]:
    """The public facts of a trained model as JSON-ready values; no count of who came."""
    prepared = outcome.prepared
    plan = prepared.plan
    canonical = json.dumps(plan.model_dump(mode="json"), sort_keys=True)
    return {
        "format": FORMAT,
        "plan_sha256": hashlib.sha256(canonical.encode()).hexdigest(),
        "guarantee": guarantee_record(prepared.guarantee),
        **protection_record(prepared, outcome.parameters.size),
        "clip_norm": plan.privacy.clip_norm,
        "clip_words": clip_words(prepared),
        "steps": int(prepared.scheme.participation.steps),
        "clients": prepared.population,
        "seed": plan.run.seed,
        "data": data.name,
        "input_shape": list(data.train.inputs.shape[1:]),
        "input_dtype": str(data.train.inputs.dtype),
        "outputs": data.outputs,
        "target": data.target.value,
        "classes": list(data.names),
        "model": plan.model.title,
        "module": _module_facts(plan.model),
        "features": plan.model.features,
        "optimizer": plan.optimizer.model_dump(mode="json"),
        "handed_out": LAST if plan.optimizer.averaging == "none" else AVERAGED,
        "metrics": {name: float(column[-1]) for name, column in outcome.history.metrics.items()},
        "test": test_words(outcome),
    }


def _module_facts(model: ModelSection) -> dict[str, Any] | None:
    """How a module of the user's own is built again; None for a model that has a name."""
    if model.name is not None:
        return None
    keys = {"module", "arguments", "pretrained", "trainable", "lora"}
    return model.model_dump(mode="json", include=keys)


def read_model(folder: Path) -> SavedModel:
    """The model in a run's folder; nothing of the file is executed or unpickled.

    Raises:
        StorageError: there is none, or it is damaged or another program's.
    """
    path = folder / MODEL
    if not path.is_file():
        run = (folder / PLAN).is_file()
        cause = f"no {MODEL}; write it with: turnout train --resume {folder}" if run else "no run"
        raise StorageError(f"{folder}: {cause}")
    tensors, metadata = _contents(path)
    try:
        facts = json.loads(metadata[_FACTS])
        known = facts["format"] == FORMAT
    except (KeyError, TypeError, ValueError):
        raise StorageError(f"{path}: not a model that turnout wrote") from None
    if not known:
        raise StorageError(f"{path}: of the format {facts['format']!r}; read is {FORMAT!r}")
    if not set(facts) >= _NEEDED:
        raise StorageError(f"{path}: damaged: it does not say all that a model's file says")
    if facts["sha256"] != _digest(tensors) or facts["handed_out"] not in tensors:
        raise StorageError(f"{path}: damaged: its parameters do not have the digest that it names")
    return SavedModel(tensors, facts)


def _contents(path: Path) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """Tensors and metadata of a safetensors file."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except (SafetensorError, OSError, TypeError, AttributeError) as error:
        raise StorageError(f"{path}: damaged, or no safetensors file: {error}") from None


def _digest(tensors: Mapping[str, NDArray[Any]]) -> str:
    """SHA-256 over names, dtypes, shapes and bytes, in the order of names."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        vector = tensors[name]
        digest.update(f"{name} {vector.dtype.str} {vector.shape}\n".encode())
        digest.update(vector.tobytes())
    return digest.hexdigest()
