"""Releases and turns of a federation, recorded in files before they are used.

`ReleaseLedger` charges each release of a federation's task in a file first, then sums and returns
it. `NodeTurns` are the turns of one node: drawn once, kept in a file, used up before they are
taken.

A node that is contacted in every round draws its own steps, so no one else knows them, and answers
the others with an update of zeros. Its file outlives restarts: drawing again would double its
chances of a step, and answering a step twice would release two updates of it for the price of one.
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
"""The terms of a task, JSON-ready: "task", "law", "noise_multiplier", "clip_norm", "dimension"."""

_KEYS = {"task", "law", "noise_multiplier", "clip_norm", "dimension"}


def lattice_of(terms: Terms) -> Lattice:
    """The whole numbers in which updates of a task are sent.

    Raises:
        ParameterError: terms that are not those of a task.
    """
    if set(terms) != _KEYS:
        raise ParameterError("terms", sorted(terms), f"{', '.join(sorted(_KEYS))}")
    return Lattice.for_noise(terms["noise_multiplier"], terms["clip_norm"], terms["dimension"])


def bounded_update(
    before: NDArray[np.floating], after: NDArray[np.floating], lattice: Lattice
) -> LatticeUpdate:
    """The update that training made, clipped and in whole numbers; zero where it is not finite.

    It is minus the way that the model moved: descending along it repeats the training.
    """
    vector = before.astype(np.float64) - after.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        finite = bool(np.isfinite(np.square(vector).sum()))
    clipping = Clipping(lattice.dimension, lattice.clip_norm)
    return lattice.quantise(clipping.constrained(vector if finite else np.zeros_like(vector)).total)


class NodeTurns:
    """The steps in which one node takes part, by task, in one file.

    Guarantees:
        The steps of a task have the law of one client, are drawn from the operating system's
        randomness when its terms are first seen, and never again.
        A step is answered with an update at most once, whatever crashes when.

    Args:
        path: of the file, in a folder that exists; only one node may use it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def takes(self, terms: Terms, step: int) -> bool:
        """Whether the node sends an update of its own in this step; if so the turn is used up.

        Raises:
            ParameterError: terms that no task has, other terms than this task had at first, or a
                step that it has not.
            StorageError: the file is damaged or cannot be written; the node sends nothing then.
        """
        law = _law(terms)
        if not 0 <= step < law.steps:
            raise ParameterError("step", step, f"from 0 to {law.steps - 1}")
        with locked(self._path):
            tasks = self._read()
            known = tasks.get(terms["task"])
            if known is None:
                known = tasks[terms["task"]] = {
                    "terms": dict(terms),
                    "left": drawn_steps(law, OSRandomness()),
                }
                self._write(tasks)
            if known["terms"] != dict(terms):
                raise ParameterError("terms", dict(terms), "those that this task had at first")
            if step not in known["left"]:
                return False
            known["left"].remove(step)
            self._write(tasks)
            return True

    def _read(self) -> dict[str, Any]:
        try:
            found = json.loads(self._path.read_text("utf-8"))
            valid = all(set(task) == {"terms", "left"} for task in found.values())
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, AttributeError, TypeError) as error:
            raise StorageError(f"{self._path}: no file of a node's turns: {error}") from None
        if not valid:
            raise StorageError(f"{self._path}: no file of a node's turns")
        return found

    def _write(self, tasks: dict[str, Any]) -> None:
        text = json.dumps(tasks, sort_keys=True).encode()
        replace_file(self._path, lambda file: file.write(text), "the node's turns", 0o600)


def _law(terms: Terms) -> AssignedParticipation:
    """The law of a task, under which clients draw their own steps."""
    lattice_of(terms)
    try:
        law = participation_from_dict(terms["law"])
    except (TurnoutError, KeyError, TypeError, ValueError):
        raise ParameterError("law", terms["law"], "a participation law") from None
    if not isinstance(law, AssignedParticipation):
        raise ParameterError("law", law, "CheckIn, FixedAssignment or KSubset")
    return law


def drawn_steps(law: AssignedParticipation, source: Source) -> list[int]:
    """The steps in which one client takes part, ascending."""
    steps: list[int] = []
    for block in blocks(law):
        schedule = draw(law, 1, block, source)
        own = range(block.first_step, block.first_step + block.steps)
        steps += [step for step in own if schedule.at(step).size]
    return steps


class ReleaseLedger:
    """All releases of one task, in a file that outlives restarts.

    Guarantees:
        A step is charged, durably, before its noise is drawn, and never released again: a step
        that a crash interrupts is lost.
        Each release is the sum of bounded updates in whole numbers plus rounded Gaussian noise of
        the operating system's randomness, over a public number, whoever answered.
        No more steps are released than the scheme has.

    Args:
        path: of the file; it is made where there is none.
        scheme: law, Gaussian noise and relation of the whole task.
        clip_norm: C, the ℓ2 bound of a node's update.
        dimension: coordinates of an update.
        nodes: how many there are, a public number: sums are divided by the mean number that come.
        delta: at which ε is said.
        noise: where rounded Gaussians come from; for tests.

    Raises:
        ParameterError: a value outside its domain, or the file of another task.
        UnsupportedError: a law under which nodes do not draw their own steps.
        StorageError: the file is damaged or cannot be written.
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
        checks.open_unit(delta=delta)
        checks.count(nodes=nodes)
        law, randomizer = scheme.participation, scheme.randomizer
        if not isinstance(law, AssignedParticipation) or not isinstance(randomizer, GaussianNoise):
            raise UnsupportedError(
                "nodes draw their own steps by CheckIn, FixedAssignment or KSubset, and noise is "
                f"Gaussian: not {type(law).__name__} with {type(randomizer).__name__}"
            )
        shape = (scheme.release, scheme.trust, scheme.unit)
        if shape != (ReleaseRule.AGGREGATED, TrustModel.CENTRAL, PrivacyUnit.CLIENT):
            raise UnsupportedError("a federation's rounds are aggregated, central, and of clients")
        self.scheme, self.delta, self._path, self._noise = scheme, delta, path, noise
        terms = {
            "law": participation_to_dict(law),
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
        """The next step: as many were charged."""
        return sum("charged" in json.loads(line) for line in self._lines)

    @property
    def steps(self) -> int:
        """Steps of the whole task."""
        return self.scheme.participation.steps

    def epsilon(self) -> float:
        """Upper bound on ε of all steps that were charged, at the task's δ."""
        if not self.step:
            return 0.0
        return PrivacyCurve.of(self.scheme, self.step).epsilon(self.delta).upper

    def release(self, answers: Iterable[NDArray[np.int32]]) -> NDArray[np.float64]:
        """The released direction of the next step, shape (dimension,).

        An answer that no client may send counts as none. With none at all, the release is noise.

        Raises:
            BudgetExceededError: all steps are over.
            StorageError: the step could not be charged; nothing is drawn.
        """
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
        self._append({"charged": step})
        state = self._mechanism.initial_state()
        released = self._mechanism.release(total, state, step, self._noise)[0]
        assert released.direction is not None
        self._append({"released": step, "sha256": _digest(released.direction.tobytes())})
        return released.direction

    def _opened(self) -> str:
        """The task's name, from the file or of a new one."""
        if not self._path.exists():
            task = secrets.token_hex(16)
            self._append({"task": task, **self._begun})
            return task
        try:
            text = self._path.read_text("utf-8")
            whole_lines, _, torn = text.rpartition("\n")
            if torn:  # a line that was cut off was no charge yet, and released nothing
                os.truncate(self._path, len(f"{whole_lines}\n".encode()))
            self._lines = whole_lines.splitlines()
            found = [json.loads(line) for line in self._lines]
            before = ["", *map(_line_digest, self._lines[:-1])]
            whole = all(e.pop("before") == b for e, b in zip(found, before, strict=True))
            task = found[0].pop("task")
        except (OSError, ValueError, KeyError, IndexError, AttributeError) as error:
            raise StorageError(f"{self._path}: no whole ledger: {error}") from None
        if not whole:
            raise StorageError(f"{self._path}: lines are missing or were changed")
        if found[0] != json.loads(json.dumps(self._begun)):
            raise ParameterError("ledger", str(self._path), f"that of {self._begun}")
        return task

    def _append(self, entry: dict[str, Any]) -> None:
        """One more line, on the disk when this returns; it names the one before."""
        before = _line_digest(self._lines[-1]) if self._lines else ""
        line = json.dumps({**entry, "before": before}, sort_keys=True)
        known = sum(len(each.encode()) + 1 for each in self._lines)
        with locked(self._path):
            try:
                with self._path.open("ab") as file:
                    if file.tell() != known:
                        raise StorageError(f"{self._path}: another process writes it as well")
                    file.write(f"{line}\n".encode())
                    file.flush()
                    os.fsync(file.fileno())
            except OSError as error:
                raise StorageError(f"{self._path}: not written: {error.strerror}") from None
        self._lines.append(line)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _line_digest(line: str) -> str:
    return _digest(line.encode())
