"""Opacus with batches by independent assignment, priced after every step.

`make_private` and `make_private_with_epsilon` wrap a training loop; `AssignmentAccountant` is an
accountant for Opacus that knows ε after every step.

The loader's sampler draws batches by a participation of `turnout.schemes`, and the accountant
prices that same one: the bound is for each record (`PrivacyUnit.EXAMPLE`) and a trusted trainer.
Opacus clips and sums; noise is drawn from the operating system, and sums are divided by the
*expected* size of a batch.
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
from turnout.integrations.assignment import AssignedBatches, Assignment, system_gaussian
from turnout.schemes import GaussianNoise, PrivacyUnit, Relation, Scheme
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
        if assignment.participation != scheme.participation:
            raise ParameterError(
                "assignment", assignment.participation, f"dealt by {scheme.participation}"
            )
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
"""Options of Opacus' make_private that may be chosen; all else is decided here or has no price."""


class Private(NamedTuple):
    """The parts of a private loop; ``engine.get_epsilon(delta)`` is ε so far."""

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
    """Opacus' module, optimizer and engine, and the loader with empty batches.

    Args:
        module: as Opacus wants it.
        optimizer: of its parameters.
        loader: `AssignedBatches.loader`, or a DataLoader with that ``batch_sampler``.
        noise_multiplier: standard deviation of the noise over ``max_grad_norm``.
        max_grad_norm: clip norm of one record's gradient.
        relation: what neighbouring data sets differ in. Under "zero-out" and "replace-one" the
            number of records is public.
        public_size: a public number of records, which sums are divided by; required under
            "add-remove", where the true one is private.
        options: ``batch_first``, ``clipping`` (flat, per_layer), ``grad_sample_mode`` (hooks,
            functorch, ew), ``loss_reduction`` and ``wrap_model`` of Opacus.

    Raises:
        ParameterError: a value outside its domain.
        UnsupportedError: a loader or an option that has no price here.
    """
    batches = _assigned(loader)
    scheme = _scheme(noise_multiplier, batches, relation)
    _check_options(module, scheme, public_size, options)
    several = isinstance(max_grad_norm, list | tuple)
    for norm in max_grad_norm if several else [max_grad_norm]:
        checks.positive(max_grad_norm=norm)
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
    scale = 1.0 if public_size is None else public_size / batches.assignment.records
    private.expected_batch_size = scale * batches.expected_batch_size
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
    """`make_private` with the least noise whose whole run stays within ε at δ."""
    batches = _assigned(loader)
    noise = calibrate_noise(
        lambda sigma: _scheme(sigma, batches, relation), target_epsilon, target_delta
    )
    return make_private(
        module, optimizer, loader, noise_multiplier=noise, relation=relation, **rest
    )


def _scheme(noise_multiplier: float, batches: AssignedBatches, relation: Relation | str) -> Scheme:
    noise = GaussianNoise(noise_multiplier)
    return Scheme(noise, batches.participation, relation, unit=PrivacyUnit.EXAMPLE)


def _assigned(loader: DataLoader[Any]) -> AssignedBatches:
    """The loader's sampler; refuses all others by their names."""
    sampler = loader.batch_sampler
    if type(sampler) is AssignedBatches:  # a subclass may deal by another law
        if not sampler.assignment.source.secure:
            raise UnsupportedError("batches that were drawn for a simulation protect nobody")
        return sampler
    name = type(sampler).__name__ if sampler is not None else "DataLoader(batch_size=None)"
    if isinstance(loader.sampler, RandomSampler):
        name = "DataLoader(shuffle=True), which deals records without replacement,"
    raise UnsupportedError(
        f"{name} has no price here; take two lines: "
        "`batches = AssignedBatches.of(len(data), batches=…, epochs=…)` and "
        "`loader = batches.loader(data)` (turnout.integrations.assignment)"
    )


def _check_options(
    module: nn.Module, scheme: Scheme, public_size: int | None, options: dict[str, Any]
) -> None:
    if isinstance(module, DistributedDataParallel | DifferentiallyPrivateDistributedDataParallel):
        raise UnsupportedError("each process would draw batches of its own: train in one process")
    for name, value in options.items():
        if name not in _OPTIONS or value not in _OPTIONS[name]:
            raise UnsupportedError(f"{name} = {value!r} has no price here")
    if public_size is not None:
        checks.count(public_size=public_size)
    elif scheme.relation is Relation.ADD_REMOVE:
        expected = "a public number of records: add-remove hides the true one"
        raise ParameterError("public_size", None, expected)


def _constants(optimizer: DPOptimizer) -> tuple[float, ...]:
    """What clips, what scales the noise and what divides: public, and the same in every step."""
    norms = getattr(optimizer, "max_grad_norms", ())
    assert optimizer.expected_batch_size is not None
    return (optimizer.max_grad_norm, *map(float, norms), optimizer.expected_batch_size)


def _forget(optimizer: DPOptimizer) -> None:
    """Drops pieces of a batch that was broken off: no release of a later one may hold them."""
    for parameter in optimizer.params:
        parameter.grad_sample = parameter.summed_grad = None  # pyright: ignore[reportAttributeAccessIssue]
    optimizer._step_skip_queue.clear()
    optimizer._is_last_step_skipped = False


def _release(
    optimizer: DPOptimizer, accountant: AssignmentAccountant, constants: tuple[float, ...]
) -> None:
    """Charges a release, then draws its noise."""
    found = _constants(optimizer)
    if found != constants:
        expected = f"{constants}, as of make_private, in every step"
        raise ParameterError("clip norms and expected_batch_size", found, expected)
    accountant.charge(optimizer)
    _add_system_noise(optimizer)


def _add_system_noise(optimizer: DPOptimizer) -> None:
    """Opacus' own noise, drawn from the operating system instead of PyTorch's seeded generator."""
    deviation = optimizer.noise_multiplier * optimizer.max_grad_norm
    for parameter in optimizer.params:
        summed: torch.Tensor = parameter.summed_grad  # pyright: ignore[reportAttributeAccessIssue]
        _check_processed_flag(summed)
        noise = torch.from_numpy(deviation * system_gaussian(summed.numel())).to(summed)
        parameter.grad = (summed + noise.view_as(summed)).view_as(parameter)
        _mark_as_processed(summed)
