"""One device of a served task, in Python: a user's own update function, or the task's own model.

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
    from turnout.service.device.turns import TrainerOf, UpdateFunction

__all__ = ["Device"]

Update = Callable[["NDArray[np.float32]", int], "NDArray[Any]"]
"""The update of parameters ``(d,)`` and the client's id: any real vector ``(d,)``."""


class Device:
    """A client of a task, from its invitation to its last turn.

    Guarantees:
        Its steps are drawn from the operating system's randomness and stored before the first
        byte goes to the coordinator, and never drawn again.
        What it sends has norm at most the task's clip norm, whatever ``update`` gives (ℓ2, but for
        messages of another norm); an update that is not finite is the zero vector. Under local
        trust it sends one message made of that, with the operating system's randomness, and none
        of a task whose messages cost more than the task says.
        When it sends is drawn before the update is computed, and does not depend on it.

    Args:
        url: the coordinator's address.
        token: the invitation.
        update: the client's update, from the parameters (float32, ``(d,)``) and the client's id.
            Not clipped: the device does that. It must depend on nothing that others hold. It is
            called in a forked process, before the device enrols and in each turn; a turn in which
            it fails, or takes longer than the task lets it, sends zeros.
        records: inputs and labels in place of ``update``: the task's own model computes.
        state: file of its memory; by default in ``$XDG_STATE_HOME/turnout``.
        ca: certificates (PEM) to trust.
        cover: send as much in every step as in its own.
        allow_http: take ``http://`` to another machine, where whoever listens reads updates.

    Raises:
        ParameterError: a token that is none; neither or both of ``update`` and ``records``.
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

        if (update is None) is (records is None):
            raise ParameterError("update", update, "a function, or records in its place")
        self._invitation = Invitation.decoded(token)
        self._url, self._cover, self._allow_http = url, cover, allow_http
        self._state = Path(state) if state else default_place(self._invitation)
        self._ca = None if ca is None else Path(ca)
        self._trainer_of = self._bounded(update) if update else self._on(records)

    def run(self) -> Counter[str]:
        """Take part until there is nothing left to do; how many turns ended in which way.

        After a crash, run it again with the same state file.

        Raises:
            RemoteProtocolError: the coordinator broke the protocol, or gave no answer for long.
            StorageError: its state cannot be stored, is damaged, or is in use.
            ParameterError: an update that fails or is not d numbers when it is tried out, or
                records that do not fit the task.
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
        """The task's own model on these records."""
        from turnout.service.device.trainer import checked_records, trainer_on

        assert records is not None
        return trainer_on(checked_records(*records), self._invitation.client)

    @staticmethod
    def _bounded(update: Update) -> TrainerOf:
        """The user's function, clipped to a charter's norm."""
        return lambda charter: _Bounded(update, charter)


def within_promise(trainer_of: TrainerOf) -> TrainerOf:
    """The same trainers, of no task of local trust whose ε is more than its charter says.

    Nobody is trusted then, with the price neither: the device works it out by the verifier's own
    analysis, before it says anything.
    """

    def build(charter: Charter) -> UpdateFunction:
        if charter.randomized:
            require_price(charter)
        return trainer_of(charter)

    return build


def require_price(charter: Charter) -> None:
    """Nothing where ε of all messages of a charter is what it allows.

    Raises:
        RemoteProtocolError: it is more, surely: a sound price is above what the charter says.
        UnsupportedError: no independent analysis is written for this scheme.
        NumericalError: nothing can be certified.
    """
    from turnout.verification.cost import least_bound

    epsilon = least_bound(charter.scheme, charter.steps, charter.delta)
    if not epsilon <= charter.spent(charter.steps):
        raise RemoteProtocolError(
            f"the charter charges epsilon = {charter.charged[-1]:.6g}, but its messages are worth "
            f"{epsilon:.6g} at delta = {charter.delta:g} ({charter.scheme.relation.value}, "
            f"{charter.scheme.unit.value}, {charter.scheme.trust.value})"
        )


class _Bounded:
    """A user's update function within the charter's bound."""

    def __init__(self, update: Update, charter: Charter) -> None:
        self._update, self._charter = update, charter

    def update(self, parameters: NDArray[np.float32], client: int) -> NDArray[np.floating]:
        """The update as it may be encoded, shape ``(d,)``."""
        from turnout.service.graphs.updates import bounded

        return bounded(self._update(parameters.copy(), client), self._charter)
