"""Descriptors: as many as connections may take, and some that they can never take."""

from __future__ import annotations

from turnout.core.errors import ParameterError

try:
    import resource
except ModuleNotFoundError:  # Windows, which has no such limit
    resource = None

KEPT = 256
"""For the database's files and readers, the head file, data, logs, and connections that end."""

FEWEST = 64
"""Connections without which there is no serving."""


def room(connections: int) -> int:
    """As many connections as are wanted, or fewer where the system does not allow it.

    The process's limit is raised as far as that needs.
    """
    if resource is None:
        return connections
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = connections + KEPT
    if _below(soft, needed):
        soft = needed if not _below(hard, needed) else hard
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if not _below(soft, needed):
        return connections
    if soft - KEPT < FEWEST:
        reason = f"room for {FEWEST} beside {KEPT} other files; `ulimit -n` allows {soft} in all"
        raise ParameterError("connections", connections, reason)
    return soft - KEPT


def _below(limit: int, needed: int) -> bool:
    unlimited = resource is None or limit == resource.RLIM_INFINITY
    return not unlimited and limit < needed
