"""Trials of modules accept functions of one example and refuse other modules with a cause."""

import numpy as np
import pytest
import torch
from own_modules import quiet_task
from torch import nn

from turnout.core.errors import ParameterError
from turnout.learning.examples import Examples
from turnout.learning.metrics import build_objective
from turnout.learning.modules import build_module


class _Vectors(nn.Module):
    """Module from five numbers to three scores, with a given forward function."""

    def __init__(self, forward, **parts):
        super().__init__()
        self.linear, self.way, self.last = nn.Linear(5, 3), forward, None
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, inputs):
        return self.way(self, inputs)


class _Mixed(torch.autograd.Function):
    """Identity with a wrong gradient, from which the mean over the batch is subtracted."""

    @staticmethod
    def forward(ctx, inputs):
        return inputs.clone()

    @staticmethod
    def backward(ctx, upstream):
        return upstream - upstream.mean(0)


def _keeping(use):
    """Forward function that adds a function of the scores of the previous call."""

    def forward(net, inputs):
        before, net.last = net.last, net.linear(inputs).detach()
        return net.linear(inputs) if before is None else net.linear(inputs) + use(before)

    return forward


def _lagged(rows):
    """Forward function in which a row depends on the row that is ``rows`` before it."""
    return lambda net, x: net.linear(torch.cat([x[:rows], x[rows:] + x[:-rows]]))


def vectors(positive=False):
    inputs = np.random.default_rng(3).normal(size=(40, 5)).astype(np.float32)
    return Examples(np.abs(inputs) if positive else inputs, np.arange(40) % 3)


def _time_first(net, inputs):
    return net.linear(net.memory(inputs.unsqueeze(-1))[0][:, -1])


ONE_WAY = "do not depend on other examples"
OF_ONE_KIND = {
    "takes the batch for time": (
        lambda: _Vectors(_time_first, memory=nn.LSTM(1, 5)),
        r"other examples of the batch \(batch_first=True in layer 'memory' \(LSTM\)",
    ),
    "sees those before": (lambda: _Vectors(lambda net, x: net.linear(x.cumsum(0))), ONE_WAY),
    "sees the row before": (lambda: _Vectors(_lagged(1)), ONE_WAY),
    "sees fifty rows before": (lambda: _Vectors(_lagged(50)), ONE_WAY),
    "only the last row sees": (
        lambda: _Vectors(lambda net, x: net.linear(torch.cat([x[:-1], x[-1:] + x[:1]]))),
        ONE_WAY,
    ),
    "mixes two alone": (
        lambda: _Vectors(lambda net, x: net.linear(x - x.mean(0) if len(x) == 2 else x)),
        ONE_WAY,
    ),
    "mixes many": (
        lambda: _Vectors(lambda net, x: net.linear(x - x.mean(0) if len(x) > 40 else x)),
        ONE_WAY,
    ),
    "sorts": (lambda: _Vectors(lambda net, x: net.linear(x[x[:, 0].argsort()])), ONE_WAY),
    "the largest of all": (lambda: _Vectors(lambda net, x: net.linear(x) / x.max()), ONE_WAY),
    "beside one that is large": (
        lambda: _Vectors(lambda net, x: net.linear(x) * torch.tensor([1e6, 1, 1]) + x.mean(0)[:3]),
        ONE_WAY,
    ),
    "weighs nothing at the start": (
        lambda: _Vectors(
            lambda net, x: net.linear(x + net.gate * x.mean(0)), gate=nn.Parameter(torch.zeros(1))
        ),
        ONE_WAY,
    ),
    "mixes gradients": (
        lambda: _Vectors(lambda net, x: _Mixed.apply(net.linear(x))),
        "the weighted sum of the updates of its examples",
    ),
    "mixes while it learns": (
        lambda: _Vectors(lambda net, x: net.linear(x - x.mean(0) * torch.is_grad_enabled())),
        "the weighted sum of the updates of its examples",
    ),
    "a gradient by frequency": (
        lambda: _Vectors(
            lambda net, x: net.linear(net.words((x > 0).long()).mean(1)),
            words=nn.Embedding(2, 5, scale_grad_by_freq=True),
        ),
        "the weighted sum of the updates of its examples",
    ),
    "uses what it kept": (
        lambda: _Vectors(_keeping(lambda kept: kept.mean())),
        "the same in every call",
    ),
    "changes its inputs": (
        lambda: _Vectors(lambda net, x: net.linear(x.mul_(2))),
        "this module changes its inputs",
    ),
    "changes its parameters": (
        lambda: _Vectors(
            lambda net, x: net.linear(net.words((x > 0).long()).mean(1)),
            words=nn.Embedding(2, 5, max_norm=0.1),
        ),
        "this module changes its parameters",
    ),
    "power iteration": (
        lambda: _Vectors(
            lambda net, x: net.linear(net.normed(x)),
            normed=nn.utils.parametrizations.spectral_norm(nn.Linear(5, 5)),
        ),
        "this module changes 'normed.parametrizations.weight.0._u'",
    ),
    "roots of scores": (
        lambda: _Vectors(lambda net, x: net.linear(x).sqrt()),
        r"own forward \(_Vectors\) raises FloatingPointError: NaN",
    ),
    "a layer that is not finite": (
        lambda: nn.Sequential(nn.Linear(5, 5), nn.Threshold(1e9, float("nan")), nn.Linear(5, 3)),
        r"layer '1' \(Threshold\) raises FloatingPointError: NaN",
    ),
    "no finite gradient": (
        lambda: _Vectors(lambda net, x: net.linear(x) + (0 * net.linear(x)).sqrt()),
        "a finite gradient",
    ),
    "no gradient": (
        lambda: _Vectors(lambda net, x: net.linear(x).detach()),
        "outputs with a gradient",
    ),
    "a sparse gradient": (
        lambda: _Vectors(
            lambda net, x: net.linear(net.words((x > 0).long()).mean(1)),
            words=nn.Embedding(2, 5, sparse=True),
        ),
        r"but the gradient of layer 'words' \(Embedding\) raises RuntimeError",
    ),
    "complex parameters": (
        lambda: _Vectors(
            lambda net, x: net.linear(x) + net.phase.abs(),
            phase=nn.Parameter(torch.ones(3, dtype=torch.complex64)),
        ),
        "not 'phase' of complex64",
    ),
    "fails for many": (
        lambda: _Vectors(lambda net, x: net.linear(x.view(-1, 5)) if len(x) < 9 else 1 / 0),
        r"own forward \(_Vectors\) raises ZeroDivisionError",
    ),
    "ends the process": (lambda: _Vectors(lambda net, x: exit(3)), "raises SystemExit: 3"),
}


@pytest.mark.parametrize("name", OF_ONE_KIND)
def test_modules_that_mix_examples_or_fail_raise_a_one_line_error(name):
    factory, line = OF_ONE_KIND[name]
    torch.manual_seed(1)
    with pytest.raises(ParameterError, match=line) as caught:
        quiet_task(build_module(factory()), vectors())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "loss",
    [
        lambda outputs, labels: nn.functional.cross_entropy(outputs, labels).expand(len(labels)),
        lambda outputs, labels: (outputs - outputs.mean(0)).square().sum(1),
    ],
)
def test_a_loss_that_mixes_examples_is_refused(loss):
    with pytest.raises(ParameterError, match="a loss that do not mix"):
        quiet_task(
            build_module(nn.Linear(5, 3)), vectors(), objective=build_objective("class", loss)
        )


def _coarse(net, inputs):
    with torch.autocast("cpu", torch.bfloat16):
        return net.linear(inputs).float()


def _trimmed(net, tokens):
    """Scores of the last state of each sequence; zeros at the end of all sequences are cut off."""
    lengths = (tokens > 0).sum(1).clamp(min=1)
    states = net.memory(net.words(tokens[:, : int(lengths.max())]))[0]
    return net.linear(states[torch.arange(len(tokens)), lengths - 1])


def _normed():
    """Module that stores normalised weights, which it computes anew before each call."""
    net = _Vectors(lambda net, x: nn.functional.linear(x, net.last))
    net.last = nn.functional.normalize(net.linear.weight)
    net.register_forward_pre_hook(
        lambda net, _: setattr(net, "last", nn.functional.normalize(net.linear.weight))
    )
    return net


def words():
    tokens = np.random.default_rng(3).integers(1, 7, (40, 6))
    return Examples(np.where(np.arange(6) < 1 + tokens[:, :1], tokens, 0), np.arange(40) % 3)


TAKEN = {
    "keeps and does not use": (lambda: _Vectors(_keeping(lambda kept: 0 * kept.sum())), vectors()),
    "holds what it computed": (_normed, vectors()),
    "weight norm": (lambda: nn.utils.parametrizations.weight_norm(nn.Linear(5, 3)), vectors()),
    "logarithms": (lambda: _Vectors(lambda net, x: net.linear(x.log())), vectors(positive=True)),
    "bfloat16 inside": (lambda: _Vectors(_coarse), vectors()),
    "complex buffers": (
        lambda: _Vectors(
            lambda net, x: net.linear((net.phase * x).imag),
            phase=nn.Buffer(torch.polar(torch.ones(5), torch.arange(5.0))),
        ),
        vectors(),
    ),
    "padded sequences": (
        lambda: _Vectors(
            _trimmed, words=nn.Embedding(7, 4), memory=nn.LSTM(4, 5, batch_first=True)
        ),
        words(),
    ),
    "a column of categories": (
        lambda: _Vectors(
            lambda net, x: net.linear(torch.cat([net.words(x[:, 0]), x[:, 1:2] / 100], 1)),
            words=nn.Embedding(4, 4),
        ),
        Examples(np.column_stack([np.arange(40) % 4, np.arange(40)]), np.arange(40) % 3),
    ),
}


@pytest.mark.parametrize("name", TAKEN)
def test_modules_that_are_functions_of_one_example_are_trained(name):
    factory, data = TAKEN[name]
    torch.manual_seed(1)
    task = quiet_task(build_module(factory()), data)
    sums = [task.clipped_sum(task.model.start, np.arange(40), 1.0).total for _ in range(2)]
    assert np.array_equal(*sums)
    assert np.linalg.norm(sums[0]) > 1
    assert np.isfinite(task.evaluate(task.model.start)["loss"])
