"""The command that writes ONNX: files, sentences, exit codes, and nothing written where something is wrong."""

import json
from dataclasses import replace
from unittest.mock import Mock, patch

import onnx
import pytest

from core import diagnose, export
from core.config import RunConfig, to_dict
from core.diagnosis.model_file import read_model, write_model
from core.onnx import runtime
from tests.helpers.models import small_model
from tests.helpers.tiny_photos import write_photos


@pytest.fixture
def model(tmp_path):
    own = small_model(("brown", "green"), temperature=0.8, class_temperatures=(0.5, 2.0), views=2)
    write_model(tmp_path / "m.safetensors", replace(own, source_side=11))
    return tmp_path / "m.safetensors"


def test_eight_bits_need_photos_and_tell_their_loss(model, tmp_path, capsys):
    out, photos = tmp_path / "m.onnx", write_photos(tmp_path / "photos")
    assert export.main([str(model), "--onnx", str(out), "--int8"]) == 2
    assert "--int8: needs photos" in capsys.readouterr().err
    assert not out.exists()
    command = [str(model), "--onnx", str(out), "--int8", "--data", str(photos), "--cache", str(tmp_path / "cache")]
    assert export.main(command) == 0
    said = capsys.readouterr().out
    assert "% in 8 bits" in said
    assert "predicts the same class as the 8-bit model on" in said
    told = {e.key: e.value for e in onnx.load(out).metadata_props}
    figures = json.loads(told["int8"])
    assert figures["validation_photos"] == 4
    assert f"{100 * figures['int8_accuracy']:.2f} % in 8 bits" in said
    assert json.loads(told["class_names"]) == ["brown", "green"]
    assert out.stat().st_size < 0.4 * sum(a.nbytes for a in read_model(model).weights.values()) + 20000


def test_a_run_is_quantised_with_its_own_photos_split_and_cache(model, tmp_path, monkeypatch):
    settings, run = RunConfig(data="photos", cache="own"), tmp_path / "run"
    run.mkdir()
    model.rename(run / "best.safetensors")
    (run / "config.json").write_text(json.dumps(to_dict(settings)), "utf-8")
    monkeypatch.setattr(export, "make_int8", made := Mock(return_value=(b"", [])))
    assert export.main([str(run), "--onnx", str(tmp_path / "m.onnx"), "--int8"]) == 0
    assert made.call_args.args[1] == replace(settings, split=str(run / "split.csv"))


def test_wrong_calls_are_told(model, tmp_path, capsys):
    out, photos = tmp_path / "m.onnx", write_photos(tmp_path / "photos", ("green", "grey"))
    command = [str(model), "--onnx", str(out), "--int8", "--data", str(photos), "--cache", str(tmp_path / "cache")]
    assert export.main(command) == 2
    assert "does not know grey" in capsys.readouterr().err
    assert export.main([str(tmp_path / "none"), "--onnx", str(out)]) == 2
    assert not out.exists()


def test_an_onnx_file_diagnoses_as_the_model_it_was_made_of(model, tmp_path, capsys):
    out, photos = tmp_path / "m.onnx", write_photos(tmp_path / "photos")
    with pytest.raises(BrokenPipeError), patch("builtins.print", side_effect=BrokenPipeError):
        export.export([str(model), "--onnx", str(out)])
    assert out.is_file(), "also where nobody reads what is printed"
    assert export.main([str(model), "--onnx", str(out)]) == 0
    said = capsys.readouterr().out
    assert f"Checked: onnxruntime {runtime.version()} computes the same output" in said
    assert "float32" in said
    rows = []
    for file in (model, out):
        assert diagnose.main([str(file), str(photos), "--json", "--device", "cpu"]) == 0
        captured = capsys.readouterr()
        rows.append([json.loads(line) for line in captured.out.splitlines()])
    assert "m.onnx is an ONNX file, used without thresholds" in captured.err
    assert len(rows[0]) == len(rows[1]) > 1
    for ours, theirs in zip(*rows, strict=True):
        assert theirs["top"][0]["label"] == ours["top"][0]["label"]
        assert theirs["top"][0]["probability"] == pytest.approx(ours["top"][0]["probability"], abs=1e-4)
