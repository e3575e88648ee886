r"""Variational online Newton (Shen et al. 2024, "Variational Learning is Effective for Large Deep Networks", ICML).

The same Gaussian with diagonal covariance as `mean_field`, trained by natural gradients: its variances follow an online
estimate h of the Hessian's diagonal instead of an optimizer made for weights. At one draw theta of q = N(m, diag(s^2)),
with G = dL/dtheta of the mean loss L, the algorithm of the paper (its Algorithm 1) is

    h_hat = G (theta - m) / s^2,    s^2 = 1 / (lambda (h + delta)),
    g <- b1 g + (1 - b1) G,
    h <- b2 h + (1 - b2) h_hat + 1/2 (1 - b2)^2 (h - h_hat)^2 / (h + delta),
    m <- m - a (g / (1 - b1^t) + delta (m - m_0)) / (h + delta).

It minimizes E_q[L] + KL(q || p) / lambda with the prior p = N(m_0, 1 / (lambda delta)). lambda is the effective sample
size, N for the posterior of N examples; delta the weight decay, b1 and b2 the momenta, a the rate, t the step.

What is kept is rho = log s^2, so that members can be drawn wherever the state is loaded. The gradient of a draw with
respect to it is r = 1/2 G (theta - m), and the third line is then, exactly,

    rho <- rho - log(1 + x + x^2 / 2),    x = (1 - b2) (2 lambda r + lambda delta exp(rho) - 1).

As r is a gradient like any other, `DistributedDataParallel` averages the product that each rank formed with its own
noise, accumulated batches and several draws add up, and scaled losses are scaled back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

import torch
from torch import Tensor, nn

from calibrant import InputError, checks
from calibrant.posteriors.base import TrainingContext
from calibrant.posteriors.mean_field import MeanField, Predicate, not_normalization
from calibrant.posteriors.native.newton import native_step
from calibrant.posteriors.reparametrization import dense_alike, fused
from calibrant.slots import register

DEFAULT_DECAY = 1e-4
_BLOCK = 1 << 15


@register("posterior", "ivon")
class IVON(MeanField):
    """q(theta) = N(m, diag(s^2)) over the parameters of `module`, whose variances follow the curvature of the loss.

    Args:
        module: any module; its parameters become the means, in place.
        ess: lambda, the effective sample size; None: the number of training examples, so that the KL counts fully.
            The weight beta of the KL term of other families has no influence.
        weight_decay: delta, which is the prior: its variance is 1 / (lambda delta). None: the weight decay of the
            training stage, or 1e-4 where this is 0.
        init_std: standard deviation that q starts from; None: a tenth of the root mean square of each tensor's entries.
        momentum: b1, of the gradient.
        hessian_momentum: b2, of the Hessian: closer to 1 is less noisy, and slower. None: 1 - 1 / T of a stage of T
            steps, about as in the paper, so that the variances follow over the whole of it; 0.999 where T is not known.
        prior_mean: m_0, a number, or "init" for the weights that the module has now.
        bayesian: `bayesian(name, owner)` says which parameters are Gaussian; the others are trained by SGD.
        fuse: on a CPU and in float32, make the draw, its gradient and the step one kernel in C each; None: where they
            are built or can be, see `MeanField`.

    It is trained by its own optimizer, which knows the prior: `kl()` is None, and no term is to be added to the loss.

    >>> q = IVON(nn.Linear(3, 2))
    >>> optimizer = q.optimizer(TrainingContext(rate=0.1, num_data=1000))
    >>> q(torch.ones(5, 3)).square().mean().backward()
    >>> optimizer.step()
    """

    def __init__(
        self,
        module: nn.Module,
        *,
        ess: float | None = None,
        weight_decay: float | None = None,
        init_std: float | None = None,
        momentum: float = 0.9,
        hessian_momentum: float | None = None,
        prior_mean: float | Literal["init"] = 0.0,
        bayesian: Predicate = not_normalization,
        fuse: bool | None = None,
    ) -> None:
        self.ess = None if ess is None else checks.positive("ess", ess)
        self.weight_decay = None if weight_decay is None else checks.positive("weight_decay", weight_decay)
        for name, value in (("momentum", momentum), ("hessian_momentum", hessian_momentum)):
            if value is not None and not 0 <= value < 1:
                raise InputError(f"{name} must lie in [0, 1), not {value}")
        self.momentum, self.hessian_momentum = momentum, hessian_momentum
        super().__init__(module, prior_mean=prior_mean, init_std=init_std, bayesian=bayesian, fuse=fuse)

    def kl(self) -> None:  # type: ignore[override]
        """None: the prior is in the steps of the optimizer."""

    def optimizer(self, context: TrainingContext) -> OnlineNewton:
        """The optimizer of this family, for `context.num_data` training examples.

        The rate is that of SGD with the same momentum: while the variances of a tensor are what they are now, an
        average step is as long as SGD's.
        """
        if self.ess is None and context.num_data < 2:
            raise InputError("num_data must be the number of training examples: the variances of q depend on it")
        following = 0.999 if context.steps is None else 1 - 1 / max(context.steps, 10)
        decay = self.weight_decay or context.weight_decay or DEFAULT_DECAY
        pairs = list(zip(self._means(), self._rhos()))
        own = {id(tensor) for pair in pairs for tensor in pair}
        others = [p for p in self.parameters() if p.requires_grad and id(p) not in own]
        groups: list[dict[str, Any]] = [
            {"params": [*pair], "weight_decay": decay, "reference": float(pair[1].detach().exp().mean())}
            for pair in pairs
        ]
        if others:
            groups.append({"params": others, "weight_decay": context.weight_decay, "reference": None})
        return OnlineNewton(
            groups,
            rate=context.rate,
            ess=self.ess or context.num_data,
            momentum=self.momentum,
            hessian_momentum=following if self.hessian_momentum is None else self.hessian_momentum,
            centers=self._prior_means(),
            fuse=self.fuse,
        )

    def clipped(self) -> list[list[nn.Parameter]]:
        """All but the log variances: a clipped Hessian would be too small."""
        of_rho = {id(rho) for rho in self.rho.parameters()}
        return [[p for p in self.parameters() if p.requires_grad and id(p) not in of_rho]]

    def extra_repr(self) -> str:
        """What q is, for `print`."""
        size = sum(rho.numel() for rho in self._rhos())
        return f"bayesian={size}, prior_mean={self.prior_mean}, ess={self.ess}, weight_decay={self.weight_decay}"


class OnlineNewton(torch.optim.Optimizer):
    """The steps of this module for pairs of a mean and its log variances, and SGD for other parameters.

    Args:
        groups: each holds a mean, its log variances and their `reference`, the variance at which steps are as long as
            SGD's; or ordinary parameters, without a reference.
        rate: of SGD, before `1 / (1 - momentum)`.
        ess: lambda.
        momentum: b1.
        hessian_momentum: b2.
        centers: m_0 of the groups that have a reference, in their order.
        fuse: whether a step is one kernel in C, on a CPU and in float32; None: where there is one.
    """

    def __init__(
        self,
        groups: Iterable[dict[str, Any]],
        *,
        rate: float,
        ess: float,
        momentum: float,
        hessian_momentum: float,
        centers: list[Tensor | float],
        fuse: bool | None = None,
    ) -> None:
        super().__init__(groups, {"lr": rate, "ess": ess, "momentum": momentum, "hessian_momentum": hessian_momentum})
        self._centers, self._fuse = centers, fuse

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """One step of all parameters that have gradients."""
        if closure is not None:
            raise InputError("closure must be None: the gradients of a step belong to the draw that made them")
        for index, group in enumerate(self.param_groups):
            if group["reference"] is None:
                for parameter in group["params"]:
                    if parameter.grad is not None:
                        self._move(group, parameter, None, 0.0)
                continue
            mean, rho = group["params"]
            if mean.grad is not None and rho.grad is not None:
                self._move(group, mean, rho, self._centers[index])

    def _move(self, group: dict[str, Any], mean: Tensor, rho: Tensor | None, center: Tensor | float) -> None:
        state = self.state[mean]
        if not state:
            state.update(steps=0, gradient=torch.zeros_like(mean))
        state["steps"] += 1
        if rho is not None and self._fusible(mean, rho, state["gradient"], center):
            native_step(mean, state["gradient"], rho, center, state["steps"], group)
            return
        tensors = [mean, mean.grad, state["gradient"], rho, None if rho is None else rho.grad, center]
        for part, gradient, average, part_rho, product, part_center in _blocks(tensors):
            average.lerp_(gradient, 1 - group["momentum"])
            direction = average / (1 - group["momentum"] ** state["steps"])
            direction.add_(part, alpha=group["weight_decay"])
            if isinstance(part_center, Tensor) or part_center:
                direction.sub_(part_center, alpha=group["weight_decay"])
            rate = group["lr"] / (1 - group["momentum"])
            if part_rho is None:
                part.sub_(direction, alpha=rate)
            else:
                variance = _follow_curvature(part_rho, product, group)
                part.addcmul_(variance, direction, value=-rate / group["reference"])

    def _fusible(self, mean: Tensor, rho: Tensor, average: Tensor, center: Tensor | float) -> bool:
        assert mean.grad is not None
        assert rho.grad is not None
        others: tuple[list[Tensor | float], ...] = ([rho], [average], [mean.grad], [rho.grad], [center])
        return dense_alike([mean], *others) and fused(self._fuse, [mean], *others)


def _follow_curvature(rho: Tensor, product: Tensor, group: dict[str, Any]) -> Tensor:
    """Update the log variances `rho`, whose gradients are `product`; returns the new variances."""
    fresh, ess = 1 - group["hessian_momentum"], group["ess"]
    variance = rho.exp()
    x = torch.mul(product, 2 * ess * fresh).add_(variance, alpha=fresh * ess * group["weight_decay"]).sub_(fresh)
    growth = torch.addcmul(x, x, x, value=0.5)  # of the precision, less 1; at least -1/2, so that it stays positive
    rho.sub_(growth.log1p())
    return variance.div_(growth.add_(1))


def _blocks(tensors: list[Any]) -> Iterator[tuple[Any, ...]]:
    """Aligned pieces of the tensors that stay in the cache of a CPU; whole tensors elsewhere, and None and numbers."""
    present = [tensor for tensor in tensors if isinstance(tensor, Tensor)]
    if any(tensor.device.type != "cpu" or not tensor.is_contiguous() for tensor in present):
        yield tuple(tensors)
        return
    flat = [tensor.view(-1) if isinstance(tensor, Tensor) else tensor for tensor in tensors]
    for start in range(0, present[0].numel(), _BLOCK):
        yield tuple(tensor[start : start + _BLOCK] if isinstance(tensor, Tensor) else tensor for tensor in flat)
