"""`turnout account --explain`: its explanation in the table, JSON and picture, and its errors."""

from __future__ import annotations

import json

import pytest

from turnout.cli.main import main

QUESTION = (
    "account --scheme check-in --noise-multiplier 1 --window 50 --delta 1e-5 --relation add-remove"
)


def run(capsys, *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        main([*QUESTION.split(), *arguments])
    printed = capsys.readouterr()
    assert isinstance(end.value.code, int)
    return end.value.code, printed.out, printed.err


def test_account_prints_the_explanation_below_the_bounds(capsys):
    code, out, err = run(capsys, "--explain", "--prior", "0.25")
    assert (code, err) == (0, "")
    rows = ("trust model", "membership inference", "prior 50 %", "prior 25 %", "true positives")
    for word in (*rows, "GDP"):
        assert word in out
    assert out.index("method") < out.index("membership inference")
    without = run(capsys)[1]
    assert " ".join(out.split()).startswith(" ".join(without.split()))


def test_json_of_account_contains_the_explanation(capsys):
    answer = json.loads(run(capsys, "--explain", "--prior", "0.25", "--json")[1])
    explanation = answer.pop("explanation")
    assert [guess["prior"] for guess in explanation["guesses"]] == [0.5, 0.25]
    assert 0 < explanation["advantage_lower"] <= explanation["advantage"] < 1
    plain = json.loads(run(capsys, "--json")[1])
    assert plain.keys() == answer.keys()
    assert plain["epsilon"] == answer["epsilon"]


def test_account_prints_the_bounds_and_writes_a_picture_of_the_explanation(capsys, tmp_path):
    file = tmp_path / "what-it-means.svg"
    code, out, _ = run(capsys, "--explain", "--picture", str(file))
    assert code == 0
    assert "membership inference" in out
    assert "quoted" in file.read_text()
    assert [path.name for path in tmp_path.iterdir()] == [file.name]


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        ("--prior 0.5", "--prior = 0.5: expected only with --explain"),
        ("--picture a.svg", "--picture = 'a.svg': expected only with --explain"),
        ("--explain --prior 1", "--prior = 1.0: expected a number strictly between 0 and 1"),
        ("--explain --prior nan", "--prior = nan: expected a number strictly between"),
        ("--explain --picture a.jpg", "--picture = 'a.jpg': expected a file that ends in .svg"),
    ],
)
def test_account_refuses_invalid_options_of_an_explanation_in_one_line(capsys, flags, line):
    code, out, err = run(capsys, *flags.split())
    assert (code, out) == (2, "")
    assert err.startswith(f"turnout: {line}")
    assert err.count("\n") == 1


def test_an_unwritable_picture_ends_account_with_exit_code_4(capsys, tmp_path):
    (tmp_path / "file").write_text("")
    code, out, err = run(capsys, "--explain", "--picture", str(tmp_path / "file" / "a.png"))
    assert (code, out) == (4, "")
    assert "cannot be written" in err
    assert err.count("\n") == 1
