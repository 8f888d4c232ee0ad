"""Comparisons of methods: each equals the method run by itself, and each refusal has a reason."""

from __future__ import annotations

import json
import re
import threading
from dataclasses import replace

import numpy as np
import pytest
from forked import HANGS_SECONDS
from rich.progress import Progress

from turnout.accounting import price
from turnout.accounting.published import comparison
from turnout.accounting.published.comparison import METHODS, Method, Quote, Setting
from turnout.accounting.shuffling import shuffled_gaussian
from turnout.api.compare import Comparison
from turnout.cli.options import show
from turnout.core.errors import NumericalError, UnsupportedError
from turnout.plans.sweeps import sweep
from turnout.reporting import progress
from turnout.reporting.answer_pictures import comparison_picture
from turnout.reporting.comparison import comparison_record
from turnout.reporting.drawing import LOOKS
from turnout.schemes import CheckIn, EveryStep, GaussianNoise, PoissonSampling, Relation, Scheme

FLAGS = {
    "against": "noise-multiplier",
    "first": 2.0,
    "last": 32.0,
    "points": 3,
    "window": 200,
    "clients": 20_000,
    "delta": 1e-6,
    "relation": "add-remove",
}
NAMED = {method.name: method for method in METHODS}


@pytest.fixture(scope="module")
def compared():
    return Comparison.of(sweep(FLAGS))


def setting(**changes) -> Setting:
    given = {"noise_multiplier": 3.0, "window": 100, "windows": 1, "delta": 1e-6}
    given |= {"relation": Relation.ADD_REMOVE, "clients": 10_000}
    return Setting(**{**given, **changes})


@pytest.mark.parametrize("windows", [1, 4])
@pytest.mark.parametrize("relation", [Relation.ADD_REMOVE, Relation.REPLACE_ONE])
def test_exact_methods_in_a_comparison_have_the_bounds_of_their_scheme(windows, relation):
    at = setting(windows=windows, relation=relation)
    participations = {
        "check-in": CheckIn(100, windows),
        "Poisson": PoissonSampling(0.01, 100 * windows),
        "no amplif.": EveryStep(windows),
    }
    for name, participation in participations.items():
        bounds = price(
            Scheme(GaussianNoise(3.0), participation, relation), 1e-6, at.tolerance
        ).epsilon
        assert NAMED[name].quote(at) == Quote(bounds.upper, bounds.lower)


def test_the_shuffling_method_counts_one_round_per_window():
    assert NAMED["shuffling"].quote(setting(windows=2)).epsilon == shuffled_gaussian(
        3.0, 10_000, 1e-6, 2
    )


@pytest.mark.parametrize("noise", [1.0, 4.0, 16.0])
@pytest.mark.parametrize("windows", [1, 3])
def test_published_bounds_are_never_below_the_lower_bound_of_their_direction(noise, windows):
    at = setting(noise_multiplier=noise, windows=windows)
    participation = CheckIn(100, windows)
    remove = price(Scheme(GaussianNoise(noise), participation, at.relation), 1e-6).directions[
        "remove"
    ]
    found = 0
    for method in METHODS:
        if method.directions == ("remove",):
            try:
                assert method.quote(at).epsilon >= remove.lower, method.name
            except UnsupportedError:
                continue
            found += 1
    assert found >= 1


def test_the_published_gaussian_check_in_bound_is_vacuous_unless_noise_is_huge():
    theorem = NAMED["check-ins 3.2"]
    with pytest.raises(UnsupportedError, match="vacuous"):
        theorem.quote(setting())
    quote = theorem.quote(setting(noise_multiplier=3000.0, window=10**7, delta=1e-3))
    assert quote.epsilon > 0


@pytest.mark.parametrize(
    ("name", "changes", "reason"),
    [
        ("shuffling", {"clients": None}, "needs the number of clients"),
        ("RDP 4.6", {"relation": Relation.REPLACE_ONE}, "no bound under replace-one"),
        ("alloc. 3.2", {"relation": Relation.REPLACE_ONE}, "no bound under replace-one"),
        ("alloc. 3.2", {"noise_multiplier": 0.5}, "is not below 1"),
        ("alloc. 4.1", {"windows": 2}, "covers one window"),
        ("alloc. 4.1", {"relation": Relation.REPLACE_ONE}, "no bound under replace-one"),
        ("check-ins 3.2", {"windows": 2}, "covers one window"),
    ],
)
def test_a_comparison_method_refuses_schemes_outside_its_range(name, changes, reason):
    with pytest.raises(UnsupportedError, match=reason):
        NAMED[name].quote(setting(**changes))


def test_the_comparison_record_has_every_number_with_its_relation(compared):
    record = json.loads(json.dumps(comparison_record(compared), allow_nan=False))
    assert record["values"] == [2.0, 8.0, 32.0]
    assert (record["window"], record["windows"], record["delta"]) == (200, 1, 1e-6)
    by_name = {method["name"]: method for method in record["methods"]}
    assert list(by_name) == list(NAMED)
    for method in record["methods"]:
        assert len(method["epsilon"]) == len(method["epsilon_lower"]) == 3
        assert method["relation"]
        assert method["trust_model"]
        assert method["directions"]
        blank = [
            value for value, e in zip(record["values"], method["epsilon"], strict=True) if e is None
        ]
        assert [entry["value"] for entry in method["blanks"]] == blank
    ours, none = by_name["check-in"], by_name["no amplif."]
    assert ours["relation"] == "add-remove"
    assert by_name["shuffling"]["relation"] == "replace-one"
    assert by_name["shuffling"]["trust_model"] == "shuffled"
    assert by_name["RDP 4.6"]["directions"] == ["remove"]
    for low, high, other in zip(
        ours["epsilon_lower"], ours["epsilon"], none["epsilon"], strict=True
    ):
        assert low <= high <= low * 1.01
        assert high < other / 5


def test_the_comparison_table_fits_80_columns_and_explains_its_notes(compared, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    show(compared, as_json=False)
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= 80
    words = " ".join(printed.split())
    for text in (
        "ε at δ = 1e-06, add-remove: window 200, windows 1, 20,000 clients",
        "relation add-remove: this client took part, or was never there",
        "unit client: everything that one client holds",
        "the remove direction alone, no guarantee",
        "(replace)",
        "(remove)",
        "trust model shuffled (shuffling)",
        "– check-ins 3.2, everywhere: the theorem is vacuous",
        "– alloc. 3.2, at 2: the bound does not apply here",
    ):
        assert text in words
    first = next(line for line in printed.splitlines() if line.strip().startswith("2 "))
    assert first.split().count("–") == 1


def test_printed_comparison_numbers_are_rounded_conservatively(compared, capsys):
    show(compared, as_json=False)
    row = next(
        line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("    8")
    )
    quote = compared.curves[0].quotes[1]
    assert float(row[1]) >= quote.epsilon
    assert float(row[2]) <= quote.epsilon_lower


def test_a_failing_method_does_not_stop_the_rest_of_a_comparison(monkeypatch):
    def broken(at):
        if at.noise_multiplier < 5:
            raise NumericalError(f"no digits left at {at.noise_multiplier:g}")
        return Quote(1.0)

    seen: list[tuple[int, int]] = []
    monkeypatch.setattr(
        comparison, "METHODS", (NAMED["check-in"], Method("broken", "a trial", broken))
    )
    found = Comparison.of(sweep(FLAGS), lambda done, of: seen.append((done, of)))
    assert [
        quote if isinstance(quote, str) else quote.epsilon for quote in found.curves[1].quotes
    ] == [
        "no digits left at 2",
        1.0,
        1.0,
    ]
    assert not any(isinstance(quote, str) for quote in found.curves[0].quotes)
    assert seen == [(i, 6) for i in range(6)]


def test_refusal_reasons_that_differ_only_in_numbers_share_one_line(monkeypatch, capsys):
    def refuses(at):
        raise UnsupportedError(f"gamma = {at.noise_multiplier:.3e} is too large")

    monkeypatch.setattr(
        comparison, "METHODS", (NAMED["no amplif."], Method("other", "a trial", refuses))
    )
    show(Comparison.of(sweep(FLAGS)), as_json=False)
    printed = capsys.readouterr().out
    assert printed.count("too large") == 1
    assert "– other, everywhere: gamma = 2.000e+00 is too large" in printed


@pytest.mark.parametrize(("terminal", "shown"), [("1", True), ("", False)])
def test_a_terminal_shows_the_progress_of_a_comparison(
    monkeypatch, mutate, capsys, terminal, shown
):
    started = threading.Event()
    mutate(progress, "_PATIENCE_SECONDS", 0.0)
    monkeypatch.setenv("FORCE_COLOR", terminal)
    begin = Progress.start

    def start(bar: Progress) -> None:
        begin(bar)
        started.set()

    monkeypatch.setattr(Progress, "start", start)
    with progress.progress_bar("comparing") as watch:
        assert not shown or started.wait(HANGS_SECONDS)
        watch(3, 6)
    printed = capsys.readouterr()
    assert ("comparing" in printed.err) is shown
    assert printed.out == ""


def test_progress_is_written_as_lines_if_there_is_no_terminal(capsys):
    tell = progress.progress_lines("comparing", 0.0)
    tell(3, 12_000)
    tell(4, 12_000, "drawing")
    assert capsys.readouterr().err == "comparing: 3 of 12,000\ndrawing: 4 of 12,000\n"
    seldom = progress.progress_lines("comparing", 1e9)
    seldom(3, 12_000)
    assert capsys.readouterr() == ("", "")


def test_quick_comparisons_show_no_progress_bar(monkeypatch, mutate, capsys):
    assert 0 < progress._PATIENCE_SECONDS < 60
    mutate(progress, "_PATIENCE_SECONDS", HANGS_SECONDS)
    monkeypatch.setenv("FORCE_COLOR", "1")
    with progress.progress_bar("comparing") as watch:
        watch(1, 2)
    assert capsys.readouterr() == ("", "")


def test_a_terminal_shows_the_progress_of_an_epsilon_computation(monkeypatch, mutate, capsys):
    started = threading.Event()
    mutate(progress, "_PATIENCE_SECONDS", 0.0)
    monkeypatch.setenv("FORCE_COLOR", "1")
    begin = Progress.start
    monkeypatch.setattr(Progress, "start", lambda bar: (begin(bar), started.set()))
    with progress.spinner("pricing"):
        assert started.wait(HANGS_SECONDS)
    printed = capsys.readouterr()
    assert "pricing …" in printed.err
    assert printed.out == ""


def test_an_internal_error_is_raised_instead_of_an_empty_cell(monkeypatch):
    def broken(at):
        raise ZeroDivisionError

    monkeypatch.setattr(comparison, "METHODS", (Method("broken", "a trial", broken),))
    with pytest.raises(ZeroDivisionError):
        Comparison.of(sweep(FLAGS))


def test_the_comparison_picture_shows_only_methods_with_numbers(compared, tmp_path):
    picture = comparison_picture(compared)
    svg = picture.svg()
    notes = {"check-in": "", "shuffling": ", replace-one", "RDP 4.6": ", remove only"}
    for name, note in notes.items():
        assert f"{LOOKS[name].words}{note}" in svg
    assert LOOKS["check-ins 3.2"].words not in svg
    assert "noise multiplier" in svg
    assert not re.search(r"\d × 10|mathdefault", svg)
    assert f"the least of {LOOKS['check-in'].words} is" in picture.text
    for kind, head in ((".svg", b"<?xml"), (".png", b"\x89PNG"), (".pdf", b"%PDF")):
        path = tmp_path / f"comparison{kind}"
        comparison_picture(compared).write(path)
        assert path.read_bytes().startswith(head)


def test_a_comparison_picture_is_drawn_even_if_the_exact_method_refuses(monkeypatch):
    def refuses(_):
        raise UnsupportedError("no")

    monkeypatch.setattr(
        comparison, "METHODS", (replace(NAMED["check-in"], quote=refuses), NAMED["no amplif."])
    )
    found = Comparison.of(sweep(FLAGS))
    with np.errstate(all="raise"):
        assert comparison_picture(found).svg().count(LOOKS["no amplif."].words) == 1
