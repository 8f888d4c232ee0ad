"""Models as ONNX graphs that a charter names by digest.

A coordinator writes them (`exporting`, `task_graphs`) with PyTorch and ONNX. A device checks them
field by field (`format`) and runs them in a process with limits (`sandbox`, `worker`, `updates`),
with NumPy and ONNX Runtime. The package itself imports none of these, so that a device needs no
PyTorch.
"""
