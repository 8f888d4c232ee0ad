"""The documentation site builds without a warning, needs no network and has every public name."""

import html
import json
import re
import subprocess
import sys
import tomllib
from urllib.parse import unquote

import pytest
from installed import program
from pages import ROOT

import turnout

SEARCHES = {
    "trusted coordinator": "which-guarantee",
    "dp-sgd epsilon": "what-epsilon",
    "DataLoader shuffle": "which-guarantee",
    "shuffle=True": "which-guarantee",
    "noise multiplier": "how-much-noise",
    "opacus": "coming-from",
    "poisson sampling": "which-guarantee",
    "federated averaging": "tutorials/simulate",
    "local differential privacy": "estimate",
    "heavy hitters": "frequencies",
    "membership inference": "explanation",
    "random check-in": "what-epsilon",
    "budget": "budget",
    "privacy budget": "budget",
    "delta": "which-guarantee",
    "choose delta": "which-guarantee",
    "composition": "budget",
    "composition of several queries": "budget",
    "local differential privacy mean": "means",
    "add-remove vs replace-one": "which-guarantee",
    "install": "index",
    "bandit": "bandits",
    "deploy coordinator": "deployment",
    "verify ledger": "ledger",
    "plug-in": "extending",
    "survey mean": "estimate",
    "replace-one": "which-guarantee",
    "secure aggregation": "which-guarantee",
    "dp-accounting": "coming-from",
    "flower": "coming-from",
    "trade-off curve": "explanation",
    "amplification by shuffling": "shuffling",
    "hyperparameters": "tune",
    "simulate clients": "tutorials/simulate",
    "own dataset": "data",
    "jupyter": "python",
    "postgres": "service",
}
"""Page that a query must find, as new users type the query."""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Folder of the built site; the arguments are those of the Makefile."""
    makefile = (ROOT / "Makefile").read_text()
    (arguments,) = re.findall(r"-m sphinx (.*) \$\(SITE_OUT\)", makefile)
    folder = tmp_path_factory.mktemp("site")
    arguments = arguments.replace("$(SITE_OUT)", str(folder))
    command = [sys.executable, "-m", "sphinx", *arguments.split(), str(folder)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (built.returncode, built.stderr) == (0, "")
    return folder


def test_the_reference_has_every_public_name_on_one_page(site):
    pages = [page.read_text() for page in site.glob("reference/*.html")]
    for name in dir(turnout):
        assert sum(f'id="turnout.{name}"' in page for page in pages) == 1, name


def test_the_site_has_at_most_15_megabytes(site):
    assert sum(file.stat().st_size for file in site.rglob("*") if file.is_file()) <= 15e6


def test_the_site_loads_nothing_from_the_network(site):
    for page in site.glob("**/*.html"):
        loaded = re.findall(r'<(?:script|img|iframe)\b[^>]*?\bsrc="([^"]*)', page.read_text())
        loaded += re.findall(r'<link\b[^>]*?\bhref="([^"]*)', page.read_text())
        assert not [address for address in loaded if "//" in address], page.name


def test_a_link_to_a_page_of_the_site_shows_its_title(site):
    link = re.compile(r'<a [^>]*href="[^"]*\.html[^>]*>(?:<[^>]*>)*[\w/.-]+\.md(?:<[^>]*>)*</a>')
    for page in site.glob("**/*.html"):
        assert not link.findall(page.read_text()), page.name


def test_a_search_on_the_site_finds_its_page_among_the_first_three(site):
    command = [program("node"), str(ROOT / "tests/meta/search.js"), str(site), *SEARCHES]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = dict(zip(SEARCHES, json.loads(printed), strict=True))
    first = {query: pages[:3] for query, pages in found.items()}
    assert {
        query: first[query] for query, page in SEARCHES.items() if page not in first[query]
    } == {}


def test_the_tested_search_words_belong_to_existing_pages():
    words = tomllib.loads((ROOT / "docs/search_words.toml").read_text())
    assert [page for page in words if not (ROOT / "docs" / f"{page}.md").exists()] == []


def test_every_link_within_the_site_has_a_page_and_an_anchor(site):
    pages = {page: page.read_text() for page in site.glob("**/*.html") if page.name != "404.html"}
    anchors = {page: set(re.findall(r'\bid="([^"]*)"', text)) for page, text in pages.items()}
    dead = []
    for page, text in pages.items():
        for link in set(re.findall(r'<a\b[^>]*?\bhref="([^":]*)"', text)):
            path, _, anchor = unquote(html.unescape(link)).partition("#")
            target = (page.parent / path).resolve() if path else page
            if not target.exists() or (anchor and anchor not in anchors.get(target, {anchor})):
                dead.append((page.name, link))
    assert dead == []
