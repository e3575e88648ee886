"""The contract of a data source: what it is, how its spec is written, and how its data is read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from calibrant.data.arrays import ArrayData, concatenate
from calibrant.data.augmentation import Augmentation
from calibrant.data.download import Archive

PARTS = ("train", "test")
OWN = "yours"


class Source(ABC):
    """Data that a spec `kind:path?option=value` names; one is made per spec, as `Kind(path, option="value")`.

    A subclass is registered by `@register("source", KIND)`. Its options are the keywords of its constructor; their
    values come as text. It must have `spec`, `about` and `read`; everything else has a default.
    """

    spec: ClassVar[str]
    """How its spec is written, with capitals for what a user fills in: `folder:PATH?size=32`."""
    about: ClassVar[str]
    """What it is, in one line."""
    obtain: ClassVar[str] = OWN
    """How to get it; where it is the user's own ("yours"), a spec needs a path."""
    parts: ClassVar[str] = "none"
    """Which parts of its own it has, in words."""
    augmentation: ClassVar[Augmentation | None] = None
    """The augmentation that suits its images; None where only the user can know."""
    archive: ClassVar[Archive | None] = None
    """The archive that `calibrant data --fetch` downloads, of a published set."""

    def __init__(self, path: str) -> None:
        self.path = Path(path).expanduser()

    @classmethod
    def claims(cls, path: Path) -> int:
        """Whether a bare path, without a kind before it, is for this source: 0 no, 1 if no other claims it, 2 yes."""
        return 0

    @classmethod
    def where(cls, folder: Path) -> str | None:
        """Where the data of a published set is, if `folder` holds it; "always" where nothing has to be got."""
        return None

    def fetch(self) -> None:
        """Download what is not there; called before `read` and `stream` where downloads are allowed."""
        return

    def has_parts(self) -> bool:
        """Whether there is a training and a test part; else the source is read whole."""
        return False

    @abstractmethod
    def read(self, part: str | None) -> ArrayData:
        """One part, "train" or "test", in memory; None for the whole of a source that has no parts."""

    def read_all(self) -> ArrayData:
        """Everything in memory: both parts, if there are parts."""
        if not self.has_parts():
            return self.read(None)
        return concatenate([self.read(part) for part in PARTS])

    def stream(self, part: str | None, batch_rows: int) -> Iterator[tuple[list[str], Tensor]]:
        """(ids, inputs) of at most `batch_rows` examples at a time, of one part or (None) of everything.

        By default everything is read first and ids are row numbers; a source of large files overrides it.
        """
        data = self.read_all() if part is None else self.read(part)
        for start, inputs in zip(range(0, len(data), batch_rows), torch.split(data.inputs, batch_rows)):
            yield [str(start + index) for index in range(len(inputs))], inputs

    def columns(self) -> Mapping[str, Any]:
        """Of a table: which columns are `used`, the `label`, and which are `ignored`; shown by `calibrant data`."""
        return {}
