"""HTML of the pages, from what they say."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from importlib import resources
from typing import Any

import jinja2

from turnout._version import __version__
from turnout.service.dashboard.facts import public_facts
from turnout.service.dashboard.supervision import operator_facts
from turnout.service.web.views import OperatorView, PublicView

STATIC = "/static"
"""The folder of the static files."""

_PACKAGE = "turnout.service.dashboard"


def public_page(view: PublicView, *, fragment: bool = False) -> str:
    """The page for everybody; ``fragment``: only the part that is refreshed."""
    template = "public_live.html" if fragment else "public.html"
    return _rendered(template, facts=public_facts(view))


def operator_page(view: OperatorView, token: str, *, fragment: bool = False) -> str:
    """The operator's page."""
    template = "operator_live.html" if fragment else "operator.html"
    facts = public_facts(view.public)
    return _rendered(template, facts=facts, more=operator_facts(view), token=token)


def login_page(token: str, *, refused: bool = False) -> str:
    """The page that asks for the password."""
    return _rendered("login.html", token=token, refused=refused)


def _rendered(template: str, **context: Any) -> str:
    return _environment().get_template(template).render(version=__version__, **context)


@lru_cache(maxsize=1)
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader(_PACKAGE, "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
    )
    environment.globals["asset"] = _asset
    return environment


@lru_cache
def _asset(name: str) -> str:
    """The address of a static file; another one when the file is another one."""
    data = resources.files(_PACKAGE).joinpath("static", *name.split("/")).read_bytes()
    return f"{STATIC}/{name}?v={hashlib.sha256(data).hexdigest()[:12]}"
