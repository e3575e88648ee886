"""The posterior under DistributedDataParallel, in two real processes."""

from __future__ import annotations

import os
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from calibrant.losses.objective import Objective
from calibrant.posteriors.base import TrainingContext
from calibrant.posteriors.ivon import IVON
from calibrant.posteriors.mean_field import MeanField


def posterior() -> MeanField:
    torch.manual_seed(7)
    return MeanField(nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)), init_std=0.1)


def step(q: MeanField, model: nn.Module, rank: int) -> list[torch.Tensor]:
    """One step on the batch and the noise of `rank`: the gradients."""
    generator = torch.Generator().manual_seed(rank)
    x, y = torch.randn(6, 4, generator=generator), torch.randint(3, (6,), generator=generator)
    torch.manual_seed(100 + rank)
    Objective(100, beta=1.0)(model(x), y, kl=q.kl())["loss"].backward()
    return [p.grad for p in q.parameters() if p.grad is not None]


def newton() -> IVON:
    torch.manual_seed(8)
    return IVON(nn.Linear(4, 3, bias=False), init_std=0.1, hessian_momentum=0.9)


def newton_gradients(q: IVON, model: nn.Module, rank: int) -> list[torch.Tensor]:
    """The gradients of mean and log variances on the batch and the noise of `rank`."""
    torch.manual_seed(200 + rank)
    model(torch.randn(6, 4)).square().mean().backward()
    return [p.grad for p in (q.module.get_parameter("weight"), q.rho["weight"]) if p.grad is not None]


def newton_step(q: IVON) -> torch.Tensor:
    """The log variances after a step from the gradients that q has."""
    q.optimizer(TrainingContext(rate=0.1, num_data=100)).step()
    return q.rho["weight"].detach()


def worker(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
    q = posterior()
    torch.save(step(q, DistributedDataParallel(q), rank), f"{folder}/{rank}.pt")
    q_newton = newton()
    newton_gradients(q_newton, DistributedDataParallel(q_newton), rank)
    torch.save(newton_step(q_newton), f"{folder}/newton{rank}.pt")
    dist.barrier()
    # Not by way of the interpreter's shutdown, in which gloo's threads are now and then still alive, and abort.
    os._exit(0)


def alone_on(rank: int) -> list[torch.Tensor]:
    q = posterior()
    return step(q, q, rank)


def test_gradients_agree_across_ranks_and_kl_is_counted_once(tmp_path: Path) -> None:
    mp.spawn(worker, (str(tmp_path),), nprocs=2)
    first, second = (torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in range(2))
    alone = [alone_on(rank) for rank in range(2)]
    assert len(first) == len(alone[0]) == len(list(posterior().parameters()))
    for a, b, x, y in zip(first, second, *alone):
        torch.testing.assert_close(a, b, rtol=0, atol=0)
        # Each rank's own gradient holds the whole KL term; their mean therefore holds it once.
        torch.testing.assert_close(a, (x + y) / 2)
    # The products with each rank's own noise are averaged, not the gradients that are multiplied.
    of_ranks = [torch.load(tmp_path / f"newton{rank}.pt", weights_only=True) for rank in range(2)]
    assert torch.equal(*of_ranks)
    q = newton()
    alone = [newton_gradients(other, other, rank) for rank in range(2) for other in [newton()]]
    q.module.get_parameter("weight").grad = (alone[0][0] + alone[1][0]) / 2
    q.rho["weight"].grad = (alone[0][1] + alone[1][1]) / 2
    torch.testing.assert_close(of_ranks[0], newton_step(q))
