"""Published image sets: looked for in a folder, downloaded into it where they are missing, resized where asked."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from calibrant.data.arrays import ArrayData, DataError
from calibrant.data.augmentation import Augmentation
from calibrant.data.base import Source
from calibrant.data.download import Archive, default_folder, fetch_archive
from calibrant.data.images import ImageForm, resize


class PublishedSource(Source):
    """An image set with an archive; the path is a folder that holds it (by default `default_folder()`), or itself."""

    archive: ClassVar[Archive]
    augmentation = Augmentation(padding=4, flip=True)

    def __init__(self, path: str, *, size: str | None = None) -> None:
        self.form = ImageForm.parse(size)
        self.given = path

    @classmethod
    @abstractmethod
    def located(cls, path: Path) -> bool:
        """Whether the set is at or in `path`."""

    @abstractmethod
    def read_at(self, path: Path, part: str | None) -> ArrayData:
        """One part of the set at `path`, at its own size; None for a set without parts."""

    @classmethod
    def where(cls, folder: Path) -> str | None:
        """`folder`, if the set is in it."""
        return str(folder) if cls.located(folder) else None

    def _checked(self) -> Path:
        path = Path(self.given).expanduser() if self.given else default_folder()
        if self.given and not path.exists():
            kind = self.spec.partition(":")[0]
            raise DataError(f"{path} does not exist; create the folder, or give the one that holds {kind}")
        return path

    def fetch(self) -> None:
        """Download the archive into the path, if nothing is there."""
        path = self._checked()
        if not path.is_file() and not self.located(path):
            fetch_archive(self.archive, path)

    def read(self, part: str | None) -> ArrayData:
        """One part, at the size that was asked for."""
        data = self.read_at(self._checked(), part)
        return data if self.form.size is None else replace(data, inputs=resize(data.inputs, self.form.size))
