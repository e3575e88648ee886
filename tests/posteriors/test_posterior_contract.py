"""What every family promises, ours and those from outside; and ensembles whose members have nothing in common."""

from __future__ import annotations

import copy
import re
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import calibrant
from calibrant import Ensemble, slots
from calibrant.deploy import Predictor, load
from calibrant.posteriors import MeanField, Posterior, TrainingContext
from calibrant.posteriors.deterministic import as_posterior
from calibrant.posteriors.members import Member, PosteriorMembers

SOURCE = Path(calibrant.__file__).parent
OWN = sorted(name for name in slots.names("posterior") if not slots.registration("posterior", name).plugin)


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 12), nn.ReLU(), nn.Linear(12, 3))


@pytest.fixture(params=OWN)
def q(request: pytest.FixtureRequest) -> Posterior:
    torch.manual_seed(0)
    posterior: Posterior = slots.build("posterior", request.param, {}, network())
    posterior(torch.zeros(1, 4))
    return posterior


def test_logits_have_the_draws_first_and_a_scalar_divergence_or_none(q: Posterior) -> None:
    logits = q.logits(torch.randn(5, 4), 3)
    assert logits.shape[1:] == (5, 3)
    points = q.logits(torch.randn(5, 4))
    assert points.shape[1:] == (5, 3)
    if len(points) == 1:
        assert len(logits) in (1, 3)
    else:  # a fixed number of points, which are all members that there are
        assert len(points) == len(logits) == len(q.sample(100))
    kl = q.kl()
    assert kl is None or (kl.dim() == 0 and float(kl.detach()) >= 0)
    logits.sum().backward()
    assert any(p.grad is not None for p in q.parameters())


def test_every_trainable_parameter_is_in_one_group(q: Posterior) -> None:
    groups = q.parameter_groups(TrainingContext(rate=0.1, weight_decay=0.01))
    listed = [id(p) for group in groups for p in group["params"]]
    assert sorted(listed) == sorted(id(p) for p in q.parameters() if p.requires_grad)
    assert all({"params", "lr", "weight_decay"} <= set(group) for group in groups)
    own = q.optimizer(TrainingContext(rate=0.1, num_data=100))
    if own is not None:
        assert sorted(id(p) for group in own.param_groups for p in group["params"]) == sorted(listed)
        assert all(group["lr"] == 0.1 for group in own.param_groups)
    for parameters in q.clipped() or []:
        assert {id(p) for p in parameters} <= set(listed)


@torch.no_grad()
def test_members_are_fixed_by_the_seed_in_both_modes_and_survive_the_state(q: Posterior) -> None:
    x = torch.randn(6, 4)
    logits = q.train().sample(4, seed=2)(x)
    assert torch.equal(q.eval().sample(4, seed=2)(x), logits)
    other = slots.build("posterior", _name_of(q), {}, network())
    other.load_state_dict(q.state_dict())
    assert torch.equal(other.sample(4, seed=2)(x), logits)
    ensemble = q.sample(4, seed=2)
    for parameter in q.parameters():
        parameter.add_(1.0)
    assert torch.equal(ensemble(x), logits), "later training changes nothing"
    with pytest.raises(ValueError, match="n must be at least 1"):
        q.sample(0)


def _name_of(q: Posterior) -> str:
    return next(name for name in OWN if slots.lookup("posterior", name) is type(q))


@torch.no_grad()
def test_a_member_gives_logits_and_features(q: Posterior) -> None:
    x, ensemble = torch.randn(6, 4), q.sample(3, seed=1)
    assert ensemble.shared is ensemble.module
    stacked = ensemble.stacked()
    assert list(stacked) == ensemble.members.names
    assert all(len(value) == len(ensemble) for value in stacked.values())
    predictions = ensemble.predict([x])
    for k in range(len(ensemble)):
        logits, features = ensemble.as_callable(k)(x)
        torch.testing.assert_close(logits, predictions.logits[k])
        assert features is not None
        assert predictions.features is not None
        torch.testing.assert_close(features, predictions.features[k])
        hidden = ensemble.as_callable(k, "0")(x)[1]
        assert hidden is not None
        assert torch.equal(hidden, x)
        own = torch.func.functional_call(ensemble.module, {n: v[k] for n, v in stacked.items()}, (x,))
        torch.testing.assert_close(own, logits)


def test_in_float64_a_family_trains_and_its_members_stay_there(q: Posterior) -> None:
    q.double()
    x, y = torch.randn(8, 4, dtype=torch.float64), torch.arange(8) % 3
    context = TrainingContext(rate=0.05, num_data=8, steps=4)
    optimizer = q.optimizer(context) or torch.optim.SGD(q.parameter_groups(context))
    before = [p.detach().clone() for p in q.parameters() if p.requires_grad]
    q.begin(4)
    for _ in range(4):
        optimizer.zero_grad()
        loss = torch.stack([nn.functional.cross_entropy(own, y) for own in q.logits(x)]).mean()
        assert loss.dtype == torch.float64
        (loss if q.kl() is None else loss + 1e-3 * q.kl()).backward()
        optimizer.step()
        q.after_step()
    q.finish([(x, y)])
    after = [p for p in q.parameters() if p.requires_grad]
    assert all(p.dtype == torch.float64 for p in after)
    assert any(not torch.equal(a, b) for a, b in zip(after, before))
    ensemble = q.refresh(q.sample(3, seed=1), [x])
    assert ensemble(x).dtype == torch.float64
    assert all(value.dtype == torch.float64 for value in ensemble.stacked().values() if value.is_floating_point())
    torch.testing.assert_close(ensemble(x)[0], ensemble.as_callable(0)(x)[0])


def test_under_torch_compile_a_family_trains_as_the_loop_compiles_it(q: Posterior) -> None:
    x = torch.randn(8, 4)
    compiled = torch.compile(q.logits, fullgraph=True, backend="aot_eager")
    compiled(x).square().mean().backward()
    found = {name: p.grad for name, p in q.named_parameters() if p.grad is not None}
    assert found
    assert all(gradient.isfinite().all() for gradient in found.values())
    if torch.equal(q.logits(x), q.logits(x)):  # nothing is drawn while training
        q.zero_grad()
        q.logits(x).square().mean().backward()
        for name, parameter in q.named_parameters():
            torch.testing.assert_close(parameter.grad, found.get(name), rtol=1e-4, atol=1e-6)
    else:
        assert not torch.equal(compiled(x), compiled(x))


def test_no_family_is_asked_for_by_its_class_outside_its_file() -> None:
    for name in OWN:
        family = slots.lookup("posterior", name)
        for file in SOURCE.rglob("*.py"):
            if file.stem != family.__module__.rpartition(".")[2]:
                assert not re.search(rf"isinstance\([^()]*\b{family.__name__}\b", file.read_text()), file


def test_a_network_is_its_own_deterministic_posterior() -> None:
    module = network()
    assert as_posterior(module).module is module
    q = MeanField(network())
    assert as_posterior(q) is q
    assert len(as_posterior(module).sample(20)) == 1
    with pytest.raises(NotImplementedError, match=r"Posterior must define sample\(n, seed\)"):
        Posterior(module).sample(1)


class Pair(nn.Module):
    """A member that says itself what its features are."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x[:, :3], x.square()


def different() -> list[nn.Module]:
    torch.manual_seed(1)
    return [network(), nn.Linear(4, 3), Pair()]


@torch.no_grad()
def test_members_may_be_networks_of_any_kind(tmp_path: Path) -> None:
    networks, x = different(), torch.randn(7, 4)
    ensemble = Ensemble.separate(networks)
    assert (len(ensemble), ensemble.shared, ensemble.stacked()) == (3, None, {})
    expected = torch.stack([networks[0](x), networks[1](x), x[:, :3]])
    torch.testing.assert_close(ensemble(x), expected)
    torch.testing.assert_close(ensemble.stored()(x), expected)
    torch.testing.assert_close(copy.deepcopy(ensemble).double()(x.double()).float(), expected)
    torch.testing.assert_close(ensemble.member(1)(x), expected[1])
    features = [ensemble.as_callable(k)(x)[1] for k in range(3)]
    assert [None if part is None else part.shape[1] for part in features] == [12, 4, 4]
    predictor = Predictor(ensemble, threshold=0.5)
    decision = predictor(x)
    torch.testing.assert_close(decision.probabilities, expected.softmax(-1).mean(0))
    found = load(predictor.save(tmp_path / "folder"), module=different())
    assert torch.equal(found(x).probabilities, decision.probabilities)
    assert found.ensemble.shared is None
    with pytest.raises(ValueError, match="module must be a list of 3 networks"):
        load(tmp_path / "folder", module=different()[:2])
    with pytest.raises(ValueError, match="module does not fit the saved weights"):
        load(tmp_path / "folder", module=different()[:1])
    assert ensemble.predict([x]).features is None, "they are not alike"
    alike = Ensemble.separate([different()[1], Pair()]).predict([x]).features
    assert alike is not None
    torch.testing.assert_close(alike, torch.stack([x, x.square()]))
    predictor.export(tmp_path / "p.pt2", x)
    program = torch.export.load(tmp_path / "p.pt2").module()
    torch.testing.assert_close(program(x)[2], decision.probabilities)
    with pytest.raises(ValueError, match="n must be at least 1"):
        Ensemble.separate([])


def test_a_member_runs_a_module_with_other_tensors() -> None:
    linear, x = nn.Linear(3, 2), torch.randn(4, 3)
    weight = torch.randn(2, 3)
    logits, features = Member(linear, {"weight": weight})(x)
    torch.testing.assert_close(logits, x @ weight.T + linear.bias)
    assert features is not None
    assert torch.equal(features, x)
    with pytest.raises(ValueError, match="feature_layer 'nowhere'"):
        Member(linear, feature_layer="nowhere")


def test_members_drawn_on_demand_are_stacked_as_they_are_drawn() -> None:
    ensemble = MeanField(network(), init_std=0.3).sample(3)
    assert isinstance(ensemble.members, PosteriorMembers)
    assert torch.equal(ensemble.stacked()["0.weight"][1], ensemble.members.weights(1, ensemble.module)["0.weight"])


def test_buffers_that_are_not_saved_belong_to_the_members_of_a_deep_ensemble() -> None:
    class Scaled(nn.Module):
        def __init__(self, scale: float) -> None:
            super().__init__()
            self.linear = nn.Linear(2, 2)
            self.register_buffer("scale", torch.tensor(scale), persistent=False)

        def forward(self, x: Tensor) -> Tensor:
            return self.linear(x) * self.scale

    networks, x = [Scaled(1.0), Scaled(2.0)], torch.randn(3, 2)
    torch.testing.assert_close(Ensemble.stack(networks).member(1)(x), networks[1](x))


def test_a_seed_names_the_same_members_whatever_the_default_device_and_type_are(q: Posterior) -> None:
    q.finish([torch.randn(8, 4)])
    expected = q.sample(3, seed=1).stacked()
    with torch.device("meta"):
        elsewhere = q.sample(3, seed=1).stacked()
    torch.set_default_dtype(torch.float64)
    try:
        wider = q.sample(3, seed=1).stacked()
    finally:
        torch.set_default_dtype(torch.float32)
    for name, value in expected.items():
        assert torch.equal(elsewhere[name], value)
        assert torch.equal(wider[name], value)


class Memory(nn.Module):
    """Its parameters are called as methods of dictionaries are."""

    def __init__(self) -> None:
        super().__init__()
        self.keys, self.values = nn.Parameter(torch.randn(4, 6)), nn.Parameter(torch.randn(6, 3))

    def forward(self, x: Tensor) -> Tensor:
        return (x @ self.keys).softmax(-1) @ self.values


@torch.no_grad()
def test_parameters_may_have_any_name(tmp_path: Path) -> None:
    x = torch.randn(5, 4)
    q, again = (MeanField(Memory(), init_std=0.1, prior_mean="init") for _ in range(2))
    again.load_state_dict(q.state_dict())
    drawn = q.sample(3)
    assert torch.equal(again.sample(3)(x), drawn(x))
    for name, ensemble in (("drawn", drawn), ("stacked", Ensemble.stack([Memory(), Memory()]))):
        logits = ensemble(x)
        assert list(ensemble.stacked()) == ["keys", "values"]
        assert not torch.equal(logits[0], logits[1])
        predictor = Predictor(ensemble, threshold=0.5)
        found = load(predictor.save(tmp_path / name), module=Memory())
        assert torch.equal(found(x).probabilities, predictor(x).probabilities)
