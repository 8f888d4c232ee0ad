"""An accountant for Opacus that knows ε of batches by independent assignment after every step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from turnout.accounting import PrivacyCurve
from turnout.core import checks
from turnout.core.errors import ParameterError, UnsupportedError
from turnout.core.optional import unavailable
from turnout.integrations.assignment import Assignment
from turnout.schemes import GaussianNoise, Scheme
from turnout.schemes.codec import scheme_from_dict, scheme_to_dict

try:
    from opacus.accountants import IAccountant
    from opacus.accountants.registry import register_accountant
    from opacus.optimizers import DPOptimizer
except ImportError as error:
    raise unavailable(error, "turnout.integrations.opacus", "opacus") from None


_NOT_OURS = (
    "the accountant 'turnout' prices the loaders of turnout.integrations.opacus.make_private "
    "alone, and this one is not of them"
)


class AssignmentAccountant(IAccountant):
    """An accountant of Opacus' that knows ε of the batches used so far.

    Registered as ``"turnout"``. It counts steps of the assignment that it follows and refuses a
    step whose batch has had its release, whose noise is not the scheme's, or that adds up several
    batches.
    """

    def __init__(self) -> None:
        self.history: list[tuple[float, float, int]] = []
        self.scheme: Scheme | None = None
        self._assignment: Assignment | None = None
        self._charged, self._sample_rate = False, 0.0
        self._priced: dict[tuple[int, float], float] = {}

    def follow(self, scheme: Scheme, assignment: Assignment) -> None:
        """Counts the steps of this assignment from now on, which is dealt by the scheme's law.

        Raises:
            ParameterError: it is dealt by another law.
            UnsupportedError: batches of it were handed out, or are counted by another accountant.
        """
        if assignment.law != scheme.participation:
            raise ParameterError("assignment", assignment.law, f"dealt by {scheme.participation}")
        if assignment.followed or assignment.dealt:
            raise UnsupportedError(
                "these batches were used before or have an accountant, which would not count "
                "this one's releases: make new ones by AssignedBatches.of"
            )
        assignment.followed = True
        self.scheme, self._assignment = scheme, assignment

    def step(self, *, noise_multiplier: float, sample_rate: float) -> None:
        """Counts one release; ``sample_rate`` decides nothing here."""
        if self.scheme is None or self._assignment is None:
            raise UnsupportedError(_NOT_OURS)
        assert isinstance(self.scheme.randomizer, GaussianNoise)
        if noise_multiplier != self.scheme.randomizer.noise_multiplier:
            expected = f"{self.scheme.randomizer.noise_multiplier:g} in every step"
            raise ParameterError("noise_multiplier", noise_multiplier, expected)
        self._assignment.use()
        self.history = [(noise_multiplier, sample_rate, self._assignment.used)]

    def get_optimizer_hook_fn(self, sample_rate: float) -> Callable[[DPOptimizer], None]:
        """The function that an optimizer calls before each of its steps; refuses uncharged ones."""

        def hook(optimizer: DPOptimizer) -> None:
            del optimizer
            if not self._charged:
                raise UnsupportedError(_NOT_OURS)
            self._charged = False

        self._sample_rate = sample_rate
        return hook

    def charge(self, optimizer: DPOptimizer) -> None:
        """Counts the release that an optimizer of make_private is about to draw noise for."""
        if optimizer.accumulated_iterations != 1:
            raise UnsupportedError(
                "one step adds up several batches: call zero_grad after each, or split large "
                "ones by BatchMemoryManager"
            )
        self.step(noise_multiplier=optimizer.noise_multiplier, sample_rate=self._sample_rate)
        self._charged = True

    def get_epsilon(self, delta: float, *args: Any, **kwargs: Any) -> float:
        """Upper bound on ε of all releases so far, at δ; what `turnout.price` says of them.

        Raises:
            UnsupportedError: releases of no scheme, as of a history that somebody wrote.
        """
        checks.open_unit(delta=delta)
        steps = len(self)
        if not steps:
            return 0.0
        if self.scheme is None:
            raise UnsupportedError(_NOT_OURS)
        if (steps, delta) not in self._priced:
            found = PrivacyCurve.of(self.scheme, steps).epsilon(delta).upper
            self._priced[steps, delta] = found
        return self._priced[steps, delta]

    def __len__(self) -> int:
        if self._assignment is not None:
            return self._assignment.used
        return self.history[-1][2] if self.history else 0

    @classmethod
    def mechanism(cls) -> str:
        """The name under which Opacus knows it."""
        return "turnout"

    def state_dict(self, destination: Any = None) -> Any:
        """Steps, scheme and the assignment: who is in which batch is as secret as the data."""
        state = super().state_dict(destination)
        state["scheme"] = None if self.scheme is None else scheme_to_dict(self.scheme)
        state["assignment"] = None if self._assignment is None else self._assignment.state_dict()
        return state

    def load_state_dict(self, state_dict: Any) -> None:
        """Goes on where the state was taken; without a loader it prices what was used by then."""
        super().load_state_dict(state_dict)
        written = state_dict.get("scheme")
        scheme = None if written is None else scheme_from_dict(written)
        if self._assignment is None:
            self.scheme = scheme
        elif scheme != self.scheme:
            raise ParameterError("state_dict", scheme, f"the state of a run of {self.scheme}")
        else:
            self._assignment.load_state_dict(state_dict["assignment"])


register_accountant(AssignmentAccountant.mechanism(), AssignmentAccountant, force=True)
