from __future__ import annotations

import copy
import math
from itertools import pairwise

import pytest
import torch
from compilers import FUSE
from modules import convolutional, examples
from sklearn.datasets import load_digits
from torch import nn
from torch.distributions import Normal, kl_divergence
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import checkpoint

from calibrant.posteriors.mean_field import MeanField
from calibrant.posteriors.reparametrization import gaussian_kl

KINDS = sorted(examples())


def gradients(q: MeanField) -> dict[str, torch.Tensor | None]:
    return {name: parameter.grad for name, parameter in q.named_parameters()}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_mean_and_every_rho_of_every_kind_of_module_is_trained(kind: str, dtype: torch.dtype) -> None:
    module, x = examples()[kind]
    q = MeanField(module, init_std=0.1).to(dtype)
    x = x.to(dtype) if x.is_floating_point() else x
    assert not torch.equal(q(x), q(x))
    q.eval()
    assert not torch.equal(q(x), q(x)), "drawing must not depend on train() or eval()"
    q.train()(x).square().sum().backward()
    for name, gradient in gradients(q).items():
        assert gradient is not None, name
        # The key bias of attention cancels in its softmax; rows of an embedding that no token names have no gradient.
        touched = (
            gradient[gradient.shape[0] // 3 * 2 :] if name.endswith(("in_proj_bias", "in_proj_bias/")) else gradient
        )
        assert (touched != 0).any(), name


@pytest.mark.parametrize("kind", KINDS)
def test_twice_the_parameters_for_what_is_bayesian_and_no_buffers(kind: str) -> None:
    module, _ = examples()[kind]
    total, buffers = sum(p.numel() for p in module.parameters()), sum(b.numel() for b in module.buffers())
    normalization = sum(
        p.numel() for m in module.modules() if isinstance(m, (nn.BatchNorm2d, nn.LayerNorm)) for p in m.parameters()
    )
    q = MeanField(module)
    assert sum(p.numel() for p in q.parameters()) == 2 * total - normalization
    assert sum(b.numel() for b in q.buffers()) == buffers
    centered = MeanField(examples()[kind][0], prior_mean="init")
    assert sum(b.numel() for b in centered.buffers()) == buffers + total - normalization


def test_the_draw_has_the_stated_mean_and_covariance() -> None:
    layer = nn.Linear(1, 1, bias=False)
    nn.init.constant_(layer.weight, 2.0)
    q = MeanField(layer, init_std=0.5)
    draws = torch.cat([q(torch.ones(1, 1)).detach() for _ in range(4000)])
    assert draws.mean().item() == pytest.approx(2.0, abs=4 * 0.5 / math.sqrt(4000))
    assert draws.var().item() == pytest.approx(math.exp(2 * math.log(0.5)), rel=4 * math.sqrt(2 / 4000))


@pytest.fixture
def in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the kernels, small tensors are drawn in blocks, too."""
    monkeypatch.setattr("calibrant.posteriors.reparametrization.BLOCKS_PAY", 0)


@pytest.mark.parametrize(("sizes", "plain"), [((400, 400), False), ((200, 200), True), ((2, 400, 300), True)])
def test_without_the_kernels_small_tensors_are_drawn_by_plain_operations(sizes: tuple[int, ...], plain: bool) -> None:
    """On average over all tensors: two of 160,400 numbers are large, four of 121,500 small."""
    module = nn.Sequential(*(nn.Linear(i, o) for i, o in pairwise(sizes)))
    q = MeanField(module, fuse=False)
    q(torch.ones(1, sizes[0]))
    assert (q._kl_of_draw is None) == plain
    assert torch.isfinite(q.kl())


@pytest.mark.parametrize("prior_mean", [0.0, 0.3, "init"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.usefixtures("in_blocks")
def test_kl_equals_torch_distributions_with_and_without_a_draw(prior_mean: float | str, dtype: torch.dtype) -> None:
    q = MeanField(nn.Linear(300, 300), prior_std=0.2, prior_mean=prior_mean, init_std=0.05).to(dtype)
    with torch.no_grad():
        for p in q.parameters():
            p.add_(0.1 * torch.randn_like(p))
    expected = torch.zeros((), dtype=torch.float64)
    for name, mean in q.module.named_parameters():
        center = q.get_buffer(f"prior_mean/{name}") if prior_mean == "init" else torch.tensor(float(prior_mean))
        std = torch.exp(0.5 * q.rho[name].double())
        expected += kl_divergence(Normal(mean.double(), std), Normal(center.double(), torch.tensor(0.2).double())).sum()
    assert q.kl().item() == pytest.approx(expected.item(), rel=1e-5)
    q(torch.randn(2, 300, dtype=dtype))
    assert q.kl().item() == pytest.approx(expected.item(), rel=1e-5)


def test_kl_is_zero_exactly_where_q_is_the_prior() -> None:
    q = MeanField(nn.Linear(50, 50), prior_std=0.1, init_std=0.1, prior_mean="init")
    assert q.kl().item() == 0.0
    q.kl().backward()
    assert all(g is not None and g.abs().max() < 1e-6 for g in gradients(q).values())


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("fuse", FUSE)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("prior_mean", [0.0, 0.3, "init"])
@pytest.mark.usefixtures("in_blocks")
def test_gradients_equal_those_of_plain_operations(
    prior_mean: float | str, fuse: bool, dtype: torch.dtype, layout: torch.memory_format
) -> None:
    """The noise is recovered from the draw itself, so that autograd can differentiate the printed formulas."""
    q = MeanField(nn.Conv2d(70, 100, 3), prior_std=0.3, prior_mean=prior_mean, init_std=0.1, fuse=fuse).to(dtype)
    q = q.to(memory_format=layout)
    with torch.no_grad():
        for p in q.parameters():
            p.add_(0.1 * torch.randn_like(p))
    drawn: dict[str, torch.Tensor] = {}
    q.module.register_forward_pre_hook(lambda m, _: drawn.update(weight=m.weight.detach(), bias=m.bias.detach()))
    x = torch.randn(2, 70, 4, 4, dtype=dtype)
    (q(x).sin().sum() + 0.7 * q.kl()).backward()
    assert drawn["weight"].is_contiguous(memory_format=layout), "what was laid out for speed stays so"

    means = {n: p.detach().double().requires_grad_() for n, p in q.module.named_parameters()}
    rhos = {n: q.rho[n].detach().double().requires_grad_() for n in means}
    noise = {n: (drawn[n].double() - means[n].detach()) / torch.exp(0.5 * rhos[n].detach()) for n in means}
    theta = {n: means[n] + torch.exp(0.5 * rhos[n]) * noise[n] for n in means}
    loss = torch.conv2d(x.double(), theta["weight"], theta["bias"]).sin().sum()
    for n in means:
        center = q.get_buffer(f"prior_mean/{n}").double() if prior_mean == "init" else float(prior_mean)
        loss = loss + 0.7 * gaussian_kl(means[n], rhos[n], center, 0.3)
    loss.backward()
    tolerance = {} if dtype == torch.float64 else {"rtol": 1e-4, "atol": 1e-4}
    for n in means:
        torch.testing.assert_close(q.module.get_parameter(n).grad.double(), means[n].grad, **tolerance)
        torch.testing.assert_close(q.rho[n].grad.double(), rhos[n].grad, **tolerance)


@pytest.mark.parametrize("blocks", [False, True])
@pytest.mark.parametrize("fuse", FUSE)
def test_the_kl_can_be_differentiated_after_the_losses_of_several_draws(
    fuse: bool, blocks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if blocks:
        monkeypatch.setattr("calibrant.posteriors.reparametrization.BLOCKS_PAY", 0)
    torch.manual_seed(0)
    q, x = MeanField(nn.Linear(30, 20), fuse=fuse), torch.randn(8, 30)

    def gradients(apart: bool) -> list[torch.Tensor]:
        q.zero_grad()
        torch.manual_seed(1)
        losses = []
        for _ in range(3):
            losses.append(q(x).square().mean() / 3)
            if apart:
                losses[-1].backward()
        if apart:
            q.kl().backward()
        else:
            (torch.stack(losses).sum() + q.kl()).backward()
        return [p.grad.clone() for p in q.parameters() if p.grad is not None]

    for a, b in zip(gradients(True), gradients(False)):
        torch.testing.assert_close(a, b)


def test_kl_after_a_draw_is_never_stale() -> None:
    q = MeanField(nn.Linear(3, 3))
    q(torch.ones(1, 3))
    with torch.no_grad():
        q.module.weight.add_(1.0)
    fresh = copy.deepcopy(q).kl().item()
    assert q.kl().item() == pytest.approx(fresh)
    q(torch.ones(1, 3))
    q.kl().backward()
    first = q.module.weight.grad.clone()
    q.kl().backward()  # a second call has a graph of its own
    torch.testing.assert_close(q.module.weight.grad, 2 * first)
    q(torch.ones(1, 3))
    with torch.no_grad():
        assert not q.kl().requires_grad


def test_batch_normalization_updates_its_statistics_and_stays_deterministic() -> None:
    q = MeanField(convolutional())
    x = 5 + torch.randn(16, 3, 6, 6)
    q.train()(x)
    after = q.module[1].running_mean.clone()
    assert after.abs().sum() > 0
    q.eval()(x)
    assert torch.equal(q.module[1].running_mean, after)
    assert set(q.rho) == {"0/weight", "0/bias", "5/weight", "5/bias"}


def test_the_predicate_and_frozen_parameters_choose_what_is_bayesian() -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    q = MeanField(net, bayesian=lambda name, owner: isinstance(owner, nn.Linear) and name.startswith("2."))
    assert set(q.rho) == {"2/weight", "2/bias"}
    q(torch.ones(2, 3)).sum().backward()
    assert net[0].weight.grad is not None, "deterministic parameters stay ordinary parameters"
    net[0].requires_grad_(False)
    assert set(MeanField(net).rho) == {"2/weight", "2/bias"}


def test_it_starts_from_the_weights_of_the_module() -> None:
    net = nn.Linear(3, 2)
    before = copy.deepcopy(net)
    q = MeanField(net, init_std=1e-8)
    x = torch.randn(5, 3)
    torch.testing.assert_close(q(x), before(x), atol=1e-6, rtol=0)
    torch.testing.assert_close(q.mean_module()(x), before(x))


def test_copies_and_state_dicts_round_trip() -> None:
    module, x = examples()["convolution"]
    q = MeanField(module, prior_mean="init")
    q(x).sum().backward()
    twin = copy.deepcopy(q)
    other = MeanField(convolutional(), prior_mean="init")
    other.load_state_dict(q.state_dict())
    for a, b, c in zip(q.state_dict().values(), twin.state_dict().values(), other.state_dict().values()):
        assert torch.equal(a, b)
        assert torch.equal(a, c)
    torch.manual_seed(1)
    expected = q.eval()(x)
    torch.manual_seed(1)
    assert torch.equal(twin.eval()(x), expected)
    torch.manual_seed(1)
    assert torch.equal(other.eval()(x), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_a_draw_does_what_functional_call_does_without_its_cost(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, x = examples()[kind]
    q, drawn = MeanField(module, init_std=0.1, fuse=False), []
    monkeypatch.setattr("calibrant.posteriors.mean_field.functional_call", None)
    with monkeypatch.context() as patched:
        patched.setattr("calibrant.posteriors.substitution.Substitution.__call__", lambda _, tensors, *__: tensors)
        torch.manual_seed(1)
        drawn.append(q(x))
    torch.manual_seed(1)
    assert torch.equal(q(x), torch.func.functional_call(module, drawn[0], (x,)))


def test_a_layer_that_took_the_place_of_another_is_drawn() -> None:
    q, x = MeanField(nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 3)), init_std=0.1), torch.ones(5, 4)
    q(x)
    q.module[1] = nn.Linear(8, 3)
    nn.init.zeros_(q.module[1].weight)
    q.rho["0/weight"].data.fill_(-100.0)
    q.rho["0/bias"].data.fill_(-100.0)
    assert not torch.equal(q(x), q(x))
    assert torch.equal(q.module[1].weight, torch.zeros(3, 8)), "which holds its means again"


class Recomputing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.gradient_checkpointing = nn.Linear(4, 4), False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.gradient_checkpointing and self.training:
            output: torch.Tensor = checkpoint(self.layer, x, use_reentrant=False)
            return output
        return self.layer(x)


def test_layers_that_would_be_recomputed_without_the_draw_are_refused() -> None:
    module, x = nn.Sequential(Recomputing(), nn.Tanh(), nn.Linear(4, 2)), torch.randn(3, 4)
    q = MeanField(module)
    q(x).sum().backward()
    module[0].gradient_checkpointing = True
    with pytest.raises(ValueError, match=r"turn it off, as model\.gradient_checkpointing_disable"):
        q(x)
    with torch.no_grad():
        q(x)
    q.eval()(x).sum().backward()
    assert q.sample(2)(x).shape == (2, 3, 2)


def test_the_same_seed_gives_the_same_bytes_and_no_other_state_is_used() -> None:
    q, x = MeanField(nn.Linear(100, 100)), torch.randn(3, 100)
    torch.manual_seed(5)
    first = q(x)
    torch.manual_seed(5)
    assert torch.equal(q(x), first)


@pytest.mark.parametrize("kind", ["linear", "convolution", "attention"])
def test_autocast_draws_in_full_precision_and_trains(kind: str) -> None:
    module, x = examples()[kind]
    q = MeanField(module)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = q(x)
        assert q.kl().dtype == torch.float32
    assert out.dtype == torch.bfloat16
    out.float().square().sum().backward()
    assert all(g is not None and torch.isfinite(g).all() for g in gradients(q).values())


@pytest.mark.parametrize("fuse", FUSE)
@pytest.mark.usefixtures("in_blocks")
def test_functional_transforms_over_inputs_and_over_parameters(fuse: bool) -> None:
    q = MeanField(nn.Linear(4, 3), init_std=1e-6, fuse=fuse)
    x = torch.randn(4)
    torch.testing.assert_close(torch.func.jacrev(q)(x), q.module.weight.detach(), atol=1e-4, rtol=0)
    parameters = {name: p.detach() for name, p in q.named_parameters()}
    grads = torch.func.grad(lambda p: torch.func.functional_call(q, p, x).sum())(parameters)
    torch.testing.assert_close(grads["module.weight"], x.expand(3, 4))


@pytest.mark.parametrize("fuse", FUSE)
@pytest.mark.usefixtures("in_blocks")
def test_a_posterior_on_the_cpu_ignores_another_default_device(fuse: bool) -> None:
    q, x = MeanField(nn.Linear(4, 3), fuse=fuse), torch.randn(2, 4)
    with torch.device("meta"):
        (q(x).sum() + q.kl()).backward()
    assert all(torch.isfinite(grad).all() for grad in gradients(q).values())


def test_under_torch_compile_it_trains_and_draws_anew() -> None:
    q = MeanField(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)), init_std=0.1)
    compiled = torch.compile(q, fullgraph=True)
    x = torch.randn(4, 4)
    out = compiled(x)
    assert not torch.equal(out, compiled(x))
    (out.square().sum() + q.kl()).backward()
    assert all(g is not None and (g != 0).any() for g in gradients(q).values())


def test_the_optimum_of_a_conjugate_model_is_reached() -> None:
    """Bayesian linear regression with orthogonal inputs: the exact posterior is mean-field, so VI must find it."""
    n, prior_std, noise_std = 64, 1.0, 0.5
    generator = torch.Generator().manual_seed(3)
    x = torch.linalg.qr(torch.randn(n, 2, generator=generator, dtype=torch.float64))[0] * math.sqrt(n)
    y = x @ torch.tensor([1.5, -0.7], dtype=torch.float64) + noise_std * torch.randn(
        n, generator=generator, dtype=torch.float64
    )
    precision = n / noise_std**2 + 1 / prior_std**2
    exact_mean, exact_std = (x.T @ y) / noise_std**2 / precision, precision**-0.5
    layer = nn.Linear(2, 1, bias=False).double()
    q = MeanField(layer, prior_std=prior_std, init_std=0.3)
    optimizer = torch.optim.Adam(q.parameters(), lr=0.05)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 1500)
    for _ in range(1500):
        optimizer.zero_grad()
        fits = sum(((q(x).squeeze(1) - y) ** 2).sum() / (2 * noise_std**2) for _ in range(4)) / 4
        (fits + q.kl()).backward()
        optimizer.step()
        scheduler.step()
    torch.testing.assert_close(layer.weight.detach()[0], exact_mean, atol=0.1 * exact_std, rtol=0)
    std = q.standard_deviations()["weight"]
    torch.testing.assert_close(std, torch.full_like(std, exact_std), rtol=0.05, atol=0)


def test_bad_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="prior_std must be positive"):
        MeanField(nn.Linear(2, 2), prior_std=0.0)
    with pytest.raises(ValueError, match="init_std must be positive"):
        MeanField(nn.Linear(2, 2), init_std=-1.0)
    with pytest.raises(ValueError, match="prior_mean"):
        MeanField(nn.Linear(2, 2), prior_mean=math.nan)
    with pytest.raises(ValueError, match="bayesian leaves no parameter"):
        MeanField(nn.BatchNorm1d(3))
    with pytest.raises(ValueError, match="lazy parameter"):
        MeanField(nn.LazyLinear(3))


def closed_form_kl(q: MeanField) -> float:
    """KL(q || prior) from the parameters as they are now, in float64."""
    total = 0.0
    for (_, mean), rho in zip(q.module.named_parameters(), q.rho.values()):
        mean, rho = mean.detach().double(), rho.detach().double()
        ratio = (rho.exp() + mean.square()) / q.prior_std**2
        total += float(0.5 * (ratio - 1 - rho + 2 * math.log(q.prior_std)).sum())
    return total


def test_the_contract_of_kl_after_a_forward_pass():
    q, x = MeanField(nn.Linear(3, 2), prior_std=0.5), torch.ones(4, 3)
    optimizer = torch.optim.SGD(q.parameters(), 0.3)
    state = {name: value + 0.25 for name, value in q.state_dict().items()}

    def step():
        (q(x).square().sum() + q.kl()).backward()
        optimizer.step()

    changes = [lambda: None, step, lambda: q.load_state_dict(state), lambda: q.rho["bias"].detach().mul_(0.5)]
    for change in changes:
        q(x)
        change()  # between the forward pass and kl()
        assert q.kl().item() == pytest.approx(closed_form_kl(q), rel=1e-5)
        assert q.kl().item() == pytest.approx(closed_form_kl(q), rel=1e-5)
        with torch.no_grad():
            q(x)
            assert q.kl().item() == pytest.approx(closed_form_kl(q), rel=1e-5)
    q(x)
    q.module.weight.data.mul_(3)  # unseen by autograd
    assert q.kl().item() != pytest.approx(closed_form_kl(q), rel=1e-5)
    assert q.kl().item() == pytest.approx(closed_form_kl(q), rel=1e-5)


def test_a_trained_network_survives_being_made_bayesian() -> None:
    images, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.Adam(net.parameters(), 0.01)
    for _ in range(150):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x[:1200]), y[:1200]).backward()
        optimizer.step()
    before = (net(x[1200:]).argmax(1) == y[1200:]).float().mean()
    members = MeanField(net).sample(20).probabilities(x[1200:])
    assert (members.mean(0).argmax(1) == y[1200:]).float().mean() >= before - 0.005
    first, second = members[:2].argmax(2)
    assert (first != second).float().mean() >= 0.005


def test_the_default_deviation_follows_the_scale_of_each_tensor() -> None:
    layer = nn.Linear(50, 40)
    nn.init.zeros_(layer.bias)
    deviations = MeanField(layer).standard_deviations()
    scale = layer.weight.detach().square().mean().sqrt()
    torch.testing.assert_close(deviations["weight"], (0.1 * scale).expand(40, 50), rtol=1e-5, atol=0)
    torch.testing.assert_close(deviations["bias"], torch.full((40,), 0.001), rtol=1e-5, atol=0)


class WithoutDoubles(TorchFunctionMode):
    """As on a device that has no float64, from which tensors have to be fetched first."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[torch.Tensor] = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.Tensor.double and all(args[0] is not tensor for tensor in self.fetched):
            raise TypeError("Cannot convert a MPS Tensor to float64 dtype")
        result = func(*args, **(kwargs or {}))
        if func is torch.Tensor.cpu:
            self.fetched.append(result)
        return result


def test_the_default_deviation_asks_no_device_for_float64() -> None:
    layer = nn.Linear(3, 2)
    with WithoutDoubles():
        deviations = MeanField(layer).standard_deviations()
    assert torch.equal(deviations["weight"], MeanField(layer).standard_deviations()["weight"])


def test_a_negative_seed_is_refused_when_members_are_asked_for() -> None:
    with pytest.raises(ValueError, match="seed must be at least 0, not -1"):
        MeanField(nn.Linear(3, 2)).sample(2, seed=-1)
