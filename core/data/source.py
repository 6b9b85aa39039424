"""Opens the photos of a configuration: a folder or a manifest."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from core.config import RunConfig
from core.data.dataset import Dataset, IsCancelled, ReportProgress
from core.data.folder import open_folder
from core.data.manifest import open_manifest
from core.errors import DataError


def open_dataset(
    config: RunConfig, progress: ReportProgress | None = None, cancelled: IsCancelled | None = None
) -> Dataset:
    """The photos that `config` names, with at least two classes. Raises DataError or Cancelled."""
    dataset = open_photos(config.data, config.label, config.where, progress, cancelled)
    if len(dataset.classes) < 2:
        raise DataError(
            f"All {len(dataset)} photos have the class {dataset.classes[0]!r}. Training needs two classes or more: add "
            "photos of another class, such as healthy leaves."
        )
    return dataset


def open_photos(
    data: str,
    label: str = "",
    where: Sequence[str] = (),
    progress: ReportProgress | None = None,
    cancelled: IsCancelled | None = None,
) -> Dataset:
    """The photos of a folder or manifest, of one class or more. Raises DataError or Cancelled."""
    if not data:
        raise DataError("No photos were given. Give a folder of photos or a CSV manifest with --data.")
    path = Path(data).expanduser()
    try:
        is_folder, exists = path.is_dir(), path.exists()
    except OSError as error:
        raise DataError(f"{data} cannot be read: {error.strerror or error}.") from error
    except ValueError:
        raise DataError(f"{data!r} is not a valid name of a file or folder.") from None
    if not exists:
        raise DataError(f"{data} does not exist. Check the name, or connect the disk it is on.")
    if not is_folder and not path.is_file():  # opening it could block
        raise DataError(f"{data} is a pipe or a device. Choose a folder or a manifest.")
    if not is_folder:
        return open_manifest(path, label=label, where=where, progress=progress, cancelled=cancelled)
    if label:
        raise DataError("--label is the column of a manifest, but the photos are in a folder. Remove --label.")
    return open_folder(path, where=where, progress=progress, cancelled=cancelled)
