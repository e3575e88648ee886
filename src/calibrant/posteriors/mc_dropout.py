r"""Dropout as a posterior (Gal and Ghahramani 2016, "Dropout as a Bayesian Approximation", ICML).

Training with dropout and weight decay approximates variational inference with a q(theta) that switches units off at
random; predicting with dropout on, several times, averages over it. In a member each dropout layer has one mask,

    mask_u = b_u / (1 - rate),    b_u ~ Bernoulli(1 - rate),    u = 1, ..., U,

over its U units, drawn from (seed, member, name of the layer) and shared by all inputs. A member is therefore one
network, a function of its input alone: what it says of an input does not depend on the batch that the input comes in.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from calibrant import InputError
from calibrant.adapters.compiled import usable
from calibrant.adapters.unpacking import split_batch
from calibrant.posteriors.base import Posterior
from calibrant.posteriors.dropout_layers import FreshDropout, UnitMask, dropout_layers, replaced, with_dropout
from calibrant.posteriors.ensemble import Ensemble
from calibrant.posteriors.members import StoredMembers, check_count, member_generator
from calibrant.slots import register

INSERTED_RATE = 0.1


@register("posterior", "mc_dropout")
class MCDropout(Posterior):
    """q(theta) of a network with dropout: no divergence, and members with one fixed mask per dropout layer.

    Args:
        module: a network; its dropout layers (`nn.Dropout`, `nn.Dropout1d`, `2d`, `3d`) are replaced in place by layers
            that drop in `train()` and in `eval()` alike. A layer with rate 0 does not count as one.
        rate: the probability that a unit is dropped, for all of its dropout layers; None leaves each its own rate.
        before_last: put dropout before the last linear layer (in the order of `module.named_modules()`) of a network
            that has none, with `rate`, or 0.1 if that is None.

    The sizes of dropout layers are learned from the first batch, or by `finish`, so members can be sampled after it.

    >>> q = MCDropout(nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 2)))
    >>> q(torch.ones(5, 3)).shape, q.sample(20)(torch.ones(5, 3)).shape
    (torch.Size([5, 2]), torch.Size([20, 5, 2]))
    """

    def __init__(self, module: nn.Module, *, rate: float | None = None, before_last: bool = True) -> None:
        if rate is not None and not 0 <= rate < 1:
            raise InputError(f"rate must lie in [0, 1), not {rate}")
        module = usable(module)
        if not dropout_layers(module):
            module = _with_one(module, before_last=before_last)
        for name, layer in dropout_layers(module).items():
            module = replaced(module, layer, FreshDropout(name, layer, rate))
        super().__init__(module)

    @torch.no_grad()
    def finish(self, batches: Iterable[Any]) -> None:
        """Run one batch where none was run yet, so that the sizes of the dropout layers are known."""
        if self._ran():
            return
        was_training = self.module.training
        self.module.eval()
        for batch in islice(batches, 1):
            self(split_batch(batch)[0])
        self.module.train(was_training)

    def sample(self, n: int, seed: int = 0) -> Ensemble:
        """`n` members with a mask of their own each; the same seed gives the same masks on every device."""
        check_count(n)
        layers = self._layers()
        if not self._ran():
            raise InputError("the sizes of the dropout layers are not known yet: run the posterior on a batch first")
        module, stacked = copy.deepcopy(self.module), dict[str, Tensor]()
        like = next((p for p in module.parameters() if p.is_floating_point()), torch.empty(0, device="cpu"))
        for name, layer in layers:
            units = int(layer.units)
            with like.device:
                mask = UnitMask(units, channels=layer.channels).to(like) if units else nn.Identity()  # never ran
            module = replaced(module, module.get_submodule(name), mask)
            if units:
                masks = torch.stack([draw_mask(units, layer.rate, seed, k, name) for k in range(n)])
                stacked[f"{name}.mask"] = masks.to(like)
        return Ensemble(module, StoredMembers(stacked, n))

    def _layers(self) -> list[tuple[str, FreshDropout]]:
        return [(name, layer) for name, layer in self.module.named_modules() if isinstance(layer, FreshDropout)]

    def _ran(self) -> bool:
        return any(int(layer.units) for _, layer in self._layers())


def draw_mask(units: int, rate: float, seed: int, k: int, name: str) -> Tensor:
    """The mask (U,) of member `k` for the dropout layer called `name`: 0, or 1 / (1 - rate), of mean 1.

    >>> draw_mask(6, 0.5, seed=0, k=1, name="drop").unique()
    tensor([0., 2.])
    """
    kept = torch.rand(units, generator=member_generator(seed, k, name), dtype=torch.float32, device="cpu") >= rate
    return kept / (1 - rate)


def _with_one(module: nn.Module, *, before_last: bool) -> nn.Module:
    """`module`, which has no dropout layer, with one before its last linear layer."""
    linear = [name for name, layer in module.named_modules() if isinstance(layer, nn.Linear)]
    if not before_last or not linear:
        remedy = "add nn.Dropout" + (" or set before_last" if linear else "")
        raise InputError(f"module has no dropout layer whose rate is above 0, so nothing in it is random; {remedy}")
    return with_dropout(module, linear[-1], INSERTED_RATE)
