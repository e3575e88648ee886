"""TinyImageNet (resized), outliers of the ODIN release (Liang et al. 2018), as a source."""

from __future__ import annotations

from pathlib import Path

from calibrant.data import odin
from calibrant.data.arrays import ArrayData
from calibrant.data.download import Archive
from calibrant.data.published import PublishedSource
from calibrant.slots import register


@register("source", "imagenet-resize")
class ImagenetResizeSource(PublishedSource):
    """10,000 images without labels and without parts."""

    archive = Archive(
        "Imagenet_resize.tar.gz",
        "https://www.dropbox.com/s/kp3my3412u5k9rl/Imagenet_resize.tar.gz?dl=1",
        "0f9ff11d45babf2eff5fe12281d1ac31",
    )
    spec = "imagenet-resize:PATH"
    about = "TinyImageNet (resized), 10,000 outliers, 32 x 32"
    obtain = f"put {archive.file} or its folder into PATH, or let it be downloaded"

    @classmethod
    def located(cls, path: Path) -> bool:
        """Whether the folder or the archive is at or in `path`."""
        return odin.locate(path, "Imagenet_resize") is not None

    def read_at(self, path: Path, part: str | None) -> ArrayData:
        """The whole set."""
        return odin.read(path, "Imagenet_resize", "TinyImageNet (resized)")
