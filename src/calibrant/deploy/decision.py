"""What a predictor says about a batch of inputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Decision:
    """Decisions on B inputs.

    Attributes:
        label: (B,) class with the largest probability, whether the answer is accepted or not.
        confidence: (B,) that probability.
        probabilities: (B, C) mean over members.
        accepted: (B,) bool, whether the answer should be used; False means to abstain.
        outlier_scores: (B, S) mean over members, larger = more outlying; S = 0 without scores.
        ood_score: (B,) larger = more outlying; 1 - confidence unless another was chosen.
        gate: (B,) what is compared with the threshold: the selector's output, or the confidence without a selector.
        members: (B,) how many members were evaluated.
        classes: names of the classes, if they have any.
        score_names: names of the S outlier scores.
    """

    label: Tensor
    confidence: Tensor
    probabilities: Tensor
    accepted: Tensor
    outlier_scores: Tensor
    ood_score: Tensor
    gate: Tensor
    members: Tensor
    classes: tuple[str, ...] | None = None
    score_names: tuple[str, ...] = ()

    def __len__(self) -> int:
        return self.label.shape[0]

    def __getitem__(self, index: int | slice | Tensor | Sequence[int]) -> Decision:
        """The decisions at `index`; an integer gives a batch of one."""
        if isinstance(index, int):
            if not -len(self) <= index < len(self):
                raise IndexError(f"index {index} is out of range for {len(self)} decisions")
            index = slice(index, index + 1 or None)
        return self._with({name: value[index] for name, value in self._tensors().items()})

    def __iter__(self) -> Iterator[Decision]:
        return (self[position] for position in range(len(self)))

    @classmethod
    def concatenate(cls, parts: Sequence[Decision]) -> Decision:
        """One decision of several, in their order."""
        if not parts:
            raise ValueError("parts is empty")
        columns = [part._tensors() for part in parts]
        return parts[0]._with({name: torch.cat([column[name] for column in columns]) for name in columns[0]})

    def to(self, device: torch.device | str) -> Decision:
        """The same on `device`."""
        return self._with({name: value.to(device) for name, value in self._tensors().items()})

    @property
    def coverage(self) -> float:
        """The fraction of inputs that are accepted."""
        return float(self.accepted.float().mean())

    @property
    def mean_members(self) -> float:
        """The average number of members evaluated for an input."""
        return float(self.members.float().mean())

    def table(self, *, probabilities: bool = False) -> dict[str, list[Any]]:
        """Columns of plain Python values, for JSON, pandas or Arrow; class names in place of indices where known.

        With `probabilities` there is a column `p_CLASS` for every class.
        """
        names = self.classes or tuple(str(index) for index in range(self.probabilities.shape[1]))
        labels = self.label.tolist()
        columns: dict[str, list[Any]] = {
            "predicted": [names[label] for label in labels] if self.classes else labels,
            "confidence": self.confidence.tolist(),
            "accepted": self.accepted.tolist(),
            "ood_score": self.ood_score.tolist(),
            "gate": self.gate.tolist(),
            "members": self.members.tolist(),
        }
        for name, column in zip(self.score_names, self.outlier_scores.unbind(1)):
            columns[f"outlier_{name}"] = column.tolist()
        if probabilities:
            for name, column in zip(names, self.probabilities.unbind(1)):
                columns[f"p_{name}"] = column.tolist()
        return columns

    def _tensors(self) -> dict[str, Tensor]:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if isinstance(value, Tensor)}

    def _with(self, tensors: dict[str, Tensor]) -> Decision:
        return Decision(**tensors, classes=self.classes, score_names=self.score_names)
