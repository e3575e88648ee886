"""The step of IVON in C."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from compilers import needs_compiler
from torch import nn

from calibrant.posteriors import IVON, TrainingContext
from calibrant.posteriors.native.newton import native_step

pytestmark = needs_compiler
GROUP = {"hessian_momentum": 0.9, "momentum": 0.8, "ess": 50.0, "weight_decay": 0.02, "lr": 0.03, "reference": 0.1}


def tensors(n: int, seed: int = 0) -> dict[str, torch.Tensor]:
    draw = torch.Generator().manual_seed(seed)
    names = ("mean", "average", "rho", "gradient", "product")
    values = {name: torch.randn(n, generator=draw) for name in names}
    values["product"] *= 0.1
    return values


def stepped(values: dict[str, torch.Tensor], center: Any, steps: int = 3, **changes: float) -> list[torch.Tensor]:
    mean, average, rho = (values[name].clone() for name in ("mean", "average", "rho"))
    mean.grad, rho.grad = values["gradient"], values["product"]
    native_step(mean, average, rho, center, steps, {**GROUP, **changes})
    return [mean, average, rho]


@pytest.mark.parametrize("n", [1, 1024, 40_001])
@pytest.mark.parametrize("centered", [False, True])
def test_the_algorithm_as_the_paper_has_it(n: int, centered: bool) -> None:
    """Shen et al. 2024, Algorithm 1, with the Hessian h in place of log variances, in float64."""
    values = tensors(n)
    center = torch.randn(n) if centered else 0.3
    m, g, rho, gradient, product = (value.double() for value in values.values())
    m0 = center.double() if isinstance(center, torch.Tensor) else center
    b1, b2, ess, delta, rate = (
        0.8,
        0.9,
        50.0,
        0.02,
        0.03 / (1 - 0.8) / 0.1 / 50.0,
    )  # steps times s^2 = 1 / (ess (h + delta))
    h = 1 / (ess * rho.exp()) - delta
    estimate = 2 * product / rho.exp()
    g = b1 * g + (1 - b1) * gradient
    h = b2 * h + (1 - b2) * estimate + 0.5 * (1 - b2) ** 2 * (h - estimate) ** 2 / (h + delta)
    m = m - rate * (g / (1 - b1**3) + delta * (m - m0)) / (h + delta)
    for ours, expected in zip(stepped(values, center), (m, g, -torch.log(ess * (h + delta)))):
        torch.testing.assert_close(ours.double(), expected, rtol=1e-5, atol=2e-6)


def test_small_changes_of_the_variance_are_kept() -> None:
    values = tensors(1000)
    values["rho"].zero_()
    _, _, rho = stepped(values, 0.0, hessian_momentum=1 - 1e-6)
    x = 1e-6 * (2 * 50.0 * values["product"].double() + 50.0 * 0.02 - 1)
    torch.testing.assert_close(rho.double(), -torch.log1p(x + 0.5 * x**2), rtol=1e-5, atol=1e-12)


def test_what_is_not_finite_stays_so() -> None:
    values = tensors(3)
    values["product"][:2] = torch.tensor([float("nan"), float("inf")])
    mean, _, rho = stepped(values, 0.0)
    assert rho.isfinite().tolist() == [False, False, True]
    assert mean.isnan().tolist() == [True, False, False]


def test_the_result_does_not_depend_on_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    values = tensors(300_001)
    expected = stepped(values, 0.0)
    monkeypatch.setattr("torch.get_num_threads", lambda: 3)
    assert all(map(torch.equal, stepped(values, 0.0), expected))
    monkeypatch.setattr("calibrant.posteriors.native.kernel_arguments.parallel", lambda: None)
    assert all(map(torch.equal, stepped(values, 0.0), expected))


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_the_optimizer_takes_the_same_steps_with_and_without(layout: torch.memory_format) -> None:
    weights = []
    for fuse in (False, None):
        torch.manual_seed(0)
        q = IVON(nn.Conv2d(4, 8, 3).to(memory_format=layout), prior_mean="init", fuse=fuse)
        optimizer = q.optimizer(TrainingContext(rate=0.1, num_data=100))
        before = [parameter._version for parameter in q.parameters()]
        for seed in range(3):
            for parameter in q.parameters():
                drawn = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(seed))
                parameter.grad = torch.empty_like(parameter).copy_(0.01 * drawn)
            optimizer.step()
        assert all(parameter._version > old for parameter, old in zip(q.parameters(), before))
        weights.append([parameter.detach().clone() for parameter in q.parameters()])
    for with_kernel, without in zip(*weights):
        torch.testing.assert_close(with_kernel, without, rtol=1e-5, atol=1e-6)
        assert with_kernel.stride() == without.stride()
