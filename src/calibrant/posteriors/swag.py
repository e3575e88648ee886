r"""SWAG (Maddox et al. 2019, "A Simple Baseline for Bayesian Uncertainty in Deep Learning", NeurIPS).

The iterates of SGD wander around a minimum; their mean and covariance are those of a Gaussian q(theta). With T
iterates theta_1, ..., theta_T, collected at even distances from a fraction of the training on, and mean_t the mean of
the first t of them,

    mean  = mean_T,
    S     = diag( 1/T sum_t theta_t^2 - mean^2 ),
    D     = (theta_t - mean_t), the last R of these deviations as columns,
    theta = mean + sqrt(scale) ( S^(1/2) z_1 / sqrt(2) + D z_2 / sqrt(2 (R - 1)) ),    z_1, z_2 ~ N(0, I),

which has the covariance scale (S + D D^T / (R - 1)) / 2. With rank 0 it is scale S, SWAG-Diagonal.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from calibrant import InputError, checks
from calibrant.posteriors.batch_statistics import with_batch_statistics
from calibrant.posteriors.deterministic import Deterministic
from calibrant.posteriors.ensemble import Ensemble
from calibrant.posteriors.members import StoredMembers, check_count, cpu_normal, member_generator
from calibrant.slots import register


@register("posterior", "swag")
class SWAG(Deterministic):
    """A Gaussian fitted to the iterates of SGD, its covariance a diagonal and a part of low rank; no divergence.

    Training is that of the network itself. `begin(steps)` starts a collection anew, `after_step()` takes in the weights
    where they are due; in a loop of your own you may call `collect()` instead, whenever you like. Before the first
    iterate all members are the network as it is.

    Args:
        module: a network; what requires a gradient is drawn.
        rank: R, the number of deviations that are kept, each of the size of the network; 0: the diagonal alone.
        start: the fraction of the steps after which collecting begins.
        scale: what the covariance is multiplied by.
        iterates: T, the number of iterates that are collected.

    >>> q = SWAG(nn.Linear(3, 2), rank=2)
    >>> for _ in range(3):
    ...     with torch.no_grad():
    ...         q.module.weight += 1.0
    ...     q.collect()
    >>> round(float(q.variances()["weight"][0, 0]), 4)  # of x, x + 1, x + 2
    0.6667
    >>> q.sample(20)(torch.ones(5, 3)).shape
    torch.Size([20, 5, 2])
    """

    progress: Tensor

    def __init__(
        self, module: nn.Module, *, rank: int = 20, start: float = 0.5, scale: float = 1.0, iterates: int = 40
    ) -> None:
        super().__init__(module)
        if rank < 0 or rank == 1:
            raise InputError(f"rank must be 0, for the diagonal alone, or at least 2, not {rank}")
        if not 0 <= start < 1:
            raise InputError(f"start must lie in [0, 1), not {start}")
        if iterates < 2:
            raise InputError(f"iterates must be at least 2, for a variance, not {iterates}")
        self.rank, self.start, self.scale, self.iterates = rank, start, checks.positive("scale", scale), iterates
        self._names = [name for name, parameter in self.module.named_parameters() if parameter.requires_grad]
        if not self._names:
            raise InputError("module has no parameter that requires a gradient, so there is nothing to collect")
        weights = self._weights()
        # Frozen parameters rather than buffers: DDP sends all buffers at every step, and these are alike on all ranks.
        self.mean = nn.Parameter(torch.zeros_like(weights), requires_grad=False)
        self.squares = nn.Parameter(torch.zeros_like(weights), requires_grad=False)  # T S
        self.deviations = nn.Parameter(weights.new_zeros(rank, len(weights)), requires_grad=False)
        self.register_buffer("progress", torch.zeros(3, dtype=torch.int64))  # steps done, steps in all, iterates
        self._known: tuple[int, int, int] | None = None

    def begin(self, steps: int) -> None:
        """Forget the iterates of an earlier training, and collect those of the `steps` to come."""
        if not math.isfinite(steps):
            raise InputError("steps must be finite: SWAG collects from a fraction of the training on; set max_epochs")
        self._note(0, int(steps), 0)

    def after_step(self) -> None:
        """Collect the weights if that is due: T times at even distances between start and the end."""
        done, steps, count = self._progress()
        self._note(done + 1, steps, count)
        first = self.start * steps
        if first <= done < steps:
            reached = (self.iterates * (step - first) / (steps - first) for step in (done, done + 1))
            if math.floor(next(reached)) < math.floor(next(reached) + 1e-9):
                self.collect()

    @torch.no_grad()
    def collect(self) -> None:
        """Take in the weights as they are now."""
        done, steps, count = self._progress()
        if count == 0:
            self.mean.zero_()
            self.squares.zero_()
            self.deviations.zero_()
        now = self._weights()
        before = now - self.mean
        self.mean.add_(before, alpha=1 / (count + 1))
        deviation = now - self.mean
        self.squares.addcmul_(before, deviation)  # Welford's recursion: no difference of large numbers
        if self.rank:
            self.deviations[count % self.rank] = deviation
        self._note(done, steps, count + 1)

    def sample(self, n: int, seed: int = 0) -> Ensemble:
        """`n` fixed members; with BatchNorm in the network, `refresh` gives them statistics of their own."""
        check_count(n)
        module = copy.deepcopy(self.module)
        if self._progress()[2] == 0:
            return Ensemble(module, StoredMembers({}, n))
        drawn = torch.stack([self._draw(member_generator(seed, k)) for k in range(n)])
        return Ensemble(module, StoredMembers(self._by_name(drawn), n))

    def refresh(self, ensemble: Ensemble, batches: Iterable[Any]) -> Ensemble:
        """`ensemble` with BatchNorm statistics of its own for each member, once there are iterates."""
        return with_batch_statistics(ensemble, batches) if self._progress()[2] else ensemble

    def means(self) -> dict[str, Tensor]:
        """The mean of the iterates by parameter name."""
        return self._by_name(self.mean.detach())

    def variances(self) -> dict[str, Tensor]:
        """The diagonal S by parameter name."""
        return self._by_name(self.squares.detach() / max(self._progress()[2], 1))

    def _draw(self, generator: torch.Generator) -> Tensor:
        """Theta, flat. The noise is drawn on the CPU, so that a seed names the same members on every device."""
        mean, count = self.mean.detach(), self._progress()[2]
        std = (self.squares / count).sqrt()
        spread = std * cpu_normal(mean.shape, generator).to(mean)
        if self.rank:
            columns = min(count, self.rank)
            noise = cpu_normal((columns,), generator).to(mean)
            low_rank = noise @ self.deviations[:columns] / math.sqrt(max(columns - 1, 1))
            spread = (spread + low_rank) / math.sqrt(2)
        return mean + math.sqrt(self.scale) * spread

    def _weights(self) -> Tensor:
        """What is collected, flat."""
        return torch.cat([self.module.get_parameter(name).detach().flatten() for name in self._names])

    def _by_name(self, flat: Tensor) -> dict[str, Tensor]:
        """`flat` (..., P) cut into tensors of the shapes of the parameters."""
        like = {name: self.module.get_parameter(name) for name in self._names}
        parts = torch.split(flat, [parameter.numel() for parameter in like.values()], dim=-1)
        return {n: part.reshape(*flat.shape[:-1], *p.shape).to(p) for (n, p), part in zip(like.items(), parts)}

    def _progress(self) -> tuple[int, int, int]:
        """Steps done, steps in all, and iterates; read from the device only after a state was loaded."""
        if self._known is None:
            done, steps, count = self.progress.tolist()
            self._known = done, steps, count
        return self._known

    def _note(self, done: int, steps: int, count: int) -> None:
        self._known = done, steps, count
        self.progress.copy_(torch.tensor(self._known))

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self._known = None
