"""The packages and the processor that a number was computed by: on them its last bits rest."""

from __future__ import annotations

import os
import platform
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from turnout._version import __version__

TRACKED = ("numpy", "scipy", "torch")
"""Packages whose versions a report records."""


def surroundings() -> dict[str, Any]:
    """Versions, machine, cores and load, as the files of benchmarks record them."""
    return {
        "versions": versions(),
        "machine": machine(),
        "cores": os.cpu_count(),
        "load": os.getloadavg(),
    }


def versions() -> dict[str, str]:
    """Of turnout, Python and what the numbers rest on."""
    found = {name: metadata.version(name) for name in TRACKED}
    return {"turnout": __version__, "python": platform.python_version(), **found}


def machine() -> dict[str, str]:
    """The processor, and the instruction sets that NumPy, its BLAS and PyTorch choose on it.

    PyTorch's is there where it is loaded, that of BLAS where threadpoolctl is installed.
    """
    extensions = np.show_config(mode="dicts").get("SIMD Extensions", {})  # pyright: ignore
    used = [*extensions.get("baseline", []), *extensions.get("found", [])]
    found = {"processor": _processor(), "numpy": " ".join(used), "blas": _blas()}
    if "torch" in sys.modules:
        found["torch"] = sys.modules["torch"].backends.cpu.get_cpu_capability()
    return {name: value for name, value in found.items() if value}


def _processor() -> str:
    """The name that the processor gives itself; its kind where the system does not tell."""
    told = Path("/proc/cpuinfo")
    lines = told.read_text("utf-8", "replace").splitlines() if told.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _blas() -> str:
    """The kernels that NumPy's linear algebra chose."""
    try:
        from threadpoolctl import threadpool_info
    except ImportError:
        return ""
    found = {
        f"{one['internal_api']} {one['version']} {one.get('architecture', '')}".strip()
        for one in threadpool_info()
        if one["user_api"] == "blas"
    }
    return ", ".join(sorted(found))
