"""Plug-ins from installed packages, from a file of ``--import``, and from files of a plan.

The package is a folder with its metadata on the Python path, which is how an installed wheel looks.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from extending_page import PAGE, PLAN, example

from turnout.core.errors import ParameterError, UnsupportedError
from turnout.core.plugins import plugin_of, source_digest
from turnout.plans import Plan
from turnout.plans.plugins import import_file, require_installed
from turnout.schemes import CheckIn

QUESTION = ["account", "--scheme=rested", "--window=4", "--pairs=2", "--noise-multiplier=2"]
TARGET = ["--delta", "1e-5", "--relation", "add-remove", "--json"]
METADATA = "Metadata-Version: 2.1\nName: rested-devices\nVersion: 1.2\n"
ALGORITHM = """
from dataclasses import dataclass
from turnout.core.plugins import register_algorithm
from turnout.learning.algorithm import FedSGD


@dataclass(frozen=True)
class Slower(FedSGD):
    def server_update(self, state, direction, move):
        return super().server_update(state, direction / 2, move)


@register_algorithm("slower")
def slower(task, optimizer, clip_norm, *, loud=False):
    return Slower(task, optimizer, clip_norm)
"""


def entry_points() -> str:
    """Entry points of docs/extending.md, as an installed package has them."""
    found = re.search(r"```toml\n(\[project.*?)```", PAGE.read_text(), re.S)
    assert found is not None
    groups = tomllib.loads(found[1])["project"]["entry-points"]
    lines = [
        (f"[{group}]", *(f"{name} = {place}" for name, place in points.items()))
        for group, points in groups.items()
    ]
    return "\n".join(line for group in lines for line in group)


@pytest.fixture
def site(tmp_path):
    """Folder with the modules of a package, and with its metadata."""
    site = tmp_path / "site"
    metadata = site / "rested_devices-1.2.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(METADATA)
    (metadata / "entry_points.txt").write_text(entry_points())
    (site / "rested_check_in.py").write_text(example("participation: rested_check_in.py"))
    (site / "square_response.py").write_text(example("randomizer: square_response.py"))
    (site / "slower.py").write_text(ALGORITHM)
    return site


def python(folder: Path, *arguments: str, path: Path | None = None, fails: bool = False) -> str:
    """Output of a new interpreter; its errors if it must fail."""
    places = [*([str(path)] if path else []), os.environ.get("PYTHONPATH", "")]
    source = str(Path(__file__).parents[2] / "src")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*places, source])}
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env=environment,
    )
    assert (done.returncode != 0) == fails, done.stderr
    return done.stderr if fails else done.stdout


def turnout(folder: Path, *arguments: str, path: Path | None = None, fails: bool = False) -> str:
    return python(folder, "-m", "turnout", *arguments, path=path, fails=fails)


def test_account_computes_epsilon_of_an_installed_participation_and_names_its_plugin(
    tmp_path, site
):
    found = json.loads(turnout(tmp_path, *QUESTION, *TARGET, path=site))
    known = " ".join(QUESTION).replace("rested", "check-in").replace("--pairs", "--windows").split()
    other = json.loads(turnout(tmp_path, *known, *TARGET, path=site))
    assert found["epsilon"] == other["epsilon"]
    assert re.fullmatch(
        r"rested of rested-devices 1\.2 \(sha256 [0-9a-f]{16}\)", found["scheme"]["plugin"]
    )
    assert "plugin" not in other["scheme"]


def test_an_installed_plugin_that_is_not_used_is_not_imported(tmp_path, site):
    script = (
        "import sys\nfrom turnout.cli.main import main\n"
        "try:\n    main(sys.argv[1:])\nexcept SystemExit:\n    pass\n"
        "assert 'importlib.metadata' not in sys.modules\n"
        "assert not {'rested_check_in', 'square_response', 'slower'} & set(sys.modules)"
    )
    known = " ".join(QUESTION).replace("rested", "check-in").replace("--pairs", "--windows").split()
    python(tmp_path, "-c", script, *known, *TARGET, path=site)


def test_the_import_option_imports_a_plugin_file(tmp_path, site):
    (tmp_path / "mine.py").write_text((site / "rested_check_in.py").read_text())
    found = json.loads(turnout(tmp_path, *QUESTION, *TARGET, "--import", "mine.py"))
    assert found["scheme"]["plugin"].startswith("mine of the file mine.py (sha256 ")
    error = turnout(tmp_path, *QUESTION, *TARGET, fails=True)
    assert "No such option '--pairs'" in error


def test_installed_plugins_are_listed_without_running_them(tmp_path, site):
    (site / "slower.py").write_text("raise SystemExit('was run')")
    found = json.loads(turnout(tmp_path, "plugins", "--json", path=site))
    assert [(each["kind"], each["name"]) for each in found] == [
        ("algorithms", "slower"),
        ("participations", "rested"),
        ("randomizers", "square"),
        ("randomizers", "square-response"),
    ]
    assert {each["package"] for each in found} == {"rested-devices"}
    assert all(re.fullmatch("[0-9a-f]{64}", each["digest"]) for each in found)


def test_an_installed_randomizer_has_an_epsilon_and_estimates_frequencies(tmp_path, site):
    asked = "account --scheme shuffle --clients 1e4 --delta 1e-6 --json --epsilon0 2 --items 10"
    kind = ["--randomizer", "square-response"]
    found = json.loads(turnout(tmp_path, *asked.split(), *kind, path=site))
    assert found["randomizer"]["plugin"].startswith("square-response of rested-devices 1.2")
    (tmp_path / "items.csv").write_text("item\n" + "0\n1\n2\n3\n3\n" * 600)
    asked = "estimate frequencies items.csv --size 4 --epsilon 2 --delta 1e-6 --model shuffled"
    answer = turnout(tmp_path, *asked.split(), "--mechanism", "square", "--json", path=site)
    assert "SquareResponse" in answer
    error = turnout(tmp_path, *asked.split(), "--mechanism", "square", fails=True)
    assert "square" in error


def test_compare_accepts_installed_plugins(tmp_path, site):
    sweep = "compare --against window --from 4 --to 8 --points 2 --noise-multiplier 2 --json"
    given = ["--delta", "1e-5", "--relation", "add-remove", "--beside", "rested pairs=1"]
    found = json.loads(turnout(tmp_path, *sweep.split(), *given, path=site))
    check_in, *_, own = found["methods"]
    assert own["epsilon"] == check_in["epsilon"]  # one window in which the client takes part
    assert "rested of rested-devices 1.2 (sha256" in own["about"]
    shuffle = "compare --scheme shuffle --epsilon0 2 --clients 1e4 --delta 1e-6 --json"
    found = json.loads(
        turnout(tmp_path, *shuffle.split(), "--beside", "square-response items=10", path=site)
    )
    adaptive, *_, own = found["methods"]
    assert 0 < own["epsilon"][0] < adaptive["epsilon"][0]


def test_a_plan_trains_and_resumes_with_a_plugin_file_in_its_folder(tmp_path, site):
    code = (site / "rested_check_in.py").read_text() + (site / "slower.py").read_text()
    (tmp_path / "plans").mkdir()
    (tmp_path / "plans" / "mine.py").write_text(code.replace("slower", "calm"))
    rule = '[client]\nrule = "calm"\narguments = { loud = true }\n'
    text = PLAN + '[plugins]\nmodules = ["mine"]\n' + rule
    (tmp_path / "plans" / "plan.toml").write_text(text)
    turnout(tmp_path, "train", "plans/plan.toml", "--out", "out")
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert "of the file mine.py (sha256" in json.dumps(report)
    turnout(tmp_path, "train", "--resume", "out")


SERVED = """
import sys
import tomllib
from pathlib import Path
from turnout.service.contract.charter import Charter, Timing
from turnout.service.coordinator.new_task import new_task
task = new_task(Path("plan.toml").read_text(), Path(), Timing.of(60.0))
data = task.charter.canonical()
assert Charter.from_canonical(data).plugins == task.charter.plugins
Path("charter").write_bytes(data)
named = task.charter.plugins[0]
print(named.name, named.version, named.digest)
"""
READ = """
from pathlib import Path
from turnout.service.contract.charter import Charter
Charter.from_canonical(Path("charter").read_bytes())
"""
VERIFIED = """
from pathlib import Path
from turnout.verification.document import decode_terms
print(type(decode_terms(Path("charter").read_bytes()).scheme.participation).__name__)
"""


def test_a_charter_names_its_plugin_and_devices_without_the_same_code_refuse_it(tmp_path, site):
    (tmp_path / "plan.toml").write_text(PLAN)
    name, version, digest = python(tmp_path, "-c", SERVED, path=site).split()
    assert (name, version) == ("rested-devices", "1.2")
    # The same code is accepted, by a device and by a verifier.
    python(tmp_path, "-c", READ, path=site)
    assert python(tmp_path, "-c", VERIFIED, path=site) == "RestedCheckIn\n"
    # A charter that keeps quiet about its plug-in, a device without it, and other code.
    charter = (tmp_path / "charter").read_bytes()
    fields = json.loads(charter)
    del fields["plugins"]
    silent = json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()
    (tmp_path / "charter").write_bytes(silent)
    assert "names other plug-ins" in python(tmp_path, "-c", READ, path=site, fails=True)
    assert "expected" in python(tmp_path, "-c", VERIFIED, path=site, fails=True)
    (tmp_path / "charter").write_bytes(charter)
    refused = python(tmp_path, "-c", READ, fails=True)
    assert f"needs the plug-in rested-devices 1.2 with the code {digest}" in refused
    missing = python(tmp_path, "-c", VERIFIED, fails=True)
    assert "needs the plug-in rested-devices 1.2, which is not installed here" in missing
    with (site / "rested_check_in.py").open("a") as file:
        file.write("# changed\n")
    assert "other code" in python(tmp_path, "-c", READ, path=site, fails=True)
    assert "expected" in python(tmp_path, "-c", VERIFIED, path=site, fails=True)


def test_a_coordinator_refuses_a_plugin_file_in_the_folder_of_a_plan(tmp_path, site):
    (tmp_path / "mine.py").write_text((site / "rested_check_in.py").read_text())
    (tmp_path / "plan.toml").write_text(PLAN + '[plugins]\nmodules = ["mine"]\n')
    words = ["enrol", "2", "--db", "task.sqlite", "--plan", "plan.toml"]
    error = turnout(tmp_path, *words, fails=True)
    assert "a coordinator uses only plug-ins of installed packages" in error
    with pytest.raises(UnsupportedError, match="installed packages"):
        require_installed({"plugins": {"modules": ["mine"]}})


def test_reading_a_plan_from_a_charter_imports_no_plugin(tmp_path, monkeypatch):
    (tmp_path / "loud_module.py").write_text("raise SystemExit('was run')")
    monkeypatch.syspath_prepend(tmp_path)
    text = PLAN.replace('"rested"', '"check-in"').replace("pairs", "windows")
    plan = Plan.from_toml(text + '[plugins]\nmodules = ["loud_module"]\n')
    assert plan.plugins is not None
    with pytest.raises(ParameterError, match="was run"):
        Plan.of_user(text + '[plugins]\nmodules = ["loud_module"]\n', tmp_path)


@pytest.mark.parametrize("name", ["json.py", "turnout.py", "two-words.py", "missing.py", "a.txt"])
def test_a_file_that_cannot_be_imported_as_a_module_is_refused(tmp_path, name):
    if name != "missing.py":
        (tmp_path / name).write_text("")
    with pytest.raises(ParameterError, match="--import"):
        import_file(tmp_path / name)


@pytest.mark.parametrize("modules", ["[3]", '["two words"]', '["../mine"]'])
def test_a_plan_with_invalid_names_of_plugin_modules_is_refused(tmp_path, modules):
    with pytest.raises(ParameterError, match="names of modules"):
        Plan.of_user(f"{PLAN}[plugins]\nmodules = {modules}\n", tmp_path)


def test_the_digest_of_a_plugin_covers_every_module_of_its_package(tmp_path, monkeypatch):
    inner = tmp_path / "pack_of_two" / "inner"
    inner.mkdir(parents=True)
    (tmp_path / "pack_of_two" / "__init__.py").write_text("")
    (inner / "__init__.py").write_text("")
    (inner / "deep.py").write_text("x = 1")
    monkeypatch.syspath_prepend(tmp_path)
    before = source_digest("pack_of_two.inner.deep")
    source_digest.cache_clear()
    assert source_digest("pack_of_two") == before
    (inner / "deep.py").write_text("x = 2")
    source_digest.cache_clear()
    assert source_digest("pack_of_two") != before


def test_a_class_of_turnout_does_not_count_as_a_plugin():
    assert plugin_of(CheckIn) is None
    found = plugin_of(type("Own", (), {"__module__": "nowhere"}))
    assert found is not None
    assert (found.kind, found.digest) == ("file", "")
