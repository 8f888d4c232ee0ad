"""Client side of the service: a device draws its steps before it first contacts the coordinator.

`TaskDevice` runs one device. `Diary` keeps the durable state of a device, `Link` sends requests,
and `Pace` computes the times of actions. `turnout.device.Device` is the public class for one
device; `fleet` runs many devices.
"""

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
