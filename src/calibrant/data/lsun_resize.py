"""LSUN (resized), outliers of the ODIN release (Liang et al. 2018), as a source."""

from __future__ import annotations

from pathlib import Path

from calibrant.data import odin
from calibrant.data.arrays import ArrayData
from calibrant.data.download import Archive
from calibrant.data.published import PublishedSource
from calibrant.slots import register


@register("source", "lsun-resize")
class LsunResizeSource(PublishedSource):
    """10,000 images without labels and without parts."""

    archive = Archive(
        "LSUN_resize.tar.gz",
        "https://www.dropbox.com/s/moqh2wh8696c3yl/LSUN_resize.tar.gz?dl=1",
        "278b7b31c8cb7e804a1465a8ce03a2dc",
    )
    spec = "lsun-resize:PATH"
    about = "LSUN (resized), 10,000 outliers, 32 x 32"
    obtain = f"put {archive.file} or its folder into PATH, or let it be downloaded"

    @classmethod
    def located(cls, path: Path) -> bool:
        """Whether the folder or the archive is at or in `path`."""
        return odin.locate(path, "LSUN_resize") is not None

    def read_at(self, path: Path, part: str | None) -> ArrayData:
        """The whole set."""
        return odin.read(path, "LSUN_resize", "LSUN (resized)")
