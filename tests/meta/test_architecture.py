"""docs/architecture.md agrees with the folders and the import contracts."""

from __future__ import annotations

import importlib.util
import pkgutil
import re
import tomllib

import pytest
from pages import ROOT

import turnout

PAGE = (ROOT / "docs" / "architecture.md").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
CODE = re.compile(r"`([\w.]+)`")


def rows(heading: str) -> list[tuple[list[str], list[str]]]:
    """For each table row below a heading: names in the first cell, and names in the last cell."""
    section = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    cells = [line.split("|")[1:-1] for line in section.splitlines() if line.startswith("| `")]
    return [(CODE.findall(first), CODE.findall(last)) for first, *_, last in cells]


def named(heading: str) -> set[str]:
    """Names in the first cells of the table below a heading."""
    return {name for first, _ in rows(heading) for name in first}


def layers(name: str) -> list[set[str]]:
    """Layers of an import contract, without the prefix of the package."""
    contracts = PROJECT["tool"]["importlinter"]["contracts"]
    (contract,) = (each for each in contracts if each["name"] == name)
    return [
        {part.strip().removeprefix("turnout.") for part in layer.split("|")} - {"_version"}
        for layer in contract["layers"]
    ]


def test_the_architecture_page_lists_packages_in_the_order_of_the_layers():
    found = [set(first) for first, _ in rows("Packages")]
    assert found == layers("imports point down the layers")


def test_the_architecture_page_lists_every_package():
    found = {module.name for module in pkgutil.iter_modules(turnout.__path__)}
    assert named("Packages") | {"testing"} == found - {"_version", "__main__"}


def test_modules_recommended_on_the_architecture_page_exist():
    for packages, places in rows("Packages"):
        for place in places:
            inside = place.partition(".")[0] in packages
            name = f"turnout.{place}" if inside else f"turnout.{packages[0]}.{place}"
            assert importlib.util.find_spec(name), place


@pytest.mark.parametrize("package", ["accounting", "service"])
def test_the_architecture_page_lists_every_module_of_a_package(package):
    heading = f"Inside {'the ' if package == 'service' else ''}{package}"
    folder = ROOT / "src" / "turnout" / package
    assert named(heading) == {module.name for module in pkgutil.iter_modules([str(folder)])}
