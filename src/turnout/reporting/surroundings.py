"""Versions and processor with which a number was computed, since its last bits depend on them.

`surroundings` returns them for the JSON files of benchmarks. `measured_on` returns one line for the
tables of benchmarks.
"""

from __future__ import annotations

import os
import platform
import sys
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from turnout._version import __version__

TRACKED = ("numpy", "scipy", "torch")
"""Packages whose versions a report records."""


def surroundings() -> dict[str, Any]:
    """Versions, machine, number of cores, and average load, as JSON-ready values."""
    return {
        "versions": versions(),
        "machine": machine(),
        "cores": os.cpu_count(),
        "load": os.getloadavg(),
    }


def versions() -> dict[str, str]:
    """Versions of turnout, Python and the packages in `TRACKED`, by name."""
    found = {name: metadata.version(name) for name in TRACKED}
    return {"turnout": __version__, "python": platform.python_version(), **found}


def measured_on() -> str:
    """Markdown line above a benchmark's table: date, versions, processor and number of cores."""
    names = ", ".join(f"{name} {version}" for name, version in versions().items())
    today = datetime.now(UTC).date().isoformat()
    return f"*Measured on {today}: {names}; {_processor()}, {os.cpu_count()} cores.*\n"


def machine() -> dict[str, str]:
    """Processor, and the instruction sets that NumPy, its BLAS and PyTorch choose on it.

    PyTorch is included if it is loaded, the BLAS if threadpoolctl is installed.
    """
    extensions = np.show_config(mode="dicts").get("SIMD Extensions", {})  # pyright: ignore
    used = [*extensions.get("baseline", []), *extensions.get("found", [])]
    found = {"processor": _processor(), "numpy": " ".join(used), "blas": _blas()}
    if "torch" in sys.modules:
        found["torch"] = sys.modules["torch"].backends.cpu.get_cpu_capability()
    return {name: value for name, value in found.items() if value}


def _processor() -> str:
    """Model name of the processor, or its architecture if the system has no model name."""
    told = Path("/proc/cpuinfo")
    lines = told.read_text("utf-8", "replace").splitlines() if told.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _blas() -> str:
    """BLAS libraries of NumPy, with versions and kernels; empty without threadpoolctl."""
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
