"""CPU-seconds of ε for shuffled messages, compared with limits and a loop over the clones.

A single answer should take at most 100 ms up to 10⁶ clients, a composed one 2 s. Each answer is a
bracket by `turnout.accounting.price` at tolerance 1e-3, from empty caches, the least of three
repeats. A CPU-second is a second of ``process_time`` without imports.

For comparison the script shows the published cost of the code of Feldman, McMillan and Talwar 2021
(0.2 to 3.4 s per answer, 1.4 to 11 s composed). It also measures, in the same run, the direct
evaluation of their Theorem 3.1: a loop over clone counts with two binomial tails each, and
bisection.

    python benchmarks/shuffling.py [--json FILE] [--markdown FILE] [--reference-clients 100000]
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from accounting import forget
from scipy.stats import binom

from turnout.accounting import price
from turnout.accounting.shuffling import clones_2021
from turnout.core.errors import TurnoutError
from turnout.reporting.surroundings import measured_on, surroundings
from turnout.schemes import (
    ApproximateRandomizer,
    EveryStep,
    FixedSize,
    GaussianNoise,
    HadamardResponse,
    KaryResponse,
    NonAdaptiveRandomizer,
    Participation,
    PureRandomizer,
    Randomizer,
    Relation,
    Scheme,
    SelfSampling,
    SpeakingOrder,
    TrustModel,
)

TOLERANCE, REPEATS = 1e-3, 3
SINGLE_LIMIT, COMPOSED_LIMIT = 0.1, 2.0  # CPU-seconds
PUBLISHED_SINGLE, PUBLISHED_COMPOSED = (0.2, 3.4), (1.4, 11.0)
AGREEMENT = 1e-3  # largest relative difference between turnout's clones bound and the loop
SIZES = (10**3, 10**4, 10**5, 10**6)


@dataclass(frozen=True)
class Case:
    """One question: randomizer, participation, number of clients n, and δ."""

    name: str
    randomizer: Randomizer
    participation: Participation
    clients: int
    delta: float

    @property
    def composed(self) -> bool:
        return self.participation.steps > 1

    def __str__(self) -> str:
        rounds = f", {self.participation.steps} rounds" if self.composed else ""
        return f"{self.name}, n = {self.clients:,}{rounds}"


@dataclass(frozen=True)
class Answer:
    """Bracket on ε, and the least CPU-seconds of several repeats."""

    lower: float | None
    upper: float | None
    seconds: float | None
    failure: str = ""


def singles() -> list[Case]:
    """Questions of one round, by kind of question and number of clients."""
    kinds: list[tuple[str, Randomizer, Callable[[int], Participation]]] = [
        ("any randomizers, ε₀ = 1", PureRandomizer(1.0), _all),
        ("any randomizers, ε₀ = 4", PureRandomizer(4.0), _all),
        ("non-adaptive, ε₀ = 1", NonAdaptiveRandomizer(1.0), _all),
        ("binary response, ε₀ = 1", KaryResponse(1.0), _all),
        ("20-ary response, ε₀ = 2", KaryResponse(2.0, 20), _all),
        ("Hadamard response, ε₀ = 2", HadamardResponse(2.0), _all),
        ("(1, 1e-14)-randomizers", ApproximateRandomizer(1.0, 1e-14), _all),
        ("Gaussian messages, σ = 6", GaussianNoise(6.0), _all),
        ("a tenth sampled, ε₀ = 1", PureRandomizer(1.0), _a_tenth),
        ("self-sampling by a tenth, ε₀ = 1", PureRandomizer(1.0), _self_sampling),
    ]
    return [
        Case(name, r, participation(n), n, 1e-6) for name, r, participation in kinds for n in SIZES
    ]


def composed() -> list[Case]:
    """Questions of many rounds."""
    a_tenth = FixedSize(10_000, 60_000, 1200)
    thousandth = FixedSize(1000, 10**6, 10**5)
    return [
        Case("any randomizers, ε₀ = 0.5", PureRandomizer(0.5), EveryStep(1000), 10**6, 1e-8),
        Case("binary response, ε₀ = 0.5", KaryResponse(0.5), EveryStep(1000), 10**6, 1e-8),
        Case("Gaussian messages, σ = 8", GaussianNoise(8.0), EveryStep(100), 10**5, 1e-6),
        Case("10,000 sampled, ε₀ = 1.5", PureRandomizer(1.5), a_tenth, 60_000, 1e-5),
        Case("1,000 sampled, ε₀ = 2", PureRandomizer(2.0), thousandth, 10**6, 1e-8),
        Case(
            "self-sampling, ε₀ = 1.5", PureRandomizer(1.5), SelfSampling(1 / 6, 1200), 60_000, 1e-5
        ),
    ]


def _all(clients: int) -> Participation:
    return EveryStep(1)


def _a_tenth(clients: int) -> Participation:
    return FixedSize(clients // 10, clients, 1)


def _self_sampling(clients: int) -> Participation:
    return SelfSampling(0.1, 1)


def answer(case: Case) -> Answer:
    """Bracket by turnout."""
    scheme = Scheme(
        case.randomizer,
        case.participation,
        Relation.REPLACE_ONE,
        trust=TrustModel.SHUFFLED,
        population=case.clients,
        order=SpeakingOrder.HIDDEN,
    )
    try:
        seconds, found = timed(lambda: price(scheme, case.delta, TOLERANCE).epsilon)
    except TurnoutError as error:
        return Answer(None, None, None, f"{type(error).__name__}: {error}")
    return Answer(found.lower, found.upper, seconds)


def timed(work: Callable[[], Any], repeats: int = REPEATS) -> tuple[float, Any]:
    """Least CPU-seconds of several calls from empty caches, and the result."""
    seconds, found = [], None
    for _ in range(repeats):
        forget()
        started = time.process_time()
        found = work()
        seconds.append(time.process_time() - started)
    return min(seconds), found


def loop_epsilon(local_epsilon: float, clients: int, delta: float, steps: int = 20) -> float:
    """ε of Theorem 3.1 of Feldman, McMillan and Talwar 2021, by bisection."""
    low, high = 0.0, local_epsilon
    for _ in range(steps):
        middle = (low + high) / 2
        if loop_delta(middle, local_epsilon, clients) <= delta:
            high = middle
        else:
            low = middle
    return high


def loop_delta(epsilon: float, local_epsilon: float, clients: int) -> float:
    """δ of the clones pair by a loop over the number of clones, within 8 standard deviations.

    Given c clones, "more than a share θ of the c + 1 bits are ones" is the best event. The victim's
    bit is 1 with probability q in one world and 1 − q in the other.
    """
    q, k = 1 / (1 + math.exp(-local_epsilon)), math.exp(epsilon)
    chance, others = math.exp(-local_epsilon), clients - 1
    mean, reach = others * chance, 8 * math.sqrt(others * chance) + 8
    first, last = max(0, math.floor(mean - reach)), min(others, math.ceil(mean + reach))
    theta = (k * q - (1 - q)) / ((2 * q - 1) * (1 + k))
    total = binom.cdf(first - 1, others, chance) + binom.sf(last, others, chance)
    for clones in range(first, last + 1):
        # Least number of ones, with or without the victim's bit.
        least = math.floor(theta * (clones + 1)) + 1
        with_hers, without = binom.sf(least - 2, clones, 0.5), binom.sf(least - 1, clones, 0.5)
        gain, loss = q * with_hers + (1 - q) * without, (1 - q) * with_hers + q * without
        total += binom.pmf(clones, others, chance) * max(gain - k * loss, 0.0)
    return float(total)


@dataclass(frozen=True)
class Duel:
    """Turnout's clones bound and the loop for the same question."""

    local_epsilon: float
    clients: int
    delta: float
    ours: float
    loop: float
    seconds: float
    loop_seconds: float

    @property
    def difference(self) -> float:
        """Relative difference of the two ε."""
        return self.ours / self.loop - 1


def duel(local_epsilon: float, clients: int, delta: float) -> Duel:
    """Both bounds with their CPU-seconds."""
    seconds, ours = timed(lambda: clones_2021(local_epsilon, clients, delta))
    loop_seconds, loop = timed(lambda: loop_epsilon(local_epsilon, clients, delta), repeats=1)
    return Duel(local_epsilon, clients, delta, ours, loop, seconds, loop_seconds)


def published(case: Case, seconds: float) -> str:
    """Smallest and largest ratio of the published cost to turnout's."""
    least, most = PUBLISHED_COMPOSED if case.composed else PUBLISHED_SINGLE
    return f"{least / seconds:,.0f}–{most / seconds:,.0f}×"


def shortfall(case: Case, found: Answer) -> str:
    """Description of a missed limit; empty if every limit is met."""
    if found.seconds is None:
        return f"no answer ({found.failure})"
    limit = COMPOSED_LIMIT if case.composed else SINGLE_LIMIT
    return f"{found.seconds:.3f} s, limit {limit:g}" if found.seconds > limit else ""


def row(case: Case, found: Answer) -> list[str]:
    """Cells of a table row for one question."""
    if found.seconds is None or found.upper is None:
        return [str(case), "–", "–", "–", found.failure]
    lower = "–" if not found.lower else f"{found.lower:.4g}"
    milliseconds = f"{1000 * found.seconds:.0f}"
    return [str(case), lower, f"{found.upper:.4g}", milliseconds, published(case, found.seconds)]


def duel_row(one: Duel) -> list[str]:
    """Cells of a table row for one comparison with the loop."""
    return [
        f"ε₀ = {one.local_epsilon:g}, n = {one.clients:,}, δ = {one.delta:g}",
        f"{one.loop:.6g}",
        f"{one.ours:.6g}",
        f"{one.loop_seconds:.2f}",
        f"{1000 * one.seconds:.0f}",
        f"{one.loop_seconds / one.seconds:,.0f}×",
    ]


SIZE_HEADS = ["one round", "ε lower bound", "ε upper bound", *[f"{n:,}" for n in SIZES]]
HEADS = ["question", "ε lower bound", "ε upper bound", "CPU-ms", "published / ours"]
DUEL_HEADS = ["clones 2021", "loop", "turnout", "loop's CPU-s", "our CPU-ms", "ratio"]


def by_size(found: Sequence[tuple[Case, Answer]]) -> list[list[str]]:
    """Rows of single answers: ε for 10⁵ clients, and CPU-ms for each number of clients."""
    rows: dict[str, list[str]] = {}
    for case, one in found:
        if not case.composed:
            bracket, milliseconds = row(case, one)[1:3], row(case, one)[3]
            cells = rows.setdefault(case.name, [case.name, "", ""])
            if case.clients == 10**5:
                cells[1:3] = bracket
            cells.append(milliseconds)
    return list(rows.values())


def markdown(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Table in Markdown as in docs/benchmarks.md."""
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def show(cells: Sequence[str]) -> None:
    first, *rest = cells
    print(f"{first:55}" + "".join(f"{cell:>14}" for cell in rest), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path, help="JSON file for all results")
    parser.add_argument("--markdown", type=Path, help="Markdown file for the tables")
    parser.add_argument(
        "--reference-clients",
        type=int,
        default=10**5,
        help="largest number of clients for the loop",
    )
    given = parser.parse_args()
    answer(Case("first", PureRandomizer(1.1), EveryStep(2), 900, 1e-5))  # imports are not measured
    # Measure each question, and note the limits that are not met.
    rows, answers, missing = [], [], []
    show(HEADS)
    for case in [*singles(), *composed()]:
        found = answer(case)
        short = shortfall(case, found)
        missing += [f"{case}: {short}"] if short else []
        answers.append((case, found))
        show(row(case, found))
        rows.append({"question": str(case), "delta": case.delta, **asdict(found), "short": short})
    # Compare the clones bound with a direct loop, which must give the same ε.
    print()
    show(DUEL_HEADS)
    duels = []
    for local_epsilon, clients, delta in [
        (0.5, 10**4, 1e-6),
        (1.0, 10**5, 1e-6),
        (2.0, 10**6, 1e-8),
    ]:
        if clients > given.reference_clients:
            continue
        duels.append(duel(local_epsilon, clients, delta))
        show(duel_row(duels[-1]))
        if abs(duels[-1].difference) > AGREEMENT:
            missing.append(f"the loop disagrees: {duels[-1]}")
    print("", *[f"falls short: {line}" for line in missing], sep="\n")
    print(f"{len(rows) - len(missing)} of {len(rows)} questions within their limits")
    # Write the requested files.
    if given.json:
        document = {"about": surroundings(), "rows": rows, "loop": [asdict(one) for one in duels]}
        given.json.write_text(json.dumps(document, indent=1) + "\n")
    if given.markdown:
        tables = (
            markdown(SIZE_HEADS, by_size(answers)),
            markdown(HEADS, [row(case, one) for case, one in answers if case.composed]),
            markdown(DUEL_HEADS, [duel_row(one) for one in duels]),
        )
        given.markdown.write_text("\n".join(f"{measured_on()}\n{table}" for table in tables))
    sys.exit(1 if missing else 0)


if __name__ == "__main__":
    main()
