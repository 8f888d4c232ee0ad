"""The releases of a federation's task: charged in a file first, then summed and handed out."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Iterable
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
    UnsupportedError,
)
from turnout.core.files import locked
from turnout.integrations.assignment import AssignmentLaw
from turnout.integrations.node_turns import Terms, lattice_of
from turnout.protocol.mechanisms import mechanism_for, public_divisor
from turnout.randomness import rounded_gaussian
from turnout.schemes import GaussianNoise, PrivacyUnit, ReleaseRule, Scheme, TrustModel
from turnout.schemes.codec import law_to_dict, scheme_to_dict


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
        if not isinstance(law, AssignmentLaw) or not isinstance(randomizer, GaussianNoise):
            raise UnsupportedError(
                "nodes draw their own steps by CheckIn, FixedAssignment or KSubset, and noise is "
                f"Gaussian: not {type(law).__name__} with {type(randomizer).__name__}"
            )
        shape = (scheme.release, scheme.trust, scheme.unit)
        if shape != (ReleaseRule.AGGREGATED, TrustModel.CENTRAL, PrivacyUnit.CLIENT):
            raise UnsupportedError("a federation's rounds are aggregated, central, and of clients")
        self.scheme, self.delta, self._path, self._noise = scheme, delta, path, noise
        terms = {
            "law": law_to_dict(law),
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
