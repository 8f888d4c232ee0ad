"""One device of a served task, in Python, with a custom update function or the task's model.

`Device` needs an invitation and either an update function or records; the command `turnout join`
runs the same device. `within_promise` makes a device refuse a task whose messages cost more ε than
its charter states. `turnout.service.device` implements the device.

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
        The norm of a sent update is at most the task's clip norm, whatever ``update`` returns. It
        is the ℓ2 norm, or under local trust the norm of the task's randomizer. An update that is
        not finite becomes the zero vector.
        Under local trust the device sends one message per participation, randomized with the
        operating system's randomness, and refuses a task whose messages cost more ε than its
        charter states. The time at which the message is sent is drawn before the update is
        computed, and does not depend on the update.

    Args:
        url: the coordinator's address.
        token: the invitation.
        update: function that returns the client's update, shape ``(d,)``, from the model's
            parameters, float32, shape ``(d,)``, and the client's id. The device clips the update.
            The function must not depend on other clients' data. It runs in a forked process, once
            before the device enrols and once in each participation; if it fails or exceeds the
            task's time limit, the device sends zeros.
        records: inputs and labels of the client, given instead of ``update``. The device then
            trains the task's model on these records to compute the update.
        state: file of the device's state; by default in ``$XDG_STATE_HOME/turnout``.
        ca: file of certificates (PEM) to trust in place of the system's.
        cover: whether to send as much dummy traffic in all other steps as in a participation.
        allow_http: whether to accept ``http://`` to another machine; an eavesdropper can then read
            updates.

    Raises:
        ParameterError: the token is invalid, or not exactly one of ``update`` and ``records`` is
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
        """Take part in the task, and return the number of participations by outcome at its end.

        After a crash, run a new device with the same state file.

        Raises:
            RemoteProtocolError: the coordinator violated the protocol, or did not answer for an
                hour.
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
    """Function that checks the ε of a charter and then returns ``trainer_of`` of this charter.

    Under local trust the device itself checks the guarantee: it computes ε with the verifier's
    independent analysis, and sends nothing to the coordinator before this check. The returned
    function raises the errors of `require_price`.
    """

    def build(charter: Charter) -> UpdateFunction:
        if charter.randomized:
            require_price(charter)
        return trainer_of(charter)

    return build


def require_price(charter: Charter) -> None:
    """Raise an error unless the ε stated by the charter covers all messages of one client.

    Raises:
        RemoteProtocolError: the stated ε is below a certified lower bound on the ε of these
            messages.
        UnsupportedError: the verifier has no independent analysis of this scheme.
        NumericalError: no bound can be certified.
    """
    from turnout.verification.cost import least_bound

    epsilon = least_bound(charter.scheme, charter.steps, charter.delta)
    if not epsilon <= charter.spent(charter.steps):
        raise RemoteProtocolError(
            f"the charter states epsilon = {charter.charged[-1]:.6g}, but its messages cost "
            f"{epsilon:.6g} at delta = {charter.delta:g} ({charter.scheme.relation.value}, "
            f"{charter.scheme.unit.value}, {charter.scheme.trust.value})"
        )


class _Bounded:
    """User's update function, whose results are clipped to the clip norm of the charter."""

    def __init__(self, update: Update, charter: Charter) -> None:
        self._update, self._charter = update, charter

    def update(self, parameters: NDArray[np.float32], client: int) -> NDArray[np.floating]:
        """Clipped update of the client, shape ``(d,)``."""
        from turnout.service.graphs.updates import bounded

        return bounded(self._update(parameters.copy(), client), self._charter)
