"""Documentation is correct: keys and options are listed, and links have targets."""

from __future__ import annotations

import re
import tomllib
from itertools import chain
from urllib.parse import unquote

import click
import pytest
from pages import PAGES, ROOT, anchors, blocks, inline
from plan_keys import PAGE, PLANS, key_tables, parted
from programs import options, script_options, subcommand

from turnout.cli import PURPOSES
from turnout.cli.main import turnout
from turnout.cli.service import serve as serve_it
from turnout.cli.training import train
from turnout.plans import Plan, example_plan

README = (ROOT / "README.md").read_text()
TRAINING = (ROOT / "docs" / "training.md").read_text()
EXAMPLES = sorted((ROOT / "src" / "turnout" / "plans" / "examples").glob("*.toml"))


def test_the_documented_demo_has_at_least_93_percent_accuracy():
    accuracy = re.search(r"test accuracy +([\d.]+)%", TRAINING)
    assert accuracy
    # The page shows real output; over twelve seeds the worst accuracy was 93.9 %.
    assert float(accuracy[1]) >= 93


def test_the_training_page_contains_the_example_plan_verbatim():
    assert f"```toml\n{example_plan('digits').read_text().strip()}\n```" in TRAINING


def test_every_command_and_option_is_documented():
    context = click.Context(turnout)
    pages = "".join((ROOT / page).read_text() for page in PAGES)
    for name in PURPOSES:
        command = turnout.get_command(context, name)
        assert command is not None
        assert f"turnout {name}" in README
        for option in options(command):
            assert re.search(rf"(?<![\w-]){option}(?![\w-])", pages), (name, option)


def test_the_make_targets_equal_those_listed_in_the_readme():
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))
    assert set(re.findall(r"\bmake ([a-z]+)", README)) <= targets
    assert "make check" in (ROOT / ".ci" / "run").read_text()


def test_the_readme_is_short():
    assert len(README.splitlines()) <= 200


def test_every_key_of_a_plan_is_documented():
    for page, plan in PLANS.items():
        told = parted(page.read_text())[1]
        assert told == key_tables(plan), "run: python tests/meta/plan_keys.py"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_plan_is_valid_and_listed(path):
    Plan.from_toml(path.read_text(), path.name)
    assert path.name in TRAINING
    assert path.name in PAGE.read_text()
    (example,) = (each for each in train.params if each.name == "example")
    assert isinstance(example, click.Option)
    assert re.search(rf"\b{path.stem}\b", example.help or "")


@pytest.mark.parametrize("page", PAGES)
def test_links_in_documentation_pages_have_a_target(page):
    targets = [str(link.attrGet("href")) for link in inline(page, "link_open")]
    targets += [str(picture.attrGet("src")) for picture in inline(page, "image")]
    for target in targets:
        if re.match(r"(https?|mailto):", target):
            continue
        name, _, anchor = unquote(target).partition("#")
        path = ((ROOT / page).parent / name).resolve() if name else ROOT / page
        assert path.exists(), target
        assert not anchor or anchor in anchors(str(path.relative_to(ROOT))), target


@pytest.mark.parametrize("page", PAGES)
def test_commands_and_options_in_documentation_text_exist(page):
    """An option without a command belongs to `turnout` or to a script named on the page."""
    scripts = set(re.findall(r"\bbenchmarks/\w+(?:\.py)?", (ROOT / page).read_text()))
    known = options(turnout).union(*map(script_options, scripts))
    for code in inline(page, "code_inline"):
        program, *rest = code.content.split()
        if program == "pip":
            continue  # test_install_lines.py reads these
        allowed = known
        if program == "turnout" and rest:
            command, rest = subcommand(rest)
            allowed = options(command)
        for option in re.findall(r"(?<![\w-])--[a-z][\w-]*", code.content):
            assert option in allowed, code.content


@pytest.mark.parametrize("page", PAGES)
def test_a_command_that_runs_a_server_is_the_last_of_its_code_block(page):
    for block in blocks(page):
        for step in block.steps[:-1]:
            assert not re.match(r"turnout (serve|witness) ", step.source), block.place


def test_papers_cited_in_documentation_are_in_the_references():
    keys = set(re.findall(r"@\w+\{(\w+),", (ROOT / "docs" / "references.bib").read_text()))
    cited = set().union(
        *(re.findall(r"\[([a-z]+\d{4}[a-z]+)\]", (ROOT / page).read_text()) for page in PAGES)
    )
    assert "girgis2023thesis" in cited
    assert cited <= keys


def test_environment_variables_are_documented_and_read():
    variable = re.compile(r"\bTURNOUT_[A-Z_]*[A-Z]\b")
    source, tests = (
        set(variable.findall("".join(path.read_text() for path in ROOT.glob(f"{top}/**/*.py"))))
        for top in ("src", "tests")
    )
    told = set().union(*(variable.findall((ROOT / page).read_text()) for page in PAGES))
    serve = {f"TURNOUT_SERVE_{name[2:].upper().replace('-', '_')}" for name in options(serve_it)}
    assert source <= told | serve
    assert told <= source | tests | serve


LOCKS = ("dev", "container", "torch")


def test_lock_files_name_exact_versions_only():
    for name in ("runtime", "dev"):
        lines = (ROOT / "requirements" / f"{name}.lock").read_text().splitlines()
        pins = [line for line in lines if not line.startswith("#")]
        assert pins
        for pin in pins:
            assert re.fullmatch(r"[a-z0-9-]+==[0-9][0-9a-z.]*", pin), pin
            assert not re.match(r"(nvidia|cuda|triton)", pin)


def test_container_lock_files_list_every_dependency_with_hashes():
    """Each package is in one lock file, at the version of the development lock file."""
    read = {name: (ROOT / "requirements" / f"{name}.lock").read_text() for name in LOCKS}
    pins = {name: dict(re.findall(r"^([a-z0-9-]+)==([^\s+]+)", read[name], re.M)) for name in LOCKS}
    assert pins["torch"].keys() == {"torch"}
    assert "torch" not in pins["container"]
    image = pins["container"] | pins["torch"]
    assert image.items() <= pins["dev"].items()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    for requirement in (*project["dependencies"], *extras["service"], *extras["train"]):
        assert re.split(r"[<>=\[]", requirement)[0].lower() in image
    for name in ("container", "torch"):
        for pin in re.split(r"\n(?=[a-z])", read[name].partition("\n")[2].strip()):
            assert re.fullmatch(r"[a-z0-9-]+==\S+(\s+\\?\s*--hash=sha256:[0-9a-f]{64})+", pin), pin


def test_no_install_file_uses_a_second_package_index():
    """With two indexes, pip would install a newer version from the untrusted one."""
    for path in (*ROOT.glob("requirements/*"), ROOT / "Makefile", ROOT / "Containerfile"):
        assert "extra-index-url" not in path.read_text(), path


def test_lock_files_list_every_dependency():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    # "all" contains the others; Flower restricts other packages, so it has its own lock file.
    extras = {**project["optional-dependencies"], "all": [], "flower": []}
    wanted = {
        "runtime": [*project["dependencies"], *extras["train"]],
        "dev": [*project["dependencies"], *chain(*extras.values())],
    }
    for name, requirements in wanted.items():
        lock = (ROOT / "requirements" / f"{name}.lock").read_text()
        for requirement in requirements:
            package = re.split(r"[<>=\[]", requirement)[0].lower()
            assert re.search(rf"^{re.escape(package)}==", lock, re.MULTILINE), package
