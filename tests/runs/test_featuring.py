"""Large features are stored in the cache, and reused only if their inputs did not change."""

import sys

import numpy as np
import pytest

from turnout.data import layout
from turnout.learning.features import apply_features, build_features
from turnout.runs import workload

INPUTS = np.random.default_rng(1).uniform(0, 1, (200, 8, 8)).astype(np.float32)
OWN = """
from pathlib import Path

FACTOR = float((Path(__file__).parent / "factor.txt").read_text())

def scaled(inputs):
    return FACTOR * inputs
"""


class Notes:
    """What a phase is told."""

    def __init__(self):
        self.lines: list[str] = []

    def rows(self, what: str, done: int) -> None:
        pass

    def note(self, text: str) -> None:
        self.lines.append(text)


@pytest.fixture
def notes(monkeypatch, tmp_path) -> Notes:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(workload, "KEPT_BYTES", 1000)
    return Notes()


def kept(text: str, notes: Notes, inputs=INPUTS, folder=None):
    features = build_features(text, *(() if folder is None else (folder,)))
    return workload.features_of(features, inputs, notes)


def forbid_writing(mutate) -> None:
    def fail(*_):
        raise AssertionError("made anew")

    mutate(layout.Shelf, "_allocate", fail, reached=False)


def test_features_read_from_the_cache_equal_computed_features(notes, mutate, tmp_path):
    found = kept("hog", notes)
    assert np.array_equal(found, apply_features("hog", INPUTS))
    folder = tmp_path / "cache" / "turnout" / "features"
    (line,) = notes.lines
    assert line.startswith(f"hog of 200 inputs kept in {folder}")
    assert line.endswith("0.0 MiB, a function of private data")
    assert folder.stat().st_mode & 0o077 == 0
    forbid_writing(mutate)
    assert np.array_equal(kept("hog", notes), found)
    assert len(notes.lines) == 1


@pytest.mark.parametrize("change", ["inputs", "expression", "functions"])
def test_cached_features_of_other_inputs_or_versions_are_recomputed(change, notes, monkeypatch):
    kept("hog", notes)
    text, inputs = "hog", INPUTS
    if change == "inputs":
        inputs = INPUTS.copy()
        inputs[-1, 0, 0] = 0.5
    elif change == "expression":
        text = "deskewed | hog"
    else:
        monkeypatch.setattr(workload, "FUNCTIONS", workload.FUNCTIONS + 1)
    assert np.array_equal(kept(text, notes, inputs), apply_features(text, inputs))
    assert len(notes.lines) == 2


def test_features_are_recomputed_if_a_file_they_depend_on_has_changed(notes, monkeypatch, tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "factor.txt").write_text("1")
    first = np.array(kept("own:scaled", notes, folder=tmp_path))
    (tmp_path / "factor.txt").write_text("2")
    for name in [name for name in sys.modules if name.startswith("turnout_plan_")]:
        monkeypatch.delitem(sys.modules, name)  # as in another process
    again = kept("own:scaled", notes, folder=tmp_path)
    assert np.array_equal(again, 2 * first)


def test_small_features_are_not_cached(notes, monkeypatch, tmp_path):
    monkeypatch.setattr(workload, "KEPT_BYTES", 10**9)
    assert np.array_equal(kept("hog", notes), apply_features("hog", INPUTS))
    assert not notes.lines
    assert not (tmp_path / "cache").exists()
