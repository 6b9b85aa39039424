"""Eight bits: ranges, nearly the same answers, and a loss that is counted."""

from dataclasses import replace

import numpy as np
import pytest

from core.diagnosis import int8_model
from core.diagnosis.completion import LabelledPhotos
from core.diagnosis.int8_model import agreement, measure_quantisation_loss, measure_ranges, quantise_model
from core.onnx import runtime, write_quantised_onnx
from core.program import fold_batch_norm, fold_weights
from tests.helpers.models import predict, small_model
from tests.helpers.noise import integers


def squares(count, size=16):
    return integers("squares", (count, size, size, 3), 0, 256).astype(np.uint8)


def test_ranges_are_the_extremes_of_all_photos(monkeypatch):
    monkeypatch.setattr(int8_model, "CHUNK", 3)
    model = small_model(seed=2)
    one = replace(model, graph=fold_batch_norm(model.graph), weights=fold_weights(model.graph, model.weights))
    photos = squares(7)
    ranges = measure_ranges(one, photos)
    outputs = predict(replace(one, sections={}), photos, batch=7, outputs=tuple(ranges))
    for name, (low, high) in ranges.items():
        assert (low, high) == pytest.approx((outputs[name].min(), outputs[name].max()), rel=1e-5)


def test_eight_bits_answer_nearly_as_float32_and_the_loss_is_counted():
    one, photos = small_model(seed=2), squares(40)
    answers = predict(replace(one, sections={}), photos, batch=8)["logits"].argmax(axis=1)
    labels = answers.copy()
    labels[:4] = (labels[:4] + 1) % 3  # four wrong answers in float32
    quantised = quantise_model(one, LabelledPhotos(photos, labels))
    loss = measure_quantisation_loss(quantised, one, LabelledPhotos(photos, labels))
    assert (loss.photos, loss.float32) == (40, 0.9)
    assert loss.changed <= 6
    assert abs(loss.int8 - loss.float32) <= loss.changed / 40 + 1e-9
    coarser = halved(quantised)
    said = agreement(write_quantised_onnx(coarser), coarser, photos[:10])
    assert said == (runtime.version(), 10)
    scale = quantised.scales["photo"]
    spoiled = replace(quantised, scales={**quantised.scales, "photo": replace(scale, step=20 * scale.step, zero=6)})
    assert measure_quantisation_loss(spoiled, one, LabelledPhotos(photos, labels)).changed > loss.changed


def halved(quantised):
    """Weights of half as many steps: two products fit into 16 bits, where processors without VNNI add them up."""
    weights = {n: np.rint(w / 2).astype(w.dtype) if n in quantised.steps else w for n, w in quantised.weights.items()}
    return replace(quantised, weights=weights, steps={n: 2 * step for n, step in quantised.steps.items()})
