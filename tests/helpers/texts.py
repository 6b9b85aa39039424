"""Every text the window shows: what stands in `tr(...)` and `count(...)`, and what comes from core's tables."""

import ast
from collections.abc import Container, Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
FUNCTIONS = {"tr": 1, "count": 3, "say": 1}
"""Functions whose literal arguments are texts, and how many of them."""
ERRORS = {"DataError", "PhotoError", "StorageError", "ModelFileError", "InputError", "Finding"}


def written_texts() -> set[str]:
    """Literal arguments of `tr` and `count` in app/, and of `say`, by which core asks for a text of the window."""
    calls = find_calls((*(ROOT / "app").rglob("*.py"), *(ROOT / "core").rglob("*.py")), FUNCTIONS)
    literal = (a for name, arguments in calls for a in arguments[: FUNCTIONS[name]] if isinstance(a, ast.Constant))
    return {a.value for a in literal if isinstance(a.value, str)}


def find_calls(paths: Iterable[Path], names: Container[str]) -> Iterator[tuple[str, list[ast.expr]]]:
    """Names and arguments of the calls of these functions in some files."""
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names:
                yield node.func.id, node.args


def core_texts() -> set[str]:
    """Labels of the settings, choices that are no names, kinds of findings, states, directions."""
    from app.actions import MENUS
    from app.viewmodels.training import State
    from core.config import MODELS, OPTIMIZERS, settings
    from core.data.health import KINDS
    from core.diagnosis.verdict import NO_LEAF, NOT_SURE
    from core.training.events import STAGES
    from core.training.presets import PRESETS

    rows = [row for _, row in settings().values()]
    found = {row.label for row in rows} | {row.group.capitalize() for row in rows}
    found |= {row.zero for row in rows} - {""}
    found |= {choice for row in rows for choice in row.choices} - {*MODELS, *OPTIMIZERS, *PRESETS}
    found |= set(KINDS.values()) | {state.value for state in State}
    found |= {"forward", "backward input", "backward weight", "update"}  # of kernels
    found |= set(MENUS) | set(STAGES.values())
    return found | {NO_LEAF, NOT_SURE, "each step", "training", "validation", "learning rate"}


def error_texts() -> set[str]:
    """The engine's sentences about photos, manifests, files and runs that the window may show; a value stands as 1."""
    places = ("data/folder", "data/manifest", "data/dataset", "data/preparation", "data/split", "data/cache_store",
              "data/field_photos", "data/health", "data/photo", "storage", "tensor_file", "training/run_folder",
              "training/start", "adapt", "diagnosis/adaptation")  # fmt: skip
    calls = find_calls((ROOT / "core" / f"{place}.py" for place in places), ERRORS)
    return {text for _, arguments in calls for text in map(_spoken, arguments) if " " in text}


def _spoken(node: ast.expr) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "1" for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def idea_texts() -> set[str]:
    """The idea of every kernel that the laboratory shows, and of every preset."""
    from core.laboratory.kernel_comparison import list_kernels
    from core.training.presets import PRESETS

    return {row.idea for row in list_kernels()} | {preset.idea for preset in PRESETS.values()}


def code_texts() -> set[str]:
    """Every text in app/ and core/, a value in it as 1, also as titles, and as values of other sentences."""
    found = set()
    for path in (p for part in ("app", "core") for p in (ROOT / part).rglob("*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        found |= {_spoken(node) for node in ast.walk(tree) if isinstance(node, ast.Constant | ast.JoinedStr)}
    return found | {f(text) for text in found for f in (str.capitalize, lambda text: text.replace("_", " "))}


def help_texts() -> set[str]:
    from core.config import settings

    rows = [row for _, row in settings().values()]
    return {text for row in rows for text in (row.help, *row.meanings.values())}
