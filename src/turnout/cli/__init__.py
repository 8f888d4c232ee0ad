"""Command line: each command parses options, calls `turnout.api` and prints the answer.

`COMMANDS` lists the commands by the module that defines them, and `GROUPS` by topic.
`turnout.cli.main` imports a command when it is called, and maps errors to exit codes. No command
computes anything itself.
"""

COMMANDS = {
    "accounting": {
        "account": "Bounds on ε of a scheme, and their meaning (--explain).",
        "budget": "ε of several windows together, and the rest of a privacy budget.",
        "calibrate": "Least noise, or value of another parameter, for a target ε.",
        "compare": "ε of a scheme compared with other schemes and published bounds.",
    },
    "completion": {
        "completion": "Script that completes commands, options and values in a shell.",
    },
    "estimate": {
        "estimate": "Private estimates of frequencies, means and frequent values.",
    },
    "ledger": {
        "ledger": "Export and verification of a coordinator's releases and their ε.",
        "witness": "Service that detects a coordinator with an old copy of its ledger.",
    },
    "new": {
        "new": "New folder with a commented plan, data, a model and a test.",
    },
    "plugins": {
        "plugins": "Participations, randomizers and algorithms of installed packages.",
    },
    "refine": {
        "refine": "One release for several analysts with different ε.",
    },
    "service": {
        "enrol": "Invitations for devices.",
        "fleet": "Many simulated devices, to test a coordinator under load.",
        "join": "One device that participates in a coordinator's task.",
        "serve": "Coordinator that serves a task to devices.",
    },
    "training": {
        "audit": "Lower bound on a plan's ε, measured by attacks.",
        "bandit": "Simulation of private linear bandits, with regret and ε.",
        "predict": "Classes and scores that a trained model predicts.",
        "train": "Training of a model at a calibrated ε (--example digits).",
        "tune": "Search for the best settings of a plan, at a known ε.",
    },
}
"""Purpose of each command, by the module of `turnout.cli` that defines it and by its name."""

GROUPS = {
    "Privacy": ("account", "calibrate", "compare", "budget", "audit"),
    "Learning": ("new", "train", "tune", "predict", "bandit"),
    "Surveys": ("estimate", "refine"),
    "Devices": ("enrol", "serve", "join", "fleet", "witness", "ledger"),
    "This program": ("plugins", "completion"),
}
"""Headings of the commands in the help of ``turnout``, with the names below each."""

PURPOSES = {name: purpose for group in COMMANDS.values() for name, purpose in group.items()}
"""Purpose of each command, by its name."""
