"""Fitting the selector's network: on all of D_val at once, or by minibatches as in the paper's appendix."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from calibrant import InputError, checks
from calibrant.kernels import accumulation_dtype
from calibrant.selective.lbfgs import gradient, minimize
from calibrant.selective.network import SelectorNetwork
from calibrant.selective.objectives import SelectorExamples, SelectorObjective

_WEIGHT_DECAY = {"adam": 1e-5, "lbfgs": 1e-3}


@dataclass(frozen=True)
class Training:
    """How the network is fitted; the defaults but for the batches are the paper's.

    `batch_size=None` takes the exact objective over all of D_val at every step, at most `steps` (1,000) of them;
    `batch_size=32` draws minibatches, `steps` (250,000) of them. Every `check_every` steps the objective is looked
    at, on the held-out fraction `holdout` if there is one; after `patience` looks without a relative improvement of
    `tolerance` the fit stops. The best weights seen are kept. Minibatches without holdout run all their steps.

    `optimizer="lbfgs"` minimizes the exact objective until it converges, in at most `steps` (500) iterations: until one
    decreases it by less than 1e-7 of it, or no entry of the gradient exceeds 1e-5. With a holdout, that is looked at
    after every iteration. `learning_rate` and `check_every` are Adam's.

    `weight_decay` w adds w / 2 times the sum of squared weights to the objective per example. None stands for 1e-5
    with Adam, as in the paper, and 1e-3 with L-BFGS: a fit that converges is held back by nothing else.
    """

    batch_size: int | None = None
    steps: int | None = None
    learning_rate: float = 0.001
    weight_decay: float | None = None
    holdout: float = 0.0
    check_every: int = 25
    patience: int = 4
    tolerance: float = 1e-3
    optimizer: Literal["adam", "lbfgs"] = "adam"

    def __post_init__(self) -> None:
        for name in ("batch_size", "steps", "learning_rate", "check_every", "patience"):
            value = getattr(self, name)
            if value is not None:
                checks.positive(name, value)
        if not 0 <= self.holdout < 1:
            raise InputError(f"holdout must lie in [0, 1), not {self.holdout}")
        if self.optimizer not in _WEIGHT_DECAY:
            raise InputError(f"optimizer must be 'adam' or 'lbfgs', not {self.optimizer!r}")
        if self.optimizer == "lbfgs" and self.batch_size is not None:
            raise InputError("batch_size must be None with optimizer='lbfgs', which takes all examples at once")

    @property
    def max_steps(self) -> int:
        """`steps`, or its default for this kind of fit."""
        if self.optimizer == "lbfgs":
            return self.steps or 500
        return self.steps or (1000 if self.batch_size is None else 250_000)

    @property
    def decay(self) -> float:
        """`weight_decay`, or its default for the optimizer."""
        return _WEIGHT_DECAY[self.optimizer] if self.weight_decay is None else self.weight_decay


@dataclass(frozen=True)
class FitReport:
    """Steps taken, whether the fit stopped by itself, and the objective per example at the weights kept.

    `gradient` is the norm of the gradient there: the largest absolute value among the derivatives of the objective per
    example with its weight decay, over the examples fitted to. Near a smooth minimum it is near 0.
    """

    steps: int
    converged: bool
    objective: float
    gradient: float = math.nan


class _Best:
    """The best weights so far, and whether it is time to stop."""

    def __init__(self, training: Training) -> None:
        self.training, self.value, self.mark, self.idle = training, float("inf"), float("inf"), 0
        self.weights: dict[str, Tensor] = {}

    def look(self, value: float, network: SelectorNetwork) -> bool:
        if value < self.value:
            self.value = value
            self.weights = {name: weight.detach().clone() for name, weight in network.named_parameters()}
        if value < self.mark - self.training.tolerance * abs(self.mark) or self.mark == float("inf"):
            self.mark, self.idle = value, 0
        else:
            self.idle += 1
        return self.idle >= self.training.patience


class FittedPart(NamedTuple):
    """Some of the examples: V views of them with inputs (n, D) each, and outliers (m, D) where there are any."""

    views: list[tuple[Tensor, SelectorExamples]]
    outliers: Tensor | None = None


def fit_network(
    network: SelectorNetwork,
    inputs: Tensor,
    examples: SelectorExamples,
    objective: SelectorObjective,
    training: Training,
    seed: int,
    outliers: Tensor | None = None,
) -> FitReport:
    """Minimize the objective over the network's parameters.

    `inputs` (V, N, D) and `examples` (V, N): V augmented views of the same N examples, V = 1 without augmentation.
    The exact objective is averaged over views; a minibatch draws a view for each of its examples. `outliers` (M, D) are
    inputs, too, for objectives that need them; a minibatch has as many of them as examples, drawn with replacement.
    """
    generator = torch.Generator().manual_seed(seed)
    fitted, watched = _split(inputs.shape[1], training.holdout, generator)
    whole, held_out = FittedPart(_views(inputs, examples, fitted)), FittedPart(_views(inputs, examples, watched))
    if outliers is not None:
        chosen, kept = _split(len(outliers), training.holdout, generator)
        whole, held_out = whole._replace(outliers=outliers[chosen]), held_out._replace(outliers=outliers[kept])
    best = _Best(training)
    if training.optimizer == "lbfgs":
        step, stop = _lbfgs(network, objective, whole, held_out, best)
    else:
        step, stop = _adam(network, objective, whole, held_out, best, generator)
    best.look(_mean_objective(network, objective, held_out), network)
    network.load_state_dict(best.weights, strict=False)
    slope = gradient(network, _loss(network, objective, whole, mean=True), training.decay)
    return FitReport(step, stop, best.value, float(slope.abs().max()))


def _adam(
    network: SelectorNetwork,
    objective: SelectorObjective,
    whole: FittedPart,
    held_out: FittedPart,
    best: _Best,
    generator: torch.Generator,
) -> tuple[int, bool]:
    """Steps taken, and whether the fit stopped by itself."""
    training, stop, step = best.training, False, 0
    optimizer = torch.optim.Adam(network.parameters(), training.learning_rate, weight_decay=training.decay)
    watch = training.batch_size is None or training.holdout > 0
    for batch in _batches(whole, training, generator):
        if watch and step % training.check_every == 0:
            stop = best.look(_mean_objective(network, objective, held_out), network)
        if stop or step >= training.max_steps:
            break
        optimizer.zero_grad()
        _loss(network, objective, batch, mean=training.batch_size is None).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        step += 1
    return step, stop


def _lbfgs(
    network: SelectorNetwork, objective: SelectorObjective, whole: FittedPart, held_out: FittedPart, best: _Best
) -> tuple[int, bool]:
    """Iterations taken, and whether the fit stopped by itself; in float64 where the device has that."""
    training, narrow = best.training, whole.views[0][0].dtype
    wide = accumulation_dtype(whole.views[0][0].device)
    exact, watched = _cast(whole, wide), _cast(held_out, wide)

    def stop() -> bool:
        return training.holdout > 0 and best.look(_mean_objective(network, objective, watched), network)

    network.to(wide)
    try:
        return minimize(
            network, lambda: _loss(network, objective, exact, mean=True), training.decay, training.max_steps, stop
        )
    finally:
        network.to(narrow)


def _cast(part: FittedPart, dtype: torch.dtype) -> FittedPart:
    views = [
        (inputs.to(dtype), SelectorExamples(*(None if x is None else x.to(dtype) for x in examples)))  # type: ignore[arg-type]
        for inputs, examples in part.views
    ]
    return FittedPart(views, None if part.outliers is None else part.outliers.to(dtype))


def _split(count: int, holdout: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Indices to fit on and to watch; all of them twice without holdout."""
    order = torch.randperm(count, generator=generator)
    held = round(holdout * count)
    if held == 0:
        return order.sort().values, order.sort().values
    if held == count:
        raise InputError(f"holdout of {holdout} leaves none of {count} examples to fit on")
    return order[held:].sort().values, order[:held].sort().values


def _views(inputs: Tensor, examples: SelectorExamples, index: Tensor) -> list[tuple[Tensor, SelectorExamples]]:
    index = index.to(inputs.device)
    return [
        (inputs[v, index], SelectorExamples(*(_take(x, v, index) for x in examples))) for v in range(inputs.shape[0])
    ]


def _take(value: Tensor | None, view: int, index: Tensor) -> Tensor:
    return None if value is None else value[view, index]  # type: ignore[return-value]


def _batches(whole: FittedPart, training: Training, generator: torch.Generator) -> Iterator[FittedPart]:
    """All examples again and again, or minibatches in shuffled passes."""
    if training.batch_size is None:
        while True:
            yield whole
    inputs = torch.stack([x for x, _ in whole.views])
    fields = [None if y[0] is None else torch.stack(y) for y in zip(*(examples for _, examples in whole.views))]
    views, count, device = inputs.shape[0], inputs.shape[1], inputs.device
    while True:
        order = torch.randperm(count, generator=generator).to(device)
        view = torch.randint(views, (count,), generator=generator).to(device)
        for index, chosen in zip(torch.split(order, training.batch_size), torch.split(view, training.batch_size)):
            picked = SelectorExamples(*(None if f is None else f[chosen, index] for f in fields))  # type: ignore[arg-type]
            yield FittedPart([(inputs[chosen, index], picked)], _drawn(whole.outliers, len(index), generator))


def _drawn(outliers: Tensor | None, count: int, generator: torch.Generator) -> Tensor | None:
    if outliers is None:
        return None
    return outliers[torch.randint(len(outliers), (count,), generator=generator).to(outliers.device)]


def _loss(network: SelectorNetwork, objective: SelectorObjective, part: FittedPart, *, mean: bool) -> Tensor:
    """The objective averaged over views; with `mean` per example, otherwise summed as the objective has it."""
    rejected = None if part.outliers is None else network(part.outliers)
    values = [
        objective(network(x), y._replace(outliers=rejected)) / (objective.size(len(x)) if mean else 1)
        for x, y in part.views
    ]
    return torch.stack(values).mean()


@torch.no_grad()
def _mean_objective(network: SelectorNetwork, objective: SelectorObjective, part: FittedPart) -> float:
    return float(_loss(network, objective, part, mean=True))
