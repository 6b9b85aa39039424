"""On the GPU: a network that learns from targets beside the reference, a student and its teachers beside the CPU's."""

from dataclasses import replace

import numpy as np
import pytest

from core.config import RunConfig
from core.device import Optimizer
from core.diagnosis.model_file import ModelFile, write_model
from core.models import build
from core.ops.builder import with_loss
from core.ops.contract import Mode
from core.ops.photo import BACKGROUND, BACKGROUND_AFFINE, MASK, Backgrounds
from core.plan import compile_plan
from core.training.step import start_step
from core.training.teacher import Teachers, read_teachers
from tests.helpers.distillation import CLASSES, FAR, NEAR, SIDE, WEIGHTS, distances_from_mix, taught_batch
from tests.helpers.gpu_network import random_weights, relative
from tests.helpers.reference_plan import reference_gradients

pytestmark = pytest.mark.gpu


def plan_of(graph, device="cuda", batch=6, **more):
    optimizer = Optimizer("sgd", momentum=0.9)
    plan = compile_plan(graph, device=device, batch=batch, training=True, optimizer=optimizer, seed=3, **more)
    plan.load(random_weights(graph))
    return plan


@pytest.mark.parametrize("weights", [(), WEIGHTS, None], ids=["even", "weighted", "several labels"])
@pytest.mark.parametrize(("precision", "limit"), [("float32", 1e-4), ("mixed", 5e-2)])
@pytest.mark.parametrize("name", ["squeezenet1_1", "cnn"])
def test_loss_and_gradients_are_the_references(name, precision, limit, weights):
    """In mixed precision only the last layer's: before it, bf16's noise is as large as what is looked for."""
    graph, batch = with_loss(build(name, CLASSES, SIDE), 0.0, weights or (), True, weights is None), taught_batch(5)
    plan = plan_of(graph, precision=precision)
    got, gradients = plan.gradient(batch), plan.gradients()
    again = plan.train_step(batch, 0.0)  # the captured graph, replayed with the same targets ...
    other = plan.train_step(replace(batch, targets=batch.targets[::-1].copy()), 0.0)  # ... and with others
    wanted = reference_gradients(graph, random_weights(graph), batch, Mode(True, 3))
    assert (got.loss, got.correct) == (pytest.approx(wanted.loss, rel=limit), wanted.correct)
    last = next(node.name for node in reversed(graph.nodes) if node.parameters)
    for key in wanted.gradients:
        if precision == "float32" or key.startswith(f"{last}."):
            assert relative(gradients[key], wanted.gradients[key]) < max(limit, 2e-4), key
    assert again.loss == got.loss
    assert abs(other.loss - got.loss) > 1e-3 * got.loss


@pytest.mark.parametrize("weights", [(), WEIGHTS], ids=["even", "weighted"])
@pytest.mark.parametrize("precision", ["float32", "mixed"])
@pytest.mark.parametrize("name", ["squeezenet1_1", "cnn"])
def test_gradients_of_every_layer_are_the_mix_of_those_of_labels(name, precision, weights):
    plans = [
        plan_of(with_loss(build(name, CLASSES, SIDE), 0.0, weights, t), precision=precision) for t in (False, True)
    ]
    labelled, taught = (lambda batch, plan=plan: (plan.gradient(batch).loss, plan.gradients()) for plan in plans)
    right, wrong = distances_from_mix(labelled, taught, weights)
    assert right < (NEAR if precision == "mixed" else 1e-3)
    assert wrong > FAR


def teachers_of(tmp_path, device, student, precision="float32"):
    """Two networks with trainable batch norm to be folded, of other classes in another order."""
    files = []
    for i, classes in enumerate((("c", "a", "e", "b", "d"), ("e", "d", "x", "c", "b", "a"))):
        graph = build("squeezenet1_1_bn", len(classes), SIDE)
        weights = {k: a * np.float32(1.02**i) for k, a in random_weights(graph).items()}
        files.append(str(tmp_path / f"{device}{i}.safetensors"))
        write_model(tmp_path / f"{device}{i}.safetensors", ModelFile(graph, weights, classes, SIDE, 1.2))
    config = RunConfig(teacher=tuple(files), teacher_share=0.8, label_smoothing=0.1, image_size=SIDE,
                       precision=precision)  # fmt: skip
    teachers = Teachers(read_teachers(config), config, ("a", "b", "c", "d", "e"), device, student.batch)
    teachers.borrow_photos(student)
    return teachers


@pytest.mark.parametrize("resident", [True, False])
def test_steps_of_a_student_with_two_teachers_are_the_cpus(tmp_path, resident):
    """Augmented photos, some on other backgrounds, of which the student's plan keeps the only copy."""
    batch = taught_batch(5, taught=False)
    draw = np.random.default_rng(4)
    masks = draw.integers(0, 256, (5, 30, 30), dtype=np.uint8)
    backgrounds = draw.integers(0, 256, (3, SIDE, SIDE, 3), dtype=np.uint8)
    batch.augmentation[::2, BACKGROUND], batch.augmentation[::2, MASK] = 2, np.arange(0, 5, 2)
    batch.augmentation[::2, BACKGROUND_AFFINE] = (1, 0, 0, 0, 1, 0)
    graph = with_loss(build("squeezenet1_1", CLASSES, SIDE), 0.1, (), targets=True)
    found = {}
    for device in ("cpu", "cuda"):
        student = plan_of(graph, device, batch=3)
        student.keep_backgrounds(Backgrounds(masks, backgrounds))
        kept = student.keep_photos(batch.photos, stream=not resident)
        assert kept is resident
        given = replace(batch, photos=None, index=np.arange(5, dtype=np.int32)) if kept else batch
        teachers = teachers_of(tmp_path, device, student)
        losses, targets = [], []
        for _ in range(3):
            taught = teachers.add_targets(given, given)
            targets.append(taught.targets)
            losses.append(start_step(student, taught, 1e-3, given)().loss)
        found[device] = losses, targets, student.weights()
        teachers.close()
    (cpu, said, weights), (gpu, told, moved) = found["cpu"], found["cuda"]
    assert np.ptp(said[0], axis=0).max() > 0.02, "teachers without opinions prove nothing"
    np.testing.assert_allclose(told[0], said[0], atol=2e-3)
    assert all(array.tobytes() == told[0].tobytes() for array in told), "the same photos, another answer"
    np.testing.assert_allclose(gpu, cpu, rtol=2e-3)
    for name in weights:
        assert relative(moved[name], weights[name]) < 2e-3, name


def test_teachers_in_mixed_precision_say_about_the_same(tmp_path):
    batch = taught_batch(6, taught=False)
    student = plan_of(with_loss(build("cnn", CLASSES, SIDE), 0.0, (), targets=True))
    answers = []
    for precision in ("float32", "mixed"):
        teachers = teachers_of(tmp_path, "cuda", student, precision)
        answers.append(teachers.add_targets(batch).targets)
        teachers.close()
    np.testing.assert_allclose(answers[1], answers[0], atol=0.05)
