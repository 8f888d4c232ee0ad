"""A next-character LSTM on Shakespeare's roles: perplexity against ε.

Each role is one client. A fifth of the roles is held out for testing, so no ε covers their text.
The unigram row is computed on the clients' text without noise, only for comparison.

    python examples/shakespeare/run.py
"""

from __future__ import annotations

import warnings

import numpy as np
from roles import CHARACTERS, records, roles
from torch import Tensor, nn

import turnout as tn
from turnout.learning.algorithm import FedSGD
from turnout.learning.examples import Examples
from turnout.learning.holdings import Holdings
from turnout.learning.module_trials import SlowUpdatesWarning
from turnout.learning.modules import build_module
from turnout.learning.optimizers import Adam
from turnout.learning.tasks import SupervisedTask

DELTA, CLIP_NORM, WINDOW = 1e-3, 0.3, 2
NO_NOISE = 1e-9


class NextCharacter(nn.Module):
    """LSTM with scores of the next character after each character."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.embedding = nn.Embedding(len(CHARACTERS), 16)
        self.memory = nn.LSTM(16, width, batch_first=True)
        self.scores = nn.Linear(width, len(CHARACTERS))

    def forward(self, tokens: Tensor) -> Tensor:
        """Scores (n, length, characters) of tokens (n, length)."""
        return self.scores(self.memory(self.embedding(tokens))[0])


def examples(texts: list[str]) -> tuple[Examples, Holdings]:
    """Records of several roles, and the client of each record."""
    rows = [records(text) for text in texts]
    owners = np.repeat(np.arange(len(rows)), [len(one) for one in rows])
    tokens = np.concatenate(rows)
    made = Examples(tokens[:, :-1].clip(min=0), tokens[:, 1:], "tokens")
    return made, Holdings.from_owners(owners, len(rows))


def unigram(train: Examples, test: Examples) -> float:
    """Perplexity of the test roles under the training roles' character frequencies."""
    counts = np.bincount(train.labels[train.labels >= 0], minlength=len(CHARACTERS)) + 1.0
    said = test.labels[test.labels >= 0]
    return float(np.exp(-np.log(counts / counts.sum())[said].mean()))


def main(windows: int = 20, epsilons: tuple[float, ...] = (2.0, 8.0)) -> dict[str, float]:
    """Print and return perplexities of the held-out roles by way of training."""
    texts = [text for _, text in roles() if len(records(text))]
    train, held = examples([text for k, text in enumerate(texts) if k % 5])
    test, _ = examples(texts[::5])
    warnings.simplefilter("ignore", SlowUpdatesWarning)  # the LSTM: one client at a time
    task = SupervisedTask(build_module(NextCharacter), train, test, holdings=held)
    print(f"{held.population} roles, {len(train)} records, {task.dimension:,} parameters")
    found = {"unigram, no ε": unigram(train, test)}
    print(f"{'unigram, no ε':28}{found['unigram, no ε']:8.2f}")
    participation = tn.CheckIn(window=WINDOW, windows=windows)
    ways = {
        f"ε = {one:g}, δ = {DELTA:g}": (noise_for(participation, one), CLIP_NORM)
        for one in epsilons
    }
    ways |= {"no noise": (NO_NOISE, CLIP_NORM), "neither noise nor clipping": (NO_NOISE, 1e3)}
    for name, (noise, clip_norm) in ways.items():
        scheme = tn.Scheme(tn.GaussianNoise(noise), participation, relation="add-remove")
        algorithm = FedSGD(task, Adam(0.01), clip_norm)
        run = tn.simulate(scheme, algorithm=algorithm, evaluate_every=WINDOW * windows)
        found[name] = float(run.history.metrics["perplexity"][-1])
        print(f"{name:28}{found[name]:8.2f}", flush=True)
    return found


def noise_for(participation: tn.CheckIn, epsilon: float) -> float:
    """Noise multiplier for ε."""
    found = tn.calibrate(participation, epsilon=epsilon, delta=DELTA, relation="add-remove")
    return found.value


if __name__ == "__main__":
    main()
