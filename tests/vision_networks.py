"""Networks built as torchvision and timm build theirs, small, and a folder of colored images that they can classify."""

from __future__ import annotations

from collections import OrderedDict
from functools import cache
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

MEAN, STD = (0.5, 0.4, 0.3), (0.3, 0.25, 0.2)
CLASSES = ("blue", "green", "red")


class TorchvisionResNet(nn.Module):
    """`conv1`, `bn1`, `layer1`, `avgpool`, `fc`."""

    def __init__(self, num_classes: int = 3, width: int = 8) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        self.layer1 = nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.ReLU())
        self.avgpool, self.fc = nn.AdaptiveAvgPool2d((1, 1)), nn.Linear(width, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(torch.flatten(self.avgpool(self.layer1(torch.relu(self.bn1(self.conv1(x))))), 1))


class MobileNet(nn.Module):
    """`features`, and a `classifier` that begins with dropout."""

    def __init__(self, num_classes: int = 3) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.BatchNorm2d(8), nn.ReLU6())
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(8, num_classes))

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.features(x).mean([2, 3]))


class SqueezeNet(nn.Module):
    """A `classifier` that is a convolution: there is no linear layer."""

    def __init__(self, num_classes: int = 3) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU())
        self.classifier = nn.Sequential(nn.Conv2d(8, num_classes, 1), nn.AdaptiveAvgPool2d((1, 1)))

    def forward(self, x: Tensor) -> Tensor:
        return torch.flatten(self.classifier(self.features(x)), 1)


class TorchvisionViT(nn.Module):
    """`conv_proj`, `class_token`, `encoder`, and `heads.head` on the first token."""

    def __init__(self, num_classes: int = 3) -> None:
        super().__init__()
        self.conv_proj, self.class_token = nn.Conv2d(3, 8, 4, stride=4), nn.Parameter(torch.zeros(1, 1, 8))
        self.encoder = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.heads = nn.Sequential(OrderedDict([("head", nn.Linear(8, num_classes))]))

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.conv_proj(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.class_token.expand(len(x), -1, -1), tokens], 1)
        return self.heads(self.encoder(tokens)[:, 0])


class TimmNetwork(nn.Module):
    """`forward_features`, `forward_head`, `head`, and the configuration of its inputs."""

    def __init__(self, num_classes: int = 3) -> None:
        super().__init__()
        self.stem, self.head = nn.Conv2d(3, 8, 3), nn.Linear(8, num_classes)
        size = {"input_size": (3, 8, 8), "crop_pct": 0.8, "crop_mode": "center", "interpolation": "bicubic"}
        self.pretrained_cfg = {**size, "mean": MEAN, "std": STD, "architecture": "small"}

    def forward_features(self, x: Tensor) -> Tensor:
        return torch.relu(self.stem(x))

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        pooled = x.mean((2, 3))
        return pooled if pre_logits else self.head(pooled)

    def forward(self, x: Tensor) -> Tensor:
        return self.forward_head(self.forward_features(x))


KINDS = (TorchvisionResNet, MobileNet, SqueezeNet, TorchvisionViT, TimmNetwork)


def colored(count: int, side: int = 8, seed: int = 0) -> tuple[Tensor, Tensor]:
    """uint8 images (count, 3, side, side) whose class is the channel that is raised a little."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 3
    pixels = torch.randint(0, 160, (count, 3, side, side), generator=generator)
    shift = torch.randint(0, 60, (count, 1, 1), generator=generator)
    pixels[torch.arange(count), 2 - labels] += shift
    return pixels.to(torch.uint8), labels


@cache
def trained_state(kind: type[nn.Module]) -> dict[str, Tensor]:
    """Weights of `kind` after a short training on normalized images."""
    torch.manual_seed(0)
    network, (pixels, labels) = kind(), colored(240, seed=9)
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (MEAN, STD))
    x = (pixels / 255 - mean) / std
    optimizer = torch.optim.Adam(network.parameters(), 0.03)
    for _ in range(60):
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(x), labels).backward()
        optimizer.step()
    return network.state_dict()


def write_photos(folder: Path, count: int = 240, side: int = 8) -> Path:
    """A folder with a subfolder per class."""
    pixels, labels = colored(count, side, seed=3)
    for number, (image, label) in enumerate(zip(pixels, labels)):
        place = folder / CLASSES[label]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image.permute(1, 2, 0).numpy()).save(place / f"{number:03}.png")
    return folder


def write_noise(folder: Path, count: int = 120, side: int = 8) -> Path:
    """Images that are nothing in particular."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(4)
    for number in range(count):
        Image.fromarray(rng.integers(0, 256, (side, side, 3), dtype=np.uint8)).save(folder / f"{number:03}.png")
    return folder
