"""The contract of a posterior: what a training loop needs of q(theta), and no more.

A family is one file with one class:

    @register("posterior", "mine")
    class Mine(Posterior): ...

The loop asks for logits at some draws of theta and a divergence or None, for groups of parameters or an optimizer, and
calls two hooks; what predicts asks for `sample(n, seed)`. A network without any uncertainty is the simplest posterior
(`deterministic.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from calibrant import InputError
from calibrant.adapters.calling import called_with
from calibrant.adapters.compiled import usable
from calibrant.adapters.outputs import logits_of
from calibrant.posteriors.ensemble import Ensemble


@dataclass(frozen=True)
class TrainingContext:
    """What a posterior may want to know of the training stage when it says how its parameters are optimized.

    Args:
        rate: learning rate, the first or the highest; the schedule multiplies the rates of all groups alike.
        rho_rate: learning rate of parameters that describe the spread of q; None: `rate`.
        weight_decay: L2 penalty on weights.
        momentum: of SGD.
        num_data: N, the number of training examples.
        beta: weight of KL(q || p), which is divided by N.
    """

    rate: float
    rho_rate: float | None = None
    weight_decay: float = 0.0
    momentum: float = 0.0
    num_data: int = 1
    beta: float = 1.0


@dataclass(frozen=True)
class EpochEnd:
    """What `Posterior.after_epoch` is told.

    Args:
        epoch: number of epochs done, so 1 after the first one.
        epochs: number of epochs of the stage.
        batches: reads the inputs and labels of the epoch again, batch by batch, on the device (this rank's part).
    """

    epoch: int
    epochs: int
    batches: Callable[[], Iterator[tuple[Tensor, Tensor]]]


class Posterior(nn.Module):
    """q(theta) over the parameters of `module`; a family overrides what differs from an ordinary network.

    Calling it runs the module on one draw of theta, in `train()` and in `eval()` alike. All state that must survive an
    interruption has to be in parameters and buffers, whose shapes stay as the constructor makes them.

    A family's constructor takes the module, and keywords with defaults, which become its options
    (`posterior.options` in the settings). The module is taken as it is, without a copy, so that training changes it;
    of one behind `torch.compile`, the module inside: compile the posterior instead.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = usable(module)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The module's output at one draw of theta, as it is; a batch that is a mapping is passed by name."""
        args, kwargs = called_with(self.module, args, kwargs)
        return self.module(*args, **kwargs)

    def logits(self, inputs: Any, draws: int = 1) -> Tensor:
        """Logits (S, B, C) at S = `draws` draws of theta, wherever they are in the module's output."""
        outputs = [logits_of(self(inputs), inputs) for _ in range(draws)]
        return outputs[0][None] if draws == 1 else torch.stack(outputs)

    def kl(self) -> Tensor | None:
        """KL(q || p), summed over the parameters, called once per step after `logits`; None where there is none."""
        return None

    def parameter_groups(self, context: TrainingContext) -> list[dict[str, Any]]:
        """Groups of parameters as optimizers of PyTorch take them, with `lr` and `weight_decay`."""
        own = [parameter for parameter in self.parameters() if parameter.requires_grad]
        return [{"params": own, "lr": context.rate, "weight_decay": context.weight_decay}]

    def optimizer(self, context: TrainingContext) -> torch.optim.Optimizer | None:
        """The family's own optimizer; None for the one of the settings over `parameter_groups`.

        Its state must be tensors and JSON values by parameter, as that of all optimizers of PyTorch. The loop
        multiplies the `lr` that its groups have now by the schedule.
        """
        return None

    def after_step(self) -> None:
        """Called after every step of the optimizer."""

    def after_epoch(self, end: EpochEnd) -> None:
        """Called after every epoch, before its validation.

        Under `torchrun` every rank calls it, with the buffers of rank 0 before and after; parameters must be changed
        alike on all ranks.
        """

    def trained_state(self) -> dict[str, Tensor]:
        """`state_dict()` without the frozen parameters: all that training changes, such as q over the LoRA weights.

        `load_trained_state` puts it into a posterior of the same network.
        """
        frozen = {name for name, parameter in self.named_parameters() if not parameter.requires_grad}
        return {name: value for name, value in self.state_dict().items() if name not in frozen}

    def load_trained_state(self, state: Mapping[str, Tensor]) -> None:
        """Load what `trained_state` returned; refused if it is that of another network or family."""
        differing = sorted(set(self.trained_state()) ^ set(state))
        if differing:
            where = "not trained here" if differing[0] in state else "not in the state"
            raise InputError(f"state does not fit this posterior: {differing[0]} is {where}")
        self.load_state_dict(dict(state), strict=False)

    def sample(self, n: int, seed: int = 0) -> Ensemble:
        """`n` fixed members drawn from q as it is now, which later training does not change.

        The same seed gives the same members, and a smaller ensemble is the beginning of a larger one.
        """
        raise NotImplementedError(f"{type(self).__name__} must define sample(n, seed), which draws its members")
