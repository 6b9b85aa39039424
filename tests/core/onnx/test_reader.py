"""Files of other programs: each op in its old and new form against onnxruntime, and what is refused."""

import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from core.errors import ModelFileError
from core.onnx import read_onnx, write_onnx
from core.onnx.runtime import compute_output, open_session
from core.ops.network import forward
from core.ops.photo import identity_augmentation, transform
from tests.helpers.compare import assert_close
from tests.helpers.noise import noise
from tests.helpers.onnx_files import CONV, DENSE, F32, HEAD, I64, NORM, SOUND, STRIDED, model, node, weights


def read(data, tmp_path, **options):
    (tmp_path / "model.onnx").write_bytes(data)
    return read_onnx(tmp_path / "model.onnx", **options)


def photos_for(graph):
    return (8 * noise("photos", (2, *graph.photo_shape))).astype(F32)


@pytest.mark.parametrize("name", SOUND)
def test_what_is_read_computes_what_onnxruntime_computes(name, tmp_path):
    nodes, constants, more = SOUND[name]
    data = model(nodes, constants, **more)
    imported = read(data, tmp_path)
    photos = photos_for(imported.graph)
    last = photos if more.get("shape", ())[-1:] == (3,) else photos.transpose(0, 3, 1, 2)
    wanted = open_session(data).run(None, {"x": last})[0]
    got = forward(imported.graph, imported.weights, photos)[imported.graph.output]
    assert_close(got, wanted.reshape(got.shape), 1e-5)
    assert_close(compute_output(write_onnx(imported.graph, imported.weights), photos), got, 1e-5)


@pytest.mark.parametrize("opset", range(7, onnx.defs.onnx_opset_version() + 1))
def test_every_opset_from_7_to_the_newest_is_read(opset, tmp_path):
    clip = node("Clip", "n", "k", min=0.0, max=6.0) if opset < 11 else node("Clip", "n low high", "k")
    nodes = [node("Conv", "x w b", "c"), node("BatchNormalization", "c s o m v", "n"), clip,
             node("MaxPool", "k", "p", kernel_shape=[2, 2]), node("Identity", "p", "last"), *HEAD]
    bounds = {} if opset < 11 else {"low": F32(0), "high": F32(6)}
    data = model(nodes, CONV | NORM | bounds, opset=opset)
    imported = read(data, tmp_path)
    photos = photos_for(imported.graph)
    older = model(nodes, CONV | NORM | bounds, opset=min(opset, 21))  # onnxruntime may be behind the newest
    wanted = compute_output(older, photos)
    assert_close(forward(imported.graph, imported.weights, photos)[imported.graph.output], wanted, 1e-5)


@pytest.mark.parametrize(("last", "labels"), [("Softmax", ()), ("Sigmoid", (0.5,) * 4)])
def test_what_follows_the_logits_and_parts_that_the_output_does_not_need_are_left_out(last, labels, tmp_path):
    nodes = [STRIDED, node("Flatten", "c", "f"), node("Gemm", "f dw db", "z", transB=1), node(last, "z", "y")]
    imported = read(model(nodes, CONV | DENSE), tmp_path)
    assert [n.op for n in imported.graph.nodes] == ["photo", "conv2d", "flatten", "dense"]
    assert imported.labels == labels  # after a sigmoid, and alone, an output is the probability of a label
    assert read(model([node("Conv", "x w", "last"), *HEAD], {"w": weights(1, 3, 1, 1)}), tmp_path).labels == (0.5,)
    nodes = [node("Conv", "x w b", "last"), node("Conv", "x w b", "unused"), *HEAD]
    imported = read(model(nodes, CONV), tmp_path)
    assert len(imported.weights) == 2


def test_colours_in_the_other_order_turn_the_first_filters_round(tmp_path):
    data = model([node("Conv", "x w b", "last"), *HEAD], CONV)
    plain, turned = read(data, tmp_path), read(data, tmp_path, bgr=True)
    photos = photos_for(plain.graph)
    rgb = forward(turned.graph, turned.weights, photos)[turned.graph.output]
    assert_close(rgb, forward(plain.graph, plain.weights, photos[..., ::-1])[plain.graph.output], 1e-6)
    with pytest.raises(ModelFileError, match="order of its colours cannot be changed"):
        read(model([node("Relu", "x", "last"), *HEAD]), tmp_path, bgr=True)


def test_a_file_that_leaves_the_photos_size_open_needs_to_be_told(tmp_path):
    data = model([node("Conv", "x w b", "last"), *HEAD], CONV, shape=("N", 3, "H", "W"))
    with pytest.raises(ModelFileError, match="does not state the photo size. Export it again with a fixed height"):
        read(data, tmp_path)
    assert read(data, tmp_path, image_size=32).graph.photo_shape == (32, 32, 3)


def huge_tensor(**more):
    return TensorProto(name="w", dims=[1 << 40, 1 << 20, 3, 3], data_type=TensorProto.FLOAT, **more)


def with_tensor(tensor):
    made = onnx.load_model_from_string(model([node("Conv", "x w", "last"), *HEAD]))
    made.graph.initializer.append(tensor)
    return made.SerializeToString()


REFUSED = {
    "no ONNX": (b"", "which version of ONNX"), "a text": (b"this is not a network", "not a valid ONNX file"),
    "too old": (model(HEAD, opset=6), "opsets 7 to"), "too new": (model(HEAD, opset=9999), "opsets 7 to"),
    "unknown ops": (model([node("Einsum", "x", "a", equation="i"), node("LSTM", "a", "last"), *HEAD]),
        "not supported: Einsum, LSTM"),
    "foreign op": (model([helper.make_node("Gelu", ["x"], ["last"], domain="com.microsoft"), *HEAD]),
        "com.microsoft.Gelu"),
    "two inputs": (model([node("Add", "x z", "last"), *HEAD], shape=("N", 3, 9)), "axes"),
    "used before it is made": (model([node("Relu", "later", "last"), *HEAD]), "used before it is computed"),
    "a constant as input": (model([node("Relu", "w", "last"), *HEAD], CONV), "is a constant where"),
    "weights that are computed": (model([node("Relu", "x", "w"), node("Conv", "x w", "last"), *HEAD]),
        "must be a constant"),
    "whole numbers as weights": (model([node("Conv", "x w", "last"), *HEAD], {"w": np.ones((2, 3, 1, 1), I64)}),
        "must be constant weights"),
    "dilation": (model([node("Conv", "x w", "last", dilations=[2, 2]), *HEAD], CONV), "dilated"),
    "clip to 1": (model([node("Clip", "x", "last", min=0.0, max=1.0), *HEAD], opset=7), "clips to 0 .. 1"),
    "another hard sigmoid": (model([node("HardSigmoid", "x", "last"), *HEAD]), "only x / 6"),
    "a product of two images": (model([node("Relu", "x", "r"), node("Mul", "x r", "last"), *HEAD]),
        "neither x times its sigmoid nor"),
    "a product with a constant": (model([node("Mul", "x two", "last"), *HEAD], {"two": F32(2)}), "is a constant where"),
    "a product with flat features": (model([node("GlobalAveragePool", "x", "a"), node("Flatten", "a", "f"),
        node("Mul", "x f", "last"), *HEAD], shape=("N", 3, 9, 3)), "different layouts"),
    "features side by side in a row": (model([node("GlobalAveragePool", "x", "g"),
        node("Concat", "g g", "y", axis=-1)]), "concatenate channels"),
    "softmax over pixels": (model([node("GlobalAveragePool", "x", "g"), node("Softmax", "g", "y", axis=-1)]),
        "another axis than"),
    "unsqueeze at another axis": (model([node("GlobalAveragePool", "x", "a"), node("Unsqueeze", "a axes", "last"),
        *HEAD], {"axes": np.array([0], I64)}), "image of one pixel"),
    "mean over channels": (model([node("ReduceMean", "x", "last", axes=[1, 2]), *HEAD]), "the mean over rows"),
    "pad before a pool": (model([node("Pad", "x p", "q"), node("MaxPool", "q", "last", kernel_shape=[2, 2]), *HEAD],
        {"p": np.array([0, 0, 1, 1, 0, 0, 1, 1], I64)}), "A Pad before MaxPool is not supported"),
    "pad of ones": (model([node("Pad", "x p one", "q"), node("Conv", "q w", "last"), *HEAD],
        CONV | {"p": np.zeros(8, I64), "one": F32(1)}), "border of zeros"),
    "transpose that cannot be folded": (model([node("Transpose", "x", "t", perm=[0, 2, 3, 1]),
        node("Conv", "t w", "last"), *HEAD], CONV), "A Transpose before Conv cannot be folded"),
    "reshape": (model([node("Reshape", "x to", "last"), *HEAD], {"to": np.array([0, 9, 11, 3], I64)}),
        "is not a flattening"),
    "reshape to no list": (model([node("Reshape", "x to", "y")], {"to": F32([0, -1])}), "list of a few whole"),
    "reshape into other photos": (model([node("Reshape", "x to", "last"), node("Flatten", "last", "y")],
        {"to": np.array([2, -1], I64)}), "is not a flattening"),
    "padding below 0": (model([node("AveragePool", "x", "last", kernel_shape=[1, 4], strides=[3, 1],
        auto_pad="SAME_UPPER"), *HEAD]), "a padding below 0"),
    "concat of rows": (model([node("Concat", "x x", "last", axis=2), *HEAD]), "does not concatenate channels"),
    "filters that do not fit": (model([node("Conv", "x w", "last"), *HEAD], {"w": weights(6, 4, 3, 3)}), "shape"),
    "kernel larger than the photo": (model([node("Conv", "x w", "last"), *HEAD], {"w": weights(2, 3, 12, 3)}),
        "larger than"),
    "not a classifier": (model([node("Relu", "x", "y")]), "only classifiers are supported"),
    "no output of that name": (model([node("Relu", "x", "last"), *HEAD], output="nowhere"), "before it is computed"),
    "stated size": (with_tensor(huge_tensor(raw_data=b"1234")), "values of w cannot be read"),
    "stated size without numbers": (with_tensor(huge_tensor()), "values of w cannot be read"),
    "numbers in another file": (with_tensor(TensorProto(name="w", dims=[1], data_type=1,
        data_location=TensorProto.EXTERNAL)), "external_data=False"),
    "numbers of a strange kind": (with_tensor(TensorProto(name="w", dims=[0], data_type=99)), "of type"),
    "unknown attribute": (model([node("Relu", "x", "last", slope=1.0), *HEAD]), "the attribute 'slope'"),
    "training batch norm": (model([node("Conv", "x w b", "c"),
        node("BatchNormalization", "c s o m v", "last", training_mode=1), *HEAD], CONV | NORM, opset=15),
        "Export it for inference"),
    "weights that are no numbers": (model([node("Conv", "x w", "last"), *HEAD],
        {"w": np.full((2, 3, 1, 1), np.nan, F32)}), "are not finite"),
    "weights that overflow": (model([node("Relu", "x", "last"), HEAD[0], node("Flatten", "g", "f"),
        node("Gemm", "f w b", "y", alpha=1e30)], {"w": np.full((3, 2), 1e30, F32), "b": np.zeros(2, F32)}),
        "are not finite"),
    "weights used again and again": (model([node("Relu", "x", "r0"),
        *(node("Conv", f"r{i} w", f"r{i + 1}", pads=[1] * 4) for i in range(99)), node("Relu", "r99", "last"), *HEAD],
        {"w": weights(3, 3, 70, 70)}, shape=("N", 3, 8000, 8000)), "share weights so often"),
    "a huge photo": (model([node("Relu", "x", "last"), *HEAD], shape=("N", 3, 1 << 40, 1 << 40)), "photo"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_read_is_refused_with_a_sentence(name, tmp_path):
    data, sentence = REFUSED[name]
    with pytest.raises(ModelFileError, match=sentence):
        read(data, tmp_path)


@pytest.mark.parametrize(("key", "value", "sentence"), [
    ("preprocessing", "{", "metadata 'preprocessing' in this file is not valid"),
    ("preprocessing", "{}", "is not valid"),
    ("preprocessing", '{"mean": [1, 2], "std": [1, 1]}', "photo of 3 channels"),
    ("class_names", '["a", "b"]', "names 2 classes"),
    ("class_names", '["a", "a", "b", "c", "d", "e"]', "names 5 classes"), ("class_names", "7", "class_names"),
    ("temperature", "1e-310", "is not a number from 1e-6"), ("temperature", "nan", "is not valid"),
    ("temperature", "warm", "is not valid"), ("offset", "NaN", "is not valid"),
    ("class_temperatures", "[1, 1]", "not a valid number for each"),
    ("labels", "[0, 1, 0.5, 0.5, 0.5, 1.1]", "not a valid number for each"),
])  # fmt: skip
def test_metadata_that_makes_no_sense_is_refused(key, value, sentence, tmp_path):
    made = onnx.load_model_from_string(model([node("Conv", "x w b", "last"), *HEAD], CONV))
    helper.set_model_props(made, {key: value})
    with pytest.raises(ModelFileError, match=sentence):
        read(made.SerializeToString(), tmp_path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ModelFileError, match="gone.onnx cannot be read"):
        read_onnx(tmp_path / "gone.onnx")
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe.onnx")
        with pytest.raises(ModelFileError, match="pipe.onnx cannot be read .not a file"):
            read_onnx(tmp_path / "pipe.onnx")


FOLDER = Path(os.environ.get("LEAFCLINIC_DATA", "")) / "weights"
CASES = {
    "squeezenet": ("squeezenet_v1.0.onnx",
                   {"mean": (123 / 255, 117 / 255, 104 / 255), "std": (1 / 255,) * 3, "bgr": True}, 1_248_424),
    "mobilenetv2": ("mobilenetv2_1.0_224.onnx", {"mean": (0.5,) * 3, "std": (0.5,) * 3}, 3_487_816),
}


@pytest.mark.skipif(not os.environ.get("LEAFCLINIC_DATA") or not FOLDER.is_dir(),
                    reason="LEAFCLINIC_DATA does not lead to the weights")
@pytest.mark.parametrize("name", CASES)
def test_logits_of_the_pretrained_networks_are_onnxruntimes(name):
    file, options, parameters = CASES[name]
    imported = read_onnx(FOLDER / file, **options)
    assert sum(p.size for p in imported.graph.parameters().values()) == parameters
    with np.load(FOLDER / "expected_outputs.npz") as expected:
        photos, wanted = expected[f"{name}_input_rgb_u8"][:2], expected[f"{name}_logits"][:2]
    size, photo = photos.shape[1:3], imported.graph.nodes[0].attributes
    inputs = transform(photos, identity_augmentation(len(photos), size, size), size, photo["mean"], photo["std"])
    logits = forward(imported.graph, imported.weights, inputs)[imported.graph.output]
    assert np.abs(logits - wanted).max() < 1e-3
