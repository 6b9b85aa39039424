"""The doctor says in sentences what runs here and what to install."""

import json
import sys
from unittest.mock import Mock

import pytest

from core import doctor
from core.gpu.hardware import NO_DRIVER
from core.plan import cuda_problem


def test_every_finding_is_a_sentence_and_every_trouble_has_a_remedy_also_for_programs(capsys):
    assert doctor.main(["--json"]) == 0
    findings = [doctor.Check(**json.loads(line)) for line in capsys.readouterr().out.splitlines()]
    assert {"Python", "NumPy", "CPU", "threads", "numba", "GPU"} <= {f.part for f in findings}
    for finding in findings:
        assert finding.sentence.endswith("."), finding
        assert finding.well or finding.remedy, finding


def test_without_openmp_one_core_is_named_and_a_new_numpy_is_refused_with_the_command_that_helps(monkeypatch):
    monkeypatch.setattr("core.cpu.execution.has_openmp", lambda: False)
    found = doctor._threads()
    assert (found.well, "run on one core" in found.sentence) == (False, True)
    monkeypatch.setattr(doctor, "_version", lambda package: "2.5.0" if package == "numpy" else "1.0")
    found = next(f for f in doctor._software() if f.part == "NumPy")
    assert not found.well
    assert "pip install 'numpy<2.5'" in found.remedy


def test_a_missing_package_is_told_and_stops_training_if_it_is_needed(monkeypatch, capsys):
    monkeypatch.setattr(doctor, "_version", lambda name: None if name == "safetensors" else "2.0")
    assert doctor.main([]) == 1
    assert "safetensors is missing" in capsys.readouterr().out


def test_a_gpu_is_described_as_device_query_does():
    values = {"MULTIPROCESSOR_COUNT": 80, "CLOCK_RATE": 1_380_000, "L2_CACHE_SIZE": 6 << 20, "PCI_BUS_ID": 59}
    driver = Mock(spec=["cuDeviceGet", "cuDeviceGetAttribute", "CUdevice_attribute"])
    driver.cuDeviceGet.return_value = (0, 0)
    driver.CUdevice_attribute = Mock(**{f"CU_DEVICE_ATTRIBUTE_{name}": value for name, value in values.items()})
    driver.cuDeviceGetAttribute.side_effect = lambda value, _: (0, value) if isinstance(value, int) else (1, 0)
    processors, memory = doctor._device_properties(driver)
    assert "80 multiprocessors at up to 1.38 GHz" in processors.sentence
    assert "L2 cache 6 MB" in memory.sentence
    assert memory.sentence.endswith("PCI 0000:59:00.")


@pytest.mark.gpu
def test_the_gpu_is_named_with_its_memory():
    found = {f.part: f for f in doctor.examine()}
    assert found["GPU"].well
    assert "GB free" in found["GPU"].sentence
    assert "multiprocessors" in found["GPU processors"].sentence


def test_a_full_disk_under_the_compiled_kernels_is_told(monkeypatch, tmp_path):
    monkeypatch.setattr(doctor, "user_kernel_folder", lambda: tmp_path)
    assert doctor._kernels().well
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda folder: Mock(free=1_500_000))
    found = doctor._kernels()
    assert not found.well
    assert f"There is no disk space for compiled kernels in {tmp_path} (1.5 MB free)" in found.sentence
    assert found.remedy.startswith("Free disk space.")


@pytest.mark.parametrize("library", [None, OSError])
def test_without_an_nvidia_driver_no_cuda_package_is_imported(library, monkeypatch):
    monkeypatch.setattr("ctypes.CDLL", Mock(side_effect=library))
    monkeypatch.setitem(sys.modules, "core.gpu.driver.device", None)
    found = cuda_problem()
    assert found == NO_DRIVER if library else "CUDA packages are not installed" in found


def test_a_status_that_only_a_newer_driver_knows_is_told(monkeypatch):
    device = pytest.importorskip("core.gpu.driver.device")
    monkeypatch.setattr(device.driver, "cuInit", Mock(side_effect=ValueError("35 is not a valid CUresult")))
    assert "cannot start: 35 is" in device.problem()
