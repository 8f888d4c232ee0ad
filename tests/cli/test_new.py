"""`turnout new`: the written folders run as they are, and an existing folder is refused."""

from __future__ import annotations

import importlib.util
import sys
from inspect import signature
from pathlib import Path

import pytest
from click.testing import CliRunner

from turnout.cli.main import turnout
from turnout.cli.new import KINDS
from turnout.core.errors import ParameterError
from turnout.plans import Plan
from turnout.plans.bandit import BanditPlan
from turnout.plans.data_sections import DataSection

FILES = {
    "bandit": {"plan.toml", "test_plan.py"},
    "table": {"plan.toml", "make_records.py", "test_plan.py"},
    "images": {"plan.toml", "make_records.py", "test_plan.py"},
    "module": {"plan.toml", "make_records.py", "net.py", "test_plan.py"},
}
DEVICES = {"join.sh", "serve.sh", "turnout.service"}


def made(folder: Path, *words: str) -> str:
    done = CliRunner().invoke(turnout, ["new", str(folder), *words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.parametrize("kind", KINDS)
def test_new_writes_all_files_of_a_project_and_their_test_passes(kind, tmp_path, monkeypatch):
    folder = tmp_path / "mine"
    printed = made(folder, "--kind", kind)
    expected = FILES[kind] | (DEVICES if kind != "bandit" else set())
    assert {file.name for file in folder.iterdir()} == expected
    assert "turnout bandit plan.toml" in printed or "turnout train plan.toml --out run" in printed
    # Every key of the plan is known, and the comment at its head names the commands.
    text = (folder / "plan.toml").read_text()
    (BanditPlan if kind == "bandit" else Plan).from_toml(text)
    assert "--out run" in text.partition("\n[")[0]
    # The folder's own test, in this process.
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "make_records", raising=False)
    spec = importlib.util.spec_from_file_location(f"test_plan_of_{kind}", folder / "test_plan.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    (test,) = (each for name, each in vars(module).items() if name.startswith("test_"))
    test(*([monkeypatch] if signature(test).parameters else []))
    monkeypatch.delitem(sys.modules, "make_records", raising=False)


def test_new_refuses_an_existing_folder_and_does_not_change_it(tmp_path):
    (tmp_path / "plan.toml").write_text("mine")
    with pytest.raises(ParameterError, match="a folder that does not exist"):
        CliRunner().invoke(turnout, ["new", str(tmp_path)], catch_exceptions=False)
    assert [file.name for file in tmp_path.iterdir()] == ["plan.toml"]
    assert (tmp_path / "plan.toml").read_text() == "mine"


def test_a_new_plan_for_devices_names_the_column_of_clients(tmp_path):
    for kind in set(KINDS) - {"bandit"}:
        made(tmp_path / kind, "--kind", kind)
        section: DataSection = Plan.from_toml((tmp_path / kind / "plan.toml").read_text()).data
        assert section.client is not None
