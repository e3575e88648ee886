"""Minibatches without a state: batch b of epoch e is a function of (seed, e, b) and nothing else.

A run that was killed goes on at any batch of any epoch with the very examples that it would have seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from calibrant.data.arrays import DataError


class Indexable(Protocol):
    """Data from which a batch can be taken."""

    def __len__(self) -> int: ...

    def take(self, indices: Tensor) -> tuple[Any, Tensor | None]:
        """Inputs and labels of the examples `indices`."""
        ...


class Batches:
    """Minibatches of `data`: `batch_size` examples a rank and step.

    - Without `replacement`, an epoch goes once through a fresh permutation, or through the first `samples` of it (9,000
      of the training data an epoch, say). With `replacement`, every batch is drawn from all of `data`, and `samples`
      only sets how many there are.
    - Unless `shuffle`, examples come in order.
    - With several ranks, each takes every `world_size`-th example of the epoch, so that no two ranks share one. When
      shuffled, the last `samples % world_size` are left out, and all ranks have equally many batches of equal sizes; in
      order, nothing is left out, and ranks may differ by one example.

    >>> from calibrant.data import ArrayData
    >>> batches = Batches(ArrayData(torch.arange(10.0)[:, None]), 4, seed=0)
    >>> [len(inputs) for inputs, _ in batches.epoch(0)], len(batches)
    ([4, 4, 2], 3)
    >>> bool((next(batches.epoch(3, start=2))[0] == list(batches.epoch(3))[2][0]).all())
    True
    """

    def __init__(
        self,
        data: Indexable,
        batch_size: int,
        *,
        seed: int = 0,
        shuffle: bool = True,
        drop_last: bool = False,
        replacement: bool = False,
        samples: int | None = None,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        if batch_size < 1:
            raise DataError(f"batch_size must be positive, not {batch_size}")
        if not 0 <= rank < world_size:
            raise DataError(f"rank must be from 0 to world_size - 1, but it is {rank} of {world_size}")
        if replacement and not shuffle:
            raise DataError("replacement draws at random, so it needs shuffle=True")
        self.data = data
        self.batch_size, self.seed, self.shuffle, self.drop_last = batch_size, seed, shuffle, drop_last
        self.replacement, self.rank, self.world_size = replacement, rank, world_size
        self.samples = len(data) if samples is None else samples
        if self.samples < 1 or (self.samples > len(data) and not replacement):
            raise DataError(f"samples must be from 1 to the {len(data)} examples there are, not {self.samples}")
        whole, rest = divmod(self.samples, world_size)
        self._share = whole if shuffle else whole + (rank < rest)
        if len(self) == 0:
            raise DataError(
                f"{self.samples} examples on {world_size} ranks do not fill one batch of {batch_size};"
                " use a smaller batch_size, or drop_last=False"
            )

    def __len__(self) -> int:
        """The number of batches of an epoch on this rank."""
        return self._share // self.batch_size if self.drop_last else -(-self._share // self.batch_size)

    def indices(self, epoch: int, start: int = 0) -> Iterator[Tensor]:
        """The examples of each batch of `epoch`, from batch `start` on."""
        if not 0 <= start <= len(self):
            raise DataError(f"start must be from 0 to the {len(self)} batches of an epoch, not {start}")
        order = None if self.replacement else self._order(epoch)
        for batch in range(start, len(self)):
            first = batch * self.batch_size
            count = min(self.batch_size, self._share - first)
            if order is not None:
                yield order[first : first + count]
            else:
                rng = np.random.default_rng([self.seed, epoch, batch, self.rank])
                yield torch.from_numpy(rng.integers(len(self.data), size=count))

    def epoch(self, epoch: int, start: int = 0) -> Iterator[tuple[Any, Tensor | None]]:
        """(inputs, labels) of each batch of `epoch`, from batch `start` on; labels are None where there are none."""
        return (self.data.take(indices) for indices in self.indices(epoch, start))

    def _order(self, epoch: int) -> Tensor:
        """The examples of this rank in the order of `epoch`."""
        if not self.shuffle:
            return torch.arange(self.rank, self.samples, self.world_size)
        order = np.random.default_rng([self.seed, epoch]).permutation(len(self.data))[: self.samples]
        return torch.from_numpy(order[self.rank :: self.world_size][: self._share].copy())
