"""A run that an earlier version left half-way: resumed, or refused in one line that names it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

EARLIER = json.loads(Path(__file__).with_name("earlier-checkpoint.json").read_text())


@pytest.fixture
def left_half_way(tmp_path):
    folder = tmp_path / "run"
    (folder / "simulator").mkdir(parents=True)
    (folder / "plan.toml").write_text("\n".join(EARLIER["plan"]))
    arrays = {name: np.array(value, kind) for name, (kind, value) in EARLIER["arrays"].items()}
    with (folder / "simulator" / "checkpoint.npz").open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)
    return folder


def test_it_goes_on_or_the_version_that_can_is_named(left_half_way, turnout):
    done = turnout("train", "--resume", left_half_way)
    if done.returncode == 0:
        report = json.loads((left_half_way / "report.json").read_text())
        history = (left_half_way / "history.csv").read_text().splitlines()
        assert report["steps"] == 6
        assert [row.split(",")[0] for row in history] == ["step", "0", "3", "6"]
    else:
        assert done.returncode == 4, done.stderr
        assert done.stderr.count("\n") == 1
        assert "166f48b" in done.stderr
        assert not (left_half_way / "report.json").exists()
