"""Where data comes from: `kind:path?option=value`, a name for every source, and how to get each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qsl, urlencode

import torch
from torch import Tensor

from calibrant.data.arrays import ArrayData, DataError
from calibrant.data.augmentation import Augmentation
from calibrant.data.base import OWN, Source
from calibrant.data.splits import Splits
from calibrant.slots import lookup, names, options_of

Split = Literal["train", "test", "all"]


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


def source_info(kind: str) -> SourceInfo:
    """What the source `kind` says of itself; its options are the keywords of its constructor."""
    source: type[Source] = lookup("source", kind)
    options = tuple(option for option in options_of("source", kind) if option != "path")
    return SourceInfo(kind, source.spec, source.about, source.obtain, source.parts, options, source.augmentation)


def is_own(kind: str) -> bool:
    """Whether the source `kind` reads a user's own files."""
    return source_info(kind).obtain == OWN


def list_sources() -> tuple[SourceInfo, ...]:
    """All sources there are, those that can be got first, then those for a user's own files.

    >>> [info.kind for info in list_sources()][:3]
    ['cifar10', 'cifar100', 'embedded']
    """
    return tuple(sorted(map(source_info, names("source")), key=lambda info: (info.obtain == OWN, info.kind)))


def find_source(kind: str, folder: Path) -> str | None:
    """Where the published source `kind` is, if `folder` holds it; "always" where nothing has to be got."""
    source: type[Source] = lookup("source", kind)
    return source.where(folder)


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
        """Read `kind:path?option=value&...`; the bare path of a folder, an image or a table file will do."""
        head, _, query = spec.partition("?")
        kind, _, path = head.partition(":")
        if kind not in names("source"):
            kind, path = _kind_of(Path(head)), head
        pairs = parse_qsl(query)
        info = source_info(kind)
        options = dict(pairs)
        for name in options:
            if name not in info.options:
                legal = f"it has {', '.join(info.options)}" if info.options else "it has none"
                raise DataError(f"{kind} has no option {name!r}; {legal}")
        if query and len(pairs) != query.count("&") + 1:
            raise DataError(f"options in {spec!r} must read name=value&name=value")
        if not path and info.obtain == OWN:
            raise DataError(f"{kind} needs a path: write {info.spec}")
        return cls(kind, path, options)

    def source(self) -> Source:
        """The source that it names."""
        made: Source = lookup("source", self.kind)(self.path, **self.options)
        return made


def with_defaults(spec: str, defaults: Mapping[str, str]) -> str:
    """`spec` with those of the options `defaults` that its source knows and that it does not give itself.

    >>> with_defaults("letters?size=8", {"size": "32", "color": "gray", "crop": "0.9"})
    'letters?size=8&color=gray'
    """
    parsed = Spec.parse(spec)
    known = source_info(parsed.kind).options
    added = urlencode({name: v for name, v in defaults.items() if name in known and name not in parsed.options})
    return f"{spec}{'&' if '?' in spec else '?'}{added}" if added else spec


def _kind_of(path: Path) -> str:
    try:
        claims = {kind: lookup("source", kind).claims(path) for kind in names("source")}
    except OSError as error:
        raise DataError(f"{str(path)[:80]!r} is no path that can be read: {error.strerror}") from None
    if not any(claims.values()):
        listing = ", ".join(info.kind for info in list_sources())
        raise DataError(
            f"{str(path)!r} is neither a source ({listing}; another one needs --plugin MODULE)"
            " nor an image, folder, CSV, NPZ or Parquet file"
        )
    return max(claims, key=lambda kind: claims[kind])


def has_parts(spec: str) -> bool:
    """Whether the source has a training and a test part of its own; if not, split it with `Splits`."""
    return Spec.parse(spec).source().has_parts()


def columns_of(spec: str) -> dict[str, Any]:
    """Of a table: which columns are `used`, the `label`, which are `ignored`; nothing for other sources."""
    return dict(Spec.parse(spec).source().columns())


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
    source = parsed.source()
    parted = source.has_parts()
    if split == "test" and not parted:
        raise DataError(f"{spec} has no test part of its own; take split='all', or draw a part with Splits")
    if download:
        source.fetch()
    if not parted:
        return source.read(None)
    return replace(source.read_all(), name=parsed.kind) if split == "all" else source.read(split)


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
        train = open_source(spec, split="train", download=download)
        test = open_source(spec, split="test", download=download)
        return train, test, None
    whole = open_source(spec, split="all", download=download)
    splits = splits or Splits.draw(len(whole), {"uncertainty": uncertainty_size, "ood_test": None}, seed)
    splits.check_size(whole)
    return whole.subset(splits["uncertainty"]), whole.subset(splits["ood_test"]), splits


def augmentation_for(spec: str) -> Augmentation | None:
    """The augmentation that suits the source's images; None where only the user can know."""
    return source_info(Spec.parse(spec).kind).augmentation


def iter_batches(spec: str, batch_rows: int = 256, *, split: Split = "all") -> Iterator[tuple[list[str], Tensor]]:
    """(ids, inputs) of at most `batch_rows` examples at a time, in order.

    Folders, CSV, NPZ and Parquet files are read as they are asked for, so that memory is bounded by one batch; other
    sources are read whole. Ids are paths within the folder, the column `id=` of a table, or row numbers.
    """
    if batch_rows < 1:
        raise DataError(f"batch_rows must be positive, not {batch_rows}")
    source = Spec.parse(spec).source()
    parted = source.has_parts()
    if split == "test" and not parted:
        raise DataError(f"{spec} has no test part of its own; take split='all'")
    source.fetch()
    shape: torch.Size | None = None
    for ids, inputs in source.stream(split if parted and split != "all" else None, batch_rows):
        if shape is not None and inputs.shape[1:] != shape:
            raise DataError(
                f"{spec} holds inputs of shape {tuple(inputs.shape[1:])} after {tuple(shape)}; make them one"
            )
        shape = inputs.shape[1:]
        yield ids, inputs
