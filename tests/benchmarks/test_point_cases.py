"""The layers and tiles that a measurement on a Hopper tries, and how its rows enter the table of tiles."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import core.gpu.writers
from benchmarks import point_cases
from benchmarks.point_cases import Layer, by_common, by_tma, candidates, layers, merged, row_of
from core.gpu.kernels.parts.tile import Tile

BATCHES = (1, 32, 256)
TABLE = json.loads(Path(core.gpu.writers.__file__).with_name("tiles.json").read_text(encoding="utf-8"))
NOWHERE = dict.fromkeys(("x", "y", "dx", "weight", "bias", "partial"), 0)


def test_the_table_holds_every_layer_and_each_tile_is_a_candidate():
    known = {(row["direction"], row["rows"], row["columns"], row["depth"]): row["tile"] for row in TABLE
             if row["direction"] in [f"boxes_{direction}" for direction in point_cases.DIRECTIONS]}
    tried = {(f"boxes_{layer.direction}", *layer.shape): layer for batch in BATCHES for layer in layers(batch)}
    assert set(known) == set(tried)
    for shape, numbers in known.items():
        without_stages = {tile.numbers[:3] + tile.numbers[4:] for tile in candidates(tried[shape])}
        assert (*numbers[:3], *numbers[4:]) in without_stages, shape


@pytest.mark.parametrize("layer", layers(32), ids=str)
def test_every_candidate_fits_and_has_launches(layer):
    found = candidates(layer)
    assert len(found) > 1
    for tile in found:
        launch, splits = by_tma(layer, tile, NOWHERE, 132)
        assert launch.shared <= 227 << 10
        assert len(launch.values) == len(launch.recipe.kinds)
        assert (splits > 0) == (layer.direction != "forward")
    assert len(by_common(layer, NOWHERE, 132)) == (2 if layer.direction == "gradients" else 1)


def test_rows_enter_the_table_and_others_are_scaled_only_where_they_would_decide_otherwise():
    layer, tile = Layer("gradients", 1000, 128, 16), Tile(64, 64, 32, 4, 4, 1, 1)
    others = [
        {"arithmetic": "bf16", "direction": d, "rows": 1000, "columns": c, "depth": k, "splits": 1, "tile": [1],
         "microseconds": us}
        for d, c, k, us in (("backward_input", 128, 16, 6.0), ("backward_weight", 16, 128, 4.0), ("forward", 8, 8, 1.0))
    ]  # fmt: skip
    for took, common, wanted in ((9.0, 12.0, [6, 4]), (11.0, 12.0, [7.2, 4.8]), (9.0, 8.0, [4.8, 3.2])):
        table = merged(others, [(layer, row_of(layer, tile, took), common)])
        directions = [row["direction"] for row in table]
        assert directions == ["backward_input", "backward_weight", "boxes_gradients", "forward"]
        assert [row["microseconds"] for row in table] == [*wanted, took, 1.0]
    assert others[0]["microseconds"] == 6.0
    again = merged(table, [(layer, row_of(layer, tile, 5.0), 8.0)])
    assert len(again) == 4


def test_a_mask_is_that_of_the_layer_before():
    found = {layer.shape: layer.masking for layer in layers(1) if layer.direction == "gradients"}
    assert found[54 * 54, 96, 16] == ""
    assert found[54 * 54, 128, 16] == "relu"
    assert set(point_cases.DIRECTIONS) == {"forward", "gradients", "filters"}
