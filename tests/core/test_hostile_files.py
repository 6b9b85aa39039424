"""Files from outside, altered in every way and signed again: each is read, or refused with a sentence."""

import json
import random
from contextlib import closing, suppress

import numpy as np
import pytest
from safetensors.numpy import save

from core import tensor_file
from core.diagnosis.features import PrincipalSubspace
from core.diagnosis.model_file import in_bits, read_model, write_model
from core.diagnosis.model_identity import CONFIG
from core.diagnosis.prediction import Predictor
from core.diagnosis.spreads import SpreadStatistics
from core.diagnosis.thresholds import SECTION
from core.errors import LeafClinicError, ModelFileError
from core.tensor_file import read_tensor_file
from core.training.checkpoint import LAST, VERSION, read_checkpoint
from core.training.events import from_line
from core.training.run_folder import read_config
from tests.helpers.commands import cache, photos, trained  # noqa: F401 (fixtures)
from tests.helpers.damage import ODD, alter, refusals
from tests.helpers.models import small_model
from tests.helpers.tiny_photos import write_photos

FEW, MANY, USED = 200, 4_000, 12
RUNS = [FEW, pytest.param(MANY, marks=pytest.mark.slow)]


def sign(path, kind, version, text, tensors):
    """A file whose checksum is right, whatever its header."""
    metadata = {"kind": kind, "version": str(version), "header": text, "checksum": tensor_file._checksum(text, tensors)}
    dense = {name: np.asarray(array, order="C") for name, array in tensors.items()}
    path.write_bytes(tensor_file._with_metadata(save(dense), metadata))


def altered_tensors(tensors, rng):
    name = rng.choice(sorted(tensors))
    array = tensors[name]
    change = rng.choice(["gone", "cut", "flat", "half", "int", "nan"])
    new = {"cut": array[:1], "flat": array.reshape(-1), "half": array.astype(np.float16), "int": array.astype(np.int8),
           "nan": np.full_like(array, np.nan) if array.dtype.kind == "f" else array, "gone": array}[change]  # fmt: skip
    return {n: new if n == name else a for n, a in tensors.items() if n != name or change != "gone"}


@pytest.fixture(scope="module", params=[32, 8], ids=["float32", "eight bits"])
def model_seed(request, tmp_path_factory):
    """A model with everything that a file can hold."""
    rng = np.random.default_rng(0)
    statistics = PrincipalSubspace(rng.random(512), rng.random((512, 4)), 0.5)
    spreads = SpreadStatistics(rng.random(80), rng.random((4, 80)), rng.random(4), rng.random((3, 4)), rng.random(3))
    rejection = {"score": "vim_spreads", "far": -1e9, "no_leaf_class": -1, "no_leaf": 1.0, "curve": [[1, 0, 0.9, 0]]}
    path, sections = tmp_path_factory.mktemp("seed") / "m.safetensors", {SECTION: rejection, "test": {"parts": []}}
    model = small_model(side=32, network="squeezenet1_1", sections=sections, figures={"test_accuracy": 0.5},
                        extra=statistics.to_arrays() | spreads.to_arrays(), class_temperatures=(1, 2, 3))  # fmt: skip
    write_model(path, in_bits(model, 8) if request.param == 8 else model)
    return read_tensor_file(path, "model", 1)


def use(path, photo):
    """As `leafclinic diagnose` does."""
    with closing(Predictor(read_model(path))) as predictor:
        assert not next(predictor.diagnose([str(photo)])).error


@pytest.mark.thorough
@pytest.mark.parametrize("rounds", RUNS)
def test_altered_model_files_are_refused_or_can_be_used(model_seed, tmp_path, rounds):
    rng, path, refused = random.Random(1), tmp_path / "m.safetensors", 0
    photo = next(write_photos(tmp_path / "photos").rglob("*.png"))
    for i in range(rounds):
        tensors = altered_tensors(model_seed.tensors, rng) if rng.random() < 0.3 else model_seed.tensors
        header = alter(model_seed.header, rng) if tensors is model_seed.tensors else model_seed.header
        sign(path, "model", 1, json.dumps(header), tensors)
        try:
            read_model(path)
        except LeafClinicError:
            refused += 1
        else:
            if i - refused < USED:
                use(path, photo)
    assert rounds / 2 < refused < rounds


@pytest.mark.thorough
@pytest.mark.parametrize("rounds", RUNS)
def test_altered_checkpoints_are_read_or_refused(trained, tmp_path, rounds):  # noqa: F811
    seed = read_tensor_file(trained[0] / LAST, "checkpoint", VERSION)
    rng, path = random.Random(2), tmp_path / "c.safetensors"

    def read():
        sign(path, "checkpoint", VERSION, json.dumps(alter(seed.header, rng)), seed.tensors)
        read_checkpoint(path)

    assert len(refusals(LeafClinicError, [read] * rounds)) > rounds / 3


@pytest.mark.thorough
@pytest.mark.parametrize("rounds", RUNS)
def test_altered_settings_and_lines_of_a_run_are_read_or_refused(trained, tmp_path, rounds):  # noqa: F811
    rng = random.Random(3)
    config = json.loads((trained[0] / CONFIG).read_text("utf-8"))
    lines = [json.loads(line) for line in (trained[0] / "events.jsonl").read_text("utf-8").splitlines()]

    def read_settings():
        (tmp_path / CONFIG).write_text(json.dumps(rng.choice([alter(config, rng), *ODD])))
        read_config(tmp_path)

    refusals(LeafClinicError, [read_settings] * rounds)
    for _ in range(rounds):
        line = json.dumps(rng.choice([alter(rng.choice(lines), rng), *ODD]))
        with suppress(ValueError):  # as all who read the log expect
            from_line(line)


@pytest.mark.parametrize("text", ["{", "", "[" * 100_000 + "]" * 100_000, "{\"a\":" * 900 + "1" + "}" * 900, "1" * 5000,
                                  "[1, 2]", "null", "3", '{"temperature": 9223372036854775808}', "[" * 70 + "]" * 70])
@pytest.mark.parametrize("kind", ["model", "checkpoint"])
def test_a_header_that_is_no_object_of_ours_is_refused(model_seed, tmp_path, text, kind):
    path = tmp_path / "m.safetensors"
    sign(path, kind, {"model": 1, "checkpoint": VERSION}[kind], text, model_seed.tensors)
    with pytest.raises(ModelFileError, match="an invalid header"):
        read_model(path) if kind == "model" else read_checkpoint(path)


@pytest.mark.parametrize("name", ["center", "basis", "scale"])
@pytest.mark.parametrize("change", ["missing", "cut"])
def test_statistics_of_features_that_are_missing_or_cut_are_refused(model_seed, tmp_path, name, change):
    path, full = tmp_path / "m.safetensors", f"extra/features.{name}"
    tensors = {n: a[:-1] if n == full else a for n, a in model_seed.tensors.items() if n != full or change == "cut"}
    sign(path, "model", 1, json.dumps(model_seed.header), tensors)
    with pytest.raises(ModelFileError, match="statistics"):
        read_model(path)
