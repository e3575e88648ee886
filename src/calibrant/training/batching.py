"""The batches of a training stage: ID examples, the regularizer's own, and D_u, augmented, on this rank's device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor

from calibrant import InputError
from calibrant.adapters.trees import move_to
from calibrant.config.groups import AugmentationSettings
from calibrant.data import ArrayData, Augmentation, Batches, split_indices
from calibrant.training.randomness import derive
from calibrant.training.step import Batch
from calibrant.training.training_data import Examples


class BatchSource:
    """`source(epoch, start)` yields the batches of an epoch from a step on: a function of (seed, epoch, step, rank).

    Batch sizes are those of all ranks together; each rank gets its equal part. An epoch takes `samples` of `train`
    (all if None) without replacement. `regularizer` and `outliers` are (examples, batch size), drawn with replacement.
    `weights` (N,) are those of `train` in the loss. A last batch of a single example is left out, because BatchNorm
    cannot train on it.
    """

    def __init__(
        self,
        train: Examples,
        batch_size: int,
        fabric: Fabric,
        *,
        seed: int,
        samples: int | None = None,
        regularizer: tuple[Examples, int] | None = None,
        outliers: tuple[Examples, int] | None = None,
        augmentation: AugmentationSettings | None = None,
        weights: Tensor | None = None,
    ) -> None:
        self.fabric, self.seed = fabric, seed
        self.samples = min(samples or len(train), len(train))
        ranks: dict[str, Any] = {"rank": fabric.global_rank, "world_size": fabric.world_size}
        own_size, share = _per_rank(batch_size, fabric), self.samples // fabric.world_size
        order: dict[str, Any] = {
            "seed": derive(seed, "batches"),
            "samples": self.samples,
            "drop_last": share > own_size and share % own_size == 1,
            **ranks,
        }
        self.train = Batches(train, own_size, **order)
        self.weights = None if weights is None else Batches(ArrayData(weights[:, None]), own_size, **order)
        self.regularizer = self._with_replacement(regularizer, "regularizer", ranks)
        self.outliers = self._with_replacement(outliers, "outliers", ranks)
        self.augment = None
        if augmentation is not None and (augmentation.padding or augmentation.flip):
            self.augment = Augmentation(augmentation.padding, augmentation.flip)

    def __len__(self) -> int:
        return len(self.train)

    def __call__(self, epoch: int, start: int) -> Iterator[Batch]:
        """The batches of `epoch` from step `start` on."""
        own = self.train.epoch(epoch, start)
        regularizer = self.regularizer.epoch(epoch, start) if self.regularizer else None
        outliers = self.outliers.epoch(epoch, start) if self.outliers else None
        weights = self.weights.epoch(epoch, start) if self.weights else None
        for step, (inputs, labels) in enumerate(own, start):
            if labels is None:
                raise InputError("the training data has no labels")
            ready = self._preparation(epoch, step)
            extra, extra_labels = next(regularizer) if regularizer else (None, None)
            yield Batch(
                ready(inputs),
                self._move(labels),
                None if extra is None else ready(extra),
                None if extra_labels is None else self._move(extra_labels),
                ready(next(outliers)[0]) if outliers else None,
                self._move(next(weights)[0][:, 0]) if weights else None,
            )

    def _with_replacement(
        self, part: tuple[Examples, int] | None, purpose: str, ranks: dict[str, Any]
    ) -> Batches | None:
        if part is None:
            return None
        data, batch_size = part
        size = _per_rank(batch_size, self.fabric)
        samples = len(self) * size * self.fabric.world_size
        return Batches(data, size, seed=derive(self.seed, purpose), replacement=True, samples=samples, **ranks)

    def _preparation(self, epoch: int, step: int) -> Callable[[Any], Any]:
        """What is done to the inputs of a step: to the device, and augmented if they are images."""
        if self.augment is None:
            return self._move
        augment, seed = self.augment, derive(self.seed, "augmentation", epoch, step, self.fabric.global_rank)
        generator = torch.Generator().manual_seed(seed)

        def prepare(inputs: Any) -> Any:
            moved = self._move(inputs)
            return augment(moved, generator) if isinstance(moved, Tensor) and moved.dim() == 4 else moved

        return prepare

    def _move(self, values: Any) -> Any:
        return move_to(values, self.fabric.device)


def _per_rank(batch_size: int, fabric: Fabric) -> int:
    if batch_size % fabric.world_size:
        raise InputError(f"batch_size {batch_size} must be a multiple of the {fabric.world_size} processes")
    return batch_size // fabric.world_size


def disjoint_part(train: Examples, share: float, seed: int) -> tuple[Examples, Examples | None]:
    """`train` without, and with only, the `share` that is kept for the regularizer; (train, None) if share is 0."""
    if share == 0:
        return train, None
    parts = split_indices(len(train), {"regularizer": share, "train": None}, derive(seed, "regularizer part") >> 1)
    return train.subset(parts["train"]), train.subset(parts["regularizer"])
