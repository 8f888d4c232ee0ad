"""Which run a checkpoint belongs to."""

from __future__ import annotations

import hashlib

from turnout.spec import AvailabilityCheckIn, Scheme


def fingerprint(scheme: Scheme, **settings: object) -> str:
    """A name for a run: equal for equal schemes and settings, different otherwise.

    Args:
        scheme: the run's spec, availability trace included.
        settings: whatever else decides the outcome; each needs a repr that says all of it.

    Returns:
        32 hexadecimal digits.
    """
    digest = hashlib.blake2b(digest_size=16)
    digest.update(repr((scheme, sorted(settings.items()))).encode())
    if isinstance(scheme.participation, AvailabilityCheckIn):
        digest.update(repr(scheme.participation.available.shape).encode())
        digest.update(scheme.participation.available.tobytes())
    return digest.hexdigest()
