"""Logs as JSON, one line each, that never join a device with a slot."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping, MutableMapping
from typing import Any, TextIO

import structlog

_DEVICE = frozenset({"client", "clients", "device", "public_key", "peer"})
_SLOT = frozenset({"step", "slot", "turn", "block", "window"})
WITHHELD = "withheld"


def part_devices_from_slots(
    _logger: Any, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """The event without its devices where it names slots as well, also inside of it.

    >>> part_devices_from_slots(None, "info", {"event": "came", "client": 3, "step": 7})
    {'event': 'came', 'step': 7, 'withheld': ['client']}
    """
    names = _names(event)
    if not (names & _DEVICE and names & _SLOT):
        return event
    kept = _without(event)
    kept[WITHHELD] = sorted(names & _DEVICE)
    return kept


def configure(stream: TextIO | None = None) -> None:
    """Sends the service's and the server's logs to a stream, standard error by default."""
    shared = [
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        part_devices_from_slots,
    ]
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                structlog.processors.JSONRenderer(),
            ],
        )
    )
    for name in ("turnout.service", "asyncio"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(logging.INFO)
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )


def logger() -> Any:
    """The service's logger."""
    return structlog.stdlib.get_logger("turnout.service")


def _names(event: Any) -> set[str]:
    """All keys, inside of values too."""
    if isinstance(event, Mapping):
        return {str(key).lower() for key in event}.union(*map(_names, event.values()))
    if isinstance(event, list | tuple):
        return set[str]().union(*map(_names, event))
    return set()


def _without(event: Any) -> Any:
    if isinstance(event, Mapping):
        return {k: _without(v) for k, v in event.items() if str(k).lower() not in _DEVICE}
    if isinstance(event, list | tuple):
        return [_without(value) for value in event]
    return event
