"""The Laplace approximation of the last layer, against autograd, brute force and laplace-torch."""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from calibrant.deploy import Predictor, load
from calibrant.posteriors import Laplace
from calibrant.posteriors.laplace import best_precision


def network(classes: int = 3, *, bias: bool = True) -> nn.Sequential:
    torch.manual_seed(0)
    layers = (nn.Linear(4, 6), nn.Tanh(), nn.Dropout(0.3), nn.Linear(6, classes, bias=bias))
    return nn.Sequential(*layers).double()


def inputs(n: int = 40) -> Tensor:
    return torch.randn(n, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def exact_hessian(module: nn.Sequential, x: Tensor) -> Tensor:
    """Of the summed cross-entropy in the last layer's weights (C, D + 1), by autograd; labels do not matter."""
    head = module[-1]
    phi = module.eval()[:-1](x).detach()
    phi = phi if head.bias is None else F.pad(phi, (0, 1), value=1.0)
    weights = head.weight if head.bias is None else torch.cat([head.weight, head.bias[:, None]], 1)
    labels = torch.arange(len(x)) % max(len(weights), 2)

    def loss(flat: Tensor) -> Tensor:
        logits = phi @ flat.view_as(weights).T
        logits = logits if logits.shape[1] > 1 else torch.cat([torch.zeros_like(logits), logits], 1)
        return F.cross_entropy(logits, labels, reduction="sum")

    return torch.func.hessian(loss)(weights.detach().flatten())


@pytest.mark.parametrize("classes", [1, 2, 5])
@pytest.mark.parametrize("bias", [True, False])
def test_the_full_covariance_is_the_inverse_of_the_exact_hessian(classes: int, bias: bool) -> None:
    module, x = network(classes, bias=bias), inputs()
    q = Laplace(module, prior_precision=0.7).train()
    q.finish([(x[:15], None), x[15:]])
    assert module.training
    hessian = exact_hessian(module, x)
    torch.testing.assert_close(q.covariance(), torch.linalg.inv(hessian + 0.7 * torch.eye(len(hessian))))


def test_the_kronecker_factors_are_exact_where_all_inputs_are_alike_and_in_general_as_defined() -> None:
    module, x = network(), inputs()
    same = x[:1].expand(40, 4)
    full, kronecker = (Laplace(module, prior_precision=0.5, hessian=kind) for kind in ("full", "kronecker"))
    for q in (full, kronecker):
        q.finish([same])
    torch.testing.assert_close(kronecker.covariance(), full.covariance())
    kronecker.finish(x.split(7))
    phi = F.pad(module.eval()[:-1](x).detach(), (0, 1), value=1.0)
    p = module(x).softmax(-1).detach()
    spread = sum(p_n.diag() - torch.outer(p_n, p_n) for p_n in p)
    hessian = torch.kron(spread, phi.T @ phi) / 40
    torch.testing.assert_close(kronecker.covariance(), torch.linalg.inv(hessian + 0.5 * torch.eye(21)))


def by_laplace_torch(module: nn.Module, x: Tensor, kind: str) -> Any:
    oracle = pytest.importorskip("laplace")
    y = torch.arange(len(x)) % 3
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = oracle.Laplace(
            module, "classification", subset_of_weights="last_layer", hessian_structure=kind, prior_precision=1.0
        )
        found.fit(DataLoader(TensorDataset(x, y), batch_size=16))
    return found


@pytest.mark.parametrize("kind", ["full", "kron"])
def test_covariance_and_marginal_likelihood_are_those_of_laplace_torch(kind: str) -> None:
    module, x = network(bias=kind == "full"), inputs()
    q = Laplace(module, hessian="full" if kind == "full" else "kronecker")
    q.finish([x])
    delta = q.precision.clone()
    oracle = by_laplace_torch(module.eval(), x, kind)
    likelihood = [float(oracle.log_marginal_likelihood(prior_precision=delta * factor)) for factor in (0.97, 1, 1.03)]
    assert max(likelihood) == likelihood[1]
    oracle.prior_precision = delta
    if kind == "full":
        order = torch.cat([torch.arange(18).view(3, 6), torch.arange(18, 21)[:, None]], 1).flatten()
        expected = oracle.posterior_covariance[order][:, order]
    else:
        expected = oracle.posterior_precision.to_matrix(exponent=-1)
    torch.testing.assert_close(q.covariance(), expected.double(), rtol=1e-5, atol=1e-8)


# By laplace-torch 0.3, for the problem below: the precision of the prior where its log_marginal_likelihood is largest,
# and at this precision the variances of the weights (and biases) and the log determinant of the covariance.
FULL = [0.959423, 0.923368, 0.729121, 0.991751, 0.957494, 0.757984, 1.153855, 1.221473, 0.806669]
KRONECKER = [0.750615, 0.875412, 0.758420, 0.885630, 0.898989, 1.069641]


@pytest.mark.parametrize(
    ("kind", "bias", "precision", "variances", "logdet"),
    [("full", True, 0.641363, FULL, -3.894560), ("kronecker", False, 0.639302, KRONECKER, -3.223635)],
)
def test_the_posterior_is_what_laplace_torch_found(
    kind: Any, bias: bool, precision: float, variances: list[float], logdet: float
) -> None:
    module = nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 3, bias=bias)).double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_((1.7 * torch.arange(1, parameter.numel() + 1).double().square()).sin().view_as(parameter))
    q = Laplace(module, hessian=kind)
    q.finish([(0.3 * torch.arange(60).double().square()).cos().view(30, 2)])
    assert float(q.precision) == pytest.approx(precision, rel=1e-5)
    assert q.covariance().diagonal().tolist() == pytest.approx(variances, rel=1e-5)
    assert float(q.covariance().logdet()) == pytest.approx(logdet, rel=1e-5)


def test_the_precision_maximizes_the_marginal_likelihood_by_brute_force() -> None:
    torch.manual_seed(3)
    eigenvalues, weights = torch.rand(30).double() ** 6 * 100, torch.randn(30).double()
    grid = torch.logspace(-4, 4, 40_001).double()
    evidence = -grid * weights.square().sum() / 2 + (grid[:, None] / (grid[:, None] + eigenvalues)).log().sum(1) / 2
    torch.testing.assert_close(best_precision(eigenvalues, weights), grid[evidence.argmax()], rtol=1e-3, atol=0)


def test_the_precision_is_the_known_one_of_a_gaussian_mean() -> None:
    """n observations of N(w, 1) with mean m: m ~ N(0, 1 / delta + 1 / n), and w* = m n / (n + delta)."""
    m, n = torch.tensor([0.8]).double(), torch.tensor([50.0]).double()
    delta = 1 / (m.square() - 1 / n)
    torch.testing.assert_close(best_precision(n, m * n / (n + delta)), delta[0])


@pytest.mark.parametrize("kind", ["full", "kronecker"])
def test_members_have_the_covariance_and_share_the_trunk(kind: Any) -> None:
    module, x, n = network(2), inputs(), 3000
    q = Laplace(module, hessian=kind)
    q.finish([x])
    ensemble = q.sample(n, seed=4)
    assert list(ensemble.stacked()) == ["3.weight", "3.bias"]
    stacked = ensemble.stacked()
    drawn = torch.cat([stacked["3.weight"], stacked["3.bias"][..., None]], -1).flatten(1)
    unit = q.covariance().diagonal().sqrt()
    error = (torch.cov(drawn.T) - q.covariance()) / torch.outer(unit, unit)
    assert float(error.abs().max()) < 6 / math.sqrt(n) * math.sqrt(2)
    mean = torch.cat([module[3].weight, module[3].bias[:, None]], 1).detach().flatten()
    assert float(((drawn.mean(0) - mean) / unit).abs().max()) < 5 / math.sqrt(n)
    assert torch.equal(q.sample(3, seed=4).stacked()["3.weight"], stacked["3.weight"][:3])
    assert not torch.equal(q.sample(3, seed=5).stacked()["3.weight"], stacked["3.weight"][:3])


@torch.no_grad()
def test_before_it_is_fitted_all_members_are_the_network() -> None:
    q, x = Laplace(network()), inputs(5)
    logits = q.sample(2)(x)
    torch.testing.assert_close(logits[1], q.eval()(x))
    assert q.kl() is None
    assert q.logits(x, 4).shape == (1, 5, 3)


def test_large_layers_have_kronecker_factors() -> None:
    q = Laplace(nn.Linear(300, 10))
    assert q.hessian == "kronecker"
    assert [tuple(basis.shape) for basis in q.bases] == [(10, 10), (301, 301)]
    q.finish([torch.randn(20, 300)])
    assert q.sample(2)(torch.randn(3, 300)).shape == (2, 3, 10)
    assert all(not parameter.requires_grad for parameter in (*q.bases, q.std))


class Unordered(nn.Module):
    """The layer that gives the logits is defined before another one, and log-probabilities are returned."""

    def __init__(self) -> None:
        super().__init__()
        self.head, self.trunk = nn.Linear(5, 3), nn.Linear(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.trunk(x).relu()).log_softmax(-1)
        return logits


def test_the_layer_can_be_named_and_must_give_the_logits() -> None:
    x = inputs().float()
    with pytest.raises(ValueError, match="'trunk' does not give the logits of the module; name the linear layer"):
        Laplace(Unordered()).finish([x])
    q = Laplace(nn.Sequential(Unordered()), layer="head")
    q.finish([x])
    assert list(q.sample(2).stacked()) == ["0.head.weight", "0.head.bias"]


def test_what_cannot_be_fitted_is_refused_in_one_sentence() -> None:
    with pytest.raises(ValueError, match=r"has no nn\.Linear"):
        Laplace(nn.Conv2d(1, 2, 3))
    with pytest.raises(ValueError, match="layer 'nowhere' is not a linear layer of the module; it has 0, 3"):
        Laplace(network(), layer="nowhere")
    with pytest.raises(ValueError, match="hessian must be full, kronecker or null"):
        Laplace(network(), hessian="diag")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="prior_precision must be"):
        Laplace(network(), prior_precision=0.0)
    with pytest.raises(ValueError, match="batches must hold the training examples"):
        Laplace(network()).finish([])


def test_a_last_layer_without_weights_of_its_own_is_refused() -> None:
    tied = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    tied[2].weight = tied[0].weight
    with pytest.raises(ValueError, match="the layer '2' shares a parameter with '0', so it cannot be drawn by itself"):
        Laplace(tied)
    tied[2].weight = nn.Parameter(tied[0].weight.detach().clone())
    assert Laplace(tied).sample(2)(torch.randn(5, 4)).shape == (2, 5, 4)
    normed = nn.Sequential(nn.Linear(4, 4), nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)))
    with pytest.raises(ValueError, match="the layer '1' computes its weight from other parameters"):
        Laplace(normed)
    nn.utils.parametrize.remove_parametrizations(normed[1], "weight")
    q = Laplace(normed)
    q.finish([torch.randn(20, 4)])
    logits = q.sample(2)(torch.randn(5, 4))
    assert not torch.equal(logits[0], logits[1])


@torch.no_grad()
@pytest.mark.parametrize("classes", [1, 3])
def test_saved_and_exported_it_decides_the_same(tmp_path: Path, classes: int) -> None:
    q, x = Laplace(network(classes).float()), inputs(8).float()
    q.finish([x])
    predictor = Predictor(q.sample(3), threshold=0.5)
    decision = predictor(x)
    found = load(predictor.save(tmp_path / "folder"), module=network(classes).float())
    assert torch.equal(found(x).probabilities, decision.probabilities)
    predictor.export(tmp_path / "p.pt2", x)
    torch.testing.assert_close(torch.export.load(tmp_path / "p.pt2").module()(x)[2], decision.probabilities)
