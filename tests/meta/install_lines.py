"""Commands that install turnout in all files, generated from `turnout.core.installation`.

``python tests/meta/install_lines.py`` rewrites them in all pages.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from turnout.core.installation import WHEEL

ROOT = Path(__file__).parents[2]
FILES = ("README.md", "Containerfile", "Makefile", ".ci/run")
FOLDERS = ("src", "docs", "examples", "benchmarks", "requirements")
KINDS = (".html", ".in", ".js", ".json", ".lock", ".md", ".mjs", ".py", ".rst", ".service", ".toml")
KINDS += (".txt", ".yaml", ".yml")

_MADE = re.compile(r"/\.venv/|\.egg-info/")
_LINE = re.compile(r"(\bpip install\s+(?:--\S+\s+)*'?)[^\s'`]*turnout(?:-\S+?\.whl)?(?=[\[\s'`])")
_INSTALLER = re.compile(
    r"\bpip3? (?:install|download|wheel)\b|\bpipx (?:install|run|inject)\b|\buvx\b|\bnpx\b"
    r"|\buv (?:pip install|tool install|tool run|add|run)\b|\b(?:poetry|pdm) add\b"
    r"|\b(?:conda|mamba) install\b|\b(?:npm|pnpm|yarn) (?:i|install|add|exec|dlx)\b"
)
_NAME = re.compile(r"turnout[\w-]*(?:\[[^\]]*\])?(?:[<>=~!@].*)?")
_EXTRA = re.compile(r"(?<![\w./-])turnout\[[a-z][\w,-]*\]")


def texts() -> dict[Path, str]:
    """Texts of all files that contain install commands: sources, pages, examples, build files."""
    found = [ROOT / name for name in FILES]
    for folder in FOLDERS:
        inside = (ROOT / folder).rglob("*")
        found += [path for path in inside if path.suffix in KINDS and not _MADE.search(str(path))]
    return {path: path.read_text("utf-8") for path in found}


def rewritten(text: str) -> str:
    """Text in which every install command of turnout is replaced by the configured one."""
    return _LINE.sub(lambda found: found[1] + WHEEL, text)


def by_name(path: Path, text: str) -> list[str]:
    """Commands, requirements and extras that would install turnout by name from a package index."""
    words = [word.rstrip(").,:") for line in _commands(text) for word in line.split()]
    asked = [*words, *_requirements(path, text)]
    return [word for word in asked if _NAME.fullmatch(word)] + _EXTRA.findall(text)


def _commands(text: str) -> Iterator[str]:
    """Arguments of each installer command, without quotes."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    spans = [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", prose)]
    for line in (*text.replace("\\\n", " ").splitlines(), *spans):
        for found in _INSTALLER.finditer(line):
            yield re.split(r"[`|;&]", line[found.end() :])[0].replace("'", "").replace('"', "")


def _requirements(path: Path, text: str) -> list[str]:
    """Package names in a requirements file."""
    if path.name == "package.json":
        kinds = ("dependencies", "devDependencies", "optionalDependencies", "peerDependencies")
        return [name for kind in kinds for name in json.loads(text).get(kind, ())]
    if path.suffix == ".toml":
        project = tomllib.loads(text).get("project", {})
        extras = project.get("optional-dependencies", {}).values()
        return [*project.get("dependencies", ()), *chain(*extras)]
    return text.splitlines() if path.suffix in (".txt", ".in", ".lock") else []


if __name__ == "__main__":
    for path, text in texts().items():
        if (new := rewritten(text)) != text:
            path.write_text(new, "utf-8")
