"""Small ONNX files, each op in its old and its new form, as other programs write them."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from tests.helpers.noise import noise

F32, I64 = np.float32, np.int64


def node(op, inputs, output, **attributes):
    return helper.make_node(op, inputs.split(), [output], **attributes)


def model(nodes, constants=(), opset=13, shape=("N", 3, 9, 11), output="y", **more):
    """Bytes of a small model; constants: name to array."""
    tensors = [numpy_helper.from_array(np.asarray(array), name) for name, array in dict(constants).items()]
    graph = helper.make_graph(nodes, "small", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
                              [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)], tensors)  # fmt: skip
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    for key, value in more.items():
        setattr(made, key, value)
    return made.SerializeToString()


def weights(*shape):
    return noise(f"weights {shape}", shape).astype(F32)


HEAD = [node("GlobalAveragePool", "last", "g"), node("Flatten", "g", "y")]
CONV = {"w": weights(6, 3, 3, 3), "b": weights(6)}
NORM = {"s": weights(6) + 2, "o": weights(6), "m": weights(6), "v": weights(6) + 2}
DENSE = {"dw": weights(4, 6 * 4 * 5), "db": weights(4)}
STRIDED = node("Conv", "x w b", "c", strides=[2, 2])  # to (6, 4, 5)

SOUND = {
    # name: nodes, constants, further arguments of `model`
    "convolution": ([node("Conv", "x w b", "last", pads=[1, 0, 2, 1], strides=[2, 1]), *HEAD], CONV, {}),
    "convolution without bias": ([node("Conv", "x w", "last"), *HEAD], CONV, {}),
    "groups": ([node("Conv", "x w", "last", group=3), *HEAD], {"w": weights(6, 1, 2, 2)}, {}),
    "depthwise": ([node("Conv", "x w", "last", group=3), *HEAD], {"w": weights(3, 1, 3, 3)}, {}),
    "same, upper": ([node("Conv", "x w b", "last", auto_pad="SAME_UPPER", strides=[2, 3]), *HEAD], CONV, {}),
    "same, lower": ([node("Conv", "x w b", "last", auto_pad="SAME_LOWER", strides=[2, 3]), *HEAD], CONV, {}),
    "valid": ([node("Conv", "x w b", "last", auto_pad="VALID"), *HEAD], CONV, {}),
    "batch norm": ([node("Conv", "x w b", "c"), node("BatchNormalization", "c s o m v", "last", epsilon=1e-3), *HEAD],
        CONV | NORM, {}),
    "old batch norm": ([node("Conv", "x w b", "c"), node("BatchNormalization", "c s o m v", "last"), *HEAD],
        CONV | NORM, {"opset": 7}),
    "old clip": ([node("Conv", "x w b", "c"), node("Clip", "c", "last", min=0.0, max=6.0), *HEAD], CONV, {"opset": 7}),
    "clip": ([node("Conv", "x w b", "c"), node("Clip", "c low high", "last"), *HEAD],
        CONV | {"low": F32(0), "high": F32(6)}, {}),
    "clip without upper bound": ([node("Conv", "x w b", "c"), node("Clip", "c low", "last"), *HEAD],
        CONV | {"low": F32(0)}, {}),
    "clip to the largest number": ([node("Conv", "x w b", "c"), node("Clip", "c low high", "last"), *HEAD],
        CONV | {"low": F32(0), "high": np.finfo(F32).max}, {}),
    "hard sigmoid": ([node("Conv", "x w b", "c"), node("HardSigmoid", "c", "last", alpha=1 / 6, beta=0.5), *HEAD], CONV,
        {}),
    "hard swish": ([node("Conv", "x w b", "c"), node("HardSwish", "c", "last"), *HEAD], CONV, {"opset": 14}),
    "hard swish in two": ([node("Conv", "x w b", "c"), node("HardSigmoid", "c", "h", alpha=1 / 6, beta=0.5),
        node("Mul", "h c", "last"), *HEAD], CONV, {}),
    "silu": ([node("Conv", "x w b", "c"), node("Sigmoid", "c", "g1"), node("Mul", "c g1", "last"), *HEAD], CONV, {}),
    "a factor for each channel": ([node("Conv", "x w b", "c"), node("GlobalAveragePool", "c", "a"),
        node("Sigmoid", "a", "f"), node("Mul", "f c", "last"), *HEAD], CONV, {}),
    "a factor for each channel, from features": ([node("Conv", "x w b", "c"), node("GlobalAveragePool", "c", "a"),
        node("Flatten", "a", "f"), node("Unsqueeze", "f axes", "u"), node("Mul", "c u", "last"), *HEAD],
        CONV | {"axes": np.array([2, 3], I64)}, {}),
    "max pool": ([node("MaxPool", "x", "last", kernel_shape=[3, 2], strides=[2, 2], ceil_mode=1), *HEAD], {}, {}),
    "max pool that skips pixels": ([node("MaxPool", "x", "last", kernel_shape=[1, 2], strides=[3, 2]), *HEAD], {}, {}),
    "max pool, padded": ([node("MaxPool", "x", "last", kernel_shape=[3, 3], pads=[1, 1, 1, 1]), *HEAD], {}, {}),
    "average pool": ([node("AveragePool", "x", "last", kernel_shape=[3, 3], pads=[1, 1, 1, 1]), *HEAD], {}, {}),
    "average pool with padding": ([node("AveragePool", "x", "last", kernel_shape=[3, 3], pads=[1, 1, 0, 1],
        count_include_pad=1), *HEAD], {}, {}),
    "fire": ([node("Conv", "x w b", "c"), node("Relu", "c", "r"), node("Sigmoid", "c", "s1"),
        node("Concat", "r s1", "last", axis=1), *HEAD], CONV, {}),
    "skip": ([node("Relu", "x", "r"), node("Add", "x r", "last"), *HEAD], {}, {}),
    "dropout": ([node("Dropout", "x", "last"), *HEAD], {}, {}),
    "old dropout": ([node("Dropout", "x", "last", ratio=0.25), *HEAD], {}, {"opset": 7}),
    "identity": ([node("Identity", "w", "w2"), node("Conv", "x w2 b", "c"), node("Identity", "c", "last"), *HEAD], CONV,
        {}),
    "constant": ([node("Constant", "", "w", value=numpy_helper.from_array(weights(5, 3, 2, 2))),
        node("Conv", "x w", "last"), *HEAD], {}, {}),
    "mean of rows and columns": ([node("Conv", "x w b", "c"), node("ReduceMean", "c", "y", axes=[2, 3], keepdims=0)],
        CONV, {}),
    "mean by its new form, of channels last": ([node("Conv", "x w b", "c"), node("Transpose", "c", "t",
        perm=[0, 2, 3, 1]), node("ReduceMean", "t axes", "m"), node("Flatten", "m", "y")],
        CONV | {"axes": np.array([-2, 1], I64)}, {"opset": 18}),
    "pad": ([node("Pad", "x p", "q"), node("Conv", "q w b", "last", pads=[0, 1, 0, 0]), *HEAD],
        CONV | {"p": np.array([0, 0, 1, 2, 0, 0, 0, 1], I64)}, {}),
    "pad before automatic padding": ([node("Pad", "x p", "q"),
        node("Conv", "q w b", "last", auto_pad="SAME_UPPER", strides=[2, 2]), *HEAD],
        CONV | {"p": np.array([0, 0, 1, 0, 0, 0, 0, 1], I64)}, {}),
    "old pad": ([node("Pad", "x", "q", pads=[0, 0, 0, 0, 0, 0, 1, 1]), node("Conv", "q w b", "last"), *HEAD], CONV,
        {"opset": 10}),
    "dense after flatten": ([STRIDED, node("Flatten", "c", "f"), node("Gemm", "f dw db", "y", transB=1)], CONV | DENSE,
        {}),
    "dense after sum, softmax": ([STRIDED, node("Flatten", "c", "f"), node("Relu", "f", "r"), node("Add", "r f", "a"),
        node("Softmax", "a", "s", axis=1), node("Gemm", "s dw db", "y", transB=1)], CONV | DENSE, {}),
    "dense with factors": ([STRIDED, node("Flatten", "c", "f"), node("Gemm", "f dt db", "y", alpha=0.5, beta=2.0)],
        CONV | {"dt": weights(6 * 4 * 5, 4), "db": weights(1, 4)}, {}),
    "dense after reshape": ([STRIDED, node("Reshape", "c to", "f"), node("Gemm", "f dw", "y", transB=1)],
        CONV | DENSE | {"to": np.array([0, -1], I64)}, {}),
    "reshape of two photos": ([STRIDED, node("Reshape", "c to", "f"), node("Gemm", "f dw", "y", transB=1)],
        CONV | DENSE | {"to": np.array([2, -1], I64)}, {"shape": (2, 3, 9, 11)}),
    "reshape of features": ([node("Conv", "x w b", "last"), HEAD[0], node("Reshape", "g to", "r"),
        node("Flatten", "r", "y")], CONV | {"to": np.array([0, 0, 1, 1], I64)}, {}),
    "flatten of channels last": ([STRIDED, node("Transpose", "c", "t", perm=[0, 2, 3, 1]), node("Flatten", "t", "f"),
        node("Gemm", "f dw db", "y", transB=1)], CONV | DENSE, {}),
    "batch norm after flatten": ([STRIDED, node("Flatten", "c", "f"), node("BatchNormalization", "f s o m v", "n"),
        node("Relu", "n", "r"), node("Gemm", "r dw", "y", transB=1)],
        CONV | DENSE | {k: weights(120) + i for i, k in enumerate("somv")} | {"v": weights(120) + 2}, {}),
    "channels last": ([node("Transpose", "x", "t", perm=[0, 3, 1, 2]), node("Conv", "t w b", "c"),
        node("Transpose", "c", "u", perm=[0, 2, 3, 1]), node("Relu", "u", "r"),
        node("Transpose", "r", "last", perm=[0, 3, 1, 2]), *HEAD], CONV, {"shape": ("N", 9, 11, 3)}),
    "convolution after the average": ([node("GlobalAveragePool", "x", "g"), node("Conv", "g w", "c"),
        node("Flatten", "c", "y")], {"w": weights(5, 3, 1, 1)}, {}),
    "softmax inside": ([node("Conv", "x w b", "c"), node("Softmax", "c", "last", axis=1), *HEAD], CONV, {}),
    "grey": ([node("Conv", "x w", "last"), *HEAD], {"w": weights(4, 1, 3, 3)}, {"shape": ("N", 1, 9, 11)}),
}  # fmt: skip
