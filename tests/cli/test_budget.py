"""``turnout budget``: composition of charges, refused charges, and damaged files."""

import json
import threading

import click
import pytest
from click.testing import CliRunner

from turnout.accounting import gaussian_epsilon
from turnout.cli.accounting import budget
from turnout.cli.estimate import estimate
from turnout.core.errors import (
    BudgetExceededError,
    InputFileError,
    ParameterError,
    StorageError,
    UnsupportedError,
)
from turnout.plans.accounts import charge, read_account

GAUSSIAN = ["--scheme", "none", "--noise-multiplier", 8]
PROMISE = ["--delta", 1e-6, "--relation", "add-remove"]
FLAGS = {"scheme": "none", "noise_multiplier": 8.0}


def run(*words):
    """Standard output of a command; its errors are raised."""
    result = CliRunner().invoke(budget, [str(word) for word in words], standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return result.output


def opened(path, decided, *words):
    run("open", path, "--decided", decided, *GAUSSIAN, *PROMISE, *words)
    return path


def record(*words):
    return json.loads(run(*words, "--json"))


def test_epsilon_of_planned_charges_is_composed_instead_of_added(tmp_path):
    file = opened(tmp_path / "plan.json", "plan", "--epsilon", 2)
    assert record("show", file)["epsilon"] == 0
    run("charge", file, *GAUSSIAN, "--times", 3)
    found = record("charge", file, "--scheme", "none", "--noise-multiplier", 4, "--label", "last")
    together = (3 / 8**2 + 1 / 4**2) ** -0.5  # Gaussian noise adds up its precisions
    assert found["epsilon"] == pytest.approx(gaussian_epsilon(together, 1e-6), rel=1e-3)
    assert found["epsilon"] >= gaussian_epsilon(together, 1e-6)
    assert [entry["label"] for entry in found["charged"]][-2:] == [
        "scheme none, noise multiplier 8.0",
        "last",
    ]
    assert (found["relation"], found["unit"], found["trust_model"]) == (
        "add-remove",
        "client",
        "central",
    )


def answered(folder, name, *words):
    """Path of a file with the JSON of an estimate about the same clients."""
    (folder / "people.csv").write_text("age\n" + "".join(f"{age}\n" for age in range(20, 60)))
    ball = ["--norm", "linf", "--radius", 90]
    asked = ["mean", str(folder / "people.csv"), *map(str, [*ball, *words]), "--json"]
    result = CliRunner().invoke(estimate, asked, catch_exceptions=False)
    (folder / name).write_text(result.stdout, encoding="utf-8-sig")
    return folder / name


def test_epsilon_of_estimates_about_the_same_clients_adds_up(tmp_path):
    central = ["--model", "central", "--relation"]
    pure = answered(tmp_path, "age.json", "--epsilon", 0.5, *central, "replace-one")
    local = answered(tmp_path, "local.json", "--epsilon", 0.25, "--model", "local")
    noisy = [*central, "replace-one", "--delta", 2e-6]
    gauss = answered(tmp_path, "gauss.json", "--epsilon", 0.1, *noisy)
    file = tmp_path / "people.json"
    run(
        "open", file, "--decided", "plan", "--epsilon", 1, "--delta", 3e-6, "--relation",
        "replace-one", "--scheme", "none", "--randomizer", "pure", "--epsilon0", 0.5,
    )  # fmt: skip
    assert record("charge", file, "--answer", pure)["epsilon"] == pytest.approx(0.5, rel=1e-3)
    found = record("charge", file, "--answer", local, "--label", "from devices")
    assert 0.75 * (1 - 1e-3) < found["epsilon"] < 0.775  # 0.5 and 0.25
    found = record("charge", file, "--answer", gauss)
    assert 0.8 < found["epsilon"] < 0.9
    assert [one["label"] for one in found["charged"]] == ["age.json", "from devices", "gauss.json"]
    with pytest.raises(BudgetExceededError):
        run("charge", file, "--answer", pure)
    other = answered(tmp_path, "other.json", "--epsilon", 0.1, *central, "add-remove")
    with pytest.raises(ParameterError, match="relation = 'add-remove': expected 'replace-one'"):
        run("charge", file, "--answer", other)
    for wrong in ("people.csv", "none.json", "people.json"):
        with pytest.raises(InputFileError):
            run("charge", file, "--answer", tmp_path / wrong)
    decided = opened(tmp_path / "decided.json", "releases", "--epsilon", 2)
    noisy = tmp_path / "noisy.json"
    noisy.write_text(json.dumps({**json.loads(other.read_text("utf-8-sig")), "delta": 1e-7}))
    with pytest.raises(UnsupportedError, match="open the account with --decided plan"):
        run("charge", decided, "--answer", noisy)
    assert record("charge", decided, "--answer", other)["epsilon"] < 2
    with pytest.raises(click.UsageError, match="--answer charges an estimate once"):
        run("charge", file, "--answer", pure, *GAUSSIAN)
    assert record("show", file)["epsilon"] == found["epsilon"]


def test_a_budget_account_names_the_party_that_must_be_trusted(tmp_path):
    said = " ".join(run("show", opened(tmp_path / "account", "plan")).split())
    assert "central: the party that holds the data is trusted and adds the noise" in said
    assert "the holder of a file sees all rows" in said


@pytest.mark.parametrize("decided", ["plan", "releases"])
def test_a_budget_account_accepts_exactly_the_reported_number_of_charges(tmp_path, decided):
    file = opened(tmp_path / "spent.json", decided, "--epsilon", 2)
    fits = record("charge", file, *GAUSSIAN)["fits"]
    assert fits > 1
    last = record("charge", file, *GAUSSIAN, "--times", fits)
    assert last["epsilon"] <= 2
    assert last["fits"] == 0
    before = file.read_bytes()
    with pytest.raises(BudgetExceededError):
        run("charge", file, *GAUSSIAN)
    assert file.read_bytes() == before
    assert record("show", file)["epsilon"] == last["epsilon"]


def test_refusing_several_charges_at_once_records_none_of_them(tmp_path):
    file = opened(tmp_path / "spent.json", "releases", "--epsilon", 2)
    with pytest.raises(BudgetExceededError):
        run("charge", file, *GAUSSIAN, "--times", 500)
    assert record("show", file)["charged"] == []


def test_adaptive_charges_have_a_larger_epsilon_than_planned_charges(tmp_path):
    names = {"plan": ("plan", 2), "filter": ("releases", 2), "odometer": ("releases", None)}
    spent = {}
    for name, (decided, epsilon) in names.items():
        words = [] if epsilon is None else ["--epsilon", epsilon]
        file = opened(tmp_path / f"{name}.json", decided, *words)
        found = record("charge", file, *GAUSSIAN, "--times", 4)
        spent[name] = found["epsilon"]
        assert (found["fits"] is None) == (name == "odometer")
    assert spent["plan"] < min(spent["filter"], spent["odometer"])


def test_concurrent_charges_to_one_budget_account_are_all_stored(tmp_path):
    file = opened(tmp_path / "spent.json", "releases")
    threads = [threading.Thread(target=charge, args=(file, FLAGS, "", 1)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(times for _, times in read_account(file).entries) == 8


def test_budget_left_prints_the_spent_epsilon_and_the_noise_for_remaining_steps():
    asked = ["left", "--scheme", "none", "--steps", 10, "--noise-multiplier", 8, *PROMISE]
    found = record(*asked, "--done", 4, "--epsilon", 1.5)
    for steps, name in ((4, "epsilon"), (10, "epsilon_of_plan")):
        truth = gaussian_epsilon(8 / steps**0.5, 1e-6)
        assert truth <= found[name] <= truth * (1 + 1e-3)
    assert found["epsilon"] < 1.5 < found["epsilon_of_plan"]
    assert found["noise_multiplier"] > 8
    assert "nothing is left to begin" in run(*asked, "--done", 10, "--epsilon", 3)
    with pytest.raises(BudgetExceededError):
        run(*asked, "--done", 4, "--epsilon", 0.5)


@pytest.mark.parametrize(
    ("words", "kind", "match"),
    [
        (["show", "none.json"], StorageError, "No such file"),
        (["show", "damaged.json"], StorageError, "not an account that turnout budget wrote"),
        (["show", "newer.json"], StorageError, "version 1"),
        (["open", "open.json", "--decided", "plan", *GAUSSIAN, *PROMISE], StorageError, "exists"),
        (["charge", "open.json", "--scheme", "none"], ParameterError, "noise"),
        (
            ["charge", "open.json", "--scheme", "shuffle", "--epsilon0", 1, "--clients", 9],
            ParameterError,
            "replace-one",
        ),
    ],
)
def test_budget_refuses_invalid_files_and_schemes(tmp_path, monkeypatch, words, kind, match):
    monkeypatch.chdir(tmp_path)
    opened(tmp_path / "open.json", "releases", "--epsilon", 2)
    data = json.loads((tmp_path / "open.json").read_text())
    (tmp_path / "newer.json").write_text(json.dumps({**data, "turnout budget": 2}))
    (tmp_path / "damaged.json").write_text((tmp_path / "open.json").read_text()[:-9])
    with pytest.raises(kind, match=match):
        run(*words)


@pytest.mark.parametrize(
    ("decided", "changes"),
    [
        ("plan", {"budget": float("nan")}),
        ("plan", {"budget": -1.0}),
        ("plan", {"delta": 1.5}),
        ("releases", {"budget": 20.0}),
    ],
)
def test_a_budget_account_with_contradictory_values_is_refused(tmp_path, decided, changes):
    file = opened(tmp_path / "damaged.json", decided, "--epsilon", 2)
    assert read_account(file).epsilon == 2
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    with pytest.raises(StorageError, match="damaged"):
        read_account(file)


@pytest.mark.parametrize(
    "changes", [{"count": 9}, {"charge": {"left_out": 0.5}}, {"charge": {"remove": [-1.0]}}]
)
def test_a_budget_account_with_an_impossible_charge_is_refused(tmp_path, changes):
    file = opened(tmp_path / "damaged.json", "releases", "--epsilon", 2, "--most-windows", 5)
    run("charge", file, *GAUSSIAN)
    written = json.loads(file.read_text())
    entry = written["odometer"]["entries"][0]
    charge_of = entry["charge"] | changes.pop("charge", {})
    written["odometer"]["entries"] = [entry | changes | {"charge": charge_of}]
    file.write_text(json.dumps(written))
    with pytest.raises(StorageError, match="damaged"):
        read_account(file)
