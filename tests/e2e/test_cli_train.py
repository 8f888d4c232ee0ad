"""`turnout train`: its report, killed and resumed runs, and its errors."""

from __future__ import annotations

import csv
import json
import re
import signal
from functools import partial
from html.parser import HTMLParser

import pytest
from command_line import PLAN, signalled

from turnout.plans import Plan

TIMES = ("seconds",)
LONG = PLAN.replace("windows = 3", "windows = 60").replace("every = 4", "every = 120")


def lasting(report: dict) -> dict:
    """Report without running times."""
    return {
        key: lasting(value) if isinstance(value, dict) else value
        for key, value in report.items()
        if key not in TIMES
    }


def rows(path) -> list[dict[str, str]]:
    with path.open() as file:
        return [{k: v for k, v in row.items() if k != "seconds"} for row in csv.DictReader(file)]


def test_train_writes_a_report_of_the_run(trained):
    run = trained.folder
    report = json.loads((run / "report.json").read_text())
    assert report["accuracy"] > 0.75
    assert 0 < report["epsilon_lower"] <= report["epsilon"] < 5
    assert report["relation"] == "add-remove"
    assert report["unit"] == "client"
    assert report["trust_model"] == "central"
    assert report["delta"] == 1e-4
    assert report["noise_multiplier"] == 2.0
    assert set(report["directions"]) == {"remove", "add"}
    assert report["steps"] == 24
    counts = json.loads((run / "simulator" / "counts.json").read_text())
    assert counts["participations"] == 3 * 1437
    assert counts["dummy_steps"] == 0
    assert report["expected_dummy_steps"] < 1e-50
    assert report["randomness"] == "simulation only (seed 1)"
    assert report["versions"]["turnout"]
    assert (run / "plan.toml").read_text() == PLAN
    for picture in ("pictures/progress", "simulator/pictures/check-ins"):
        assert (run / f"{picture}.png").read_bytes().startswith(b"\x89PNG")
        assert "<svg" in (run / f"{picture}.svg").read_text()
    assert not list(run.rglob("*.new"))
    for word in ("add-remove", "client", "central", "0.0001", "run/report.html", "run/pictures"):
        assert word in trained.stdout


def test_the_history_of_a_run_contains_epsilon_and_accuracy_by_step(trained):
    history = rows(trained.folder / "history.csv")
    assert [int(row["step"]) for row in history] == [0, 4, 8, 12, 16, 20, 24]
    epsilon = [float(row["epsilon"]) for row in history]
    assert epsilon[0] == 0
    assert epsilon == sorted(epsilon)
    report = json.loads((trained.folder / "report.json").read_text())
    assert epsilon[-1] == report["epsilon"]
    assert float(history[-1]["accuracy"]) == report["accuracy"]
    came = rows(trained.folder / "simulator" / "check_ins.csv")
    assert sum(int(row["check_ins"]) for row in came) == 3 * 1437
    assert {float(row["expected"]) for row in came} == {1437 / 8}


class Links(HTMLParser):
    """Parser of the addresses in a page that a browser would load or open, and of the ids."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.ids: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag, attrs) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            if name in ("src", "href", "xlink:href", "action", "data", "srcset"):
                self.addresses.append(value or "")
            if name == "id":
                self.ids.append(value or "")


@pytest.mark.parametrize(("name", "drawn"), [("report.html", 1), ("simulator/counts.html", 2)])
def test_a_report_page_loads_no_other_files(trained, name, drawn):
    page = (trained.folder / name).read_text()
    links = Links()
    links.feed(page)
    assert all(address.startswith("#") for address in links.addresses)
    assert not re.search(r"https?://|@import|url\((?!#)", page)
    assert "script" not in links.tags
    assert len(links.ids) == len(set(links.ids))
    assert {address[1:] for address in links.addresses} <= set(links.ids)
    assert "prefers-color-scheme: dark" in page
    assert '<html lang="en">' in page
    assert page.count('role="img" aria-label=') == drawn


def test_the_report_states_the_guarantee(trained):
    page = (trained.folder / "report.html").read_text()
    text = re.sub(r"<[^>]*>", " ", page)
    for words in (
        "add-remove: this client took part, or was never there",
        "client: everything that one client holds",
        "central: the coordinator is trusted",
        "Direction “remove”",
        "Direction “add”",
        "at least",
        "Take any one client and two worlds",
        "δ",
    ):
        assert words in text


def test_a_killed_and_resumed_run_equals_an_uninterrupted_run(turnout, tmp_path):
    plan = tmp_path / "long.toml"
    plan.write_text(LONG)
    assert turnout("train", plan, "--out", "whole").returncode == 0
    no_chance_to_tidy_up = partial(signalled, signal.SIGKILL, 7)
    killed = turnout("train", plan, "--out", "killed", prepare=no_chance_to_tidy_up)
    assert killed.returncode == -signal.SIGKILL
    assert (tmp_path / "killed" / "simulator" / "checkpoint.npz").exists()
    assert not (tmp_path / "killed" / "report.json").exists()
    plan.unlink()
    done = turnout("train", "--resume", "killed")
    assert done.returncode == 0, done.stderr
    whole, killed = (
        lasting(json.loads((tmp_path / name / "report.json").read_text()))
        for name in ("whole", "killed")
    )
    assert killed == whole
    for name in ("history.csv", "simulator/check_ins.csv"):
        assert rows(tmp_path / "whole" / name) == rows(tmp_path / "killed" / name)


def test_ctrl_c_stores_a_checkpoint_and_prints_the_resume_command(turnout, tmp_path):
    plan = tmp_path / "long.toml"
    plan.write_text(LONG)
    out = tmp_path / "run"
    stopped = turnout("train", plan, "--out", out, prepare=partial(signalled, signal.SIGINT, 7))
    assert stopped.returncode == 130
    last = stopped.stderr.strip().splitlines()[-1]
    assert re.fullmatch(r"turnout: stopped after step \d+ of 480; go on with: .*", last)
    assert turnout("train", "--resume", out).returncode == 0
    assert (out / "report.json").exists()


def test_resuming_a_finished_run_writes_its_report_again(turnout, own_run):
    before = json.loads((own_run / "report.json").read_text())
    for path in (own_run / "report.json", own_run / "report.html"):
        path.unlink()
    done = turnout("train", "--resume", "run")
    assert done.returncode == 0
    assert lasting(json.loads((own_run / "report.json").read_text())) == lasting(before)
    assert (own_run / "report.html").exists()


@pytest.mark.parametrize(
    ("before", "after", "line"),
    [
        ("delta", "dleta", "privacy.dleta = 0.0001: expected a known key; did you mean "
         "privacy.delta?"),
        ("delta = 1e-4", "delta = nan", "privacy.delta = nan: expected a number strictly between "
         "0 and 1"),
        ("noise_multiplier = 2.0", "noise_multiplier = -2.0", "privacy.noise_multiplier = -2.0: "
         "expected a finite number above 0"),
        ("window = 8", "window = 0", "participation.window = 0: expected a whole number of at "
         "least 1"),
        ("windows = 3", "windows = 3\nprobability = 1.2", "participation.probability = 1.2: "
         "expected a number from 0 to 1"),
        ('"digits"', '"mnist"', "data.name = 'mnist': expected data on this machine; data file "
         "mnist/train-images-idx3-ubyte.gz not found (TURNOUT_OFFLINE forbids downloads): put "),
        ("delta = 1e-4", "delta = 1e-4\nepsilon = 0.1", "privacy.epsilon = 0.1: expected at least"),
        ('"digits"', '"digits"\nclients = 1438', "data.clients = 1438: expected at most 1437"),
        ('"logistic"', '"tanh-cnn-26k"', "model.name = 'tanh-cnn-26k': expected a model for "
         "inputs of 8×8"),
        ('"check-in"', '"availability"', "participation.windows = 3: expected"),
        ('law = "check-in"\nwindow = 8\nwindows = 3', 'law = "availability"\nwindow = 8',
         "participation.trace = 'flash-phones': expected a trace on this machine; data file"),
        ('law = "check-in"\nwindow = 8\nwindows = 3',
         'law = "availability"\nwindow = 8\ntrace = "x.csv"',
         "participation.trace = 'x.csv': expected a trace on this machine; trace"),
    ],
)  # fmt: skip
def test_train_refuses_an_invalid_plan_in_one_line_and_writes_no_files(
    turnout, tmp_path, before, after, line
):
    assert before in PLAN
    (tmp_path / "plan.toml").write_text(PLAN.replace(before, after, 1))
    done = turnout("train", "plan.toml", "--out", "run")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith(f"turnout: {line}")
    assert done.stderr.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["plan.toml"]


def test_train_refuses_a_folder_that_contains_files(turnout, plan, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.txt").write_text("precious")
    done = turnout("train", plan, "--out", "run")
    assert done.returncode == 2
    assert "out = 'run': expected a new or empty folder" in done.stderr
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["none.toml", "--out", "run"], "plan = 'none.toml': expected a TOML file that exists"),
        (["--resume", "none"], "resume = 'none': expected a folder that holds a run (plan.toml)"),
        (["plan.toml"], "give PLAN and --out DIR, or --example NAME, or --resume DIR"),
        (["plan.toml", "--resume", "x"], "give PLAN and --out DIR, or --example NAME, or"),
        (["--resume", "x", "--out", "y"], "out = 'y': expected no value with resume"),
        (
            ["--example", "x"],
            "example = 'x': expected one of digits, fashion, mnist, mnist-sampled, ",
        ),
        (["--resume", "x", "--print-plan"], "--print-plan: give PLAN or --example NAME"),
    ],
)
def test_train_refuses_invalid_arguments_in_one_line(turnout, plan, arguments, line):
    done = turnout("train", *arguments)
    assert done.returncode == 2
    assert done.stderr.startswith(f"turnout: {line}")
    assert done.stderr.count("\n") == 1


def test_an_example_is_printed_and_runs_outside_the_repository(turnout, tmp_path):
    text = turnout("train", "--example", "digits", "--print-plan").stdout
    assert Plan.from_toml(text).participation.law == "check-in"
    assert not list(tmp_path.iterdir())
    done = turnout("train", "--example", "digits")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "runs" / "digits" / "plan.toml").read_text() == text
    assert "report: runs/digits/report.html" in done.stdout


def test_a_damaged_checkpoint_ends_train_with_exit_code_4(turnout, own_run):
    (own_run / "simulator" / "checkpoint.npz").write_bytes(b"not a checkpoint")
    done = turnout("train", "--resume", "run")
    assert done.returncode == 4
    assert done.stderr.count("\n") == 1


def test_a_checkpoint_of_another_plan_ends_train_with_exit_code_4(turnout, own_run):
    (own_run / "plan.toml").write_text(PLAN.replace("= 2.0", "= 2.5"))
    done = turnout("train", "--resume", "run")
    assert done.returncode == 4
    assert "the checkpoint is of run" in done.stderr
    assert (own_run / "report.json").exists()
