"""Users' modules have the sums of a loop over clients, and unsupported modules are refused."""

import copy
import warnings

import numpy as np
import pytest
import torch
from own_modules import (
    CLIENTS,
    Attentive,
    Convolutional,
    Recurrent,
    examples,
    holdings,
    plain_sum,
    quiet_task,
)
from torch import nn

from turnout.core.errors import ParameterError
from turnout.core.identity import identity_of
from turnout.learning.examples import Examples
from turnout.learning.gradients import LocalTraining
from turnout.learning.holdings import Holdings
from turnout.learning.local_updates import SingleUpdates, VmappedUpdates
from turnout.learning.metrics import build_objective
from turnout.learning.module_trials import SlowUpdatesWarning
from turnout.learning.modules import build_module
from turnout.learning.tasks import SupervisedTask

EVERYONE = np.arange(CLIENTS)
CASES = {
    "class": (Convolutional, "class"),
    "tags": (lambda: Convolutional(2), "tags"),
    "numbers": (lambda: Convolutional(2), "numbers"),
    "attention": (Attentive, "tokens"),
    "recurrent": (Recurrent, "tokens"),
}


def made(name):
    """Module, its model and its data."""
    factory, target = CASES[name]
    torch.manual_seed(1)
    module = factory()
    return module, build_module(module), examples(target)


@pytest.mark.parametrize("name", CASES)
def test_the_parameters_of_a_custom_module_have_the_order_of_pytorch(name):
    module, model, _ = made(name)
    vector = nn.utils.parameters_to_vector(module.parameters())
    assert np.array_equal(model.start, vector.detach().numpy())


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("clip_norm", [0.1, 1e3])
def test_clipped_sums_of_custom_modules_agree_with_a_loop_over_clients(name, clip_norm):
    module, model, data = made(name)
    held = holdings(len(data))
    task = quiet_task(model, data, holdings=held)
    found = task.clipped_sum(model.start, EVERYONE, clip_norm)
    expected = plain_sum(module, data, held, clip_norm, list(model.names))
    assert found.count == CLIENTS
    assert np.linalg.norm(found.total - expected) <= 5e-5 * np.linalg.norm(expected)


@pytest.mark.parametrize("name", [name for name in CASES if name != "recurrent"])
def test_updates_of_custom_modules_by_single_client_and_by_vmap_agree(name):
    _, model, data = made(name)
    loss, local = build_objective(data.target).loss, LocalTraining(2, 0.5)
    sums = [
        quiet_task(model, data, holdings=holdings(), updates=kind(model, local, loss)).clipped_sum(
            model.start, EVERYONE, 0.5
        )
        for kind in (VmappedUpdates, SingleUpdates)
    ]
    assert np.linalg.norm(sums[0].total - sums[1].total) <= 5e-5 * np.linalg.norm(sums[1].total)


def test_a_warning_names_a_layer_that_vmap_does_not_support():
    _, model, data = made("recurrent")
    with pytest.warns(SlowUpdatesWarning, match=r"no rule for layer 'memory' \(LSTM\)"):
        SupervisedTask(model, data, data)
    _, fast, data = made("attention")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        SupervisedTask(fast, data, data)


def test_a_module_with_data_dependent_control_flow_gives_a_warning_of_slow_updates():
    class Branching(Convolutional):
        def forward(self, images):
            return super().forward(images if images.sum() > 0 else images + 0.0)

    with pytest.warns(SlowUpdatesWarning, match="own forward"):
        SupervisedTask(build_module(Branching), examples(), examples())


@pytest.mark.parametrize("name", ["class", "attention", "recurrent"])
def test_records_of_other_clients_do_not_change_an_update(name):
    """Client 1 holds NaN or infinities, or sequences in which all tokens are ignored."""
    _, model, data = made(name)
    held = Holdings.from_owners(np.arange(len(data)) // 3, CLIENTS)
    sums = []
    for content in (np.nan, np.inf) if data.target == "class" else (0, 3):
        inputs, labels = data.inputs.copy(), data.labels.copy()
        inputs[3:6] = content
        if data.target == "tokens":
            labels[3:6] = -1
        task = quiet_task(model, Examples(inputs, labels, data.target), holdings=held)
        sums.append(task.clipped_sum(model.start, np.array([0, 1]), 1e-3).total)
    assert np.array_equal(*sums)
    task = quiet_task(model, data, holdings=held)
    alone, other = (task.clipped_sum(model.start, np.array([i]), 1e-3).total for i in (0, 1))
    assert np.linalg.norm(sums[0] - alone) < 1e-8  # the number of clients may change the rounding
    assert np.linalg.norm(other) > 5e-4


@pytest.mark.parametrize("name", ["attention", "recurrent"])
def test_tokens_after_the_last_counted_token_do_not_change_an_update(name):
    _, model, data = made(name)
    inputs = data.inputs.copy()
    inputs[data.labels == -1] = 6  # attention is causal, so earlier tokens do not depend on them
    sums = [
        quiet_task(model, one).clipped_sum(model.start, np.arange(len(data)), 1.0).total
        for one in (data, Examples(inputs, data.labels, "tokens"))
    ]
    assert np.array_equal(*sums)


def test_padding_does_not_change_an_update():
    _, model, data = made("recurrent")
    held = Holdings(np.array([0, 1, 5]), np.arange(5))
    task = quiet_task(model, data, holdings=held)
    both = task.clipped_sum(model.start, np.array([0, 1]), 1.0).total
    each = [task.clipped_sum(model.start, np.array([client]), 1.0).total for client in (0, 1)]
    assert np.allclose(both, each[0] + each[1], atol=1e-7)


class _Mixing(Convolutional):
    def forward(self, images):
        scores = super().forward(images)
        return scores - scores.mean(0)


class _Drawing(Convolutional):
    def forward(self, images):
        return super().forward(images) + torch.randn(3)


class _Counting(Convolutional):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, images):
        self.seen += 1
        return super().forward(images)


class _Pair(Convolutional):
    def forward(self, images):
        return super().forward(images), images


REFUSED = {
    "batch norm": (lambda: Convolutional(norm=nn.BatchNorm2d(4)), "GroupNorm.*'body.1'"),
    "instance norm": (
        lambda: Convolutional(norm=nn.InstanceNorm2d(4, track_running_stats=True)),
        "track_running_stats=False.*'body.1'",
    ),
    "dropout": (lambda: Convolutional(norm=nn.Dropout2d(0.5)), "dropout 0.*'body.1'"),
    "lazy": (lambda: nn.Sequential(nn.Flatten(), nn.LazyLinear(3)), "fixed sizes.*'1'"),
    "no parameters": (nn.Flatten, "a module with parameters"),
    "all fixed": (lambda: Convolutional().requires_grad_(False), "requires a gradient"),
    "mixes": (_Mixing, "do not depend on other examples"),
    "draws": (_Drawing, "without random draws"),
    "counts": (_Counting, "this module changes 'seen'"),
    "a pair": (_Pair, "returns one tensor"),
    "no module": (dict, "not dict"),
    "fails": (lambda: 1 / 0, "ZeroDivisionError"),
    "another shape": (lambda: nn.Linear(5, 3), r"inputs of shape \(1, 8, 8\), but .*Linear"),
    "too few scores": (lambda: Convolutional(2), "classes from 0 to 1"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_unsupported_modules_raise_a_one_line_error(name):
    factory, line = REFUSED[name]
    with pytest.raises(ParameterError, match=line) as caught:
        SupervisedTask(build_module(factory), examples(), examples())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "norm",
    [nn.BatchNorm2d(4).eval(), nn.Dropout(0.0), nn.InstanceNorm2d(4), nn.Dropout(0.5).eval()],
)
def test_layers_that_are_fixed_functions_of_one_example_are_accepted(norm):
    task = SupervisedTask(build_module(Convolutional(norm=norm)), examples(), examples())
    assert task.clipped_sum(task.model.start, EVERYONE, 1.0).count == CLIENTS


def test_tokens_outside_the_vocabulary_are_refused():
    data = examples("tokens")
    beyond = Examples(data.inputs + 1, data.labels, "tokens")
    with pytest.raises(ParameterError, match="inputs"):
        quiet_task(build_module(Recurrent), beyond)


def test_initial_parameters_depend_on_the_seed_alone():
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    first, again, other = (build_module(Convolutional, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(torch.rand(1), expected)
    assert np.array_equal(first.start, again.start)
    assert not np.array_equal(first.start, other.start)


def test_training_does_not_change_the_given_module_and_threads_do_not_change_bits():
    module = Convolutional()
    before = copy.deepcopy(module.state_dict())
    task = SupervisedTask(build_module(module), examples(), examples(), holdings=holdings())
    one = task.clipped_sum(task.model.start, np.tile(EVERYONE, 60), 1.0).total
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        three = task.clipped_sum(task.model.start, np.tile(EVERYONE, 60), 1.0).total
    finally:
        torch.set_num_threads(threads)
    assert np.array_equal(one, three)
    assert all(torch.equal(module.state_dict()[name], before[name]) for name in before)


def test_a_checkpoint_identifies_a_module_by_code_structure_and_constants():
    same = [identity_of(build_module(Convolutional, seed=1)) for _ in range(2)]
    assert same[0].text == same[1].text
    assert same[0].keyed_digest(b"k" * 16) == same[1].keyed_digest(b"k" * 16)
    frozen = identity_of(build_module(Convolutional, trainable=("head.*",)))
    wider = identity_of(build_module(lambda: Convolutional(4)))
    assert len({same[0].text, frozen.text, wider.text}) == 3
    other = identity_of(build_module(Convolutional, seed=2))
    assert other.keyed_digest(b"k" * 16) != same[0].keyed_digest(b"k" * 16)
