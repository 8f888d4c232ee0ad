"""Functions of tensors that are recorded as graphs, which run without Python.

A batch is some sixty small operations. From Python, two threads wait for the interpreter's lock
between them: two cores trained a small network 1.2 times as fast as one. A graph runs in one call
that does not hold the lock (1.8 times), and saves a fifth of the time of one thread.

TorchScript is what runs the graph. Its optimiser is off, because it changes the order of sums.
PyTorch calls it deprecated, and names nothing else that runs a graph without a compiler on the
machine; where it does not record, the function runs from Python, to the same bits.
"""

from __future__ import annotations

import threading
import warnings
from collections import Counter
from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor

TensorFunction = Callable[..., tuple[Tensor, ...]]

CALLS_BEFORE, LARGEST_COUNT = 8, 16
"""A shape is recorded when it comes up so often, and so many shapes of a function at most."""


class Recorded:
    """A function of tensors, recorded for each combination of shapes that keeps coming up.

    Guarantee: the bits of the function itself, from any thread.
    """

    def __init__(self, function: TensorFunction) -> None:
        """A function whose operations depend on the shapes of its tensors alone."""
        self._function = function
        self._calls: Counter[tuple[torch.Size, ...]] = Counter()
        self._graphs: dict[tuple[torch.Size, ...], TensorFunction] = {}
        self._lock = threading.Lock()

    def __call__(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """The function's value, without gradients."""
        shapes = tuple(tensor.shape for tensor in tensors)
        with torch.no_grad():
            graph = self._graphs.get(shapes) or self._counted(shapes, tensors)
            # Where optimisation is off is a setting of the thread.
            with torch.jit.optimized_execution(False):  # pyright: ignore[reportPrivateImportUsage]
                return graph(*tensors)

    @property
    def shapes(self) -> int:
        """The number of combinations of shapes that are recorded."""
        return sum(graph is not self._function for graph in self._graphs.values())

    def _counted(
        self, shapes: tuple[torch.Size, ...], tensors: tuple[Tensor, ...]
    ) -> TensorFunction:
        """The graph of these shapes if it is their turn, or else the function."""
        with self._lock:
            if len(self._graphs) >= LARGEST_COUNT:
                return self._function
            self._calls[shapes] += 1
            if self._calls[shapes] < CALLS_BEFORE:
                return self._function
            if shapes not in self._graphs:
                self._graphs[shapes] = _graph(self._function, tensors)
            return self._graphs[shapes]


def _graph(function: TensorFunction, tensors: tuple[Tensor, ...]) -> TensorFunction:
    """The function at these shapes as a graph, or itself where PyTorch cannot record."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that shapes become constants, and of deprecation
        try:
            return cast(TensorFunction, torch.jit.trace(function, tensors, check_trace=False))
        except (RuntimeError, AttributeError):
            return function
