"""Writes models.npz: PyTorch's logits, gradients and losses, in float64, for every network. It needs torch.

The networks are those of the benchmarks, and others written out again here with torchvision's structure. Parameters are
matched by their order.
"""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.torch_models import make_model
from core.ops.flatten import to_torch
from tests.golden.make_ops import make_optimizer
from tests.helpers import golden

STEPS = 10


def conv_norm(inputs, outputs, kernel, stride, groups, activation, **norm):
    layers = [nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)]
    return nn.Sequential(*layers, nn.BatchNorm2d(outputs, **norm), *([activation()] if activation else []))


class Residual(nn.Sequential):
    """Layers to whose output their input is added."""

    def forward(self, x):
        return x + super().forward(x)


class SqueezeExcitation(nn.Module):
    def __init__(self, channels, squeezed):
        super().__init__()
        self.fc1, self.fc2 = nn.Conv2d(channels, squeezed, 1), nn.Conv2d(squeezed, channels, 1)

    def forward(self, x):
        scale = self.fc2(F.relu(self.fc1(F.adaptive_avg_pool2d(x, 1))))
        return x * (F.relu6(scale + 3) / 6)  # F.hardsigmoid's gradient in float64 has 1 / 6 in float32


RE, HS = nn.ReLU, nn.Hardswish
MOBILENETV3 = {  # kernel, channels within, channels, squeezed channels, activation, stride
    "small": (1024, (3, 16, 16, 8, RE, 2), (3, 72, 24, 0, RE, 2), (3, 88, 24, 0, RE, 1), (5, 96, 40, 24, HS, 2),
              (5, 240, 40, 64, HS, 1), (5, 240, 40, 64, HS, 1), (5, 120, 48, 32, HS, 1), (5, 144, 48, 40, HS, 1),
              (5, 288, 96, 72, HS, 2), (5, 576, 96, 144, HS, 1), (5, 576, 96, 144, HS, 1)),
    "large": (1280, (3, 16, 16, 0, RE, 1), (3, 64, 24, 0, RE, 2), (3, 72, 24, 0, RE, 1), (5, 72, 40, 24, RE, 2),
              (5, 120, 40, 32, RE, 1), (5, 120, 40, 32, RE, 1), (3, 240, 80, 0, HS, 2), (3, 200, 80, 0, HS, 1),
              (3, 184, 80, 0, HS, 1), (3, 184, 80, 0, HS, 1), (3, 480, 112, 120, HS, 1), (3, 672, 112, 168, HS, 1),
              (5, 672, 160, 168, HS, 2), (5, 960, 160, 240, HS, 1), (5, 960, 160, 240, HS, 1)),
}  # fmt: skip


def mobilenetv3(size, classes):
    hidden, *rows = MOBILENETV3[size]
    norm = {"eps": 1e-3, "momentum": 0.01}
    layers, channels = [conv_norm(3, 16, 3, 2, 1, HS, **norm)], 16
    for kernel, wide, out, squeezed, activation, stride in rows:
        parts = [conv_norm(channels, wide, 1, 1, 1, activation, **norm)] if wide != channels else []
        parts.append(conv_norm(wide, wide, kernel, stride, wide, activation, **norm))
        parts += [SqueezeExcitation(wide, squeezed)] if squeezed else []
        parts.append(conv_norm(wide, out, 1, 1, 1, None, **norm))
        layers.append((Residual if stride == 1 and channels == out else nn.Sequential)(*parts))
        channels = out
    layers.append(conv_norm(channels, 6 * channels, 1, 1, 1, HS, **norm))
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6 * channels, hidden), nn.Hardswish()]
    return nn.Sequential(*layers, nn.Linear(hidden, classes))


def cnn(padding, size, classes):
    convolutions = [nn.Conv2d(1, 8, 5, padding=padding), nn.ReLU(), nn.Conv2d(8, 8, 5, padding=padding), nn.ReLU()]
    pixels = ((size + 4 * (padding - 2)) // 2) ** 2
    dense = [nn.Linear(8 * pixels, 128), nn.ReLU(), nn.Linear(128, classes)]
    return nn.Sequential(*convolutions, nn.MaxPool2d(2), nn.Flatten(), *dense)


def module(name):
    """The torch module behind a golden name, with the golden weights, in float64; our graph; our names by torch's."""
    classes, image_size = 10, golden.TRAINING[name]["image_size"]
    if name.startswith("mobilenetv3"):
        made = mobilenetv3(name.rpartition("_")[2], classes)
    elif name.startswith("cnn"):
        made = cnn(4 if name.endswith("full") else 2, image_size, classes)
    elif name.startswith("mlp"):
        activation = nn.Sigmoid() if name.endswith("sigmoid") else nn.ReLU()
        made = nn.Sequential(nn.Flatten(), nn.Linear(image_size**2, 500), activation, nn.Linear(500, classes))
    else:
        made = make_model(name, classes)
    graph = golden.graph_of(name)
    weights = to_torch(graph, golden.weights_of(graph, golden.DRAWS.get(name, 0)))
    shapes = {k: v.shape for k, v in made.state_dict().items() if not k.endswith("num_batches_tracked")}
    names = dict(zip(shapes, weights, strict=True))
    state = {k: torch.tensor(weights[names[k]]).reshape(shape) for k, shape in shapes.items()}
    made.load_state_dict(state, strict=False)
    return made.double(), graph, names


def normalised(photos, graph):
    """The photos as our network sees them; that this is right is not the subject here."""
    network = golden.Golden(graph, {}, photos, np.zeros(len(photos), np.int32), np.zeros(0))
    return torch.tensor(network.inputs(np.float64)).movedim(-1, 1)


def make_training(name):
    net, graph, names = module(name)
    size = golden.TRAINING[name]["image_size"]
    x, labels = normalised(golden.photos_of(4, size), graph), torch.tensor(golden.labels_of(4, 10)).long()
    with torch.no_grad():
        made = {"logits": net.eval()(x).numpy()}
    loss = F.cross_entropy(net.train()(x), labels)
    loss.backward()
    made["loss"] = loss.detach().numpy()
    engine = {k: graph.parameters()[k].shape for k in graph.parameters()}
    for theirs, parameter in net.named_parameters():
        key = names[theirs]
        made[f"gradient/{key}"] = golden.digest(as_ours(graph, key, parameter.grad.numpy(), engine))
    made |= {f"updated/{names[k]}": golden.digest(b.numpy()) for k, b in net.named_buffers() if "running" in k}
    losses = make_losses(name, x, labels) if name in golden.TEN_LOSSES else {}
    return {f"{name}/{k}": v for k, v in made.items()} | losses


def as_ours(graph, key, array, shapes):
    """One array in the engine's layout: the one rule of `core.ops.flatten`, written again."""
    if array.ndim == 4:
        return array.transpose(0, 2, 3, 1).reshape(shapes[key])
    node = next(n for n in graph.nodes if key.startswith(f"{n.name}.") and n.parameters)
    before = graph.node(node.inputs[0])
    if array.ndim == 2 and before.op == "flatten":
        height, width, channels = graph.node(before.inputs[0]).shape
        array = array.reshape(-1, channels, height, width).transpose(0, 2, 3, 1).reshape(array.shape)
    assert array.shape == shapes[key], key
    return array


def make_losses(name, x, labels):
    made = {}
    for kind, (ours, rate) in golden.OPTIMIZERS.items():
        net, graph, names = module(name)
        decays = {k: graph.parameters()[own].decay for k, own in names.items()}
        groups = [
            {"params": [p for k, p in net.named_parameters() if decays[k]], "weight_decay": ours.weight_decay},
            {"params": [p for k, p in net.named_parameters() if not decays[k]], "weight_decay": 0.0},
        ]
        optimizer = make_optimizer(ours, groups, rate)
        losses = []
        for _ in range(STEPS):
            optimizer.zero_grad()
            loss = F.cross_entropy(net.train()(x), labels)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        made[f"{name}/losses/{kind}"] = np.array(losses)
    return made


def main():
    made = {}
    for name in golden.TRAINING:
        made |= make_training(name)
    np.savez_compressed(golden.FOLDER / "models.npz", **made)


if __name__ == "__main__":
    main()
