"""Splits as lists of indices: seeded, checked, saved as JSON.

A `Splits` cannot be made with an example in two parts, twice in one part or outside the data, neither by drawing nor by
hand nor from a file; so what is trained on is never what is tested on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sized
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from calibrant.data.arrays import DataError
from calibrant.files import read_text, write_bytes

CIFAR_SPLIT = {"train": 45_000, "validation": 5_000}
OUTLIER_SPLIT = {"uncertainty": 6_000, "ood_test": 4_000}
# The published file of the 6,000 / 4,000 split is a bare dictionary under these names.
_ALIASES = {"uncertainty_train": "uncertainty"}


class Subsettable(Protocol):
    """Data of which a part can be taken."""

    def __len__(self) -> int: ...

    def subset(self: Part, indices: Tensor) -> Part:
        """The examples `indices`."""
        ...


Part = TypeVar("Part", bound=Subsettable)


@dataclass(frozen=True, eq=False)
class Splits:
    """Disjoint parts, by name, of a data set of `size` examples; `seed` is that of the draw, if it was drawn.

    >>> splits = Splits.draw(10, {"train": 7, "validation": 3}, seed=0)
    >>> {name: len(splits[name]) for name in splits.parts}
    {'train': 7, 'validation': 3}
    """

    size: int
    parts: Mapping[str, Tensor]
    seed: int | None = None

    def __post_init__(self) -> None:
        if self.size >= 2**63:
            raise DataError(f"a split of {self.size} examples is larger than any data set; draw it again")
        owner: dict[int, str] = {}
        checked = {}
        for name, indices in self.parts.items():
            values = _integers(name, indices)
            for index in values:
                if not 0 <= index < self.size:
                    raise DataError(f"part {name!r} holds index {index}, but the data has {self.size} examples")
                if index in owner:
                    raise DataError(f"index {index} is both in part {owner[index]!r} and in part {name!r}; keep one")
                owner[index] = name
            checked[name] = torch.tensor(values, dtype=torch.long)
        if not checked:
            raise DataError("a split needs at least one part")
        object.__setattr__(self, "parts", checked)

    @classmethod
    def draw(
        cls, n: int, sizes: Mapping[str, int | float | None], seed: int = 0, labels: Tensor | None = None
    ) -> Splits:
        """Parts of `n` examples drawn at random; see `split_indices`."""
        return cls(n, split_indices(n, sizes, seed, labels), seed)

    def __getitem__(self, name: str) -> Tensor:
        if name not in self.parts:
            raise DataError(f"the split has no part {name!r}; it has {', '.join(self.parts)}")
        return self.parts[name]

    def check_size(self, data: Sized) -> None:
        """Refuse data of another size than the split was made for."""
        if len(data) != self.size:
            raise DataError(f"the split is of {self.size} examples, but the data has {len(data)}; draw it again")

    def apply(self, data: Part) -> dict[str, Part]:
        """The parts of `data`, by name; `data` must have the size that the split was made for."""
        self.check_size(data)
        return {name: data.subset(indices) for name, indices in self.parts.items()}

    def to_json(self) -> str:
        """The split as JSON text."""
        parts = {name: indices.tolist() for name, indices in self.parts.items()}
        return json.dumps({"size": self.size, "seed": self.seed, "parts": parts})

    @classmethod
    def from_json(cls, text: str, name: str = "the split") -> Splits:
        """The split in JSON text: our own form, or a bare dictionary of lists that together are 0 .. size - 1."""
        try:
            content = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{name} is not JSON ({error}); write it again") from None
        if not isinstance(content, dict):
            raise DataError(f"{name} must be a JSON object with lists of indices")
        if isinstance(content.get("parts"), dict):
            size, seed, parts = content.get("size"), content.get("seed"), content["parts"]
            if not isinstance(size, int) or not (seed is None or isinstance(seed, int)):
                raise DataError(f"{name} must hold an integer size, and an integer seed or none")
            return cls(size, parts, seed)
        parts = {_ALIASES.get(key, key): value for key, value in content.items()}
        return cls(sum(len(part) for part in parts.values() if isinstance(part, list)), parts)

    def save(self, path: Path | str) -> None:
        """Write the split; the file is either whole or not there."""
        write_bytes(Path(path), (self.to_json() + "\n").encode())

    @classmethod
    def load(cls, path: Path | str) -> Splits:
        """Read a split that was saved, or the published file of one; see `from_json`."""
        try:
            text = read_text(path)
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"split file {path} cannot be read ({error}); check the path") from None
        return cls.from_json(text, f"split file {path}")


def _integers(name: str, indices: Any) -> list[int]:
    values = indices.tolist() if isinstance(indices, (Tensor, np.ndarray)) else indices
    if not isinstance(values, (list, tuple, range)) or not all(type(value) is int for value in values):
        raise DataError(f"part {name!r} must be a list of integer indices")
    if not values:
        raise DataError(f"part {name!r} is empty")
    return list(values)


def _counts(n: int, sizes: Mapping[str, int | float | None]) -> dict[str, int]:
    """`sizes` in examples: integers are counts, floats below 1 fractions of n, one None is what the others leave."""
    counts: dict[str, int] = {}
    for name, size in sizes.items():
        if isinstance(size, float) and not 0 < size < 1:
            raise DataError(f"the size of part {name!r} must be a count or a fraction between 0 and 1, not {size}")
        counts[name] = 0 if size is None else round(size * n) if isinstance(size, float) else int(size)
    open_parts = [name for name, size in sizes.items() if size is None]
    if len(open_parts) > 1:
        raise DataError(f"only one part can take what is left, not {' and '.join(open_parts)}")
    left = n - sum(counts.values())
    if open_parts:
        counts[open_parts[0]] = left
    if left < 0 or any(count < 1 for count in counts.values()):
        wanted = ", ".join(f"{name} {count}" for name, count in counts.items())
        raise DataError(f"{n} examples cannot be split into {wanted}: every part needs one, and all must fit")
    return counts


def split_indices(
    n: int, sizes: Mapping[str, int | float | None], seed: int = 0, labels: Tensor | None = None
) -> dict[str, Tensor]:
    """Disjoint sorted index lists drawn from 0 .. n - 1, one for each entry of `sizes`.

    A size is a count, a fraction of n, or None for what the others leave. With `labels`, every part holds the classes
    in (nearly) the proportions of the whole.

    >>> split_indices(5, {"train": None, "validation": 2}, seed=1)["validation"].shape
    torch.Size([2])
    """
    counts = _counts(n, sizes)
    rng = np.random.default_rng(seed)
    order = rng.permutation(n)
    if labels is not None:
        order = _interleave(order, np.asarray(labels), rng)
    stops = np.cumsum(list(counts.values()))
    return {
        name: torch.from_numpy(np.sort(order[stop - count : stop]))
        for (name, count), stop in zip(counts.items(), stops)
    }


def _interleave(order: Any, labels: Any, rng: np.random.Generator) -> Any:
    """`order` rearranged so that every stretch of it holds the classes in proportion.

    The j-th of the m examples of a class goes to the place (j + u) / m, with one u of [0, 1) for the class.
    """
    if labels.shape != (len(order),):
        raise DataError(f"labels must be one for each of the {len(order)} examples, not of shape {labels.shape}")
    place = np.empty(len(order))
    for label in np.unique(labels):
        members = np.flatnonzero(labels[order] == label)
        place[members] = (np.arange(len(members)) + rng.random()) / len(members)
    return order[np.argsort(place, kind="stable")]
