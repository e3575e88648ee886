"""What several kernels take."""

from __future__ import annotations

import torch
from torch import Tensor

from calibrant.posteriors.native import parallel


def prior_arguments(mean: Tensor | float) -> tuple[int | None, float]:
    """The prior's mean as the kernels take it: a pointer to many, or none and a number."""
    return (mean.data_ptr(), 0.0) if isinstance(mean, Tensor) else (None, mean)


def thread_arguments() -> tuple[int, int | None]:
    """As many threads as PyTorch uses, and what runs them."""
    return torch.get_num_threads(), parallel()
