"""Official archives: where they are published, under which checksum, and how they are fetched."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from pathlib import Path

from calibrant.data.arrays import DataError


@dataclass(frozen=True)
class Archive:
    """One published archive; `md5` is the checksum under which it is known."""

    file: str
    url: str
    md5: str


_TORONTO = "https://www.cs.toronto.edu/~kriz"
_DROPBOX = "https://www.dropbox.com/s"

ARCHIVES = {
    "cifar10": Archive(
        "cifar-10-python.tar.gz", f"{_TORONTO}/cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a"
    ),
    "cifar100": Archive(
        "cifar-100-python.tar.gz", f"{_TORONTO}/cifar-100-python.tar.gz", "eb9058c3a382ffc7106e4002c42a8d85"
    ),
    "imagenet-resize": Archive(
        "Imagenet_resize.tar.gz",
        f"{_DROPBOX}/kp3my3412u5k9rl/Imagenet_resize.tar.gz?dl=1",
        "0f9ff11d45babf2eff5fe12281d1ac31",
    ),
    "lsun-resize": Archive(
        "LSUN_resize.tar.gz",
        f"{_DROPBOX}/moqh2wh8696c3yl/LSUN_resize.tar.gz?dl=1",
        "278b7b31c8cb7e804a1465a8ce03a2dc",
    ),
}


def default_folder() -> Path:
    """Where archives are kept if no path is given: $CALIBRANT_DATA, else the user's cache folder."""
    if chosen := os.environ.get("CALIBRANT_DATA"):
        return Path(chosen)
    import pooch

    return Path(pooch.os_cache("calibrant"))


def download(kind: str, folder: Path | str | None = None) -> Path:
    """Fetch the archive of `kind` into `folder` (see `default_folder`) and return its path.

    An archive that is there already and has the right checksum is not fetched again. The file appears under its name
    only when it is whole and its checksum is right.
    """
    import pooch

    if kind not in ARCHIVES:
        raise DataError(f"there is no archive of {kind!r} to download; choose from {', '.join(ARCHIVES)}")
    archive = ARCHIVES[kind]
    target = default_folder() if folder is None else Path(folder)
    logging.getLogger("pooch").setLevel(logging.WARNING)
    try:
        path = pooch.retrieve(
            archive.url,
            known_hash=f"md5:{archive.md5}",
            fname=archive.file,
            path=target,
            downloader=pooch.HTTPDownloader(timeout=30),
        )
    except (OSError, ValueError) as error:
        reason = "its checksum is wrong" if isinstance(error, ValueError) else "no connection"
        raise DataError(
            f"{archive.file} could not be downloaded ({reason}); get it from {archive.url} and put it into"
            f" {target.resolve()}"
        ) from None
    return Path(path)
