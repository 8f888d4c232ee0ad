"""Command line: each command parses options, calls `turnout.api` and prints the answer.

`COMMANDS` lists the commands; ``main`` imports a command when it is called, and maps errors to exit
codes. No command computes anything itself.
"""

COMMANDS = {
    "accounting": {
        "account": "What ε a scheme has, and what it means (--explain).",
        "budget": "What several phases cost together, and what is left.",
        "calibrate": "The noise, or another parameter, that a target ε needs.",
        "compare": "ε of a scheme beside other schemes and published bounds.",
    },
    "estimate": {
        "estimate": "Private frequencies, means and most frequent values.",
    },
    "refine": {
        "refine": "One release for analysts of several privacy levels.",
    },
    "service": {
        "enrol": "Invitations for devices.",
        "fleet": "Many simulated devices, for a load test.",
        "join": "One device that takes part in a coordinator's task.",
        "ledger": "What a coordinator released and spent: export, verify.",
        "serve": "The coordinator of real devices.",
        "witness": "A check that no coordinator's ledger was set back.",
    },
    "training": {
        "audit": "A plan's ε by experiment, beside the proved one.",
        "bandit": "Private linear bandits: regret, and ε of one reward.",
        "predict": "Classes and scores from a trained model.",
        "train": "A model trained with a calibrated ε (--example digits).",
        "tune": "Settings of a plan, searched on held-out clients at a known ε.",
    },
}
"""Commands and their purposes, by the module that holds their functions."""

PURPOSES = {name: purpose for group in COMMANDS.values() for name, purpose in group.items()}
"""Purposes of all commands, by name."""
