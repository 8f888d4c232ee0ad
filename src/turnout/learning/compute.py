"""Where clients' updates are computed, and with which numbers.

Guarantees:
    Norms, clip factors and sums of updates are IEEE float32 and float64 on every device, whatever
    precision is set in the process: half-precision products would pass the clip norm by a part in
    500 where the margin is a part in a million. ``bfloat16`` is the precision of forward and
    backward passes alone, whose result, a float32 update, is clipped like any other.

    On a CPU the same run gives the same bits. On a GPU it does not: some of its sums are added up
    in the order in which they come.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from enum import StrEnum

import torch
from torch import Tensor

from turnout.core.errors import ParameterError


class Precision(StrEnum):
    """Numbers of forward and backward passes."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"


@dataclass(frozen=True, slots=True)
class Compute:
    """A device, ``"cpu"`` or ``"cuda"``, and the precision of passes on it."""

    device: str = "cpu"
    precision: Precision = Precision.FLOAT32

    @property
    def on_cpu(self) -> bool:
        """Whether the processor computes, in this process' threads."""
        return self.device == "cpu"

    def take(self, tensor: Tensor) -> Tensor:
        """The tensor on this device."""
        return tensor.to(self.device)

    def passes(self) -> AbstractContextManager[object]:
        """A context for forward and backward passes."""
        if self.precision is Precision.FLOAT32:
            return nullcontext()
        return torch.autocast(self.device, torch.bfloat16)


CPU = Compute()


def compute_on(device: str, precision: str = Precision.FLOAT32) -> Compute:
    """The device of that name; ``"auto"`` is a GPU where there is one.

    Raises:
        ParameterError: ``"cuda"`` where PyTorch finds no GPU.
    """
    available = torch.cuda.is_available()
    if device == "cuda" and not available:
        expected = "a machine where PyTorch finds a GPU (or 'auto', which takes one if it is there)"
        raise ParameterError("run.device", device, expected)
    chosen = ("cuda" if available else "cpu") if device == "auto" else device
    return Compute(chosen, Precision(precision))


def exact_products() -> None:
    """Has float32 matrix products computed in float32, in the whole process.

    A module of the user's own may have set otherwise when it was imported.
    """
    torch.set_float32_matmul_precision("highest")
