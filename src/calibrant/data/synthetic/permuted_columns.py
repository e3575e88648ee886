"""Tables with every column permuted on its own: the marginals are kept, the dependence between columns is lost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from calibrant.data.synthetic.base import DataKind, Synthesizer, uniform
from calibrant.slots import register


@register("synthesizer", "permuted_columns")
@dataclass(frozen=True)
class PermutedColumns(Synthesizer):
    """Permute each column over the examples, independently of the others (Breiman 2001, for unsupervised forests).

    What is drawn has exactly the columns' own distributions, and is distributed as their product. The columns of a
    category that was encoded one-hot are permuted separately too.

    >>> table = torch.tensor([[1.0, 10.0], [2.0, 20.0], [3.0, 30.0]])
    >>> PermutedColumns()(table, torch.Generator().manual_seed(3))
    tensor([[ 1., 20.],
            [ 2., 30.],
            [ 3., 10.]])
    """

    kind: ClassVar[DataKind] = "table"

    def obstacle(self, inputs: Tensor) -> str | None:
        """One column, or one row."""
        return super().obstacle(inputs) or ("it needs at least two examples" if len(inputs) < 2 else None)

    def __call__(self, inputs: Tensor, generator: torch.Generator, labels: Tensor | None = None) -> Tensor:
        """A table (N, D) with permuted columns."""
        order = uniform((inputs.shape[0], inputs.shape[1]), generator, inputs.device).argsort(0)
        return inputs.gather(0, order)
