"""Writes models.npz: PyTorch's logits, gradients and losses, in float64, for every network. It needs torch.

The networks are written out again here, with torchvision's names and structure.
"""

from collections import OrderedDict

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from core.ops.flatten import to_torch
from tests.golden.make_ops import make_optimizer
from tests.helpers import golden

STEPS = 10


class Fire(nn.Module):
    def __init__(self, channels, squeeze, expand, norm):
        super().__init__()
        self.squeeze = nn.Conv2d(channels, squeeze, 1, bias=not norm)
        self.expand1x1 = nn.Conv2d(squeeze, expand, 1, bias=not norm)
        self.expand3x3 = nn.Conv2d(squeeze, expand, 3, padding=1, bias=not norm)
        for name in ("squeeze", "expand1x1", "expand3x3"):
            out = getattr(self, name).out_channels
            setattr(self, f"{name}_bn", nn.BatchNorm2d(out) if norm else nn.Identity())

    def forward(self, x):
        x = F.relu(self.squeeze_bn(self.squeeze(x)))
        one, three = self.expand1x1_bn(self.expand1x1(x)), self.expand3x3_bn(self.expand3x3(x))
        return torch.cat([F.relu(one), F.relu(three)], 1)


class SqueezeNet(nn.Module):
    def __init__(self, version, classes, norm):
        super().__init__()
        first = (96, 7) if version == "1_0" else (64, 3)
        rows = {
            "1_0": (0, (16, 64), (16, 64), (32, 128), 0, (32, 128), (48, 192), (48, 192), (64, 256), 0, (64, 256)),
            "1_1": (0, (16, 64), (16, 64), 0, (32, 128), (32, 128), 0, (48, 192), (48, 192), (64, 256), (64, 256)),
        }[version]  # 0 is a pool
        layers = [("0", nn.Conv2d(3, *first, stride=2, bias=not norm))]
        layers += [*([("0_bn", nn.BatchNorm2d(first[0]))] if norm else []), ("1", nn.ReLU())]
        channels = first[0]
        for i, row in enumerate(rows, 2):
            if row == 0:
                layers.append((str(i), nn.MaxPool2d(3, 2, ceil_mode=True)))
            else:
                layers.append((str(i), Fire(channels, *row, norm)))
                channels = 2 * row[1]
        self.features = nn.Sequential(OrderedDict(layers))
        self.classifier = nn.Sequential(nn.Dropout(0.0), nn.Conv2d(512, classes, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1))

    def forward(self, x):
        return self.classifier(self.features(x)).flatten(1)


def conv_norm(inputs, outputs, kernel, stride, groups, activation, **norm):
    layers = [nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)]
    return nn.Sequential(*layers, nn.BatchNorm2d(outputs, **norm), *([activation()] if activation else []))


class Residual(nn.Module):
    """Layers under a name, and their input added to their output where `skip` says so."""

    def __init__(self, name, layers, skip):
        super().__init__()
        self.name, self.skip = name, skip
        self.add_module(name, nn.Sequential(*layers))

    def forward(self, x):
        out = self.get_submodule(self.name)(x)
        return x + out if self.skip else out


class MobileNet(nn.Module):
    def __init__(self, features, *classifier):
        super().__init__()
        self.features, self.classifier = nn.Sequential(*features), nn.Sequential(*classifier)

    def forward(self, x):
        return self.classifier(self.features(x).mean((2, 3)))


def mobilenetv2(classes):
    def conv(*shape):
        return conv_norm(*shape, nn.ReLU6)

    layers, channels = [conv(3, 32, 3, 2, 1)], 32
    for expansion, out, blocks, first in (
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
    ):  # fmt: skip
        for stride in (first, *[1] * (blocks - 1)):
            wide = channels * expansion
            parts = [conv(channels, wide, 1, 1, 1)] if expansion > 1 else []
            parts += [conv(wide, wide, 3, stride, wide), nn.Conv2d(wide, out, 1, bias=False), nn.BatchNorm2d(out)]
            layers.append(Residual("conv", parts, stride == 1 and channels == out))
            channels = out
    return MobileNet([*layers, conv(channels, 1280, 1, 1, 1)], nn.Dropout(0.0), nn.Linear(1280, classes))


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
        layers.append(Residual("block", parts, stride == 1 and channels == out))
        channels = out
    layers.append(conv_norm(channels, 6 * channels, 1, 1, 1, HS, **norm))
    head = nn.Linear(6 * channels, hidden), nn.Hardswish(), nn.Dropout(0.0), nn.Linear(hidden, classes)
    return MobileNet(layers, *head)


class Cnn(nn.Module):
    def __init__(self, padding, size, classes):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 8, 5, padding=padding), nn.Conv2d(8, 8, 5, padding=padding)
        self.dense1 = nn.Linear(8 * ((size + 4 * (padding - 2)) // 2) ** 2, 128)
        self.dense2 = nn.Linear(128, classes)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv2(F.relu(self.conv1(x)))), 2)
        return self.dense2(F.relu(self.dense1(x.flatten(1))))


class Mlp(nn.Module):
    def __init__(self, size, classes, activation):
        super().__init__()
        self.dense1, self.dense2, self.activation = nn.Linear(size * size, 500), nn.Linear(500, classes), activation

    def forward(self, x):
        return self.dense2(self.activation(self.dense1(x.flatten(1))))


def module(name):
    """The torch module behind a golden name, with the golden weights, in float64."""
    classes, image_size = 10, golden.TRAINING[name]["image_size"]
    if name.startswith("squeezenet"):
        made = SqueezeNet(name[10:13], classes, name.endswith("_bn"))
    elif name.startswith("mobilenetv2"):
        made = mobilenetv2(classes)
    elif name.startswith("mobilenetv3"):
        made = mobilenetv3(name.rpartition("_")[2], classes)
    elif name.startswith("cnn"):
        made = Cnn(4 if name.endswith("full") else 2, image_size, classes)
    else:
        made = Mlp(image_size, classes, torch.sigmoid if name.endswith("sigmoid") else F.relu)
    graph = golden.graph_of(name)
    weights = golden.weights_of(graph, golden.DRAWS.get(name, 0))
    shapes = {k: v.shape for k, v in made.state_dict().items()}
    state = {k: torch.tensor(v).reshape(shapes[k]) for k, v in to_torch(graph, weights).items()}
    missing = made.load_state_dict(state, strict=False)
    assert not missing.unexpected_keys, missing.unexpected_keys
    assert all(key.endswith("num_batches_tracked") for key in missing.missing_keys), missing.missing_keys
    return made.double(), graph


def normalised(photos, graph):
    """The photos as our network sees them; that this is right is not the subject here."""
    network = golden.Golden(graph, {}, photos, np.zeros(len(photos), np.int32), np.zeros(0))
    return torch.tensor(network.inputs(np.float64)).movedim(-1, 1)


def make_training(name):
    net, graph = module(name)
    size = golden.TRAINING[name]["image_size"]
    x, labels = normalised(golden.photos_of(4, size), graph), torch.tensor(golden.labels_of(4, 10)).long()
    with torch.no_grad():
        made = {"logits": net.eval()(x).numpy()}
    loss = F.cross_entropy(net.train()(x), labels)
    loss.backward()
    made["loss"] = loss.detach().numpy()
    engine = {k: graph.parameters()[k].shape for k in graph.parameters()}
    for key, parameter in net.named_parameters():
        made[f"gradient/{key}"] = golden.digest(as_ours(graph, key, parameter.grad.numpy(), engine))
    made |= {f"updated/{k}": golden.digest(b.numpy()) for k, b in net.named_buffers() if "running" in k}
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
        net, graph = module(name)
        decays = {k: p.decay for k, p in graph.parameters().items()}
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
