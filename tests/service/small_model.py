"""A model of a user's own, as a function of one vector."""

import torch


class SmallModel:
    """Two dense layers with tanh between, for records (3, 2) and four classes."""

    def __init__(self):
        self._net = torch.nn.Sequential(
            torch.nn.Flatten(), torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 4)
        )
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
