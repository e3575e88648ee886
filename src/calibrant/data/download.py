"""Official archives: where they are published, under which checksum, and how they are fetched."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from pathlib import Path

from calibrant.data.arrays import DataError
from calibrant.slots import lookup, names


@dataclass(frozen=True)
class Archive:
    """One published archive; `md5` is the checksum under which it is known."""

    file: str
    url: str
    md5: str


def default_folder() -> Path:
    """Where archives are kept if no path is given: $CALIBRANT_DATA, else the user's cache folder."""
    if chosen := os.environ.get("CALIBRANT_DATA"):
        return Path(chosen)
    import pooch

    return Path(pooch.os_cache("calibrant"))


def archives() -> dict[str, Archive]:
    """The archives that can be downloaded, by the kind of source."""
    found = {kind: lookup("source", kind).archive for kind in names("source")}
    return {kind: archive for kind, archive in found.items() if archive is not None}


def download(kind: str, folder: Path | str | None = None) -> Path:
    """Fetch the archive of the source `kind` into `folder` (see `default_folder`) and return its path."""
    known = archives()
    if kind not in known:
        raise DataError(f"there is no archive of {kind!r} to download; choose from {', '.join(known)}")
    return fetch_archive(known[kind], default_folder() if folder is None else Path(folder))


def fetch_archive(archive: Archive, target: Path) -> Path:
    """Fetch `archive` into the folder `target` and return its path.

    An archive that is there already and has the right checksum is not fetched again. The file appears under its name
    only when it is whole and its checksum is right.
    """
    import pooch

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
