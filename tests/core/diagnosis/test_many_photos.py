"""Diagnosis of very many photos: parts, resuming, shards, merging, and Dask's workers, of which some are killed."""

import csv
import io
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from functools import partial
from pathlib import Path
from unittest.mock import create_autospec, patch

import distributed
import numpy as np
import pytest
from pyarrow import parquet

from core import diagnose
from core.data.source import find_photos
from core.diagnosis import many_photos, prediction
from core.diagnosis.many_photos import cut_parts, find_missing, open_results
from core.diagnosis.model_file import read_model
from core.diagnosis.model_identity import read_identity
from core.diagnosis.prediction import Predictor
from core.errors import EXIT_DONE, EXIT_FAILED, EXIT_INTERRUPTED, EXIT_WRONG_INPUT, InputError
from core.onnx import write_onnx
from tests.helpers.commands import ROOT, children_of, environment
from tests.helpers.models import write_small_model
from tests.helpers.tiny_photos import write_photos


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_small_model(tmp_path_factory.mktemp("model") / "m.safetensors", ("brown", "green"))


@pytest.fixture
def photos(tmp_path):
    return write_photos(tmp_path / "photos", each=10)


def run(*arguments):
    return diagnose.main([str(argument) for argument in arguments])


def rows_of(table):
    return [row | {"milliseconds": ""} for row in csv.DictReader(table.splitlines())]


def merged_rows(folder):
    return rows_of((folder / "results.csv").read_text("utf-8"))


def test_merged_parts_are_the_rows_of_csv(model, photos, tmp_path, capsys):
    (photos / "brown" / "=damaged.png").write_bytes(b"no photo")
    out = tmp_path / ("out\udcff" if sys.platform == "linux" else "out")  # which is no UTF-8
    assert run(model, photos, "--out", out, "--part", 6) == EXIT_DONE
    assert "21 photos, 1 could not be read" in capsys.readouterr().err
    assert len(list(out.glob("part-*.parquet"))) == 4
    assert run("--merge", out) == run(model, photos, "--part", 6, "--out", out) == EXIT_DONE
    assert "There was nothing left to diagnose." in capsys.readouterr().err
    assert run(model, photos, "--csv") == EXIT_DONE
    wanted = rows_of(capsys.readouterr().out)
    assert merged_rows(out) == wanted
    table = parquet.read_table(io.BytesIO((out / "results.parquet").read_bytes())).to_pylist()
    assert [row["path"] for row in table] == [row["path"] for row in wanted]
    stated = [row["probability1"] for row in table]
    assert [f"{value:.6f}" if value else "" for value in stated] == [row["probability1"] for row in wanted]


def test_what_is_done_is_kept_and_the_rest_is_computed(model, photos, tmp_path, capsys):
    out = tmp_path / "out"
    assert run(model, photos, "--out", out, "--part", 6) == EXIT_DONE
    parts, tables = (sorted(out.glob(f"part-*.{kind}")) for kind in ("parquet", "csv"))
    before = {path: path.stat().st_mtime_ns for path in parts}
    parts[1].unlink()
    assert run("--merge", out) == EXIT_WRONG_INPUT
    assert run(model, photos, "--out", out, "--part", 6) == EXIT_DONE
    assert [path for path in parts if path.stat().st_mtime_ns != before[path]] == [parts[1]]
    for harm, said in ((lambda: parts[0].write_bytes(b"PAR1"), "parquet is damaged. Remove both"),
                       (lambda: tables[1].write_bytes(tables[1].read_bytes()[:-1]), "is damaged. Remove both"),
                       (lambda: os.truncate(tables[1], 0), "is damaged. Remove both"),
                       (tables[2].unlink, f"1 of 4 parts are missing in {out}: 2."),
                       *((partial((out / "listing.json").write_text, text), said) for text, said in (
                           ("[]", "has no complete results"), ('{"parts": -1, "photos": 0}', "has no complete results"),
                           (f'{{"parts": {10**12}, "photos": 2}}', "parts are missing")))):  # fmt: skip
        kept = parts[0].read_bytes(), tables[1].read_bytes()
        harm()
        assert (run("--merge", out), said in capsys.readouterr().err) == (EXIT_WRONG_INPUT, True)
        assert not (out / "results.csv").exists()
        parts[0].write_bytes(kept[0])
        tables[1].write_bytes(kept[1])


def test_shards_compute_every_photo_once_and_other_photos_are_refused(model, photos, tmp_path, capsys):
    out = tmp_path / "out"
    assert run(model, photos, "--out", out, "--part", 3, "--shard", "1/2") == EXIT_DONE
    assert run("--merge", out) == EXIT_WRONG_INPUT
    assert "3 of 7 parts are missing" in capsys.readouterr().err
    assert run(model, photos, "--out", out, "--part", 3, "--shard", "2/2") == run("--merge", out) == EXIT_DONE
    assert [row["path"] for row in merged_rows(out)] == list(find_photos([str(photos)]))
    (photos / "brown" / "000.png").unlink()
    assert run(model, photos, "--out", out, "--part", 3) == EXIT_WRONG_INPUT
    assert "The photos have changed" in capsys.readouterr().err


def test_an_onnx_file_is_told_by_its_hash(model, photos, tmp_path, capsys):
    onnx, out, same = tmp_path / "m.onnx", tmp_path / "out", read_model(model)
    onnx.write_bytes(write_onnx(same.graph, same.weights, same.classes))
    assert run(onnx, photos, "--out", out) == EXIT_DONE
    onnx.write_bytes(write_onnx(same.graph, {name: 2 * array for name, array in same.weights.items()}, same.classes))
    assert run(onnx, photos, "--out", out) == EXIT_WRONG_INPUT
    assert "were made with another model" in capsys.readouterr().err
    with patch.object(Predictor, "close", autospec=True) as closed:  # the model that this process has loaded
        assert run(onnx, photos, "--out", tmp_path / "new") == run("--merge", tmp_path / "new") == EXIT_DONE
    assert closed.call_count == 1
    assert {row["model_hash"] for row in merged_rows(tmp_path / "new")} == {read_identity(onnx).hash}


@pytest.mark.parametrize(("options", "why"), [
    *((("--shard", shard), "is not a shard") for shard in ("0/2", "3/2", "1", "a/b", "1" * 5000 + "/1")),
    (("--part", 0), "--part: must be from 1"), (("--part", 10**20), "--part: must be from 1 to 1,000,000."),
    (("--workers", 2, "--scheduler", "a:1"), "--workers: cannot be combined with --scheduler"),
    (("--out", "photos/out"), "--out: photos/out is inside the photo folder"),
])  # fmt: skip
def test_impossible_options_are_refused(model, photos, tmp_path, monkeypatch, capsys, options, why):
    monkeypatch.chdir(tmp_path)
    assert run(model, photos, "--out", "out", *options) == EXIT_WRONG_INPUT
    assert why in capsys.readouterr().err
    assert sorted(tmp_path.iterdir()) == [photos]


def test_a_known_crop_restricts_the_parts_and_belongs_to_the_results(photos, tmp_path, capsys):
    model = write_small_model(tmp_path / "m.safetensors", ("apple/scab", "apple/rust", "tomato/rust"))
    options = (model, photos, "--out", tmp_path / "out")
    assert run(*options, "--known-crop", "APPLE") == run("--merge", tmp_path / "out") == EXIT_DONE
    assert {row["label3"] for row in merged_rows(tmp_path / "out")} == {""}
    assert run(*options) == EXIT_WRONG_INPUT
    assert "another known_crop: apple instead of None" in capsys.readouterr().err


def test_a_manifest_needs_paths_only_of_photos_whose_disk_is_there(model, photos, tmp_path, capsys):
    manifest = tmp_path / "list.csv"
    manifest.write_text("photo;note\nphotos/brown/001.png;x\nphotos\\green\\002.png;y\n", "utf-8")
    assert (found := [*find_photos([str(manifest)])]) == [str(photos / p) for p in ("brown/001.png", "green/002.png")]
    assert run(model, manifest, "--out", tmp_path / "out") == run("--merge", tmp_path / "out") == EXIT_DONE
    assert [row["path"] for row in merged_rows(tmp_path / "out")] == found
    manifest.write_text("photo\ngone/001.png\n", "utf-8")
    assert run(model, manifest, "--out", tmp_path / "not") == EXIT_WRONG_INPUT
    assert "Connect the disk" in capsys.readouterr().err
    assert not list((tmp_path / "not").glob("part-*"))


def test_a_listing_of_any_length_is_read_part_by_part(tmp_path):
    """A part is taken before the next photo is asked for."""
    asked = []
    names = (asked.append(number) or f"{number}.jpg" for number in range(10_000_000))
    open_results(tmp_path / "out", {"part": 1000})
    (tmp_path / "link").symlink_to("nowhere")
    for name, said in (("link", "link is a file, or a link that leads nowhere"), ("x" * 256, "x is too long")):
        with pytest.raises(InputError, match=said):
            open_results(tmp_path / name, {"part": 1000})
    missing = find_missing(tmp_path / "out", cut_parts(names, 1000))
    assert [next(missing).number for _ in range(3)] == [0, 1, 2]
    assert len(asked) == 3000


def test_photos_are_decoded_while_the_network_predicts_at_most_a_batch_ahead(model, monkeypatch):
    predictor, decoded, computed, ahead = Predictor(read_model(model), batch=4, threads=2), [], [], []
    photo = np.zeros((16, 16, 3), np.uint8)
    monkeypatch.setattr(prediction, "read_photo", lambda path, side: decoded.append(path) or photo)
    predict = predictor.predict_calibrated

    def watch(photos):
        computed.extend(photos)
        until = time.monotonic() + 5
        while len(decoded) < min(len(computed) + 4, 10) and time.monotonic() < until:
            time.sleep(0.001)
        ahead.append(len(decoded) - len(computed))
        return predict(photos)

    monkeypatch.setattr(predictor, "predict_calibrated", watch)
    names = [f"{number}.jpg" for number in range(10)]
    assert [found.path for found in predictor.diagnose(names)] == names
    predictor.close()
    assert ahead == [4, 2, 0]


def start_workers(model, photos, out, cache, part, is_time=lambda process, out: list(out.glob("part-*.parquet"))):
    """Diagnose by two workers, as from a terminal; returns the process when the first part is done, or `is_time`."""
    command = [sys.executable, "-m", "core.diagnose", model, photos, "--out", out, "--part", part, "--workers", 2]
    process = subprocess.Popen(list(map(str, command)), cwd=ROOT, env=environment(cache), start_new_session=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)  # fmt: skip
    while not is_time(process, out):
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.02)
    return process


def find_workers(process, out=None):
    return [p for p in children_of(process.pid) if "spawn_main" in Path(f"/proc/{p}/cmdline").read_text()]


@pytest.mark.skipif(sys.platform != "linux", reason="finds Dask's workers in /proc")
@pytest.mark.parametrize(("each", "part"), [
    pytest.param(150, 10, marks=pytest.mark.thorough), pytest.param(1000, 50, marks=pytest.mark.slow),
])  # fmt: skip
def test_a_killed_worker_loses_no_photo_and_writes_none_twice(model, cache, tmp_path, each, part):
    """It is killed when the first parts are done."""
    photos, out = write_photos(tmp_path / "photos", each=each), tmp_path / "out"
    with start_workers(model, photos, out, cache, part) as process:
        os.kill(find_workers(process)[0], signal.SIGKILL)
        _, errors = process.communicate(timeout=280)
    assert process.returncode == EXIT_DONE, errors
    assert run("--merge", out) == EXIT_DONE
    assert Counter(row["path"] for row in merged_rows(out)) == Counter(find_photos([str(photos)]))
    assert re.search(r"Workers: 2. Dashboard: http://127.0.0.1:\d+/status", errors), errors
    assert re.search(rf"{2 * each:,} photos, \d+ photos/s", errors), errors


@pytest.mark.skipif(os.name == "nt", reason="signals are sent otherwise there")
def test_ctrl_c_reaches_the_workers_too_and_ends_with_one_sentence(model, cache, tmp_path, capsys):
    photos, out = write_photos(tmp_path / "photos", each=150), tmp_path / "out"
    with start_workers(model, photos, out, cache, 10) as process:
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=120)
    assert (process.returncode, errors.splitlines()[1:]) == (EXIT_INTERRUPTED, ["", "Stopped."])
    assert 0 < (done := len(list(out.glob("part-*.parquet")))) < 30
    assert run(model, photos, "--out", out, "--part", 10) == EXIT_DONE
    assert f"{300 - 10 * done} photos, " in capsys.readouterr().err


@pytest.mark.skipif(sys.platform != "linux", reason="finds Dask's workers in /proc")
@pytest.mark.parametrize("is_time", [find_workers, lambda _, out: any(out.glob("*.parquet")) and not time.sleep(0.2)])
def test_ctrl_c_while_the_workers_start_or_end_ends_with_the_same_sentence(model, photos, cache, tmp_path, is_time):
    with start_workers(model, photos, tmp_path / "out", cache, 1000, is_time) as process:
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=120)
    shown = "" if is_time is find_workers else errors.splitlines()[0] + "\n"
    assert (process.returncode, errors) == (EXIT_INTERRUPTED, f"{shown}\nStopped.\n")


def test_a_wrong_address_a_lost_scheduler_and_no_dask_are_sentences(model, photos, tmp_path, monkeypatch, capsys):
    options = (model, photos, "--out", tmp_path / "out", "--scheduler", "nonsense")
    assert run(*options) == EXIT_WRONG_INPUT
    assert "There is no Dask scheduler at nonsense" in capsys.readouterr().err
    monkeypatch.setattr(many_photos, "ANSWER_SECONDS", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert run(*options[:-1], address := f"127.0.0.1:{silent.getsockname()[1]}") == EXIT_WRONG_INPUT
    assert f"There is no Dask scheduler at {address} (no answer)" in capsys.readouterr().err
    monkeypatch.setattr(many_photos, "_require_scheduler", create_autospec(many_photos._require_scheduler))
    client, queue = create_autospec(distributed.Client), create_autospec(distributed.as_completed)
    client.return_value.ncores.return_value = {}
    queue.return_value.count.return_value = queue.return_value.is_empty.return_value = 0
    queue.return_value.__next__.return_value.result.side_effect = distributed.CancelledError
    monkeypatch.setattr(distributed, "Client", client)
    monkeypatch.setattr(distributed, "as_completed", queue)
    assert run(*options) == EXIT_FAILED
    assert "The connection to Dask's scheduler was lost. Start the same command again" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert run(model, photos, "--out", tmp_path / "out", "--workers", 2) == EXIT_WRONG_INPUT
    assert "pip install '.[cluster]'" in capsys.readouterr().err
