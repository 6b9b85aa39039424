"""The house rules that a machine can check: floors, sizes, and what never stands in the code."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = sorted(p for part in ("app", "core") for p in (ROOT / part).rglob("*.py"))
FOLDERS = ("app", "benchmarks", "core", "datasets", "docs", "packaging", "resources", "tests")
ALL = sorted(p for part in FOLDERS for p in (ROOT / part).rglob("*.py"))

FILE_LINES = 400
FUNCTION_LINES, KERNEL_LINES = 40, 80
"""Of a function with the functions inside it; a kernel's loops and instructions read best in one place."""
KERNELS = tuple(ROOT / "core" / "gpu" / name for name in ("ops", "latency", "sm90"))

NETWORK = {"http", "urllib", "requests", "ftplib", "smtplib", "socket", "socketserver", "xmlrpc", "aiohttp"}
UNIX_SOCKETS = {"app/instance.py": {"socket"}}
"""It asks a Unix socket which user is at the other end. What is really opened, `tests/e2e/test_no_network.py` sees."""
DOORS = {"onnxruntime": "core/onnx/runtime.py", "mpi4py": "core/distributed/mpi.py", "nccl": "core/distributed/nccl.py"}
"""Packages that only one module may import. They open connections: the first module switches that off, the others are
imported only where a launcher has started several ranks (`tests/core/distributed/test_rank_environment.py`)."""
EXTENDED = {"Communicator", "Dialog", "InputError", "LeafClinicError", "Plan", "ProcessModel", "Wrapping", "_Wheelless"}
"""Classes that others extend; all others are final."""
UNSAFE = {"pickle", "shelve", "marshal", "dill", "joblib", "cloudpickle"}
FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


@dataclass(frozen=True)
class Summary:
    """What the tests ask of a module: packages that it imports, its docstring, its functions with their lines, and its
    classes with their bases."""

    imported: frozenset[str]
    docstring: str | None
    functions: tuple[tuple[str, int], ...]
    classes: tuple[tuple[str, frozenset[str]], ...]


def statements(node: ast.AST) -> Iterator[ast.stmt]:
    """All statements below a node; much faster than `ast.walk`, which visits every name and number too."""
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        for child in getattr(node, field, ()):
            yield child
            yield from statements(child)


@cache
def summary(path: Path) -> Summary:
    tree = ast.parse(path.read_text("utf-8"))
    names, functions, classes = set(), [], []
    for node in statements(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.split(".")[0])
        elif isinstance(node, FUNCTIONS):
            functions.append((node.name, node.end_lineno - node.lineno + 1))
        elif isinstance(node, ast.ClassDef):
            classes.append((node.name, frozenset(ast.unparse(base).split(".")[-1] for base in node.bases)))
    return Summary(frozenset(names), ast.get_docstring(tree), tuple(functions), tuple(classes))


def test_imports_go_down_only():
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, f"pyproject.toml has the contracts.\n{done.stdout[-4000:]}{done.stderr[-2000:]}"


def test_no_file_is_longer_than_the_limit():
    lines = {relative(path): len(path.read_text("utf-8").splitlines()) for path in ALL}
    assert not {path: count for path, count in lines.items() if count > FILE_LINES}, "split them by concept"


def test_no_function_is_longer_than_the_limit():
    long = []
    for path in ALL:
        limit = KERNEL_LINES if any(path.is_relative_to(folder) for folder in KERNELS) else FUNCTION_LINES
        long += [(relative(path), name, lines) for name, lines in summary(path).functions if lines > limit]
    assert not long, f"give a part a name and a function of its own: {long}"


def test_nothing_reaches_for_the_network_or_unpickles():
    for path in SOURCES:
        names = summary(path).imported - UNIX_SOCKETS.get(relative(path), set())
        assert not names & NETWORK, f"{relative(path)} opens connections (SECURITY.md names the only ones)"
        assert not names & UNSAFE, f"{relative(path)} unpickles; core/tensor_file.py stores arrays"
        assert "allow_pickle=True" not in path.read_text("utf-8"), f"{relative(path)} unpickles"


@pytest.mark.parametrize("package", DOORS)
def test_only_its_door_imports_the_package(package):
    importers = [relative(p) for p in ALL if package in summary(p).imported]
    assert importers == [DOORS[package]], f"call {DOORS[package]} instead of importing {package}"


def test_only_classes_made_for_it_are_extended():
    bases = {name: bases for path in SOURCES for name, bases in summary(path).classes}
    assert frozenset().union(*bases.values()) & bases.keys() == EXTENDED, "pass an object or a function instead"


def test_every_module_says_what_it_is():
    assert not [relative(path) for path in SOURCES if not summary(path).docstring], "modules without a docstring"


def test_no_module_has_a_name_that_says_nothing():
    empty = {"utils", "util", "misc", "common", "helpers", "manager", "base"}
    assert not [relative(p) for p in SOURCES if p.stem in empty], "name them after what is in them"
