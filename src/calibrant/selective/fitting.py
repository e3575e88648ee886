"""Fitting the selector's network: on all of D_val at once, or by minibatches as in the paper's appendix."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from calibrant import checks
from calibrant.selective.network import SelectorNetwork
from calibrant.selective.objectives import SelectorExamples, SelectorObjective


@dataclass(frozen=True)
class Training:
    """How the network is fitted; the defaults but for the batches are the paper's.

    `batch_size=None` takes the exact objective over all of D_val at every step, at most `steps` (1,000) of them;
    `batch_size=32` draws minibatches, `steps` (250,000) of them. Every `check_every` steps the objective is looked
    at, on the held-out fraction `holdout` if there is one; after `patience` looks without a relative improvement of
    `tolerance` the fit stops. The best weights seen are kept. Minibatches without holdout run all their steps.
    """

    batch_size: int | None = None
    steps: int | None = None
    learning_rate: float = 0.001
    weight_decay: float = 1e-5
    holdout: float = 0.0
    check_every: int = 25
    patience: int = 4
    tolerance: float = 1e-3

    def __post_init__(self) -> None:
        for name in ("batch_size", "steps", "learning_rate", "check_every", "patience"):
            value = getattr(self, name)
            if value is not None:
                checks.positive(name, value)
        if not 0 <= self.holdout < 1:
            raise ValueError(f"holdout must lie in [0, 1), not {self.holdout}")

    @property
    def max_steps(self) -> int:
        """`steps`, or its default for this kind of fit."""
        return self.steps or (1000 if self.batch_size is None else 250_000)


@dataclass(frozen=True)
class FitReport:
    """Steps taken, whether the fit stopped by itself, and the objective per example at the weights kept."""

    steps: int
    converged: bool
    objective: float


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


def fit_network(
    network: SelectorNetwork,
    inputs: Tensor,
    examples: SelectorExamples,
    objective: SelectorObjective,
    training: Training,
    seed: int,
) -> FitReport:
    """Minimise the objective over the network's parameters.

    `inputs` (V, N, D) and `examples` (V, N): V augmented views of the same N examples, V = 1 without augmentation.
    The exact objective is averaged over views; a minibatch draws a view for each of its examples.
    """
    generator = torch.Generator().manual_seed(seed)
    fitted, watched = _split(inputs.shape[1], training.holdout, generator)
    optimizer = torch.optim.Adam(network.parameters(), training.learning_rate, weight_decay=training.weight_decay)
    best, stop, step = _Best(training), False, 0
    watch = training.batch_size is None or training.holdout > 0
    whole = _views(inputs, examples, fitted)
    held_out = _views(inputs, examples, watched)
    for batches in _batches(whole, inputs.shape[0], training, generator):
        if watch and step % training.check_every == 0:
            stop = best.look(_mean_objective(network, objective, held_out), network)
        if stop or step >= training.max_steps:
            break
        optimizer.zero_grad()
        _loss(network, objective, batches, mean=training.batch_size is None).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        step += 1
    value = _mean_objective(network, objective, held_out)
    best.look(value, network)
    network.load_state_dict(best.weights, strict=False)
    return FitReport(step, stop, best.value)


Views = list[tuple[Tensor, SelectorExamples]]


def _split(count: int, holdout: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Indices to fit on and to watch; all of them twice without holdout."""
    order = torch.randperm(count, generator=generator)
    held = round(holdout * count)
    if held == 0:
        return order.sort().values, order.sort().values
    if held == count:
        raise ValueError(f"holdout of {holdout} leaves none of {count} examples to fit on")
    return order[held:].sort().values, order[:held].sort().values


def _views(inputs: Tensor, examples: SelectorExamples, index: Tensor) -> Views:
    index = index.to(inputs.device)
    return [
        (inputs[v, index], SelectorExamples(*(_take(x, v, index) for x in examples))) for v in range(inputs.shape[0])
    ]


def _take(value: Tensor | None, view: int, index: Tensor) -> Tensor:
    return None if value is None else value[view, index]  # type: ignore[return-value]


def _batches(whole: Views, views: int, training: Training, generator: torch.Generator) -> Iterator[Views]:
    """All examples again and again, or minibatches in shuffled passes."""
    if training.batch_size is None:
        while True:
            yield whole
    inputs = torch.stack([x for x, _ in whole])
    fields = [None if y[0] is None else torch.stack(y) for y in zip(*(examples for _, examples in whole))]
    count, device = inputs.shape[1], inputs.device
    while True:
        order = torch.randperm(count, generator=generator).to(device)
        view = torch.randint(views, (count,), generator=generator).to(device)
        for index, chosen in zip(torch.split(order, training.batch_size), torch.split(view, training.batch_size)):
            picked = SelectorExamples(*(None if f is None else f[chosen, index] for f in fields))  # type: ignore[arg-type]
            yield [(inputs[chosen, index], picked)]


def _loss(network: SelectorNetwork, objective: SelectorObjective, views: Views, *, mean: bool) -> Tensor:
    """The objective averaged over views; with `mean` per example, otherwise summed as the objective has it."""
    values = [objective(network(x), y) / (objective.size(len(x)) if mean else 1) for x, y in views]
    return torch.stack(values).mean()


@torch.no_grad()
def _mean_objective(network: SelectorNetwork, objective: SelectorObjective, views: Views) -> float:
    return float(_loss(network, objective, views, mean=True))
