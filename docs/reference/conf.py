"""Sphinx settings of the API reference: `make reference` builds it from docstrings."""

project = "turnout"
extensions = ["sphinx.ext.autodoc", "sphinx.ext.napoleon", "myst_parser"]
html_show_copyright = False
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True}
