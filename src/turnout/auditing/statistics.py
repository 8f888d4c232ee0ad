"""Statistics of a run: what tells the worlds of a game apart, the likelihood ratio first."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from turnout.auditing.confidence import LIKELIHOOD_RATIO
from turnout.auditing.scores import LOG_RATIOS, exponents
from turnout.schemes import GaussianNoise, Scheme
from turnout.schemes.normal_form import Draw, Kept, OneOf, normal_form

FloatArray = NDArray[np.float64]


class Statistics:
    """Sums over the blocks of a group of runs, each of shape (trials,).

    Args:
        scheme: its noise, law and relation.
        trials: runs of the group.
    """

    def __init__(self, scheme: Scheme, trials: int) -> None:
        assert isinstance(scheme.randomizer, GaussianNoise)
        self._noise_multiplier = scheme.randomizer.noise_multiplier
        self._relation = scheme.relation
        self._ratio = np.zeros(trials)
        self._sum = np.zeros(trials)
        self._skipped = np.zeros(trials)
        self._largest = np.full(trials, -np.inf)
        form = normal_form(scheme.participation)
        draw, many = form.spans[0].draw, form.blocks > 1 and len(form.spans) == 1
        self._repeated = Kept(draw, form.blocks) if many and isinstance(draw, OneOf) else None
        self._slots: dict[float, FloatArray] = {}

    def add(self, draw: Draw, seen: FloatArray) -> None:
        """One more block.

        Args:
            draw: the canary's.
            seen: the steps that can hold it, in units of C, NaN where one is skipped, shape
                (steps, trials).
        """
        if not len(seen):
            return
        skipped = np.isnan(seen)
        if skipped.any():
            self._skipped += skipped.sum(axis=0)
            seen = np.where(skipped, 0.0, seen)
        for sign, a in exponents(self._relation, seen, self._noise_multiplier):
            a[skipped] = 0.0
            self._ratio += sign * LOG_RATIOS[draw](draw, a)
            if self._repeated is not None:
                self._slots[sign] = self._slots.get(sign, 0.0) + a
        self._sum += seen.sum(axis=0)
        np.maximum(self._largest, seen.max(axis=0), out=self._largest)

    def by_name(self) -> dict[str, FloatArray]:
        """All statistics by name."""
        found = {
            LIKELIHOOD_RATIO: self._ratio,
            "sum": self._sum,
            "largest release": self._largest,
            "skipped steps": self._skipped,
        }
        if self._repeated is not None:
            slot = self._repeated.slot
            found["ratio of a kept slot"] = np.asarray(
                sum(sign * LOG_RATIOS[slot](slot, a) for sign, a in self._slots.items())
            )
        return found
