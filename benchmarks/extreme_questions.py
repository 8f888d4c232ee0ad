"""CPU time and memory of computing ε at extreme noise, δ, windows and numbers of steps.

    python benchmarks/extreme_questions.py             # about twenty minutes of one core
    python benchmarks/extreme_questions.py --only "CheckIn.*replace-one"

Each line shows the answer or the error, CPU-seconds, and the counted units of work, which are the
same on every machine. Each question runs in its own process, so that the peak memory is that of the
question.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys

NOISES = (1e-3, 0.03, 0.3, 3.0, 1e4, 1e8)
DELTAS = (1e-300, 1e-30, 1e-15, 1e-6, 0.5)
PARTICIPATIONS = (
    "EveryStep(1)",
    "EveryStep(10**12)",
    "PoissonSampling(0.01, steps=1000)",
    "PoissonSampling(1e-9, steps=10**12)",
    "CheckIn(10, 3)",
    "CheckIn(10**9, 10)",
    "CheckIn(1000, 10**6, 0.1)",
    "KSubset(100, 10)",
    "KSubset(10**6, 1000)",
    "FixedAssignment(100, 10)",
    "FixedSize(100, 10000, 1000)",
)
SHUFFLES = (
    ("GaussianNoise(1.0)", 10**6),
    ("PureRandomizer(1.0)", 10**12),
    ("KaryResponse(1.0, 3)", 10**12),
    ("KaryResponse(8.0, 2)", 10**9),
    ("NonAdaptiveRandomizer(0.01)", 2),
)
RELATIONS = ("add-remove", "zero-out", "replace-one")

_ASK = """
import json, resource, sys, time
import turnout as tn
from turnout.schemes import *
from turnout.accounting.divergence import work
scheme, delta = eval(sys.argv[1]), float(sys.argv[2])
started = time.process_time()
with work.budget(10**15) as meter:
    try:
        found = tn.price(scheme, delta=delta).guarantee
        cut = ", cut short" if found.cut_short else ""
        said = f"[{found.epsilon.lower:.6g}, {found.epsilon.upper:.6g}]{cut}"
    except tn.TurnoutError as error:
        said = f"{type(error).__name__}: {error}"
memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
print(json.dumps([said, time.process_time() - started, meter.used, memory]))
"""


def questions() -> list[tuple[str, str, float]]:
    """Name, scheme and δ of each question."""
    found: list[tuple[str, str, float]] = []
    for participation in PARTICIPATIONS:
        for relation in RELATIONS:
            if participation.startswith("FixedSize") and relation == "add-remove":
                continue
            for index, noise in enumerate(NOISES):
                # One δ per noise level, other δ per participation and relation, and all δ for one.
                turn = PARTICIPATIONS.index(participation) + RELATIONS.index(relation)
                every = (participation, relation) == ("CheckIn(10, 3)", "add-remove")
                for delta in DELTAS if every else [DELTAS[(index + turn) % len(DELTAS)]]:
                    scheme = f"Scheme(GaussianNoise({noise!r}), tn.{participation}, {relation!r})"
                    found.append(
                        (f"{participation} {relation}, σ = {noise:g}, δ = {delta:g}", scheme, delta)
                    )
    for randomizer, clients in SHUFFLES:
        for participation in ("EveryStep(10)", "EveryStep(10**6)", "SelfSampling(0.1, 10)"):
            scheme = (
                f"Scheme({randomizer}, tn.{participation}, 'replace-one', trust='shuffled', "
                f"population={clients}, order='hidden')"
            )
            found += [
                (
                    f"{randomizer} of {clients:g} shuffled, {participation}, δ = {delta:g}",
                    scheme,
                    delta,
                )
                for delta in (1e-6, 1e-30)
            ]
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="run only questions that match this pattern")
    only = parser.parse_args().only
    worst = [0.0, 0, 0.0]
    print(f"{'question':72} {'CPU-s':>6} {'units':>8} {'GiB':>5}  answer")
    for name, scheme, delta in questions():
        if re.search(only, name):
            command = [sys.executable, "-c", _ASK, scheme, repr(delta)]
            done = subprocess.run(command, check=False, capture_output=True, text=True)
            if done.returncode:
                sys.exit(f"{name}: {done.stderr.splitlines()[-1]}")
            said, *costs = json.loads(done.stdout)
            worst = [max(pair) for pair in zip(worst, costs, strict=True)]
            print(
                f"{name:72} {costs[0]:6.1f} {costs[1]:8.1e} {costs[2]:5.2f}  {said[:70]}",
                flush=True,
            )
    print(f"{'largest':72} {worst[0]:6.1f} {worst[1]:8.1e} {worst[2]:5.2f}")


if __name__ == "__main__":
    main()
