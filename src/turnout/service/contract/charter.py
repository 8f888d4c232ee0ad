"""The charter: everything public about a task, frozen before the first device is invited.

Its digest is the task's name. It stands in every row of the ledger and in every invitation, so
neither the coordinator nor whoever restores its storage can change a term without being noticed.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from turnout.core import checks
from turnout.core.errors import BudgetExceededError, ParameterError, StorageError, UnsupportedError
from turnout.protocol.lattice import Lattice
from turnout.schemes import PrivacyUnit, RepeatedMessages, Scheme, TrustModel
from turnout.schemes.codec import scheme_from_dict, scheme_to_dict
from turnout.service.contract.computation import (
    CLIENT_FORMAT,
    KNOWN_ARCHITECTURES,
    KNOWN_FEATURES,
    PARAMETERS_FORMAT,
    Computation,
    is_known_features,
)
from turnout.service.contract.wire import (
    ENROLMENT_FORMAT,
    HEAD_FORMAT,
    RECORD_FORMAT,
    REQUEST_FORMAT,
    UPDATE_FORMATS,
    document_of,
    encoding_of,
)

if TYPE_CHECKING:
    from turnout.protocol.coordinator import Coordinator
    from turnout.protocol.mechanisms import Mechanism
    from turnout.protocol.randomized import UpdateEncoding

FORMAT = "turnout-charter-1"

_MESSAGES = {
    "enrolment": ENROLMENT_FORMAT,
    "head": HEAD_FORMAT,
    "record": RECORD_FORMAT,
    "request": REQUEST_FORMAT,
}
"""Formats of messages that have no settings; an update's has."""


@dataclass(frozen=True, slots=True)
class Timing:
    """The lengths of the parts of a step, by the coordinator's own monotonic clock.

    Check-ins (and with them updates, where everybody is asked) are taken for ``check_in_seconds``;
    where one of many is asked, the update for ``answer_seconds`` more. The model is published
    when ``step_seconds`` are over, however long the release took: timing tells nothing.

    A device computes an update for ``compute_seconds`` at most, and sends it at a moment that it
    drew before. None stands for a bound that `bounded` chooses; a charter always has one.
    """

    step_seconds: float = 60.0
    check_in_seconds: float = 45.0
    answer_seconds: float = 10.0
    compute_seconds: float | None = 5.0

    def __post_init__(self) -> None:
        checks.positive(
            step_seconds=self.step_seconds,
            check_in_seconds=self.check_in_seconds,
            answer_seconds=self.answer_seconds,
        )
        if self.compute_seconds is not None:
            checks.positive(compute_seconds=self.compute_seconds)
        if self.check_in_seconds + self.answer_seconds > self.step_seconds:
            raise ParameterError(
                "step_seconds",
                self.step_seconds,
                f"at least check_in_seconds + answer_seconds = "
                f"{self.check_in_seconds + self.answer_seconds}",
            )

    @classmethod
    def of(cls, step_seconds: float) -> Self:
        """A step of which ¾ take check-ins and ⅙ answers; 1/12 is for computing, by either rule."""
        return cls(step_seconds, 0.75 * step_seconds, step_seconds / 6, step_seconds / 12)

    def update_seconds(self, *, asks_one: bool) -> float:
        """The length of the phase in which updates are sent."""
        return self.answer_seconds if asks_one else self.check_in_seconds

    def bounded(self, *, asks_one: bool) -> Self:
        """The same with a bound on computing: a third of the phase of updates, if none is given."""
        third = self.update_seconds(asks_one=asks_one) / 3
        return replace(self, compute_seconds=self.compute_seconds or third)

    def require_room(self, *, asks_one: bool) -> None:
        """Refuse a missing bound on computing, and one that leaves under half the phase to send."""
        phase, bound = self.update_seconds(asks_one=asks_one), self.compute_seconds
        if bound is None:
            raise ParameterError("compute_seconds", None, "a number of seconds")
        if 2 * bound > phase:
            name = "answer_seconds" if asks_one else "check_in_seconds"
            raise ParameterError(
                "compute_seconds",
                bound,
                f"at most half of {name} = {phase:g}, in which updates are sent",
            )


@dataclass(frozen=True)
class Charter:
    """The frozen terms of one task.

    Attributes:
        plan: the plan's TOML text, as it was written.
        population: client ids are 0 … population − 1; also what n̄ was worked out from.
        scheme: participation law, noise multiplier or law of messages, relation, release rule and
            trust.
        delta: the δ of (ε, δ).
        target: the ε that must not be exceeded.
        charged_steps, charged: ε spent once so many steps are released: proved upper bounds at
            rising numbers of steps, the last one the whole run. In between the next one counts.
        encoding: the bytes of an update: whole numbers under central trust (`Lattice`), a message
            that the client randomized under local trust (`MessageEncoding`).
        expected_check_ins: public divisor of aggregated sums; None with other rules.
        minibatch: steps accumulated before the model moves (one-client).
        initial_model: SHA-256 of the first parameters, little-endian float32.
        timing: the schedule; the phase that takes updates holds twice the bound on computing.
        coordinator_key: Ed25519 public key, 32 bytes.
        computation: what a device computes; `new_task` takes it from the plan.
    """

    plan: str
    population: int
    scheme: Scheme
    delta: float
    target: float
    charged_steps: tuple[int, ...]
    charged: tuple[float, ...]
    encoding: UpdateEncoding
    expected_check_ins: float | None
    minibatch: int
    initial_model: bytes
    timing: Timing
    coordinator_key: bytes
    computation: Computation = field(default_factory=Computation)

    def __post_init__(self) -> None:
        checks.count(population=self.population, minibatch=self.minibatch)
        checks.positive(target=self.target)
        checks.open_unit(delta=self.delta)
        checks.count(0, **{f"charged_steps[{i}]": n for i, n in enumerate(self.charged_steps)})
        checks.non_negative(**{f"charged[{i}]": e for i, e in enumerate(self.charged)})
        if self.expected_check_ins is not None:
            checks.positive(expected_check_ins=self.expected_check_ins)
        if self.scheme.release.shows_counts:
            raise UnsupportedError(
                "averaged check-ins show how many came in every step; serve release = 'aggregated' "
                "or 'one-client'"
            )
        self._require_trust()
        self.timing.require_room(asks_one=self.asks_one)
        if self.scheme.unit is not PrivacyUnit.CLIENT:
            raise UnsupportedError(
                "a device draws one step for all its records, which protects clients and not "
                "single records; serve unit = 'client'"
            )
        rising = all(
            a < b for a, b in zip(self.charged_steps, self.charged_steps[1:], strict=False)
        )
        ordered = all(0 <= a <= b for a, b in zip(self.charged, self.charged[1:], strict=False))
        if not (rising and ordered and len(self.charged) == len(self.charged_steps) > 0):
            raise ParameterError("charged", self.charged, "rising bounds at rising steps")
        if self.charged_steps[-1] != self.steps:
            raise ParameterError("charged_steps", self.charged_steps, f"{self.steps} at the end")

    def _require_trust(self) -> None:
        """Refuses updates that are not what the scheme's trust lets a client send."""
        trust = self.scheme.trust
        if trust is TrustModel.SHUFFLED:
            raise UnsupportedError(
                "privacy.trust = 'shuffled' needs a shuffler between devices and coordinator, "
                "which is not served yet; serve 'local' or 'central'"
            )
        if (trust is TrustModel.CENTRAL) is not isinstance(self.encoding, Lattice):
            expected = f"updates as clients send them under {trust.value} trust"
            raise ParameterError("encoding", type(self.encoding).__name__, expected)
        if trust is TrustModel.LOCAL:
            if self.expected_check_ins is None:
                raise ParameterError("expected_check_ins", None, "a number with messages")
            self.mechanism  # noqa: B018 the scheme is one of these messages, or is refused

    @cached_property
    def steps(self) -> int:
        """Steps of the whole run."""
        return self.scheme.participation.steps

    @cached_property
    def asks_one(self) -> bool:
        """Whether an update is sent by one of those who checked in, and not by all."""
        return self.scheme.release.asks_one

    def spent(self, steps: int) -> float:
        """ε, as a proved upper bound, once so many steps are released.

        Raises:
            ParameterError: more steps than the run has.
            BudgetExceededError: more than the target, or not a number: nothing may be released.
        """
        checks.count(0, steps=steps)
        checks.at_most("the run's steps", self.steps, steps=steps)
        if steps == 0:
            return 0.0
        epsilon = next(
            e for s, e in zip(self.charged_steps, self.charged, strict=True) if s >= steps
        )
        if not 0.0 <= epsilon <= self.target:
            raise BudgetExceededError(epsilon, self.target)
        return epsilon

    @cached_property
    def mechanism(self) -> Mechanism:
        """The mechanism of a step, on the lattice, or of messages."""
        from turnout.protocol.mechanisms import mechanism_for

        if not isinstance(self.encoding, Lattice):
            return self._of_messages()
        return mechanism_for(
            self.scheme,
            self.encoding,
            expected_check_ins=self.expected_check_ins,
            minibatch=self.minibatch,
        )

    def _of_messages(self) -> Mechanism:
        """The sum of what clients' messages stand for.

        Raises:
            ParameterError, UnsupportedError: messages that are not the scheme's.
        """
        from turnout.protocol.randomized import MessageEncoding, Randomized, require_messages

        assert isinstance(self.encoding, MessageEncoding)
        assert self.expected_check_ins is not None
        if self.minibatch != 1:
            raise ParameterError("minibatch", self.minibatch, "1 with messages")
        require_messages(self.scheme, self.encoding.randomizer)
        if isinstance(self.scheme.randomizer, RepeatedMessages):
            raise UnsupportedError("devices send one message a step: serve randomizer.messages = 1")
        return Randomized(self.encoding.randomizer, self.expected_check_ins)

    def coordinator(self, **progress: Any) -> Coordinator:
        """The protocol's coordinator; ``progress`` as for a restart."""
        from turnout.protocol.coordinator import Coordinator

        law = self.scheme.participation
        return Coordinator(law, self.mechanism, capacity=self.population, **progress)

    @cached_property
    def task(self) -> str:
        """The task's name: SHA-256 of `canonical`, 64 hexadecimal digits."""
        return hashlib.sha256(self.canonical()).hexdigest()

    def canonical(self) -> bytes:
        """The charter as bytes: JSON with sorted keys and no spaces, ASCII.

        Floats are written by ``float.hex``, so that the same terms have the same digest in every
        language.
        """
        document = {
            "format": FORMAT,
            "plan": self.plan,
            "population": self.population,
            "scheme": _hexed(scheme_to_dict(self.scheme)),
            "delta": self.delta.hex(),
            "target": self.target.hex(),
            "charged_steps": list(self.charged_steps),
            "charged": [epsilon.hex() for epsilon in self.charged],
            "expected_check_ins": _hexed(self.expected_check_ins),
            "minibatch": self.minibatch,
            "timing": _hexed(asdict(self.timing)),
            "coordinator_key": self.coordinator_key.hex(),
            "model": self.computation.model_document(self.initial_model),
            "client": _hexed(self.computation.client_document()),
            "messages": _hexed(self._messages()),
        }
        return json.dumps(document, sort_keys=True, separators=(",", ":")).encode("ascii")

    @cached_property
    def randomized(self) -> bool:
        """Whether clients randomize their updates themselves, so that two are never the same."""
        return not isinstance(self.encoding, Lattice)

    @cached_property
    def update_format(self) -> str:
        """The name of an update's format, as requests say it."""
        return document_of(self.encoding)["format"]

    def _messages(self) -> dict[str, dict[str, Any]]:
        """The formats of messages, and the settings of an update's."""
        named = {name: {"format": each} for name, each in _MESSAGES.items()}
        return named | {"update": document_of(self.encoding)}

    @classmethod
    def from_canonical(cls, data: bytes) -> Self:
        """The charter that `canonical` wrote.

        Raises:
            StorageError: anything else, down to the last byte; a format that is not known by name.
        """
        try:
            fields = json.loads(data)
            _require_known(fields)
            charter = cls(
                plan=fields["plan"],
                population=fields["population"],
                scheme=scheme_from_dict(_unhexed(fields["scheme"])),
                delta=float.fromhex(fields["delta"]),
                target=float.fromhex(fields["target"]),
                charged_steps=tuple(fields["charged_steps"]),
                charged=tuple(float.fromhex(text) for text in fields["charged"]),
                encoding=encoding_of(_unhexed(fields["messages"]["update"])),
                expected_check_ins=_unhexed(fields["expected_check_ins"]),
                minibatch=fields["minibatch"],
                initial_model=bytes.fromhex(fields["model"]["digest"]),
                timing=Timing(**_unhexed(fields["timing"])),
                coordinator_key=bytes.fromhex(fields["coordinator_key"]),
                computation=Computation.from_documents(fields["model"], _unhexed(fields["client"])),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StorageError(f"the charter is damaged: {error}") from None
        if charter.canonical() != data:
            raise StorageError("the charter is damaged: it does not read back as it was written")
        return charter


def _require_known(fields: dict[str, Any]) -> None:
    """Refuse every format that is not known by its name.

    Raises:
        StorageError: says which.
    """
    _require_named("", fields["format"], FORMAT)
    model, messages = fields["model"], {name: (known,) for name, known in _MESSAGES.items()}
    messages |= {"update": UPDATE_FORMATS}
    _require_named("model", model["format"], PARAMETERS_FORMAT)
    _require_named("model.architecture", model["architecture"]["format"], *KNOWN_ARCHITECTURES)
    features = str(model["features"]["format"])
    if not is_known_features(features):
        _require_named("model.features", features, *KNOWN_FEATURES)
    _require_named("client", fields["client"]["format"], CLIENT_FORMAT)
    for name, message in fields["messages"].items():
        if name not in messages:
            raise StorageError(f"this version knows no messages.{name}, which the charter has")
        _require_named(f"messages.{name}", message["format"], *messages[name])


def _require_named(what: str, said: object, *known: str) -> None:
    if said not in known:
        where = f"in {what} of" if what else "of"
        raise StorageError(
            f"the format {str(said)[:80]!r} {where} the charter is not known to this version "
            f"({', '.join(known)})"
        )


def _hexed(value: Any) -> Any:
    """Floats as ``{"float": hex}``, inside dictionaries and lists too."""
    if isinstance(value, float):
        return {"float": value.hex()}
    if isinstance(value, dict):
        return {key: _hexed(inner) for key, inner in value.items()}
    return [_hexed(inner) for inner in value] if isinstance(value, list) else value


def _unhexed(value: Any) -> Any:
    if isinstance(value, dict):
        if set(value) == {"float"}:
            return float.fromhex(value["float"])
        return {key: _unhexed(inner) for key, inner in value.items()}
    return [_unhexed(inner) for inner in value] if isinstance(value, list) else value
