"""The device's side of the service: draw before contact, remember, come, send once, leave."""

from turnout.service.device.device import Device
from turnout.service.device.diary import Diary, StateFile, default_place
from turnout.service.device.link import GoneError, Link, UnreachableError, connection
from turnout.service.device.memory import Memory, drawn_slots
from turnout.service.device.pace import Limits, Pace

__all__ = [
    "Device",
    "Diary",
    "GoneError",
    "Limits",
    "Link",
    "Memory",
    "Pace",
    "StateFile",
    "UnreachableError",
    "connection",
    "default_place",
    "drawn_slots",
]
