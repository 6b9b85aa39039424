"""Diagnoses very many photos part by part: in this process, or by Dask's workers (extra `cluster`)."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, final

from core.diagnosis.model_identity import ModelIdentity, read_identity
from core.diagnosis.prediction import Predictor, choose_device, read_network
from core.diagnosis.result_parts import Part, write_part
from core.distributed.rank_environment import share_gpus
from core.errors import InputError, LeafClinicError

BATCH: Final = {"cpu": 16, "cuda": 256}
LOCAL: Final = "127.0.0.1"
AHEAD: Final = 2
"""Parts queued for each thread of a worker, so that none waits."""
PREDICTING: Final = threading.Lock()
"""Threads of one worker share its model, and the device is busy with one part."""


@final
@dataclass(frozen=True, slots=True)
class Job:
    """What is the same for all parts. model, folder: paths that every worker can open."""

    model: str
    folder: str
    device: str
    threads: int
    coverage: float


@final
@dataclass(frozen=True, slots=True)
class PartDone:
    photos: int
    unreadable: int


def compute_part(job: Job, part: Part) -> PartDone:
    """Diagnose the photos of a part and write its files."""
    with PREDICTING:
        predictor, identity = _load(job.model, job.device, job.threads)
        diagnoses = predictor.diagnose(part.paths, coverage=job.coverage)
        return PartDone(len(part.paths), write_part(Path(job.folder), part, diagnoses, identity))


def compute_by_local_worker(job: Job, part: Part) -> PartDone:
    """The same by one of the workers of this machine, which share its GPUs."""
    from distributed import get_worker

    share_gpus(int(get_worker().name))
    return compute_part(job, part)


@lru_cache(maxsize=1)
def _load(model: str, device: str, threads: int) -> tuple[Predictor, ModelIdentity]:
    device = choose_device(device)
    predictor = Predictor(read_network(Path(model)), device=device, batch=BATCH[device], threads=threads)
    return predictor, read_identity(Path(model))


def compute_by_workers(job: Job, parts: Iterator[Part], workers: int, scheduler: str = "") -> Iterator[PartDone]:
    """The same by so many processes of this machine, or by the workers of Dask's scheduler at an address; yields parts
    as they are done. A part whose worker is lost is computed again. Raises LeafClinicError."""
    try:
        from distributed import Client, KilledWorker, as_completed
    except ImportError as error:
        raise InputError(f"Several workers need Dask ({error}). Install it with: "
                         "pip install 'leafclinic[cluster]'") from error  # fmt: skip
    try:
        client = Client(scheduler or _local_cluster(workers))
    except OSError as error:
        raise InputError(f"There is no Dask scheduler at {scheduler}: {error}.") from error
    with client:
        queued, compute = as_completed(), compute_part if scheduler else compute_by_local_worker
        while True:
            room = AHEAD * max(sum(client.ncores().values()), 1) - queued.count()
            for part in itertools.islice(parts, max(room, 0)):
                queued.add(client.submit(compute, job, part, key=part.name, pure=False))
            if queued.is_empty():
                return
            try:
                yield next(queued).result()
            except KilledWorker as error:
                raise LeafClinicError(f"Workers were lost repeatedly while computing one part: {error}") from error


def _local_cluster(workers: int) -> Any:
    from distributed import LocalCluster

    return LocalCluster(n_workers=workers, threads_per_worker=1, host=LOCAL, dashboard_address=f"{LOCAL}:0",
                        silence_logs="ERROR")  # fmt: skip
