"""Trained parts of a module: patterns of names, low-rank adapters, and pretrained parameters."""

import json
import struct

import numpy as np
import pytest
import torch
from own_modules import Attentive, Convolutional, examples, holdings, plain_sum
from torch import nn

from turnout.core.errors import ParameterError, StorageError
from turnout.learning.modules import Adapted, Adapters, adapt, build_module
from turnout.learning.tasks import SupervisedTask

DATA = examples()


def saved(module, file, **changed):
    """Path of a new .safetensors file with a module's parameters, without the package."""
    tensors = {name: value.numpy() for name, value in module.state_dict().items()} | changed
    header, parts, start = {}, [], 0
    for name, array in tensors.items():
        data = np.asarray(array, np.float32).tobytes()
        end = start + len(data)
        shape = list(np.shape(array))
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [start, end]}
        parts.append(data)
        start = end
    text = json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(parts))
    return file


def test_only_trainable_parameters_are_updated_and_clipped():
    module = Convolutional()
    head = build_module(module, trainable=("head.*",))
    assert head.names == ("head.weight", "head.bias")
    assert set(head.fixed) == {"body.0.weight", "body.0.bias", "body.1.weight", "body.1.bias"}
    task = SupervisedTask(head, DATA, DATA, holdings=holdings())
    found = task.clipped_sum(head.start, np.arange(6), 0.1).total
    expected = plain_sum(module, DATA, holdings(), 0.1, list(head.names))
    assert found.size == head.dimension == module.head.weight.numel() + 3
    assert np.linalg.norm(found - expected) <= 5e-5 * np.linalg.norm(expected)
    # The whole gradient is longer, so clipping all of it would leave less of the head.
    whole = plain_sum(module, DATA, holdings(), 0.1, [n for n, _ in module.named_parameters()])
    assert np.linalg.norm(whole[-found.size :]) < 0.99 * np.linalg.norm(found)


def test_parameters_that_require_no_gradient_are_fixed():
    module = Convolutional()
    module.body.requires_grad_(False)
    assert build_module(module).names == ("head.weight", "head.bias")
    assert "body.0.weight" in build_module(module, trainable=("body.0.*",)).names


def test_only_adapters_are_trained_and_they_start_as_the_base_module():
    module = Attentive()
    base = build_module(module)
    adapted = build_module(module, adapters=Adapters(2, 8.0, ("block.linear*",)))
    tokens = torch.from_numpy(examples("tokens").inputs)
    outputs = [model.logits(torch.from_numpy(model.start), tokens) for model in (base, adapted)]
    assert torch.equal(*outputs)
    assert {name.rpartition(".")[2] for name in adapted.names} == {"down", "up"}
    assert adapted.dimension == 2 * (4 + 8) * 2
    assert type(module.block.linear1) is nn.Linear


def test_an_adapter_adds_a_scaled_product_of_low_rank():
    layer = Adapted(nn.Linear(5, 3), Adapters(2, 6.0))
    nn.init.normal_(layer.up)
    inputs = torch.randn(4, 5)
    dense = layer.base.weight + 3.0 * layer.up @ layer.down
    expected = nn.functional.linear(inputs, dense, layer.base.bias)
    assert torch.allclose(layer(inputs), expected, atol=1e-5)
    assert not layer.base.weight.requires_grad


def test_adapters_and_an_output_layer_are_trained_together():
    model = build_module(
        Convolutional, adapters=Adapters(1, 1.0, ("head",)), trainable=("body.1.*",)
    )
    assert model.names == ("body.1.weight", "body.1.bias", "head.down", "head.up")


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"trainable": ("tail.*",)}, "model.trainable = 'tail.\\*': expected a pattern"),
        ({"adapters": Adapters(1, 1.0, ("tail",))}, "model.lora.layers.*inside.*: head"),
        ({"adapters": Adapters(4)}, "model.lora.rank = 4: expected at most 3"),
        ({"adapters": Adapters(1), "trainable": ("tail",)}, "model.trainable = 'tail'"),
        ({"arguments": {"outputs": 3}}, "model.arguments"),
    ],
)
def test_unknown_module_parts_are_refused(options, line):
    with pytest.raises(ParameterError, match=line) as caught:
        build_module(Convolutional(), **options)
    assert "\n" not in str(caught.value)


def test_adapting_one_layer_keeps_other_layers_fixed():
    module = Convolutional()
    adapt(module, Adapters(1))
    trained = [name for name, value in module.named_parameters() if value.requires_grad]
    assert trained == ["head.down", "head.up"]


@pytest.mark.parametrize("value", [0, -1, 1.5])
def test_adapter_rank_must_be_a_positive_integer(value):
    with pytest.raises(ParameterError, match="rank"):
        Adapters(value)


def test_a_pretrained_file_may_lack_the_parameters_of_the_trained_layers(tmp_path):
    pytest.importorskip("safetensors")
    module = Convolutional()
    saved(module, tmp_path / "base.safetensors")
    model = build_module(Convolutional, seed=9, pretrained="base.safetensors", folder=tmp_path)
    assert np.array_equal(model.start, build_module(module).start)
    body = nn.ModuleDict({"body": module.body})
    saved(body, tmp_path / "body.safetensors")
    options = {"seed": 9, "folder": tmp_path, "pretrained": "body.safetensors"}
    model = build_module(Convolutional, trainable=("head.*",), **options)
    assert torch.equal(model.fixed["body.0.weight"], module.body[0].weight)
    with pytest.raises(ParameterError, match=r"also contains 'head\.weight', or a pattern"):
        build_module(Convolutional, **options)


def test_invalid_pretrained_files_are_refused(tmp_path):
    pytest.importorskip("safetensors")
    module, file = Convolutional(), tmp_path / "base.safetensors"

    def refused(line, error=ParameterError):
        with pytest.raises(error, match=line) as caught:
            build_module(Convolutional, pretrained=file.name, folder=tmp_path)
        assert "\n" not in str(caught.value)

    refused("a .safetensors file that exists")
    saved(module, file, tail=np.zeros(2))
    refused("the module has no 'tail'")
    saved(module, file, **{"head.bias": np.zeros(4)})
    refused(r"'head.bias' of shape \(3,\), not \(4,\)")
    saved(module, file)
    file.write_bytes(file.read_bytes()[:-8])
    refused("not a complete .safetensors file", StorageError)
