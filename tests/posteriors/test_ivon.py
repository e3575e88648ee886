"""IVON: its steps are those of the paper, and it finds posteriors that are known."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from compilers import FUSE
from torch import Tensor, nn
from torch.nn import functional as F

from calibrant import Objective
from calibrant.posteriors import IVON, TrainingContext

DOUBLE = torch.float64
Steps = list[tuple[Tensor, Tensor]]


def paper_steps(
    m: Tensor, std: float, steps: Steps, *, ess: float, delta: float, rate: float, b1: float, b2: float
) -> list[Tensor]:
    """Algorithm 1 of Shen et al. (2024), with h as it stands there: mean and variance after (gradient, noise)s."""
    h = torch.full_like(m, 1 / (ess * std**2) - delta)
    h0, g = h.clone(), torch.zeros_like(m)
    for t, (gradient, noise) in enumerate(steps, 1):
        sigma = 1 / (ess * (h + delta)).sqrt()
        theta = m + sigma * noise
        h_hat = gradient * (theta - m) / sigma**2
        g = b1 * g + (1 - b1) * gradient
        h = b2 * h + (1 - b2) * h_hat + 0.5 * (1 - b2) ** 2 * (h - h_hat) ** 2 / (h + delta)
        m = m - rate * (h0 + delta) / (1 - b1) * (g / (1 - b1**t) + delta * m) / (h + delta)
    return m, 1 / (ess * (h + delta))


def take_step(q: IVON, optimizer: torch.optim.Optimizer, gradient: Tensor, noise: Tensor) -> None:
    """One step of a posterior of one weight tensor, with a given gradient of theta and a given noise."""
    (mean,), (rho,) = q.module.parameters(), q.rho.parameters()
    mean.grad = gradient.clone()
    rho.grad = 0.5 * gradient * torch.exp(0.5 * rho.detach()) * noise
    optimizer.step()


def test_a_step_is_algorithm_1_of_the_paper() -> None:
    torch.manual_seed(0)
    module = nn.Linear(40, 1000, bias=False).double()  # of more than one block
    start = module.weight.detach().clone()
    q = IVON(module, ess=50.0, weight_decay=0.02, init_std=0.3, momentum=0.8, hessian_momentum=0.9)
    optimizer = q.optimizer(TrainingContext(rate=0.05))
    steps = [(torch.randn(1000, 40, dtype=DOUBLE), torch.randn(1000, 40, dtype=DOUBLE)) for _ in range(4)]
    for gradient, noise in steps:
        take_step(q, optimizer, gradient, noise)
    mean, variance = paper_steps(start, 0.3, steps, ess=50.0, delta=0.02, rate=0.05, b1=0.8, b2=0.9)
    torch.testing.assert_close(module.weight.detach(), mean, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(q.standard_deviations()["weight"].square(), variance, rtol=1e-10, atol=1e-12)


class Kept(nn.Module):
    """A linear layer that keeps the weight it ran with."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.ran_with = nn.Parameter(torch.randn(2, 3)), [torch.empty(0)]

    def forward(self, x: Tensor) -> Tensor:
        self.ran_with[0] = self.weight
        self.weight.retain_grad()
        return x @ self.weight.T


@pytest.mark.parametrize("blocks", [False, True])
@pytest.mark.parametrize("fuse", FUSE)
def test_the_gradient_of_rho_is_the_product_from_which_the_hessian_is_estimated(
    fuse: bool, blocks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if blocks:
        monkeypatch.setattr("calibrant.posteriors.reparametrization.BLOCKS_PAY", 0)
    torch.manual_seed(0)
    module = Kept()
    q = IVON(module, init_std=0.5, fuse=fuse)
    assert q.kl() is None
    q(torch.randn(7, 3)).pow(3).mean().backward()
    theta, rho = module.ran_with[0], q.rho["weight"]
    assert theta.grad is not None
    torch.testing.assert_close(module.weight.grad, theta.grad)
    torch.testing.assert_close(2 * rho.grad, theta.grad * (theta - module.weight).detach())


def test_the_optimum_of_the_elbo_is_where_the_expected_step_is_zero() -> None:
    """Linear regression with known noise: with expected gradients, neither mean nor variances move."""
    mean, variance, hessian = conjugate()
    q = IVON(nn.Linear(3, 1, bias=False).double(), weight_decay=PRIOR / N)
    optimizer = q.optimizer(TrainingContext(rate=0.1, num_data=N))
    with torch.no_grad():
        q.module.get_parameter("weight").copy_(mean)
        q.rho["weight"].copy_(variance.log())
    q.module.get_parameter("weight").grad = -PRIOR / N * mean[None]  # of the mean loss: the prior is not in it
    q.rho["weight"].grad = 0.5 * (hessian.diag() * variance)[None]
    optimizer.step()
    torch.testing.assert_close(q.module.get_parameter("weight")[0].detach(), mean, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(q.standard_deviations()["weight"][0].square(), variance, rtol=1e-12, atol=1e-12)


N, NOISE, PRIOR = 200, 0.5, 4.0  # examples, standard deviation of the labels, precision of the prior


def design() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    mixing = torch.tensor([[1.0, 0.5, 0.0], [0.0, 1.0, 0.3], [0.0, 0.0, 0.7]], dtype=DOUBLE)
    x = torch.randn(N, 3, generator=generator, dtype=DOUBLE) @ mixing
    return x, x @ x.new_tensor([1.0, -2.0, 0.5]) + NOISE * torch.randn(N, generator=generator, dtype=DOUBLE)


def conjugate() -> tuple[Tensor, Tensor, Tensor]:
    """The mean of the posterior, the variances of the best diagonal q, and the Hessian of the mean loss."""
    x, y = design()
    hessian = x.T @ x / NOISE**2 / N
    precision = N * hessian + PRIOR * torch.eye(3, dtype=DOUBLE)
    return torch.linalg.solve(precision, x.T @ y / NOISE**2), 1 / precision.diag(), hessian


def converged(loss_of: Callable[[Tensor], Tensor], std: float, rate: float) -> tuple[Tensor, Tensor]:
    """Mean and variances after training 100 posteriors at once, one in each row of a weight, averaged over them."""
    torch.manual_seed(0)
    module, x, steps = nn.Linear(3, 100, bias=False).double(), design()[0], 1000
    q = IVON(module, weight_decay=PRIOR / N, init_std=std)
    optimizer = q.optimizer(TrainingContext(rate=rate, num_data=N))
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = rate * (1 - step / steps)
            group["hessian_momentum"] = max(0.9, 1 - 4 / (step + 1))
        loss_of(q(x)).backward()
        optimizer.step()
        optimizer.zero_grad()
    return module.weight.detach().mean(0), 1 / q.rho["weight"].detach().neg().exp().mean(0)


def test_on_a_conjugate_gaussian_it_finds_the_exact_mean_and_variances() -> None:
    y = design()[1][:, None]
    mean, variance, _ = conjugate()
    found = converged(lambda output: (output - y).square().mean(0).sum() / (2 * NOISE**2), std=0.06, rate=0.03)
    torch.testing.assert_close(found[0], mean, rtol=0, atol=0.1 * float(variance.sqrt().min()))
    torch.testing.assert_close(found[1], variance, rtol=0.03, atol=0)


def best_diagonal(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The ELBO of logistic regression, maximized numerically over diagonal Gaussians: mean and variances."""
    from scipy.optimize import minimize

    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    weights = weights / weights.sum()

    def negative_elbo(parameters: np.ndarray) -> float:
        mean, log_variance = np.split(parameters, 2)
        logit = (x @ mean)[:, None] + np.sqrt(x**2 @ np.exp(log_variance))[:, None] * nodes
        likelihood = -np.logaddexp(0, -y[:, None] * logit) @ weights
        kl = 0.5 * (PRIOR * (np.exp(log_variance) + mean**2) - 1 - log_variance - np.log(PRIOR)).sum()
        return float(kl - likelihood.sum())

    solution = minimize(negative_elbo, np.r_[np.zeros(3), -4 * np.ones(3)], method="BFGS", options={"gtol": 1e-6})
    return solution.x[:3], np.exp(solution.x[3:])


def test_on_logistic_regression_it_finds_the_best_diagonal_gaussian() -> None:
    x, score = design()
    y = torch.where(score > 0.5, 1.0, -1.0).to(DOUBLE)
    mean, variance = map(torch.from_numpy, best_diagonal(x.numpy(), y.numpy()))
    found = converged(lambda output: F.softplus(-y[:, None] * output).mean(0).sum(), std=0.2, rate=0.5)
    torch.testing.assert_close(found[0], mean, rtol=0, atol=0.1 * float(variance.sqrt().min()))
    torch.testing.assert_close(found[1], variance, rtol=0.03, atol=0)


def test_the_effective_sample_size_is_the_number_of_examples_whatever_beta_is() -> None:
    q = IVON(nn.Linear(3, 2))
    by_beta = [q.optimizer(TrainingContext(rate=0.1, num_data=500, beta=beta)) for beta in (1.0, 0.00035)]
    assert [optimizer.param_groups[0]["ess"] for optimizer in by_beta] == [500, 500]
    assert IVON(nn.Linear(3, 2), ess=7.0).optimizer(TrainingContext(rate=0.1)).param_groups[0]["ess"] == 7.0
    with pytest.raises(ValueError, match="num_data must be the number of training examples"):
        q.optimizer(TrainingContext(rate=0.1))


def test_weight_decay_is_its_own_or_that_of_the_stage() -> None:
    def decay(own: float | None, stage: float) -> float:
        context = TrainingContext(rate=0.1, num_data=10, weight_decay=stage)
        return float(IVON(nn.Linear(3, 2), weight_decay=own).optimizer(context).param_groups[0]["weight_decay"])

    assert [decay(None, 0.0), decay(None, 0.01), decay(0.3, 0.01)] == [1e-4, 0.01, 0.3]


def test_the_variances_follow_over_the_whole_of_a_stage() -> None:
    def momentum(own: float | None, steps: int | None) -> float:
        context = TrainingContext(rate=0.1, num_data=10, steps=steps)
        return float(IVON(nn.Linear(3, 2), hessian_momentum=own).optimizer(context).param_groups[0]["hessian_momentum"])

    assert [momentum(None, 500), momentum(None, None), momentum(0.5, 1000), momentum(None, 1)] == [
        0.998,
        0.999,
        0.5,
        0.9,
    ]


def test_variances_stay_positive_and_finite_whatever_the_gradients_are() -> None:
    q = IVON(nn.Linear(4, 4, bias=False), hessian_momentum=0.5)
    optimizer = q.optimizer(TrainingContext(rate=1e-6, num_data=1000))
    for sign in (1, -1, -1, 1, -1):
        take_step(q, optimizer, torch.full((4, 4), 1e3), torch.full((4, 4), float(sign)))
        std = q.standard_deviations()["weight"]
        assert bool((std > 0).all() and std.isfinite().all())


def test_a_prior_around_the_first_weights_pulls_back_to_them() -> None:
    torch.manual_seed(0)
    module = nn.Linear(4, 2, bias=False)
    start = module.weight.detach().clone()
    q = IVON(module, prior_mean="init", weight_decay=0.5)
    optimizer = q.optimizer(TrainingContext(rate=0.05, num_data=100))
    zeros = torch.zeros(2, 4)
    take_step(q, optimizer, zeros, zeros)
    assert torch.equal(module.weight, start)
    with torch.no_grad():
        module.weight.add_(1.0)
    for _ in range(100):
        take_step(q, optimizer, zeros, zeros)
    torch.testing.assert_close(module.weight.detach(), start, rtol=0, atol=0.01)


def test_parameters_that_are_not_gaussian_are_trained_by_sgd_with_debiased_momentum() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8)).double()
    q, scale = IVON(module, momentum=0.7), module[1].weight
    optimizer = q.optimizer(TrainingContext(rate=0.1, num_data=100, weight_decay=0.01))
    expected, average = scale.detach().clone(), torch.zeros(8, dtype=DOUBLE)
    for step in range(1, 5):
        gradient = torch.randn(8, dtype=DOUBLE)
        scale.grad = gradient.clone()
        optimizer.step()
        average = 0.7 * average + 0.3 * gradient
        expected = expected - 0.1 / 0.3 * (average / (1 - 0.7**step) + 0.01 * expected)
    torch.testing.assert_close(scale.detach(), expected)


def test_clipping_leaves_the_estimate_of_the_hessian_alone() -> None:
    q = IVON(nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8)))
    (parameters,) = q.clipped()
    assert {id(p) for p in parameters} == {id(p) for p in q.module.parameters()}


def test_a_plain_loop_learns_and_its_optimizer_resumes() -> None:
    torch.manual_seed(0)
    x = torch.randn(256, 2)
    y, objective = (x[:, 0] * x[:, 1] > 0).long(), Objective(256)
    q = IVON(nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 2)), hessian_momentum=0.99)
    optimizer = q.optimizer(TrainingContext(rate=0.1, num_data=256))

    def train(q: IVON, optimizer: torch.optim.Optimizer, steps: int) -> None:
        for _ in range(steps):
            optimizer.zero_grad()
            objective(q(x), y, kl=q.kl())["loss"].backward()
            optimizer.step()

    before = q.standard_deviations()["0.weight"]
    train(q, optimizer, 200)
    assert float((q.sample(20).mean_probabilities(x).argmax(-1) == y).float().mean()) > 0.9
    assert float((q.standard_deviations()["0.weight"] / before).log().abs().mean()) > 0.1, "they move"
    other = copy.deepcopy(q)
    resumed = other.optimizer(TrainingContext(rate=0.1, num_data=256))
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for which, by in ((q, optimizer), (other, resumed)):
        torch.manual_seed(1)
        train(which, by, 3)
    assert all(torch.equal(a, b) for a, b in zip(q.state_dict().values(), other.state_dict().values()))


def test_members_differ_by_the_standard_deviations() -> None:
    q = IVON(nn.Linear(50, 40), init_std=0.2)
    stacked = q.sample(50, seed=3).stacked()["weight"]
    assert float((stacked - q.module.get_parameter("weight").detach()).std()) == pytest.approx(0.2, rel=0.02)
    assert torch.equal(q.sample(3, seed=3).stacked()["weight"], stacked[:3])


def test_it_trains_under_torch_compile() -> None:
    torch.manual_seed(0)
    q, x = IVON(nn.Linear(4, 3)), torch.randn(8, 4)
    optimizer, compiled = (
        q.optimizer(TrainingContext(rate=0.1, num_data=100)),
        torch.compile(q, fullgraph=True, backend="aot_eager"),
    )
    before = q.rho["weight"].detach().clone()
    compiled(x).square().mean().backward()
    optimizer.step()
    assert not torch.equal(q.rho["weight"], before)


def test_bad_arguments_are_refused() -> None:
    for name, value in (("ess", 0), ("weight_decay", -1.0), ("momentum", 1.0), ("hessian_momentum", math.nan)):
        with pytest.raises(ValueError, match=f"^{name} must"):
            IVON(nn.Linear(2, 2), **{name: value})  # type: ignore[arg-type]
    q = IVON(nn.Linear(2, 2))
    with pytest.raises(ValueError, match="closure must be None"):
        q.optimizer(TrainingContext(rate=0.1, num_data=10)).step(lambda: 0.0)
