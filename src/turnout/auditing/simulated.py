"""The distinguishing game on `turnout.simulation.Simulation` itself, as training runs it.

A trial is a canary: a client of the simulation with a coordinate of its own. Draws are independent
over clients and noise over coordinates, so one simulation serves many trials, through its engine,
its coordinator, its sampler and its noise.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from turnout.auditing.canaries import require_independent, simulated
from turnout.auditing.confidence import merged
from turnout.auditing.releases import drawn_blocks
from turnout.auditing.statistics import Statistics
from turnout.randomness import SimulationStreams
from turnout.schemes import Scheme

FloatArray = NDArray[np.float64]

_SIMULATED_CELLS, _SIMULATED_FEWEST, _SIMULATED_MOST = 2**22, 2**10, 2**16
"""Releases that are held at once, and trials of a simulation."""
_SEEDS = 2**31


@dataclass(frozen=True, eq=False)
class SimulationGame:
    """Runs of a scheme with canaries and without them.

    Attributes:
        scheme: aggregated releases, draws that are the same for all clients and independent.
        clip_norm: C.
        expected_check_ins: the public divisor; by default the law's mean of all canaries.

    Raises:
        UnsupportedError: another scheme.
    """

    scheme: Scheme
    clip_norm: float = 1.0
    expected_check_ins: float | None = None

    def __post_init__(self) -> None:
        require_independent(self.scheme)

    def scores(
        self, world: int, trials: int, streams: SimulationStreams, *name: str | int
    ) -> dict[str, FloatArray]:
        """Statistics of so many canaries, each of shape (trials,), by name."""
        group = int(
            np.clip(
                _SIMULATED_CELLS // self.scheme.participation.steps,
                _SIMULATED_FEWEST,
                _SIMULATED_MOST,
            )
        )
        starts = range(0, trials, group)
        seeds = streams.generator("audit", "simulations", *name, world).integers(
            _SEEDS, size=len(starts)
        )
        return merged(
            self._group(world, min(group, trials - start), int(seed))
            for start, seed in zip(starts, seeds, strict=True)
        )

    def _group(self, world: int, trials: int, seed: int) -> dict[str, FloatArray]:
        inside = np.full(trials, world == 0)
        seen, _ = simulated(self.scheme, inside, self.clip_norm, self.expected_check_ins, seed)
        statistics = Statistics(self.scheme, trials)
        for draw, block, _ in drawn_blocks(self.scheme):
            statistics.add(draw, seen[block.first_step : block.first_step + block.steps])
        return statistics.by_name()
