"""Layers that all members have in common run once per batch, and nothing else changes."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from modules import Attention, Recurrent, Tied
from torch import Tensor, nn

from calibrant.backbones import build
from calibrant.deploy import EarlyStopping, Predictor
from calibrant.posteriors import Ensemble, Laplace, MCDropout, MeanField
from calibrant.posteriors.batch_statistics import with_batch_statistics
from calibrant.posteriors.members import StoredMembers, run
from calibrant.posteriors.sharing import SharedRun
from calibrant.posteriors.substitution import Substitution

K = 4
MEAN = torch.tensor(0.25)


class Counted(nn.Module):
    """A layer that counts how often it is entered."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer, self.calls = layer, 0

    def forward(self, *args: Any) -> Any:
        self.calls += 1
        return self.layer(*args)


def sampled(module: nn.Module, *prefixes: str, std: float = 0.1) -> Ensemble:
    """K members that differ in the parameters whose names begin so; without prefixes in all."""
    chosen = {"bayesian": lambda name, owner: name.startswith(prefixes)} if prefixes else {}
    return MeanField(module, init_std=std, **chosen).sample(K).stored()


def alone(ensemble: Ensemble, x: Any) -> Tensor:
    """The logits of modules of their own."""
    return torch.stack([ensemble.member(k).eval()(x) for k in range(len(ensemble))])


def shares(ensemble: Ensemble, x: Any) -> bool:
    """Whether something was shared; the logits are those of the members alone to the bit, with gradients on and off."""
    wanted = alone(ensemble, x)
    assert not torch.equal(wanted[0], wanted[1])
    for _ in range(2):
        assert torch.equal(ensemble(x), wanted), "gradients are on, so that small batches are not run in one pass"
    return bool(ensemble._shares)


IMAGES = torch.rand(6, 3, 8, 8, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", ["mlp-16-16", "cnn-8", "resnet-20", "wrn-10-1"])
@pytest.mark.parametrize("last", [False, True])
def test_backbones_with_a_bayesian_head_or_last_group(name: str, last: bool) -> None:
    net = build(name, (3, 8, 8), 5).eval()
    layers = [n for n, layer in net.named_modules() if isinstance(layer, (nn.Linear, nn.Conv2d))]
    deep = 3 if len(layers) > 3 else 2
    assert shares(sampled(net, *layers[-deep if last else -1 :]), IMAGES)
    assert not shares(sampled(net), IMAGES)


def test_other_modules_with_a_bayesian_head() -> None:
    tokens, sequence = torch.randint(6, (4, 5)), torch.randn(4, 6, 5)
    assert shares(sampled(Attention(), "head."), tokens)
    assert shares(sampled(Recurrent(nn.LSTM), "head."), sequence)
    assert shares(sampled(Attention(), "encoder.linear2."), tokens), "the attention is before it"


def test_a_shared_layer_is_entered_once_per_batch() -> None:
    trunk = Counted(nn.Sequential(nn.LayerNorm(4), nn.ReLU()))
    ensemble = sampled(nn.Sequential(trunk, nn.ReLU(), nn.Linear(4, 3)), "2.")
    x = torch.randn(5, 4)
    inside = ensemble.module[0]
    ensemble(x), ensemble(x + 1)
    assert inside.calls == 2
    inside.calls = 0
    ensemble.predict([x, x, x])
    assert inside.calls == 3
    inside.calls = 0
    Predictor(copy.deepcopy(ensemble))(x)
    assert inside.calls == 0, "a copy is on its own"


def test_drawn_members_that_share_layers_read_the_data_once() -> None:
    trunk = Counted(nn.LayerNorm(4))
    ensemble = MeanField(nn.Sequential(trunk, nn.Tanh(), nn.Linear(4, 3)), bayesian=lambda n, _: n[0] == "2").sample(K)
    batches = [torch.randn(5, 4) for _ in range(3)]
    found = ensemble.predict(batches)
    assert ensemble.module[0].calls == 3 + 1, "one to find out that they share"
    torch.testing.assert_close(found.logits, alone(ensemble, torch.cat(batches)))


@pytest.mark.parametrize("layer", [None, "0", "2", "0.layer.0"])
def test_features_are_those_of_each_member(layer: str | None) -> None:
    trunk = Counted(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8)))
    ensemble = sampled(nn.Sequential(trunk, nn.ReLU(), nn.Linear(8, 3), nn.Tanh()), "2.")
    x = torch.randn(5, 4)
    for k, (logits, features) in enumerate(ensemble.outputs(x, layer)):
        wanted = ensemble.as_callable(k, layer)(x)
        assert torch.equal(logits, wanted[0])
        assert torch.equal(features, wanted[1])
    assert ensemble._shares


def test_families_share_what_their_members_have_in_common() -> None:
    net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3))
    x, y = torch.randn(20, 6), torch.arange(20) % 3
    dropout = MCDropout(copy.deepcopy(net))
    dropout(x)
    assert shares(dropout.sample(K), x), "masks differ, so that what is before the first of them is shared"
    laplace = Laplace(copy.deepcopy(net).eval())
    laplace.finish([(x, y)])
    assert shares(laplace.sample(K), x)
    nets = [copy.deepcopy(net).eval() for _ in range(K)]
    for own in nets[1:]:
        nn.init.normal_(own[3].weight)
    frozen = Ensemble.stack(nets)
    assert list(frozen.stacked()) == ["3.weight"], "what is equal is not stacked"
    assert shares(frozen, x)
    for own in nets:
        nn.init.normal_(own[0].weight)
    assert not shares(Ensemble.stack(nets), x)
    assert torch.equal(Ensemble.stack(nets)(x), torch.stack([own(x) for own in nets]))


def test_statistics_of_batch_norm_that_differ_are_not_shared() -> None:
    def network() -> nn.Module:
        return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3))

    whole = with_batch_statistics(sampled(network()), [IMAGES])
    assert not shares(whole, IMAGES)
    head = with_batch_statistics(sampled(network(), "4."), [IMAGES])
    assert "1.running_mean" not in head.stacked(), (
        "the same for all, because all of it is measured behind shared layers"
    )
    assert shares(head, IMAGES)
    assert not torch.equal(head.module[1].running_mean, torch.zeros(4))


class Strange(nn.Module):
    """A trunk and a head with a forward of one's own between them."""

    def __init__(self, forward: Callable[[Strange, Tensor], Any]) -> None:
        super().__init__()
        self.trunk, self.second, self.head = nn.Linear(4, 6), nn.Linear(6, 6), nn.Linear(6, 3)
        self.scale, self.seen, self.own = torch.tensor(2.0), None, forward
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: Tensor) -> Any:
        return self.own(self, x)


def in_place_before(net: Strange, x: Tensor) -> Tensor:
    hidden = net.trunk(x)
    hidden.relu_()
    return net.head(net.second(hidden))


def in_place_after(net: Strange, x: Tensor) -> Tensor:
    hidden = net.trunk(x)
    hidden += net.head.weight.sum()  # what differs is written to what is shared
    return net.head(net.second(hidden))


def read_before_a_write(net: Strange, x: Tensor) -> Tensor:
    hidden = net.trunk(x)
    logits = net.head(hidden)  # a member that comes later must not see the relu that follows
    hidden.relu_()
    return logits + net.head(net.second(hidden))


def through_a_view(net: Strange, x: Tensor) -> Tensor:
    hidden = net.trunk(x)
    hidden.view(-1)[0] = net.head.bias[0].detach()
    return net.head(net.second(hidden))


def twice(net: Strange, x: Tensor) -> Tensor:
    hidden = net.trunk(x)
    return net.head(net.second(net.second(hidden)) + net.second(hidden))


def head_first(net: Strange, x: Tensor) -> Tensor:
    return net.trunk(x)[:, :3] * net.head(net.second(net.trunk(x)).relu())


def left_behind(net: Strange, x: Tensor) -> Tensor:
    net.seen = net.trunk(x) + net.head.weight.mean()
    return net.head(net.second(x[:, :1].expand(-1, 6)) + net.seen)


def decided_by_a_value(net: Strange, x: Tensor) -> Tensor:
    hidden = net.trunk(x)
    if net.head.weight.sum().item() > 0:
        hidden = net.second(hidden)
    return net.head(hidden)


def constants(net: Strange, x: Tensor) -> Tensor:
    hidden = net.trunk((x - MEAN) / net.scale)
    return net.head(net.second(hidden * torch.arange(6)))


def filled_in(net: Strange, x: Tensor) -> Tensor:
    hidden, logits = net.second(net.trunk(x)), torch.zeros(len(x), 3)
    logits[:] = net.head(hidden)
    return logits


def counted(net: Strange, x: Tensor) -> Tensor:
    net.count += 1
    return net.head(net.second(net.trunk(x))) * net.count.sign()


def nested(net: Strange, x: Tensor) -> dict[str, Any]:
    hidden = net.trunk(x)
    parts = torch.split(hidden, 3, 1)
    largest = hidden.max(1)
    return {"logits": net.head(torch.cat(parts[::-1], 1)) + largest.values[:, None], "all": [hidden, largest.indices]}


STRANGE = {
    in_place_before: True,
    in_place_after: False,
    read_before_a_write: False,
    through_a_view: False,
    twice: True,
    head_first: True,
    left_behind: True,
    decided_by_a_value: True,
    constants: True,
    filled_in: False,
    counted: True,
    nested: True,
}


@pytest.mark.parametrize("forward", STRANGE, ids=lambda one: one.__name__)
def test_modules_that_do_as_they_please(forward: Callable[[Strange, Tensor], Any]) -> None:
    torch.manual_seed(3)
    ensemble, x = sampled(Strange(forward), "head.", std=1.0), torch.randn(5, 4)

    def logits(output: Any) -> Tensor:
        return output["logits"] if isinstance(output, dict) else output

    wanted = torch.stack([logits(ensemble.member(k)(x)) for k in range(K)])
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(ensemble(x), wanted)  # the second time in one pass, where that works
    ensemble._batches = False
    for _ in range(2):
        assert torch.equal(ensemble(x), wanted)
    assert ensemble._shares == STRANGE[forward]


def test_random_numbers_are_drawn_for_every_member() -> None:
    ensemble = sampled(Strange(lambda net, x: net.head(F.dropout(net.trunk(x), 0.5, training=True))), "head.", std=1e-9)
    with torch.no_grad():
        first, second = ensemble(torch.ones(5, 4))[:2]
    assert not torch.allclose(first, second), "the weights are the same, the noise is not"
    assert not ensemble._shares
    assert not ensemble._batches


def test_tied_weights_differ_under_both_names() -> None:
    assert not shares(sampled(Tied(), "embedding."), torch.randint(6, (4, 5)))


def test_hooks_inside_shared_layers_are_called_for_every_member() -> None:
    ensemble, seen = sampled(nn.Sequential(nn.Sequential(nn.Linear(4, 8)), nn.Linear(8, 3)), "1."), []
    ensemble.module[0][0].register_forward_hook(lambda *given: seen.append(len(seen)))
    ensemble(torch.randn(5, 4))
    assert len(seen) == K
    assert ensemble._shares


def test_errors_and_other_modes_leave_the_module_as_it_was() -> None:
    ensemble, x = sampled(nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 3)), "1."), torch.randn(5, 4)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        ensemble(torch.randn(5, 3))
    assert all("forward" not in vars(layer) for layer in ensemble.module.modules())
    wanted = ensemble(x).detach()
    with torch.inference_mode():
        torch.testing.assert_close(ensemble(x), wanted)
        torch.testing.assert_close(ensemble(x.clone()), wanted)
    given = x.clone().requires_grad_()
    ensemble(given).sum().backward()
    own = x.clone().requires_grad_()
    alone(ensemble, own).sum().backward()
    torch.testing.assert_close(given.grad, own.grad)
    torch.testing.assert_close(torch.func.vmap(lambda row: ensemble(row[None])[:, 0])(x).transpose(0, 1), wanted)


def test_a_compiled_part_is_run_for_every_member() -> None:
    class Halves(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.trunk, self.head = nn.Linear(4, 8), nn.Linear(8, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.trunk(x))

    net = Halves()
    net.trunk.compile(backend="eager")
    stacked = {"head.weight": torch.randn(K, 3, 8)}
    ensemble = Ensemble(net, StoredMembers(stacked, K))
    shared = SharedRun(ensemble.module, stacked, x := torch.randn(5, 4))
    place = Substitution(ensemble.module, stacked)
    found = [run(place, {"head.weight": weight}, x, shared) for weight in stacked["head.weight"]]
    assert not shared.useful
    for weight, logits in zip(stacked["head.weight"], found):
        torch.testing.assert_close(logits, F.linear(net.trunk(x), weight, net.head.bias))


@pytest.mark.parametrize("kind", ["mlp-16-16", "cnn-8", "resnet-20"])
@pytest.mark.parametrize("head", [False, True])
def test_small_batches_go_through_all_members_in_one_pass(kind: str, head: bool) -> None:
    net = build(kind, (3, 8, 8), 5).eval()
    last = [n for n, layer in net.named_modules() if isinstance(layer, nn.Linear)][-1]
    ensemble, x = sampled(net, *([f"{last}."] if head else [])), IMAGES[:2]
    wanted = [ensemble.as_callable(k)(x) for k in range(K)]
    with torch.no_grad():
        for _ in range(2):
            for (logits, features), own in zip(ensemble.outputs(x), wanted):
                torch.testing.assert_close(logits, own[0].detach(), atol=1e-5, rtol=1e-4)
                torch.testing.assert_close(features, own[1].detach(), atol=1e-5, rtol=1e-4)
        assert ensemble._batches
        large = torch.rand(200, 3, 8, 8)
        assert ensemble._in_one_pass(large) == head, "a head is little, however many inputs there are"
        torch.testing.assert_close(ensemble(large), alone(ensemble, large), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(("head", "count"), [(False, 1), (True, 1), (True, 200)])
def test_the_same_input_has_the_same_bytes_at_every_call(head: bool, count: int) -> None:
    net = build("cnn-8", (3, 8, 8), 5).eval()
    ensemble, x = sampled(net, *(["head."] if head else [])), torch.rand(count, 3, 8, 8)
    with torch.no_grad():
        first, *others = (ensemble(x) for _ in range(3))
    assert ensemble._batches
    assert all(torch.equal(first, other) for other in others)


def test_a_wrong_input_does_not_end_the_single_pass() -> None:
    ensemble, x = sampled(build("mlp-16", (1, 8, 8), 5).eval()), torch.rand(1, 1, 8, 8)
    with torch.no_grad():
        before = ensemble(x)
        with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
            ensemble(torch.rand(1, 1, 9, 9))
        assert ensemble._batches
        assert torch.equal(ensemble(x), before)


def test_what_cannot_be_run_in_one_pass_is_run_member_by_member() -> None:
    def by_value(net: Strange, x: Tensor) -> Tensor:
        return net.head(net.trunk(x)) * (2.0 if net.head.weight.sum() > 0 else -1.0)

    ensemble, x = sampled(Strange(by_value), "head.", std=1.0), torch.randn(5, 4)
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(ensemble(x), alone(ensemble, x))
    assert ensemble._batches is False
    sequence = torch.randn(4, 6, 5)
    recurrent = sampled(Recurrent(nn.GRU))
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(recurrent(sequence), alone(recurrent, sequence))


def test_a_predictor_decides_the_same_from_shared_layers() -> None:
    net = build("cnn-8", (3, 8, 8), 5).eval()
    last = [n for n, layer in net.named_modules() if isinstance(layer, nn.Linear)][-1]
    ensemble = sampled(net, f"{last}.", std=1.0)
    predictor, x = Predictor(ensemble), torch.rand(100, 3, 8, 8)
    wanted = alone(ensemble, x).softmax(-1).mean(0)
    for _ in range(2):
        torch.testing.assert_close(predictor(x).probabilities, wanted.detach(), atol=1e-5, rtol=1e-4)
    early = predictor(x, early=EarlyStopping())
    assert (early.predicted == predictor(x).predicted).float().mean() > 0.95


def test_random_numbers_of_any_device_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a device whose generator alone moves, as on a graphics card, dropout is not the same for all members."""
    draws = [0]

    class OfDevice(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            draws[0] += 1
            return x + draws[0]

    net = nn.Sequential(nn.Linear(4, 8), OfDevice(), nn.Linear(8, 3))
    ensemble, x = sampled(net, "2."), torch.randn(5, 4)
    monkeypatch.setattr(torch.cpu, "get_rng_state", lambda device: torch.tensor(draws[0]), raising=False)
    ensemble(x)
    assert draws[0] == K
    assert ensemble._shares is False
