"""The bundled program starts and trains where there is no Python. Run `make bundle` first; `-m slow`."""

import json
import subprocess
from pathlib import Path

import pytest

from core.data.synthetic import write_demo

PROGRAM = Path(__file__).parents[2] / "dist" / "leafclinic" / "leafclinic"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600),
              pytest.mark.skipif(not PROGRAM.exists(), reason="there is no dist/leafclinic: run `make bundle` first")]


def bare(home):
    return {"HOME": str(home), "PATH": "/usr/bin:/bin", "QT_QPA_PLATFORM": "offscreen", "LANG": "C.UTF-8"}


def test_the_window_starts_and_stays(tmp_path):
    process = subprocess.Popen([PROGRAM], env=bare(tmp_path), cwd=tmp_path)
    try:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=10)
    finally:
        process.kill()
        process.wait()


def test_it_ships_licences_and_its_doctor_misses_no_package(tmp_path):
    assert b" is missing" not in subprocess.check_output([PROGRAM, "doctor"], env=bare(tmp_path))
    licences = {"LICENSE", "THIRD-PARTY.txt", "LGPL-3.0.txt", "LICENSE-3RD-PARTY.txt"}
    assert licences <= {path.name for path in PROGRAM.parent.rglob("*")}


def test_training_works_in_it(tmp_path):
    photos = write_demo(tmp_path / "photos", 12, 48)
    out = tmp_path / "run"
    config = {"data": str(photos), "epochs": 1, "image_size": 32, "model": "squeezenet1_1", "device": "cpu"}
    order = json.dumps({"config": {**config, "out": str(out)}}) + "\n"
    events = []
    with subprocess.Popen(
        [PROGRAM, "--process", "training"], env=bare(tmp_path), cwd=tmp_path, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(order)
        process.stdin.flush()
        for line in process.stdout:
            events.append(json.loads(line)["event"])
            if events[-1] in ("RunFinished", "RunFailed"):
                break
        process.stdin.close()
        process.wait(timeout=60)
    assert events[-1] == "RunFinished"
    assert (out / "best.safetensors").exists()
