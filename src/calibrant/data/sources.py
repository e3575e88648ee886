"""Where data comes from: `kind:path?option=value`, a name for every source, and how to get each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qsl

import torch
from torch import Tensor

from calibrant.data import cifar, embedded, folder, npz, odin, parquet
from calibrant.data.arrays import ArrayData, DataError, concatenate
from calibrant.data.augmentation import Augmentation
from calibrant.data.download import ARCHIVES, default_folder, download
from calibrant.data.images import SUFFIXES, ImageForm, resize
from calibrant.data.splits import Splits

Split = Literal["train", "test", "all"]
_PARTS: tuple[Split, Split] = ("train", "test")
_IMAGE_OPTIONS = ("size", "color")
_PUBLISHED_OPTIONS = ("size",)


@dataclass(frozen=True)
class SourceInfo:
    """What a source is, how its spec is written, how to get it, and the augmentation that suits its images."""

    kind: str
    spec: str
    about: str
    obtain: str
    parts: str
    options: tuple[str, ...] = ()
    augmentation: Augmentation | None = None


_STANDARD = Augmentation(padding=4, flip=True)
_OWN = "yours"
_READERS: dict[str, Any] = {"folder": folder, "npz": npz, "parquet": parquet}

SOURCES = {
    info.kind: info
    for info in (
        SourceInfo(
            "embedded",
            "embedded | embedded:near | embedded:far | embedded:ood",
            "digits (8 x 8); letters, photograph patches, both together as outliers",
            "nothing to do: made from scikit-learn and matplotlib",
            "train and test",
            augmentation=Augmentation(padding=1, flip=False),
        ),
        SourceInfo(
            *("cifar10", "cifar10:PATH", "CIFAR-10, 10 classes, 32 x 32"),
            f"put {ARCHIVES['cifar10'].file} or its folder into PATH, or let it be downloaded (170 MB)",
            "train and test",
            options=_PUBLISHED_OPTIONS,
            augmentation=_STANDARD,
        ),
        SourceInfo(
            *("cifar100", "cifar100:PATH", "CIFAR-100, 100 classes, 32 x 32"),
            f"put {ARCHIVES['cifar100'].file} or its folder into PATH, or let it be downloaded (169 MB)",
            "train and test",
            options=_PUBLISHED_OPTIONS,
            augmentation=_STANDARD,
        ),
        SourceInfo(
            *("imagenet-resize", "imagenet-resize:PATH", "TinyImageNet (resized), 10,000 outliers, 32 x 32"),
            f"put {ARCHIVES['imagenet-resize'].file} or its folder into PATH, or let it be downloaded",
            "none",
            options=_PUBLISHED_OPTIONS,
            augmentation=_STANDARD,
        ),
        SourceInfo(
            *("lsun-resize", "lsun-resize:PATH", "LSUN (resized), 10,000 outliers, 32 x 32"),
            f"put {ARCHIVES['lsun-resize'].file} or its folder into PATH, or let it be downloaded",
            "none",
            options=_PUBLISHED_OPTIONS,
            augmentation=_STANDARD,
        ),
        SourceInfo(
            *("folder", "folder:PATH?size=32", "images, a subfolder per class or none", _OWN),
            "in subfolders train and test, if both are there",
            options=_IMAGE_OPTIONS,
        ),
        SourceInfo(
            *("npz", "npz:FILE", "arrays inputs and labels", _OWN),
            "as x_train and x_test, if both are there",
            options=("inputs", "labels", "layout"),
        ),
        SourceInfo(
            *("parquet", "parquet:FILE?label=COLUMN", "image bytes or feature columns, and labels", _OWN),
            "as files train*.parquet and test*.parquet in a folder, if both are there",
            options=("label", "image", "features", "id", *_IMAGE_OPTIONS),
        ),
    )
}


def list_sources() -> tuple[SourceInfo, ...]:
    """All sources there are.

    >>> [info.kind for info in list_sources()][:3]
    ['embedded', 'cifar10', 'cifar100']
    """
    return tuple(SOURCES.values())


@dataclass(frozen=True)
class Spec:
    """A parsed spec: kind, path (empty where none is given) and options.

    >>> Spec.parse("folder:/data/cats?size=32&color=gray")
    Spec(kind='folder', path='/data/cats', options={'size': '32', 'color': 'gray'})
    """

    kind: str
    path: str
    options: dict[str, str]

    @classmethod
    def parse(cls, spec: str) -> Spec:
        """Read `kind:path?option=value&...`; a bare path of an NPZ or Parquet file, an image or a folder will do."""
        head, _, query = spec.partition("?")
        kind, _, path = head.partition(":")
        if kind not in SOURCES:
            kind, path = _kind_of(Path(head)), head
        pairs = parse_qsl(query)
        info = SOURCES[kind]
        options = dict(pairs)
        for name in options:
            if name not in info.options:
                legal = f"it has {', '.join(info.options)}" if info.options else "it has none"
                raise DataError(f"{kind} has no option {name!r}; {legal}")
        if query and len(pairs) != query.count("&") + 1:
            raise DataError(f"options in {spec!r} must read name=value&name=value")
        if not path and info.obtain == _OWN:
            raise DataError(f"{kind} needs a path: write {info.spec}")
        return cls(kind, path, options)


def _kind_of(path: Path) -> str:
    suffix = path.suffix.lower()
    if suffix in (".npz", ".parquet"):
        return suffix[1:]
    if path.exists() and (path.is_dir() or suffix in SUFFIXES):
        return "parquet" if path.is_dir() and any(path.glob("*.parquet")) else "folder"
    raise DataError(
        f"{str(path)!r} is neither a source ({', '.join(SOURCES)}) nor an image, folder, NPZ or Parquet file"
    )


def _fetched(spec: Spec, locate: Callable[[Path], Any], may_download: bool) -> Path:
    """Where a published set lies: the path of the spec, after a download into it if nothing is there."""
    path = Path(spec.path).expanduser() if spec.path else default_folder()
    if spec.path and not path.exists():
        raise DataError(f"{path} does not exist; create the folder, or give the one that holds {spec.kind}")
    if locate(path) is None and may_download and not path.is_file():
        download(spec.kind, path)
    return path


def has_parts(spec: str) -> bool:
    """Whether the source has a training and a test part of its own; if not, split it with `Splits`."""
    parsed = Spec.parse(spec)
    if parsed.kind in ("embedded", "cifar10", "cifar100"):
        return True
    if parsed.kind in odin.FOLDERS:
        return False
    return bool(_READERS[parsed.kind].has_parts(Path(parsed.path).expanduser()))


def _read(spec: Spec, part: str | None, may_download: bool) -> ArrayData:
    """One part, or (None) the whole of a source that has no parts."""
    if spec.kind == "embedded":
        return embedded.read(spec.path, part or "train")
    if spec.kind in ("cifar10", "cifar100"):
        classes = int(spec.kind.removeprefix("cifar"))
        where = _fetched(spec, lambda at: cifar.locate(at, classes), may_download)
        return _resized(cifar.read(where, part or "train", classes), spec)
    if spec.kind in odin.FOLDERS:
        where = _fetched(spec, lambda at: odin.locate(at, spec.kind), may_download)
        return _resized(odin.read(where, spec.kind), spec)
    options = {name: value for name, value in spec.options.items() if name != "id"}
    data: ArrayData = _READERS[spec.kind].read(Path(spec.path).expanduser(), part, **options)
    return data


def _resized(data: ArrayData, spec: Spec) -> ArrayData:
    """`data` at the size that the spec asks for."""
    form = ImageForm.parse(**spec.options)
    return data if form.size is None else replace(data, inputs=resize(data.inputs, form.size))


def open_source(spec: str, *, split: Split = "train", download: bool = True) -> ArrayData:
    """The data that `spec` names, in memory.

    `split` is "train", "test" or "all". A source without parts of its own is given whole for "train" and "all", and
    refuses "test". With `download`, a published archive that is not at its path is fetched into it.

    >>> open_source("embedded", split="test").inputs.shape
    torch.Size([500, 1, 8, 8])
    """
    if split not in ("train", "test", "all"):
        raise DataError(f"split must be train, test or all, not {split!r}")
    parsed = Spec.parse(spec)
    if not has_parts(spec):
        if split == "test":
            raise DataError(f"{spec} has no test part of its own; take split='all', or draw a part with Splits")
        return _read(parsed, None, download)
    if split == "all":
        return concatenate([_read(parsed, part, download) for part in _PARTS], parsed.kind)
    return _read(parsed, split, download)


def outlier_parts(
    spec: str,
    *,
    uncertainty_size: int | float = 0.6,
    splits: Splits | None = None,
    seed: int = 0,
    download: bool = True,
) -> tuple[ArrayData, ArrayData, Splits | None]:
    """(D_u, OOD test set, their split) from one source of outliers.

    A source with parts of its own gives those, and the split is None. Any other is split by `splits`, which must have
    the parts "uncertainty" and "ood_test" (the published split, say), or else at random, `uncertainty_size` (a count
    or a fraction) for D_u and the rest for the test.

    >>> uncertainty, test, splits = outlier_parts("embedded:near")
    >>> len(uncertainty), len(test), splits
    (1000, 1000, None)
    """
    if has_parts(spec):
        if splits is not None:
            raise DataError(f"{spec} has a training and a test part of its own; leave splits out")
        train, test = (open_source(spec, split=part, download=download) for part in _PARTS)
        return train, test, None
    whole = open_source(spec, split="all", download=download)
    splits = splits or Splits.draw(len(whole), {"uncertainty": uncertainty_size, "ood_test": None}, seed)
    splits.check_size(whole)
    return whole.subset(splits["uncertainty"]), whole.subset(splits["ood_test"]), splits


def augmentation_for(spec: str) -> Augmentation | None:
    """The augmentation that suits the source's images; None where only the user can know."""
    return SOURCES[Spec.parse(spec).kind].augmentation


def iter_batches(spec: str, batch_rows: int = 256, *, split: Split = "all") -> Iterator[tuple[list[str], Tensor]]:
    """(ids, inputs) of at most `batch_rows` examples at a time, in order.

    Folders, NPZ and Parquet files are read as they are asked for, so that memory is bounded by one batch; other sources
    are read whole. Ids are paths within the folder, the column `id=` of a Parquet file, or row numbers.
    """
    if batch_rows < 1:
        raise DataError(f"batch_rows must be positive, not {batch_rows}")
    parsed = Spec.parse(spec)
    shape: torch.Size | None = None
    for ids, inputs in _stream(parsed, spec, batch_rows, split):
        if shape is not None and inputs.shape[1:] != shape:
            raise DataError(
                f"{spec} holds inputs of shape {tuple(inputs.shape[1:])} after {tuple(shape)}; make them one"
            )
        shape = inputs.shape[1:]
        yield ids, inputs


def _stream(parsed: Spec, spec: str, batch_rows: int, split: Split) -> Iterator[tuple[list[str], Tensor]]:
    reader = _READERS.get(parsed.kind)
    if reader is None:
        data = open_source(spec, split=split)
        for start in range(0, len(data), batch_rows):
            inputs = data.inputs[start : start + batch_rows]
            yield [str(start + index) for index in range(len(inputs))], inputs
        return
    path = Path(parsed.path).expanduser()
    if split == "test" and not reader.has_parts(path):
        raise DataError(f"{spec} has no test part of its own; take split='all'")
    part = split if split != "all" and reader.has_parts(path) else None
    options = {name: value for name, value in parsed.options.items() if name != "labels"}
    yield from reader.stream(path, part, batch_rows, **options)
