"""Sphinx settings of the documentation site: `make site` builds it from docs/ and docstrings.

The site needs no network: theme, fonts and search are files of the site itself. `site_links` adapts
the links of the pages, which also work where the repository is browsed.
"""

import sys
import tomllib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from turnout import __version__ as release

project = "turnout"
author = "The turnout authors"
version = release
extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "myst_parser",
    "sphinx_design",
    "sphinx_copybutton",
    "notfound.extension",
    "sphinx_codeautolink",
    "site_links",
]
# The home page is README.md, which `site_links` puts before the table of contents of index.md.
root_doc = "index"
exclude_patterns = ["README.md"]
search_words = tomllib.loads(Path(__file__).with_name("search_words.toml").read_text())

# Address of the repository's files; empty as long as the repository has no public address. Links to
# files outside docs/ are then downloads of these files.
source_address = ""

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True}
# Examples on a page share their names, as in one session; `tn` is turnout everywhere.
codeautolink_concat_default = True
codeautolink_global_preface = "import turnout as tn"
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
copybutton_line_continuation_character = "\\"

html_theme = "pydata_sphinx_theme"
html_title = "turnout"
html_show_copyright = False
html_copy_source = False
html_show_sourcelink = False
html_static_path = ["static"]
html_css_files = ["site.css"]
html_search_scorer = str(Path(__file__).with_name("search_score.js"))
html_theme_options = {
    "navbar_align": "left",
    "navbar_persistent": ["search-button"],
    "header_links_before_dropdown": 6,
    "navigation_with_keys": False,
    "show_prev_next": False,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": [],
    "footer_end": [],
}
notfound_urls_prefix = ""
