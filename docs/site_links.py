"""Sphinx extension: adapts the links of docs/ to the site.

Pages are written for readers of the repository and of the site. On the site, a link whose text is
the name of a page shows the page's title, a public name in prose, such as `tn.price`, is a link to
its entry in the reference, and a link to a file outside docs/ leads to `source_address` or, without
an address, downloads the file. The site's search finds a page first under its words in
search_words.toml.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from docutils import nodes
from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx

_NAMED_BY_FILE = re.compile(r"\[[\w/.-]+\.md(?:#[\w-]+)?\]\((?=[^)\s]+\.md)")
_PUBLIC = re.compile(r"(?:tn|turnout)\.(\w+)(?:\(.*\))?")
_OUTWARD = re.compile(r"\[([^\]]*)\]\(((?:\.\./)+[^)#\s]+)(#[^)\s]*)?\)")


def adapt_links(app: Sphinx, docname: str, source: list[str]) -> None:
    """Rewrite the links of one page, whose text is ``source[0]``."""
    page = Path(app.env.doc2path(docname))
    docs = Path(app.srcdir)
    if docname == app.config.root_doc:
        source[0] = (docs / "README.md").read_text(encoding="utf-8") + source[0]

    def outward(link: re.Match[str]) -> str:
        text, target, anchor = link.groups()
        path = Path(os.path.normpath(page.parent / target))
        if path.is_relative_to(docs):
            return link[0]
        name = path.relative_to(docs.parent).as_posix()
        if app.config.source_address:
            return f"[{text}]({app.config.source_address}/{name}{anchor or ''})"
        # A folder cannot be downloaded; its name tells where it is in the repository.
        if path.is_dir():
            return f"{text} (`{name}`)"
        return f"{{download}}`{text} <{target}>`"

    source[0] = _NAMED_BY_FILE.sub("[](", _OUTWARD.sub(outward, source[0]))


def add_search_words(app: Sphinx, docname: str, source: list[str]) -> None:
    """Put the search words of one page as index entries above its text, ``source[0]``."""
    words = app.config.search_words.get(docname)
    if words:
        source[0] = f"```{{index}} {', '.join(f'! {word}' for word in words)}\n```\n\n{source[0]}"


def link_public_names(app: Sphinx, tree: nodes.document, docname: str) -> None:
    """Make each public name in the prose of a page a link to its entry in the reference."""
    objects = app.env.domains["py"].data["objects"]
    for literal in list(tree.findall(nodes.literal)):
        found = _PUBLIC.fullmatch(literal.astext())
        name = f"turnout.{found[1]}" if found else ""
        if name not in objects or isinstance(literal.parent, nodes.reference):
            continue
        entry = objects[name]
        address = app.builder.get_relative_uri(docname, entry.docname)
        link = nodes.reference("", "", internal=True, refuri=f"{address}#{entry.node_id}")
        literal.replace_self(link)
        link += literal


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension."""
    app.add_config_value("source_address", "", "env", str)
    app.add_config_value("search_words", {}, "env", dict)
    app.add_lexer("csv", TextLexer)
    app.connect("source-read", adapt_links)
    app.connect("source-read", add_search_words)
    app.connect("doctree-resolved", link_public_names)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
