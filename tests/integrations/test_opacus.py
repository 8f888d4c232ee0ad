"""Training loops of Opacus over batches by independent assignment."""

from __future__ import annotations

import opacus
import pytest
import torch
from opacus.accountants import create_accountant
from opacus.schedulers import ExponentialGradClip
from opacus.utils.batch_memory_manager import BatchMemoryManager
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

from turnout.accounting import price
from turnout.core.errors import ParameterError, UnsupportedError
from turnout.integrations.batches import AssignedBatches
from turnout.integrations.opacus import make_private, make_private_with_epsilon
from turnout.randomness import SimulationStreams
from turnout.schemes import CheckIn, FixedAssignment, GaussianNoise, Scheme

DELTA = 1e-5
pytestmark = pytest.mark.filterwarnings("ignore:Full backward hook is firing")


def data(records=60):
    generator = torch.Generator().manual_seed(1)
    inputs = torch.rand(records, 3, generator=generator)
    return TensorDataset(inputs, (inputs.sum(1) > 1.5).long())


def private(records=60, batches=8, epochs=2, noise=1.0, relation="zero-out", **options):
    of = {name: options.pop(name) for name in ("kept", "picks", "probability") if name in options}
    model = nn.Linear(3, 2)
    sampler = AssignedBatches.of(records, batches, epochs, **of)
    loader = sampler.loader(data(records))
    keys = {"noise_multiplier": noise, "max_grad_norm": 1.0, "relation": relation}
    return make_private(model, torch.optim.SGD(model.parameters(), 0.1), loader, **keys | options)


def step(run, inputs, labels):
    run.optimizer.zero_grad()
    nn.functional.cross_entropy(run.module(inputs), labels).backward()
    run.optimizer.step()


def epoch(run):
    for inputs, labels in run.loader:
        step(run, inputs, labels)


def the_price(participation, relation="zero-out", noise=1.0):
    scheme = Scheme(GaussianNoise(noise), participation, relation, unit="example")
    return price(scheme, DELTA).epsilon.upper


def test_epsilon_after_every_step_equals_that_of_the_scheme():
    run = private(batches=4, epochs=2)
    assert run.engine.get_epsilon(DELTA) == 0
    seen = []
    for _ in range(2):
        for inputs, labels in run.loader:
            step(run, inputs, labels)
            seen.append(run.engine.get_epsilon(DELTA))
    assert seen[3] == the_price(CheckIn(4, 1))
    assert seen[7] == the_price(CheckIn(4, 2))
    assert seen == sorted(seen)
    assert seen[0] == the_price(CheckIn(1, 1, 0.25))


@pytest.mark.parametrize(("kept", "epsilon"), [(False, 1.852), (True, 6.310)])
def test_epsilon_of_forty_batches_and_four_epochs_has_the_documented_value(kept, epsilon):
    run = private(2000, 40, 4, kept=kept)
    for _ in range(4):
        epoch(run)
    assert run.engine.get_epsilon(DELTA) == pytest.approx(epsilon, abs=5e-4)
    participation = FixedAssignment(40, 4) if kept else CheckIn(40, 4)
    assert run.engine.get_epsilon(DELTA) == the_price(participation)


def test_make_private_with_epsilon_uses_the_least_noise():
    model = nn.Linear(3, 2)
    loader = AssignedBatches.of(60, 8, 2).loader(data())
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    run = make_private_with_epsilon(
        model,
        optimizer,
        loader,
        target_epsilon=2.0,
        target_delta=DELTA,
        max_grad_norm=1.0,
        relation="zero-out",
    )
    epoch(run), epoch(run)
    assert 1.99 < run.engine.get_epsilon(DELTA) <= 2.0


def test_an_empty_batch_releases_noise_divided_by_the_expected_batch_size():
    run = private(5, 8, 1, noise=2.0)
    before = [parameter.clone() for parameter in run.optimizer.params]
    sizes = []
    for inputs, labels in run.loader:
        sizes.append(len(inputs))
        assert (inputs.shape[1], labels.dtype) == (3, torch.int64)
        step(run, inputs, labels)
        moved = [not torch.equal(a, b) for a, b in zip(run.optimizer.params, before, strict=True)]
        assert all(moved)
        assert all(torch.isfinite(parameter).all() for parameter in run.optimizer.params)
        before = [parameter.clone() for parameter in run.optimizer.params]
    assert 0 in sizes
    assert sum(sizes) == 5
    assert run.optimizer.expected_batch_size == 5 / 8
    assert run.engine.get_epsilon(DELTA) == the_price(CheckIn(8, 1), noise=2.0)


def test_the_released_noise_has_the_scale_of_the_scheme():
    """Without records in a batch the gradient is noise over the divisor alone."""
    model = nn.Linear(200, 200)
    loader = AssignedBatches.of(40, 80, 1, probability=1e-9).loader(
        TensorDataset(torch.zeros(40, 200), torch.zeros(40).long())
    )
    keys = {"noise_multiplier": 1.5, "max_grad_norm": 2.0, "relation": "zero-out"}
    run = make_private(model, torch.optim.SGD(model.parameters(), 0.0), loader, **keys)
    step(run, *next(iter(run.loader)))
    deviation = torch.cat([p.grad.flatten() for p in run.optimizer.params]).std().item()
    assert deviation == pytest.approx(1.5 * 2.0 / (0.5 * 1e-9), rel=0.03)


def test_the_noise_does_not_depend_on_a_seed():
    grads = []
    for _ in range(2):
        torch.manual_seed(7)
        run = private(5, 1, 1)
        run.optimizer.original_optimizer.param_groups[0]["lr"] = 0.0
        step(run, *next(iter(run.loader)))
        grads.append(run.optimizer.params[0].grad.clone())
    assert not torch.equal(*grads)


def test_microbatches_of_one_batch_count_as_one_step():
    run = private(60, 4, 1)
    taken = 0
    manager = BatchMemoryManager(
        data_loader=run.loader, max_physical_batch_size=5, optimizer=run.optimizer
    )
    with manager as loader:
        for inputs, labels in loader:
            assert len(inputs) <= 5
            step(run, inputs, labels)
            taken += 1
    assert taken > 4
    assert len(run.engine.accountant) == 4
    assert run.engine.get_epsilon(DELTA) == the_price(CheckIn(4, 1))


def test_a_checkpoint_continues_with_batches_and_epsilon(tmp_path):
    path = tmp_path / "run.pt"
    first = private(30, 4, 1)
    batches = iter(first.loader)
    step(first, *next(batches))
    first.engine.save_checkpoint(path=path, module=first.module, optimizer=first.optimizer)
    again = private(30, 4, 1)
    again.engine.load_checkpoint(path=path, module=again.module, optimizer=again.optimizer)
    assert again.engine.get_epsilon(DELTA) == first.engine.get_epsilon(DELTA) > 0
    for (mine, _), (theirs, _) in zip(again.loader, batches, strict=True):
        assert torch.equal(mine, theirs)
    alone = create_accountant("turnout")
    alone.load_state_dict(first.engine.accountant.state_dict())
    assert alone.get_epsilon(DELTA) == first.engine.get_epsilon(DELTA)
    with pytest.raises(ParameterError, match="state_dict"):
        private(30, 4, 1, noise=2.0).engine.accountant.load_state_dict(alone.state_dict())


def shuffled(dataset):
    return DataLoader(dataset, batch_size=5, shuffle=True)


def sequential(dataset):
    return DataLoader(dataset, batch_sampler=BatchSampler(range(60), 5, False))


def simulated(dataset):
    source = SimulationStreams(1).source("batches")
    return AssignedBatches(CheckIn(4, 2), 60, source).loader(dataset)


@pytest.mark.parametrize(
    ("loader", "words"),
    [
        (shuffled, r"shuffle=True.*AssignedBatches\.of.*batches\.loader\(data\)"),
        (sequential, r"BatchSampler has no analysis.*AssignedBatches\.of"),
        (lambda dataset: DataLoader(dataset, batch_size=None), "batch_size=None"),
        (simulated, "simulation"),
    ],
)
def test_an_error_about_an_unsupported_loader_names_the_loader(loader, words):
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    keys = {"noise_multiplier": 1.0, "max_grad_norm": 1.0, "relation": "zero-out"}
    with pytest.raises(UnsupportedError, match=words):
        make_private(model, optimizer, loader(data()), **keys)


def test_add_remove_needs_a_public_size_instead_of_the_number_of_records():
    with pytest.raises(ParameterError, match="public_size"):
        private(relation="add-remove")
    run = private(60, 8, 2, relation="add-remove", public_size=80)
    assert run.optimizer.expected_batch_size == 10


@pytest.mark.parametrize(
    "option", [{"clipping": "adaptive"}, {"grad_sample_mode": "ghost"}, {"noise_generator": 1}]
)
def test_options_without_a_privacy_analysis_are_refused(option):
    with pytest.raises(UnsupportedError, match=f"{next(iter(option))} = "):
        private(**option)


def test_repeated_and_combined_optimizer_steps_are_refused():
    run = private(60, 4, 1)
    inputs, labels = next(iter(run.loader))
    step(run, inputs, labels)
    with pytest.raises(UnsupportedError, match="a second"):
        step(run, inputs, labels)
    run = private(60, 4, 1)
    run.optimizer.noise_multiplier = 0.5
    with pytest.raises(ParameterError, match=r"noise_multiplier = 0\.5: expected 1"):
        epoch(run)
    run = private(60, 4, 1)
    for inputs, labels in run.loader:
        nn.functional.cross_entropy(run.module(inputs), labels).backward()
    with pytest.raises(UnsupportedError, match="several batches"):
        run.optimizer.step()


def test_a_release_must_use_the_last_fetched_batch():
    run = private(60, 8, 1)
    kept = list(run.loader)
    with pytest.raises(UnsupportedError, match="8 batches were fetched"):
        step(run, *kept[0])
    run = private(60, 8, 1)
    batches = iter(run.loader)
    next(batches)
    with pytest.raises(UnsupportedError, match="2 batches were fetched"):
        step(run, *next(batches))
    assert len(run.engine.accountant) == 0


def with_workers(records, batches):
    model, sampler = nn.Linear(3, 2), AssignedBatches.of(records, batches, 1)
    loader = sampler.loader(data(records), num_workers=2)
    keys = {"noise_multiplier": 1.0, "max_grad_norm": 1.0, "relation": "zero-out"}
    return make_private(model, torch.optim.SGD(model.parameters(), 0.1), loader, **keys)


def test_prefetching_workers_do_not_permit_a_second_release():
    run = with_workers(60, 6)
    epoch(run)
    assert run.engine.get_epsilon(DELTA) == the_price(CheckIn(6, 1))
    run = with_workers(60, 6)
    batch = next(iter(run.loader))
    step(run, *batch)
    with pytest.raises(UnsupportedError, match="a second"):
        step(run, *batch)


def test_gradients_of_an_interrupted_batch_are_never_released():
    run = private(60, 2, 1)

    def pieces():
        return BatchMemoryManager(
            data_loader=run.loader, max_physical_batch_size=5, optimizer=run.optimizer
        )

    with pieces() as loader:
        step(run, *next(iter(loader)))
    assert run.optimizer.params[0].summed_grad is not None
    sizes = []
    with pieces() as loader:
        for inputs, labels in loader:
            sizes.append(len(inputs))
            step(run, inputs, labels)
            if len(sizes) == 1:  # from this piece alone
                alone = run.optimizer.params[0].summed_grad.norm()
                assert alone <= len(inputs) * (1 + 1e-5)
    assert len(run.engine.accountant) == 2
    assert not run.optimizer._step_skip_queue


def test_changes_of_the_clip_norm_noise_or_divisor_are_refused():
    def halved_noise(run):
        ExponentialGradClip(run.optimizer, gamma=0.5).step()

    def fewer(run):
        run.optimizer.expected_batch_size = 1.0

    norms = {"clipping": "per_layer", "max_grad_norm": [1.0, 1.0]}
    for change, options in ((halved_noise, norms), (halved_noise, {}), (fewer, {})):
        run = private(60, 4, 1, **options)
        change(run)
        with pytest.raises(ParameterError, match="as at make_private"):
            epoch(run)
    for norm in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(ParameterError, match="max_grad_norm"):
            private(max_grad_norm=norm)


def test_each_batch_is_counted_once_even_with_an_optimizer_hook():
    run = private(60, 4, 1)
    run.optimizer.attach_step_hook(lambda optimizer: None)
    epoch(run)
    assert run.engine.get_epsilon(DELTA) == the_price(CheckIn(4, 1))
    sampler = AssignedBatches.of(60, 4, 2)
    keys = {"max_grad_norm": 1.0, "relation": "zero-out"}
    for noise in (0.5, 4.0):
        model = nn.Linear(3, 2)
        made = (model, torch.optim.SGD(model.parameters(), 0.1), sampler.loader(data()))
        if noise == 0.5:
            make_private(*made, noise_multiplier=noise, **keys)
        else:
            with pytest.raises(UnsupportedError, match="have an accountant"):
                make_private(*made, noise_multiplier=noise, **keys)


class EveryBatch(AssignedBatches):
    """A sampler with all records in every batch, under the same participation."""

    def __iter__(self):
        return iter([list(range(60))] * 4)


def test_a_subclass_of_the_sampler_is_refused():
    model, loader = nn.Linear(3, 2), EveryBatch.of(60, 4, 1).loader(data())
    with pytest.raises(UnsupportedError, match="EveryBatch has no analysis"):
        make_private(
            model, torch.optim.SGD(model.parameters(), 0.1), loader,
            noise_multiplier=1.0, max_grad_norm=1.0, relation="zero-out",
        )  # fmt: skip


def test_the_accountant_has_no_epsilon_for_releases_without_a_scheme():
    accountant = create_accountant("turnout")
    assert accountant.get_epsilon(DELTA) == 0.0
    accountant.history = [(0.1, 0.5, 1000)]
    with pytest.raises(UnsupportedError, match="counts only steps of"):
        accountant.get_epsilon(DELTA)


def test_the_accountant_refuses_data_loaders_of_opacus():
    engine = opacus.PrivacyEngine  # Opacus' Poisson loader under our accountant
    model = nn.Linear(3, 2)
    with pytest.warns(UserWarning, match="Secure RNG"):
        engine = engine(accountant="turnout")
    model, optimizer, loader = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), 0.1),
        data_loader=DataLoader(
            data(), batch_sampler=BatchSampler(RandomSampler(data()), 30, False)
        ),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
    )
    inputs, labels = next(iter(loader))
    nn.functional.cross_entropy(model(inputs), labels).backward()
    with pytest.raises(UnsupportedError, match="counts only steps of"):
        optimizer.step()
