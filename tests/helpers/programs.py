"""Programs of the system that tests run. Where one is missing its test is skipped; in CI that is an error."""

import os
import shutil

import pytest


def find_program(*names: str) -> str:
    """The first of these programs that is installed. `packaging/apt-tests.txt` lists their packages."""
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None:
        reason = f"no {' or '.join(names)} is installed (`make test` installs packaging/apt-tests.txt)"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    return found
