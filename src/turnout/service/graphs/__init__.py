"""Models as ONNX graphs that a charter names by digest.

A coordinator writes the graphs (`exporting`, `task_graphs`) with PyTorch and ONNX. A device checks
the graphs field by field (`format`) and runs them in a process with limits (`sandbox`, `worker`,
`updates`), with NumPy and ONNX Runtime. Importing this package imports none of these modules, so
that a device needs no PyTorch.
"""
