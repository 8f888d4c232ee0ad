"""Malformed files in ``turnout estimate`` and ``refine``: errors of one line, with exit codes."""

import numpy as np
import pytest

from turnout.cli.main import main

LOCAL = "--epsilon 1 --model local"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("a.npy", np.array([0, 1, 2, 1, 0] * 20))
    np.save("x.npy", np.linspace(-1, 1, 50)[:, None])
    np.save("nan.npy", np.array([[0.0, np.nan], [1.0, 2.0]]))
    np.save("huge.npy", np.array([2**63], dtype=np.uint64))
    np.save("none.npy", np.zeros(0))
    np.save("struct.npy", np.array([(1, 2.0)], dtype=[("a", int), ("b", float)]))
    np.save("object.npy", np.array([0, "a", None], dtype=object), allow_pickle=True)
    texts = {
        "bom.txt": "\ufeffUlm\nBonn\n",
        "twice.txt": "Ulm\nUlm\n",
        "towns.csv": "\ufefftown,age\nUlm,3\nBonn,4\n",
        "gap.csv": "town,age\nUlm,3\n,4\n",
        "ragged.csv": "a,b\n1,2\n1\n",
        "same.csv": "a,a\n1,2\n",
        "header.csv": "a\n",
        "number.csv": "a\n1_0\n",
        "script.csv": "a\n١\n",
        "nan.csv": "a\n1\nnan\n",
        "long.csv": "a\n" + "9" * 200_000 + "\n",
        "empty.csv": "",
        "empty.npy": "",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "latin.csv").write_bytes("town\nKöln\n".encode("latin-1"))
    (tmp_path / "latin.txt").write_bytes("Köln\nBonn\n".encode("latin-1"))
    (tmp_path / "folder.csv").mkdir()
    return tmp_path


def run(words, capsys):
    with pytest.raises(SystemExit) as caught:
        main(words.split())
    said = capsys.readouterr()
    return caught.value.code, said.out, said.err


FREQUENCIES, MEAN, ENCODE = "estimate frequencies", "estimate mean", "refine encode"
REFUSED = [
    (f"{FREQUENCIES} a.npy --size 3 --epsilon 1e-300 --model local", "at least 1e-12"),
    (f"{FREQUENCIES} a.npy --size 3 --epsilon 1e-17 --model shuffled --delta 1e-6", "at least"),
    (f"{FREQUENCIES} a.npy --size 1e11 {LOCAL}", "at most the largest size = 67108864"),
    (
        f"{FREQUENCIES} a.npy --size 1e11 --epsilon 1 --model central --relation add-remove",
        "67108864",
    ),
    (f"{FREQUENCIES} a.npy --size 6e7 --mechanism k-ary --epsilon 1e-12 --model local", "items"),
    (f"{FREQUENCIES} a.npy --size -3 {LOCAL}", "size = -3"),
    (f"{FREQUENCIES} a.npy --size 3 --column x {LOCAL}", "the columns of a.npy have no names"),
    (f"{FREQUENCIES} a.npy --size 3 --confidence 1 {LOCAL}", "confidence"),
    (f"{FREQUENCIES} a.npy --size 3 --bits 0 {LOCAL}", "bits = 0"),
    (f"{FREQUENCIES} huge.npy --size 3 {LOCAL}", "values from 0 to 2"),
    (f"{FREQUENCIES} object.npy --size 3 {LOCAL}", "no array of numbers"),
    (f"{FREQUENCIES} empty.npy --size 3 {LOCAL}", "no array of numbers"),
    (f"{FREQUENCIES} none.npy --size 3 {LOCAL}", "the file holds no values"),
    (f"{FREQUENCIES} folder.csv --size 3 {LOCAL}", "expected .parquet files in this folder"),
    (f"{FREQUENCIES} towns.csv --labels bom.txt --column home {LOCAL}", "column = 'home'"),
    (f"{FREQUENCIES} towns.csv --labels twice.txt --column town {LOCAL}", "all different"),
    (f"{FREQUENCIES} towns.csv --labels latin.txt --column town {LOCAL}", "no UTF-8 text"),
    (f"{FREQUENCIES} latin.csv --size 3 {LOCAL}", "no UTF-8 text (byte 7)"),
    (f"{FREQUENCIES} ragged.csv --size 3 --column a {LOCAL}", "line 3 has 1 cells, expected 2"),
    (
        f"{FREQUENCIES} same.csv --size 3 --column a {LOCAL}",
        "column = 'a': expected a column that occurs once",
    ),
    (f"{FREQUENCIES} header.csv --size 3 {LOCAL}", "the file holds no values"),
    (f"{FREQUENCIES} empty.csv --size 3 {LOCAL}", "names no columns"),
    (f"{FREQUENCIES} number.csv --size 99 {LOCAL}", "whole numbers"),
    (f"{FREQUENCIES} script.csv --size 99 {LOCAL}", "whole numbers"),
    (f"{FREQUENCIES} long.csv --size 9 {LOCAL}", "field limit"),
    (f"{MEAN} x.npy --norm l2 --radius 1e300 {LOCAL}", "radius = 1e+300"),
    (f"{MEAN} x.npy --norm l2 --radius 1 --epsilon 1e-300 --model local", "at least 1e-12"),
    (f"{MEAN} x.npy --norm linf --radius 1 --column a {LOCAL}", "have no names"),
    (f"{MEAN} x.npy --norm linf --radius 1 --mechanism one-message {LOCAL}", "only shuffled"),
    (f"{MEAN} nan.npy --norm l2 --radius 1 {LOCAL}", "a value in every row; invalid: row 0"),
    (f"{MEAN} nan.csv --norm l2 --radius 1 {LOCAL}", "a value in every row; invalid: row 1"),
    (f"{MEAN} number.csv --norm l2 --radius 1 {LOCAL}", "a number in each cell"),
    (f"{MEAN} towns.csv --norm l2 --radius 1 --column home {LOCAL}", "town, age"),
    (f"{ENCODE} a.npy --size 1e11 --epsilon 0.5 1 --out r", "at most 2**24"),
    (f"{ENCODE} a.npy --size 3 --column x --epsilon 0.5 1 --out r", "have no names"),
    (f"{ENCODE} a.npy --size 3 --epsilon 1e-300 --out r", "at least 1e-12"),
    (f"{ENCODE} struct.npy --size 3 --epsilon 0.5 1 --out r", "one value for each client"),
    (f"{ENCODE} latin.csv --size 3 --epsilon 0.5 1 --out r", "no UTF-8 text"),
    (f"{ENCODE} ragged.csv --size 3 --column a --epsilon 0.5 1 --out r", "expected 2"),
    (f"{ENCODE} long.csv --size 3 --epsilon 0.5 1 --out r", "field limit"),
    (f"{ENCODE} number.csv --size 99 --epsilon 0.5 1 --out r", "whole numbers"),
]


@pytest.mark.parametrize(("words", "said"), REFUSED, ids=lambda value: str(value)[:60])
def test_malformed_input_is_refused_in_one_line_with_exit_code_2(folder, capsys, words, said):
    ended, shown, complaint = run(words, capsys)
    assert said in complaint
    assert complaint.count("\n") == 1
    assert ended == 2
    assert not shown


def test_byte_order_marks_in_files_are_ignored(folder, capsys):
    for words in (
        f"{FREQUENCIES} towns.csv --labels bom.txt --column town {LOCAL} --json",
        f"{ENCODE} towns.csv --labels bom.txt --column town --epsilon 0.5 1 --out release",
    ):
        code, shown, complaint = run(words, capsys)
        assert (code, complaint) == (0, "")
        assert "\ufeff" not in shown


@pytest.mark.parametrize(
    "words",
    [
        f"{FREQUENCIES} gap.csv --labels bom.txt --column town {LOCAL}",
        f"{ENCODE} gap.csv --labels bom.txt --column town --epsilon 0.5 1 --out release",
    ],
)
def test_a_missing_value_is_refused_with_its_row_or_replaced_by_a_public_value(
    folder, capsys, words
):
    code, _, complaint = run(words, capsys)
    assert code == 2
    assert "expected a value in every row; invalid: row 1 (counted from 0)" in complaint
    assert run(f"{words} --missing Bonn", capsys)[0] == 0
    assert "missing = 'Rome': expected one of" in run(f"{words} --missing Rome", capsys)[2]


def test_an_output_path_within_a_file_ends_refine_with_exit_code_4(folder, capsys):
    run(f"{ENCODE} a.npy --size 3 --epsilon 1 inf --out release", capsys)
    decode = "refine decode release/public --key release/key-inf"
    for option in ("--out a.npy/x.csv", "--values a.npy/x.npy"):
        code, _, complaint = run(f"{decode} {option}", capsys)
        assert code == 4
        assert complaint.count("\n") == 1
    assert run(f"{decode} --out new/rows.csv --values kept", capsys)[0] == 0
    assert (folder / "new" / "rows.csv").read_text().startswith("value,frequency")
    assert np.load("kept.npy").tolist() == [0, 1, 2, 1, 0] * 20
