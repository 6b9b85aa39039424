"""The card of a model as Markdown, which lies beside its file (`core.diagnosis.model_card` has its contents)."""

from __future__ import annotations

from core.diagnosis.model_card import chapters, describe_model
from core.diagnosis.model_file import ModelFile
from core.percent import keep_percents


def render_card(model: ModelFile, name: str) -> str:
    """The card as Markdown."""
    parts = [f"# {name}\n\n{describe_model(model)}"]
    for chapter in chapters(model):
        blocks = [f"## {chapter.title}"]
        blocks += [chapter.lead] if chapter.lead else []
        for head, rows, after in chapter.tables:
            lines = [head, ("---",) + ("--:",) * (len(head) - 1), *rows]
            blocks.append("\n".join("| " + " | ".join(line) + " |" for line in lines))
            blocks += [after] if after else []
        blocks += ["\n".join(f"- {text}" for text in chapter.points)] if chapter.points else []
        parts.append("\n\n".join(blocks))
    return keep_percents("\n\n".join(parts) + "\n")
