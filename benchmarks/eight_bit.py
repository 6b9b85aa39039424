"""What eight bits cost: a model in float32 and in eight bits on the whole validation split.

    python -m benchmarks.eight_bit [resources/models/leaves.safetensors] [--photos $LEAFCLINIC_DATA/leaves]

Ranges come from training photos; eight bits are simulated by the reference ops (5 minutes on two cores for
SqueezeNet 1.1), and the file is compared with onnxruntime on some photos.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import numpy as np

from benchmarks.record import make_row, write_results
from benchmarks.ship_model import read_part
from core.diagnosis.int8_model import CALIBRATION, agreement, measure_quantisation_loss, quantise_model
from core.diagnosis.model_file import read_model
from core.diagnosis.onnx_model import metadata_of
from core.onnx import write_quantised_onnx

COMPARED = 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, nargs="?", default=Path("resources/models/leaves.safetensors"))
    parser.add_argument("--photos", type=Path, default=Path(os.environ.get("LEAFCLINIC_DATA", "")) / "leaves")
    options = parser.parse_args()
    model = read_model(options.model)
    each = -(-CALIBRATION // len(model.classes))
    train = read_part(options.photos, "train", model.classes, model.source_side, each)
    validation = read_part(options.photos, "val", model.classes, model.source_side)
    quantised = quantise_model(model, train)
    loss = measure_quantisation_loss(quantised, model, validation)
    data = write_quantised_onnx(quantised, model.classes, model.temperature, metadata_of(model))
    some = np.asarray(validation.photos[:: max(1, len(validation.photos) // COMPARED)][:COMPARED])
    same = agreement(data, quantised, some)
    write_results(
        "eight-bit", [make_row("validation accuracy in eight bits", loss.int8, {"float32": loss.float32}, "share")],
        model=options.model.name, photos=loss.photos, points_lost=100 * (loss.float32 - loss.int8),
        answers_changed=loss.changed, bytes=len(data), range_photos=len(train.labels),
        onnxruntime=None if same is None else {"version": same[0], "same_answer": same[1], "photos": len(some)},
    )  # fmt: skip


if __name__ == "__main__":
    main()
