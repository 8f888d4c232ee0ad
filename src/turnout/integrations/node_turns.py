"""The turns of one node of a federation: drawn once, kept in a file, used up before they are taken.

A node that is asked in every round draws its own steps, so nobody else knows them, and answers the
others with an update of zeros. Its file outlives restarts: drawing again would double its chances
of a step, and answering a step twice would release two updates of it for the price of one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turnout.core.errors import ParameterError, StorageError, TurnoutError
from turnout.core.files import locked, replace_file
from turnout.integrations.assignment import AssignmentLaw
from turnout.participation.drawing import draw
from turnout.participation.schedule import blocks
from turnout.protocol.lattice import Lattice, LatticeUpdate
from turnout.protocol.mechanisms import Clipping
from turnout.randomness import OSRandomness, Source
from turnout.schemes.codec import law_from_dict

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


def _law(terms: Terms) -> AssignmentLaw:
    """The law of a task, under which clients draw their own steps."""
    lattice_of(terms)
    try:
        law = law_from_dict(terms["law"])
    except (TurnoutError, KeyError, TypeError, ValueError):
        raise ParameterError("law", terms["law"], "a participation law") from None
    if not isinstance(law, AssignmentLaw):
        raise ParameterError("law", law, "CheckIn, FixedAssignment or KSubset")
    return law


def drawn_steps(law: AssignmentLaw, source: Source) -> list[int]:
    """The steps in which one client takes part, ascending."""
    steps: list[int] = []
    for block in blocks(law):
        schedule = draw(law, 1, block, source)
        own = range(block.first_step, block.first_step + block.steps)
        steps += [step for step in own if schedule.at(step).size]
    return steps
