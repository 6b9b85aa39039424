"""Conditions that the bits of a run depend on besides settings and photos; recorded and compared on resume."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Final

from core import __version__
from core.config import RunConfig
from core.cores import usable_cores
from core.plan import cuda_problem

ONE_DEVICE: Final = {"threads": 0, "ranks": 1}
"""Conditions of one GPU, which are not mentioned."""
NAMES: Final = {"version": "LeafClinic", "compiler": "Numba"}
"""Names of conditions in sentences, where they differ from the field's."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """Equal settings, photos and conditions give equal bits.

    version: of LeafClinic; compiler: versions of Numba, and of NumPy and OpenCV, which draw numbers and decode photos;
    device: "cpu" or "cuda"; processor: instruction set of the CPU kernels, or the GPU and its tuning table; threads:
    that share a batch on the CPU, 0 on a GPU; ranks: processes that share a batch.
    """

    version: str
    compiler: str
    device: str
    processor: str
    threads: int
    ranks: int = 1

    def __str__(self) -> str:
        return ", ".join(f"{NAMES.get(name, name)} {value}" for name, value in asdict(self).items()
                         if value != ONE_DEVICE.get(name))  # fmt: skip


def present_conditions(config: RunConfig, device: str, ranks: int) -> Conditions:
    """The conditions of a run with these settings on this machine. Raises DeviceError if the device is missing."""
    import cv2
    import numba  # takes a second; the window, which resumes runs, does not need it
    import numpy

    compiler = f"{numba.__version__}, NumPy {numpy.__version__}, OpenCV {cv2.__version__}"
    if device == "cuda":
        from core.gpu.driver.device import open_device  # numba-cuda is optional
        from core.gpu.tuning import load_table

        opened = open_device()
        processor = f"{opened.name}, tuning table {load_table(opened.identity).fingerprint}"
        return Conditions(__version__, compiler, device, processor, 0, ranks)
    from core.cpu.instruction_set import current_isa

    return Conditions(__version__, compiler, device, current_isa().name, config.threads or usable_cores(), ranks)


def keep_conditions(config: RunConfig, before: Conditions | None) -> RunConfig:
    """Settings of a resumed run, with automatic `threads` and `device` as recorded, if possible here."""
    if before is None:
        return config
    if config.device == "auto" and not (before.device == "cuda" and cuda_problem()):
        config = replace(config, device=before.device)
    return replace(config, threads=config.threads or before.threads)


def describe_change(before: Conditions, now: Conditions, step: int) -> str:
    """A warning that a resumed run has other bits from `step` on, with the reason; "" if nothing changed."""
    old, new = asdict(before), asdict(now)
    changes = "; ".join(f"{NAMES.get(name, name)} {new[name]} instead of {old[name]}"
                        for name in old if new[name] != old[name])  # fmt: skip
    return "" if not changes else (
        f"This run was resumed under different conditions: {changes}. After step {step} its results differ from an "
        "uninterrupted run by rounding; they are not worse."
    )
