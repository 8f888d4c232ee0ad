"""Folder of a run, shared by training, tuning and bandits.

A run is a sequence of units (steps, candidates, seeds). After each unit the run's state can be
saved, and a run that was stopped or killed continues from the newest state and gives the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from turnout.core.errors import ParameterError, StorageError
from turnout.core.files import PLAN, SIMULATOR, write
from turnout.plans import read_plan

PLACE = "place.txt"
"""File with the folder to which paths in a plan are relative; it must not be released."""


class InterruptedRunError(Exception):
    """Error: Ctrl-C ended a run; if the run has a folder, the folder holds a checkpoint."""

    def __init__(
        self,
        folder: Path | None,
        done: int,
        total: int,
        *,
        unit: str = "step",
        command: str = "train",
    ) -> None:
        resume = "" if folder is None else f"; go on with: turnout {command} --resume {folder}"
        super().__init__(f"stopped after {unit} {done} of {total}{resume}")


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Files of one run: the plan, the checkpoints, and the base folder of the plan's paths."""

    path: Path
    plan_name: str = PLAN
    holds: str = "a run"

    def begin(self, text: str, place: Path | None = None) -> None:
        """Write the plan and, if given, the folder to which the plan's paths are relative."""
        if place is not None:
            write(self.path / SIMULATOR / PLACE, str(place.resolve()))
        write(self.path / self.plan_name, text)

    def plan_text(self) -> str:
        """Text of the plan.

        Raises:
            ParameterError: the folder holds no run.
        """
        if not (self.path / self.plan_name).is_file():
            expected = f"a folder that holds {self.holds} ({self.plan_name})"
            raise ParameterError("resume", str(self.path), expected)
        return read_plan(self.path / self.plan_name)

    @property
    def place(self) -> Path:
        """The folder to which paths in the plan are relative."""
        begun = self.path / SIMULATOR / PLACE
        return Path(begun.read_text("utf-8")) if begun.is_file() else self.path

    def checkpoint(self, name: str) -> Path:
        """Path of a checkpoint, in the subfolder for exact counts that only the simulator may see.

        Raises:
            StorageError: the folder cannot be created.
        """
        place = self.path / SIMULATOR / name
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(f"{place} cannot be written: {error}") from error
        return place


def require_new(folder: Path | None) -> None:
    """Raise an error if a folder already has files.

    Raises:
        ParameterError: the folder is not empty.
    """
    if folder and folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ParameterError("out", str(folder), "a new or empty folder (or use --resume)")
