"""Audits: statistical lower bounds on ε from a distinguishing game that is played on running code.

``releases`` plays the game on whole runs of a scheme with and without one client, either with the
sampler and the mechanism only or with the simulation. ``canaries`` plays it on one training run
with many canaries, and ``outputs`` on randomizers, estimators and bandits. ``playing`` computes an
audit from a game: it chooses events on some trials and counts them on the others. ``confidence``
computes bounds from the counts. `turnout.testing.faults` has faults that an audit must detect.
"""

from turnout.auditing.canaries import (
    Guessed,
    OneRun,
    epsilon_by_guesses,
    gaussian_mu_by_guesses,
    play_one_run,
)
from turnout.auditing.confidence import (
    Counted,
    Event,
    Findings,
    FoundAt,
    Rates,
    Statement,
    epsilon_by_counts,
    gaussian_mu_by_counts,
)
from turnout.auditing.outputs import OutputGame, RewardGame, messages_of, projection_of, released_by
from turnout.auditing.playing import Game, play
from turnout.auditing.releases import ReleaseGame, SimulationGame

__all__ = [
    "Counted",
    "Event",
    "Findings",
    "FoundAt",
    "Game",
    "Guessed",
    "OneRun",
    "OutputGame",
    "Rates",
    "ReleaseGame",
    "RewardGame",
    "SimulationGame",
    "Statement",
    "epsilon_by_counts",
    "epsilon_by_guesses",
    "gaussian_mu_by_counts",
    "gaussian_mu_by_guesses",
    "messages_of",
    "play",
    "play_one_run",
    "projection_of",
    "released_by",
]
