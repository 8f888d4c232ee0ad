"""The protocol: messages, state tables, coordinator and clients. No I/O, no clock.

The same objects run in a simulation and behind a network: whoever drives them carries the
messages and brings the randomness.
"""

from typing import TYPE_CHECKING

from turnout.core.aggregates import IntegerSum, Noise, UpdateSum
from turnout.core.lazy import loaded_on_demand

if TYPE_CHECKING:
    from turnout.protocol.client import Client
    from turnout.protocol.clipping import Clipping
    from turnout.protocol.coordinator import Coordinator
    from turnout.protocol.fleet import Fleet
    from turnout.protocol.lattice import Lattice, LatticeUpdate
    from turnout.protocol.mechanisms import Mechanism, mechanism_for
    from turnout.protocol.messages import (
        CheckIns,
        ClientIds,
        Receipt,
        Release,
        StepOpened,
        UpdateRequests,
        Updates,
        Verdict,
    )
    from turnout.protocol.tables import (
        CLIENT_TABLE,
        COORDINATOR_TABLE,
        ClientEvent,
        ClientState,
        CoordinatorEvent,
        CoordinatorState,
        Fault,
    )

__getattr__ = loaded_on_demand(
    __name__,
    {
        "client": "Client",
        "clipping": "Clipping",
        "coordinator": "Coordinator",
        "fleet": "Fleet",
        "lattice": "Lattice LatticeUpdate",
        "mechanisms": "Mechanism mechanism_for",
        "messages": "CheckIns ClientIds Receipt Release StepOpened UpdateRequests Updates Verdict",
        "tables": "CLIENT_TABLE COORDINATOR_TABLE ClientEvent ClientState "
        "CoordinatorEvent CoordinatorState Fault",
    },
)

__all__ = [
    "CLIENT_TABLE",
    "COORDINATOR_TABLE",
    "CheckIns",
    "Client",
    "ClientEvent",
    "ClientIds",
    "ClientState",
    "Clipping",
    "Coordinator",
    "CoordinatorEvent",
    "CoordinatorState",
    "Fault",
    "Fleet",
    "IntegerSum",
    "Lattice",
    "LatticeUpdate",
    "Mechanism",
    "Noise",
    "Receipt",
    "Release",
    "StepOpened",
    "UpdateRequests",
    "UpdateSum",
    "Updates",
    "Verdict",
    "mechanism_for",
]
