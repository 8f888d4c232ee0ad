"""The charter: all public terms of a task, frozen before the first device is invited.

`Charter` has the terms, and `Timing` has the schedule of a step. The charter's digest is the task's
name. Every record of the ledger and every invitation contain this digest, so devices and
`turnout.verification` notice a changed term.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from turnout.core import checks
from turnout.core.errors import BudgetExceededError, ParameterError, StorageError, UnsupportedError
from turnout.core.plugins import installed, plugin_of
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
"""Formats of messages without settings; the format of an update has settings."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Lengths of the phases of a step, in seconds of the coordinator's clock.

    The clock is monotonic. The model is published when ``step_seconds`` are over, even if the
    release is ready earlier, so that the time of publication reveals nothing.

    Attributes:
        step_seconds: length of a step.
        check_in_seconds: length of the check-in phase. Under the aggregated rule a client checks in
            by sending its update.
        answer_seconds: length of the phase in which the chosen client sends its update
            (one-client rule).
        compute_seconds: longest time that a device may take to compute an update. The device sends
            the update at a moment that it drew before the computation. None means that the limit is
            not chosen yet; `bounded` chooses the limit, so that it is never None in a charter.

    Raises:
        ParameterError: a length is not positive, or the phases are longer than the step.
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
        """Schedule with ¾ of a step for check-ins and ⅙ for answers; computing may take 1/12.

        Args:
            step_seconds: length of a step, in seconds, above 0.

        Raises:
            ParameterError: the length is not positive.
        """
        return cls(step_seconds, 0.75 * step_seconds, step_seconds / 6, step_seconds / 12)

    def update_seconds(self, *, asks_one: bool) -> float:
        """Length in seconds of the phase in which devices send updates."""
        return self.answer_seconds if asks_one else self.check_in_seconds

    def bounded(self, *, asks_one: bool) -> Self:
        """Copy in which a missing limit on computing time is a third of the phase of updates."""
        third = self.update_seconds(asks_one=asks_one) / 3
        return replace(self, compute_seconds=self.compute_seconds or third)

    def require_room(self, *, asks_one: bool) -> None:
        """Require that the limit on computing time is at most half of the phase of updates.

        Raises:
            ParameterError: the limit is not set, or is larger.
        """
        phase, bound = self.update_seconds(asks_one=asks_one), self.compute_seconds
        if bound is None:
            raise ParameterError("compute_seconds", None, "a length in seconds")
        if 2 * bound > phase:
            name = "answer_seconds" if asks_one else "check_in_seconds"
            raise ParameterError(
                "compute_seconds",
                bound,
                f"at most half of {name} = {phase:g}, the phase in which updates are sent",
            )


@dataclass(frozen=True, slots=True)
class PluginVersion:
    """Plug-in that a task uses.

    Attributes:
        name: name of the installed package.
        version: version of the package.
        digest: SHA-256 of the package's code in hexadecimal, as `turnout.core.plugins` computes it.
    """

    name: str
    version: str
    digest: str


@dataclass(frozen=True)
class Charter:
    """Fixed terms of one task, on which coordinator and devices agree.

    Attributes:
        plan: TOML text of the plan, unchanged.
        population: number of clients; their ids are 0 to population − 1.
        scheme: participation, randomizer, relation, release rule and trust.
        delta: the δ of (ε, δ).
        target: the ε that must not be exceeded.
        charged_steps: numbers of released steps for which `charged` has a bound on ε, ascending;
            the last one is the number of all steps.
        charged: upper bounds on ε after each of the `charged_steps`. Between two of these numbers,
            the bound of the larger number holds.
        encoding: format of an update's bytes. It is a `Lattice` (whole numbers) under central
            trust, and a `MessageEncoding` (a message that the client randomized) under local trust.
        expected_check_ins: public number by which aggregated sums are divided; None with the
            one-client rule.
        minibatch: number of steps whose releases are accumulated before the model changes
            (one-client rule).
        initial_model: SHA-256 of the first parameters, little-endian float32.
        timing: schedule of a step; the phase in which updates are sent is at least twice as long as
            the limit on computing time.
        coordinator_key: Ed25519 public key, 32 bytes.
        computation: how a device computes its update.
        plugins: plug-ins whose code draws the steps in which a client participates; devices must
            have the same code.

    Raises:
        ParameterError: a term is outside its domain, or two terms contradict each other.
        UnsupportedError: real devices cannot run the terms: averaged check-ins, shuffled trust, or
            a privacy unit other than the client.
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
    plugins: tuple[PluginVersion, ...] = ()

    def __post_init__(self) -> None:
        # Numbers, each in its domain.
        checks.count(population=self.population, minibatch=self.minibatch)
        checks.positive(target=self.target)
        checks.open_unit(delta=self.delta)
        checks.count(0, **{f"charged_steps[{i}]": n for i, n in enumerate(self.charged_steps)})
        checks.non_negative(**{f"charged[{i}]": e for i, e in enumerate(self.charged)})
        if self.expected_check_ins is not None:
            checks.positive(expected_check_ins=self.expected_check_ins)
        # Schemes that devices over a network can keep to.
        if self.scheme.release.shows_counts:
            raise UnsupportedError(
                "averaged check-ins reveal how many clients participated in each step; with real "
                "devices use release = 'aggregated' or 'one-client'"
            )
        self._require_trust()
        self.timing.require_room(asks_one=self.asks_one)
        if self.scheme.unit is not PrivacyUnit.CLIENT:
            raise UnsupportedError(
                "a device draws its steps for all its records at once, which protects clients and "
                "not single records; with real devices use unit = 'client'"
            )
        # Spent ε: it never falls, and the last bound covers the whole run.
        rising = all(
            a < b for a, b in zip(self.charged_steps, self.charged_steps[1:], strict=False)
        )
        ordered = all(0 <= a <= b for a, b in zip(self.charged, self.charged[1:], strict=False))
        if not (rising and ordered and len(self.charged) == len(self.charged_steps) > 0):
            expected = "bounds on ε that never fall, one for each of the ascending charged_steps"
            raise ParameterError("charged", self.charged, expected)
        if self.charged_steps[-1] != self.steps:
            expected = f"{self.steps} as the last number, since the run has {self.steps} steps"
            raise ParameterError("charged_steps", self.charged_steps, expected)

    def _require_trust(self) -> None:
        """Refuse an encoding of updates that contradicts the scheme's trust model."""
        trust = self.scheme.trust
        if trust is TrustModel.SHUFFLED:
            raise UnsupportedError(
                "privacy.trust = 'shuffled' needs a shuffler between devices and coordinator, "
                "which does not exist yet; with real devices use 'local' or 'central'"
            )
        if (trust is TrustModel.CENTRAL) is not isinstance(self.encoding, Lattice):
            expected = f"an encoding of updates under {trust.value} trust"
            raise ParameterError("encoding", type(self.encoding).__name__, expected)
        if trust is TrustModel.LOCAL:
            if self.expected_check_ins is None:
                expected = "a number, since the sum of messages is divided by it"
                raise ParameterError("expected_check_ins", None, expected)
            self.mechanism  # noqa: B018 raises unless the messages are the scheme's

    @cached_property
    def steps(self) -> int:
        """Number of steps of the whole run."""
        return self.scheme.participation.steps

    @cached_property
    def asks_one(self) -> bool:
        """Whether a single one of the clients that checked in sends an update (one-client rule)."""
        return self.scheme.release.asks_one

    def spent(self, steps: int) -> float:
        """Upper bound on the ε of the first ``steps`` releases.

        Args:
            steps: number of released steps, from 0 to the number of all steps.

        Returns:
            A value that is never below the true ε at the charter's δ.

        Raises:
            ParameterError: the number is negative, or the run has fewer steps.
            BudgetExceededError: the bound exceeds the target or is NaN, so nothing may be released.
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
        """Mechanism that releases a step: a noisy integer sum, or a sum of randomized messages."""
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
        """Mechanism that sums the decoded randomized messages of the clients.

        Raises:
            ParameterError: the message format contradicts the scheme, or ``minibatch`` is above 1.
            UnsupportedError: a client sends several messages in one step.
        """
        from turnout.protocol.randomized import MessageEncoding, Randomized, require_messages

        assert isinstance(self.encoding, MessageEncoding)
        assert self.expected_check_ins is not None
        if self.minibatch != 1:
            raise ParameterError("minibatch", self.minibatch, "1 under local trust")
        require_messages(self.scheme, self.encoding.randomizer)
        if isinstance(self.scheme.randomizer, RepeatedMessages):
            raise UnsupportedError(
                "a device sends one message in a step; with real devices use "
                "randomizer.messages = 1"
            )
        return Randomized(self.encoding.randomizer, self.expected_check_ins)

    def coordinator(self, **progress: Any) -> Coordinator:
        """Coordinator state machine of the protocol under these terms.

        Args:
            progress: keyword arguments that restore a stored run (`turnout.protocol.coordinator`).
        """
        from turnout.protocol.coordinator import Coordinator

        participation = self.scheme.participation
        return Coordinator(participation, self.mechanism, capacity=self.population, **progress)

    @cached_property
    def task(self) -> str:
        """Name of the task: SHA-256 of `canonical` in 64 hexadecimal digits."""
        return hashlib.sha256(self.canonical()).hexdigest()

    def canonical(self) -> bytes:
        """Canonical bytes of the charter: ASCII JSON with sorted keys and no spaces.

        Floats are written by ``float.hex``, so that equal terms have equal digests in every
        programming language.
        """
        # Floats at fixed keys are plain hexadecimal; inside parts they are {"float": …} (`_hexed`).
        document: dict[str, Any] = {
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
        # Without plug-ins the field is left out, as in charters of tasks that are part of turnout.
        if self.plugins:
            document["plugins"] = [asdict(each) for each in self.plugins]
        return json.dumps(document, sort_keys=True, separators=(",", ":")).encode("ascii")

    @cached_property
    def randomized(self) -> bool:
        """Whether clients randomize their updates, so that two updates of a client differ."""
        return not isinstance(self.encoding, Lattice)

    @cached_property
    def update_format(self) -> str:
        """Name of the update format, sent in the header ``Turnout-Format``."""
        return document_of(self.encoding)["format"]

    def _messages(self) -> dict[str, dict[str, Any]]:
        """Formats of the messages, by kind of message; ``update`` also has format parameters."""
        named = {name: {"format": each} for name, each in _MESSAGES.items()}
        return named | {"update": document_of(self.encoding)}

    @classmethod
    def from_canonical(cls, data: bytes) -> Self:
        """Charter parsed from the bytes of `canonical`.

        Raises:
            StorageError: ``data`` are not the bytes of `canonical`, name an unknown format, or need
                a plug-in that is not installed with the same code.
        """
        # Unknown formats are refused by name, before anything inside them is read.
        try:
            fields = json.loads(data)
            _require_known(fields)
            plugins = tuple(PluginVersion(**each) for each in fields.get("plugins", ()))
            _require_plugins(plugins)
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
                plugins=plugins,
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StorageError(f"the charter is damaged: {error}") from None
        # A charter that does not give the same bytes again has other terms than its digest names.
        if charter.canonical() != data:
            raise StorageError("the charter is damaged: its bytes are not canonical")
        # The code that draws the steps here must be the code for which ε was computed.
        if charter.plugins != plugins_of(charter.scheme):
            raise StorageError("the charter names other plug-ins than the charter's scheme uses")
        return charter


def plugins_of(scheme: Scheme) -> tuple[PluginVersion, ...]:
    """Plug-ins whose code a device runs under a scheme; empty if turnout's own code suffices.

    Raises:
        UnsupportedError: the participation is defined in no installed package.
    """
    plugin = plugin_of(type(scheme.participation))
    if plugin is None:
        return ()
    if not plugin.package:
        raise UnsupportedError(
            f"{type(scheme.participation).__name__} is defined in a file: a coordinator and its "
            "devices can only use plug-ins from installed packages"
        )
    return (PluginVersion(plugin.package, plugin.version, plugin.digest),)


def _require_plugins(plugins: tuple[PluginVersion, ...]) -> None:
    """Refuse a charter with a plug-in that is not installed here with the same code.

    Raises:
        StorageError: a plug-in is missing or differs; the error states the plug-in's name and
            version.
    """
    here = {
        (plugin.package, plugin.version): plugin.digest
        for plugin in (installed("participations") if plugins else ())
    }
    for plugin in plugins:
        if here.get((plugin.name, plugin.version)) != plugin.digest:
            held = [version for name, version in here if name == plugin.name]
            versions = ", ".join(held)
            stated = f"version {versions} is installed here" if held else "it is not installed here"
            cause = f"{stated} with other code" if plugin.version in held else stated
            raise StorageError(
                f"the charter needs the plug-in {plugin.name} {plugin.version} with the code "
                f"{plugin.digest}, but {cause}: install that version"
            )


def _require_known(fields: dict[str, Any]) -> None:
    """Refuse a charter that names an unknown format.

    Raises:
        StorageError: a format is unknown; the error names the format and its place in the charter.
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
            raise StorageError(f"this version does not know the message {name!r} of the charter")
        _require_named(f"messages.{name}", message["format"], *messages[name])


def _require_named(what: str, given: object, *known: str) -> None:
    """Refuse a format that is not among the known formats.

    ``what`` is the place of the format in the charter.
    """
    if given not in known:
        where = f"in {what} of" if what else "of"
        raise StorageError(
            f"this version does not know the format {str(given)[:80]!r} {where} the charter; it "
            f"knows {', '.join(known)}"
        )


def _hexed(value: Any) -> Any:
    """JSON value in which each float is ``{"float": hex}``, also inside lists and objects."""
    if isinstance(value, float):
        return {"float": value.hex()}
    if isinstance(value, dict):
        return {key: _hexed(inner) for key, inner in value.items()}
    return [_hexed(inner) for inner in value] if isinstance(value, list) else value


def _unhexed(value: Any) -> Any:
    """JSON value in which each ``{"float": hex}`` is a float again."""
    if isinstance(value, dict):
        if set(value) == {"float"}:
            return float.fromhex(value["float"])
        return {key: _unhexed(inner) for key, inner in value.items()}
    return [_unhexed(inner) for inner in value] if isinstance(value, list) else value
