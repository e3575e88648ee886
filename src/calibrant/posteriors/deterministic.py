"""The simplest posterior: all of q is one point, the network's own weights."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from calibrant.adapters.compiled import uncompiled
from calibrant.adapters.outputs import logits_of
from calibrant.posteriors.base import Posterior
from calibrant.posteriors.ensemble import Ensemble
from calibrant.posteriors.members import check_count
from calibrant.slots import register


@register("posterior", "deterministic")
class Deterministic(Posterior):
    """An ordinary network: every draw is the network itself, there is no divergence, and an ensemble has one member.

    >>> q = Deterministic(nn.Linear(3, 2))
    >>> len(q.sample(20)), q.kl()
    (1, None)
    """

    def logits(self, inputs: Any, draws: int = 1) -> Tensor:
        """Logits (1, B, C): draws would not differ."""
        return logits_of(self(inputs), inputs)[None]

    def sample(self, n: int, seed: int = 0) -> Ensemble:
        """An ensemble of one, however many are wanted."""
        check_count(n)
        return Ensemble.of(self.module)


def as_posterior(model: nn.Module) -> Posterior:
    """`model` if it is a posterior, compiled or not, else the deterministic posterior of the network that it is."""
    model = uncompiled(model)
    return model if isinstance(model, Posterior) else Deterministic(model)
