"""Sources of data, splits, augmentation, batches.

May import: checks, files, slots, adapters.
"""

from calibrant.data.adapt import DatasetData, as_data, loader_batches
from calibrant.data.arrays import ArrayData, DataError, channel_statistics, concatenate
from calibrant.data.augmentation import Augmentation
from calibrant.data.base import Source
from calibrant.data.batches import Batches
from calibrant.data.download import default_folder, download
from calibrant.data.image_transform import ImageTransform
from calibrant.data.sources import (
    SourceInfo,
    Spec,
    augmentation_for,
    columns_of,
    find_source,
    has_parts,
    is_own,
    iter_batches,
    list_sources,
    open_source,
    outlier_parts,
    with_defaults,
)
from calibrant.data.splits import CIFAR_SPLIT, OUTLIER_SPLIT, Splits, split_indices
from calibrant.data.synthetic import Synthesizer, kind_of, synthesize

__all__ = [
    "CIFAR_SPLIT",
    "OUTLIER_SPLIT",
    "ArrayData",
    "Augmentation",
    "Batches",
    "DataError",
    "DatasetData",
    "ImageTransform",
    "Source",
    "SourceInfo",
    "Spec",
    "Splits",
    "Synthesizer",
    "as_data",
    "augmentation_for",
    "channel_statistics",
    "columns_of",
    "concatenate",
    "default_folder",
    "download",
    "find_source",
    "has_parts",
    "is_own",
    "iter_batches",
    "kind_of",
    "list_sources",
    "loader_batches",
    "open_source",
    "outlier_parts",
    "split_indices",
    "synthesize",
    "with_defaults",
]
