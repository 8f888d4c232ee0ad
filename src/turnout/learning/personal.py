"""Personal models: each client keeps a personal model, and only a shared model is released.

`AdaPeD`, `Ridge` and `Alone` are the algorithms. `PersonalTask` evaluates models on each client's
own held-out examples.

Notation:
    θ     a client's personal model, (d,): the client's state, which never leaves the client
    μ     the shared model, (d,)
    ψ     distance between personal models and μ, a positive number (DP-AdaPeD)
    τ     local steps between two messages
    η     learning rate of θ
    C     clip norm of a message as a whole

A client sends one vector in each step. The engine clips it to C, sums the clipped vectors, and adds
noise once, to the sum. A personal model is a function of the client's own data and of the releases.
So the client learns no more about other clients than ε allows, and no other party receives the
personal model (docs/design/personal.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.func import grad, vjp, vmap

from turnout.core import checks
from turnout.core.errors import ParameterError
from turnout.core.showing import shows_shapes
from turnout.learning.algorithm import ClientState, ClientStates, FedSGD, ServerState
from turnout.learning.examples import Examples, as_floats, rows
from turnout.learning.gradients import LocalTraining
from turnout.learning.holdings import Holdings, within
from turnout.learning.models import Model
from turnout.learning.optimizers import Optimizer
from turnout.learning.tasks import SupervisedTask

ACCURACY, OWN_CLASSES = "personal_accuracy", "own_class_accuracy"
_LARGEST_MODELS, _LARGEST_EXAMPLES = 1 << 21, 1 << 13
"""Largest number of floats in the models, and in the examples, of a group of clients."""

Models = Callable[[NDArray[np.int64]], Tensor]
"""Function from numbers of c clients, (c,), to the clients' models, float32, (c, parameters)."""


@shows_shapes()
@dataclass(frozen=True, slots=True)
class ClientGroup:
    """Examples of a group of clients as one array, in which short rows are padded.

    Attributes:
        inputs: shape (c, m, …), for c clients with at most m examples each.
        labels: int64, shape (c, m).
        weights: weights of the examples in a client's mean, float32, shape (c, m).
    """

    inputs: Tensor
    labels: Tensor
    weights: Tensor


class PersonalTask(SupervisedTask):
    """Task in which each client evaluates models on the client's held-out examples.

    The metrics are means over clients with equal weights: ``personal_accuracy`` among all classes,
    ``own_class_accuracy`` among the classes of the client's own training examples, and ``loss``.
    The metrics are for simulations only, since they are computed from the clients' own labels and
    no ε covers them.

    Args, in addition to those of `SupervisedTask`:
        tested: held-out examples of each client, at least one for each client.

    Raises:
        ParameterError: labels that are not classes, ``holdings`` and ``tested`` with different
            numbers of clients, or a client without training or held-out examples.
    """

    def __init__(
        self,
        model: Model,
        examples: Examples,
        held_out: Examples,
        *,
        holdings: Holdings,
        tested: Holdings,
        **settings: Any,
    ) -> None:
        # The shared checks, then those of personal evaluation: class labels, and held-out
        # examples for each client.
        super().__init__(model, examples, held_out, holdings=holdings, **settings)
        if examples.target != "class":
            raise ParameterError("examples.target", examples.target, "'class' for personal models")
        if tested.population != holdings.population:
            expected = f"{holdings.population} clients, as in the holdings"
            raise ParameterError("tested", tested.population, expected)
        if tested.records.size and not within(tested.records, len(held_out)):
            raise ParameterError(
                "tested", tested.records, f"indices of examples below {len(held_out)}"
            )
        # Each client needs training and test examples, since its accuracy counts in the mean.
        for name, held in (("holdings", holdings), ("tested", tested)):
            idle = np.flatnonzero(np.diff(held.offsets) == 0)
            if idle.size:
                raise ParameterError(
                    name, f"client {idle[0]}", "at least one example for each client"
                )
        self._tested = tested

    def resume_parts(self) -> Mapping[str, object]:
        """Settings and data of the clients' computation and evaluation, by name."""
        own = {"tested offsets": self._tested.offsets, "tested records": self._tested.records}
        return {**super().resume_parts(), **own}

    def groups(self, clients: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
        """Groups of consecutive clients, shape (n,) each, whose examples fit the cache."""
        most = int(self._holdings.counts(clients).max(initial=1))
        size = max(1, min(_LARGEST_MODELS // self.dimension, _LARGEST_EXAMPLES // most))
        return (clients[start : start + size] for start in range(0, clients.size, size))

    def held(self, clients: NDArray[np.int64]) -> ClientGroup:
        """Training examples of some clients, shape (c,), padded to one array."""
        return _group(self._examples, self._holdings, clients)

    def evaluate(self, parameters: NDArray[np.floating]) -> Mapping[str, float]:
        """Metrics of one shared model on all clients' held-out examples, by name.

        Args:
            parameters: parameters of the shared model, shape (d,).

        Raises:
            ParameterError: parameters of another shape.
        """
        one = self._checked(parameters)
        return self.judged(lambda clients: one.expand(clients.size, -1))

    @torch.no_grad()
    def judged(self, models: Models) -> dict[str, float]:
        """Metrics of one model per client, by name.

        Args:
            models: function from the numbers of c clients, shape (c,), to the parameters of their
                models, shape (c, parameters); it is called once for each group of clients.
        """
        totals = torch.zeros(3, dtype=torch.float64)
        for clients in self.groups(np.arange(self.population)):
            test = _group(self._held_out, self._tested, clients)
            logits = vmap(self.model.logits)(models(clients), test.inputs).double()
            known = self._own_classes(clients, logits.shape[-1])
            among = logits.masked_fill(~known.unsqueeze(1), -torch.inf)
            losses = -logits.log_softmax(-1).gather(-1, test.labels.unsqueeze(-1)).squeeze(-1)
            counted = (test.weights > 0).double()
            right = [scores.argmax(-1) == test.labels for scores in (logits, among)]
            for k, each in enumerate((*right, losses)):
                totals[k] += ((each * counted).sum(1) / counted.sum(1)).sum()
        means = (totals / self.population).tolist()
        return dict(zip((ACCURACY, OWN_CLASSES, "loss"), means, strict=True))

    def _own_classes(self, clients: NDArray[np.int64], classes: int) -> Tensor:
        """Mask of the classes that occur in each client's training examples, bool, (c, classes)."""
        records, _ = self._holdings.padded(clients)
        labels = rows(self._examples.labels, records.reshape(-1)).view(records.shape)
        return torch.zeros(clients.size, classes, dtype=torch.bool).scatter_(1, labels, True)


def judged_on_own_classes(
    labels: NDArray[np.int64],
    holdings: Holdings,
    held_out: NDArray[np.int64],
    most: int,
    generator: np.random.Generator,
) -> Holdings:
    """Held-out examples of each client, drawn among those of the client's classes.

    A client's classes are the classes of the client's training examples.

    Args:
        labels: labels of the clients' training examples, shape (n,).
        holdings: assignment of the examples to clients.
        held_out: labels of the held-out examples, shape (h,).
        most: largest number of held-out examples of a client; the client gets fewer if its classes
            have fewer.
        generator: source of the draws.

    Raises:
        ParameterError: no held-out example has any class of some client.
    """
    offsets, chosen = [0], list[NDArray[np.int64]]()
    for client in range(holdings.population):
        own = holdings.records[holdings.offsets[client] : holdings.offsets[client + 1]]
        places = np.flatnonzero(np.isin(held_out, np.unique(labels[own])))
        if not places.size:
            expected = f"examples of the classes of client {client}"
            raise ParameterError("held_out", f"{held_out.size} labels", expected)
        chosen.append(np.sort(generator.permutation(places)[:most]))
        offsets.append(offsets[-1] + chosen[-1].size)
    return Holdings(np.array(offsets), np.concatenate(chosen))


def _group(examples: Examples, holdings: Holdings, clients: NDArray[np.int64]) -> ClientGroup:
    """Examples of some clients as one padded array."""
    records, weights = holdings.padded(clients)
    index = records.reshape(-1)
    inputs, labels = as_floats(rows(examples.inputs, index)), rows(examples.labels, index)
    return ClientGroup(
        inputs.view(*records.shape, *inputs.shape[1:]),
        labels.view(records.shape),
        torch.from_numpy(weights),
    )


SHARED_ACCURACY = "shared_accuracy"
"""Name of the metric: accuracy of the shared model on all clients' held-out examples, among all
classes."""
LEAST_PSI, LARGEST_PSI = 0.05, 1e3
_MODEL, _STEPS, _PSI = "model", "steps", "psi"
_LOCAL = LocalTraining(steps=10, learning_rate=0.1)


@dataclass(frozen=True)
class _PersonalModels:
    """Base of algorithms with one shared model and a personal model in each client's state.

    At a client's first participation its personal model starts from the shared model.
    """

    task: PersonalTask
    optimizer: Optimizer
    clip_norm: float
    local: LocalTraining = _LOCAL
    finish: int = 0

    def __post_init__(self) -> None:
        checks.count(0, finish=self.finish)
        self._shared  # noqa: B018  (checks the clip norm)

    @property
    def _shared(self) -> FedSGD:
        """Federated SGD algorithm that updates the shared model on the server."""
        return FedSGD(self.task, self.optimizer, self.clip_norm)

    @property
    def dimension(self) -> int:
        """Number of coordinates of a client's message."""
        return self.task.dimension

    @property
    def population(self) -> int:
        """Number of clients; clients are numbered from 0."""
        return self.task.population

    def init(self, generator: np.random.Generator) -> ServerState:
        """Initial server state: the shared model."""
        return self._shared.init(generator)

    def sent(self, state: ServerState) -> NDArray[np.floating]:
        """Vector that the server sends to each client; its first part is the shared model."""
        return self._shared.sent(state)

    def model(self, state: ServerState) -> NDArray[np.floating]:
        """Shared model, shape (parameters,)."""
        return self._shared.model(state)

    def init_client(self, client: int) -> ClientState:
        """State without a personal model, which starts at the client's first participation."""
        model = np.zeros(self.task.dimension, dtype=np.float32)
        return {_MODEL: model, _STEPS: np.array(0, dtype=np.int64)}

    def client_update(
        self,
        sent: NDArray[np.floating],
        client_state: ClientState | None,
        client: int,
        generator: np.random.Generator,
    ) -> tuple[NDArray[np.floating], ClientState]:
        """Unclipped message of one client, and the client's new personal model."""
        assert client_state is not None
        messages, states = self.client_updates(sent, [client_state], np.array([client]))
        return messages[0], states[0]

    def client_updates(
        self,
        sent: NDArray[np.floating],
        states: Sequence[ClientState],
        clients: NDArray[np.int64],
    ) -> tuple[NDArray[np.floating], list[ClientState]]:
        """Unclipped messages of several clients, (c, dimension), and the clients' new states."""
        shared, by_client = _tensor(sent), dict(zip(clients.tolist(), states, strict=True))
        messages, after = list[NDArray[np.float32]](), list[ClientState]()
        for some in self.task.groups(clients):
            own = [by_client[client] for client in some.tolist()]
            models, message = self._worked(self._begun(own, shared), shared, some)
            messages.append(message.numpy())
            for model, state in zip(models.numpy(), own, strict=True):
                after.append({_MODEL: model, _STEPS: state[_STEPS] + self.local.steps})
        return np.concatenate(messages), after

    def server_update(
        self, state: ServerState, direction: NDArray[np.float64], move: int
    ) -> ServerState:
        """Server state with the shared model after a release."""
        return self._shared.server_update(state, direction, move)

    def evaluate(
        self, state: ServerState, clients: ClientStates | None = None
    ) -> Mapping[str, float]:
        """Metrics of the personal models, and the accuracy of the shared model.

        Each client first takes ``finish`` local steps, with the shared model fixed; the result is
        not stored. A client that has not participated starts from the shared model.
        """
        shared, known = _tensor(self.sent(state)), clients or {}

        def models(some: NDArray[np.int64]) -> Tensor:
            own = [known.get(client) or self.init_client(client) for client in some.tolist()]
            begun = self._begun(own, shared)
            return self._finished(begun, shared, some) if self.finish else begun

        accuracy = self.task.evaluate(self.model(state))[ACCURACY]
        return {**self.task.judged(models), SHARED_ACCURACY: accuracy}

    def _begun(self, states: Sequence[ClientState], shared: Tensor) -> Tensor:
        """Personal models, (clients, parameters); clients without one get the shared model."""
        own = torch.from_numpy(np.stack([state[_MODEL] for state in states]))
        begun = torch.tensor([bool(state[_STEPS] > 0) for state in states])
        return torch.where(begun.unsqueeze(1), own, shared[: self.task.dimension])

    def _worked(
        self, models: Tensor, shared: Tensor, clients: NDArray[np.int64]
    ) -> tuple[Tensor, Tensor]:
        """Personal models and messages of some clients after their local steps.

        The shapes are (clients, parameters) and (clients, dimension).
        """
        held = self.task.held(clients)
        each = vmap(self._locally, in_dims=(0, None, 0, 0, 0))
        after, message = each(models, shared, held.inputs, held.labels, held.weights)
        return after.detach(), message.detach()

    def _finished(self, models: Tensor, shared: Tensor, clients: NDArray[np.int64]) -> Tensor:
        """Personal models, (clients, parameters), after final local steps without a message."""
        held = self.task.held(clients)

        def last_steps(model: Tensor, inputs: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
            return self._descended(model, shared, ClientGroup(inputs, labels, weights), self.finish)

        return vmap(last_steps)(models, held.inputs, held.labels, held.weights).detach()

    def _descended(self, model: Tensor, shared: Tensor, held: ClientGroup, steps: int) -> Tensor:
        """Personal model after local steps with a fixed shared model."""
        for _ in range(steps):
            slope = grad(self._objective)(model, shared, held)
            model = model - self.local.learning_rate * slope
        return model

    def _objective(self, model: Tensor, shared: Tensor, held: ClientGroup) -> Tensor:
        """Personal objective: the mean loss plus a penalty on the distance to the shared model."""
        return self._fit(model, held)

    def _locally(
        self, model: Tensor, shared: Tensor, inputs: Tensor, labels: Tensor, weights: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Personal model and message of one client after the local steps."""
        raise NotImplementedError

    def _fit(self, model: Tensor, held: ClientGroup) -> Tensor:
        """Mean loss of a client's model on its training examples."""
        outputs = self.task.model.logits(model, held.inputs)
        return (self.task.objective.loss.each(outputs, held.labels) * held.weights).sum()


@dataclass(frozen=True)
class AdaPeD(_PersonalModels):
    """DP-AdaPeD: personal models and a shared model distilled from each other.

    The weight of the distance between the models is set by an adaptive parameter ψ.

    Let θ be a client's personal model, f its mean loss on the client's examples, and μ the shared
    model. The client takes gradient steps on f(θ) + KL(μ‖θ)/2ψ in θ, and on KL(μ‖θ)/2ψ + log(2ψ)/2
    in its copies of μ and ψ. The client sends the changes of μ and ψ as one vector of d + 1
    coordinates, clipped as a whole, so that the sensitivity C covers both changes.

    Guarantee: the server computes μ and ψ from the sum of the messages with noise of standard
    deviation σC in each of the d + 1 coordinates. So ε of the run's scheme covers μ and ψ together.

    Source: Girgis' thesis, Algorithm 4.4.1, with two deviations. The thesis adds noise in each
    local step and uses the noisy values in the next step, where the noise can cancel in part
    although the proof counts it in full (docs/design/personal.md); here noise is added once, to the
    sum of the messages. The thesis updates θ before μ, and μ before ψ. Here one evaluation of both
    models updates θ, μ and ψ, with half of the work.

    Args:
        task: clients' examples and the model.
        optimizer: server optimizer, which descends along the mean change of μ.
        clip_norm: C, from 1e-6 to 1e6.
        local: number of local steps between two messages, and learning rate of θ.
        finish: number of local steps, without a message, before a personal model is evaluated.
        shared_rate: learning rate of a client's copy of μ, above 0.
        psi: initial ψ, from 0.05 to 1000.
        psi_rate: learning rate of ψ, at least 0; 0 keeps ψ fixed.
        psi_weight: factor of the change of ψ in the message, above 0.

    Raises:
        ParameterError: a value outside its domain.
    """

    shared_rate: float = 0.1
    psi: float = 1.0
    psi_rate: float = 0.05
    psi_weight: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.positive(shared_rate=self.shared_rate, psi=self.psi, psi_weight=self.psi_weight)
        checks.non_negative(psi_rate=self.psi_rate)
        if not LEAST_PSI <= self.psi <= LARGEST_PSI:
            raise ParameterError("psi", self.psi, f"from {LEAST_PSI:g} to {LARGEST_PSI:g}")

    @property
    def dimension(self) -> int:
        """Number of coordinates of a message: the size of the shared model μ, plus 1 for ψ."""
        return self.task.dimension + 1

    def init(self, generator: np.random.Generator) -> ServerState:
        """Initial server state: the shared model and ψ."""
        return {**super().init(generator), _PSI: np.array([self.psi])}

    def sent(self, state: ServerState) -> NDArray[np.floating]:
        """Shared model μ and ψ, (d + 1,)."""
        return np.append(super().sent(state), state[_PSI].astype(np.float32))

    def server_update(
        self, state: ServerState, direction: NDArray[np.float64], move: int
    ) -> ServerState:
        """Shared model μ and ψ after a release, ``direction``, of shape (d + 1,)."""
        moved = state[_PSI] - direction[-1:] / self.psi_weight
        shared = super().server_update(state, direction[:-1], move)
        return {**shared, _PSI: moved.clip(LEAST_PSI, LARGEST_PSI)}

    def _locally(
        self, model: Tensor, shared: Tensor, inputs: Tensor, labels: Tensor, weights: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Personal model, and changes of μ and ψ as one message, after the local steps."""
        start, psi = shared[:-1], shared[-1]
        way = torch.zeros_like(start)  # change of μ; μ − start would lose digits

        # Objective of the personal model: its mean loss plus KL(μ‖θ)/2ψ.
        def mine(outputs: Tensor, theirs: Tensor, width: Tensor) -> Tensor:
            fit = (self.task.objective.loss.each(outputs, labels) * weights).sum()
            return fit + _gap(outputs, theirs, weights) / (2 * width)

        for _ in range(self.local.steps):
            # Gradients with respect to the personal model, the copy of μ, and ψ.
            outputs, back = self._answers(model, inputs)
            theirs, theirs_back = self._answers(start - way, inputs)
            (slope,) = back(grad(mine)(outputs, theirs, psi))
            (pull,) = theirs_back(grad(_gap, argnums=1)(outputs, theirs, weights) / (2 * psi))
            gap = _gap(outputs, theirs, weights)
            widening = (1 / (2 * psi) - gap / (2 * psi * psi)).clamp(-1, 1)
            # One step on each of the three.
            model = model - self.local.learning_rate * slope
            way = way + self.shared_rate * pull
            psi = (psi - self.psi_rate * widening).clamp(LEAST_PSI, LARGEST_PSI)
        # The message: the changes of μ and of ψ as one vector.
        moved = self.psi_weight * (shared[-1] - psi)
        return model, torch.cat([way, moved.unsqueeze(0)])

    def _objective(self, model: Tensor, shared: Tensor, held: ClientGroup) -> Tensor:
        """Mean loss of a personal model θ plus KL(μ‖θ)/2ψ, with μ the shared model."""
        own, theirs = (self.task.model.logits(each, held.inputs) for each in (model, shared[:-1]))
        fit = (self.task.objective.loss.each(own, held.labels) * held.weights).sum()
        return fit + _gap(own, theirs, held.weights) / (2 * shared[-1])

    def _answers(self, model: Tensor, inputs: Tensor) -> tuple[Tensor, Callable[[Tensor], Any]]:
        """Outputs of a model, and a function from output gradients to parameter gradients."""
        found = vjp(lambda at: self.task.model.logits(at, inputs), model)
        return found[0], found[1]


@dataclass(frozen=True)
class Ridge(_PersonalModels):
    """Personal models with a squared ℓ2 penalty on the distance to a shared model.

    Let θ be a client's personal model, f its mean loss on the client's examples, and μ the shared
    model. The client takes gradient steps on f(θ) + λ/2 ‖θ − μ‖², and sends μ − θ. The server's
    optimizer descends along the mean of these messages.

    Source: Dinh, Tran, Nguyen, *Personalized Federated Learning with Moreau Envelopes* (NeurIPS
    2020), with one local solution in each round; the penalty is the Gaussian prior of §4.5 of
    Girgis' thesis.

    Args, in addition to `AdaPeD`'s ``task``, ``optimizer``, ``clip_norm``, ``local``, ``finish``:
        strength: weight λ of the penalty, above 0.

    Raises:
        ParameterError: a value outside its domain.
    """

    strength: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.positive(strength=self.strength)

    def _locally(
        self, model: Tensor, shared: Tensor, inputs: Tensor, labels: Tensor, weights: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Personal model after the local steps, and the message: shared minus personal model."""
        held = ClientGroup(inputs, labels, weights)
        model = self._descended(model, shared, held, self.local.steps)
        return model, shared - model

    def _objective(self, model: Tensor, shared: Tensor, held: ClientGroup) -> Tensor:
        """Mean loss plus the squared distance to the shared model, times half the ``strength``."""
        return self._fit(model, held) + self.strength / 2 * (model - shared).square().sum()


@dataclass(frozen=True)
class Alone(_PersonalModels):
    """Personal models without a shared model: every message is 0, so the server learns nothing.

    The algorithm is a baseline for the others. Since no message depends on data, the algorithm has
    no privacy cost under any scheme.
    """

    @property
    def dimension(self) -> int:
        """Number of coordinates of a message: one, which is always 0."""
        return 1

    def server_update(
        self, state: ServerState, direction: NDArray[np.float64], move: int
    ) -> ServerState:
        """Unchanged server state."""
        return state

    def _locally(
        self, model: Tensor, shared: Tensor, inputs: Tensor, labels: Tensor, weights: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Personal model after the local steps, and the message 0."""
        held = ClientGroup(inputs, labels, weights)
        return self._descended(model, shared, held, self.local.steps), model.new_zeros(1)


def _gap(outputs: Tensor, theirs: Tensor, weights: Tensor) -> Tensor:
    """Mean Kullback–Leibler divergence KL(shared ‖ client) of the predicted classes."""
    own, shared = outputs.log_softmax(-1), theirs.log_softmax(-1)
    return ((shared.exp() * (shared - own)).sum(-1) * weights).sum()


def _tensor(sent: NDArray[np.floating]) -> Tensor:
    """Received vector as a float32 tensor in PyTorch's memory."""
    return torch.tensor(np.asarray(sent, dtype=np.float32))
