"""Mean of the weights of models that were fine-tuned from one ("model soup"), chosen by validation photos.

    python -m benchmarks.soup $LEAFCLINIC_DATA/leaves leaves.safetensors runs/a runs/b --views 2 --half \
        --out runs/soup.safetensors

The first model is what the others started from. Judged are each by itself, the mean of all (uniform soup) and the
greedy soup: in order of their score models join while the score does not fall. Source: Wortsman et al., "Model soups:
averaging weights of multiple fine-tuned models improves accuracy without increasing inference time", 2022.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.validation import Score, describe, find_photos, score
from core.diagnosis.learned_photos import join_learned
from core.diagnosis.model_card import DATA
from core.diagnosis.model_file import ModelFile, in_half, read_model, write_model
from core.diagnosis.prediction import Predictor
from core.errors import ModelFileError
from core.graph import Graph
from core.ops.contract import Array, Arrays
from core.program import fold_batch_norm, fold_weights
from core.training.presets import PRESETS

NEAR = 0.0005
"""So much less of the score the uniform soup may have and is taken all the same: it chooses nothing."""


@dataclass(frozen=True)
class Tried:
    """Models whose mean was judged, by number in rising order."""

    members: tuple[int, ...]
    score: Score


Judge = Callable[[tuple[int, ...]], Score]


def choose(count: int, judged: Judge) -> tuple[list[Tried], Tried]:
    """(the single models, the uniform and the greedy soup; the one to take)."""
    singles = [Tried((i,), judged((i,))) for i in range(count)]
    uniform = Tried(tuple(range(count)), judged(tuple(range(count))))
    greedy = join_greedily(singles, judged)
    best = max((*singles, greedy, uniform), key=lambda tried: tried.score.mean)
    near = uniform.score.mean >= best.score.mean - NEAR
    return [*singles, uniform, greedy], uniform if near else best


def join_greedily(singles: Sequence[Tried], judged: Judge) -> Tried:
    """The best single model; each further one, in order of its score, joins where the score does not fall."""
    first, *others = sorted(singles, key=lambda tried: -tried.score.mean)
    soup = first
    for other in others:
        members = tuple(sorted((*soup.members, *other.members)))
        more = Tried(members, judged(members))
        if more.score.mean >= soup.score.mean:
            soup = more
    return soup


def read_alike(paths: Sequence[Path]) -> list[ModelFile]:
    """Models with their batch norm folded. Raises ModelFileError where they are not of one network and classes."""
    models = [folded(read_model(path)) for path in paths]
    for path, model in zip(paths[1:], models[1:], strict=True):
        if without_dropout(model.graph) != without_dropout(models[0].graph):
            raise ModelFileError(f"{path} is of another network or photo size than {paths[0]}: no mean can be taken.")
        if model.classes != models[0].classes:
            raise ModelFileError(f"{path} tells other classes apart than {paths[0]}: no mean can be taken.")
    return models


def without_dropout(graph: Graph) -> Graph:
    """The graph with rates that play no part in an answer left out."""
    nodes = (replace(node, attributes={}) if node.op == "dropout" else node for node in graph.nodes)
    return Graph(graph.name, tuple(nodes), graph.output)


def folded(model: ModelFile) -> ModelFile:
    """The same answers without batch norm: weights of one start can be averaged then, statistics could not."""
    return replace(model, graph=fold_batch_norm(model.graph), weights=fold_weights(model.graph, model.weights))


def mean_weights(models: Sequence[ModelFile]) -> dict[str, Array]:
    """The mean of each weight, float32, added up in float64."""
    return {
        name: (sum(m.weights[name].astype(np.float64) for m in models) / len(models)).astype(np.float32)
        for name in models[0].weights
    }


def bare(model: ModelFile, weights: Arrays, views: int, half: bool) -> ModelFile:
    """The network with these weights, without anything that was measured of others."""
    made = replace(
        model, weights=weights, temperature=1.0, class_temperatures=(), figures={}, sections={}, extra={}, views=views
    )
    return in_half(made) if half else replace(made, half=False, steps={})


def make_judge(root: Path, models: Sequence[ModelFile], views: int, half: bool, device: str) -> Judge:
    """Scores of means of the models on the validation photos, which are read once. One plan serves all."""
    photos = find_photos(root, models[0].classes)
    squares = np.concatenate(list(photos.chunks(models[0].source_side)))
    predictor = Predictor(bare(models[0], models[0].weights, views, half), device=device, batch=64)

    def judged(members: tuple[int, ...]) -> Score:
        made = bare(models[0], mean_weights([models[i] for i in members]), views, half)
        predictor.plan.load(made.weights)
        return score(predictor.predict(squares)["logits"], photos)

    return judged


def names_of(tried: Tried, paths: Sequence[Path]) -> str:
    return ", ".join(paths[i].stem if paths[i].is_file() else paths[i].name for i in tried.members)


def made_of(paths: Sequence[Path], members: Sequence[int]) -> str:
    """How the weights came about, as a sentence for the model card."""
    told = [options_of(paths[i]) if paths[i].is_dir() else f"{paths[i].stem}, which they started from" for i in members]
    return f"Mean of the weights of {len(told)} networks: {'; '.join(told)}."


def options_of(run: Path) -> str:
    """What a run was given besides its preset."""
    config = json.loads((run / "config.json").read_text(encoding="utf-8"))
    recipe = PRESETS[config["preset"]].values
    given = {name: config[name] for name in ("seed", "epochs", "minutes") if config[name]}
    given |= {name: config[name] for name, value in recipe.items() if config[name] != value and name != "epochs"}
    words = (f"--{name.replace('_', '-')} {round(v, 2) if name == 'minutes' else v}" for name, v in given.items())
    return f"--preset {config['preset']} {' '.join(words)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos", type=Path)
    parser.add_argument("models", type=Path, nargs="+", help="model files or run folders, the start first")
    parser.add_argument("--views", type=int, default=1, choices=(1, 2), help="2: with the mirror image")
    parser.add_argument("--half", action="store_true", help="judge and store filters in half precision")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--figures", type=Path, help="JSON with every score")
    options = parser.parse_args()
    models = read_alike(options.models)
    tried, taken = choose(
        len(models), make_judge(options.photos, models, options.views, options.half, options.device)
    )
    for one in (*tried, taken):
        print(f"{describe(one.score)}  {names_of(one, options.models)}", flush=True)
    made = bare(models[0], mean_weights([models[i] for i in taken.members]), options.views, options.half)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    told = {DATA: {"sources": [made_of(options.models, taken.members)]}}
    learned = join_learned([models[i].learned for i in taken.members])
    write_model(options.out, replace(made, sections=told, learned=learned))
    if options.figures:
        figures = {"models": [p.name for p in options.models], "tried": [asdict(t) for t in tried],
                   "taken": asdict(taken)}
        options.figures.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
