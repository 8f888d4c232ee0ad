"""`turnout compare` for check-ins: its table, JSON, picture and errors."""

from __future__ import annotations

import json

import pytest
from command_flags import last_of_each

import turnout as tn
from turnout.cli.main import main
from turnout.core.errors import ParameterError

SWEEP = "--against window --from 10 --to 1000 --points 3 --noise-multiplier 4"
PROMISE = "--delta 1e-6 --relation add-remove"


@pytest.fixture
def compare(capsys):
    """Function that runs the command and returns its exit code, stdout and stderr."""

    def run(flags: str, *beside: str) -> tuple[object, str, str]:
        own = [argument for words in beside for argument in ("--beside", words)]
        with pytest.raises(SystemExit) as end:
            main(["compare", *last_of_each(flags), *own])
        printed = capsys.readouterr()
        return end.value.code, printed.out, printed.err

    return run


def test_compare_computes_epsilon_of_a_participation_given_by_beside(compare):
    words = ["k-subset picks=2", "check-in"]
    code, out, _ = compare(f"{SWEEP} {PROMISE} --json", *words)
    assert code == 0
    first, *_, subset, same = json.loads(out)["methods"]
    assert same["epsilon"] == first["epsilon"]
    scheme = tn.Scheme(tn.GaussianNoise(4.0), tn.KSubset(100, 2), relation="add-remove")
    assert subset["epsilon"][1] == tn.price(scheme, delta=1e-6, tolerance=1e-2).epsilon.upper
    assert subset["epsilon"][1] > first["epsilon"][1]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("ksubset", "did you mean 'k-subset'?"),
        ("shuffle", "expected one of 'none', 'poisson'"),
        ("k-subset pix=2", "expected no pix, but one of 'window', 'picks', 'windows'"),
        ("k-subset picks", "expected a name and settings, such as"),
        ("fixed-assignment", "expected a value epochs=…"),
    ],
)
def test_invalid_values_of_the_beside_option_are_refused(compare, words, line):
    code, out, err = compare(f"{SWEEP} {PROMISE}", words)
    assert (code, out) == (2, "")
    assert "--beside = '" in err
    assert line in err
    scheme = tn.Scheme(tn.GaussianNoise(4.0), tn.CheckIn(100), relation="add-remove")
    with pytest.raises(ParameterError, match=r"^beside = "):
        tn.compare(scheme, delta=1e-6, against="window", values=(10, 100), beside=[words])


def test_compare_writes_the_same_sweep_as_json_table_and_picture(compare, tmp_path):
    picture = tmp_path / "new" / "compare.svg"
    code, out, err = compare(f"{SWEEP} {PROMISE} --json --picture {picture}")
    assert (code, err) == (0, "")
    answer = json.loads(out)
    assert answer["against"] == "window"
    assert answer["values"] == [10, 100, 1000]
    epsilons = answer["methods"][0]["epsilon"]
    assert epsilons == sorted(epsilons, reverse=True)
    assert answer["methods"][0]["epsilon"][2] == pytest.approx(0.02658, rel=1e-2)
    assert picture.read_text().count("shuffling") == 0
    code, out, err = compare(f"{SWEEP} {PROMISE}")
    assert (code, err) == (0, "")
    assert "1,000" in out
    assert "– shuffling, everywhere: the method needs the number of clients (--clients)" in out


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        ("", "--against = (missing): expected the swept para"),
        ("--against colour --from 1 --to 2", "--against = 'colour': expected 'noise-multiplier'"),
        ("--against window --from 1 --to 9", "--noise-multiplier = (missing): expected a value"),
        (f"{SWEEP} --window 9", "--window = 9: expected no value with --against window"),
        (f"{SWEEP} --to 5", "--to = 5.0: expected more than --from = 10"),
        (f"{SWEEP} --to 1000.5", "--to = 1000.5: expected a whole number with --against"),
        (f"{SWEEP} --points 1", "--points = 1: expected from 2 to 1000"),
        (f"{SWEEP} --clients 0", "--clients = 0: expected a whole number of at least 1"),
        (f"{SWEEP} --delta 0", "--delta = 0.0: expected a number strictly between 0 and 1"),
        (f"{SWEEP} --relation near", "--relation = 'near': expected 'add-remove'"),
        (f"{SWEEP} --tolerance 2", "--tolerance = 2.0: expected a number strictly between"),
        (f"{SWEEP} --noise-multiplier -1", "--noise-multiplier = -1.0: expected a finite number"),
        (f"{SWEEP} --windows 0", "--windows = 0: expected a whole number of at least 1"),
        (f"{SWEEP} --picture here.bmp", "--picture = 'here.bmp': expected a file that ends in"),
        (f"{SWEEP} --points many", "Invalid value for '--points': 'many' is not a whole number"),
        (f"{SWEEP} --colour red", "No such option '--colour'."),
    ],
)
def test_compare_refuses_invalid_options_in_one_line(compare, flags, line):
    promise = "" if "--delta" in flags or "--relation" in flags else PROMISE
    if "--delta" in flags:
        promise = "--relation add-remove"
    if "--relation" in flags:
        promise = "--delta 1e-6"
    code, out, err = compare(f"{flags} {promise}")
    assert code == 2
    assert out == ""
    assert err.startswith(f"turnout: {line}")
    assert err.count("\n") == 1


def test_an_unwritable_picture_ends_compare_with_exit_code_4(compare, tmp_path):
    (tmp_path / "file").write_text("")
    code, out, err = compare(f"{SWEEP} {PROMISE} --picture {tmp_path}/file/compare.svg")
    assert code == 4
    assert "check-in" in out  # what was computed is not lost
    assert err.count("\n") == 1
