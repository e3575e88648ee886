"""Labels of any type as class indices, in the way of scikit-learn: `classes_` gives them back."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from calibrant import InputError
from calibrant.adapters.calling import call
from calibrant.adapters.compiled import uncompiled
from calibrant.adapters.outputs import logits_of
from calibrant.adapters.refused import input_errors
from calibrant.adapters.trees import map_tensors
from calibrant.data import ArrayData
from calibrant.training.training_data import Examples, as_examples, class_count


@dataclass(frozen=True)
class Labeling:
    """`classes` (C,): the label of every output of the network."""

    classes: NDArray[Any]

    def indices(self, y: Any) -> NDArray[np.int64]:
        """`y` (N,) as class indices."""
        values = np.asarray(y).reshape(-1)
        index = np.searchsorted(self.classes, values).clip(0, len(self.classes) - 1)
        wrong = self.classes[index] != values
        if wrong.any():
            raise InputError(f"y holds {values[wrong][0]!r}, which is not among the {len(self.classes)} known classes")
        return index.astype(np.int64)

    def encode(self, data: Any) -> Examples:
        """Labeled `data` in any form: a pair is encoded, all else holds class indices already."""
        if isinstance(data, tuple) and len(data) == 2:
            return as_examples(data[0], self.indices(data[1]))
        examples = as_examples(data)
        if isinstance(examples, ArrayData) and examples.labels is None:
            raise InputError("validation must hold labels: give a pair (X, y), a data set or a loader of pairs")
        return examples


def learn_labels(X: Any, y: Any, module: nn.Module | None) -> tuple[Examples, Labeling]:
    """The training examples with labels as class indices, and what they stand for.

    Integers from 0 to the number of the module's outputs stay as they are, so that a class may be absent; any other
    labels are numbered in sorted order. Without a module, one is made with as many outputs as there are classes.
    """
    if y is None:
        examples = as_examples(X)
        if isinstance(examples, ArrayData) and examples.labels is None:
            raise InputError(
                "y is missing: fit requires y to be passed, but the target y is None and X holds no labels"
            )
        count = class_count(examples) if module is None else max(class_count(examples), _outputs(module, examples))
        return examples, Labeling(np.arange(count) if examples.classes is None else np.array(examples.classes))
    values, inputs = class_labels(y), as_examples(X)
    if module is None:
        labeling = Labeling(np.unique(values))
        if len(labeling.classes) < 2:
            raise InputError(f"y holds one class, {labeling.classes[0]!r}; a classifier needs at least two")
        examples = _with_labels(inputs, X, labeling.indices(values))
        return replace(examples, classes=tuple(map(str, labeling.classes))), labeling
    outputs = _outputs(module, inputs)
    if values.dtype.kind in "iu" and values.size and values.min() >= 0 and values.max() < outputs:
        labeling = Labeling(np.arange(outputs))
    else:
        labeling = Labeling(np.unique(values))
    if len(labeling.classes) != outputs:
        raise InputError(f"module has {outputs} outputs, but y holds {len(labeling.classes)} classes")
    return _with_labels(inputs, X, labeling.indices(values)), labeling


def class_labels(y: Any) -> NDArray[Any]:
    """`y` as one label per row, (N,); numbers that are no class labels are refused."""
    values = np.asarray(y)
    if values.ndim == 2 and values.shape[1] == 1:
        from sklearn.utils.validation import column_or_1d

        values = column_or_1d(values, warn=True)  # warns as every classifier does
    if values.ndim != 1 or values.dtype.kind not in "iubfUSO":
        raise InputError(f"y must be one class label per row, not {values.dtype} of shape {values.shape}")
    if values.dtype.kind == "f":
        if not np.isfinite(values).all():
            raise InputError("Input y contains NaN or infinity; y must be one class label per row")
        if (values != np.rint(values)).any():
            raise InputError("Unknown label type: continuous; y must be one class label per row")
    return values


def _with_labels(inputs: Examples, X: Any, index: NDArray[np.int64]) -> Examples:
    if isinstance(inputs, ArrayData) and inputs.labels is None and len(inputs) == len(index):
        return replace(inputs, labels=torch.from_numpy(index))
    return as_examples(X, index)


@torch.no_grad()
def _outputs(module: nn.Module, data: Examples) -> int:
    """How many outputs the module has, from a run on two examples."""
    module = uncompiled(module)
    was_training, inputs = module.training, data.take(torch.arange(min(2, len(data))))[0]
    parameter = next(module.parameters(), None)
    dtype = torch.float32 if parameter is None else parameter.dtype
    inputs = map_tensors(inputs, lambda one: one.to(dtype) if _is_quantity(one) else one)
    try:
        with input_errors(inputs, "X"):
            logits = logits_of(call(module.eval(), inputs), inputs)
    finally:
        module.train(was_training)
    if logits.dim() != 2:
        raise InputError("module must return logits of shape (batch, classes)")
    return int(logits.shape[1])


def _is_quantity(values: torch.Tensor) -> bool:
    return values.dtype == torch.uint8 or values.is_floating_point()
