"""The networks of the paper and small ones for small data; any `nn.Module` can stand in their place.

May import: files, slots.
"""

from calibrant.backbones.cost import Cost, cost
from calibrant.backbones.factory import build_module
from calibrant.backbones.names import build
from calibrant.backbones.resnet import ResNet, resnet18, resnet20
from calibrant.backbones.small import MLP, SmallCNN
from calibrant.backbones.weights import load_weights
from calibrant.backbones.wide_resnet import WideResNet

__all__ = [
    "MLP",
    "Cost",
    "ResNet",
    "SmallCNN",
    "WideResNet",
    "build",
    "build_module",
    "cost",
    "load_weights",
    "resnet18",
    "resnet20",
]
