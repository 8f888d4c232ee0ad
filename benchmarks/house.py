"""Figures on the structure of the package, for another revision and this version.

    python benchmarks/house.py --before REV [--tests]

The script prints a table: files and lines of `src`, the share of import statements, public names
with two meanings, cycles and the longest chain of imports between files, the longest function, the
files that plans pass through, and the files whose code names one example of each kind of extension.
Docstrings, comments and the lists of public names (`__init__`) do not count. The examples of a
participation and a randomizer are kinds without special code in integrations or experiments
(docs/architecture.md gives the reasons). With --tests, the tests of each version run as well, on an
otherwise idle machine, and their CPU time is a further line. The same code measures both versions.
No test depends on these figures.

The files that plans pass through are traced in a run of each version, from the plan's TOML file to
the end of the command. *Settings* pass a file if one of its functions is called with a setting,
directly or as an attribute of an object of the package. The setting of the training plan is σ. The
settings of the bandit plan are its numbers, which differ from all other numbers of the run, and the
plan and its sections as objects. A bandit plan *runs* a file if it calls one of its functions with
any arguments; calls made while a file is imported do not count.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).parents[1]
TESTS = "CPU-seconds of the tests"
EXAMPLES = {
    "participation": r"\bSlidingWindow\b|[\"']sliding[\"']",
    "randomizer": r"\bLocalHashing\b|[\"']local-hashing[\"']",
    "federated rule": r"\bNesterov\b|[\"']nesterov[\"']",
    "bandit policy": r"\bBatchedThompson\b|[\"']thompson[\"']",
    "public function": r"\bexplain\b(?! the)",
}
"""Pattern of the class name and the plan word of one example of each kind."""


@dataclass(frozen=True)
class Tree:
    """Modules of one version.

    Attributes:
        source: folder that contains the package.
    """

    source: Path

    @cached_property
    def modules(self) -> dict[str, ast.Module]:
        """Syntax trees of the files, by module name."""
        return {self._name(path): ast.parse(path.read_text()) for path in self.paths}

    @cached_property
    def paths(self) -> list[Path]:
        """Paths of all files."""
        return sorted((self.source / "turnout").rglob("*.py"))

    def _name(self, path: Path) -> str:
        parts = path.relative_to(self.source).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @cached_property
    def lines(self) -> int:
        """Number of lines of all files."""
        return sum(len(path.read_text().splitlines()) for path in self.paths)

    def import_share(self) -> float:
        """Share of lines that belong to import statements."""
        kinds = (ast.Import, ast.ImportFrom)
        nodes = (node for tree in self.modules.values() for node in ast.walk(tree))
        spans = (
            n.end_lineno - n.lineno + 1 for n in nodes if isinstance(n, kinds) and n.end_lineno
        )
        return sum(spans) / self.lines

    def double_names(self) -> list[str]:
        """Public functions and classes with one name in two files, except commands."""
        homes = defaultdict(set)
        for module, tree in self.modules.items():
            for node in tree.body:
                named = isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef)
                if named and not node.name.startswith("_") and not module.startswith("turnout.cli"):
                    homes[node.name].add(module)
        return sorted(name for name, found in homes.items() if len(found) > 1)

    @cached_property
    def imports(self) -> dict[str, set[str]]:
        """Modules that each module imports at run time, including imports within functions."""
        found = {}
        for module, tree in self.modules.items():
            typing = {
                id(inner)
                for node in ast.walk(tree)
                if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
                for statement in node.body
                for inner in ast.walk(statement)
            }
            names = set()
            for node in ast.walk(tree):
                if id(node) in typing:
                    continue
                if isinstance(node, ast.ImportFrom) and node.module:
                    whole = (f"{node.module}.{alias.name}" for alias in node.names)
                    names |= {name if name in self.modules else node.module for name in whole}
                elif isinstance(node, ast.Import):
                    names |= {alias.name for alias in node.names}
            found[module] = (names & self.modules.keys()) - {module}
        return found

    def circle(self) -> list[str]:
        """Modules of one import cycle; empty if there is none."""
        try:
            TopologicalSorter(self.imports).prepare()
        except CycleError as error:
            return error.args[1]
        return []

    def longest_chain(self) -> int:
        """Number of modules on the longest chain of imports; 0 if there is an import cycle."""
        if self.circle():
            return 0
        length: dict[str, int] = {}
        for module in TopologicalSorter(self.imports).static_order():
            length[module] = 1 + max((length[other] for other in self.imports[module]), default=0)
        return max(length.values())

    def longest_function(self) -> tuple[int, str]:
        """Code lines of the longest function, without docstring and comments, and its name."""
        found = [(0, "")]
        for path in self.paths:
            text = path.read_text()
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    body = node.body[ast.get_docstring(node) is not None :]
                    if body:
                        part = text.splitlines()[body[0].lineno - 1 : body[-1].end_lineno]
                        code = [line for line in part if line.strip() and line.strip()[0] != "#"]
                        found.append((len(code), node.name))
        return max(found)

    def naming(self, pattern: str) -> int:
        """Number of files whose code names an example; lists of public names do not count."""
        files = [path for path in self.paths if path.name != "__init__.py"]
        return sum(bool(re.search(pattern, _code(path.read_text()))) for path in files)

    def passed_by(self, trip: str) -> dict[str, int]:
        """Number of files that a trip's settings pass, and number of files that the trip runs."""
        command = [sys.executable, str(Path(__file__)), "--trip", trip]
        done = subprocess.run(
            command,
            env=os.environ | {"PYTHONPATH": str(self.source)},
            capture_output=True,
            text=True,
            check=True,
        )
        found = json.loads(done.stdout.splitlines()[-1])
        return {name: len(files) for name, files in found.items()}


def _code(text: str) -> str:
    """Code of a file without docstrings and comments."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            body[:] = [each for each in body if not _is_text(each)] or [ast.Pass()]
    return ast.unparse(tree)


def _is_text(node: ast.stmt) -> bool:
    """Whether a statement is only a string, such as a docstring."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


SIGMA = 1.2890625
TRAINING = f"""
[data]
name = "digits"
[model]
name = "logistic"
[participation]
law = "check-in"
window = 4
[privacy]
relation = "add-remove"
noise_multiplier = {SIGMA}
delta = 1e-4
[optimizer]
learning_rate = 1.0
"""
HORIZON, EPSILON, GROWTH, FIRST, FAILURE = 2003, 1.0625, 1.5625, 61, 0.0107421875
BANDIT = f"""
[environment]
horizon = {HORIZON}
actions = 5
dimension = 2
[privacy]
trust = "central"
epsilon = {EPSILON}
[policy]
name = "elimination"
growth = {GROWTH}
first = {FIRST}
failure = {FAILURE}
[run]
seeds = 1
"""


@dataclass(frozen=True)
class Trip:
    """Command on a plan, and the settings whose files are counted.

    Attributes:
        verb: name of the command.
        plan: text of the plan.
        settings: numbers in the plan.
        module: module whose objects count as settings, or None.
    """

    verb: str
    plan: str
    settings: tuple[float, ...]
    module: str = ""

    def holds(self, value: object) -> bool:
        """Whether a value is a setting, or an object with a setting among its attributes."""
        if self._is_setting(value):
            return True
        if not type(value).__module__.startswith("turnout"):
            return False
        kind = type(value)
        fields = getattr(kind, "__dataclass_fields__", None) or getattr(value, "__dict__", {})
        return any(self._is_setting(getattr(value, name, None)) for name in list(fields))

    def _is_setting(self, value: object) -> bool:
        if isinstance(value, int | float):
            return value in self.settings
        return type(value).__module__ == self.module


TRIPS = {
    "sigma": Trip("train", TRAINING, (SIGMA,)),
    "bandit": Trip(
        "bandit", BANDIT, (HORIZON, EPSILON, GROWTH, FIRST, FAILURE), "turnout.plans.bandit"
    ),
}


def trace_trip(trip: Trip) -> None:
    """Run the command of a trip, and print the files that settings pass and the files that run."""
    import turnout
    from turnout.cli.main import turnout as command

    package = str(Path(turnout.__file__).parent)
    passed: set[str] = set()
    ran: set[str] = set()
    imports = 0  # imports in progress

    def trace(frame: FrameType, event: str, _: object) -> None:
        nonlocal imports
        # Class bodies and decorators run while a module is imported: they do not count as run.
        code = frame.f_code
        if code.co_name == "_find_and_load" and event in ("call", "return"):
            imports += 1 if event == "call" else -1
        if event != "call" or not code.co_filename.startswith(package):
            return
        if not imports:
            ran.add(code.co_filename)
        if code.co_filename not in passed and any(map(trip.holds, list(frame.f_locals.values()))):
            passed.add(code.co_filename)

    # The whole command, from the plan's file to its report.
    with tempfile.TemporaryDirectory() as folder:
        plan = Path(folder) / "plan.toml"
        plan.write_text(trip.plan)
        sys.setprofile(trace)
        try:
            command.main([trip.verb, str(plan), "--out", f"{folder}/out"], standalone_mode=False)
        finally:
            sys.setprofile(None)
    files = {"settings": passed, "run": {name for name in ran if name.endswith(".py")}}
    print(json.dumps({name: sorted(found) for name, found in files.items()}))


def figures(tree: Tree) -> dict[str, str]:
    """Column of the table for one version."""
    length, function = tree.longest_function()
    bandit = tree.passed_by("bandit")
    return {
        "files in src": f"{len(tree.paths)}",
        "lines in src": f"{tree.lines:,}",
        "import lines": f"{tree.import_share():.1%}",
        "public names with two meanings": f"{len(tree.double_names())}",
        "circles between files": f"{int(bool(tree.circle()))}",
        "longest chain of imports (0: a circle)": f"{tree.longest_chain()}",
        "longest function, lines of code": f"{length} ({function})",
        "files that σ passes, from plan to noise": f"{tree.passed_by('sigma')['settings']}",
        "files that bandit settings pass": f"{bandit['settings']}",
        "files that a bandit plan runs": f"{bandit['run']}",
        **{f"files that name one {kind}": f"{tree.naming(p)}" for kind, p in EXAMPLES.items()},
    }


def tests_of(folder: Path) -> str:
    """CPU-seconds and outcome of the tests of a version in a folder, on two processes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--numprocesses", "2", "-p", "no:cacheprovider"],
        check=False,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(folder / "src"), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    outcome = re.findall(r"(\d+) (passed|failed|errors?)\b", done.stdout)
    return f"{spent:,.0f} ({', '.join(f'{count} {word}' for count, word in outcome)})"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--before", metavar="REV", help="the revision to compare with")
    parser.add_argument("--names", action="store_true", help="list names with two meanings")
    parser.add_argument("--tests", action="store_true", help="run the tests of each version too")
    parser.add_argument("--trip", choices=list(TRIPS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    # A traced run, which this script starts as a new process.
    if options.trip:
        trace_trip(TRIPS[options.trip])
        return
    now = Tree(ROOT / "src")
    columns = {"now": figures(now)}
    if options.tests:
        columns["now"][TESTS] = tests_of(ROOT)
    # The other revision is unpacked into a temporary folder.
    if options.before:
        with tempfile.TemporaryDirectory() as folder:
            archive = subprocess.run(
                ["git", "archive", options.before], cwd=ROOT, stdout=subprocess.PIPE, check=True
            )
            subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
            columns = {"before": figures(Tree(Path(folder) / "src"))} | columns
            if options.tests:
                columns["before"][TESTS] = tests_of(Path(folder))
    # One column for each version.
    print(f"{'':42}" + "".join(f"{name:>24}" for name in columns))
    for row in columns["now"]:
        print(f"{row:42}" + "".join(f"{column[row]:>24}" for column in columns.values()))
    if options.names:
        print("\n" + ", ".join(now.double_names()))


if __name__ == "__main__":
    main()
