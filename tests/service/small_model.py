"""Custom PyTorch modules as functions of one parameter vector."""

import torch


class ModuleModel:
    """Sequential model of several layers."""

    def __init__(self, *layers):
        self._net = torch.nn.Sequential(*layers)
        self._shapes = {name: part.shape for name, part in self._net.named_parameters()}
        self._sizes = [shape.numel() for shape in self._shapes.values()]
        self.dimension = sum(self._sizes)

    def logits(self, parameters, inputs):
        parts = parameters.split(self._sizes)
        own = {
            name: part.view(shape)
            for (name, shape), part in zip(self._shapes.items(), parts, strict=True)
        }
        return torch.func.functional_call(self._net, own, (inputs,))


def small_model():
    """Model of tests/vectors/update-graph.onnx, for records of shape (3, 2) and four classes.

    `graph_computation` makes the file from this model and Computation("logistic-1", "pixels-1",
    (3, 2), 4).
    """
    nn = torch.nn
    return ModuleModel(nn.Flatten(), nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 4))
