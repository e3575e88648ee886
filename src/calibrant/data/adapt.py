"""Whatever a user has, as data: arrays, tensors, pairs, frames, data sets of their own, loaders."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from calibrant.adapters.trees import join_rows, map_tensors, tensors_in
from calibrant.adapters.unpacking import SOLE, class_indices, split_batch
from calibrant.data.arrays import ArrayData, DataError
from calibrant.data.convert import as_inputs, encode_labels
from calibrant.data.images import looks_like_image, pil_to_tensor

IN_MEMORY_BYTES = 2**30
PROBES = 8  # examples read twice, to see whether a data set answers twice alike


def to_input(value: Any) -> Any:
    """One example's input as a tensor: PIL images as uint8 (C, H, W), numbers as they are but float64 as float32.

    Of several inputs by name, each as a tensor.
    """
    if isinstance(value, Mapping):
        return {name: to_input(entry) for name, entry in value.items()}
    if looks_like_image(value):
        return pil_to_tensor(value)
    result = value if isinstance(value, Tensor) else torch.as_tensor(np.asarray(value))
    return result.float() if result.dtype == torch.float64 else result


def unpack(sample: Any) -> tuple[Any, Any]:
    """(input, label or None) of an example or a batch, as `adapters.unpacking` says; triples are refused.

    Of a mapping, the input is the entry with one of the usual names, such as "image", or the only one that is there;
    otherwise all entries, by name.
    """
    if isinstance(sample, (tuple, list)) and not 1 <= len(sample) <= 2:
        raise DataError(f"an example must be an input, or a pair of input and label, not {len(sample)} things")
    inputs, label = split_batch(sample)
    if not isinstance(inputs, Mapping):
        return inputs, label
    if not inputs:
        raise DataError(f"an example has the entries {', '.join(map(str, sample))}, none of which is an input")
    sole = [inputs[name] for name in SOLE if name in inputs]
    return sole[0] if sole else next(iter(inputs.values())) if len(inputs) == 1 else inputs, label


@dataclass(frozen=True, eq=False)
class DatasetData(Dataset[Any]):
    """A map-style data set that is read example by example, because it is large or random; used as `ArrayData` is."""

    dataset: Any
    indices: Sequence[int] | None = field(default=None, repr=False)
    classes: tuple[str, ...] | None = None
    name: str = ""

    def __len__(self) -> int:
        return len(self.dataset) if self.indices is None else len(self.indices)

    def __getitem__(self, index: int) -> Any:
        value, label = unpack(self.dataset[index if self.indices is None else self.indices[index]])
        return to_input(value) if label is None else (to_input(value), torch.as_tensor(label, dtype=torch.long))

    def take(self, indices: Tensor) -> tuple[Any, Tensor | None]:
        """Inputs and labels of the examples `indices` (B,), as one batch."""
        pairs = [pair if isinstance(pair, tuple) else (pair, None) for pair in (self[int(index)] for index in indices)]
        values, labels = zip(*pairs)
        shapes = {tuple(tuple(tensor.shape) for tensor in tensors_in(value)) for value in values}
        if len(shapes) > 1:
            listing = sorted(shape[0] if len(shape) == 1 else shape for shape in shapes)
            raise DataError(f"the data set yields inputs of shapes {listing}; resize or pad them to one")
        stacked = join_rows([map_tensors(value, lambda tensor: tensor[None]) for value in values])
        return stacked, None if labels[0] is None else torch.stack(labels)

    def subset(self, indices: Tensor | Sequence[int]) -> DatasetData:
        """The examples `indices`, in that order."""
        chosen = torch.as_tensor(indices).tolist()
        own = chosen if self.indices is None else [self.indices[index] for index in chosen]
        return DatasetData(self.dataset, own, self.classes, self.name)


def _may_be_kept(data: DatasetData) -> bool:
    """Whether the data fits in memory and its first examples are the same when read again (no random transform)."""
    probes = torch.arange(min(PROBES, len(data)))
    with torch.random.fork_rng(devices=[]):  # the probe leaves the user's generator where it was
        once, again = data.take(probes)[0], data.take(probes)[0]
    alike = all(torch.equal(*pair) for pair in zip(tensors_in(once), tensors_in(again)))
    return alike and sum(part.nbytes for part in tensors_in(once)) * len(data) <= IN_MEMORY_BYTES * len(probes)


def _from_dataset(dataset: Any) -> ArrayData | DatasetData:
    names = getattr(dataset, "classes", None)
    classes = tuple(str(name) for name in names) if isinstance(names, (list, tuple)) and names else None
    lazy = DatasetData(dataset, None, classes, type(dataset).__name__)
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__len__"):
        raise DataError("a data set without a length cannot be split or shuffled; give a DataLoader over it instead")
    if len(lazy) == 0:
        raise DataError("the data set is empty")
    if isinstance(dataset, TensorDataset) and len(dataset.tensors) <= 2:
        return _from_arrays(dataset.tensors[0], dataset.tensors[1] if len(dataset.tensors) == 2 else None)
    if not _may_be_kept(lazy):
        return lazy
    inputs, labels = lazy.take(torch.arange(len(lazy)))
    column = isinstance(inputs, Tensor) and inputs.dim() == 1
    return ArrayData(inputs[:, None] if column else inputs, labels, classes, lazy.name)


def _from_arrays(inputs: Any, labels: Any) -> ArrayData:
    if isinstance(inputs, Mapping):
        named, own = unpack(inputs)
        if isinstance(named, Mapping):
            parts = {name: _from_arrays(entry, None).inputs for name, entry in named.items()}
            return replace(_from_arrays(next(iter(parts.values())), own if labels is None else labels), inputs=parts)
        inputs, labels = named, own if labels is None else labels
    if isinstance(inputs, (list, tuple)) and inputs and looks_like_image(inputs[0]):
        images = [pil_to_tensor(image) for image in inputs]
        if len({image.shape for image in images}) > 1:
            other = next(image for image in images if image.shape != images[0].shape)
            shapes = f"{tuple(images[0].shape)} and {tuple(other.shape)}"
            raise DataError(f"X holds images of different shapes, such as {shapes}; bring them to one size and mode")
        inputs = torch.stack(images)
    if isinstance(inputs, Tensor) and inputs.dim() > 1:
        values = inputs
        if inputs.is_floating_point() and not bool(torch.isfinite(inputs).all()):
            raise DataError("X holds NaN or infinity; remove or fill in such rows")
        values = inputs.float() if inputs.dtype == torch.float64 else inputs
    else:
        try:
            values = as_inputs(np.asarray(inputs), "X")
        except ValueError as error:
            if isinstance(error, DataError):
                raise
            raise DataError("X must be rectangular: its rows have different lengths") from None
    if labels is None:
        return ArrayData(values)
    target, classes = encode_labels(np.asarray(labels.cpu() if isinstance(labels, Tensor) else labels), "y")
    return ArrayData(values, target, classes)


def as_data(X: Any, y: Any = None) -> ArrayData | DatasetData | DataLoader[Any]:
    """`X`, and `y` where X does not hold the labels, as data.

    | given | becomes |
    |---|---|
    | array, tensor, nested list, frame, list of PIL images, with `y` or as a pair `(X, y)` | `ArrayData` |
    | mapping of arrays or tensors, as a tokenizer's, with `y` or with its own labels | `ArrayData`, inputs by name |
    | map-style data set of at most 1 GiB that answers twice alike | `ArrayData`, read once |
    | map-style data set that is larger, or random (a random transform) | `DatasetData`, read when needed |
    | `DataLoader` | itself: its own batches and its own order; see `loader_batches` |

    >>> as_data([[0.5, 1.0], [1.5, 2.0]], ["no", "yes"]).classes
    ('no', 'yes')
    """
    if isinstance(X, tuple) and len(X) == 2 and y is None:
        X, y = X
    if isinstance(X, (ArrayData, DatasetData, DataLoader, Dataset)):
        if y is not None:
            raise DataError(f"y must not be given beside a {type(X).__name__}, which holds its own labels")
        return X if isinstance(X, (ArrayData, DatasetData, DataLoader)) else _from_dataset(X)
    return _from_dataset(X) if y is None and _holds_mappings(X) else _from_arrays(X, y)


def _holds_mappings(X: Any) -> bool:
    """Whether `X` is a sequence of examples that are mappings: a list, or a data set of Hugging Face."""
    if isinstance(X, (Mapping, Tensor, np.ndarray)) or not hasattr(X, "__getitem__") or not hasattr(X, "__len__"):
        return False
    try:
        return isinstance(X[0], Mapping)
    except (LookupError, TypeError, ValueError):
        return False


def loader_batches(loader: Any) -> Iterator[tuple[Any, Tensor | None]]:
    """(inputs, labels or None) of every batch of a user's loader, whatever form its batches have."""
    for batch in loader:
        inputs, labels = unpack(batch)
        if not isinstance(inputs, Tensor) and not (isinstance(inputs, Mapping) and tensors_in(inputs)):
            raise DataError(f"the loader must yield tensors, not {type(inputs).__name__}; convert in its collate_fn")
        yield inputs, None if labels is None else class_indices(labels)
