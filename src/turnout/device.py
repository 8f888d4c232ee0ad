"""One device of a served task, in Python, with a custom update function or the task's model.

`Device` takes an invitation and either a function or records; the command `turnout join` does the
same. `within_promise` makes a device refuse a task whose messages cost more ε than its charter
says. `turnout.service.device` holds the parts.

>>> from turnout.device import Device
>>> def update(parameters, client):
...     return -parameters  # towards zero; the device clips it
>>> device = Device("https://coordinator.example", "turnout1.…", update=update)  # doctest: +SKIP
>>> device.run()  # doctest: +SKIP
Counter({'accepted': 3})
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from turnout.core.errors import ParameterError, RemoteProtocolError
from turnout.core.optional import require

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from turnout.service.contract.charter import Charter
    from turnout.service.device import Diary
    from turnout.service.device.step_actions import TrainerOf, UpdateFunction

__all__ = ["Device"]

Update = Callable[["NDArray[np.float32]", int], "NDArray[Any]"]
"""Computes an update, any real vector ``(d,)``, from parameters ``(d,)`` and the client's id."""


class Device:
    """Device that takes part in a served task for one client.

    Guarantees:
        The device's steps are drawn from the operating system's randomness and stored before the
        first byte goes to the coordinator, and never drawn again.
        A sent update has norm at most the task's clip norm, whatever ``update`` returns (ℓ2, or the
        message's own norm under local trust); an update that is not finite becomes the zero vector.
        Under local trust the device sends one message per participation, randomized with the
        operating system's randomness, and refuses a task whose messages cost more ε than its
        charter says. The moment of sending is drawn before the update is computed, and does not
        depend on it.

    Args:
        url: the coordinator's address.
        token: the invitation.
        update: computes the client's update, ``(d,)``, from the parameters (float32, ``(d,)``) and
            the client's id. The device clips the update. The function must not depend on other
            clients' data. The function runs in a forked process, once before the device enrols and
            once in each participation; where it fails or exceeds the task's time limit, the device
            sends zeros.
        records: inputs and labels of the client, in place of ``update``; the task's own model
            computes the update from them.
        state: file of the device's state; by default in ``$XDG_STATE_HOME/turnout``.
        ca: file of certificates (PEM) to trust in place of the system's.
        cover: send dummy traffic in all other steps, as much as in a participation.
        allow_http: accept ``http://`` to another machine; an eavesdropper can then read updates.

    Raises:
        ParameterError: the token is invalid, or both or none of ``update`` and ``records`` are
            given.
        MissingExtraError: the extra ``device`` is not installed.
    """

    def __init__(
        self,
        url: str,
        token: str,
        *,
        update: Update | None = None,
        records: tuple[NDArray[Any], NDArray[Any]] | None = None,
        state: Path | str | None = None,
        ca: Path | str | None = None,
        cover: bool = False,
        allow_http: bool = False,
    ) -> None:
        require("device", what="a device")
        from turnout.service.contract.wire import Invitation
        from turnout.service.device import default_place

        # Exactly one source of updates, and a valid invitation.
        if (update is None) is (records is None):
            raise ParameterError("update", update, "a function, or None with records given")
        self._invitation = Invitation.decoded(token)
        # The connection, the state file, and the function that will compute updates.
        self._url, self._cover, self._allow_http = url, cover, allow_http
        self._state = Path(state) if state else default_place(self._invitation)
        self._ca = None if ca is None else Path(ca)
        self._trainer_of = self._bounded(update) if update else self._on(records)

    def run(self) -> Counter[str]:
        """Number of participations by outcome, after the device has taken part until the end.

        After a crash, run it again with the same state file.

        Raises:
            RemoteProtocolError: the coordinator broke the protocol, or did not answer for an hour.
            StorageError: the state file cannot be written, is damaged, or is in use.
            ParameterError: ``update`` fails or does not return d numbers when it is tried before
                enrolment, or the records do not fit the task.
        """
        from turnout.service.device import Diary, StateFile

        with StateFile(self._state) as file:
            return asyncio.run(self._take_part(Diary(file, self._invitation)))

    async def _take_part(self, diary: Diary) -> Counter[str]:
        from turnout.service import device

        async with device.connection(self._ca) as http:
            link = device.Link(http, self._url, allow_http=self._allow_http)
            trainer_of = within_promise(self._trainer_of)
            client = device.TaskDevice(self._invitation, diary, link, trainer_of, cover=self._cover)
            return await client.run()

    def _on(self, records: tuple[NDArray[Any], NDArray[Any]] | None) -> TrainerOf:
        """Function from a charter to an update function that trains the task's model."""
        from turnout.service.device.trainer import checked_records, trainer_on

        assert records is not None
        return trainer_on(checked_records(*records), self._invitation.client)

    @staticmethod
    def _bounded(update: Update) -> TrainerOf:
        """Function from a charter to the user's update function with clipped results."""
        return lambda charter: _Bounded(update, charter)


def within_promise(trainer_of: TrainerOf) -> TrainerOf:
    """Function from a charter to an update function, which refuses a charter with too small an ε.

    Under local trust the device itself checks the guarantee: the device computes ε with the
    verifier's independent analysis, and until then it only reads from the coordinator.
    """

    def build(charter: Charter) -> UpdateFunction:
        if charter.randomized:
            require_price(charter)
        return trainer_of(charter)

    return build


def require_price(charter: Charter) -> None:
    """Check that the ε charged by the charter covers all messages of one client.

    Raises:
        RemoteProtocolError: the charged ε is below a certified lower bound on the ε of the pair of
            distributions that prices these messages.
        UnsupportedError: the verifier has no independent analysis of this scheme.
        NumericalError: no bound can be certified.
    """
    from turnout.verification.cost import least_bound

    epsilon = least_bound(charter.scheme, charter.steps, charter.delta)
    if not epsilon <= charter.spent(charter.steps):
        raise RemoteProtocolError(
            f"the charter charges epsilon = {charter.charged[-1]:.6g}, but its messages cost "
            f"{epsilon:.6g} at delta = {charter.delta:g} ({charter.scheme.relation.value}, "
            f"{charter.scheme.unit.value}, {charter.scheme.trust.value})"
        )


class _Bounded:
    """User's update function with its results clipped to the charter's norm."""

    def __init__(self, update: Update, charter: Charter) -> None:
        self._update, self._charter = update, charter

    def update(self, parameters: NDArray[np.float32], client: int) -> NDArray[np.floating]:
        """Clipped update of the client, shape ``(d,)``, ready to be encoded."""
        from turnout.service.graphs.updates import bounded

        return bounded(self._update(parameters.copy(), client), self._charter)
