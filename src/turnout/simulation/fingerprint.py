"""The run that a checkpoint belongs to: settings by their digest, data by a digest under a key."""

from __future__ import annotations

import hmac
import os
from dataclasses import dataclass, field

from turnout.core.errors import StorageError
from turnout.core.identity import Identity

KEY_BYTES = 32


@dataclass(frozen=True, slots=True, eq=False)
class RunIdentity:
    """A run's settings and data, as a checkpoint keeps them.

    Attributes:
        fingerprint: digest of the settings, 32 hexadecimal digits; may be shown.
        data_key: 32 random bytes, drawn anew for each run by the operating system.
        data_digest: digest of all data under that key, 32 bytes. Key and digest together let
            their holder test guesses of the data, so both are in the checkpoint and nowhere else.
    """

    fingerprint: str
    data_key: bytes = field(repr=False)
    data_digest: bytes = field(repr=False)

    @classmethod
    def new(cls, identity: Identity) -> RunIdentity:
        """The identity of a run that begins."""
        key = os.urandom(KEY_BYTES)
        return cls(identity.public_digest(), key, identity.keyed_digest(key))

    def require(self, identity: Identity) -> None:
        """Go on only if settings and data are those of this run.

        Raises:
            StorageError: they are not.
        """
        here = identity.public_digest()
        if self.fingerprint != here:
            raise StorageError(
                f"the checkpoint is of run {self.fingerprint}, which differs from this one, "
                f"{here}, in its scheme, settings, seed or what a client computes"
            )
        if not hmac.compare_digest(self.data_digest, identity.keyed_digest(self.data_key)):
            raise StorageError(
                "the checkpoint is of a run on other data, which differs from this one in its "
                "examples, their order, who holds them, the test set or who is available when"
            )
