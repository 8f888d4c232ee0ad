"""Versions, packages and processor behind a number, on which its last bits depend.

`surroundings` gathers all of them for the files of benchmarks. `measured_on` returns them in one
line, for the tables of benchmarks.
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
    """Versions, machine, cores and load, as the files of benchmarks record them."""
    return {
        "versions": versions(),
        "machine": machine(),
        "cores": os.cpu_count(),
        "load": os.getloadavg(),
    }


def versions() -> dict[str, str]:
    """Versions of turnout, Python and the numerical packages."""
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
    """Model name of the processor; its architecture where the system does not name it."""
    told = Path("/proc/cpuinfo")
    lines = told.read_text("utf-8", "replace").splitlines() if told.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _blas() -> str:
    """Kernels that NumPy's linear algebra chose."""
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
