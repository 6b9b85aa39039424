"""One rule for the cache folder, and folders that no other user can write to."""

import os
import re
import stat
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from core import user_cache
from core.errors import InputError, StorageError
from core.gpu.compilation.compiler import Recipe, _path, compile_recipes
from core.user_cache import make_private_folder, user_cache_folder, user_kernel_folder
from tests.helpers.commands import ROOT
from tests.helpers.models import write_small_model
from tests.helpers.tiny_photos import write_photos


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


@pytest.mark.thorough
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


pytestmark = pytest.mark.skipif(os.name == "nt", reason="folders of a Windows profile are the user's by inheritance")

STRANGER = 65534


def test_it_is_made_for_its_user_alone_and_so_are_those_above_it(tmp_path):
    before = os.umask(0o002)
    try:
        made = make_private_folder(tmp_path / "cache" / "leafclinic" / "kernels")
    finally:
        os.umask(before)
    for folder in (made, made.parent, made.parent.parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert make_private_folder(made) == made
    assert make_private_folder(made / ".." / "kernels") == made


@pytest.mark.parametrize("mode", [0o777, 0o702])
@pytest.mark.parametrize("which", ["kernels", "leafclinic"])
def test_where_others_may_write_it_is_refused_with_the_remedy(tmp_path, which, mode):
    folder = make_private_folder(tmp_path / "leafclinic" / "kernels")
    open_to_all = tmp_path / "leafclinic" if which == "leafclinic" else folder
    open_to_all.chmod(mode)
    then = "" if open_to_all == folder else f", then run: chmod go-w {open_to_all}"
    with pytest.raises(InputError, match=re.escape(f"may write to {open_to_all}. Remove {folder}{then}") + "$"):
        make_private_folder(folder)


def test_a_group_may_not_write_unless_it_is_the_users_own(tmp_path, monkeypatch):
    folder = make_private_folder(tmp_path / "kernels")
    folder.chmod(0o770)
    for private in (False, True):
        monkeypatch.setattr("core.user_cache._is_private_group", lambda gid, answer=private: answer)
        if private:
            assert make_private_folder(folder) == folder
        else:
            with pytest.raises(InputError, match="other users may write"):
                make_private_folder(folder)


@pytest.mark.parametrize(("user", "name", "members", "own"), [
    (1000, "me", ["me"], True), (1000, "me", ["me", "you"], False), (1000, "us", [], False), (0, "me", [], False),
])  # fmt: skip
def test_the_users_own_group_has_the_users_name_and_no_other_member(user, name, members, own, monkeypatch):
    monkeypatch.setattr(user_cache.os, "geteuid", lambda: user)
    monkeypatch.setattr(user_cache.pwd, "getpwuid", lambda uid: Mock(pw_name="me"))
    monkeypatch.setattr(user_cache.grp, "getgrgid", lambda gid: Mock(gr_name=name, gr_mem=members))
    assert user_cache._is_private_group(7) is own


def test_only_a_sticky_folder_may_be_writable_above_it_also_where_a_link_leads(tmp_path):
    common = tmp_path / "tmp"
    common.mkdir()
    common.chmod(0o1777)
    assert make_private_folder(common / "kernels").is_dir()
    with pytest.raises(InputError, match="other users may write"):
        make_private_folder(common)
    (tmp_path / "open").mkdir()
    make_private_folder(tmp_path / "open" / "kernels")
    (tmp_path / "link").symlink_to(tmp_path / "open" / "kernels")
    assert make_private_folder(tmp_path / "link")
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(InputError, match="other users may write to .*open"):
        make_private_folder(tmp_path / "link")


@pytest.mark.skipif(os.name == "nt", reason="files there have no such owner")
@pytest.mark.parametrize("which", ["kernels", "leafclinic", "link"])
def test_what_belongs_to_another_user_is_refused(tmp_path, which):
    folder = make_private_folder(tmp_path / "leafclinic" / "kernels")
    (tmp_path / "link").symlink_to(folder)
    given = {"kernels": folder, "leafclinic": folder.parent, "link": tmp_path / "link"}[which]
    try:
        os.chown(given, STRANGER, STRANGER, follow_symlinks=False)
    except PermissionError:
        pytest.skip("only root, and not in every container, can give files to another user")
    with pytest.raises(InputError, match=f"{re.escape(str(given))} belongs to"):
        make_private_folder(tmp_path / "link" if which == "link" else folder)


@pytest.mark.thorough
@pytest.mark.parametrize("variable", ["XDG_CACHE_HOME", "NUMBA_CACHE_DIR"])
def test_compiled_kernels_in_a_folder_that_others_may_write_are_not_run(tmp_path, variable):
    """Numba's cache is pickles: whoever can write there has their code run."""
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(0o777)
    here = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), variable: str(tmp_path / "cache")}
    model, photos = write_small_model(tmp_path / "m.safetensors"), write_photos(tmp_path / "photos")
    command = [sys.executable, "-m", "core.diagnose", str(model), str(photos)]
    done = subprocess.run(command, cwd=ROOT, env=here, capture_output=True, text=True, timeout=240)
    assert done.returncode == 2, done.stderr
    assert "other users may write to" in done.stderr
    assert "Traceback" not in done.stderr
    assert not [*tmp_path.rglob("*.nb?")]


def test_ptx_in_such_a_folder_is_not_read_either(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    recipe = Recipe("passes.pool_fast", "make", (), (), 32)
    _path(recipe, (9, 0)).write_text("// entry\n.version 8.0", encoding="utf-8")
    assert compile_recipes([recipe], (9, 0)) == {recipe: (".version 8.0", "entry")}
    (tmp_path / "leafclinic").chmod(0o777)
    with pytest.raises(InputError, match="Compiled kernels are saved there and executed"):
        compile_recipes([recipe], (9, 0))
