"""An accountant by Flower's protocol, which prices its events by turnout's bounds.

For Flower's own wrappers of strategies: `CheckInStrategy` knows its ε itself.
"""

from __future__ import annotations

from dataclasses import asdict
from math import isfinite
from typing import Any

from turnout.accounting import PrivacyCurve
from turnout.core import checks
from turnout.core.errors import ParameterError, UnsupportedError
from turnout.core.optional import unavailable
from turnout.schemes import EveryStep, FixedSize, GaussianNoise, PoissonSampling, Relation, Scheme

try:
    from flwr.serverapp import (  # pyright: ignore[reportMissingImports]
        GaussianPrivacyEvent,
        NeighboringRelation,
        PrivacyConfig,
        PrivacySpent,
        SamplingMethod,
    )
except ImportError as error:
    raise unavailable(error, __name__, "flower") from None

METHOD = "turnout"
_VERSION = 1

RELATIONS = {
    NeighboringRelation.ADD_OR_REMOVE_ONE: Relation.ADD_REMOVE,
    NeighboringRelation.REPLACE_ONE: Relation.REPLACE_ONE,
}
"""Flower's relations by turnout's."""


class CheckedAccountant:
    """Flower's ``PrivacyAccountant``: ε and δ of its sampled Gaussian releases, upper bounds.

    Noise multipliers are over the clip norm. Under replace-one a node moves a sum by twice that,
    which the price counts. So it does under add-or-remove where a fixed number of more nodes is
    sampled, as Flower's wrappers do: another node takes the place of one that is gone.

    Args:
        config: population, relation and sampling of all events.

    Raises:
        UnsupportedError: a relation or sampling that has no price here.
    """

    def __init__(self, config: PrivacyConfig) -> None:
        if config.neighboring_relation not in RELATIONS:
            raise UnsupportedError(f"{config.neighboring_relation} has no price here")
        self._config = config
        self._events: dict[GaussianPrivacyEvent, int] = {}

    @property
    def config(self) -> PrivacyConfig:
        """Population, relation, sampling, δ and the limit on ε."""
        return self._config

    @property
    def num_releases(self) -> int:
        """Releases so far."""
        return sum(self._events.values())

    def compose(self, event: GaussianPrivacyEvent, count: int = 1) -> None:
        """Adds ``count`` releases."""
        self._events = self._with(event, count)

    def get_epsilon(self, delta: float) -> float:
        """Upper bound on ε of all releases so far."""
        checks.open_unit(delta=delta)
        return self._epsilon(self._events, delta)

    def get_delta(self, epsilon: float) -> float:
        """Upper bound on δ of all releases so far."""
        if not isfinite(epsilon) or epsilon < 0:
            raise ParameterError("epsilon", epsilon, "a number from 0")
        return self._curve(self._events).delta(epsilon).upper if self._events else 0.0

    def get_privacy_spent(self, delta: float | None = None) -> PrivacySpent:
        """ε of all releases so far, at the configuration's δ by default."""
        at = self._config.target_delta if delta is None else delta
        return PrivacySpent(self.get_epsilon(at), at, self.num_releases, METHOD)

    def would_exceed(
        self, event: GaussianPrivacyEvent, max_epsilon: float | None = None, count: int = 1
    ) -> bool:
        """Whether ``count`` releases more would cost more than the limit; adds none."""
        limit = self._config.max_epsilon if max_epsilon is None else max_epsilon
        if limit is None:
            raise ParameterError("max_epsilon", None, "a limit, here or in the configuration")
        checks.positive(max_epsilon=limit)
        return self._epsilon(self._with(event, count), self._config.target_delta) > limit

    def state_dict(self) -> dict[str, object]:
        """Configuration and releases, as JSON-ready values."""
        events = [{"event": asdict(event), "count": n} for event, n in self._events.items()]
        return {"version": _VERSION, "backend": METHOD, "config": self._plain(), "events": events}

    def load_state_dict(self, state: dict[str, object]) -> None:
        """Goes on from a state of the same configuration; what was composed before is forgotten.

        Raises:
            ParameterError: another accountant's state, or of another configuration.
        """
        own = {"version": _VERSION, "backend": METHOD, "config": self._plain()}
        if not isinstance(state, dict) or {k: state.get(k) for k in own} != own:
            raise ParameterError("state", state, f"that of an accountant with {own}")
        found: Any = state.get("events")
        try:
            loaded = [(GaussianPrivacyEvent(**one["event"]), one["count"]) for one in found]
        except (KeyError, TypeError, ValueError) as error:
            raise ParameterError("state", state, f"events of this accountant: {error}") from None
        before, self._events = self._events, {}
        try:
            for event, count in loaded:
                self.compose(event, count)
        except BaseException:
            self._events = before
            raise

    def _plain(self) -> dict[str, object]:
        plain = asdict(self._config)
        return {name: getattr(value, "value", value) for name, value in plain.items()}

    def _with(self, event: GaussianPrivacyEvent, count: int) -> dict[GaussianPrivacyEvent, int]:
        """The releases with some more."""
        checks.count(count=count)
        if event.population_size != self._config.population_size:
            expected = f"{self._config.population_size}, as in the configuration"
            raise ParameterError("population_size", event.population_size, expected)
        return {**self._events, event: self._events.get(event, 0) + count}

    def _epsilon(self, events: dict[GaussianPrivacyEvent, int], delta: float) -> float:
        return self._curve(events).epsilon(delta).upper if events else 0.0

    def _curve(self, events: dict[GaussianPrivacyEvent, int]) -> PrivacyCurve:
        """All releases together."""
        sampled = any(event.sample_size < event.population_size for event in events)
        fixed = self._config.sampling_method is SamplingMethod.NO_AMPLIFICATION
        relation = RELATIONS[self._config.neighboring_relation]
        if sampled and fixed and relation is Relation.ADD_REMOVE:
            relation = Relation.REPLACE_ONE
        first, *others = (self._scheme(event, n, relation) for event, n in events.items())
        curve = PrivacyCurve.of(first)
        for scheme in others:
            curve = curve + PrivacyCurve.of(scheme)
        return curve

    def _scheme(self, event: GaussianPrivacyEvent, count: int, relation: Relation) -> Scheme:
        """So many identical releases."""
        size, population = event.sample_size, event.population_size
        law = {
            SamplingMethod.NO_AMPLIFICATION: lambda: EveryStep(count),
            SamplingMethod.POISSON: lambda: PoissonSampling(size / population, count),
            SamplingMethod.WITHOUT_REPLACEMENT: lambda: FixedSize(size, population, count),
        }[self._config.sampling_method]()
        return Scheme(GaussianNoise(event.noise_multiplier), law, relation)
