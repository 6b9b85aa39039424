"""Diagnoses very many photos part by part, in this process or by Dask's workers (extra `cluster`).

Results are a folder of parts, each a Parquet and a CSV file with the same rows. A part is some photos in a row of the
listing. Both of its files are written whole or not at all, the Parquet file last: where that is there, the part is
done. A part that is computed twice, such as after a worker was lost, replaces itself.
"""

from __future__ import annotations

import asyncio
import csv
import hashlib
import io
import itertools
import json
import logging
import os
import re
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any, Final

from core.data.string_array import readable
from core.diagnosis.diagnosis_output import COLUMNS, cells, make_row
from core.diagnosis.model_identity import ModelIdentity, read_identity
from core.diagnosis.prediction import Diagnosis, Predictor, read_network
from core.distributed.rank_environment import share_gpus
from core.errors import InputError, LeafClinicError
from core.plan import choose_device
from core.schema import count, mapping, parse_json, record
from core.storage import check_writable, create_folder, storage_error, write_file, writing
from core.text import csv_text

try:
    import pyarrow
    from pyarrow import parquet
except ImportError as error:
    raise InputError(f"Results in parts need pyarrow ({error}). Install it with: pip install '.[cluster]'") from error

BATCH: Final = {"cpu": 16, "cuda": 256}
LOCAL: Final = "127.0.0.1"
ANSWER_SECONDS: Final = 10.0
"""Time for a Dask scheduler to answer."""
AHEAD: Final = 2
"""Parts queued for each thread of a worker, so that none waits."""
PREDICTING: Final = threading.Lock()
"""Threads of one worker share its model, and the device is busy with one part."""
SETTINGS: Final = "settings.json"
LISTING: Final = "listing.json"
"""Numbers of parts and photos; written when the listing is complete."""
MERGED: Final = "results"
NAME: Final = re.compile(r"(part-(\d+)-[0-9a-f]{16})\.parquet")
NAMED: Final = 10
"""Missing parts that an error names."""
SCHEMA: Final = pyarrow.schema([
    (name, pyarrow.float64() if digits else pyarrow.string()) for name, digits in COLUMNS.items()
])  # fmt: skip
HEADING: Final = csv_text([COLUMNS]).encode()


@dataclass(frozen=True, slots=True)
class Part:
    """Photos that are diagnosed together; number: in the listing."""

    number: int
    paths: tuple[str, ...]

    @property
    def name(self) -> str:
        digest = hashlib.sha256("\0".join(self.paths).encode("utf-8", "surrogateescape")).hexdigest()
        return f"part-{self.number:06d}-{digest[:16]}"


def cut_parts(paths: Iterator[str], size: int) -> Iterator[Part]:
    chunks = iter(lambda: tuple(itertools.islice(paths, size)), ())
    return itertools.starmap(Part, enumerate(chunks))


def open_results(folder: Path, settings: Mapping[str, Any]) -> None:
    """Create a folder of results, or continue one with the same settings. Raises InputError and StorageError."""
    path = folder / SETTINGS
    check_writable(folder, "another folder with --out")
    create_folder(folder)
    try:
        kept = mapping(parse_json(path.read_text("utf-8"))) if path.exists() else settings
    except OSError as error:
        raise storage_error(folder, error) from error
    except ValueError as error:
        raise InputError(f"{path} is damaged. Choose another folder with --out.") from error
    for name in {**kept, **settings}:
        if kept.get(name) != settings.get(name):
            raise InputError(f"The results in {folder} were made with another {name}: {kept.get(name)} instead of "
                             f"{settings.get(name)}. Choose another folder with --out.")  # fmt: skip
    write_file(path, json.dumps(dict(settings), indent=1))


def find_missing(folder: Path, parts: Iterable[Part], index: int = 0, count: int = 1) -> Iterator[Part]:
    """The parts of shard `index` of `count` that are not done. Raises InputError if the photos have changed."""
    done = _done(folder)
    changed = InputError(f"The photos have changed since the results in {folder} were begun. Choose another folder "
                         "with --out.")  # fmt: skip
    total = photos = 0
    for part in parts:
        if done.get(part.number, part.name) != part.name:
            raise changed
        total, photos = total + 1, photos + len(part.paths)
        if part.number % count == index and part.number not in done:
            yield part
    if any(number >= total for number in done):
        raise changed
    write_file(folder / LISTING, json.dumps({"parts": total, "photos": photos}))


def _done(folder: Path) -> dict[int, str]:
    """The names of the parts that are done, by number."""
    found = (NAME.fullmatch(path.name) for path in folder.iterdir())
    return {int(match[2]): match[1] for match in found if match and (folder / f"{match[1]}.csv").exists()}


def write_part(folder: Path, part: Part, diagnoses: Iterable[Diagnosis], model: ModelIdentity) -> int:
    """Write both files of a part; returns the number of unreadable photos. Raises StorageError."""
    rows = [make_row(diagnosis, model) for diagnosis in diagnoses]
    write_file(folder / f"{part.name}.csv", csv_text([COLUMNS, *map(cells, rows)]))
    valid = [row | {"path": readable(row["path"]), "error": readable(row["error"])} for row in rows]
    with writing(folder / f"{part.name}.parquet") as file:
        parquet.write_table(pyarrow.Table.from_pylist(valid, SCHEMA), file)
    return sum(bool(row["error"]) for row in rows)


def merge_parts(folder: Path) -> int:
    """Join all parts to `results.csv` and `.parquet`; returns the number of photos. Raises InputError, StorageError."""
    try:
        wanted = record({"parts": count, "photos": count})(parse_json((folder / LISTING).read_text("utf-8")))
        done = _done(folder)
    except (OSError, ValueError) as error:
        raise InputError(f"{folder} has no complete results of leafclinic diagnose --out. Start that command again; it "
                         "computes what is missing.") from error  # fmt: skip
    parts, photos = wanted["parts"], 0
    if missing := parts - sum(at < parts for at in done):
        named = ", ".join(map(str, itertools.islice((at for at in range(parts) if at not in done), NAMED)))
        raise InputError(f"{missing} of {parts} parts are missing in {folder}: {named}{', ...' * (missing > NAMED)}. "
                         "Start leafclinic diagnose --out again, with every shard; it computes what is missing.")
    with (
        writing(folder / f"{MERGED}.csv") as file, writing(folder / f"{MERGED}.parquet") as columns,
        parquet.ParquetWriter(columns, SCHEMA) as writer,
    ):  # fmt: skip
        file.write(HEADING)
        for _, name in sorted(done.items()):
            table, lines = _read_part(folder / name)
            file.write(lines)
            writer.write_table(table)
            photos += table.num_rows
        if photos != wanted["photos"]:
            raise InputError(f"The parts in {folder} have {photos} photos instead of {wanted['photos']}. Choose "
                             "another folder with --out.")  # fmt: skip
    return photos


def _read_part(path: Path) -> tuple[pyarrow.Table, bytes]:
    """The rows of both files of a part. Raises InputError if they do not fit together."""
    try:
        with path.with_suffix(".parquet").open("rb") as file:  # pyarrow takes no name that is no UTF-8
            table = parquet.read_table(file, schema=SCHEMA)
        text = path.with_suffix(".csv").read_bytes()
        rows = sum(1 for _ in csv.reader(io.StringIO(text.decode("utf-8", "surrogateescape"), newline=""), strict=True))
        if rows != 1 + table.num_rows or not (text.startswith(HEADING) and text.endswith(b"\n")):
            raise csv.Error
    except (pyarrow.ArrowException, OSError, csv.Error) as error:
        raise InputError(f"{path}.csv or .parquet is damaged. Remove both, then start leafclinic diagnose --out again; "
                         "it computes what is missing.") from error  # fmt: skip
    return table, text[len(HEADING) :]


@dataclass(frozen=True, slots=True)
class Job:
    """Settings of all parts. model, folder: paths that every worker can open; model_hash: of the file's contents."""

    model: str
    model_hash: str
    folder: str
    device: str
    threads: int
    coverage: float
    known_crop: str = ""


LOADED: Final[dict[Job, tuple[Predictor, ModelIdentity]]] = {}
"""The model that this process has loaded, at most one."""


def compute_part(job: Job, part: Part) -> tuple[int, int]:
    """Diagnose and write a part; returns the numbers of all and of unreadable photos. InputError: all are gone."""
    with PREDICTING:
        predictor, identity = _load(job)
        diagnoses = list(predictor.diagnose(part.paths))
        if not any(map(os.path.exists, part.paths)):  # written, they would count as done
            raise InputError(f"{part.paths[0]} and all photos listed with it are gone. Connect the disk they are on, "
                             "then start the same command again; it computes what is missing.")  # fmt: skip
        return len(part.paths), write_part(Path(job.folder), part, diagnoses, identity)


def compute_by_local_worker(job: Job, part: Part) -> tuple[int, int]:
    """`compute_part` in one of the workers of this machine, which share its GPUs."""
    from distributed import get_worker

    share_gpus(int(get_worker().name))
    return compute_part(job, part)


def _load(job: Job) -> tuple[Predictor, ModelIdentity]:
    """The model of a job, which stays loaded until a job has another. Raises InputError if its file was replaced."""
    job, path = replace(job, folder=""), Path(job.model)
    if job not in LOADED:
        while LOADED:
            LOADED.popitem()[1][0].close()
        device, network, identity = choose_device(job.device), read_network(path), read_identity(path)
        if identity.hash != job.model_hash:
            raise InputError(f"{path} was replaced while photos were diagnosed with it. Restore the file, or choose "
                             "another folder with --out.")  # fmt: skip
        LOADED[job] = Predictor(network, device=device, batch=BATCH[device], threads=job.threads,
                                coverage=job.coverage, known_crop=job.known_crop), identity  # fmt: skip
    return LOADED[job]


@contextmanager
def _defer_interrupts() -> Iterator[None]:
    """Let Ctrl-C wait for the end of the block. Processes that are started in it never get it: they inherit a mask."""
    pressed: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: pressed.append(number))
    if os.name == "posix":
        resource_tracker.ensure_running()  # whose start, by the first of these processes, would unblock the signal
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        if os.name == "posix":
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        signal.signal(signal.SIGINT, before)
    if pressed:
        raise KeyboardInterrupt


def _require_scheduler(address: str) -> None:
    """Raises InputError. Dask's client would wait without end for another service that says nothing."""
    from distributed import Security, rpc

    async def ask() -> None:
        async with rpc(address, connection_args=Security().get_connection_args("client")) as there:
            await there.identity(n_workers=0)  # as only a scheduler knows it

    try:
        asyncio.run(asyncio.wait_for(ask(), ANSWER_SECONDS))
    except Exception as error:  # as Dask reads what another service sends
        raise InputError(f"There is no Dask scheduler at {address} ({str(error) or 'no answer'}). Start one with dask "
                         "scheduler, or check the address.") from error  # fmt: skip


@contextmanager
def _connect(workers: int, scheduler: str) -> Iterator[Any]:
    """Dask's client, of workers of its own without an address. Raises InputError.

    Ctrl-C waits for its start and end: Dask cannot close workers that have not started, and waits 10 s if it closes
    them twice.
    """
    from distributed import Client, LocalCluster

    here = {"host": LOCAL, "dashboard_address": f"{LOCAL}:0", "silence_logs": "CRITICAL"}
    held = ExitStack()
    held.callback(logging.disable, logging.root.manager.disable)
    logging.disable()  # Dask logs tracebacks of what is reported as a sentence
    try:
        if scheduler:
            _require_scheduler(scheduler)
        with _defer_interrupts():
            where = scheduler or held.enter_context(LocalCluster(n_workers=workers, threads_per_worker=1, **here))
            client = held.enter_context(Client(where))
        yield client
    finally:
        with _defer_interrupts():
            held.close()


def compute_by_workers(
    job: Job, parts: Iterator[Part], show: Callable[[str], object], workers: int, scheduler: str
) -> Iterator[tuple[int, int]]:
    """Compute parts in `workers` processes of this machine, or by the workers of the Dask scheduler at an address.

    Shows the number of workers and Dask's dashboard. Yields the results of parts as they are done. A part whose worker
    is lost is computed again. Raises LeafClinicError.
    """
    try:
        from distributed import CancelledError, KilledWorker, as_completed
    except ImportError as error:
        raise InputError(f"Several workers need Dask ({error}). Install it with: pip install '.[cluster]'") from error
    with _connect(workers, scheduler) as client:
        show(f"Workers: {len(client.ncores())}. Dashboard: {client.dashboard_link}\n")
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
            except CancelledError as error:
                raise LeafClinicError("The connection to Dask's scheduler was lost. Start the same command again; it "
                                      "computes what is missing.") from error  # fmt: skip
