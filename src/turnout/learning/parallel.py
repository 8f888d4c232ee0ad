"""Threads that share out batches, and memory that stays warm between them.

A batch is a few dozen small operations, too small for PyTorch to split each between threads
(on a loaded machine its threads then wait for each other most of the time). Whole batches are
what is shared out here, one thread each, and results are taken in order: the same bits come
out whatever the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")


def ordered_map(function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
    """``function`` of each item, in order, on as many threads as PyTorch was given."""
    threads = min(torch.get_num_threads(), len(items))
    with _one_thread_an_operation():
        if threads <= 1:
            yield from map(function, items)
        else:
            yield from _workers(threads).map(function, items)


@contextmanager
def _one_thread_an_operation() -> Iterator[None]:
    """PyTorch's own splitting of operations is off inside."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@cache
def _workers(threads: int) -> ThreadPoolExecutor:
    """Threads that stay. Matrix products ask the thread they run in how far to split, so each
    thread is told on its own.
    """
    return ThreadPoolExecutor(
        threads, "turnout-learning", initializer=torch.set_num_threads, initargs=(1,)
    )


@cache
def keep_freed_memory() -> None:
    """Have the C library keep freed memory for the next batch instead of giving it back.

    glibc hands large blocks back to the system when they are freed, and getting them again,
    zeroed page by page, costs as much as computing with them. Once it has seen a block of just
    under 32 MiB freed, it keeps blocks up to that size. Elsewhere this does nothing.
    """
    block = torch.empty(31 << 20, dtype=torch.uint8)
    del block
