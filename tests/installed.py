"""Programs of the operating system that tests need; `.ci/run` installs each program."""

from __future__ import annotations

import os
import shutil

import pytest

PACKAGES = {
    "caddy": "caddy",
    "chromium": "chromium",
    "nginx": "nginx",
    "node": "nodejs",
    "openssl": "openssl",
    "setpriv": "util-linux",
    "systemd-analyze": "systemd",
}
"""Debian package of each program."""


def program(name: str) -> str:
    """Path of a program; the test is skipped if the program is not installed."""
    path = os.pathsep.join((os.environ["PATH"], "/usr/sbin"))
    needed = f"needs {name}: install it (Debian: {PACKAGES[name]})"
    return shutil.which(name, path=path) or pytest.skip(needed)
