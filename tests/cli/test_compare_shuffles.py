"""`turnout compare --scheme shuffle`: a point, a sweep, JSON, a picture and errors."""

from __future__ import annotations

import json

import pytest
from command_flags import last_of_each

from turnout.accounting.published.comparison import SHUFFLE_METHODS, ShuffleSetting
from turnout.cli.main import main
from turnout.plans import sweep

POINT = "--scheme shuffle --epsilon0 1 --clients 10000 --delta 1e-6"
SWEEP = "--scheme shuffle --against epsilon0 --from 0.25 --to 4 --points 3 --clients 10000"
SWEPT = f"{SWEEP} --delta 1e-6"
NAMED = {method.name: method for method in SHUFFLE_METHODS}


@pytest.fixture
def compare(capsys, monkeypatch):
    """Function that runs the command in 80 columns and returns exit code, stdout and stderr."""
    monkeypatch.setenv("COLUMNS", "80")

    def run(flags: str) -> tuple[object, str, str]:
        with pytest.raises(SystemExit) as end:
            main(["compare", *last_of_each(flags)])
        printed = capsys.readouterr()
        return end.value.code, printed.out, printed.err

    return run


def rows(out: str) -> dict[str, list[str]]:
    """Cells of each method after its name and its status, by method."""
    found: dict[str, list[str]] = {}
    for line in out.splitlines():
        for name in NAMED:
            head, _, cells = line.partition(" proved ")
            if head.strip() == name and cells:
                found.setdefault(name, []).extend(cells.split())
    return found


def test_compare_prints_one_table_for_one_setting(compare):
    code, out, err = compare(POINT)
    assert (code, err) == (0, "")
    first = out.splitlines()[0]
    assert first == "shuffled, replace-one: ε₀ = 1, clients 10,000, rounds 1, δ = 1e-06"
    assert max(map(len, out.splitlines())) <= 80
    setting = ShuffleSetting(1.0, 10_000, 1e-6)
    found = rows(out)
    for name in ("adaptive", "clones", "clones form", "blanket", "check-ins", "RDP 5.3.1"):
        quote = NAMED[name].quote(setting)
        assert quote.epsilon <= float(found[name][0]) <= quote.epsilon * 1.001
    above, below = map(float, found["adaptive"])
    assert below <= NAMED["adaptive"].quote(setting).epsilon_lower <= above
    attained = next(line for line in out.splitlines() if line.startswith("attained "))
    assert below <= float(attained.split()[-1]) <= float(found["non-adaptive"][0])
    words = " ".join(out.split())
    for text in (
        "relation replace-one: this client's data are these, or any other",
        "a shuffler is trusted to hide who sent what",
        "– EFM19, everywhere: ε₀ = 1: expected at most 1/2 (Corollary 9)",
        "– RDP 5.4.1, everywhere: the theorem covers sampled clients only (--sampled)",
        "– clones KOV, everywhere: composition needs two rounds or more",
    ):
        assert text in words


def test_compare_writes_the_picture_before_it_prints_the_table(compare, tmp_path, monkeypatch):
    def closed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("turnout.cli.accounting.show", closed)
    picture = tmp_path / "shuffles.svg"
    code, _, _ = compare(f"{SWEPT.replace('--points 3', '--points 2')} --picture {picture}")
    assert code == 130
    assert picture.exists()


def test_the_table_of_a_sweep_has_a_row_for_each_method(compare, tmp_path):
    picture = tmp_path / "shuffles.svg"
    code, out, err = compare(f"{SWEPT} --picture {picture}")
    assert (code, err) == (0, "")
    found = rows(out)
    assert set(found) == NAMED.keys() - {"attained"}
    assert [cell == "–" for cell in found["EFM19"]] == [False, True, True]
    numbers = [float(cell) for cell in found["adaptive"]]
    assert numbers == sorted(numbers)
    assert "– EFM19, at 1 to 4: ε₀ = 1: expected at most 1/2" in " ".join(out.split())
    svg = picture.read_text()
    for text in ("ε at δ = 1e-06, replace-one: clients", "Ratio to shuffled", "ε₀"):
        assert text in svg


def test_a_table_wider_than_the_terminal_is_split(compare):
    _, out, _ = compare(SWEPT.replace("--points 3", "--points 9"))
    assert max(map(len, out.splitlines())) <= 80
    assert out.count("epsilon0 =") == 2
    assert all(len(cells) == 9 for cells in rows(out).values())


@pytest.mark.parametrize(
    ("flags", "values"),
    [
        ("--against clients --from 100 --to 10000 --epsilon0 1 --delta 1e-6", [100, 1000, 10_000]),
        ("--against rounds --from 1 --to 4 --epsilon0 1 --clients 900 --delta 1e-4", [1, 2, 4]),
        ("--against delta --from 1e-8 --to 1e-4 --epsilon0 1 --clients 900", [1e-8, 1e-6, 1e-4]),
        ("--epsilon0 1 --clients 900 --delta 1e-5", [1e-5]),
        ("--epsilon0 1 --clients 900 --sampled 90 --rounds 2 --delta 1e-3 --tolerance 0.1", [1e-3]),
    ],
)
def test_json_of_a_comparison_has_every_bound_with_its_status(compare, flags, values):
    points = " --points 3" if "--against" in flags else ""
    code, out, err = compare(f"--scheme shuffle {flags}{points} --json")
    assert (code, err) == (0, "")
    answer = json.loads(out)
    assert answer["values"] == pytest.approx(values)
    assert answer["against"] == (flags.split()[1] if points else None)
    assert [method["name"] for method in answer["methods"]] == list(NAMED)
    for method in answer["methods"]:
        assert method["status"] == "proved"
        assert method["side"] == ("lower" if method["name"] == "attained" else "upper")
        assert (method["relation"], method["directions"]) == ("replace-one", ["replace"])
        assert len(method["epsilon"]) == len(values)
        blank = [v for v, e in zip(answer["values"], method["epsilon"], strict=True) if e is None]
        assert [entry["value"] for entry in method["blanks"]] == blank
    by_name = {method["name"]: method for method in answer["methods"]}
    for low, high in zip(
        by_name["attained"]["epsilon"], by_name["adaptive"]["epsilon"], strict=True
    ):
        assert low is None or low <= high


def test_a_comparison_at_one_setting_is_a_sweep_over_one_delta():
    asked = sweep({"scheme": "shuffle", "epsilon0": 1.0, "clients": 9, "delta": 0.1})
    assert (asked.against, asked.values()) == (None, [0.1])
    expected = ShuffleSetting(1.0, 9, 0.1)
    assert ShuffleSetting(**asked.at(0.1)) == expected


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        ("--scheme parade", "--scheme = 'parade': expected one of 'check-in', 'shuffle'"),
        ("--scheme shuffle", "--epsilon0 = (missing): expected a value"),
        ("--scheme subsampled-shuffle", "--scheme = 'subsampled-shuffle': expected shuffle (use"),
        ("--scheme shuffle --epsilon0 1", "--clients = (missing): expected a value"),
        (POINT.replace("--delta 1e-6", ""), "--delta = (missing): expected a value"),
        (f"{POINT} --window 9", "--window = 9: expected only with --scheme check-in"),
        (f"{POINT} --points 9", "--points = 9: expected only with --against"),
        (f"{POINT} --from 1", "--from = 1.0: expected only with --against"),
        (f"{POINT} --picture a.svg", "--picture = 'a.svg': expected only with --against"),
        (f"{POINT} --epsilon0 0", "--epsilon0 = 0.0: expected a finite number above 0"),
        (f"{POINT} --epsilon0 nan", "--epsilon0 = nan: expected a finite number above 0"),
        (f"{POINT} --rounds 0", "--rounds = 0: expected a whole number of at least 1"),
        (f"{POINT} --sampled 10001", "--sampled = 10001: expected at most 10000, the number of"),
        (
            f"{POINT} --relation add-remove",
            "--relation = 'add-remove': expected replace-one, the relation",
        ),
        (f"{SWEPT} --epsilon0 1", "--epsilon0 = 1.0: expected no value with --against epsilon0"),
        (f"{SWEPT} --to 0.1", "--to = 0.1: expected more than --from = 0.25"),
        (SWEEP, "--delta = (missing): expected a value (parameter δ of "),
        (SWEPT.replace("--to 4", ""), "--to = (missing): expected a value with --against epsil"),
        (f"{SWEPT} --against window", "--against = 'window': expected"),
        (
            "--scheme shuffle --against delta --from 0.1 --to 2 --epsilon0 1 --clients 9",
            "--to = 2.0: expected a number strictly between 0 and 1",
        ),
        (
            "--scheme shuffle --against clients --from 9.5 --to 20 --epsilon0 1 --delta 0.1",
            "--from = 9.5: expected a whole number with --against clients",
        ),
        (
            "--scheme shuffle --against clients --from 9 --to 20 --epsilon0 1 --delta 0.1 "
            "--sampled 10",
            "--sampled = 10: expected at most 9, the number of clients",
        ),
        (
            "--against window --from 1 --to 9 --epsilon0 1 --delta 0.1 --relation zero-out",
            "--epsilon0 = 1.0: expected only with --scheme shuffle",
        ),
    ],
)
def test_compare_refuses_invalid_options_of_shuffles_in_one_line(compare, flags, line):
    code, out, err = compare(flags)
    assert (code, out) == (2, "")
    assert err.startswith(f"turnout: {line}")
    assert err.count("\n") == 1


def test_a_method_without_finite_epsilon_has_an_empty_cell_with_a_reason(compare):
    code, out, err = compare("--scheme shuffle --epsilon0 300 --clients 1e9 --delta 1e-6 --json")
    assert (code, err) == (0, "")
    reasons = {
        m["name"]: m["blanks"][0]["reason"] for m in json.loads(out)["methods"] if m["blanks"]
    }
    assert reasons["check-ins"] == "the method has no finite ε here"
