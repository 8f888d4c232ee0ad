# ruff: noqa: E501
"""Commands to compare, and the files that they read."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

DATA = "TURNOUT_DATA"
"""Environment variable for the data folder; without it nothing is trained on MNIST."""

_CHECK_IN = "--scheme check-in --window 100 --noise-multiplier 1 --delta 1e-6"
_SHUFFLE = "--scheme shuffle --clients 1e4 --delta 1e-6"
_AT = "--delta 1e-6 --relation add-remove --json"
_REPLACED = "--delta 1e-6 --relation replace-one --json"

ACCOUNT = f"""
{_CHECK_IN} --relation add-remove --explain --json
{_CHECK_IN} --relation add-remove --explain
{_CHECK_IN} --relation add-remove --explain --prior 0.1 --json
{_CHECK_IN} --relation zero-out --json
{_CHECK_IN} --relation replace-one --json
{_CHECK_IN} --windows 10 --probability 0.5 --relation add-remove --json
{_CHECK_IN} --relation add-remove --release one-client --json
{_CHECK_IN} --relation zero-out --release one-client --json
{_CHECK_IN} --relation replace-one --release one-client --json
{_CHECK_IN} --relation zero-out --release averaged --json
{_CHECK_IN} --relation replace-one --release averaged --clients 1000 --json
{_CHECK_IN} --relation add-remove --tolerance 1e-5 --json
--scheme none --steps 3 --noise-multiplier 4 {_AT}
--scheme none --steps 3 --randomizer laplace --scale 2 {_REPLACED}
--scheme poisson --rate 0.01 --steps 500 --noise-multiplier 1 --explain {_AT}
--scheme poisson --rate 0.01 --steps 50 --randomizer pure --epsilon0 1 {_REPLACED}
--scheme sliding --window 50 --noise-multiplier 0.8 {_AT}
--scheme k-subset --window 16 --picks 3 --noise-multiplier 1 {_AT}
--scheme k-subset --window 16 --picks 2 --windows 3 --noise-multiplier 1.5 {_REPLACED}
--scheme fixed-assignment --window 20 --epochs 4 --noise-multiplier 2 {_AT}
--scheme check-in --window 50 --randomizer laplace --scale 1 {_AT}
--scheme check-in --window 50 --randomizer pure --epsilon0 1 {_REPLACED}
--scheme check-in --window 50 --randomizer approximate --epsilon0 1 --delta0 1e-8 {_AT}
--scheme check-in --window 50 --randomizer discrete-gaussian --standard-deviation 4 --sensitivity 3 {_AT}
--scheme check-in --window 50 --randomizer rounded-gaussian --standard-deviation 4 --sensitivity 3 {_REPLACED}
--scheme check-in --window 50 --randomizer table --pair-file pair.csv {_AT}
{_SHUFFLE} --epsilon0 1 --json
{_SHUFFLE} --epsilon0 1 --explain --json
{_SHUFFLE} --epsilon0 1 --rounds 20 --json
{_SHUFFLE} --randomizer kary-response --epsilon0 1 --order known --json
{_SHUFFLE} --epsilon0 1 --delta0 1e-9 --json
{_SHUFFLE} --randomizer fixed|non-adaptive --epsilon0 2 --json
{_SHUFFLE} --randomizer kary-response --categories 5 --epsilon0 2 --json
{_SHUFFLE} --randomizer hadamard-response --epsilon0 2 --json
{_SHUFFLE} --randomizer bit-response|sampled-bit-response --epsilon0 2 --json
{_SHUFFLE} --noise-multiplier 2 --json
{_SHUFFLE} --noise-multiplier 2
--scheme subsampled-shuffle --sampled 1e3 --clients 1e4 --randomizer kary-response --epsilon0 1 --delta 1e-6 --json
--scheme subsampled-shuffle --sampled 1e3 --clients 1e4 --epsilon0 1 --rounds 5 --delta 1e-6 --json
--scheme self-sampled-shuffle|self-sampling-shuffle --rate 0.05 --clients 1e4 --randomizer fixed|non-adaptive --epsilon0 1 --delta 1e-6 --json
"""

CALIBRATE = f"""
--scheme check-in --window 1000 --epsilon 1 {_AT}
--scheme check-in --window 1000 --epsilon 1 --delta 1e-6 --relation add-remove
--scheme check-in --window 100 --epsilon 1 {_REPLACED}
--solve-for window --scheme check-in --noise-multiplier 1 --epsilon 0.5 {_AT}
--solve-for windows --scheme check-in --window 100 --noise-multiplier 1 --epsilon 3 {_AT}
--solve-for delta --scheme check-in --window 100 --noise-multiplier 1 --epsilon 1 --relation add-remove --json
--solve-for rate --scheme poisson --steps 100 --noise-multiplier 1 --epsilon 1 {_AT}
--solve-for picks --scheme k-subset --window 16 --noise-multiplier 2 --epsilon 2 {_AT}
--randomizer discrete-gaussian --sensitivity 2 --scheme check-in --window 50 --epsilon 1 {_AT}
--scheme shuffle --clients 1e5 --rounds 10 --epsilon 1 --delta 1e-6 --json
--solve-for clients --scheme shuffle --epsilon0 2 --epsilon 0.1 --delta 1e-6 --json
--solve-for delta --scheme shuffle --clients 1e4 --epsilon0 2 --epsilon 0.2 --json
"""

COMPARE = f"""
--against noise-multiplier --from 0.5 --to 4 --points 3 --window 200 --clients 1e4 {_AT}
--against window --from 10 --to 1000 --points 3 --noise-multiplier 1 {_REPLACED}
--against windows --from 1 --to 20 --points 3 --noise-multiplier 1 --window 100 --delta 1e-6 --relation add-remove
--scheme shuffle --epsilon0 1 --clients 1e4 --delta 1e-6 --json
--scheme shuffle --epsilon0 1 --clients 1e4 --delta 1e-6
--scheme shuffle --against rounds --from 1 --to 100 --points 3 --epsilon0 1 --clients 1e4 --delta 1e-6 --json
--scheme shuffle --against epsilon0 --from 0.5 --to 2 --points 2 --sampled 1e3 --clients 1e4 --delta 1e-6 --json
"""

_ITEMS = "frequencies items.npy --size 12 --epsilon 1"
_EACH = "--scheme none --noise-multiplier 8"
_L2 = "mean vectors.npy --norm l2 --radius 1"

ESTIMATE = f"""
{_ITEMS} --model local --json
{_ITEMS} --model local --mechanism rappor
{_ITEMS} --model local --mechanism k-ary --post-processing empirical-bayes --json
{_ITEMS} --model local --mechanism oue --json
{_ITEMS} --model local --mechanism subset --json
{_ITEMS} --model local --mechanism local-hashing --json
{_ITEMS} --model local --mechanism one-bit-hadamard --json
{_ITEMS} --model shuffled --delta 1e-6 --json
{_ITEMS} --model shuffled --mechanism hadamard --delta 1e-6 --json
{_ITEMS} --model central --relation add-remove --json
{_ITEMS} --model central --delta 1e-6 --relation replace-one --json
{_ITEMS} --model central --mechanism laplace --relation replace-one --confidence 0.9
{_L2} --epsilon 4 --model local --json
{_L2} --epsilon 1 --model local --bits 1 --json
{_L2} --epsilon 1 --model shuffled --delta 1e-6 --json
{_L2} --epsilon 1 --delta 1e-6 --model central --relation replace-one --json
mean vectors.npy --norm linf --radius 1 --epsilon 1 --model local --json
mean vectors.npy --norm linf --radius 1 --epsilon 1 --model shuffled --delta 1e-6 --mechanism several-messages --json
mean vectors.npy --norm l1 --radius 1 --epsilon 1 --model central --relation add-remove
"""

REFINE = """
encode items.npy --size 12 --epsilon 0.5 1 4 --out release
decode release/public --json
decode release/public --key release/key-4 --json
encode items.npy --size 12 --mechanism k-ary --epsilon 1 inf --out exact
decode exact/public --key exact/key-inf --values values.npy
limited items.npy --size 12 --epsilon 1 --randomness 0.5 --json
limited items.npy --size 12 --epsilon 1 --randomness 0.5 --top 3
"""

BUDGET = f"""
open spent.json --decided releases --epsilon 4 --delta 1e-6 --relation add-remove {_EACH}
charge spent.json {_EACH} --times 3 --label exploring
charge spent.json --scheme none --noise-multiplier 4 --label final
show spent.json --json
left {_EACH} --steps 10 --epsilon 1.5 --delta 1e-6 --relation add-remove --done 5
"""

BANDIT = """
central.toml --out bandit-central
shuffled.toml --out bandit-shuffled
local.toml --out bandit-local
contexts.toml --out bandit-contexts
"""

TUNE = """
tune-private.toml --out tune-private --json
tune-public.toml --out tune-public --json
"""

AUDIT = """
calibrated.toml --trials 2000 --json
calibrated.toml --trials 2000 --deployed --json
calibrated.toml --one-run --canaries 500 --confidence 0.9 --json
one-client.toml --trials 2000 --out audit-one-client
"""

_PLAN = """
[data]
name = "{data}"
clients = {clients}
[model]
name = "{model}"
features = "{features}"
[client]
steps = {client_steps}
learning_rate = 0.5
[participation]
{law}
[privacy]
relation = "{relation}"
{noise}
delta = 1e-4
clip_norm = 0.5
[protocol]
{protocol}
[optimizer]
learning_rate = 0.5
{optimizer}
[run]
seed = {seed}
evaluate_every = 4
checkpoint_every = 3
"""
_WINDOWS = 'law = "check-in"\nwindow = 5\nwindows = 2'
_TRACE = 'law = "availability"\ntrace = "trace.csv"\nwindow = 6\nsteps_per_day = 12'

PLANS = {
    "calibrated": {"noise": "epsilon = 3.0"},
    "momentum": {"optimizer": "momentum = 0.9\nweight_decay = 1e-3"},
    "nesterov": {"optimizer": 'name = "nesterov"\nmomentum = 0.5\nschedule = "linear"'},
    "adam": {"optimizer": 'name = "adam"\nschedule = "cosine"\nwarmup_steps = 2'},
    "ema": {"optimizer": 'averaging = "ema"\nschedule = "inverse-sqrt"'},
    "tail": {"optimizer": 'averaging = "tail"', "seed": "7"},
    "one-client": {"protocol": 'release = "one-client"', "optimizer": 'averaging = "ema"'},
    "minibatch": {"protocol": 'release = "one-client"\nminibatch = 3', "relation": "zero-out"},
    "averaged": {"protocol": 'release = "averaged"', "relation": "replace-one"},
    "divisor": {"protocol": "expected_check_ins = 40.0"},
    "local-steps": {"client_steps": "3"},
    "network": {
        "data": "mnist",
        "clients": "3000",
        "model": "tanh-cnn-13k",
        "features": "pixels",
        "law": 'law = "poisson"\nrate = 0.005\nsteps = 3',
    },
    "poisson": {"law": 'law = "poisson"\nrate = 0.05\nsteps = 8'},
    "sliding": {"law": 'law = "sliding"\nwindow = 5', "relation": "zero-out"},
    "k-subset": {"law": 'law = "k-subset"\nwindow = 6\npicks = 2\nwindows = 2'},
    "fixed-assignment": {"law": 'law = "fixed-assignment"\nwindow = 4\nepochs = 3'},
    "fixed-size": {"law": 'law = "fixed-size"\nsize = 20\nsteps = 6', "relation": "replace-one"},
    "trace": {"law": _TRACE},
}
"""Differences of each plan from the first plan."""

TUNED = {
    "tune-private": """
[tune]
candidates = 3
held_out = 0.2
[tune.ranges]
optimizer.learning_rate = { low = 0.1, high = 1.0, log = true }
""",
    "tune-public": """
[tune]
candidates = 2
data = { name = "digits" }
[tune.ranges]
privacy.clip_norm = [0.25, 0.5]
""",
}
"""Tables [tune] that are appended to the first plan."""

_BANDIT = """
[environment]
horizon = 3000
actions = 5
dimension = 2
[privacy]
trust = "{trust}"
epsilon = 1.0
{delta}
[policy]
name = "{policy}"
[run]
seeds = 2
"""

BANDITS = {
    "central": ("central", "", "elimination"),
    "shuffled": ("shuffled", "delta = 1e-6", "thompson"),
    "local": ("local", "", "elimination"),
    "contexts": ("central", "delta = 1e-6", "private-linucb"),
}
"""Trust, δ and policy of each bandit plan."""

_USUAL = {
    "data": "digits",
    "clients": "300",
    "features": "standardized",
    "model": "logistic",
    "client_steps": "1",
    "law": _WINDOWS,
    "relation": "add-remove",
    "noise": "noise_multiplier = 1.5",
    "protocol": "",
    "optimizer": "",
    "seed": "1",
}


def commands() -> list[str]:
    """All commands; ``a|b`` is a word that the earlier version spells a, and this version a or b."""
    groups = {
        "account": ACCOUNT,
        "calibrate": CALIBRATE,
        "compare": COMPARE,
        "estimate": ESTIMATE,
        "refine": REFINE,
        "budget": BUDGET,
        "bandit": BANDIT,
        "tune": TUNE,
        "audit": AUDIT,
    }
    asked = [f"{verb} {line}" for verb, text in groups.items() for line in text.strip().split("\n")]
    plans = [name for name, other in PLANS.items() if "data" not in other or DATA in os.environ]
    return asked + [f"train {name}.toml --out run-{name}" for name in plans]


def write_inputs(folder: Path) -> None:
    """Write the files that the commands read."""
    for name, other in PLANS.items():
        (folder / f"{name}.toml").write_text(_PLAN.format(**(_USUAL | other)))
    for name, table in TUNED.items():
        (folder / f"{name}.toml").write_text(_PLAN.format(**_USUAL | PLANS["calibrated"]) + table)
    for name, (trust, delta, policy) in BANDITS.items():
        text = _BANDIT.format(trust=trust, delta=delta, policy=policy)
        (folder / f"{name}.toml").write_text(text)
    (folder / "pair.csv").write_text("present,absent\n0.5,0.2\n0.3,0.3\n0.2,0.5\n")
    generator = np.random.default_rng(7)
    np.save(folder / "items.npy", generator.integers(0, 12, 4000))
    np.save(folder / "vectors.npy", generator.normal(size=(2000, 6)) / 4)
    starts = generator.integers(0, 8, (300, 2)) + np.array([0, 12])
    rows = [f"{device},{start},{start + 4},1" for device in range(300) for start in starts[device]]
    (folder / "trace.csv").write_text("\n".join(["device,slot_start,slot_end,available", *rows]))
