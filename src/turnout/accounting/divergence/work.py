"""Limit on the work of one computation, in units that are the same on every machine.

`charge` counts units of work on long arrays, and `budget` ends a computation that needs more units
than allowed. A *question* is the computation of one bound for a caller; the context manager
`question` limits the work of a question. `remembered` caches results within a limit of bytes. A
unit is about 10 ns on a processor of 2020, the time to compute one or two numbers of an array. A
question counts the units of each cached result that it uses once, even if the result is not
computed again, so the digits of a bound never depend on the cache.
"""

from __future__ import annotations

import math
import sys
from collections import OrderedDict
from collections.abc import Callable, Generator, Hashable, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, fields, is_dataclass
from functools import lru_cache, partial, update_wrapper
from threading import Lock
from typing import Any, Generic, ParamSpec, TypeVar

import numpy as np

from turnout.core.errors import NumericalError

QUESTION = 2_200_000_000
"""Units of one question: some 20 seconds of a processor."""
SPENT = "the budget of work ended before a bound was certified"
_MOST_BYTES = 1 << 27  # of results that are kept
_LEAST_BYTES = 1 << 10  # that a result counts for


class WorkSpentError(Exception):
    """Error for a computation that exceeds its budget of work.

    The error is no `TurnoutError`, because another bound may still be certified. Callers catch the
    error only if they have another bound, and never while they try grids.
    """


@dataclass(slots=True)
class _Share:
    """Units of work of one result itself, and of each cached result that it uses."""

    own: int = 0
    costs: dict[Hashable, int] = field(default_factory=dict)


@dataclass(slots=True)
class Meter:
    """Counter of units of work, with a limit.

    Attributes:
        limit: number of units of work that may be used.
        used: number of units of work counted so far.
        cut: whether this budget or a budget within it was exceeded.
        paid: results whose units are counted already; further uses of them need no units.
        share: units of the result that is being computed, if any.
    """

    limit: int = sys.maxsize
    used: int = 0
    cut: bool = False
    paid: set[Hashable] = field(default_factory=set)
    share: _Share | None = None

    @property
    def left(self) -> int:
        """Number of units of work that may still be used."""
        return max(self.limit - self.used, 0)

    @property
    def spent(self) -> bool:
        """Whether more units of work were counted than the limit allows."""
        return self.used > self.limit

    def use(self, units: int) -> None:
        """Count units of work; if fewer units are left, none are left afterwards.

        Raises:
            WorkSpentError: fewer than ``units`` units are left.
        """
        self.used += units
        if self.spent:
            raise WorkSpentError

    def pay(self, costs: Mapping[Hashable, int]) -> None:
        """Count the units of a result and of the cached results that it used, each at most once.

        Raises:
            WorkSpentError: fewer units are left.
        """
        for result, units in costs.items():
            if result not in self.paid:
                self.paid.add(result)
                self.use(units)


_METER: ContextVar[Meter] = ContextVar("meter")


def _meter() -> Meter:
    """Meter of the current computation, or a meter without a limit."""
    return _METER.get(None) or Meter()


def charge(units: float) -> None:
    """Count units of work in the current budget.

    Raises:
        WorkSpentError: the budget has fewer than ``units`` units left.
    """
    meter, whole = _meter(), math.ceil(units)
    if meter.share is not None:
        meter.share.own += whole
    meter.use(whole)


@contextmanager
def budget(units: int | None = None, share: float = 1.0) -> Generator[Meter, None, None]:
    """Context manager that limits the work of a computation.

    Args:
        units: largest number of units of work; by default the budget of one question.
        share: largest fraction of the units left in the surrounding budget, from 0 to 1.
    """
    outer = _meter()
    units = QUESTION if units is None else units
    inner = Meter(min(units, math.floor(share * outer.left)), paid=set(outer.paid))
    try:
        with _counting(inner):
            yield inner
    finally:
        inner.cut |= inner.spent
        outer.cut |= inner.cut
        outer.used += min(inner.used, inner.limit)
        if not inner.spent:  # which results a budget reached before it ended depends on the cache
            outer.paid |= inner.paid


@contextmanager
def question(prices: int = 1) -> Generator[Meter, None, None]:
    """Context manager with the budget of work for ``prices`` bounds together.

    Raises:
        NumericalError: the budget of work is used up and no other bound is available.
    """
    with budget(prices * QUESTION) as meter:
        try:
            yield meter
        except WorkSpentError:
            raise NumericalError(SPENT) from None


@contextmanager
def _counting(meter: Meter) -> Generator[None, None, None]:
    token = _METER.set(meter)
    try:
        yield
    finally:
        _METER.reset(token)


@dataclass(frozen=True, slots=True)
class _Result:
    """Cached result, the results that it used with their units, and its approximate size."""

    value: Any
    costs: dict[Hashable, int]
    size: int


class _Store:
    """Cache of the most recently used results, limited in bytes."""

    def __init__(self) -> None:
        self._results: OrderedDict[Hashable, _Result] = OrderedDict()
        self._bytes = 0
        self._lock = Lock()

    def get(self, key: Hashable) -> _Result | None:
        """Cached result, marked as most recently used."""
        with self._lock:
            if key in self._results:
                self._results.move_to_end(key)
            return self._results.get(key)

    def keep(self, key: Hashable, result: _Result) -> None:
        """Cache a result; the least recently used results make room for it."""
        with self._lock:
            self._drop(key)
            self._results[key] = result
            self._bytes += result.size
            while self._bytes > _MOST_BYTES:
                self._drop(next(iter(self._results)))

    def clear(self, function: object) -> None:
        """Remove the results of one function from the cache."""
        with self._lock:
            for key in [key for key in self._results if isinstance(key, tuple)]:
                if key[0] is function:
                    self._drop(key)

    def _drop(self, key: Hashable) -> None:
        result = self._results.pop(key, None)
        self._bytes -= result.size if result is not None else 0


_STORE = _Store()

Arguments = ParamSpec("Arguments")
Returned = TypeVar("Returned")


class remembered(Generic[Arguments, Returned]):  # noqa: N801 (a decorator)
    """Decorator that caches results and counts the work of a result once per budget."""

    def __init__(self, function: Callable[Arguments, Returned]) -> None:
        self._function = function
        update_wrapper(self, function)

    def __call__(self, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Returned:
        """Result of the function, cached or computed."""
        key = (self, args, tuple(sorted(kwargs.items())))
        meter, result = _meter(), _STORE.get(key)
        if result is None:
            value, costs = self._computed(meter, key, partial(self._function, *args, **kwargs))
            result = _Result(value, costs, max(size_of(value), _LEAST_BYTES))
            _STORE.keep(key, result)
        meter.pay(result.costs)
        if meter.share is not None:
            meter.share.costs.update(result.costs)
        return result.value

    def _computed(
        self, meter: Meter, key: Hashable, function: Callable[[], Returned]
    ) -> tuple[Returned, dict[Hashable, int]]:
        """Result of the function, with the units of work of this result and of results it used."""
        counted = Meter(paid=meter.paid) if key in meter.paid else meter
        before, share = counted.share, _Share()
        counted.share = share
        try:
            with _counting(counted):
                value = function()
        finally:
            counted.share = before
        meter.paid.add(key)
        return value, {key: share.own, **share.costs}

    def cache_clear(self) -> None:
        """Remove the results of this function from the cache."""
        _STORE.clear(self)


def size_of(value: Any) -> int:
    """Number of bytes of all arrays in a result: an array, a list or tuple, or a dataclass."""
    if isinstance(value, np.ndarray):
        return value.nbytes
    if not isinstance(value, list | tuple):
        value = [getattr(value, name) for name in _field_names(type(value))]
    return sum(size_of(part) for part in value if not isinstance(part, _SCALARS))


_SCALARS = (float, int, str)


@lru_cache(maxsize=256)
def _field_names(kind: type) -> tuple[str, ...]:
    """Names of the fields of a dataclass; none for other types."""
    return tuple(each.name for each in fields(kind)) if is_dataclass(kind) else ()
