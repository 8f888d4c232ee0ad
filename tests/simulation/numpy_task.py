"""Small task and optimizer in NumPy, so that tests of the engine need no framework."""

from dataclasses import dataclass

import numpy as np

from turnout.core.aggregates import UpdateSum


class MeanTask:
    """Task of mean estimation, in which each client holds one point."""

    def __init__(self, population=60, dimension=3, data_seed=0):
        generator = np.random.default_rng(data_seed)
        self.points = generator.normal(1.0, 0.5, (population, dimension)).astype(np.float32)
        self.population, self.dimension = population, dimension
        self.asked = []

    def resume_parts(self):
        return {"points": self.points}

    def initial_parameters(self, generator):
        return generator.normal(0, 0.1, self.dimension).astype(np.float32)

    def clipped_sum(self, parameters, clients, clip_norm):
        assert clients.dtype == np.int64
        self.asked.append(clients.tolist())
        gradients = parameters.astype(np.float64) - self.points[clients]
        norms = np.linalg.norm(gradients, axis=1, keepdims=True)
        gradients *= np.minimum(1.0, clip_norm / np.maximum(norms, 1e-12))
        return UpdateSum(gradients.sum(axis=0), clients.size)

    def evaluate(self, parameters):
        gap = float(np.linalg.norm(parameters - self.points.mean(axis=0)))
        return {"accuracy": 1.0 / (1.0 + gap), "loss": gap}


@dataclass(frozen=True)
class Momentum:
    """Descent with momentum and a counter, which releases the last iterate or the mean of all."""

    rate: float = 0.3
    momentum: float = 0.5
    average: bool = False

    def init(self, parameters):
        zeros = np.zeros_like(parameters)
        return {"velocity": zeros, "moves": np.array(0), "sum": zeros}

    def update(self, parameters, state, direction, step):
        velocity = self.momentum * state["velocity"] + direction
        rate = np.float32(self.rate / (1 + 0.01 * step))
        moved = (parameters - rate * velocity).astype(np.float32)
        after = {"velocity": velocity, "moves": state["moves"] + 1, "sum": state["sum"] + moved}
        return moved, after

    def released(self, parameters, state):
        if not self.average or state["moves"] == 0:
            return parameters
        return state["sum"] / np.float32(state["moves"])


class MemoryCheckpoints:
    """Store that keeps all checkpoints in a list."""

    def __init__(self):
        self.kept = []

    def save(self, checkpoint):
        self.kept.append(checkpoint)

    def load(self):
        return self.kept[-1] if self.kept else None
