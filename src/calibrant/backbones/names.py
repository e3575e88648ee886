"""Backbones by name, as in settings and saved predictors: `wrn-40-2`, `resnet-18`, `cnn-16`, `mlp-128-128`."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Sequence

from torch import nn

from calibrant import InputError
from calibrant.backbones.resnet import resnet18, resnet20
from calibrant.backbones.small import MLP, SmallCNN
from calibrant.backbones.wide_resnet import WideResNet

Shape = Sequence[int]
_Builder = Callable[[list[int], Shape, int], nn.Module]


def _wide(numbers: list[int], shape: Shape, classes: int) -> nn.Module:
    return WideResNet(numbers[0], numbers[1], classes, channels=shape[0])


def _resnet(numbers: list[int], shape: Shape, classes: int) -> nn.Module:
    if numbers[0] == 18:
        return resnet18(classes, width=(numbers[1:] or [64])[0], channels=shape[0])
    return resnet20(classes, depth=numbers[0], width=(numbers[1:] or [16])[0], channels=shape[0])


def _resnet_a(numbers: list[int], shape: Shape, classes: int) -> nn.Module:
    width = (numbers[1:] or [16])[0]
    return resnet20(classes, depth=numbers[0], width=width, channels=shape[0], shortcut="padding")


def _cnn(numbers: list[int], shape: Shape, classes: int) -> nn.Module:
    depth = {"depth": numbers[1]} if len(numbers) > 1 else {}
    return SmallCNN(classes, width=numbers[0], channels=shape[0], **depth)


def _mlp(numbers: list[int], shape: Shape, classes: int) -> nn.Module:
    return MLP(shape, classes, hidden=numbers)


# Family: (how it is written, how many numbers at least and at most, whether it needs images, how it is built).
_FAMILIES: dict[str, tuple[str, range, bool, _Builder]] = {
    "wrn": ("wrn-DEPTH-WIDTH", range(2, 3), True, _wide),
    "resnet": ("resnet-DEPTH[-WIDTH]", range(1, 3), True, _resnet),
    "resneta": ("resneta-DEPTH[-WIDTH]", range(1, 3), True, _resnet_a),
    "cnn": ("cnn-WIDTH[-DEPTH]", range(1, 3), True, _cnn),
    "mlp": ("mlp[-HIDDEN]...", range(0, 99), False, _mlp),
}


def build(name: str, shape: Shape, classes: int) -> nn.Module:
    """The backbone `name` for inputs of `shape` (without the batch) and `classes` classes, freshly initialized.

    >>> type(build("wrn-16-1", (3, 32, 32), 10)).__name__
    'WideResNet'
    """
    family, *rest = name.lower().split("-")
    if family not in _FAMILIES:
        near = difflib.get_close_matches(family, _FAMILIES, n=1, cutoff=0.0)[0]
        raise InputError(f"backbone {name!r} is not known; did you mean {_FAMILIES[near][0]}? There are {_listing()}")
    form, counts, images, builder = _FAMILIES[family]
    if len(rest) not in counts or not all(re.fullmatch(r"[1-9]\d*", part) for part in rest):
        raise InputError(f"backbone {name!r} must be written {form}")
    if images and len(shape) != 3:
        raise InputError(
            f"backbone {name!r} needs images (C, H, W), but the inputs have shape {tuple(shape)}; use mlp-128-128"
        )
    return builder([int(part) for part in rest], shape, classes)


def _listing() -> str:
    return ", ".join(form for form, *_ in _FAMILIES.values())
