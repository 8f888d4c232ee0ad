"""Check-ins on Flower: a strategy for the ServerApp, a mod for ClientApps, and an accountant.

`CheckInStrategy` runs on the server, `CheckInMod` on a node; `CheckedAccountant` computes ε of
Flower's own strategy wrappers by turnout's bounds.

In each round, `CheckInStrategy` sends a message to every node and waits for the replies. Each node
secretly draws the rounds in which it takes part, and answers all other rounds with zeros of the
same size. So ε may include the amplification by random participation: no party except the node
itself learns in which rounds it took part.

With Flower's own wrappers the server selects some nodes and averages their replies, with weights
and with the number of replies as divisor. No amplification is proved for such averages, and Flower
claims none.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turnout.accounting import PrivacyCurve
from turnout.core import checks
from turnout.core.errors import ParameterError, TurnoutError, UnsupportedError
from turnout.core.optional import unavailable
from turnout.integrations.release_ledger import NodeTurns, ReleaseLedger, bounded_update, lattice_of
from turnout.learning.optimizers import Optimizer
from turnout.schemes import EveryStep, FixedSize, GaussianNoise, PoissonSampling, Relation, Scheme

try:
    from flwr.serverapp import (  # pyright: ignore[reportMissingImports]
        GaussianPrivacyEvent,
        NeighboringRelation,
        PrivacyConfig,
        PrivacySpent,
        SamplingMethod,
    )
except ImportError as error:
    raise unavailable(error, __name__, "flower") from None

METHOD = "turnout"
_VERSION = 1

RELATIONS = {
    NeighboringRelation.ADD_OR_REMOVE_ONE: Relation.ADD_REMOVE,
    NeighboringRelation.REPLACE_ONE: Relation.REPLACE_ONE,
}
"""Turnout's relation for each of Flower's relations."""


class CheckedAccountant:
    """Flower's ``PrivacyAccountant``: upper bounds on ε and δ of sampled Gaussian releases.

    Noise multipliers are relative to the clip norm. Under replace-one a node changes a sum by up to
    twice the clip norm, and the bounds assume this change. If a fixed number of nodes is sampled,
    as in Flower's wrappers, another node replaces a removed node, so under add-or-remove the bounds
    assume a change by twice the clip norm as well.

    Args:
        config: population, relation and sampling of all events.

    Raises:
        UnsupportedError: no bound is known for the relation or the sampling.
    """

    def __init__(self, config: PrivacyConfig) -> None:
        if config.neighboring_relation not in RELATIONS:
            raise UnsupportedError(f"no analysis is known for {config.neighboring_relation}")
        self._config = config
        self._events: dict[GaussianPrivacyEvent, int] = {}

    @property
    def config(self) -> PrivacyConfig:
        """Population, relation, sampling, δ and the limit on ε."""
        return self._config

    @property
    def num_releases(self) -> int:
        """Number of releases so far."""
        return sum(self._events.values())

    def compose(self, event: GaussianPrivacyEvent, count: int = 1) -> None:
        """Add ``count`` releases of an event to the releases so far.

        Raises:
            ParameterError: the event has another population than the configuration, or ``count``
                is below 1.
        """
        self._events = self._with(event, count)

    def get_epsilon(self, delta: float) -> float:
        """Upper bound on ε of all releases so far, at δ in (0, 1).

        Raises:
            ParameterError: δ is outside (0, 1).
        """
        checks.open_unit(delta=delta)
        return self._epsilon(self._events, delta)

    def get_delta(self, epsilon: float) -> float:
        """Upper bound on δ of all releases so far, at ε of at least 0.

        Raises:
            ParameterError: ε is below 0.
        """
        if not isfinite(epsilon) or epsilon < 0:
            raise ParameterError("epsilon", epsilon, "a number of at least 0")
        return self._curve(self._events).delta(epsilon).upper if self._events else 0.0

    def get_privacy_spent(self, delta: float | None = None) -> PrivacySpent:
        """Upper bound on ε of all releases so far, at the configuration's δ by default.

        Raises:
            ParameterError: δ is outside (0, 1).
        """
        at = self._config.target_delta if delta is None else delta
        return PrivacySpent(self.get_epsilon(at), at, self.num_releases, METHOD)

    def would_exceed(
        self, event: GaussianPrivacyEvent, max_epsilon: float | None = None, count: int = 1
    ) -> bool:
        """Whether ``count`` more releases would exceed the limit on ε; no release is added.

        Args:
            event: event of one release.
            max_epsilon: limit on ε, above 0; None: the limit of the configuration.
            count: number of releases, at least 1.

        Raises:
            ParameterError: no limit on ε is given, the limit is not above 0, ``count`` is below 1,
                or the event has another population than the configuration.
        """
        limit = self._config.max_epsilon if max_epsilon is None else max_epsilon
        if limit is None:
            raise ParameterError("max_epsilon", None, "a limit on ε, here or in the configuration")
        checks.positive(max_epsilon=limit)
        return self._epsilon(self._with(event, count), self._config.target_delta) > limit

    def state_dict(self) -> dict[str, object]:
        """Configuration and releases, as JSON-ready values."""
        events = [{"event": asdict(event), "count": n} for event, n in self._events.items()]
        return {"version": _VERSION, "backend": METHOD, "config": self._plain(), "events": events}

    def load_state_dict(self, state: dict[str, object]) -> None:
        """Continue from a state of the same configuration; earlier releases are discarded.

        Raises:
            ParameterError: a state of another accountant or of another configuration.
        """
        # The state must be of an accountant with this configuration, and its events valid.
        own = {"version": _VERSION, "backend": METHOD, "config": self._plain()}
        if not isinstance(state, dict) or {k: state.get(k) for k in own} != own:
            raise ParameterError("state", state, f"a state of an accountant with {own}")
        found: Any = state.get("events")
        try:
            loaded = [(GaussianPrivacyEvent(**one["event"]), one["count"]) for one in found]
        except (KeyError, TypeError, ValueError) as error:
            raise ParameterError(
                "state", state, f"events of this accountant, but {error}"
            ) from None
        # Add the events as new ones; an error leaves the former events in place.
        before, self._events = self._events, {}
        try:
            for event, count in loaded:
                self.compose(event, count)
        except BaseException:
            self._events = before
            raise

    def _plain(self) -> dict[str, object]:
        """The configuration as JSON-ready values."""
        plain = asdict(self._config)
        return {name: getattr(value, "value", value) for name, value in plain.items()}

    def _with(self, event: GaussianPrivacyEvent, count: int) -> dict[GaussianPrivacyEvent, int]:
        """Number of releases of each event, including ``count`` further releases of ``event``."""
        checks.count(count=count)
        if event.population_size != self._config.population_size:
            expected = f"{self._config.population_size}, as in the configuration"
            raise ParameterError("population_size", event.population_size, expected)
        return {**self._events, event: self._events.get(event, 0) + count}

    def _epsilon(self, events: dict[GaussianPrivacyEvent, int], delta: float) -> float:
        """Upper bound on ε, at ``delta``, of the releases in ``events``."""
        return self._curve(events).epsilon(delta).upper if events else 0.0

    def _curve(self, events: dict[GaussianPrivacyEvent, int]) -> PrivacyCurve:
        """Privacy curve of all releases together."""
        sampled = any(event.sample_size < event.population_size for event in events)
        fixed = self._config.sampling_method is SamplingMethod.NO_AMPLIFICATION
        relation = RELATIONS[self._config.neighboring_relation]
        if sampled and fixed and relation is Relation.ADD_REMOVE:
            relation = Relation.REPLACE_ONE
        first, *others = (self._scheme(event, n, relation) for event, n in events.items())
        curve = PrivacyCurve.of(first)
        for scheme in others:
            curve = curve + PrivacyCurve.of(scheme)
        return curve

    def _scheme(self, event: GaussianPrivacyEvent, count: int, relation: Relation) -> Scheme:
        """Scheme of ``count`` identical releases."""
        size, population = event.sample_size, event.population_size
        participation = {
            SamplingMethod.NO_AMPLIFICATION: lambda: EveryStep(count),
            SamplingMethod.POISSON: lambda: PoissonSampling(size / population, count),
            SamplingMethod.WITHOUT_REPLACEMENT: lambda: FixedSize(size, population, count),
        }[self._config.sampling_method]()
        return Scheme(GaussianNoise(event.noise_multiplier), participation, relation)


try:
    from flwr.app import (  # pyright: ignore[reportMissingImports]
        Array,
        ArrayRecord,
        ConfigRecord,
        Context,
        Message,
        MessageType,
        MetricRecord,
        RecordDict,
    )
    from flwr.serverapp import Grid, PrivacySpent  # pyright: ignore[reportMissingImports]
    from flwr.serverapp.strategy import Strategy  # pyright: ignore[reportMissingImports]
    from flwr.serverapp.strategy.strategy_utils import (  # pyright: ignore[reportMissingImports]
        sample_nodes,
    )
except ImportError as error:
    raise unavailable(error, __name__, "flower") from None

STATE = "turnout-state"
"""Key of the node's configuration: a folder on the node's disk for its own participation file."""

_ARRAYS, _TERMS, _UPDATE = "arrays", "turnout", "update"
_LOG = logging.getLogger("turnout.flower")

Vector = NDArray[np.floating]


class CheckInStrategy(Strategy):
    """Flower strategy whose rounds are the steps of a turnout scheme.

    Use it with `check_ins` as the innermost mod of the ClientApp. The ClientApp's train function
    must reply with the trained arrays. Nodes are not requested to send metrics, because ε would not
    cover the metrics.

    Guarantees: the guarantees of `ReleaseLedger`. A restarted ServerApp continues with the step
    after the last step that the ledger has counted.

    Args:
        ledger: path of the ledger file.
        scheme: participation (a round is a step), Gaussian noise and relation; the unit is a node.
        optimizer: one of `turnout.learning.optimizers`; each ServerApp starts with a new state of
            the optimizer.
        arrays: initial model, which consists of floating-point arrays.
        clip_norm: C, the largest ℓ2 norm of a node's update.
        nodes: number of nodes, which is public. A round waits until all nodes are connected.
        delta: δ at which ε is reported.

    Raises:
        ParameterError: the relation is add-remove, or see `ReleaseLedger`.
        UnsupportedError, StorageError: see `ReleaseLedger`.
    """

    def __init__(
        self,
        ledger: str | Path,
        scheme: Scheme,
        optimizer: Optimizer,
        arrays: ArrayRecord,
        *,
        clip_norm: float,
        nodes: int,
        delta: float,
    ) -> None:
        # The ledger checks the scheme, and continues with the steps in its file.
        self._vector = _flat(arrays)
        self.ledger = ReleaseLedger(
            Path(ledger),
            scheme,
            clip_norm=clip_norm,
            dimension=self._vector.size,
            nodes=nodes,
            delta=delta,
        )
        # The server knows the number of connected nodes, which add-remove would have to hide.
        if scheme.relation is Relation.ADD_REMOVE:
            expected = "zero-out or replace-one, since Flower shows the number of nodes"
            raise ParameterError("relation", scheme.relation.value, expected)
        self._arrays, self._nodes = arrays, nodes
        self._asked: int | None = None
        self._optimizer, self._state = optimizer, optimizer.init(self._vector)

    @property
    def rounds_left(self) -> int:
        """Number of rounds left in the scheme: the largest possible ``num_rounds`` of `start`."""
        return self.ledger.steps - self.ledger.step

    def privacy_spent(self) -> PrivacySpent:
        """Upper bound on ε of all rounds so far, in the form of Flower's accountants."""
        return PrivacySpent(
            self.ledger.epsilon(), self.ledger.delta, self.ledger.step, "turnout check-ins"
        )

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Messages of a round: the same message for every connected node.

        Raises:
            ParameterError: the round is beyond the last step of the scheme.
        """
        if not self.rounds_left:
            expected = "at most rounds_left, the number of rounds left in the scheme"
            raise ParameterError("num_rounds", server_round, expected)
        nodes = sample_nodes(grid, self._nodes, self._nodes)[1]
        terms = {"terms": json.dumps(self.ledger.terms), "step": self.ledger.step}
        content = {_ARRAYS: arrays, "config": config, _TERMS: ConfigRecord(terms)}
        self._vector, self._asked = _flat(arrays), self.ledger.step
        return [
            Message(RecordDict(content), dst_node_id=node, message_type=MessageType.TRAIN)
            for node in nodes
        ]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Model after the round's noisy sum; a node without a valid reply counts as zeros.

        Raises:
            UnsupportedError: the replies belong to another step.
        """
        step, asked, self._asked = self.ledger.step, self._asked, None
        # Replies belong to one step: releasing them twice, or for another step, is an error.
        if asked != step:
            raise UnsupportedError("the replies belong to another step: each step has one release")
        answers = {r.metadata.src_node_id: f for r in replies if (f := _answer(r)) is not None}
        direction = self.ledger.release(answers.values()).astype(self._vector.dtype)
        after, self._state = self._optimizer.update(self._vector, self._state, direction, step)
        return _shaped(self._optimizer.released(after, self._state), self._arrays), None

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Empty list of messages, since ε does not cover metrics of nodes' data."""
        return []

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """None, since nodes send no metrics."""
        return None

    def summary(self) -> None:
        """Log the scheme and the number of its steps so far."""
        _LOG.info(
            "%s, %d of %d steps done", self.ledger.scheme, self.ledger.step, self.ledger.steps
        )


class CheckInMod:
    """Mod with which a node takes part in its own secret rounds; `check_ins` is an instance.

    Args:
        folder: folder with one file for each node, for simulations in one process or on one
            machine. None: the folder that the node's configuration names; a SuperNode is started
            with ``--node-config "turnout-state='/var/lib/turnout'"``.
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        self._folder = None if folder is None else Path(folder)

    def __call__(self, msg: Message, ctxt: Context, call_next: Any) -> Message:
        """Reply of the node: the clipped update if the node takes part in the step, else zeros.

        Raises:
            ParameterError: the terms are invalid or do not fit the model, or the node's
                configuration names no folder.
            StorageError: the node's file is damaged or cannot be written.
        """
        # Messages other than training are passed through.
        if msg.metadata.message_type.split(".")[0] != MessageType.TRAIN:
            return call_next(msg, ctxt)
        # The terms of the task must fit the model.
        asked = msg.content.config_records[_TERMS]
        terms, step = json.loads(str(asked["terms"])), int(asked["step"])
        lattice = lattice_of(terms)
        before = _flat(msg.content.array_records[_ARRAYS])
        if before.size != lattice.dimension:
            raise ParameterError("dimension", before.size, f"{lattice.dimension}, as in the terms")
        # Zeros, unless the node takes part and its training succeeds.
        update = np.zeros(lattice.dimension, np.int32)
        if NodeTurns(self._file(ctxt)).takes(terms, step):
            after = self._trained(msg, ctxt, call_next)
            if after is not None and after.shape == before.shape:
                update = bounded_update(before, after, lattice)
        content = RecordDict({_UPDATE: ArrayRecord({_UPDATE: Array(update)})})
        return Message(content, reply_to=msg)

    def _file(self, ctxt: Context) -> Path:
        """File that stores the steps in which this node takes part."""
        if self._folder is not None:
            return self._folder / f"{ctxt.node_config.get('partition-id', ctxt.node_id)}.json"
        folder = ctxt.node_config.get(STATE)
        if folder is None or not Path(str(folder)).is_dir():
            raise ParameterError(STATE, folder, "a folder on this node's disk, for this node alone")
        return Path(str(folder)) / "turns.json"

    def _trained(self, msg: Message, ctxt: Context, call_next: Any) -> Vector | None:
        """Model after training, or None if training fails; a reply must not reveal a failure."""
        try:
            reply = call_next(msg, ctxt)
            return None if reply.has_error() else _flat(*reply.content.array_records.values())
        except Exception as error:  # whatever the ClientApp raises
            _LOG.error("training failed, an update of zeros is sent: %s", error)
            return None


check_ins = CheckInMod()
"""The mod of SuperNodes whose configuration names a folder."""


def _flat(*arrays: Mapping[str, Array]) -> Vector:
    """Vector of all arrays of one record, in the widest type of the arrays.

    Raises:
        ParameterError: the number of records is not 1, or an array is not floating-point.
    """
    if len(arrays) != 1 or not arrays[0]:
        raise ParameterError("arrays", len(arrays), "one record with arrays")
    parts = [array.numpy() for array in arrays[0].values()]
    if not all(np.issubdtype(part.dtype, np.floating) for part in parts):
        raise ParameterError("arrays", [str(part.dtype) for part in parts], "floating-point arrays")
    return np.concatenate([part.reshape(-1) for part in parts])


def _shaped(vector: Vector, like: Mapping[str, Array]) -> ArrayRecord:
    """Arrays with the names, shapes and types of ``like``, filled from the vector."""
    shapes = {name: array.numpy() for name, array in like.items()}
    ends = np.cumsum([array.size for array in shapes.values()])[:-1]
    parts = zip(shapes.items(), np.split(vector, ends), strict=True)
    return ArrayRecord({n: Array(part.reshape(a.shape).astype(a.dtype)) for (n, a), part in parts})


def _answer(reply: Message) -> NDArray[np.int32] | None:
    """Update in a reply; None if the reply has no valid update."""
    try:
        return None if reply.has_error() else reply.content.array_records[_UPDATE][_UPDATE].numpy()
    except (KeyError, TurnoutError, ValueError):
        return None
