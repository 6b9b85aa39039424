"""The first line sent to the training process: a new run, or a run to resume."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from core.config import RunConfig, from_dict, to_dict
from core.errors import InputError
from core.schema import mapping, parse_json


def start_request(config: RunConfig) -> str:
    """Start a new run in the folder `config.out`."""
    return json.dumps({"config": to_dict(config), "resume": False, "overwrite": False})


def resume_request(folder: Path) -> str:
    """Resume the run in a folder from its last checkpoint. Raises InputError."""
    try:
        values = mapping(parse_json((folder / "config.json").read_bytes()))
        values.pop("version", None)
        config = replace(from_dict(values), out=str(folder))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"The run in {folder} cannot be resumed: its settings cannot be read ({reason}).") from error
    return json.dumps({"config": to_dict(config), "resume": True, "overwrite": False})
