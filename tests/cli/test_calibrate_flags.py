"""`turnout calibrate --solve-for`: its output and its errors."""

from __future__ import annotations

import json

import pytest

from turnout.cli.main import main

PROMISE = "--delta 1e-6 --relation add-remove"


@pytest.fixture
def calibrate(capsys):
    """Function that runs the command and returns its exit code, stdout and stderr."""

    def run(flags: str) -> tuple[object, str, str]:
        with pytest.raises(SystemExit) as end:
            main(["calibrate", *flags.split()])
        printed = capsys.readouterr()
        return end.value.code, printed.out, printed.err

    return run


def test_calibrate_finds_the_smallest_window_that_meets_epsilon(calibrate):
    flags = f"--scheme check-in --noise-multiplier 1 --epsilon 0.5 --solve-for window {PROMISE}"
    code, out, err = calibrate(f"{flags} --json")
    assert (code, err) == (0, "")
    answer = json.loads(out)
    window = answer["value"]
    assert window in (218, 219)  # ε of 218 steps is 0.49998: a wide bracket may not certify it
    assert (answer["solved_for"], answer["next_refused"]) == ("window", window - 1)
    assert answer["scheme"]["window"] == window
    assert 0.497 < answer["epsilon"] <= 0.5
    code, out, err = calibrate(flags)
    words = " ".join(out.split())
    assert f"window {window}, the smallest certified to meet ε ≤ 0.5 ({window - 1} is not)" in words


def test_calibrate_finds_delta_and_reports_it_as_the_delta_of_the_guarantee(calibrate):
    flags = "--scheme none --noise-multiplier 1 --epsilon 3 --relation add-remove"
    code, out, _ = calibrate(f"{flags} --solve-for delta --json")
    answer = json.loads(out)
    assert code == 0
    assert answer["delta"] == answer["value"] == pytest.approx(0.00153711, rel=2e-4)
    assert answer["epsilon"] <= 3


def test_calibrate_marks_a_value_at_the_end_of_its_range(calibrate):
    flags = f"--scheme check-in --window 100 --noise-multiplier 3 --epsilon 2 {PROMISE}"
    code, out, _ = calibrate(f"{flags} --solve-for probability")
    assert code == 0
    assert "1, the largest value of the search, meets ε ≤ 2" in " ".join(out.split())
    answer = json.loads(calibrate(f"{flags} --solve-for probability --json")[1])
    assert (answer["value"], answer["next_refused"]) == (1.0, None)


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        ("--solve-for window --window 9", "--window = 9: expected no value with --solve-for"),
        ("--solve-for rate --window 9", "--solve-for = 'rate': expected one of 'noise-multipl"),
        ("--solve-for colour", "--solve-for = 'colour': expected one of 'noise-multiplier', 'w"),
        ("--window 9 --noise-multiplier 1", "--noise-multiplier = 1.0: expected no value with"),
        ("--solve-for windows --noise-multiplier 1", "--window = (missing): expected a value"),
        ("--solve-for window", "--noise-multiplier = (missing): expected a value (standard"),
        (
            "--solve-for windows --window 10 --noise-multiplier 0.5",
            "no value of windows from 1 to 1,000,000 meets epsilon = 1: at 1 ε ≤ 8.69",
        ),
        ("--solve-for window --noise-multiplier 0", "--noise-multiplier = 0.0: expected a finite"),
        (
            "--solve-for window --noise-multiplier 1 --release averaged",
            "averaged releases have no analysis under add-remove: they publish the number of",
        ),
        ("--solve-for", "Option '--solve-for' requires an argument."),
    ],
)
def test_calibrate_refuses_invalid_options_in_one_line(calibrate, flags, line):
    code, out, err = calibrate(f"--scheme check-in --epsilon 1 {PROMISE} {flags}")
    assert code == 2
    assert out == ""
    assert err.startswith(f"turnout: {line}")
    assert err.count("\n") == 1
