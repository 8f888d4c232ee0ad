"""The written-out form of each layer agrees with the differentiable form and its gradients."""

import pytest
import torch

from turnout.learning.models import Convolution, Dense, MaxPool, Tanh

CLIENTS, EACH = 3, 2


def layers():
    yield Dense(6, 4), (6,)
    yield Dense(6, 4), (2, 3)
    yield Tanh((4, 3)), (4, 3)
    yield MaxPool((5, 4, 2)), (5, 4, 2)
    for kernel, stride, padding in (
        (2, 1, 0),
        (3, 1, 1),
        (3, 2, 0),
        (3, 2, 2),
        (4, 2, 1),
        (2, 3, 0),
    ):
        yield Convolution((7, 6, 2), 3, kernel, stride, padding), (7, 6, 2)


@pytest.mark.parametrize(("layer", "shape"), list(layers()), ids=str)
@pytest.mark.parametrize("each", [1, EACH])
def test_closed_form_layers_agree_with_autograd(layer, shape, each):
    random = torch.Generator().manual_seed(2)
    inputs = torch.randn(CLIENTS * each, *shape, generator=random).requires_grad_()
    parameters = torch.randn(layer.size, generator=random)
    own = parameters.expand(CLIENTS, -1).clone().requires_grad_()
    outputs = torch.cat(
        [layer.apply(own[i], inputs[i * each : (i + 1) * each]) for i in range(CLIENTS)]
    )
    assert outputs.shape[1:] == layer.output_shape
    upstream = torch.randn(outputs.shape, generator=random)
    outputs.backward(upstream)
    with torch.no_grad():
        found, saved = layer.forward(parameters, inputs)
        assert torch.allclose(found, outputs, atol=1e-5)
        back = layer.backward(parameters, saved, upstream).reshape(inputs.shape)
        assert torch.allclose(back, inputs.grad, atol=1e-5)
        if layer.size:
            gradients = layer.client_gradients(saved, upstream, CLIENTS)
            norms = own.grad.double().square().sum(1)
            assert torch.allclose(gradients.squared_norms(), norms, rtol=1e-5)
            weights = torch.tensor([0.5, -2.0, 1.0])
            assert torch.allclose(gradients.weighted_sum(weights), weights @ own.grad, atol=1e-4)


def test_the_gradient_of_tied_maxima_goes_to_the_first_in_reading_order():
    random = torch.Generator().manual_seed(0)
    layer = MaxPool((6, 5, 3))
    inputs = torch.randint(3, (40, 6, 5, 3), generator=random).float().requires_grad_()
    outputs = layer.apply(torch.empty(0), inputs)
    upstream = torch.randn(outputs.shape, generator=random)
    outputs.backward(upstream)
    with torch.no_grad():
        found, saved = layer.forward(torch.empty(0), inputs)
        assert torch.equal(found, outputs)
        back = layer.backward(torch.empty(0), saved, upstream)
    assert torch.allclose(back, inputs.grad, atol=1e-6)
