"""One rule for the cache folder, each system's own, and nobody beside it who computes one."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from core import user_cache
from core.errors import StorageError
from core.user_cache import user_cache_folder, user_kernel_folder

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("system", "variable", "value", "wanted"), [
    ("linux", "XDG_CACHE_HOME", "/elsewhere", "/elsewhere/leafclinic"),
    ("linux", "XDG_CACHE_HOME", "not/absolute", "/home/me/.cache/leafclinic"),
    ("linux", "XDG_CACHE_HOME", "", "/home/me/.cache/leafclinic"),
    ("darwin", "XDG_CACHE_HOME", "", "/home/me/Library/Caches/LeafClinic"),
    ("win32", "LOCALAPPDATA", "/local", "/local/LeafClinic/Cache"),
    ("win32", "LOCALAPPDATA", "", "/home/me/AppData/Local/LeafClinic/Cache"),
])  # fmt: skip
def test_each_system_has_its_own_place(system, variable, value, wanted, monkeypatch):
    monkeypatch.setattr(user_cache.sys, "platform", system)
    monkeypatch.setattr(user_cache.Path, "home", lambda: Path("/home/me"))
    monkeypatch.setenv(variable, value)
    assert user_cache_folder().as_posix() == wanted
    assert user_kernel_folder() == user_cache_folder() / "kernels"


def run(code, cache):
    """What a process prints whose cache folder lies there."""
    here = {"XDG_CACHE_HOME": str(cache), "PATH": ""}
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=here, capture_output=True, text=True,
                          check=True).stdout  # fmt: skip


def test_kernels_of_both_devices_lie_in_it(tmp_path):
    code = """
from core.cpu.instruction_set import cache_folder
from core.gpu.compilation.compiler import Recipe, _path
print(cache_folder(), _path(Recipe("ops.pool.max_pool", "make", (), (), 32), (9, 0)), sep="\\n")
"""
    assert all(Path(line).parent == tmp_path / "leafclinic" / "kernels" for line in run(code, tmp_path).splitlines())


@pytest.mark.skipif(sys.platform == "win32", reason="homes are found otherwise there")
def test_without_a_folder_to_keep_them_kernels_are_compiled_for_this_process_alone(tmp_path):
    (tmp_path / "file").touch()
    code = """
from core.cpu.instruction_set import cache_folder
from core.doctor import _kernels
import core.cpu.elementwise
print(cache_folder().parent, cache_folder().parent.is_dir(), _kernels().well)
"""
    folder, there, well = run(code, tmp_path / "file").split()
    assert (there, well) == ("True", "False")
    assert not Path(folder).exists(), "it goes with the process"


def test_a_user_without_a_home_folder_gets_a_sentence(monkeypatch):
    def refuse():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(user_cache.sys, "platform", "linux")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(user_cache.Path, "home", refuse)
    with pytest.raises(StorageError, match="This user has no home folder"):
        user_cache_folder()


def test_nobody_else_computes_one():
    pattern = re.compile(r"XDG_CACHE_HOME|LOCALAPPDATA|\.cache\"|Library\" / \"Caches")
    sources = (path for part in ("app", "core") for path in (ROOT / part).rglob("*.py"))
    assert [path.name for path in sources if pattern.search(path.read_text("utf-8"))] == ["user_cache.py"]
