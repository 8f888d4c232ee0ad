"""Audits: lower bounds on ε by playing the distinguishing game against what really runs.

``releases`` plays whole runs of a scheme with and without one client, ``canaries`` one training
run with many, ``outputs`` and ``rewards`` what randomizers, estimators and bandits give away.
``playing`` makes an audit of a game: it chooses events on some trials and counts them on the
others, by ``confidence``. `turnout.testing.faults` has mistakes that an audit must find.
"""

from turnout.auditing.canaries import OneRun, play_one_run
from turnout.auditing.confidence import Counted, Event, epsilon_by_counts, gaussian_mu_by_counts
from turnout.auditing.one_run import Guessed, epsilon_by_guesses, gaussian_mu_by_guesses
from turnout.auditing.outputs import OutputGame, messages_of, released_by
from turnout.auditing.playing import Game, play
from turnout.auditing.releases import ReleaseGame
from turnout.auditing.results import Findings, FoundAt, Rates, Statement
from turnout.auditing.rewards import RewardGame

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
    "Statement",
    "epsilon_by_counts",
    "epsilon_by_guesses",
    "gaussian_mu_by_counts",
    "gaussian_mu_by_guesses",
    "messages_of",
    "play",
    "play_one_run",
    "released_by",
]
