r"""Several networks from different starts (Lakshminarayanan et al. 2017, "Simple and Scalable Predictive Uncertainty
Estimation using Deep Ensembles", NeurIPS).

q(theta) is a mixture of M points with equal weights. All of them are trained together, step by step on the same
batches, each by the gradient of its own loss: the cost is that of training them one after the other, and an interrupted
run, several processes and the fine-tuning with outliers need nothing of their own. What makes the members differ is
where they start (Fort et al. 2019, "Deep Ensembles: A Loss Landscape Perspective").
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from calibrant import InputError
from calibrant.adapters.calling import call, called_with
from calibrant.adapters.compiled import usable
from calibrant.adapters.outputs import logits_of
from calibrant.posteriors.base import Posterior
from calibrant.posteriors.ensemble import Ensemble
from calibrant.posteriors.mean_field import MeanField
from calibrant.posteriors.members import check_count
from calibrant.slots import register

Start = Callable[[int], nn.Module]


@register("posterior", "deep_ensemble")
class DeepEnsemble(Posterior):
    """M networks of one architecture, each trained on its own loss.

    Args:
        module: the first network, taken as it is.
        size: M. A larger ensemble than that cannot be sampled, so `sample(n)` gives the first n networks, or all M.
        fresh: where the others start. A function: `fresh(k)` is the untrained network k = 1, ..., M - 1. True: from a
            copy whose layers are initialized anew, by their `reset_parameters`; a network that initializes itself in
            another way needs the function. False: from the weights that `module` has now, which is for trained
            networks, with a little noise, as in the default start of `MeanField`, so that the members differ.

    `logits(inputs)` is (M, B, C), and the loss to be minimized the mean of the M losses; the gradient of every network
    is nevertheless that of its own loss, so that rates, weight decay and clipping are those of one network. Calling it
    runs one network, chosen at random.

    >>> q = DeepEnsemble(nn.Linear(3, 2), size=4)
    >>> q.logits(torch.ones(5, 3)).shape, len(q.sample(20)), len(q.sample(2))
    (torch.Size([4, 5, 2]), 4, 2)
    """

    def __init__(self, module: nn.Module, *, size: int = 5, fresh: Start | bool = True) -> None:
        super().__init__(module)
        if size < 1:
            raise InputError(f"size must be at least 1, not {size}")
        start = fresh if callable(fresh) else self._anew if fresh else self._nearby
        self.others = nn.ModuleList(usable(start(k)) for k in range(1, size))
        shapes = [{name: value.shape for name, value in network.state_dict().items()} for network in self.networks()]
        if any(other != shapes[0] for other in shapes):
            raise InputError("fresh must build networks of the architecture of module: their parameters differ")

    def networks(self) -> list[nn.Module]:
        """The M networks."""
        return [self.module, *self.others]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The output of one network, chosen at random."""
        args, kwargs = called_with(self.module, args, kwargs)
        return self.networks()[int(torch.randint(1 + len(self.others), (), device="cpu"))](*args, **kwargs)

    def logits(self, inputs: Any, draws: int = 1) -> Tensor:
        """Logits (M, B, C) of all networks, whatever `draws` is."""
        every = torch.stack([logits_of(call(network, inputs), inputs) for network in self.networks()])
        # As it is, with gradients times M, by which the mean over the M losses has divided them.
        values = every.detach()
        return torch.where(values.isfinite(), values + len(every) * (every - values), every)

    def clipped(self) -> list[list[nn.Parameter]]:
        """Every network by itself."""
        return [[p for p in network.parameters() if p.requires_grad] for network in self.networks()]

    def sample(self, n: int, seed: int = 0) -> Ensemble:
        """The first `n` networks, or all of them if there are fewer; there is nothing to draw, so no seed counts."""
        check_count(n)
        return Ensemble.stack(self.networks()[:n])

    def _anew(self, k: int) -> nn.Module:
        """A copy with its trainable layers initialized anew, which draws from PyTorch's generator."""
        network = copy.deepcopy(self.module)
        for name, layer in network.named_modules():
            if not any(parameter.requires_grad for parameter in layer.parameters(recurse=False)):
                continue
            reset = getattr(layer, "reset_parameters", None) or getattr(layer, "_reset_parameters", None)
            if reset is None:
                raise InputError(
                    f"module has the layer {name or type(layer).__name__}, which has no reset_parameters() to start the"
                    " other members anew: add it, set fresh=False to start near the weights of module, or pass"
                    " fresh=FUNCTION, which builds the network of member k"
                )
            reset()
        with torch.no_grad():
            for parameter, given in zip(network.parameters(), self.module.parameters()):
                if not given.requires_grad:
                    parameter.copy_(given)
        return network

    def _nearby(self, k: int) -> nn.Module:
        """A copy around the weights of the module."""
        seed = int(torch.randint(2**31, (), device="cpu"))
        network = MeanField(copy.deepcopy(self.module)).sample(1, seed).member(0)
        return network.train(self.module.training)
