"""Conformance suite of algorithms: correct algorithms pass, and faulty algorithms fail."""

from dataclasses import dataclass, field

import numpy as np
import pytest

from turnout.core.aggregates import UpdateSum
from turnout.learning.algorithm import FedSGD
from turnout.learning.examples import Examples
from turnout.learning.holdings import Holdings
from turnout.learning.models import build_model
from turnout.learning.optimizers import SGD, Adam, AveragedOptimizer, ExponentialAverage
from turnout.learning.tasks import SupervisedTask
from turnout.testing import assert_algorithm

CLIENTS, EXAMPLES, FEATURES = 5, 2, 3
RANDOM = np.random.default_rng(0)
DATA = [RANDOM.normal(size=FEATURES) for _ in range(CLIENTS)]
HOSTILE = [np.full(FEATURES, value) for value in (1e200, -1e9, np.nan)]


@dataclass(frozen=True)
class Mean:
    """Mean estimation: a client sends the distance of its point from its received models' mean."""

    points: np.ndarray
    clip_norm: float = 1.0

    @property
    def population(self):
        return len(self.points)

    @property
    def dimension(self):
        return FEATURES

    def init(self, generator):
        return {"mean": generator.normal(size=FEATURES), "moves": np.array(0)}

    def sent(self, state):
        return state["mean"]

    model = sent

    def init_client(self, client):
        return {"sum": np.zeros(FEATURES), "steps": np.array(0)}

    def client_update(self, sent, client_state, client, generator):
        total, steps = client_state["sum"] + sent, client_state["steps"] + 1
        noise = 0.1 * generator.normal(size=FEATURES)
        return total / steps - self.points[client] + noise, {"sum": total, "steps": steps}

    def server_update(self, state, direction, move):
        return {"mean": state["mean"] - 0.5 * direction, "moves": state["moves"] + 1}

    def evaluate(self, state, clients=None):
        return {"taken part": len(clients or {}), "norm": float(np.linalg.norm(state["mean"]))}


@dataclass(frozen=True)
class Batch(Mean):
    """Mean estimation without client state, with all clients computed in one batch."""

    def init_client(self, client):
        return None

    def client_update(self, sent, client_state, client, generator):
        return self.clipped_sum(sent, np.array([client])).total, None

    def gaps(self, sent, clients):
        gaps = np.nan_to_num(sent - self.points[clients], posinf=0, neginf=0)
        return np.clip(gaps, -1e100, 1e100)

    def clipped_sum(self, sent, clients):
        gaps = self.gaps(sent, clients)
        norms = np.linalg.norm(gaps, axis=1, keepdims=True)
        return UpdateSum((gaps * np.minimum(1, 1 / np.maximum(norms, 1e-9))).sum(0), len(clients))


def conform(kind):
    assert_algorithm(lambda data: kind(np.array(data)), DATA, HOSTILE)


@pytest.mark.parametrize("kind", [Mean, Batch])
def test_correct_algorithms_pass_the_conformance_suite(kind):
    conform(kind)


def test_federated_sgd_passes_the_conformance_suite():
    def make(data):
        held = np.array(data, np.float32).reshape(-1, FEATURES)
        examples = Examples(held, np.arange(len(held)) // EXAMPLES % 2)
        owners = np.arange(len(held)) // EXAMPLES
        task = SupervisedTask(
            build_model("logistic", (FEATURES,), 2),
            examples,
            Examples(np.eye(FEATURES, dtype=np.float32), np.array([0, 1, 0])),
            holdings=Holdings.from_owners(owners, len(data)),
        )
        return FedSGD(task, AveragedOptimizer(Adam(0.1), ExponentialAverage(0.8)), 0.25)

    rows = [RANDOM.normal(size=(EXAMPLES, FEATURES)) for _ in range(CLIENTS)]
    hostile = [np.full((EXAMPLES, FEATURES), value) for value in (1e30, np.nan, np.inf)]
    assert_algorithm(make, rows, hostile)


class LongBatch(Batch):
    """Faulty algorithm: updates are not clipped."""

    def clipped_sum(self, sent, clients):
        return UpdateSum(self.gaps(sent, clients).sum(axis=0), len(clients))


class LongTogether(Batch):
    """Faulty algorithm: updates of single clients are clipped, and those of batches are not."""

    def clipped_sum(self, sent, clients):
        if len(clients) == 1:
            return super().clipped_sum(sent, clients)
        return UpdateSum(self.gaps(sent, clients).sum(axis=0), len(clients))


class OtherBatch(Batch):
    """Faulty algorithm: a batch differs from the sum of its clients' updates."""

    def clipped_sum(self, sent, clients):
        found = super().clipped_sum(sent, clients)
        return UpdateSum(0.5 * found.total, found.count) if len(clients) > 1 else found


class Miscounted(Batch):
    def clipped_sum(self, sent, clients):
        found = super().clipped_sum(sent, clients)
        return UpdateSum(found.total, min(found.count, 3))


class Peeking(Mean):
    """Faulty algorithm: clients subtract the mean of all clients' points."""

    def client_update(self, sent, client_state, client, generator):
        update, after = super().client_update(sent, client_state, client, generator)
        return update + np.nan_to_num(self.points[-1]), after


class PeekingState(Mean):
    def init_client(self, client):
        return {"sum": np.nan_to_num(self.points[-1]), "steps": np.array(0)}


class Blind(Mean):
    """Faulty algorithm: updates do not depend on the client's data."""

    def client_update(self, sent, client_state, client, generator):
        return sent, client_state


class InformedStart(Mean):
    """Faulty algorithm: the initial model depends on the clients' data without noise."""

    def init(self, generator):
        return {"mean": np.nan_to_num(self.points[0]), "moves": np.array(0)}


class InformedServer(Mean):
    def server_update(self, state, direction, move):
        pulled = np.tanh(np.nan_to_num(self.points[0]))
        return super().server_update(state, direction - 0.1 * pulled, move)


class InPlace(Mean):
    def server_update(self, state, direction, move):
        state["mean"][:] -= 0.5 * direction
        return state


class InPlaceClient(Mean):
    def client_update(self, sent, client_state, client, generator):
        client_state["sum"][:] += sent
        return sent - self.points[client], client_state


@dataclass(frozen=True)
class Hidden(Mean):
    """Faulty algorithm: state outside the client's state, which a checkpoint misses."""

    seen: dict[int, int] = field(default_factory=dict)

    def resume_parts(self):
        return {"points": self.points}

    def client_update(self, sent, client_state, client, generator):
        update, after = super().client_update(sent, client_state, client, generator)
        self.seen[client] = self.seen.get(client, 0) + 1
        return update / self.seen[client], after


class Unseeded(Mean):
    def client_update(self, sent, client_state, client, generator):
        other = np.random.default_rng()
        return super().client_update(sent, client_state, client, other)


class UnseededServer(Mean):
    def server_update(self, state, direction, move):
        noise = 1e-3 * np.random.default_rng().normal(size=FEATURES)
        return super().server_update(state, direction + noise, move)


class Divided(Mean):
    """Faulty algorithm: the server normalises the direction, which is undefined for zero."""

    def server_update(self, state, direction, move):
        with np.errstate(invalid="ignore"):
            return super().server_update(state, direction / np.linalg.norm(direction), move)


class Growing(Mean):
    def server_update(self, state, direction, move):
        return super().server_update(state, direction, move) | {f"move {move}": direction}


WRONG = {
    LongBatch: "an update moves the sum",
    LongTogether: "an update moves the sum",
    OtherBatch: "clipped_sum differs",
    Miscounted: "wrong number of clients",
    Peeking: "update depends on other clients",
    PeekingState: "state depends on other clients",
    Blind: "does not depend on the client's data",
    InformedStart: "the server's results depend",
    InformedServer: "the server's results depend",
    InPlace: "server state in place",
    InPlaceClient: "client state in place",
    Hidden: "gives other bits",
    Unseeded: "depends on other clients' data|other bits",
    UnseededServer: "results depend on data|other bits",
    Divided: "not finite after a direction of zero",
    Growing: "changes the names",
}


@pytest.mark.parametrize("kind", WRONG, ids=lambda kind: kind.__name__)
def test_an_algorithm_that_breaks_a_guarantee_is_detected(kind):
    with pytest.raises(AssertionError, match=WRONG[kind]):
        conform(kind)


def test_federated_sgd_without_its_clip_norm_is_detected():
    class Unclipped(FedSGD):
        def clipped_sum(self, sent, clients):
            return self.task.clipped_sum(sent, clients, 100.0)

    def make(data):
        examples = Examples(np.array(data, np.float32), np.arange(len(data)) % 2)
        task = SupervisedTask(build_model("logistic", (FEATURES,), 2), examples, examples)
        return Unclipped(task, SGD(0.1), 1e-3)

    with pytest.raises(AssertionError, match="an update moves the sum"):
        assert_algorithm(make, DATA, [np.ones(FEATURES)])
