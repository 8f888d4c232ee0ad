"""The repr of objects with records, updates or secrets shows none of their values."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import logging
import re
from pathlib import Path

import numpy as np
import pytest

import turnout as tn
from turnout.data.tables import ArrayTable, Kind

SOURCE = Path(tn.__file__).parent
HELD = re.compile(
    r"Array|ClientIds|ndarray|Tensor|bytes|Records|Examples|Holdings|Mapping|Sequence|dict\["
)
NO_RECORDS = (
    "accounting",
    "api",
    "cli",
    "plans",
    "randomness",
    "reporting",
    "schemes",
    "verification",
)
"""Packages whose objects contain no records, only bounds, options, plans and releases."""
PUBLIC = {
    "auditing": "FoundAt Findings OutputGame Rates Statement _Table",
    "bandits": "Batch Channels ContextualEnvironment CoreSet EliminationState Estimates "
    "BatchEvidence LinUCBState LinearEnvironment Posterior PrintedState Problem BatchRelease Run",
    "data": "ClientData ItemCounts",  # the first has its own test
    "estimation": "Evidence Frequencies FrequencyEstimate FrequencyIntervals HeavyHitters Mean "
    "MeanEstimate UserLevelEstimate",
    "learning": "Filters WholeMetric",
    "participation": "TraceStatistics",
    "protocol": "Release Released _Rule",
    "refinement": "Key LevelEstimate LimitedAnswers OneBit Questions LayeredRelease",
    "service": "Artefact Charter DeviceRoute Head ClientIdentity Published WireReceipt Record "
    "ShownHead SignedHead SignedRequest Vector WitnessReceipt _Message",
    "simulation": "Progress RunIdentity",
    "runs": "Candidate Results SavedModel Search",
}
"""Dataclasses whose arrays, bytes or mappings are public, simulated or released."""
SENTINEL = 31337


def holders():
    """Package, module and name of each dataclass with a field that could contain records."""
    for path in sorted(SOURCE.rglob("*.py")):
        package, *_ = place = path.relative_to(SOURCE).with_suffix("").parts
        if package in NO_RECORDS:
            continue
        for node in ast.parse(path.read_text("utf-8")).body:
            if not isinstance(node, ast.ClassDef):
                continue
            made = any("dataclass(" in ast.unparse(each) for each in node.decorator_list)
            kinds = [
                ast.unparse(each.annotation) for each in node.body if hasattr(each, "annotation")
            ]
            if made and any(map(HELD.search, kinds)):
                yield package, ".".join(("turnout", *place)), node.name


FOUND = list(holders())


def secret(kind: str):
    """Value of a field's type that the repr must not show."""
    if "Array" in kind or "ndarray" in kind or "Tensor" in kind:
        return np.full(3, SENTINEL)
    if "apping" in kind or "dict" in kind:
        return {SENTINEL: SENTINEL}
    return b"31337" if "bytes" in kind else [str(SENTINEL)]


@pytest.mark.parametrize(
    ("package", "module", "name"),
    [one for one in FOUND if one[2] not in PUBLIC.get(one[0], "").split()],
    ids=lambda value: value,
)
def test_the_repr_of_objects_with_records_shows_only_shapes(package, module, name):
    kind = getattr(importlib.import_module(module), name)
    held = object.__new__(kind)
    for field in dataclasses.fields(kind):
        public = field.name in getattr(kind, "__shows_shapes__", ())
        object.__setattr__(held, field.name, "public" if public else secret(str(field.type)))
    for text in (repr(held), str(held), f"{held}", f"{[held]}"):
        assert str(SENTINEL) not in text, f"{name} wants @shows_shapes()"


def test_every_class_listed_as_holding_public_data_exists():
    names = {(package, name) for package, _, name in FOUND}
    listed = {(package, name) for package, words in PUBLIC.items() for name in words.split()}
    assert listed <= names


def test_the_repr_of_client_data_shows_columns_sources_and_public_constants(caplog, capsys):
    caplog.set_level(logging.DEBUG)
    rows = 8
    table = {
        "who": [f"secret-{i}" for i in range(rows)],
        "age": [SENTINEL + i for i in range(rows)],
        "ward": ["north", "south"] * 4,
        "ill": [0, 1] * 4,
    }
    data = tn.client_data(
        table,
        client="who",
        inputs=["age", "ward"],
        label="ill",
        classes=2,
        categories={"ward": ["north", "south"]},
        scaling={"age": (0, 1)},
        test=table,
    )
    held = ArrayTable(table)
    batch = next(held.batches(dict.fromkeys(table, Kind.TEXT)))
    shown = " ".join(f"{one!r} {one}" for one in (data, data.train, data.holdings, held, batch))
    with pytest.raises(tn.ParameterError) as refused:
        dataclasses.replace(data.train, labels=data.train.labels[:1])
    shown += str(refused.value) + str(tn.ParameterError("data", data, "other data"))
    shown += caplog.text + "".join(capsys.readouterr())
    assert str(SENTINEL) not in shown
    assert "secret" not in shown
    for said in (
        "8 clients",
        "(8, 3)",
        "client = 'who'",
        "'age': (0.0, 1.0)",
        "('north', 'south')",
    ):
        assert said in repr(data)
