"""Examples and documentation pages that the help of each command shows.

`HELP` has an entry for each command and each group of commands. `turnout.cli.options` writes the
entry below the options. The tests parse every example and run those that need no coordinator.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import NamedTuple


class Help(NamedTuple):
    """Last part of a command's help: examples, and a page of the documentation.

    Attributes:
        page: page of the documentation that describes the command, in the repository.
        examples: command lines, at least two.
    """

    page: str
    examples: tuple[str, ...]

    @property
    def place(self) -> str:
        """Names of the page in the repository and on the documentation site."""
        # The home page of the site is the repository's README.md.
        name = "index" if self.page == "README.md" else PurePosixPath(self.page).stem
        return f"{self.page} (on the site: {name}.html)"


_AGES = "ages.npy --size 120"
_TOWNS = "survey.csv --column town --labels towns.txt"
_DELTA = "--delta 1e-6 --relation add-remove"
_CHECK_IN = "--scheme check-in --window 1000 --noise-multiplier 1"
_RUN = "--records 60000 --batch-size 256 --epochs 60"
_FREQUENCIES = (
    f"turnout estimate frequencies {_AGES} --epsilon 1 --model local",
    f"turnout estimate frequencies {_TOWNS} --epsilon 0.5 --model shuffled --delta 1e-6 "
    "--picture towns.svg",
    f"turnout estimate frequencies {_AGES} --epsilon 1 --model central --relation add-remove",
)
_MEAN = (
    "turnout estimate mean vectors.npy --norm l2 --radius 1 --epsilon 4 --model local --bits 20",
    "turnout estimate mean survey.csv --column age --column height --norm linf --radius 200 "
    "--epsilon 1 --model central --relation replace-one",
    "turnout estimate mean survey.csv --column age --low 0 --high 100 --epsilon 1 --model central "
    "--relation add-remove",
)
_ENCODE = (
    f"turnout refine encode {_AGES} --epsilon 0.5 1 4 --out release",
    f"turnout refine encode {_TOWNS} --epsilon 0.5 inf --out release-of-towns",
)
_DECODE = (
    "turnout refine decode release/public",
    "turnout refine decode release/public --key release/key-4",
)
_OPEN = (
    f"turnout budget open spent.json --decided releases --epsilon 2 {_DELTA} {_CHECK_IN}",
    f"turnout budget open planned.json --decided plan {_DELTA} {_CHECK_IN}",
)
_CHARGE = (
    f"turnout budget charge spent.json {_CHECK_IN}",
    f"turnout budget charge spent.json {_CHECK_IN} --times 2 --label spring",
)
_LEFT = (
    "turnout budget left --scheme check-in --window 100 --windows 20 --noise-multiplier 1 "
    f"--epsilon 2 {_DELTA} --done 730",
    f"turnout budget left --scheme poisson --rate 0.01 --steps 1000 --noise-multiplier 1 "
    f"--epsilon 3 {_DELTA} --done 500",
)
_EXPORT = (
    "turnout ledger export --db task.sqlite --out ledger.jsonl",
    "turnout ledger export --db task.sqlite --out ledger.jsonl --models models",
)
_VERIFY = (
    "turnout ledger verify ledger.jsonl",
    "turnout ledger verify ledger.jsonl --models models --json",
)

HELP: dict[str, Help] = {
    "account": Help(
        "docs/what-epsilon.md",
        (
            f"turnout account {_CHECK_IN} {_DELTA} --explain",
            f"turnout account {_RUN} --noise-multiplier 1.1 --delta 1e-5",
            "turnout account --scheme shuffle --epsilon0 1 --clients 1e5 --delta 1e-6",
            "turnout account --scheme subsampled-shuffle --sampled 1e4 --clients 1e6 "
            "--randomizer kary-response --epsilon0 1 --delta 1e-6",
        ),
    ),
    "audit": Help(
        "docs/audit.md",
        (
            "turnout audit --example digits",
            "turnout audit plan.toml --deployed --trials 20000 --out audited",
        ),
    ),
    "bandit": Help(
        "docs/bandits.md",
        (
            "turnout bandit examples/bandit.toml --out runs/bandit",
            "turnout bandit --resume runs/bandit",
        ),
    ),
    "budget": Help("docs/budget.md", (_OPEN[0], _CHARGE[0], "turnout budget show spent.json")),
    "budget charge": Help("docs/budget.md", _CHARGE),
    "budget left": Help("docs/budget.md", _LEFT),
    "budget open": Help("docs/budget.md", _OPEN),
    "budget show": Help(
        "docs/budget.md",
        ("turnout budget show spent.json", "turnout budget show spent.json --json"),
    ),
    "calibrate": Help(
        "docs/how-much-noise.md",
        (
            f"turnout calibrate --scheme check-in --window 1000 --epsilon 1 {_DELTA}",
            f"turnout calibrate {_RUN} --sampler poisson --epsilon 3 --delta 1e-5 "
            "--relation add-remove",
            "turnout calibrate --scheme shuffle --clients 1e5 --rounds 1000 --epsilon 1 "
            "--delta 1e-6",
            "turnout calibrate --solve-for clients --scheme shuffle --epsilon0 2 --epsilon 0.1 "
            "--delta 1e-6",
        ),
    ),
    "compare": Help(
        "docs/compare.md",
        (
            "turnout compare --against noise-multiplier --from 0.5 --to 4 --points 8 "
            f"--window 1000 --clients 1e5 {_DELTA}",
            "turnout compare --against window --from 10 --to 1000 --noise-multiplier 1 "
            f"{_DELTA} --beside 'k-subset picks=2'",
            "turnout compare --scheme shuffle --epsilon0 1 --clients 1e5 --delta 1e-6",
            "turnout compare --scheme shuffle --against rounds --from 1 --to 1000 --epsilon0 1 "
            "--clients 1e5 --delta 1e-6 --picture rounds.svg",
        ),
    ),
    "completion": Help(
        "README.md",
        (
            "turnout completion bash > ~/.local/share/bash-completion/completions/turnout",
            "turnout completion fish > ~/.config/fish/completions/turnout.fish",
        ),
    ),
    "enrol": Help(
        "docs/deployment.md",
        (
            "turnout enrol --db task.sqlite --plan plan.toml --out tokens.txt",
            "turnout enrol 1 --db task.sqlite",
        ),
    ),
    "estimate": Help("docs/estimate.md", (_FREQUENCIES[0], _MEAN[0])),
    "estimate frequencies": Help("docs/frequencies.md", _FREQUENCIES),
    "estimate heavy-hitters": Help(
        "docs/estimate.md",
        (
            "turnout estimate heavy-hitters words.csv --letters 8 --epsilon 4 --threshold 0.02",
            "turnout estimate heavy-hitters numbers.npy --size 1e12 --epsilon 2",
        ),
    ),
    "estimate mean": Help("docs/means.md", _MEAN),
    "estimate user-mean": Help(
        "docs/means.md",
        (
            "turnout estimate user-mean trips.csv --client rider --column minutes --samples 20 "
            "--radius 180 --deviation 15 --epsilon 4",
            "turnout estimate user-mean days.csv --column monday --column tuesday --radius 180 "
            "--deviation 15 --epsilon 4",
        ),
    ),
    "fleet": Help(
        "docs/deployment.md",
        (
            "turnout fleet http://127.0.0.1:8000 --tokens tokens.txt",
            "turnout fleet http://127.0.0.1:8000 --tokens tokens.txt --data mine.parquet",
        ),
    ),
    "join": Help(
        "docs/deployment.md",
        (
            "turnout join https://coordinator.example --token turnout1.… --data mine.npz",
            "turnout join http://127.0.0.1:8000 --token turnout1.… --data mine.parquet "
            "--state mine.state",
        ),
    ),
    "ledger": Help("docs/ledger.md", (_EXPORT[0], _VERIFY[0])),
    "ledger export": Help("docs/ledger.md", _EXPORT),
    "ledger verify": Help("docs/ledger.md", _VERIFY),
    "new": Help(
        "docs/training.md",
        ("turnout new visits", "turnout new digits --kind images"),
    ),
    "plugins": Help("docs/extending.md", ("turnout plugins", "turnout plugins --json")),
    "predict": Help(
        "docs/training.md",
        (
            "turnout predict runs/digits digits --out scores.csv",
            "turnout predict run new-records.parquet --out scores.npy",
        ),
    ),
    "refine": Help("docs/refinement.md", (_ENCODE[0], _DECODE[1])),
    "refine decode": Help("docs/refinement.md", _DECODE),
    "refine encode": Help("docs/refinement.md", _ENCODE),
    "refine limited": Help(
        "docs/refinement.md",
        (
            f"turnout refine limited {_AGES} --epsilon 1 --randomness 0.5",
            f"turnout refine limited {_TOWNS} --epsilon 1 --randomness 2 --top 3",
        ),
    ),
    "serve": Help(
        "docs/deployment.md",
        (
            "turnout serve plan.toml --db task.sqlite --wait-for 200",
            "turnout serve plan.toml --db task.sqlite --host 0.0.0.0 --port 8443 "
            "--tls-cert cert.pem --tls-key key.pem",
        ),
    ),
    "train": Help(
        "docs/training.md",
        (
            "turnout train --example digits",
            "turnout train plan.toml --out run",
            "turnout train --resume run",
        ),
    ),
    "tune": Help(
        "docs/tune.md",
        ("turnout tune plan.toml --out search", "turnout tune --resume search"),
    ),
    "witness": Help(
        "docs/witness.md",
        (
            "turnout witness --db witness.sqlite",
            "turnout witness --db witness.sqlite --host 0.0.0.0 --token-file token "
            "--tls-cert cert.pem --tls-key key.pem",
        ),
    ),
}
"""Last part of the help of each command, by the words that call the command."""
