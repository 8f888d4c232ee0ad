"""Releases and participations of a federation, written to files before they are used.

`ReleaseLedger` first counts each release of a federation's task in a file, as spent budget, and
then computes the release. `NodeTurns` holds the steps in which one node takes part. These steps are
drawn once and kept in a file; each step is removed from the file before its update is sent.
`turnout.integrations.flower` uses both classes.

A node that is contacted in every round draws its own steps, so no other party knows them, and
answers all other rounds with an update of zeros. The node's file is kept across restarts: a second
draw would double the node's probability of taking part in a step, and two answers to a step would
release two updates for the ε of one.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turnout.accounting import PrivacyCurve
from turnout.core import checks
from turnout.core.aggregates import IntegerSum, Noise
from turnout.core.errors import (
    BudgetExceededError,
    ParameterError,
    RemoteProtocolError,
    StorageError,
    TurnoutError,
    UnsupportedError,
)
from turnout.core.files import locked, replace_file
from turnout.integrations.assignment import AssignedParticipation
from turnout.participation.drawing import draw
from turnout.participation.schedule import blocks
from turnout.protocol.lattice import Lattice, LatticeUpdate
from turnout.protocol.mechanisms import Clipping, mechanism_for, public_divisor
from turnout.randomness import OSRandomness, Source, rounded_gaussian
from turnout.schemes import GaussianNoise, PrivacyUnit, ReleaseRule, Scheme, TrustModel
from turnout.schemes.codec import participation_from_dict, participation_to_dict, scheme_to_dict

Terms = Mapping[str, Any]
"""Terms of a task, JSON-ready: "task", "law", "noise_multiplier", "clip_norm", "dimension"."""

_KEYS = {"task", "law", "noise_multiplier", "clip_norm", "dimension"}


def lattice_of(terms: Terms) -> Lattice:
    """Lattice of whole numbers in which the updates of a task are sent.

    Raises:
        ParameterError: the terms do not have exactly the required keys.
    """
    if set(terms) != _KEYS:
        raise ParameterError("terms", sorted(terms), f"{', '.join(sorted(_KEYS))}")
    return Lattice.for_noise(terms["noise_multiplier"], terms["clip_norm"], terms["dimension"])


def bounded_update(
    before: NDArray[np.floating], after: NDArray[np.floating], lattice: Lattice
) -> LatticeUpdate:
    """Clipped update in whole numbers; zero if training returned a value that is not finite.

    The update is the model before training minus the model after training, so a gradient descent
    step with this update moves the model as the training did.

    Args:
        before: the model before training, shape (d,).
        after: the model after training, shape (d,).
        lattice: lattice of the task, with its clip norm.
    """
    vector = before.astype(np.float64) - after.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        finite = bool(np.isfinite(np.square(vector).sum()))
    clipping = Clipping(lattice.dimension, lattice.clip_norm)
    return lattice.quantise(clipping.constrained(vector if finite else np.zeros_like(vector)).total)


class NodeTurns:
    """Steps in which one node takes part, for each task, in one file.

    Guarantees:
        The steps of a task have the distribution of one client's participation. The node draws
        them once, from the operating system's randomness, when it first receives the task's terms.
        A step is answered with an update at most once, even after a crash.

    Args:
        path: path of the file, in a folder that exists; for one node alone.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def takes(self, terms: Terms, step: int) -> bool:
        """Whether the node sends its own update in this step; if so, the step is used up.

        Args:
            terms: terms of the task.
            step: number of the step.

        Raises:
            ParameterError: the terms are invalid or differ from the task's first terms, or the step
                is outside the task.
            StorageError: the file is damaged or cannot be written; the node must then send no
                update.
        """
        participation = _participation(terms)
        if not 0 <= step < participation.steps:
            raise ParameterError("step", step, f"from 0 to {participation.steps - 1}")
        # Draw a new task's steps and store them before any step is answered.
        with locked(self._path):
            tasks = self._read()
            known = tasks.get(terms["task"])
            if known is None:
                known = tasks[terms["task"]] = {
                    "terms": dict(terms),
                    "left": drawn_steps(participation, OSRandomness()),
                }
                self._write(tasks)
            # The first terms are binding.
            if known["terms"] != dict(terms):
                raise ParameterError("terms", dict(terms), "the terms of this task's first step")
            # Remove the step from the file before its update is sent.
            if step not in known["left"]:
                return False
            known["left"].remove(step)
            self._write(tasks)
            return True

    def _read(self) -> dict[str, Any]:
        """Tasks in the file, by name; empty if there is no file.

        Raises:
            StorageError: a damaged file.
        """
        try:
            found = json.loads(self._path.read_text("utf-8"))
            valid = all(set(task) == {"terms", "left"} for task in found.values())
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, AttributeError, TypeError) as error:
            raise StorageError(f"{self._path}: not a file of a node's steps: {error}") from None
        if not valid:
            raise StorageError(f"{self._path}: not a file of a node's steps")
        return found

    def _write(self, tasks: dict[str, Any]) -> None:
        """Replace the file; when the method returns, the new file is on the disk."""
        text = json.dumps(tasks, sort_keys=True).encode()
        replace_file(self._path, lambda file: file.write(text), "the node's turns", 0o600)


def _participation(terms: Terms) -> AssignedParticipation:
    """Participation of a task, in which each client draws its own steps.

    Raises:
        ParameterError: under the terms' participation, clients do not draw their own steps.
    """
    lattice_of(terms)
    try:
        participation = participation_from_dict(terms["law"])
    except (TurnoutError, KeyError, TypeError, ValueError):
        raise ParameterError("law", terms["law"], "a participation") from None
    if not isinstance(participation, AssignedParticipation):
        raise ParameterError("law", participation, "CheckIn, FixedAssignment or KSubset")
    return participation


def drawn_steps(participation: AssignedParticipation, source: Source) -> list[int]:
    """Steps in which one client takes part, newly drawn and in increasing order."""
    steps: list[int] = []
    for block in blocks(participation):
        schedule = draw(participation, 1, block, source)
        own = range(block.first_step, block.first_step + block.steps)
        steps += [step for step in own if schedule.at(step).size]
    return steps


class ReleaseLedger:
    """Ledger of all releases of one task, in a file that is kept across restarts.

    Guarantees:
        A step is counted in the file before its noise is drawn, and is never released again: a step
        that a crash interrupts is lost.
        Each release is the sum of clipped updates in whole numbers plus rounded Gaussian noise from
        the operating system's randomness, divided by a public number that does not depend on the
        answers. At most as many steps are released as the scheme has.

    Args:
        path: path of the file, which is created if it does not exist.
        scheme: participation, Gaussian noise and relation of the whole task.
        clip_norm: C, the largest ℓ2 norm of a node's update.
        dimension: number of coordinates of an update.
        nodes: number of nodes, which is public; sums are divided by the expected number of
            participating nodes.
        delta: δ, in (0, 1), at which ε is reported.
        noise: sampler of rounded Gaussian noise; another sampler is for tests only.

    Raises:
        ParameterError: a value outside its domain, or the file of another task.
        UnsupportedError: a participation under which nodes do not draw their own steps, noise that
            is not Gaussian, or a scheme without aggregated releases, central trust or the privacy
            unit client.
        StorageError: a file that is damaged or cannot be written.
    """

    def __init__(
        self,
        path: Path,
        scheme: Scheme,
        *,
        clip_norm: float,
        dimension: int,
        nodes: int,
        delta: float,
        noise: Noise = rounded_gaussian,
    ) -> None:
        # Nodes must draw their own steps, and releases must be those of a federation's scheme.
        checks.open_unit(delta=delta)
        checks.count(nodes=nodes)
        participation, randomizer = scheme.participation, scheme.randomizer
        drawn = isinstance(participation, AssignedParticipation)
        if not drawn or not isinstance(randomizer, GaussianNoise):
            raise UnsupportedError(
                "nodes draw their own steps by CheckIn, FixedAssignment or KSubset, and noise is "
                f"Gaussian: not {type(participation).__name__} with {type(randomizer).__name__}"
            )
        shape = (scheme.release, scheme.trust, scheme.unit)
        if shape != (ReleaseRule.AGGREGATED, TrustModel.CENTRAL, PrivacyUnit.CLIENT):
            raise UnsupportedError(
                "a federation needs aggregated releases, central trust and the privacy unit client"
            )
        # The file must be that of the same task; a new one gets a random name.
        self.scheme, self.delta, self._path, self._noise = scheme, delta, path, noise
        terms = {
            "law": participation_to_dict(participation),
            "noise_multiplier": randomizer.noise_multiplier,
            "clip_norm": float(clip_norm),
            "dimension": dimension,
        }
        self._begun = {"scheme": scheme_to_dict(scheme), "nodes": nodes, "delta": delta, **terms}
        self._lines: list[str] = []
        task = self._opened()
        self.terms: Terms = {"task": task, **terms}
        self.lattice = lattice_of(self.terms)
        self._mechanism = mechanism_for(
            scheme, self.lattice, expected_check_ins=public_divisor(scheme, nodes, None)
        )

    @property
    def step(self) -> int:
        """Number of the next step, which is also the number of counted steps."""
        return sum("charged" in json.loads(line) for line in self._lines)

    @property
    def steps(self) -> int:
        """Number of steps of the whole task."""
        return self.scheme.participation.steps

    def epsilon(self) -> float:
        """Upper bound on ε of all counted steps, at the task's δ."""
        if not self.step:
            return 0.0
        return PrivacyCurve.of(self.scheme, self.step).epsilon(self.delta).upper

    def release(self, answers: Iterable[NDArray[np.int32]]) -> NDArray[np.float64]:
        """Release of the next step, a noisy mean update, shape (dimension,).

        An invalid answer is ignored. Without valid answers the release is noise.

        Args:
            answers: updates of the nodes in whole numbers, each of shape (dimension,).

        Raises:
            BudgetExceededError: no step is left.
            StorageError: the file cannot be written. If the step could not be counted, no noise is
                drawn.
        """
        # Sum the valid answers.
        step = self.step
        if step >= self.steps:
            raise BudgetExceededError(step + 1, 0, "steps")
        total = IntegerSum.zero(self.lattice.dimension)
        for answer in answers:
            try:
                self.lattice.check(answer)
            except RemoteProtocolError:
                continue
            total = total + IntegerSum(answer, 1)
        # Count the step on the disk before its noise is drawn.
        self._append({"charged": step})
        state = self._mechanism.initial_state()
        released = self._mechanism.release(total, state, step, self._noise)[0]
        assert released.direction is not None
        self._append({"released": step, "sha256": _digest(released.direction.tobytes())})
        return released.direction

    def _opened(self) -> str:
        """Name of the task, from the file or newly drawn for a new file."""
        if not self._path.exists():
            task = secrets.token_hex(16)
            self._append({"task": task, **self._begun})
            return task
        # Every line contains the digest of the previous line; an incomplete last line is cut off.
        try:
            text = self._path.read_text("utf-8")
            whole_lines, _, torn = text.rpartition("\n")
            if torn:  # an incomplete line counted no step, so nothing was released
                os.truncate(self._path, len(f"{whole_lines}\n".encode()))
            self._lines = whole_lines.splitlines()
            found = [json.loads(line) for line in self._lines]
            before = ["", *map(_line_digest, self._lines[:-1])]
            whole = all(e.pop("before") == b for e, b in zip(found, before, strict=True))
            task = found[0].pop("task")
        except (OSError, ValueError, KeyError, IndexError, AttributeError) as error:
            raise StorageError(f"{self._path}: damaged ledger: {error}") from None
        if not whole:
            raise StorageError(f"{self._path}: damaged ledger: lines are missing or were changed")
        if found[0] != json.loads(json.dumps(self._begun)):
            raise ParameterError("ledger", str(self._path), f"the ledger of {self._begun}")
        return task

    def _append(self, entry: dict[str, Any]) -> None:
        """Append a line with the digest of the previous line; on return the line is on the disk."""
        before = _line_digest(self._lines[-1]) if self._lines else ""
        line = json.dumps({**entry, "before": before}, sort_keys=True)
        known = sum(len(each.encode()) + 1 for each in self._lines)
        with locked(self._path):
            try:
                with self._path.open("ab") as file:
                    if file.tell() != known:
                        raise StorageError(f"{self._path}: another process writes this ledger")
                    file.write(f"{line}\n".encode())
                    file.flush()
                    os.fsync(file.fileno())
            except OSError as error:
                raise StorageError(f"{self._path} cannot be written: {error.strerror}") from None
        self._lines.append(line)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _line_digest(line: str) -> str:
    return _digest(line.encode())
