"""PyTorch's side of `benchmarks.paper`: SqueezeNet 1.0 from scratch by the settings of the preset `paper`.

    python -m benchmarks.torch_paper leaves/manifest.csv --optimizer sgd [--where crop=tomato] [--epochs 45]

Initial weights and input normalization are those of our run. Batch 32, bf16 autocast, channels last, photos on the GPU.
Forward and backward pass are one captured CUDA graph, the optimizer is PyTorch's fused one. After each epoch one line
of JSON with training loss and validation accuracy, at the end one with the test accuracy.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from benchmarks.paper import initial_arrays
from benchmarks.pytorch import nn, torch
from benchmarks.torch_leaves import DEVICE, accuracy, read_photos
from benchmarks.torch_models import make_model
from core.models.options import IMAGENET_MEAN, IMAGENET_STD

BATCH, DECAY = 32, 1e-4


class Normalize(nn.Module):
    """Photos of -1 to 1 by ImageNet's mean and deviation, as our networks see them."""

    def __init__(self) -> None:
        super().__init__()
        mean, deviation = (torch.tensor(values).reshape(3, 1, 1) for values in (IMAGENET_MEAN, IMAGENET_STD))
        self.register_buffer("middle", 2 * mean - 1)
        self.register_buffer("spread", 2 * deviation)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x - self.middle) / self.spread  # type: ignore[operator]


def make_network(classes: int, seed: int) -> nn.Module:
    """SqueezeNet 1.0 with the initial weights of our run."""
    model = make_model("squeezenet1_0", classes)
    model.insert(len(model) - 4, nn.Dropout(0.5))  # type: ignore[operator, arg-type]  # before the last convolution
    with torch.no_grad():
        for parameter, array in zip(model.parameters(), initial_arrays(classes, seed), strict=True):
            parameter.copy_(torch.from_numpy(array.copy()))
    return nn.Sequential(Normalize(), model)


def make_optimizer(name: str, model: nn.Module, rate: float) -> torch.optim.Optimizer:
    if name == "sgd":
        return torch.optim.SGD(model.parameters(), rate, momentum=0.9, weight_decay=2e-4, fused=True)
    return torch.optim.Adam(model.parameters(), rate, betas=(0.95, 0.99), weight_decay=2e-4, fused=True)


class Step:
    """Forward and backward pass of a batch as one captured graph; `rows` says which photos."""

    def __init__(self, model: nn.Module, photos: torch.Tensor, labels: torch.Tensor) -> None:
        self.rows = torch.zeros(BATCH, dtype=torch.long, device=DEVICE)
        loss_of = nn.CrossEntropyLoss()

        def run() -> torch.Tensor:
            x = (photos[self.rows].float() / 127.5 - 1).contiguous(memory_format=torch.channels_last)
            with torch.autocast(DEVICE, dtype=torch.bfloat16):
                loss = loss_of(model(x), labels[self.rows])
            loss.backward()
            return loss.detach()

        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(4):
                model.zero_grad(set_to_none=True)
                run()
        torch.cuda.current_stream().wait_stream(side)
        model.zero_grad(set_to_none=True)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.loss = run()


def train(manifest: Path, where: str, optimizer_name: str, rate: float, epochs: int, seed: int) -> None:
    photos, labels, parts, classes = read_photos(manifest, ("train", "val", "test"), where)
    torch.backends.cudnn.benchmark = True
    model = make_network(classes, seed)
    torch.manual_seed(seed)
    model = model.to(DEVICE).to(memory_format=torch.channels_last).train()
    optimizer = make_optimizer(optimizer_name, model, rate)
    step = Step(model, photos, labels)
    done, begin = 0, time.perf_counter()
    for epoch in range(epochs):
        order = parts["train"][torch.randperm(len(parts["train"]), device=DEVICE)]
        losses = []
        for rows in order.split(BATCH):
            if len(rows) < BATCH:
                break
            step.rows.copy_(rows)
            step.graph.replay()
            for group in optimizer.param_groups:
                group["lr"] = rate / (1 + DECAY * done)
            optimizer.step()
            losses.append(step.loss.clone())
            done += 1
        reached = accuracy(model, photos, labels, parts["val"])
        print(json.dumps({"epoch": epoch + 1, "loss": float(torch.stack(losses).mean()), "accuracy": reached}),
              flush=True)  # fmt: skip
    reached = accuracy(model, photos, labels, parts["test"])
    print(json.dumps({"test": reached, "seconds": time.perf_counter() - begin, "steps": done}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("manifest", type=Path)
    parser.add_argument("--where", default="")
    parser.add_argument("--optimizer", choices=("sgd", "adam"), default="sgd")
    parser.add_argument("--learning-rate", type=float, default=0.04)
    parser.add_argument("--epochs", type=int, default=45)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    train(options.manifest, options.where, options.optimizer, options.learning_rate, options.epochs, options.seed)


if __name__ == "__main__":
    main()
