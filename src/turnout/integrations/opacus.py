"""Opacus with independent random assignment of records to batches, and ε after every step.

`make_private` and `make_private_with_epsilon` wrap a training loop; `AssignmentAccountant` is an
accountant for Opacus that returns ε after every step.

The loader's sampler draws batches by a participation of `turnout.schemes`, and the accountant
computes the ε of the same participation. The privacy unit is a record (`PrivacyUnit.EXAMPLE`),
and the trainer is trusted. Opacus clips and sums the gradients. The noise is drawn from the
operating system, and sums are divided by the *expected* size of a batch.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from turnout.accounting import PrivacyCurve, calibrate_noise
from turnout.core import checks
from turnout.core.errors import ParameterError, UnsupportedError
from turnout.core.optional import unavailable
from turnout.integrations.assignment import Assignment, system_gaussian
from turnout.integrations.batches import AssignedBatches
from turnout.schemes import GaussianNoise, PrivacyUnit, Relation, Scheme
from turnout.schemes.codec import scheme_from_dict, scheme_to_dict

try:
    from opacus.accountants import IAccountant
    from opacus.accountants.registry import register_accountant
    from opacus.optimizers import DPOptimizer
except ImportError as error:
    raise unavailable(error, "turnout.integrations.opacus", "opacus") from None


_NOT_OURS = (
    "the accountant 'turnout' counts only steps of turnout.integrations.opacus.make_private: make "
    "this loop with make_private"
)


class AssignmentAccountant(IAccountant):
    """Accountant of Opacus that returns ε of the batches used so far.

    The accountant is registered as ``"turnout"``, and counts the steps of one assignment. A step
    is an error if its batch was released already, if its noise differs from the
    scheme's, or if it sums several batches.
    """

    def __init__(self) -> None:
        self.history: list[tuple[float, float, int]] = []
        self.scheme: Scheme | None = None
        self._assignment: Assignment | None = None
        self._charged, self._sample_rate = False, 0.0
        self._priced: dict[tuple[int, float], float] = {}

    def follow(self, scheme: Scheme, assignment: Assignment) -> None:
        """Count the steps of an assignment that is drawn by the scheme's participation.

        Args:
            scheme: scheme of the run.
            assignment: the batches of the run, unused so far.

        Raises:
            ParameterError: an assignment of another participation.
            UnsupportedError: an assignment that was used or that another accountant counts.
        """
        if assignment.participation != scheme.participation:
            raise ParameterError(
                "assignment", assignment.participation, f"drawn by {scheme.participation}"
            )
        if assignment.followed or assignment.dealt:
            raise UnsupportedError(
                "these batches were used before or have an accountant, which would not count this "
                "run's releases: make new batches by AssignedBatches.of"
            )
        assignment.followed = True
        self.scheme, self._assignment = scheme, assignment

    def step(self, *, noise_multiplier: float, sample_rate: float) -> None:
        """Count one release; ``sample_rate`` is ignored.

        Raises:
            ParameterError: another noise multiplier than the scheme's.
            UnsupportedError: no assignment, or a batch that was released already.
        """
        if self.scheme is None or self._assignment is None:
            raise UnsupportedError(_NOT_OURS)
        assert isinstance(self.scheme.randomizer, GaussianNoise)
        if noise_multiplier != self.scheme.randomizer.noise_multiplier:
            expected = f"{self.scheme.randomizer.noise_multiplier:g} in every step"
            raise ParameterError("noise_multiplier", noise_multiplier, expected)
        self._assignment.use()
        self.history = [(noise_multiplier, sample_rate, self._assignment.used)]

    def get_optimizer_hook_fn(self, sample_rate: float) -> Callable[[DPOptimizer], None]:
        """Hook that an optimizer calls before each step, to check that the release was counted.

        The hook raises an UnsupportedError for the step of another optimizer than make_private's.
        """

        def hook(optimizer: DPOptimizer) -> None:
            del optimizer
            if not self._charged:
                raise UnsupportedError(_NOT_OURS)
            self._charged = False

        self._sample_rate = sample_rate
        return hook

    def charge(self, optimizer: DPOptimizer) -> None:
        """Count the release for which an optimizer of make_private is about to draw noise.

        Raises:
            ParameterError: the optimizer has another noise multiplier than the scheme.
            UnsupportedError: the step sums several batches, or its batch was released already.
        """
        if optimizer.accumulated_iterations != 1:
            raise UnsupportedError(
                "one step sums several batches: call zero_grad after each batch, or split "
                "large batches by BatchMemoryManager"
            )
        self.step(noise_multiplier=optimizer.noise_multiplier, sample_rate=self._sample_rate)
        self._charged = True

    def get_epsilon(self, delta: float, *args: Any, **kwargs: Any) -> float:
        """Upper bound on ε of all releases so far, at δ in (0, 1), as `turnout.price` computes it.

        Raises:
            ParameterError: δ is outside (0, 1).
            UnsupportedError: releases were counted without a scheme.
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
        """Name of this accountant in Opacus."""
        return "turnout"

    def state_dict(self, destination: Any = None) -> Any:
        """Steps, scheme and assignment; keep them secret, as they reveal the records in batches."""
        state = super().state_dict(destination)
        state["scheme"] = None if self.scheme is None else scheme_to_dict(self.scheme)
        state["assignment"] = None if self._assignment is None else self._assignment.state_dict()
        return state

    def load_state_dict(self, state_dict: Any) -> None:
        """Continue from a state; without a loader `get_epsilon` returns ε of the state's steps.

        Raises:
            ParameterError: the state belongs to a run with another scheme.
        """
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


try:
    import torch
    from opacus import PrivacyEngine
    from opacus.distributed import DifferentiallyPrivateDistributedDataParallel
    from opacus.optimizers import DPOptimizer
    from opacus.optimizers.optimizer import _check_processed_flag, _mark_as_processed
    from torch import nn, optim
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader, RandomSampler
except ImportError as error:
    raise unavailable(error, __name__, "opacus") from None

_OPTIONS = {
    "batch_first": (True, False),
    "clipping": ("flat", "per_layer"),
    "grad_sample_mode": ("hooks", "functorch", "ew"),
    "loss_reduction": ("mean", "sum"),
    "wrap_model": (True, False),
}
"""Options of Opacus' make_private that may be given, each with its permitted values."""


class Private(NamedTuple):
    """Objects of a private training loop; ``engine.get_epsilon(delta)`` returns the ε so far."""

    module: Any
    optimizer: DPOptimizer
    loader: DataLoader[Any]
    engine: PrivacyEngine


def make_private(
    module: nn.Module,
    optimizer: optim.Optimizer,
    loader: DataLoader[Any],
    *,
    noise_multiplier: float,
    max_grad_norm: float | list[float],
    relation: Relation | str,
    public_size: int | None = None,
    **options: Any,
) -> Private:
    """Opacus' module, optimizer and engine, and a loader that also returns empty batches.

    Args:
        module: a module that Opacus supports.
        optimizer: optimizer of the module's parameters.
        loader: result of `AssignedBatches.loader`, or a DataLoader whose ``batch_sampler`` is an
            `AssignedBatches`.
        noise_multiplier: standard deviation of the noise divided by ``max_grad_norm``, above 0.
        max_grad_norm: clip norm of one record's gradient, above 0; for per_layer clipping a list.
        relation: neighbouring relation of data sets. Under "zero-out" and "replace-one" the
            number of records is public.
        public_size: a public number of records, from which the divisor of the sums is computed;
            required under "add-remove", where the true number is private.
        options: ``batch_first``, ``clipping`` (flat, per_layer), ``grad_sample_mode`` (hooks,
            functorch, ew), ``loss_reduction`` and ``wrap_model`` of Opacus.

    Returns:
        Module, optimizer, loader and engine. The engine's ε is an upper bound for the batches used
        so far.

    Raises:
        ParameterError: a value outside its domain.
        UnsupportedError: a loader or an option for which no bound is known.
    """
    # Errors for what has no bound, before anything is wrapped.
    batches = _assigned(loader)
    scheme = _scheme(noise_multiplier, batches, relation)
    _check_options(module, scheme, public_size, options)
    several = isinstance(max_grad_norm, list | tuple)
    for norm in max_grad_norm if several else [max_grad_norm]:
        checks.positive(max_grad_norm=norm)
    # Opacus' own engine, with a loader that keeps the options of the given one.
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Secure RNG turned off")  # noise is the system's
        engine = PrivacyEngine(accountant="turnout")
    keep = ("num_workers", "pin_memory", "timeout", "worker_init_fn", "multiprocessing_context")
    keep += ("generator", "prefetch_factor", "persistent_workers", "collate_fn")
    loader = batches.loader(loader.dataset, **{name: getattr(loader, name) for name in keep})
    made: Any = engine.make_private(
        module=module,
        optimizer=optimizer,
        data_loader=loader,
        noise_multiplier=noise_multiplier,
        max_grad_norm=max_grad_norm,
        poisson_sampling=False,
        **options,
    )
    wrapped, private, loader = made
    # Sums are divided by a public number, never by the size of a batch.
    scale = 1.0 if public_size is None else public_size / batches.assignment.records
    private.expected_batch_size = scale * batches.expected_batch_size
    # From here on each release is counted before its noise is drawn.
    accountant = engine.accountant
    assert isinstance(accountant, AssignmentAccountant)
    accountant.follow(scheme, batches.assignment)
    batches.assignment.on_pass = partial(_forget, private)
    private.add_noise = partial(_release, private, accountant, _constants(private))
    return Private(wrapped, private, loader, engine)


def make_private_with_epsilon(
    module: nn.Module,
    optimizer: optim.Optimizer,
    loader: DataLoader[Any],
    *,
    target_epsilon: float,
    target_delta: float,
    relation: Relation | str,
    **rest: Any,
) -> Private:
    """Result of `make_private` with the least noise for which ε is at most the target at δ.

    Args:
        module: a module that Opacus supports.
        optimizer: optimizer of the module's parameters.
        loader: result of `AssignedBatches.loader`.
        target_epsilon: ε of the whole run, above 0; never exceeded.
        target_delta: δ, in (0, 1).
        relation: neighbouring relation of data sets.
        rest: the other arguments of `make_private`.

    Raises:
        ParameterError: a value outside its domain, or an ε that no noise reaches.
        UnsupportedError: a loader or an option for which no bound is known.
    """
    batches = _assigned(loader)
    noise = calibrate_noise(
        lambda sigma: _scheme(sigma, batches, relation), target_epsilon, target_delta
    )
    return make_private(
        module, optimizer, loader, noise_multiplier=noise, relation=relation, **rest
    )


def _scheme(noise_multiplier: float, batches: AssignedBatches, relation: Relation | str) -> Scheme:
    """Scheme of a run with these batches; the unit is a record."""
    noise = GaussianNoise(noise_multiplier)
    return Scheme(noise, batches.participation, relation, unit=PrivacyUnit.EXAMPLE)


def _assigned(loader: DataLoader[Any]) -> AssignedBatches:
    """The loader's sampler, if it is `AssignedBatches` with secure randomness.

    Raises:
        UnsupportedError: the loader has another sampler, which the error names, or a sampler with a
            simulation's randomness.
    """
    sampler = loader.batch_sampler
    if type(sampler) is AssignedBatches:  # a subclass may draw by another distribution
        if not sampler.assignment.source.secure:
            raise UnsupportedError("batches drawn for a simulation have no privacy guarantee")
        return sampler
    name = type(sampler).__name__ if sampler is not None else "DataLoader(batch_size=None)"
    if isinstance(loader.sampler, RandomSampler):
        name = "DataLoader(shuffle=True), which draws records without replacement,"
    raise UnsupportedError(
        f"{name} has no analysis; use two lines: "
        "`batches = AssignedBatches.of(len(data), batches=…, epochs=…)` and "
        "`loader = batches.loader(data)` (turnout.integrations.batches)"
    )


def _check_options(
    module: nn.Module, scheme: Scheme, public_size: int | None, options: dict[str, Any]
) -> None:
    """Raise an error for a module, an option or a public size for which no bound is known."""
    if isinstance(module, DistributedDataParallel | DifferentiallyPrivateDistributedDataParallel):
        raise UnsupportedError("each process would draw its own batches: train in one process")
    for name, value in options.items():
        if name not in _OPTIONS or value not in _OPTIONS[name]:
            raise UnsupportedError(f"{name} = {value!r} has no analysis")
    if public_size is not None:
        checks.count(public_size=public_size)
    elif scheme.relation is Relation.ADD_REMOVE:
        expected = "a public number of records, since add-remove hides the true number"
        raise ParameterError("public_size", None, expected)


def _constants(optimizer: DPOptimizer) -> tuple[float, ...]:
    """Clip norms and divisor of an optimizer; they are public and the same in all steps."""
    norms = getattr(optimizer, "max_grad_norms", ())
    assert optimizer.expected_batch_size is not None
    return (optimizer.max_grad_norm, *map(float, norms), optimizer.expected_batch_size)


def _forget(optimizer: DPOptimizer) -> None:
    """Discard gradients of an interrupted batch, so that no later release contains them."""
    for parameter in optimizer.params:
        parameter.grad_sample = parameter.summed_grad = None  # pyright: ignore[reportAttributeAccessIssue]
    optimizer._step_skip_queue.clear()
    optimizer._is_last_step_skipped = False


def _release(
    optimizer: DPOptimizer, accountant: AssignmentAccountant, constants: tuple[float, ...]
) -> None:
    """Count a release, then draw the noise.

    Raises:
        ParameterError: the clip norms or the divisor changed since `make_private`.
    """
    found = _constants(optimizer)
    if found != constants:
        expected = f"{constants} in every step, the same as at make_private"
        raise ParameterError("clip norms and expected_batch_size", found, expected)
    accountant.charge(optimizer)
    _add_system_noise(optimizer)


def _add_system_noise(optimizer: DPOptimizer) -> None:
    """Add Opacus' noise, drawn from the operating system instead of PyTorch's seeded generator."""
    deviation = optimizer.noise_multiplier * optimizer.max_grad_norm
    for parameter in optimizer.params:
        summed: torch.Tensor = parameter.summed_grad  # pyright: ignore[reportAttributeAccessIssue]
        _check_processed_flag(summed)
        noise = torch.from_numpy(deviation * system_gaussian(summed.numel())).to(summed)
        parameter.grad = (summed + noise.view_as(summed)).view_as(parameter)
        _mark_as_processed(summed)
