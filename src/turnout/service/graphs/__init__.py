"""Graphs that a charter names by digest: read with suspicion, run in a process with limits.

Nothing is imported here. A device reads (`graphs`) and runs (`sandbox`) them with NumPy and ONNX
Runtime; a coordinator writes them (`exporting`) with PyTorch and ONNX.
"""
