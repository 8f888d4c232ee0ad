"""Every code block of the documentation is run or parsed, with the output that the page shows."""

from __future__ import annotations

import json
import tomllib
from collections import defaultdict

import pytest
import yaml
from pages import PAGES, ROOT, Block, Step, blocks
from plain_pictures import pictures_without_layout
from programs import read_command
from transcripts import (
    NOT_RUN,
    RUN_BY,
    canonical,
    is_run,
    merged,
    one_line,
    outputs,
    sessions,
    visible,
    write,
)

from turnout._version import __version__
from turnout.data import MissingFileError
from turnout.plans import Plan
from turnout.plans.bandit import BanditPlan
from turnout.plans.questions import read_pair

BLOCKS = [block for page in PAGES for block in blocks(page)]
WRITE = "if the page is wrong: make transcripts"


def same_sessions() -> list[list[list[Block]]]:
    """Sessions of all pages; identical sessions are run once."""
    found: dict[tuple[str, ...], list[list[Block]]] = defaultdict(list)
    for session in sessions():
        found[tuple(step.source for block in session for step in block.steps)].append(session)
    return list(found.values())


@pytest.mark.parametrize("same", same_sessions(), ids=lambda same: same[0][0].place)
def test_documented_transcripts_equal_printed_output(same, tmp_path):
    try:
        with pictures_without_layout():
            printed = outputs(same[0], tmp_path / "run")
    except MissingFileError as error:
        pytest.skip(str(error))
    for session in same:
        for block, answers in zip(session, printed, strict=True):
            for step, answer in zip(block.steps, answers, strict=True):
                given = canonical(step, visible(step.shown, answer))
                assert given == canonical(step, step.shown), f"{block.place}: {WRITE}"


def commands() -> list[tuple[Block, Step]]:
    consoles = (block for block in BLOCKS if block.language == "console")
    return [(block, step) for block in consoles for step in block.steps]


@pytest.mark.parametrize(("block", "step"), commands(), ids=lambda it: getattr(it, "place", ""))
def test_every_documented_command_line_is_parsed_by_its_program(block, step):
    read_command(one_line(step.source))


def read_csv(text, folder):
    (folder / "pair.csv").write_text(text)
    read_pair(folder / "pair.csv")


def read_toml(text, folder):
    if "[project." in text:  # a part of the pyproject.toml of a plug-in
        assert tomllib.loads(text)["project"]["entry-points"]
        return
    kind = BanditPlan if "[environment]" in text else Plan
    kind.from_toml(text, "page")


READERS = {
    "toml": read_toml,
    "json": lambda text, _: [json.loads(line) for line in text.splitlines()],
    "yaml": lambda text, _: yaml.safe_load(text),
    "csv": read_csv,
}


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.place)
def test_every_documented_code_block_is_run_parsed_or_excused(block, tmp_path):
    if block.language in READERS:
        READERS[block.language](block.text, tmp_path)
    elif block.language == "console":
        kept = {one_line(step.source) for step in block.steps if step.shown}
        assert is_run(block) or kept <= set(NOT_RUN) or block.page in RUN_BY
    elif block.language in ("{toctree}", "{eval-rst}"):
        pass  # test_site.py builds the site with these
    elif block.language != "python" and block.page not in RUN_BY:
        assert block.text.splitlines()[0] in NOT_RUN


def test_every_listed_exception_to_running_documented_commands_exists():
    typed = {one_line(step.source) for _, step in commands()}
    first = {block.text.splitlines()[0] for block in BLOCKS}
    assert set(NOT_RUN) <= typed | first
    assert all(NOT_RUN.values())
    assert all((ROOT / page).exists() and (ROOT / test).exists() for page, test in RUN_BY.items())


def step(shown: str, source: str = "turnout account") -> Step:
    return Step(f"$ {source}\n", source, shown)


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("ε 0.781142\n", "ε 0.781143\n"),
        ('"epsilon": 0.99970796,\n', '"epsilon": 0.99970433,\n'),
        ("at least 2.9996\n", "at least 2.9991\n"),
        ("windows 32\n", "windows 33\n"),
        ("one line\n", "one line\nand one more\n"),
        ("…\n  b  2\n", "  a  1\n  b  3\n"),
        ("Bonn 0.3952\n", "Bonn 0.3953\n"),
    ],
)
def test_a_transcript_with_other_digits_is_detected(shown, printed):
    asked = step(shown)
    assert canonical(asked, visible(shown, printed)) != canonical(asked, shown)


@pytest.mark.parametrize(
    ("source", "shown", "printed"),
    [
        ("", '"seconds": 1.49\n', '"seconds": 0.2\n'),
        ("", "  training time       0.9 s\n", "  training time       12.9 s\n"),
        ("", '"epsilon": 0.9994569408320818\n', '"epsilon": 0.9994569408757727\n'),
        ("", "…\n  b  2\n", "  a  1\n  b  2\n"),
        ("", "a 1\n…\nc 3\n", "a 1\nb 2\nc 3\n"),
        ("", "a 1\n…\n", "a 1\nb 2\nc 3\n"),
        ("turnout refine decode release/public", "Bonn 0.3952\n", "Bonn 0.4011\n"),
    ],
)
def test_output_that_varies_between_runs_is_masked_in_transcripts(source, shown, printed):
    asked = step(shown, source)
    assert canonical(asked, visible(shown, printed)) == canonical(asked, shown)
    assert merged(asked, printed) == shown


def test_updating_a_transcript_keeps_equivalent_lines():
    asked = step('…\n"epsilon": 1.5,\n"seconds": 1.49\n')
    printed = '{\n"value": 3,\n"epsilon": 1.25,\n"new": 1,\n"seconds": 0.7\n'
    assert merged(asked, printed) == '…\n"epsilon": 1.25,\n"new": 1,\n"seconds": 1.49\n'


def test_updating_transcripts_rewrites_the_page(tmp_path):
    page = tmp_path / "page.md"
    text = """Prose.

```python
>>> x = 1
>>> x + 1
{}
```

* Among others:

  ```console
  $ turnout --version
  {}
  ```

```python
>>> print(x, 5.0)
{}
```
"""
    page.write_text(text.format("3\n4", "turnout 0.0", "1 5.0"))
    session = blocks(str(page))
    write(str(page), session, outputs(session, tmp_path / "run"))
    assert page.read_text() == text.format("2", f"turnout {__version__}", "1 5.0")


def test_transcripts_are_split_into_commands_by_their_prompts():
    console = Block("a", 0, "console", "$ one \\\n    --two\nout\n\n$ three\n")
    assert [(s.source, s.shown) for s in console.steps] == [
        ("one \\\n    --two\n", "out\n\n"),
        ("three\n", ""),
    ]
    python = Block("a", 0, "python", ">>> for i in (1, 2):\n...     i\n...\n1\n2\n>>> 3\n3\n")
    assert [(s.source, s.shown) for s in python.steps] == [
        ("for i in (1, 2):\n    i\n\n", "1\n2\n"),
        ("3\n", "3\n"),
    ]
    for block in (console, python):
        assert "".join(s.typed + s.shown for s in block.steps) == block.text
    assert [s.source for s in Block("a", 0, "console", "one\ntwo\n").steps] == ["one\n", "two\n"]
