"""What a network costs: its parameters, and its multiply-adds for one input by PyTorch's own counter."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode


class Cost(NamedTuple):
    """Parameters, and multiply-adds of one forward pass on one input."""

    parameters: int
    multiply_adds: int


@torch.no_grad()
def cost(module: nn.Module, example: Tensor) -> Cost:
    """The cost of `module` on one input `example` (without the batch dimension).

    PyTorch counts a multiply-add as two operations; the "FLOPs" of the paper's table, like those of most papers on
    networks for images, are multiply-adds.

    >>> cost(nn.Linear(3, 2), torch.zeros(3))
    Cost(parameters=8, multiply_adds=6)
    """
    training = module.training
    module.eval()
    with FlopCounterMode(display=False) as counter:
        module(example.unsqueeze(0))
    module.train(training)
    return Cost(sum(p.numel() for p in module.parameters()), counter.get_total_flops() // 2)
