"""Model files of the same classes joined into one, whose answer is the mean of their logits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from core.diagnosis.learned_photos import join_learned
from core.diagnosis.model_file import ModelFile
from core.errors import ModelFileError
from core.models.joined import join_graphs, join_weights


def join_models(models: Sequence[ModelFile]) -> ModelFile:
    """One model in full precision, without anything that was measured of a single one: it is to be completed anew.

    Raises ModelFileError where they tell other classes apart, look at other squares or cannot be joined.
    """
    first = models[0]
    for model in models[1:]:
        if model.classes != first.classes:
            raise ModelFileError("The models tell other classes apart or have them in another order: "
                                 "they cannot be joined.")
        if model.source_side != first.source_side:
            raise ModelFileError(f"The models look at squares of {first.source_side} and {model.source_side} pixels: "
                                 "they cannot be joined.")
    graphs = [model.graph for model in models]
    return replace(
        first, graph=join_graphs(graphs), weights=join_weights(graphs, [model.weights for model in models]),
        temperature=1.0, figures={}, sections={}, extra={}, half=False, steps={},
        learned=join_learned([model.learned for model in models]), class_temperatures=(),
    )  # fmt: skip
