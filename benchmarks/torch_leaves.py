"""PyTorch on the leaves, eager, by its usual recipe: SqueezeNet 1.1 with batch norm, from scratch, on one GPU.

    python -m benchmarks.torch_leaves leaves/manifest.csv

Recipe: 60 epochs, batch 128, SGD 0.1 with Nesterov momentum 0.9 and weight decay 5e-4, one-cycle, label smoothing
0.1, bf16 autocast, channels last, classes drawn by one over the root of their photos; photos decoded once by OpenCV
on all cores, kept on the GPU as uint8, turned, cropped and lit there. At the start (epoch 0) and after each
evaluated epoch one line of JSON: epoch and validation accuracy. `benchmarks.time_to_accuracy` reads them.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cv2
import numpy as np

from benchmarks.pytorch import nn, torch
from benchmarks.torch_models import make_model

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SIDE, BATCH, RATE, DECAY, WARMUP, SMOOTHING = 224, 128, 0.1, 5e-4, 0.2, 0.1


def decode(path: Path) -> np.ndarray:
    """The largest centred square at `SIDE` pixels, RGB."""
    image = cv2.imread(str(path))[:, :, ::-1]
    height, width = image.shape[:2]
    side = min(height, width)
    image = image[(height - side) // 2 :, (width - side) // 2 :][:side, :side]
    if side != SIDE:
        image = cv2.resize(image, (SIDE, SIDE), interpolation=cv2.INTER_AREA)
    return np.ascontiguousarray(image)


def read_photos(
    manifest: Path, used: tuple[str, ...] = ("train", "val"), where: str = ""
) -> tuple[torch.Tensor, torch.Tensor, dict[str, torch.Tensor], int]:
    """Photos (N, 3, side, side) uint8 and labels on the GPU, rows of each split, number of classes.

    where: COLUMN=VALUE of the rows, or "" for all.
    """
    column, _, value = where.partition("=")
    with manifest.open(newline="", encoding="utf-8") as file:
        rows = [r for r in csv.DictReader(file) if r["split"] in used and (not where or r[column] == value)]
    names = [f"{r['crop']}/{r['condition']}" for r in rows]
    classes = sorted(set(names))
    cv2.setNumThreads(1)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        photos = np.stack(list(pool.map(lambda r: decode(manifest.parent / r["path"]), rows)))
    splits = np.array([r["split"] for r in rows])
    parts = {s: torch.from_numpy(np.flatnonzero(splits == s)).to(DEVICE) for s in used}
    labels = torch.tensor([classes.index(n) for n in names], device=DEVICE)
    return torch.from_numpy(photos).to(DEVICE).permute(0, 3, 1, 2).contiguous(), labels, parts, len(classes)


def augment(x: torch.Tensor) -> torch.Tensor:
    """Turned by up to 90 degrees, mirrored, scaled, moved, lit differently; -1 to 1."""
    n, device = len(x), x.device

    def draw(*shape: int) -> torch.Tensor:
        return torch.rand(shape, device=device)

    x = x.float().div_(127.5).sub_(1)
    angle, scale = (draw(n) - 0.5) * math.pi, 0.65 + 0.4 * draw(n)
    mirror = torch.where(draw(n) < 0.5, -1.0, 1.0)
    c, s = torch.cos(angle) * scale, torch.sin(angle) * scale
    move = (draw(2, n) - 0.5) * 0.3
    matrix = torch.stack([torch.stack([c * mirror, -s, move[0]], 1), torch.stack([s * mirror, c, move[1]], 1)], 1)
    grid = nn.functional.affine_grid(matrix, x.shape, align_corners=False)  # type: ignore[arg-type]
    x = nn.functional.grid_sample(x, grid, padding_mode="reflection", align_corners=False)
    return x * (0.75 + 0.5 * draw(n, 1, 1, 1)) + 0.3 * (draw(n, 1, 1, 1) - 0.5) + 0.1 * (draw(n, 3, 1, 1) - 0.5)


@torch.no_grad()
def accuracy(model: nn.Module, photos: torch.Tensor, labels: torch.Tensor, rows: torch.Tensor) -> float:
    model.eval()
    hits = torch.zeros((), device=DEVICE)
    for part in rows.split(250):
        x = (photos[part].float() / 127.5 - 1).contiguous(memory_format=torch.channels_last)
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            hits += (model(x).argmax(1) == labels[part]).sum()
    model.train()
    return float(hits) / len(rows)


def train(manifest: Path, epochs: int, seed: int, every: int = 1) -> None:
    photos, labels, parts, classes = read_photos(manifest)
    train_rows = parts["train"]
    torch.backends.cudnn.benchmark = True
    model = make_model("squeezenet1_1_bn", classes)
    model.insert(len(model) - 4, nn.Dropout(0.5))  # type: ignore[operator]  # before the last convolution
    torch.manual_seed(seed)
    model = model.to(DEVICE).to(memory_format=torch.channels_last).train()
    optimizer = torch.optim.SGD(model.parameters(), RATE, momentum=0.9, weight_decay=DECAY, nesterov=True)
    steps = len(train_rows) // BATCH
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=epochs * steps, pct_start=WARMUP)
    loss_of = nn.CrossEntropyLoss(label_smoothing=SMOOTHING)
    chance = torch.bincount(labels[train_rows], minlength=classes).float().rsqrt()[labels[train_rows]]
    tell(0, 0.0)
    for epoch in range(epochs):
        drawn = train_rows[torch.multinomial(chance, len(train_rows), replacement=True)]
        for step in range(steps):
            rows = drawn[step * BATCH : (step + 1) * BATCH]
            with torch.autocast(DEVICE, dtype=torch.bfloat16):
                x = augment(photos[rows]).contiguous(memory_format=torch.channels_last)
                loss = loss_of(model(x), labels[rows])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            schedule.step()
        if (epoch + 1) % every == 0 or epoch + 1 == epochs:
            tell(epoch + 1, accuracy(model, photos, labels, parts["val"]))


def tell(epoch: int, reached: float) -> None:
    print(json.dumps({"epoch": epoch, "accuracy": reached}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("manifest", type=Path)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--validate-every", type=int, default=1)
    options = parser.parse_args()
    train(options.manifest, options.epochs, options.seed, options.validate_every)


if __name__ == "__main__":
    main()
