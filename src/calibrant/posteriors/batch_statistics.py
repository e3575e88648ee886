"""BatchNorm's statistics for every member of an ensemble, from training inputs.

The running mean and variance of a BatchNorm layer belong to the weights before it. Members whose weights were drawn,
rather than trained, need statistics of their own.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from calibrant import InputError
from calibrant.adapters.trees import row_count
from calibrant.adapters.unpacking import split_batch
from calibrant.posteriors.ensemble import Ensemble
from calibrant.posteriors.members import StoredMembers, run
from calibrant.posteriors.substitution import Substitution

EXAMPLES = 4096


@torch.no_grad()
def with_batch_statistics(ensemble: Ensemble, batches: Iterable[Any], examples: int = EXAMPLES) -> Ensemble:
    """`ensemble` with BatchNorm statistics measured anew for each member; itself if its network has no BatchNorm.

    Each statistic is the mean over batches of that of a batch, as in `torch.optim.swa_utils.update_bn`; all other
    layers, dropout among them, are in `eval()` mode, as they are in members.

    Args:
        ensemble: members that run one module with different weights.
        batches: training batches on the device of the ensemble, read once: inputs, `(inputs, labels)` or mappings. One
            of a single example is left out.
        examples: stop after the batch that completes this number.
    """
    if ensemble.shared is None:
        raise InputError("ensemble must have members that run one module: measure those of separate networks yourself")
    module = copy.deepcopy(ensemble.shared).eval()
    layers = _measuring(module)
    if not layers:
        return ensemble
    place = Substitution(module, [*ensemble.members.names, *_fresh(layers)])
    states = [ensemble.members.weights(k, module) | _fresh(layers) for k in range(len(ensemble))]
    seen = 0
    for batch in batches:
        inputs = split_batch(batch)[0]
        if (size := row_count(inputs)) == 1:
            continue
        for state in states:
            run(place, state, inputs)
        seen += size
        if seen >= examples:
            break
    if not seen:
        raise InputError("batches must hold training inputs, two per batch at least: BatchNorm's statistics need them")
    names = [f"{prefix}{part}" for prefix in layers for part in ("running_mean", "running_var")]
    measured = {name: torch.stack([state[name] for state in states]) for name in names}
    common = {name: own[0] for name, own in measured.items() if all(other.equal(own[0]) for other in own)}
    base = copy.deepcopy(ensemble.module)
    base.load_state_dict(common, strict=False)
    stacked = {name: own for name, own in {**ensemble.stacked(), **measured}.items() if name not in common}
    found = Ensemble(base, StoredMembers(stacked, len(ensemble)))
    found.one_logit = ensemble.one_logit
    return found


def _measuring(module: nn.Module) -> dict[str, nn.Module]:
    """The BatchNorm layers of `module` that have statistics, by prefix, set to measure their mean over batches."""
    layers = {
        f"{name}." if name else "": layer
        for name, layer in module.named_modules()
        if isinstance(layer, _BatchNorm) and layer.running_mean is not None
    }
    for layer in layers.values():
        layer.reset_running_stats()
        layer.momentum = None
        layer.train()
    return dict(layers)


def _fresh(layers: dict[str, nn.Module]) -> dict[str, Tensor]:
    """The buffers of `layers` by name, copied: those of one member."""
    return {f"{prefix}{name}": b.clone() for prefix, layer in layers.items() for name, b in layer.named_buffers()}
