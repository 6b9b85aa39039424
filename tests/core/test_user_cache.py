"""One rule for the cache folder, each system's own, and nobody beside it who computes one."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from core import user_cache
from core.user_cache import user_cache_folder, user_kernel_folder

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("system", "variable", "value", "wanted"),
    [
        ("linux", "XDG_CACHE_HOME", "/elsewhere", "/elsewhere/leafclinic"),
        ("linux", "XDG_CACHE_HOME", "not/absolute", "/home/me/.cache/leafclinic"),
        ("linux", "XDG_CACHE_HOME", "", "/home/me/.cache/leafclinic"),
        ("darwin", "XDG_CACHE_HOME", "", "/home/me/Library/Caches/LeafClinic"),
        ("win32", "LOCALAPPDATA", "/local", "/local/LeafClinic/Cache"),
        ("win32", "LOCALAPPDATA", "", "/home/me/AppData/Local/LeafClinic/Cache"),
    ],
)
def test_each_system_has_its_own_place(system, variable, value, wanted, monkeypatch):
    monkeypatch.setattr(user_cache.sys, "platform", system)
    monkeypatch.setattr(user_cache.Path, "home", lambda: Path("/home/me"))
    monkeypatch.setenv(variable, value)
    assert user_cache_folder().as_posix() == wanted
    assert user_kernel_folder() == user_cache_folder() / "kernels"


def test_kernels_of_both_devices_lie_in_it(tmp_path):
    code = """
from core.cpu.level import cache_folder
from core.gpu.compiler import Recipe, _path
print(cache_folder(), _path(Recipe("pool_fast", "make", (), (), 32), (9, 0)), sep="\\n")
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env={"XDG_CACHE_HOME": str(tmp_path), "PATH": ""},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert all(Path(line).parent == tmp_path / "leafclinic" / "kernels" for line in done.stdout.splitlines())


def test_nobody_else_computes_one():
    pattern = re.compile(r"XDG_CACHE_HOME|LOCALAPPDATA|\.cache\"|Library\" / \"Caches")
    sources = (path for part in ("app", "core") for path in (ROOT / part).rglob("*.py"))
    assert [path.name for path in sources if pattern.search(path.read_text("utf-8"))] == ["user_cache.py"]
