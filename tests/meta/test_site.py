"""The documentation site builds without a warning, needs no network and has every public name."""

import re
import subprocess
import sys

import pytest
from pages import ROOT

import turnout


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Folder of the built site; the arguments are those of the Makefile."""
    makefile = (ROOT / "Makefile").read_text()
    (arguments,) = re.findall(r"-m sphinx (.*) \$\(SITE_OUT\)", makefile)
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", *arguments.split(), str(folder)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (built.returncode, built.stderr) == (0, "")
    return folder


def test_the_reference_has_every_public_name_on_one_page(site):
    pages = [page.read_text() for page in site.glob("reference/*.html")]
    for name in dir(turnout):
        assert sum(f'id="turnout.{name}"' in page for page in pages) == 1, name


def test_the_site_loads_nothing_from_the_network(site):
    for page in site.glob("**/*.html"):
        loaded = re.findall(r'<(?:script|img|iframe)\b[^>]*?\bsrc="([^"]*)', page.read_text())
        loaded += re.findall(r'<link\b[^>]*?\bhref="([^"]*)', page.read_text())
        assert not [address for address in loaded if "//" in address], page.name


def test_a_link_to_a_page_of_the_site_shows_its_title(site):
    link = re.compile(r'<a [^>]*href="[^"]*\.html[^>]*>(?:<[^>]*>)*[\w/.-]+\.md(?:<[^>]*>)*</a>')
    for page in site.glob("**/*.html"):
        assert not link.findall(page.read_text()), page.name
