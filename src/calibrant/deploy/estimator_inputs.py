"""What the estimator is given, as arrays of numbers: frames, sparse matrices, arrays; checked as scikit-learn does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from calibrant import InputError
from calibrant.data.images import looks_like_image
from calibrant.deploy.frame_encoder import FrameEncoder, as_frame, is_frame

MOST_BYTES = 2**32
"""Of a sparse matrix as a dense array of float32."""


def take_in(estimator: Any, X: Any, name: str = "X", *, reset: bool = False) -> Any:
    """`X` as data can be made of it; with `reset`, as in `fit`, the names and the number of its columns are learned.

    Otherwise they are compared with those of `fit`. Tensors, data sets, loaders and images are taken as they are.
    `name` is the argument that it was given as.
    """
    if isinstance(X, tuple) and len(X) == 2 and not reset:
        return take_in(estimator, X[0], name), X[1]
    if reset:
        estimator.encoder_ = None
        vars(estimator).pop("feature_names_in_", None)
    if _as_it_is(X):
        return X
    if is_frame(X) and (reset or estimator.encoder_ is not None):
        return _encoded(estimator, as_frame(X), name, reset)
    return _checked(estimator, X, name, reset)


def _as_it_is(X: Any) -> bool:
    if isinstance(X, (list, tuple)):
        return len(X) > 0 and looks_like_image(X[0])
    by_name = isinstance(X, Mapping) and not hasattr(X, "toarray")  # one kind of sparse matrix is a dictionary
    return by_name or isinstance(X, (Tensor, Dataset, DataLoader))


def _encoded(estimator: Any, frame: Any, name: str, reset: bool) -> Any:
    from sklearn.utils.validation import validate_data

    if name == "X":
        validate_data(estimator, frame, reset=reset, skip_check_array=True)
    if reset:
        estimator.encoder_ = FrameEncoder.learn(frame)
    return estimator.encoder_(frame, name)


def _checked(estimator: Any, X: Any, name: str, reset: bool) -> Any:
    """An array or sparse matrix as an array."""
    from sklearn.utils.validation import check_array, validate_data

    encoder = estimator.encoder_
    if encoder is not None and any(values is not None for values in encoder.columns.values()):
        raise InputError(f"{name} must be a frame with the columns {', '.join(encoder.columns)}, as X was in fit")
    kinds: dict[str, Any] = {"accept_sparse": "csr", "allow_nd": True, "dtype": "numeric"}
    shape = X.shape if hasattr(X, "shape") else np.asarray(X).shape
    if name == "X" and len(shape) <= 2:  # beyond that, the second dimension need not be the features
        found: Any = validate_data(estimator, X, reset=reset, **kinds)
    else:
        found = check_array(X, input_name=name, **kinds)
    if hasattr(found, "toarray"):
        found = _dense(found)
    by_name = not isinstance(estimator.module, torch.nn.Module)
    return found.astype(np.float32) if found.ndim == 2 and (by_name or encoder is not None) else found


def _dense(X: Any) -> Any:
    size = 4 * X.shape[0] * X.shape[1]
    if size > MOST_BYTES:
        raise InputError(
            f"X is sparse and would take {size / 2**30:.0f} GiB as a dense array, more than {MOST_BYTES // 2**30};"
            " reduce its columns first, for example with sklearn.decomposition.TruncatedSVD"
        )
    return X.astype(np.float32).toarray()


def loss_weights(sample_weight: Any, class_weight: Any, y: Any) -> Tensor | None:
    """The weight of every example in the loss, (N,), as scikit-learn understands both arguments; None: all are 1."""
    if sample_weight is None and class_weight is None:
        return None
    from sklearn.utils.class_weight import compute_sample_weight
    from sklearn.utils.validation import _check_sample_weight

    weights = _check_sample_weight(sample_weight, y, dtype=np.float64, ensure_non_negative=True)
    if class_weight is not None:
        weights = weights * compute_sample_weight(class_weight, y)
    return torch.from_numpy(weights)


def scaled(weights: Tensor) -> Tensor:
    """`weights` with the mean 1, so that rate and regularizers mean what they mean without weights."""
    if not float(weights.sum()) > 0:
        raise InputError("sample_weight is 0 for all training examples; give some of them a weight")
    return (weights / weights.mean()).float()
