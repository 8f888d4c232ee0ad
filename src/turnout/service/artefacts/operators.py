"""The operators that a graph of a charter may use: arithmetic of tensors, and nothing else.

Not among them, on purpose: what runs another graph (If, Loop, Scan, SequenceMap), what draws
numbers (Random…, Bernoulli, Multinomial, Dropout), strings, sequences and optional values, what
depends on the data in its shape (NonZero, Unique, Compress), and every other domain than ONNX's.
"""

_LIST = """
    Abs Add And ArgMax ArgMin AveragePool Cast CastLike Ceil Clip Concat Constant
    ConstantOfShape Conv ConvTranspose Cos CumSum Div Einsum Elu Equal Erf Exp Expand Flatten
    Floor Gather GatherElements GatherND Gelu Gemm GlobalAveragePool Greater GreaterOrEqual
    Identity InstanceNormalization LayerNormalization LeakyRelu Less LessOrEqual Log LogSoftmax
    MatMul Max MaxPool Mean Min Mod Mul Neg Not OneHot Or Pad Pow Range Reciprocal ReduceL2
    ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu
    Reshape Round ScatterElements ScatterND Shape Sigmoid Sign Sin Size Slice Softmax Softplus
    Split Sqrt Squeeze Sub Sum Tanh Tile Transpose Trilu Unsqueeze Where Xor
"""

OPERATORS = frozenset(_LIST.split())

_REDUCTIONS = tuple(name for name in OPERATORS if name.startswith("Reduce"))

SHAPING_INPUTS = dict.fromkeys(_REDUCTIONS, (1,)) | {
    "ConstantOfShape": (0,),
    "CumSum": (1,),
    "Expand": (1,),
    "OneHot": (1,),
    "Pad": (1, 3),
    "Range": (0, 1, 2),
    "Reshape": (1,),
    "Slice": (1, 2, 3, 4),
    "Split": (1,),
    "Squeeze": (1,),
    "Tile": (1,),
    "Trilu": (1,),
    "Unsqueeze": (1,),
}
"""Inputs, by their places, whose values are shapes, counts or axes.

Every other operator of the list has an output whose shape follows from its inputs' shapes and its
attributes alone.
"""

SHAPE_READERS = frozenset({"Shape", "Size"})
"""Operators whose values depend on the shape of their input and not on its values."""
