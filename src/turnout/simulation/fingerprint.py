"""Which run a checkpoint belongs to."""

from __future__ import annotations

import hashlib
from dataclasses import fields

import numpy as np

from turnout.spec import Scheme


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
    for field in fields(scheme.participation):
        value = getattr(scheme.participation, field.name)
        if isinstance(value, np.ndarray):  # of which a repr says next to nothing
            digest.update(repr(value.shape).encode())
            digest.update(value.tobytes())
    return digest.hexdigest()
