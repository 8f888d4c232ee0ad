"""Command lines of the documentation and the help, as Python calls with equal results."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import turnout as tn
from turnout.api.price import Result
from turnout.cli.main import turnout
from turnout.schemes import Randomizer

ROOT = Path(__file__).parents[2]
ADD, D6 = "add-remove", 1e-6
GAUSS, PURE = tn.GaussianNoise(1.0), tn.PureRandomizer(1.0)


def central(law, randomizer: Randomizer = GAUSS, relation=ADD, **rest) -> tn.Scheme:
    return tn.Scheme(randomizer, law, relation=relation, **rest)


def priced(scheme: tn.Scheme, delta: float = D6, **rest) -> Callable[[], Result]:
    return lambda: tn.price(scheme, delta=delta, **rest)


def solved(scheme, epsilon: float, **rest) -> Callable[[], Result]:
    given = {"delta": D6, **rest} if rest.get("solve_for") != "delta" else rest
    return lambda: tn.calibrate(scheme, epsilon=epsilon, **given)


CHECK_IN = "--scheme check-in --window"
PROMISE = f"--delta 1e-6 --relation {ADD}"
TEN = tn.CheckIn(window=1000, windows=10)
EXPLAINED = central(tn.CheckIn(window=100, windows=10))
RUN = {"records": 60_000, "batch_size": 256, "epochs": 60, "noise_multiplier": 1.1, "delta": 1e-5}
RUN_FLAGS = " ".join(f"--{name.replace('_', '-')} {value:g}" for name, value in RUN.items())
TARGET = {"records": 60_000, "batch_size": 256, "epochs": 60, "epsilon": 3.0, "delta": 1e-5}
TARGET_FLAGS = " ".join(f"--{name.replace('_', '-')} {value:g}" for name, value in TARGET.items())
QUESTIONS: dict[str, Callable[[], Result]] = {
    f"account {RUN_FLAGS} --relation zero-out": (
        lambda: tn.compare_samplers(**RUN, relation="zero-out")
    ),
    f"account {RUN_FLAGS}": lambda: tn.compare_samplers(**RUN),
    f"calibrate {TARGET_FLAGS} --relation zero-out": (
        lambda: tn.compare_samplers(**TARGET, relation="zero-out")
    ),
    f"calibrate {TARGET_FLAGS}": lambda: tn.compare_samplers(**TARGET),
    f"account {CHECK_IN} 1000 --noise-multiplier 1.0 {PROMISE}": priced(central(tn.CheckIn(1000))),
    f"account --randomizer pure --epsilon0 1 {CHECK_IN} 1000 {PROMISE}": priced(
        central(tn.CheckIn(1000), PURE)
    ),
    f"account {CHECK_IN} 100 --windows 10 --noise-multiplier 1 {PROMISE} --explain --prior 0.1": (
        lambda: tn.explain(EXPLAINED, delta=D6, prior=0.1)
    ),
    "account --scheme shuffle --epsilon0 1 --clients 100000 --delta 1e-6": priced(
        tn.shuffled(PURE, clients=100_000)
    ),
    "account --scheme subsampled-shuffle --epsilon0 1.5 --clients 60000 --sampled 10000 "
    "--rounds 1200 --delta 1e-5": priced(
        tn.shuffled(tn.PureRandomizer(1.5), clients=60_000, sampled=10_000, rounds=1200), 1e-5
    ),
    "account --scheme subsampled-shuffle --sampled 1e4 --clients 1e6 --randomizer kary-response "
    "--epsilon0 1 --delta 1e-6": priced(
        tn.shuffled(tn.KaryResponse(1.0), clients=10**6, sampled=10**4)
    ),
    "account --scheme self-sampling-shuffle --rate 0.5 --clients 1000 --randomizer non-adaptive "
    "--epsilon0 0.5 --delta 1e-5": priced(
        tn.shuffled(tn.NonAdaptiveRandomizer(0.5), clients=1000, rate=0.5), 1e-5
    ),
    "account --scheme shuffle --epsilon0 1 --delta0 1e-9 --clients 1000 --delta 1e-6": priced(
        tn.shuffled(tn.ApproximateRandomizer(1.0, 1e-9), clients=1000)
    ),
    "account --scheme shuffle --randomizer sampled-bit-response --epsilon0 2 --clients 1000 "
    "--rounds 3 --delta 1e-6": priced(
        tn.shuffled(tn.SampledBitResponse(2.0), clients=1000, rounds=3)
    ),
    f"account --scheme none --steps 3 --noise-multiplier 2 {PROMISE}": priced(
        central(tn.EveryStep(3), tn.GaussianNoise(2.0))
    ),
    f"account --scheme poisson --rate 0.01 --steps 50 --noise-multiplier 1 {PROMISE}": priced(
        central(tn.PoissonSampling(0.01, 50))
    ),
    f"account --scheme sliding --window 60 --noise-multiplier 1 {PROMISE}": priced(
        central(tn.SlidingWindow(window=60, slots=119))
    ),
    f"account --scheme k-subset --window 40 --picks 2 --noise-multiplier 2 {PROMISE}": priced(
        central(tn.KSubset(window=40, picks=2), tn.GaussianNoise(2.0))
    ),
    f"account --scheme fixed-assignment --window 50 --epochs 4 --noise-multiplier 4 {PROMISE}": (
        priced(central(tn.FixedAssignment(50, 4), tn.GaussianNoise(4.0)))
    ),
    f"account {CHECK_IN} 50 --probability 0.5 --randomizer laplace --scale 2 {PROMISE}": priced(
        central(tn.CheckIn(50, probability=0.5), tn.LaplaceNoise(2.0))
    ),
    f"account {CHECK_IN} 20 --randomizer discrete-gaussian --standard-deviation 4 --sensitivity 2 "
    f"{PROMISE} --tolerance 0.01": priced(
        central(tn.CheckIn(20), tn.DiscreteGaussianNoise(4.0, 2)), tolerance=0.01
    ),
    f"account {CHECK_IN} 20 --noise-multiplier 2 --release one-client {PROMISE}": priced(
        central(tn.CheckIn(20), tn.GaussianNoise(2.0), release="one-client")
    ),
    f"account {CHECK_IN} 20 --epsilon0 0.5 --randomizer pure --release averaged --clients 500 "
    "--delta 1e-6 --relation zero-out": priced(
        central(
            tn.CheckIn(20), tn.PureRandomizer(0.5), "zero-out", release="averaged", population=500
        )
    ),
    "account --scheme none --noise-multiplier 2 --delta 1e-6 --relation replace-one": priced(
        central(tn.EveryStep(1), tn.GaussianNoise(2.0), "replace-one")
    ),
    "calibrate --scheme shuffle --clients 100000 --rounds 1000 --epsilon 1 --delta 1e-6 "
    "--solve-for epsilon0": solved(tn.shuffled(PURE, 100_000, rounds=1000), 1),
    "calibrate --scheme shuffle --clients 100000 --rounds 100 --epsilon 1 --delta 1e-6": solved(
        tn.shuffled(PURE, 100_000, rounds=100), 1
    ),
    f"calibrate {CHECK_IN} 1000 --windows 10 --epsilon 1 {PROMISE}": solved(TEN, 1, relation=ADD),
    f"calibrate --solve-for windows {CHECK_IN} 1000 --noise-multiplier 1 --epsilon 1 {PROMISE}": (
        solved(central(tn.CheckIn(1000)), 1, solve_for="windows")
    ),
    f"calibrate --solve-for window {CHECK_IN[:-9]} --noise-multiplier 1 --epsilon 1 {PROMISE}": (
        solved(central(tn.CheckIn(7)), 1, solve_for="window")
    ),
    f"calibrate --solve-for delta {CHECK_IN} 100 --noise-multiplier 1 --epsilon 1 "
    f"--relation {ADD}": solved(central(tn.CheckIn(100)), 1, solve_for="delta"),
    "calibrate --solve-for picks --scheme k-subset --window 8 --noise-multiplier 2 --epsilon 3 "
    f"{PROMISE}": solved(central(tn.KSubset(8, 1), tn.GaussianNoise(2.0)), 3, solve_for="picks"),
    f"calibrate {CHECK_IN} 20 --randomizer rounded-gaussian --sensitivity 3 --epsilon 1 "
    f"{PROMISE}": solved(central(tn.CheckIn(20), tn.RoundedGaussianNoise(1.0, 3)), 1),
    "calibrate --solve-for clients --scheme shuffle --epsilon0 2 --epsilon 0.1 --delta 1e-6": (
        solved(tn.shuffled(tn.PureRandomizer(2.0), clients=9), 0.1, solve_for="clients")
    ),
    "calibrate --solve-for sampled --scheme subsampled-shuffle --epsilon0 1 --clients 10000 "
    "--rounds 20 --epsilon 0.12 --delta 1e-6": solved(
        tn.shuffled(PURE, clients=10_000, rounds=20, sampled=9), 0.12, solve_for="sampled"
    ),
    "compare --against noise-multiplier --from 0.5 --to 4 --points 4 --window 1000 --clients "
    f"100000 {PROMISE}": lambda: tn.compare(
        central(tn.CheckIn(1000)),
        against="noise_multiplier",
        values=[0.5, 1, 2, 4],
        clients=100_000,
        delta=D6,
    ),
    "compare --scheme shuffle --epsilon0 1 --clients 1e5 --delta 1e-6": lambda: tn.compare(
        tn.shuffled(PURE, clients=100_000), delta=D6
    ),
    "compare --scheme shuffle --against rounds --from 1 --to 100 --points 3 --epsilon0 0.5 "
    "--clients 1e4 --delta 1e-6": lambda: tn.compare(
        tn.shuffled(tn.PureRandomizer(0.5), clients=10_000),
        against="rounds",
        values=np.geomspace(1, 100, 3),
        delta=D6,
    ),
}


def printed(line: str) -> dict:
    done = CliRunner().invoke(turnout, [*shlex.split(line), "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


@pytest.mark.parametrize("line", QUESTIONS)
def test_functions_and_commands_give_the_same_numbers(line):
    said, answer = printed(line), QUESTIONS[line]()
    mine = json.loads(answer.to_json())
    assert said.pop("seconds") > 0
    assert mine.pop("seconds") > 0
    assert mine == said


def of(line: str) -> frozenset[tuple[str, ...]]:
    """A command as its options, numbers as numbers, in no order."""
    words = [word for word in shlex.split(line) if word != "--json"]
    parts = re.split(r"\0--", "\0".join(words))
    pairs = [tuple(part.split("\0")) for part in parts]
    return frozenset((name, *(number(value) for value in rest)) for name, *rest in pairs)


def number(text: str) -> str:
    try:
        return repr(float(text))
    except ValueError:
        return text


def test_every_documented_command_has_its_function_call_in_this_file():
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    text = "\n".join(page.read_text("utf-8").replace("\\\n", " ") for page in pages)
    found = re.findall(r"^\s*\$ turnout ((?:account|calibrate|compare) .*)$", text, re.MULTILINE)
    assert len(found) > 5
    put = {of(line) for line in QUESTIONS}
    assert [line for line in found if of(line) not in put] == []
