"""Names that users can write, in another revision and in this version: lost, renamed or added.

    python benchmarks/public_surface.py --before REV

The script compares commands, options, plan keys with their values, the names of `import turnout`,
and each name that the revision's pages import from `turnout`. A renamed name must be listed in
`docs/design/names.md`; then it counts as renamed. The exit status is 1 if a name was lost.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
NAMES = ROOT / "docs" / "design" / "names.md"
KEY_PAGES = ("examples/README.md", "docs/bandits.md")
KINDS = ("commands", "options", "plan keys", "names of turnout", "names that pages import")


def listed() -> dict[str, list[str]]:
    """Commands, options and public names of the version on the path."""
    import click

    import turnout
    from turnout.cli.main import turnout as program

    found: dict[str, set[str]] = {"commands": set(), "options": set()}

    def walk(command: click.Command, words: str) -> None:
        context = click.Context(command)
        found["commands"].add(words)
        for parameter in command.get_params(context):
            found["options"] |= {f"{words} {name}" for name in parameter.opts if name[0] == "-"}
        if isinstance(command, click.Group):
            for name in command.list_commands(context):
                inner = command.get_command(context, name)
                if inner is not None:
                    walk(inner, f"{words} {name}")

    walk(program, "turnout")
    found["names of turnout"] = set(dir(turnout))
    return {kind: sorted(names) for kind, names in found.items()}


def plan_keys(root: Path) -> set[str]:
    """Keys of plans, `[section] key`, and the values of a key, from the pages' tables."""
    keys, section = set(), ""
    for line in "\n".join((root / page).read_text() for page in KEY_PAGES).splitlines():
        if line.startswith("#"):
            heading = re.match(r"### (\[\w+\](?:, law = \"[\w-]+\")?)", line)
            section = heading[1] if heading else ""
        row = re.match(r"\| `(\w+)` \|[^|]*\|(.*)\|$", line)
        if row and section:
            keys.add(f"{section} {row[1]}")
            words = re.findall(r"`([\w-]+)`", row[2].rpartition(":")[2])
            keys |= {f"{section} {row[1]} = {word}" for word in words}
    return keys


def imported(root: Path) -> set[str]:
    """Names that the pages and the examples' scripts import from the package."""
    names = set()
    for page in (*root.glob("*.md"), *root.glob("docs/**/*.md"), *root.glob("examples/**/*.*")):
        if page.suffix not in {".md", ".py"}:
            continue
        text = re.sub(r"\n(?:>>>|\.\.\.) ?", "\n", "\n" + page.read_text())
        for group in re.findall(r"from turnout[\w.]* import (\([^)]*\)|[^\n(]+)", text):
            names |= set(re.findall(r"\b(\w+)\b(?!\s+as\b)", re.sub(r"\bas \w+", "", group)))
    return names


def defined(root: Path) -> set[str]:
    """Names that are defined or exported anywhere in the package, including its modules."""
    names = set()
    for path in (root / "src").rglob("*.py"):
        names |= {path.stem, path.parent.name}
        definitions = r"(?m)^(?:class|def|async def) (\w+)|^(\w+)(?::[^=\n]+)? = "
        names |= {
            name for pair in re.findall(definitions, path.read_text()) for name in pair if name
        }
    return names


def surface(root: Path) -> dict[str, set[str]]:
    """All names that the version in a folder lets users write, by kind."""
    done = subprocess.run(
        [sys.executable, __file__, "--list"],
        env=os.environ | {"PYTHONPATH": str(root / "src")},
        capture_output=True,
        text=True,
        check=True,
    )
    found = {kind: set(names) for kind, names in json.loads(done.stdout).items()}
    pages = imported(root) & defined(root)
    return found | {"plan keys": plan_keys(root), "names that pages import": pages}


def renames() -> dict[str, str]:
    """Map from old name to new name, from the table of the design page."""
    return dict(re.findall(r"(?m)^\| `([^`]+)` \| `([^`]+)` \|", NAMES.read_text()))


def compare(before: Path) -> bool:
    """Print the table and every changed name, and return whether no name was lost."""
    old, new, known = surface(before), surface(ROOT), renames()
    homes = new | {"names that pages import": defined(ROOT)}
    lost_any = False
    print(f"{'':26}{'before':>8}{'now':>8}{'added':>8}{'renamed':>9}{'lost':>6}")
    notes = []
    for kind in KINDS:
        gone = sorted(old[kind] - homes[kind])
        moved = [name for name in gone if known.get(name) in homes[kind]]
        lost = [name for name in gone if name not in moved]
        added = sorted(new[kind] - old[kind])
        print(
            f"{kind:26}{len(old[kind]):8}{len(new[kind]):8}{len(added):8}{len(moved):9}{len(lost):6}"
        )
        notes += [f"renamed: {name} → {known[name]}" for name in moved]
        notes += [f"lost ({kind}): {name}" for name in lost]
        notes += [f"added ({kind}): {name}" for name in added if kind in KINDS[:4]]
        lost_any |= bool(lost)
    print("\n" + "\n".join(notes))
    return not lost_any


def main() -> None:
    """Parse the options and compare."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--before", metavar="REV", help="the revision to compare with")
    parser.add_argument("--list", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.list:
        print(json.dumps(listed()))
        return
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(
            ["git", "archive", options.before or "HEAD"],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            check=True,
        )
        subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
        sys.exit(not compare(Path(folder)))


if __name__ == "__main__":
    main()
