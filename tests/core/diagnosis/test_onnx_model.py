"""A model as a file for other programs: the same logits, all it needs to be used, and its loss in eight bits."""

import json
from dataclasses import replace

import numpy as np
import onnx
import pytest

from core.diagnosis.onnx_model import check_onnx, read_onnx_model, to_onnx
from core.errors import LeafClinicError, ModelFileError
from core.onnx import read_onnx, runtime
from tests.helpers.models import small_model

SECTION = {"score": "energy", "far": -3.5, "no_leaf_class": -1, "no_leaf": 1.0, "curve": [[1.0, 0.0, 0.9, 0.0]]}


def model(name="cnn", size=16):
    return small_model(("été", *"bc"), size, name, 2, temperature=1.3, licence="CC0", sections={"rejection": SECTION})


def test_a_file_holds_all_that_is_needed_to_use_it(tmp_path):
    data = to_onnx(model("mobilenetv2", 32))
    (tmp_path / "m.onnx").write_bytes(data)
    back = read_onnx(tmp_path / "m.onnx")
    assert (back.classes, back.temperature, back.preprocessed) == (("été", "b", "c"), 1.3, True)
    (tmp_path / "m.onnx").write_bytes(to_onnx(replace(model(), views=3)))
    with pytest.raises(ModelFileError, match="16 pixels and 3 views"):
        read_onnx_model(tmp_path / "m.onnx")
    told = {entry.key: entry.value for entry in onnx.load_model_from_string(data).metadata_props}
    assert json.loads(told["thresholds"]) == SECTION
    assert (told["square"], told["licence"]) == ("32", "CC0")
    assert not any(node.op_type == "BatchNormalization" for node in onnx.load_model_from_string(data).graph.node)


def test_the_check_tells_the_difference_refuses_another_network_and_claims_nothing_without_onnxruntime(monkeypatch):
    one = model()
    assert (check := check_onnx(to_onnx(one), one))[0] == runtime.version()
    assert 0 <= check[1] < 1e-4
    for part, change, said in (("bias", 0.001, "differ by 0.001"), ("weight", 3e38, "outputs are not finite numbers")):
        other = {**one.weights, f"dense2.{part}": np.float32(change) + one.weights[f"dense2.{part}"]}
        with pytest.raises(LeafClinicError, match=said):
            check_onnx(to_onnx(one), replace(one, weights=other))
    monkeypatch.setattr(runtime, "version", lambda: None)
    assert check_onnx(to_onnx(one), one) is None
