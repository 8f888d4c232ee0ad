"""Memory-mapped examples are read when they are needed, and never copied as a whole."""

import subprocess
import sys

import numpy as np
import pytest
from own_modules import Convolutional, examples

from turnout.learning.examples import Examples, rows
from turnout.learning.modules import build_module
from turnout.learning.tasks import SupervisedTask

MEASURED = """
import sys
import numpy as np
from pathlib import Path
from turnout.learning.examples import Examples
from turnout.learning.models import build_model
from turnout.learning.tasks import SupervisedTask

def anonymous():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))

inputs = np.load(sys.argv[1], mmap_mode="r")
labels = np.zeros(len(inputs), np.int64)
model = build_model("logistic", inputs.shape[1:], 2)
small = Examples(np.array(inputs[:64]), labels[:64])
SupervisedTask(model, small, small).clipped_sum(np.zeros(model.dimension), np.arange(64), 1.0)
before = anonymous()
task = SupervisedTask(model, Examples(inputs, labels), small)
for start in range(0, len(inputs), 2000):
    task.clipped_sum(np.zeros(model.dimension), np.arange(start, start + 500), 1.0)
print(anonymous() - before)
"""


@pytest.mark.parametrize("target", ["class", "numbers", "tokens"])
def test_memory_mapped_arrays_are_not_copied(target, tmp_path):
    made = examples(target)
    for name, array in (("inputs", made.inputs), ("labels", made.labels)):
        np.save(tmp_path / f"{name}.npy", array)
    inputs, labels = (
        np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in ("inputs", "labels")
    )
    mapped = Examples(inputs, labels, target)
    assert np.shares_memory(mapped.inputs, inputs)
    assert np.shares_memory(mapped.labels, labels)
    index = np.array([4, 0, 4])
    assert np.array_equal(rows(mapped.inputs, index).numpy(), made.inputs[index])


def test_memory_mapped_examples_give_the_same_bits_as_arrays_in_memory(tmp_path):
    made = examples()
    np.save(tmp_path / "inputs.npy", made.inputs)
    mapped = Examples(np.load(tmp_path / "inputs.npy", mmap_mode="r"), made.labels)
    tasks = [SupervisedTask(build_module(Convolutional), one, one) for one in (made, mapped)]
    sums = [task.clipped_sum(task.model.start, np.arange(len(made)), 1.0).total for task in tasks]
    assert np.array_equal(*sums)


@pytest.mark.skipif(sys.platform != "linux", reason="anonymous memory is counted on Linux")
def test_training_on_memory_mapped_examples_allocates_little_memory(tmp_path):
    file = tmp_path / "inputs.npy"
    inputs = np.lib.format.open_memmap(file, "w+", np.float32, (16_000, 2_000))  # 128 MB, sparse
    inputs.flush()
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, str(file)], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 32_000  # KiB; a copy would be 125,000
