"""How a network of ours is rebuilt when a predictor is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from calibrant import InputError, backbones


@dataclass(frozen=True)
class Backbone:
    """One of our networks by name, as `calibrant.backbones.build` takes it.

    >>> type(Backbone("cnn-16", (1, 8, 8), 10).build()).__name__
    'SmallCNN'
    """

    name: str
    shape: tuple[int, ...]
    classes: int

    def build(self) -> nn.Module:
        """The network, freshly initialized."""
        return backbones.build(self.name, self.shape, self.classes)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Backbone:
        """What `asdict` made of one, read back from JSON."""
        sizes = [*fields["shape"], fields["classes"]]
        if not all(type(size) is int for size in sizes):
            raise InputError(f"backbone has a shape and classes that are not whole numbers: {sizes}")
        return cls(str(fields["name"]), tuple(sizes[:-1]), sizes[-1])
