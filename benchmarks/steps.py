"""What a training step of the default posterior costs: the MLP 784-1200-1200-10 at batch 64, where parameters dominate.

For the steps without the kernel the `mlp-64` stands beside it, where the number of operations does.

Every configuration of threads and allocator is a process of its own, `python -m benchmarks.steps THREADS ROUNDS`, in
which all steps are timed in turns. With one thread the clock counts processor time; with several it is the clock on the
wall, so that the machine should be idle, and the ratio of processor times stands beside it.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from benchmarks.measure import Row
from calibrant.backbones import MLP, build
from calibrant.posteriors.base import TrainingContext
from calibrant.posteriors.ivon import IVON
from calibrant.posteriors.mean_field import MeanField
from calibrant.posteriors.reparametrization import draw, gaussian_kl

ALLOCATOR = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_")  # what `make bench` sets
Step = Callable[[], None]


def steps(make: Callable[[], nn.Module], x: Tensor, y: Tensor, *, fuse: bool | None = None) -> tuple[Step, Step]:
    """A Bayesian step (draw, forward, KL, backward) and a deterministic one (forward, backward)."""
    q, net = MeanField(make(), fuse=fuse), make()

    def deterministic() -> None:
        net.zero_grad()
        F.cross_entropy(net(x), y).backward()

    return _variational(q, q.kl, x, y), deterministic


def autograd_step(module: nn.Module, x: Tensor, y: Tensor) -> Step:
    """A Bayesian step written down in PyTorch: a draw by `normal_` and the KL term, both differentiated by autograd."""
    q = MeanField(module, prior_std=0.03)
    means = dict(module.named_parameters())
    rhos = dict(zip(means, q.rho.parameters()))

    def kl() -> Tensor:
        return torch.stack([gaussian_kl(mean, rhos[name], 0.0, 0.03) for name, mean in means.items()]).sum()

    def logits(x: Tensor) -> Tensor:
        output: Tensor = functional_call(module, {name: draw(mean, rhos[name]) for name, mean in means.items()}, x)
        return output

    return _variational(q, kl, x, y, logits)


def trainings(make: Callable[[], nn.Module], x: Tensor, y: Tensor, *, fuse: bool | None = None) -> tuple[Step, Step]:
    """A step of IVON and one of SGD with momentum, both with the step of the optimizer."""
    q, net = IVON(make(), fuse=fuse), make()
    pairs = (q, q.optimizer(TrainingContext(rate=1e-4, num_data=50_000)))
    plain = (net, torch.optim.SGD(net.parameters(), lr=1e-4, momentum=0.9))

    def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()

    return lambda: step(*pairs), lambda: step(*plain)


def _variational(
    model: nn.Module, kl: Callable[[], Tensor], x: Tensor, y: Tensor, logits: Callable[[Tensor], Tensor] | None = None
) -> Step:
    def step() -> None:
        model.zero_grad()
        loss = F.cross_entropy((logits or model)(x), y)
        (loss + 1e-8 * kl()).backward()

    return step


def _torchbnn(x: Tensor, y: Tensor) -> Step:
    import torchbnn

    sizes = (784, 1200, 1200, 10)
    layers = [torchbnn.BayesLinear(0, 0.03, i, o) for i, o in pairwise(sizes)]
    model = nn.Sequential(layers[0], nn.ReLU(), layers[1], nn.ReLU(), layers[2])
    divergence = torchbnn.BKLLoss(reduction="sum")
    return _variational(model, lambda: divergence(model).sum(), x, y)


def _bayesian_torch(x: Tensor, y: Tensor) -> Step:
    from bayesian_torch.models.dnn_to_bnn import dnn_to_bnn, get_kl_loss

    prior = {"prior_mu": 0.0, "prior_sigma": 0.03, "posterior_mu_init": 0.0, "posterior_rho_init": -3.5}
    model = MLP(784, 10, hidden=(1200, 1200))
    dnn_to_bnn(model, {**prior, "type": "Reparameterization", "moped_enable": False})
    return _variational(model, lambda: get_kl_loss(model), x, y)


def _measure(threads: int, rounds: int) -> dict[str, tuple[float, float]]:
    """The best wall and processor times of each step, in seconds."""
    torch.set_num_threads(threads)
    x, y = torch.randn(64, 784), torch.randint(10, (64,))

    def make() -> nn.Module:
        return MLP(784, 10, hidden=(1200, 1200))

    def small() -> nn.Module:
        return build("mlp-64", (1, 8, 8), 10)

    works: dict[str, Step] = {}
    works["ours"], works["plain"] = steps(make, x, y)
    works["no kernel"], _ = steps(make, x, y, fuse=False)
    works["autograd"] = autograd_step(make(), x, y)
    works["ivon"], works["sgd"] = trainings(make, x, y)
    works["ivon, no kernel"], _ = trainings(make, x, y, fuse=False)
    pixels = torch.rand(64, 1, 8, 8)
    peers = {"torchbnn": _torchbnn, "bayesian_torch": _bayesian_torch}
    works |= {name: peer(x, y) for name, peer in peers.items() if importlib.util.find_spec(name)}
    pixels, few = torch.rand(64, 1, 8, 8), dict[str, Step]()
    few["mlp-64, no kernel"], _ = steps(small, pixels, y, fuse=False)
    few["mlp-64, autograd"] = autograd_step(small(), pixels, y)
    return {**_in_turns(works, rounds), **_in_turns(few, 5 * rounds)}


def _in_turns(works: dict[str, Step], rounds: int) -> dict[str, tuple[float, float]]:
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in works}
    for turn in range(rounds + 2):
        for name, work in works.items():
            before = time.perf_counter(), time.process_time()
            work()
            if turn > 1:
                times[name].append((time.perf_counter() - before[0], time.process_time() - before[1]))
    return {name: (min(t for t, _ in taken), min(t for _, t in taken)) for name, taken in times.items()}


def _elsewhere(threads: int, rounds: int, allocator: bool) -> dict[str, tuple[float, float]]:
    environment = {name: value for name, value in os.environ.items() if allocator or name not in ALLOCATOR}
    environment |= {"OMP_NUM_THREADS": str(threads)}
    command = [sys.executable, "-m", "benchmarks.steps", str(threads), str(rounds)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    measured: dict[str, tuple[float, float]] = json.loads(done.stdout.splitlines()[-1])
    return measured


def rows() -> Iterator[Row]:
    """The rows of this file; those of other libraries where they are installed."""
    rounds = int(os.environ.get("ROUNDS", "100"))
    tuned = all(name in os.environ for name in ALLOCATOR)
    pairs = [
        ("ours", "plain", "mean-field step / deterministic", 1.9),
        ("no kernel", "plain", "mean-field step without the kernel / deterministic", None),
        ("no kernel", "autograd", "mean-field step without the kernel / plain autograd", 1.0),
        ("mlp-64, no kernel", "mlp-64, autograd", "mean-field step without the kernel / plain autograd", 1.05),
        ("ours", "torchbnn", "mean-field step / torchbnn's", 1.0),
        ("ours", "bayesian_torch", "mean-field step / bayesian-torch's", 1.0),
        ("ivon", "sgd", "IVON step / SGD step", 2.0),
        ("ivon, no kernel", "sgd", "IVON step without the kernel / SGD step", None),
    ]
    for threads in (1, 2):
        for allocator in (True, False) if tuned else (False,):
            times = _elsewhere(threads, rounds, allocator)
            where = f"{threads} thread{'s'[: threads - 1]}{', allocator of make bench' if allocator else ''}"
            for one, other, what, goal in pairs:
                if one not in times or other not in times:
                    continue
                (wall, processor), (wall_of_other, of_other) = times[one], times[other]
                a, b = (processor, of_other) if threads == 1 else (wall, wall_of_other)
                detail = f"{1e3 * a:.3g} ms / {1e3 * b:.3g} ms"
                detail += "" if threads == 1 else f"; processor time {processor / of_other:.2f}"
                network = "mlp-64" if one.startswith("mlp-64") else "MLP"
                yield Row(f"{what}, {network}, {where}", a / b, goal, "lower", detail)


if __name__ == "__main__":
    print(json.dumps(_measure(int(sys.argv[1]), int(sys.argv[2]))))
