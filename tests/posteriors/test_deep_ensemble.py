"""A deep ensemble: every network starts elsewhere, and is trained as if it were alone."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from calibrant import Ensemble
from calibrant.posteriors import DeepEnsemble


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))


def ensemble(size: int = 3) -> DeepEnsemble:
    torch.manual_seed(0)
    return DeepEnsemble(network(), size=size)


def mean_loss(logits: Tensor, y: Tensor) -> Tensor:
    """The mean over the networks, as in a training step."""
    return torch.stack([F.cross_entropy(own, y) for own in logits]).mean()


def batch(seed: int = 1) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(20, 4, generator=generator), torch.randint(3, (20,), generator=generator)


@pytest.mark.parametrize("size", [1, 3, 5])
def test_the_gradient_of_each_network_is_that_of_its_own_loss(size: int) -> None:
    q, (x, y) = ensemble(size), batch()
    alone = copy.deepcopy(q.networks())
    mean_loss(q.logits(x), y).backward()
    for own, other in zip(q.networks(), alone):
        F.cross_entropy(other(x), y).backward()
        for a, b in zip(own.parameters(), other.parameters()):
            torch.testing.assert_close(a.grad, b.grad)


def test_logits_of_classes_that_are_ruled_out_stay_infinite() -> None:
    class Masked(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x).masked_fill(torch.tensor([False, False, True]), -torch.inf)

    q, x = DeepEnsemble(Masked(4, 3), size=3), batch()[0]
    assert torch.equal(q.logits(x), torch.stack([one(x) for one in q.networks()]))
    mean_loss(q.logits(x), torch.zeros(20, dtype=torch.int64)).backward()
    assert all(bool(p.grad.isfinite().all()) for p in q.parameters() if p.grad is not None)


def test_gradients_of_gradients_and_transforms_of_functions_go_through() -> None:
    q, x = ensemble(2).eval(), batch()[0].requires_grad_()
    (gradient,) = torch.autograd.grad(q.logits(x).square().mean(), x, create_graph=True)
    gradient.square().sum().backward()
    assert x.grad is not None
    by_function = torch.func.grad(lambda inputs: q.logits(inputs).square().mean())(x.detach())
    torch.testing.assert_close(by_function, gradient.detach())


@pytest.mark.parametrize("kind", ["sgd", "adam"])
def test_trained_together_they_are_as_trained_one_by_one(kind: str) -> None:
    def optimizer(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        if kind == "adam":
            return torch.optim.Adam(parameters, lr=0.01)
        return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.01)

    q = ensemble(3).double()
    alone = copy.deepcopy(q.networks())
    together, separate = optimizer(list(q.parameters())), [optimizer(list(one.parameters())) for one in alone]
    for step in range(5):
        x, y = batch(step)
        together.zero_grad()
        mean_loss(q.logits(x.double()), y).backward()
        for parameters in q.clipped():
            nn.utils.clip_grad_norm_(parameters, 0.1)
        together.step()
        for one, own in zip(alone, separate):
            own.zero_grad()
            F.cross_entropy(one(x.double()), y).backward()
            nn.utils.clip_grad_norm_(one.parameters(), 0.1)
            own.step()
    for a, b in zip(q.networks(), alone):
        for name, value in b.state_dict().items():
            torch.testing.assert_close(a.state_dict()[name], value, rtol=1e-8, atol=1e-10)


def test_members_are_the_networks_in_their_order() -> None:
    q, (x, _) = ensemble(3).eval(), batch()
    assert q.kl() is None
    with torch.no_grad():
        logits = q.logits(x)
        assert not torch.equal(logits[0], logits[1])
        torch.testing.assert_close(q.sample(20, seed=4)(x), logits)
        torch.testing.assert_close(q.sample(2, seed=5)(x), logits[:2])
        seen = {tuple(q(x).flatten().tolist()) for _ in range(50)}
    assert seen == {tuple(own.flatten().tolist()) for own in logits}, "a call runs one of them, at random"


def test_fresh_networks_start_from_the_initialization_of_their_layers() -> None:
    torch.manual_seed(0)
    trained = nn.Sequential(nn.Linear(100, 200), nn.BatchNorm1d(200), nn.MultiheadAttention(200, 2))
    trained[1](torch.randn(50, 200) + 3)
    with torch.no_grad():
        for parameter in trained.parameters():
            parameter.add_(5.0)
    trained[0].bias.requires_grad_(False)
    first, second = DeepEnsemble(trained, size=3).others
    for other in (first, second):
        assert float(other[0].weight.detach().abs().max()) <= 0.1
        assert torch.equal(other[0].bias, trained[0].bias), "what is frozen is the same in all"
        assert not other[0].bias.requires_grad
        assert bool((other[1].running_mean == 0).all() and (other[1].weight == 1).all())
        assert float(other[2].in_proj_weight.detach().abs().max()) < 0.2
    assert not torch.equal(first[0].weight, second[0].weight)
    torch.manual_seed(7)
    again = DeepEnsemble(network()).others
    torch.manual_seed(7)
    assert torch.equal(again[3][0].weight, DeepEnsemble(network()).others[3][0].weight), "the seed says where"


def test_networks_near_a_trained_one_differ_a_little() -> None:
    torch.manual_seed(0)
    q = DeepEnsemble(network(), size=3, fresh=False)
    weights = [one[0].weight.detach() for one in q.networks()]  # type: ignore[index]
    for other in weights[1:]:
        assert float((other - weights[0]).std() / weights[0].std()) == pytest.approx(0.1, rel=0.5)
    assert not torch.equal(weights[1], weights[2])
    assert all(one.training and p.requires_grad for one in q.networks() for p in one.parameters())


def test_a_function_builds_the_others() -> None:
    asked: list[int] = []

    def build(k: int) -> nn.Module:
        asked.append(k)
        return nn.Linear(4, 3)

    q = DeepEnsemble(nn.Linear(4, 3), size=4, fresh=build)
    assert (asked, len(q.networks())) == ([1, 2, 3], 4)
    stacked = Ensemble.stack(q.networks())
    x = batch()[0]
    assert torch.equal(q.sample(4)(x), stacked(x))
    with pytest.raises(ValueError, match="fresh must build networks of the architecture of module"):
        DeepEnsemble(nn.Linear(4, 3), fresh=lambda k: nn.Linear(4, 2))


class Own(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale


def test_what_cannot_be_done_is_refused() -> None:
    with pytest.raises(ValueError, match=r"module has the layer 1, which has no reset_parameters\(\)"):
        DeepEnsemble(nn.Sequential(nn.Linear(4, 3), Own()))
    with pytest.raises(ValueError, match="size must be at least 1, not 0"):
        DeepEnsemble(network(), size=0)


def test_it_can_be_compiled() -> None:
    q, (x, y) = ensemble(2), batch()
    expected = copy.deepcopy(q)
    mean_loss(expected.logits(x), y).backward()
    mean_loss(torch.compile(q.logits, fullgraph=True, backend="aot_eager")(x), y).backward()
    for a, b in zip(q.parameters(), expected.parameters()):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-4, atol=1e-6)
