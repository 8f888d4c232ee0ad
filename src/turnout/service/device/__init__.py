"""The device's side of the service: draw before contact, remember, come, send once, leave."""

from turnout.service.device.device import TaskDevice
from turnout.service.device.link import GoneError, Link, UnreachableError, connection
from turnout.service.device.memory import Diary, Memory, StateFile, default_place, drawn_slots
from turnout.service.device.pace import Limits, Pace

__all__ = [
    "Diary",
    "GoneError",
    "Limits",
    "Link",
    "Memory",
    "Pace",
    "StateFile",
    "TaskDevice",
    "UnreachableError",
    "connection",
    "default_place",
    "drawn_slots",
]
