"""``leafclinic doctor``: what this machine can run, one sentence per part, and what to install."""

from __future__ import annotations

import argparse
import json
import platform
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import Any, Final

from core.command_line import as_command, read_alone
from core.cores import usable_cores
from core.errors import EXIT_DONE, EXIT_FAILED, InputError
from core.user_cache import REMEDY, find_writable, user_kernel_folder

NEWEST_NUMPY: Final = (2, 5)
"""numba-cuda uses functions that NumPy 2.5 removed."""

PACKAGES: Final = (
    ("numba", "compiles the CPU kernels"), ("opencv-python-headless", "reads photos"),
    ("safetensors", "reads and writes models"), ("onnx", "exchanges models"),
    ("PySide6-Essentials", "draws the window"), ("pyqtgraph", "draws the plots"),
)  # fmt: skip
NEEDED: Final = ("NumPy", "numba", "opencv-python-headless", "safetensors")
"""Parts without which nothing can be trained."""
LIBRARIES: Final = (
    ("numba-cuda", "translates CUDA kernels"), ("cuda-bindings", "connects to the NVIDIA driver"),
    ("nvidia-nvvm", "compiles the CUDA kernels"), ("nvidia-nvjitlink", "links the CUDA kernels"),
    ("nvidia-cuda-nvrtc", "contains the CUDA headers"), ("nvidia-cuda-cccl", "contains the CUDA headers"),
    ("nvidia-cublas", "is used only by name, for comparison"),
)  # fmt: skip
"""Packages that every machine needs and those of the extra .[cuda], with their purpose."""

DEVICE_PROPERTIES: Final = {
    "GPU processors":
        "{MULTIPROCESSOR_COUNT:.0f} multiprocessors at up to {CLOCK_RATE:.2f} GHz, each with "
        "{MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:.0f} KB of shared memory, {MAX_REGISTERS_PER_MULTIPROCESSOR:,.0f} "
        "registers and up to {MAX_THREADS_PER_MULTIPROCESSOR:,.0f} threads in warps of {WARP_SIZE:.0f}. A block has "
        "up to {MAX_THREADS_PER_BLOCK:,.0f} threads and {MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:.0f} KB.",
    "GPU memory":
        "Bus of {GLOBAL_MEMORY_BUS_WIDTH:,.0f} bits at {MEMORY_CLOCK_RATE:.2f} GHz, L2 cache {L2_CACHE_SIZE:.0f} MB, "
        "constant memory {TOTAL_CONSTANT_MEMORY:.0f} KB, {ASYNC_ENGINE_COUNT:.0f} DMA engines. PCI "
        "{PCI_DOMAIN_ID:04.0f}:{PCI_BUS_ID:02.0f}:{PCI_DEVICE_ID:02.0f}.",
}
"""Sentences with the driver's device attributes."""

DIVISORS: Final = {
    "CLOCK_RATE": 1e6, "MEMORY_CLOCK_RATE": 1e6, "L2_CACHE_SIZE": 2**20, "TOTAL_CONSTANT_MEMORY": 1024,
    "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR": 1024, "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 1024,
}  # fmt: skip
"""From the driver's units of the attributes to those of the sentences; 1 if not listed."""

KERNEL_BYTES: Final = 4 << 20
"""Disk space that compiled kernels need, with a margin."""


@dataclass(frozen=True, slots=True)
class Check:
    """The state of one part of the machine; remedy: what to do if it is not well."""

    part: str
    well: bool
    sentence: str
    remedy: str = ""


def examine() -> Iterator[Check]:
    software = list(_software())
    yield from software
    if not can_train(software):
        return  # the other checks use these packages
    yield _processor()
    yield _threads()
    yield _kernels()
    if not getattr(sys, "frozen", False):
        remedy = "Needed only for the GPU, if no CUDA toolkit provides it: pip install '.[cuda]'"
        yield from _packages(LIBRARIES, "is not installed", remedy)
    yield from _gpu()


def can_train(findings: Iterable[Check]) -> bool:
    return all(finding.well for finding in findings if finding.part in NEEDED)


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _software() -> Iterator[Check]:
    python = platform.python_version()
    system = f"{platform.system()} {platform.machine()}"
    yield Check("Python", True, f"Python {python} on {system}.")
    numpy = _version("numpy") or "is missing"
    parts = tuple(int(part) for part in numpy.split(".")[:2]) if numpy[0].isdigit() else (9, 9)
    yield Check("NumPy", parts < NEWEST_NUMPY, f"NumPy {numpy}.", "Install one before 2.5: pip install 'numpy<2.5'.")
    yield from _packages(PACKAGES, "is missing", "Install it: pip install .")


def _processor() -> Check:
    from llvmlite import binding

    features = binding.get_host_cpu_features()
    known = [name for name in ("avx512f", "avx2", "fma", "neon", "sve") if features.get(name)]
    fast = bool({"avx512f", "avx2", "neon"} & set(known))
    units = ", ".join(known) or "no known vector instructions"
    sentence = f"{usable_cores()} cores, {binding.get_host_cpu_name()}, {units}."
    return Check("CPU", fast, sentence, "Training works, but slowly: the fast kernels need AVX2, AVX-512 or NEON.")


def _kernels() -> Check:
    try:
        folder = find_writable(user_kernel_folder)
    except InputError as error:  # another user could change them
        return Check("kernels", False, str(error).replace("\n", " "))
    if folder is None:
        sentence = "There is no folder to save compiled kernels in. They are compiled again at every start."
        return Check("kernels", False, sentence, REMEDY)
    free = shutil.disk_usage(folder).free
    if free < KERNEL_BYTES:
        sentence = (f"There is no disk space for compiled kernels in {folder} ({free / 1e6:.1f} MB free). "
                    "Missing kernels are compiled again at every start.")  # fmt: skip
        return Check("kernels", False, sentence, f"Free disk space. {REMEDY}")
    return Check("kernels", True, f"Compiled kernels are saved in {folder}.")


def _threads() -> Check:
    from core.cpu.execution import has_openmp  # imports Numba

    found = has_openmp()
    sentence = "GNU OpenMP runs the kernels on all cores." if found else (
        "GNU OpenMP is missing (libgomp), so the kernels run on one core.")  # fmt: skip
    return Check("threads", found, sentence, "Install libgomp (on Debian libgomp1), or Numba again.")


def _packages(packages: Iterable[tuple[str, str]], missing: str, remedy: str) -> Iterator[Check]:
    for package, use in packages:
        found = _version(package)
        yield Check(package, found is not None, f"{package} {found or missing}; it {use}.", remedy)


def _gpu() -> Iterator[Check]:
    from core.plan import cuda_problem

    if (trouble := cuda_problem()) is not None:
        yield Check("GPU", False, trouble, "Training on the CPU works without it: --device cpu.")
        return
    yield from _open_gpu()


def _open_gpu() -> Iterator[Check]:
    from core.gpu.compilation.cuda import cuda, driver
    from core.gpu.compilation.generations import AMPERE

    version = int(driver.cuDriverGetVersion()[1])
    yield Check("driver", True, f"The NVIDIA driver supports CUDA {version // 1000}.{version % 1000 // 10}.")
    device: Any = cuda.get_current_device()
    capability = device.compute_capability
    free, total = cuda.current_context().get_memory_info()
    name = device.name.decode() if isinstance(device.name, bytes) else device.name
    yield Check("GPU", True, f"{name}, compute capability {capability[0]}.{capability[1]}, "
                  f"{free / 2**30:.1f} of {total / 2**30:.1f} GB free.")
    yield from _device_properties(driver)
    yield Check("precision", True, "Supports float32, tf32 and mixed precision (bf16)." if capability >= AMPERE else
                "This GPU is older than Ampere: everything runs in float32, without tensor cores.")


def _device_properties(driver: Any) -> Iterator[Check]:
    """Properties of the first GPU, as NVIDIA's deviceQuery lists them."""
    handle = driver.cuDeviceGet(0)[1]

    def of(name: str) -> int:
        status, value = driver.cuDeviceGetAttribute(getattr(driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}"),
                                                    handle)  # fmt: skip
        return 0 if int(status) else int(value)

    for part, sentence in DEVICE_PROPERTIES.items():
        values = {name: of(name) / DIVISORS.get(name, 1) for name in re.findall(r"{(\w+):", sentence)}
        yield Check(part, True, sentence.format(**values))


def report(findings: list[Check]) -> str:
    lines = []
    for finding in findings:
        lines.append(f"{'ok ' if finding.well else '-- '} {finding.part:24} {finding.sentence}")
        if not finding.well and finding.remedy:
            lines.append(f"{'':28} {finding.remedy}")
    return "\n".join(lines)


@as_command
def main(argv: Sequence[str]) -> int:
    """Print the findings; returns 0 if training can run on any device, else 1."""
    arguments, findings = read_alone(make_parser(), argv), list(examine())
    needed, gpu = can_train(findings), any(finding.part == "GPU" and finding.well for finding in findings)
    end = ("Training runs on " + ("the GPU and the CPU." if gpu else "the CPU.") if needed
           else "Training cannot run on this machine. See the lines marked with --.")  # fmt: skip
    lines = [json.dumps(asdict(finding), ensure_ascii=False) for finding in findings]
    print("\n".join(lines) if arguments.json else f"{report(findings)}\n\n{end}", flush=True)
    return EXIT_DONE if needed else EXIT_FAILED


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "leafclinic doctor", allow_abbrev=False, description="Check what this machine can run and what is missing.",
        epilog="exit codes: 0 training can run here, 1 it cannot, 2 wrong input, 130 stopped by Ctrl-C",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print every finding as one line of JSON")
    return parser


if __name__ == "__main__":
    sys.exit(main())
