"""The command ``turnout ledger``: exit codes, text and JSON output, and its few imports."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from ledger_samples import (
    KEY,
    SCHEME,
    FakeTransaction,
    charter,
    exported,
    parameters,
)

from turnout.cli.main import main
from turnout.core.installation import install_line
from turnout.schemes import AvailabilityCheckIn, GaussianNoise
from turnout.service.coordinator.export import export_models
from turnout.service.storage.interface import ReleaseRow
from turnout.service.storage.opening import open_storage


def ended(*arguments: object) -> int:
    with pytest.raises(SystemExit) as end:
        main([str(argument) for argument in ("ledger", *arguments)])
    assert isinstance(end.value.code, int)
    return end.value.code


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "task.ledger"
    path.write_bytes(exported(FakeTransaction()))
    return path


def test_verifying_a_valid_ledger_exits_with_0(file, capsys):
    assert ended("verify", file) == 0
    printed = capsys.readouterr().out
    assert charter().task in printed.replace("\n", "").replace(" ", "")
    assert printed.splitlines()[-1].startswith("good:")


def test_verifying_an_invalid_ledger_exits_with_1_and_names_the_step(file, capsys):
    file.write_bytes(file.read_bytes().replace(b'"step":3', b'"step":4'))
    assert ended("verify", file) == 1
    printed = capsys.readouterr().out
    assert "wrong: step 3: is missing" in printed
    assert printed.splitlines()[-1].startswith("BAD:")


def test_the_ledger_command_with_invalid_arguments_exits_with_2(file, capsys):
    assert ended("verify", file.with_name("missing")) == 2
    assert ended("verify", file, "--head", "3") == 2
    assert ended("verify", file, "--models", file) == 2
    assert capsys.readouterr().out == ""


def test_a_ledger_whose_cost_cannot_be_recomputed_exits_with_3(file, capsys):
    terms = charter(
        replace(SCHEME, randomizer=GaussianNoise(0.01)), charged=(0.0, 1.0, 2.0, 3.0, 4.0)
    )
    file.write_bytes(exported(FakeTransaction(terms)))
    assert ended("verify", file) == 3
    assert "cost not recomputed" in capsys.readouterr().out


def test_the_verify_command_prints_its_verdict_as_json(file, capsys):
    assert ended("verify", file, "--json") == 0
    verdict = json.loads(capsys.readouterr().out)
    assert verdict["verdict"] == "good"
    assert verdict["steps"] == 8
    assert verdict["costs"][-1]["lower"] <= verdict["epsilon"]
    file.write_bytes(file.read_bytes()[:-1])
    assert ended("verify", file, "--json") == 1
    assert json.loads(capsys.readouterr().out)["faults"][0]["step"] is None


def test_the_verify_command_compares_a_known_ledger_head_and_model_files(file, tmp_path, capsys):
    export_models(FakeTransaction(), tmp_path / "models")  # type: ignore[arg-type]
    newer = json.loads(exported(FakeTransaction(released=9)).splitlines()[-1])["head"]
    assert ended("verify", file, "--models", tmp_path / "models") == 0
    assert ended("verify", file, "--head", newer) == 1
    assert "older than the known head" in capsys.readouterr().out


def test_an_exported_ledger_verifies(tmp_path, capsysbinary):
    fake, database = FakeTransaction(), tmp_path / "task.sqlite"
    storage = open_storage(database, serving=True)
    with storage.transaction() as transaction:
        transaction.create_task(charter().canonical(), KEY.private, parameters(-1))
    for record in fake.records():
        with storage.transaction() as transaction:
            release = ReleaseRow(record, parameters(record.step), b"", b"", 3, 3)
            transaction.release(release, block_ends=record.step + 1)
            transaction.publish(record.step + 1, None)
    out, models = tmp_path / "task.ledger", tmp_path / "models"
    assert ended("export", "--db", database, "--out", out, "--models", models) == 0
    assert out.read_bytes() == exported(fake)
    assert ended("export", "--db", database) == 0
    assert capsysbinary.readouterr().out == exported(fake)
    storage.close()
    assert ended("verify", out, "--models", models) == 0
    assert ended("export", "--db", tmp_path / "missing.sqlite") == 4


def test_the_verify_command_imports_only_turnout_schemes_and_core(file):
    script = (
        "import sys\n"
        "from turnout.verification import verify\n"
        "verdict = verify(open(sys.argv[1], 'rb').read())\n"
        "assert verdict.costs and not verdict.faults\n"
        "packages = {name.split('.')[1] for name in sys.modules if name.startswith('turnout.')}\n"
        "assert packages == {'verification', 'schemes', 'core', '_version'}, packages\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(file)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_missing_optional_dependency_is_reported_with_its_install_command(
    file, monkeypatch, capsys
):
    monkeypatch.setitem(sys.modules, "cryptography", None)
    assert ended("verify", file) == 2
    assert f"needs cryptography: {install_line('device')}" in capsys.readouterr().err


def test_a_ledger_with_an_availability_trace_is_parsed(tmp_path, capsys):
    trace = AvailabilityCheckIn(np.eye(20, 12, dtype=bool), 6)
    terms = charter(replace(SCHEME, participation=trace), charged=(0.0, 1.0, 2.0, 3.0, 4.0))
    path = tmp_path / "trace.ledger"
    path.write_bytes(exported(FakeTransaction(terms)))
    assert ended("verify", path) == 3
    assert "AvailabilityCheckIn" in capsys.readouterr().out
