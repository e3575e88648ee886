"""Predictions of members, batch by batch, joined at the end."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from calibrant import InputError
from calibrant.predictions import Predictions


class Collected:
    """Batches of predictions by member, joined at the end."""

    def __init__(self, members: int) -> None:
        self.logits: list[list[Tensor]] = [[] for _ in range(members)]
        self.features: list[list[Tensor]] = [[] for _ in range(members)]
        self.labels: list[Tensor] = []

    def add(self, k: int, position: int, logits: Tensor, features: Tensor | None, labels: Any) -> None:
        """Take in one batch of member `k`."""
        if logits.dim() != 2:
            raise InputError(f"the module must return logits (B, C), not shape {tuple(logits.shape)}")
        self.logits[k].append(logits.cpu())
        if features is not None:
            self.features[k].append(features.cpu())
        if labels is None:
            return
        labels = torch.as_tensor(labels).cpu()
        if k == 0:
            self.labels.append(labels)
        elif not torch.equal(labels, self.labels[position]):
            raise InputError("loader changes its order from one pass to the next: build it with shuffle=False")

    def _alike(self) -> bool:
        """Whether all members have features, and as many: networks of different kinds may not."""
        return all(self.features) and len({parts[0].shape[1] for parts in self.features}) == 1

    def predictions(self) -> Predictions:
        """Everything, members first; features where the members' are alike."""
        if not self.logits[0]:
            raise InputError("loader is empty")
        return Predictions.from_logits(
            torch.stack([torch.cat(parts) for parts in self.logits]),
            torch.stack([torch.cat(parts) for parts in self.features]) if self._alike() else None,
            torch.cat(self.labels) if self.labels else None,
        )
