"""Output of the commands and Python in documentation pages, compared with the pages.

``python tests/meta/transcripts.py docs/PAGE.md`` writes the current output into a page, and without
a page into all of them. Commands, prose, and lines that differ only in parts that vary between runs
are kept.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, chdir, redirect_stdout
from difflib import SequenceMatcher
from importlib import import_module
from pathlib import Path
from unittest.mock import patch

from click.testing import CliRunner
from pages import PAGES, ROOT, Block, Step, blocks

from turnout.cli.main import turnout
from turnout.data import MissingFileError
from turnout.plans.questions import question_randomizers
from turnout.randomizers import interface
from turnout.schemes import registry

NOT_RUN = {
    "turnout witness --db witness.sqlite --host 0.0.0.0 --token-file token --tls-cert cert.pem "
    "--tls-key key.pem": "serves until it is stopped; tests/service/test_witness.py runs one",
    "turnout serve plan.toml --db turnout.sqlite --witness https://witness.example:8100 "
    "--witness-key 1b6a4c… --witness-token-file token": "tests/service/test_killed.py runs one",
    "turnout-witness-1": "a form with blanks: `receipt_bytes` has it as an example",
    "turnout-head-1": "a form with blanks: tests/service/test_vectors.py signs it filled in",
    "turnout-request-1": "a form with blanks: tests/service/test_vectors.py signs it filled in",
    "plan ─ prepare ─▶ Charter ─▶ Engine ──▶ protocol.Coordinator   "
    "(the one that a simulation drives)": "a drawing of what calls what",
    "turnout budget open people.json --decided plan --epsilon 2 --delta 1e-6 "
    "--relation replace-one \\": "writes a file; tests/cli/test_budget.py charges such answers",
    "turnout audit --example digits": "calibrates and plays for 15 CPU-seconds; "
    "tests/e2e/test_cli_audit.py audits a smaller plan",
    "turnout train --example mnist --engine ray --workers 2": "tests/integrations/"
    "test_ray.py runs one",
    "turnout train plan.toml --out run --engine ray --address ray://head:10001": "needs a cluster",
    "-from flwr.serverapp import NeighboringRelation, PrivacyConfig, RdpAccountant, "
    "SamplingMethod": "lines before; `make flower` runs them",
    "+from turnout.integrations.flower import CheckInStrategy": "lines after; `make flower` runs "
    "them",
    "-import numpy as np": "lines before; `make jax-privacy` runs them",
    "-from opacus import PrivacyEngine": "lines that change; examples/opacus/run.py has them, "
    "and tests/integrations/test_opacus.py runs the same calls",
}
"""Commands that are not run, and first lines of blocks that are not checked, with the reason."""

RUN_BY = {
    "docs/service.md": "tests/meta/test_service_page.py",
}
"""Pages whose commands and settings are all run in order by another test."""

MASKS = {
    r'(?<="seconds": )[\d.]+': "elapsed seconds",
    r"(?<=training time) +[\d.]+ s": "elapsed seconds",
}
"""Patterns of output that varies between runs."""
RANDOM = {
    "turnout refine decode": r"\d\.\d{4}",
    "turnout refine limited": r"\d\.\d{4}|(?<=%; )[\d.]+ %|[\d.]+%|^[\d,]+",
    "turnout estimate heavy-hitters": r"\d\.\d{4}",
    "turnout estimate user-mean": r"\n +± noise and\n.*\n minutes .*",
}
"""Estimates that depend on the operating system's randomness, by command."""
DIGITS = 8
"""Significant digits that are compared: processors add and multiply in different orders, so the
16 digits of a double in JSON are not all the same everywhere. Tables show fewer, and all of them
count."""
CUT = "…"
"""A line with only this text stands for any number of lines."""


def canonical(step: Step, output: str) -> str:
    """Output with parts that vary between runs masked, and numbers rounded to eight digits."""
    masks = [*MASKS, *(mask for start, mask in RANDOM.items() if step.source.startswith(start))]
    for mask in masks:
        output = re.sub(mask, "#", output)
    return re.sub(r"\d+\.\d+(e-?\d+)?", lambda found: _rounded(found[0]), output)


def _rounded(number: str) -> str:
    """Number as written, or rounded to the number of compared digits."""
    mantissa = re.sub(r"e.*|\.", "", number).lstrip("0")
    return number if len(mantissa) <= DIGITS else f"{float(number):.{DIGITS}g}"


def visible(shown: str, printed: str) -> str:
    """Part of an output that a page shows; the whole output if the excerpt does not match."""
    page, new = shown.splitlines(keepends=True), printed.splitlines(keepends=True)
    cut = next((i for i, line in enumerate(page) if line.strip() == CUT), None)
    if cut is None:
        return printed
    if cut + 1 == len(page):
        return "".join([*new[:cut], page[cut]])
    label = re.split(r"(?<=\S)  |:", page[cut + 1])[0]
    rests = [i for i, line in enumerate(new) if line.startswith(label)]
    return "".join([*new[:cut], page[cut], *new[rests[0] :]]) if len(rests) == 1 else printed


def merged(step: Step, printed: str) -> str:
    """Output for the page, which keeps lines of the page that are equivalent."""
    old = step.shown.splitlines(keepends=True)
    new = visible(step.shown, printed).splitlines(keepends=True)
    as_compared = [[canonical(step, line) for line in lines] for lines in (old, new)]
    lines: list[str] = []
    for what, i, j, k, m in SequenceMatcher(None, *as_compared, autojunk=False).get_opcodes():
        lines += old[i:j] if what == "equal" else new[k:m]
    return "".join(lines)


def sessions() -> Iterator[list[Block]]:
    """Groups of blocks that are run together, in order.

    From the first Python block of a page on, all blocks form one session, since later blocks use
    what earlier blocks define or write.
    """
    for page in PAGES:
        together: list[Block] = []
        for block in blocks(page):
            if block.language == "python" or (together and is_run(block)):
                together.append(block)
            elif is_run(block):
                yield [block]
        if together:
            yield together


def is_run(block: Block) -> bool:
    """Whether a block is Python, or shows the output of commands that can all be run."""
    if block.language == "python":
        return True
    shown = block.page not in RUN_BY and any(step.shown for step in block.steps)
    return shown and not any(one_line(step.source) in NOT_RUN for step in block.steps)


def one_line(command: str) -> str:
    """Command line without its line breaks."""
    return re.sub(r"\s*\\\n\s*", " ", command).strip()


def outputs(session: Sequence[Block], folder: Path) -> list[list[str]]:
    """Output of each step of each block, run in a new folder."""
    folder.mkdir()
    names: dict[str, object] = {"__name__": "page"}
    # Loaded now; otherwise they would be removed together with those of a page.
    registry.all_participations()
    question_randomizers()
    # Participations, randomizers and layouts of a page are removed after the page.
    cache = {"XDG_CACHE_HOME": str(folder / "cache")}
    registered = (registry._NAMES, registry._QUESTION_RANDOMIZERS, interface._MECHANISMS)
    with ExitStack() as stack:
        for names_of_page in registered:
            stack.enter_context(patch.dict(names_of_page))
        stack.enter_context(patch.dict(os.environ, cache))
        stack.enter_context(chdir(folder))
        return [
            [
                printed_by_python(step, names) if block.language == "python" else printed(step)
                for step in block.steps
            ]
            for block in session
        ]


def printed(step: Step) -> str:
    """Output of a command line at 80 columns; error messages and exit codes are failures."""
    program, *arguments = shlex.split(one_line(step.source))
    assert program == "turnout", step.source
    result = CliRunner().invoke(
        turnout, arguments, env={"COLUMNS": "80"}, catch_exceptions=False, prog_name=program
    )
    assert (result.exit_code, result.stderr) == (0, ""), result.stderr
    return "".join(f"{line.rstrip()}\n" for line in result.stdout.splitlines())


def printed_by_python(step: Step, names: dict[str, object]) -> str:
    """Output of Python code; values of expressions are printed as at a prompt."""
    mode = "single" if step.typed.startswith(">>> ") else "exec"
    code = compile(step.source, "<page>", mode, dont_inherit=True)
    with redirect_stdout(io.StringIO()) as out:
        exec(code, names)
    return out.getvalue() if mode == "single" else ""


def write(page: str, session: Sequence[Block], outputs: list[list[str]]) -> None:
    """Write output into a page, from its end on, so that line numbers above stay valid."""
    path = ROOT / page
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    for block, answers in reversed(list(zip(session, outputs, strict=True))):
        text = "".join(
            step.typed + merged(step, answer)
            for step, answer in zip(block.steps, answers, strict=True)
        )
        indent = re.match(" *", lines[block.line - 1])
        assert indent
        lines[block.line : block.line + len(block.text.splitlines())] = [
            f"{indent[0]}{line}" for line in text.splitlines(keepends=True)
        ]
    path.write_text("".join(lines), encoding="utf-8")


def main(pages: Sequence[str]) -> None:
    """Rewrite pages (all if none is named), starting with the last block of each page."""
    unknown = set(pages) - set(PAGES)
    if unknown:
        sys.exit(f"pages = {', '.join(unknown)}: expected paths such as docs/compare.md")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import_module("turnout.plans")  # registers all participations; a session removes its own
    for session in reversed(list(sessions())):
        place = session[0].place
        if pages and session[0].page not in pages:
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                printed = outputs(session, Path(folder) / "run")
            except MissingFileError as error:
                print(f"{place} stays as it is: {error}", file=sys.stderr)
                continue
        write(session[0].page, session, printed)
        print(place, file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1:])
