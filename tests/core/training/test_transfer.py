"""Learned weights come along, the head is new where the classes are, and what must not learn keeps its bits."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from core.command_line import change_settings
from core.config import RunConfig, from_dict, problems
from core.device import Optimizer
from core.diagnosis.model_file import ModelFile, read_model, with_photo_side, write_model
from core.errors import ConfigError, ModelFileError
from core.models import build, initial_weights
from core.onnx import write_onnx
from core.ops.builder import with_loss
from core.ops.network import forward
from core.plan import compile_plan
from core.program import lower
from core.training import transfer
from core.training.events import RunStarted, Warned
from core.training.run_folder import read_config
from core.training.trainer import Trainer
from tests.helpers.gpu_network import batch_for
from tests.helpers.models import changed
from tests.helpers.noise import noise
from tests.helpers.runs import only, train

WEIGHTS = Path(os.environ.get("LEAFCLINIC_DATA", "")) / "weights"


def donor(path, name="squeezenet1_1_bn", classes=("oak", "ash", "elm"), size=48, **options):
    """A model file whose batch norms have something to fold."""
    graph = build(name, len(classes), size, **options)
    weights = initial_weights(graph, 9)
    for key in weights:
        if key.endswith(("running_mean", "_bn.bias")):
            weights[key] = noise(key, weights[key].shape).astype(np.float32) / 10
        if key.endswith("running_var"):
            weights[key] = 0.5 + noise(key, weights[key].shape).astype(np.float32) ** 2
    write_model(path, ModelFile(graph, weights, tuple(classes), size))
    return RunConfig(start=str(path))


def start(config, classes):
    config, origin = transfer.read_start(config)
    return config, transfer.first_network(config, origin, classes)


@pytest.mark.parametrize(("name", "given", "size"), [("squeezenet1_1_bn", 0, 48), ("mobilenetv2", 80, 80)])
def test_a_folded_network_says_what_the_file_says_also_of_photos_of_another_size(tmp_path, name, given, size):
    config = replace(donor(tmp_path / "m.safetensors", name), image_size=given)
    assert Trainer(config).config.out.endswith("-m")
    config, network = start(config, ("oak", "ash", "elm"))
    model = read_model(tmp_path / "m.safetensors")
    assert (config.image_size, config.model) == (size, name)
    assert f"photos of {size} pixels" in network.notes[-1]
    assert not any(node.op == "batch_norm" for node in network.graph.nodes)
    assert not lower(network.graph, True).uses_batch_statistics()
    photos = noise("photos", (2, size, size, 3)).astype(np.float32)
    said, told = (forward(g, w, photos)[g.output] for g, w in ((with_photo_side(model.graph, size), model.weights),
                                                              (network.graph, network.weights)))
    np.testing.assert_allclose(told, said, atol=1e-4 * max(1, np.abs(said).max()))
    assert np.ptp(said) > 1e-3


@pytest.mark.parametrize(("classes", "rows", "note"), [
    (("ash", "elm", "oak"), {0: 1, 1: 2, 2: 0}, "classifier kept"),
    (("ash", "beech", "oak"), {0: 1, 2: 0}, "3 classes, 2 of which keep their weights"),
])  # fmt: skip
def test_known_classes_keep_their_rows_of_the_head_by_name_also_beside_new_ones(tmp_path, classes, rows, note):
    _, network = start(donor(tmp_path / "m.safetensors"), classes)
    given = read_model(tmp_path / "m.safetensors").weights["classifier.1.weight"]
    learned = network.weights["classifier.1.weight"]
    assert learned[[*rows]].tobytes() == given[[*rows.values()]].tobytes()
    assert all(0.005 < learned[new].std() < 0.02 for new in set(range(3)) - set(rows))
    assert note in network.notes[-1]


def test_other_classes_get_a_new_head_and_nothing_else(tmp_path):
    config, origin = transfer.read_start(donor(tmp_path / "m.safetensors", dropout=0.1))
    _, network = start(replace(config, dropout=0.3), ("a", "b", "c", "d"))
    assert network.graph.classes == 4
    head = transfer.head_parameters(network.graph)
    assert head == {"classifier.1.weight", "classifier.1.bias"}
    assert {n for n in network.weights if n in origin.weights
            and network.weights[n].tobytes() == origin.weights[n].tobytes()} == set(network.weights) - head
    assert 0.005 < network.weights["classifier.1.weight"].std() < 0.02
    assert network.graph.node("classifier.0").attributes["rate"] == 0.3
    assert "new classifier for 4 classes" in network.notes[-1]


@pytest.mark.parametrize(("given", "size"), [(0, 32), (64, 64)])
def test_an_onnx_file_of_ours_brings_its_own_preprocessing_and_its_size_unless_one_is_given(tmp_path, given, size):
    graph = changed(build("mobilenetv2", 3, 32), "photo", mean=(0.1, 0.2, 0.3), std=(0.4, 0.5, 0.6))
    (tmp_path / "m.onnx").write_bytes(write_onnx(graph, initial_weights(graph, 1), ("x", "y", "z"), 1.0))
    config, network = start(RunConfig(start=str(tmp_path / "m.onnx"), image_size=given), ("x", "q"))
    assert network.graph.nodes[0].attributes["mean"] == (0.1, 0.2, 0.3)
    assert (config.image_size, network.graph.photo_shape) == (size, (size, size, 3))
    assert (network.graph.classes, len(network.notes)) == (2, 1)
    (doubt,) = transfer.describe_origin(transfer.read_start(config)[1], ())
    assert "cannot be measured" in doubt, "it names classes, so it has learned from photos like these"


@pytest.mark.skipif(not os.environ.get("LEAFCLINIC_DATA") or not WEIGHTS.is_dir(),
                    reason="LEAFCLINIC_DATA does not lead to the weights")
@pytest.mark.parametrize(("file", "colours", "size", "first"), [
    ("squeezenet_v1.0.onnx", "caffe", 227, (96, 7, 7, 3)),
    ("mobilenetv2_1.0_224.onnx", "tensorflow", 224, (32, 3, 3, 3)),
])  # fmt: skip
def test_pretrained_networks_of_other_programs_start_a_run(file, colours, size, first):
    config, network = start(RunConfig(start=str(WEIGHTS / file), start_colours=colours), ("a", "b", "c"))
    assert (config.image_size, network.graph.classes) == (size, 3)
    assert network.weights[name := next(iter(network.graph.parameters()))].shape == first
    assert not any("does not say" in note for note in network.notes)
    _, unsaid = start(RunConfig(start=str(WEIGHTS / file)), ("a", "b"))
    assert "--input-normalization tensorflow or caffe" in unsaid.notes[0]
    if colours == "caffe":  # trained on blue, green, red
        assert network.weights[name][..., ::-1].tobytes() == unsaid.weights[name].tobytes()


def test_layers_that_do_not_learn_are_named():
    every = {*(graph := build("squeezenet1_1", 4, 64)).parameters()}
    assert transfer.frozen_parameters(RunConfig(train_layers="all"), graph) == ()
    head, last = (every - {*transfer.frozen_parameters(RunConfig(train_layers=w), graph)} for w in ("head", "last"))
    assert head == {"classifier.1.weight", "classifier.1.bias"}
    assert {n.split(".")[1] for n in last if n.startswith("features")} == {"11", "12"}
    assert head < last


@pytest.mark.parametrize(("donated", "given", "preset", "size"), [
    (288, 0, "transfer", 256), (64, 0, "transfer", 64), (288, 288, "transfer", 288), (288, 0, "leaves-field", 288),
])  # fmt: skip
def test_the_preset_transfer_trains_at_256_pixels_at_most(tmp_path, donated, given, preset, size):
    config = replace(donor(tmp_path / "m.safetensors", size=donated), image_size=given, preset=preset)
    config, origin = transfer.read_start(config)
    assert (config.image_size, origin.graph.photo_shape) == (size, (size, size, 3))


def test_without_weights_to_start_from_all_layers_must_learn_and_photos_have_224_pixels_by_default():
    assert transfer.read_start(RunConfig(image_size=0))[0].image_size == 224
    with pytest.raises(ConfigError, match=r"15 is too small; the minimum is 16\.\n.*: inf is too .*\n.*: 10+ is too"):
        from_dict({"image_size": 15, "epochs": 10**400, "dropout": 10**400})
    assert [p.field for p in problems(RunConfig(train_layers="head"))] == ["train_layers"]
    assert not problems(RunConfig(train_layers="head", start="m.safetensors"))


def test_backward_ends_at_the_first_layer_that_learns_and_the_rest_keeps_its_bits():
    """On the CPU's plan: nothing is computed for layers that stay, and their running average stays too."""
    logits = build("squeezenet1_1", 3, 32)
    frozen = transfer.frozen_parameters(RunConfig(train_layers="head"), logits)
    plan = compile_plan(with_loss(logits, 0.0, ()), batch=2, training=True, frozen=frozen,
                        optimizer=Optimizer("adamw", weight_decay=0.1, average=0.5))
    behind = {layer for layer, direction, _ in plan.kernels() if direction.startswith("backward")}
    assert "classifier.1" in behind
    assert not any(layer.startswith("features") for layer in behind)
    weights = initial_weights(logits, 3)
    plan.load(weights)
    plan.train_step(batch_for(logits, 2), 0.01)
    average = plan.state()["average"]
    averaged = {name: average[at : at + int(np.prod(shape))] for name, (at, shape) in plan.layout.offsets.items()}
    for found in (plan.weights(), averaged):
        same = {name for name, array in found.items() if array.tobytes() == weights[name].tobytes()}
        assert set(weights) - same == transfer.head_parameters(logits)
    plan.close()


@pytest.mark.usefixtures("reference_plans")
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_training_the_head_leaves_every_other_bit(tiny, tmp_path, optimizer):
    file, other, moved = (tmp_path / name for name in ("m.safetensors", "other.safetensors", "moved.safetensors"))
    config = tiny(start=donor(file, "cnn", ("x", "y", "z"), 16).start, train_layers="head", optimizer=optimizer,
                  image_size=0, model="squeezenet1_1", epochs=2)  # fmt: skip
    events = train(config)
    trained, before = read_model(Path(config.out)), read_model(file)
    assert only(events, RunStarted)[0].model == "cnn"
    assert any("only the classifier is trained" in e.message for e in only(events, Warned))
    assert trained.graph.photo_shape == (16, 16, 3)
    same = {n for n, a in trained.weights.items() if a.tobytes() == before.weights[n].tobytes()}
    assert set(trained.weights) - same == transfer.head_parameters(trained.graph)
    again = read_config(Path(config.out))
    file.rename(moved)
    for path, said in ((str(file), "There is no file"), (donor(other, "cnn", size=16).start, "Give the file that it")):
        with pytest.raises(ModelFileError, match=said):
            train(change_settings(again, {"start": path}, []), resume=True)
    again = change_settings(again, {"start": str(moved)}, [])
    assert (again.image_size, train(again, resume=True)[-1].reason) == (16, "completed")


def test_files_that_cannot_be_started_from_are_told_in_a_sentence(tmp_path):
    for name, content, said in (
        ("gone.safetensors", None, "There is no file"), ("gone.onnx", None, "cannot be read"),
        ("text.safetensors", b"nonsense", "incomplete, damaged or in another format"), ("text.onnx", b"a", "ONNX"),
    ):
        if content is not None:
            (tmp_path / name).write_bytes(content)
        with pytest.raises(ModelFileError, match=said) as told:
            transfer.read_start(RunConfig(start=str(tmp_path / name)))
        assert "\n" not in str(told.value)
    config = donor(tmp_path / "m.safetensors", "cnn", size=16)
    with pytest.raises(ConfigError, match="input-normalization: is only for ONNX"):
        transfer.read_start(replace(config, start_colours="caffe"))
    with pytest.raises(ModelFileError, match="cnn works on photos of 16 pixels only"):
        transfer.read_start(replace(config, image_size=24))
    grey = build("mlp", 3, 28, channels=1)
    write_model(tmp_path / "grey.safetensors", ModelFile(grey, initial_weights(grey, 0), ("a", "b", "c"), 28))
    with pytest.raises(ModelFileError, match="square colour photos"):
        transfer.read_start(RunConfig(start=str(tmp_path / "grey.safetensors")))
