"""The state tables in docs/design/protocols.md equal those in the code."""

from pathlib import Path

import pytest

from turnout.protocol.messages import (
    CLIENT_TABLE,
    COORDINATOR_TABLE,
    ClientEvent,
    ClientState,
    CoordinatorEvent,
    CoordinatorState,
    Fault,
)

DOCUMENT = Path(__file__).parents[2] / "docs" / "design" / "protocols.md"
COLUMNS = {
    CoordinatorState: list(CoordinatorEvent),
    ClientState: [
        ClientEvent.SLOT_AHEAD,
        ClientEvent.SLOT_NOW,
        ClientEvent.SLOT_PAST,
        ClientEvent.CLOSED,
        ClientEvent.REFUSED,
        ClientEvent.REQUESTED,
    ],
}


def cell_text(state, cell):
    if isinstance(cell, Fault):
        return cell.name.lower()
    stays = cell is state and isinstance(state, ClientState)
    return "stays" if stays else f"→ {cell}"


@pytest.mark.parametrize(
    ("states", "table"), [(CoordinatorState, COORDINATOR_TABLE), (ClientState, CLIENT_TABLE)]
)
def test_the_protocol_page_shows_every_entry_of_the_state_tables(states, table):
    lines = DOCUMENT.read_text().splitlines()
    for state in states:
        cells = [cell_text(state, table[state][event]) for event in COLUMNS[states]]
        assert "| " + " | ".join([str(state), *cells]) + " |" in lines
