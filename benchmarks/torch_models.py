"""The same networks in PyTorch, as torchvision builds them, for comparison only."""

from __future__ import annotations

from benchmarks.pytorch import nn, torch

FIRES = {
    "squeezenet1_0": (96, 7, (0, (96, 16, 64), (128, 16, 64), (128, 32, 128), 0, (256, 32, 128), (256, 48, 192),
                              (384, 48, 192), (384, 64, 256), 0, (512, 64, 256))),
    "squeezenet1_1": (64, 3, (0, (64, 16, 64), (128, 16, 64), 0, (128, 32, 128), (256, 32, 128), 0, (256, 48, 192),
                              (384, 48, 192), (384, 64, 256), (512, 64, 256))),
}  # fmt: skip
"""Filters and kernel of the first convolution, then fires (in, squeeze, expand) with pools (0) between."""

INVERTED = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


class Conv(nn.Sequential):
    def __init__(self, i: int, o: int, k: int, bn: bool, stride: int = 1, padding: int = 0) -> None:
        layers: list[nn.Module] = [nn.Conv2d(i, o, k, stride, padding, bias=not bn)]
        super().__init__(*layers, *([nn.BatchNorm2d(o)] if bn else []), nn.ReLU(inplace=True))


class Fire(nn.Module):
    def __init__(self, i: int, squeeze: int, expand: int, bn: bool) -> None:
        super().__init__()
        self.squeeze = Conv(i, squeeze, 1, bn)
        self.expand1x1 = Conv(squeeze, expand, 1, bn)
        self.expand3x3 = Conv(squeeze, expand, 3, bn, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.squeeze(x)
        return torch.cat([self.expand1x1(x), self.expand3x3(x)], 1)


def squeezenet(version: str, classes: int, bn: bool) -> nn.Module:
    filters, kernel, fires = FIRES[version]
    layers: list[nn.Module] = [Conv(3, filters, kernel, bn, stride=2)]
    layers += [Fire(*f, bn) if f else nn.MaxPool2d(3, 2, ceil_mode=True) for f in fires]  # type: ignore[misc]
    return nn.Sequential(
        *layers, nn.Conv2d(512, classes, 1), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    )


class Inverted(nn.Module):
    def __init__(self, i: int, o: int, stride: int, grow: int) -> None:
        super().__init__()
        hidden = i * grow
        wide = [nn.Conv2d(i, hidden, 1, bias=False), nn.BatchNorm2d(hidden), nn.ReLU6(inplace=True)]
        self.skip = stride == 1 and i == o
        self.net = nn.Sequential(
            *(wide if grow > 1 else []),
            nn.Conv2d(hidden, hidden, 3, stride, 1, groups=hidden, bias=False),
            nn.BatchNorm2d(hidden), nn.ReLU6(inplace=True),
            nn.Conv2d(hidden, o, 1, bias=False), nn.BatchNorm2d(o),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.net(x) if self.skip else self.net(x)


def mobilenetv2(classes: int) -> nn.Module:
    layers: list[nn.Module] = [nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU6(inplace=True)]
    i = 32
    for grow, o, count, stride in INVERTED:
        for n in range(count):
            layers.append(Inverted(i, o, stride if n == 0 else 1, grow))
            i = o
    layers += [nn.Conv2d(320, 1280, 1, bias=False), nn.BatchNorm2d(1280), nn.ReLU6(inplace=True)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1280, classes))


def make_model(name: str, classes: int) -> nn.Module:
    """A network by our name, with PyTorch's He initialisation."""
    torch.manual_seed(0)
    if name == "mobilenetv2":
        model = mobilenetv2(classes)
    else:
        model = squeezenet(name.removesuffix("_bn"), classes, name.endswith("_bn"))
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight)
    return model
