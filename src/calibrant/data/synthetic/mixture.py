"""Synthetic outliers from any inputs: a mixture of what suits their kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from calibrant import checks
from calibrant.data.arrays import DataError
from calibrant.data.synthetic.base import DataKind, Synthesizer, kind_of
from calibrant.slots import build

DEFAULT_MIXTURES: Mapping[DataKind, tuple[str, ...]] = {
    "images": ("inversion", "random_phase"),
    "table": ("permuted_columns",),
    "tokens": ("spliced_tokens",),
}
"""What is mixed where nothing else is asked for: what told real outliers of unseen kinds from ID inputs with the
highest likelihood, on average over networks (`docs/synthetic.md`, `benchmarks/synthetic_outliers.py`)."""

_REMEDY = "give real outliers, or take SIRC, which needs none"


def _chosen(
    inputs: Tensor, kinds: str | Sequence[str] | Mapping[str, Mapping[str, Any]] | None
) -> dict[str, Synthesizer]:
    """The synthesizers to mix, by name, all of which can take `inputs`."""
    if kinds is None:
        kind = kind_of(inputs)
        if kind is None:
            shape = f"of shape {tuple(inputs.shape)} and type {inputs.dtype}"
            raise DataError(f"no outliers can be made from inputs {shape}; {_REMEDY}")
        kinds = DEFAULT_MIXTURES[kind]
    wanted = (kinds,) if isinstance(kinds, str) else kinds
    options = wanted if isinstance(wanted, Mapping) else {name: {} for name in wanted}
    if not options:
        raise DataError("kinds must name at least one synthesizer")
    return {name: build("synthesizer", name, chosen) for name, chosen in options.items()}


def synthesize(
    inputs: Tensor,
    labels: Tensor | None = None,
    kinds: str | Sequence[str] | Mapping[str, Mapping[str, Any]] | None = None,
    count: int | None = None,
    seed: int = 0,
) -> Tensor:
    """Outliers made from `inputs` (N, ...): (count, ...), of the same shape, type and device.

    Each of the synthesizers makes an equal share, from examples drawn without replacement (as long as `count` is at
    most N). The same seed makes the same outliers; no global random state is read or changed.

    Args:
        inputs: validation inputs: images (N, C, H, W), a table (N, D), or tokens (N, L); see `kind_of`.
        labels: their classes (N,), where they are known; `spliced_tokens` then joins examples of different classes.
        kinds: names of synthesizers, `{"patch_shuffle": {"patch": 4}}` to give options; by default the mixture of
            `DEFAULT_MIXTURES` for this kind of data.
        count: how many; by default as many as there are inputs.
        seed: of all randomness.

    >>> synthesize(torch.rand(10, 3, 32, 32), count=4).shape
    torch.Size([4, 3, 32, 32])
    """
    if labels is not None:
        checks.same_length("labels", labels, "inputs", inputs)
    synthesizers = _chosen(inputs, kinds)
    count = len(inputs) if count is None else count
    if count < 1 or len(inputs) < 1:
        raise DataError(f"count must be positive and inputs not empty, not {count} from {len(inputs)} inputs")
    generator = torch.Generator().manual_seed(seed)
    rounds = -(-count // len(inputs))
    order = torch.cat([torch.randperm(len(inputs), generator=generator) for _ in range(rounds)])[:count]
    made = []
    for (name, synthesizer), rows in zip(synthesizers.items(), order.tensor_split(len(synthesizers))):
        chosen = rows.to(inputs.device)
        if not len(chosen):
            continue
        if (obstacle := synthesizer.obstacle(inputs[chosen])) is not None:
            raise DataError(f"{name} cannot make outliers from these inputs: {obstacle}; {_REMEDY}")
        made.append(synthesizer(inputs[chosen], generator, None if labels is None else labels[chosen]))
    return torch.cat(made)
