"""Dropout as a posterior: one mask per member and layer, whatever the batch, and nothing else random."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from compilers import needs_compiler
from torch import Tensor, nn

from calibrant import slots
from calibrant.backbones.small import MLP
from calibrant.deploy import Backbone, Predictor, load
from calibrant.posteriors import MCDropout
from calibrant.posteriors.dropout_layers import DropoutLinear, UnitMask
from calibrant.posteriors.mc_dropout import draw_mask


def plain() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 3))


def images() -> nn.Sequential:
    """Dropout of elements and of channels, on images and behind them."""
    return nn.Sequential(
        nn.Conv2d(2, 6, 3),
        nn.Dropout(0.3),
        nn.ReLU(),
        nn.Dropout2d(0.2),
        nn.Flatten(),
        nn.Dropout(0.4),
        nn.Linear(96, 3),
    )


class Sequences(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.25, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.encoder(x).mean(1))


class Volumes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Dropout1d(0.5), nn.Dropout3d(0.5)
        self.head = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        volumes = self.last(self.first(x)[..., None, None])
        return self.head(volumes.flatten(2).mean(2))


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "table": (plain, (4,)),
    "images": (images, (2, 6, 6)),
    "sequences": (Sequences, (7, 8)),
    "volumes": (Volumes, (5, 9)),
    "without dropout": (lambda: MLP(4, 3, hidden=(8, 8)), (4,)),
    "one linear layer": (lambda: nn.Linear(4, 3), (4,)),
}


def posterior(kind: str, **options: object) -> tuple[MCDropout, Tensor]:
    build, shape = NETWORKS[kind]
    torch.manual_seed(0)
    q, x = MCDropout(build(), **options), torch.randn(11, *shape)  # type: ignore[arg-type]
    q(x)
    return q, x


@pytest.mark.parametrize("kind", NETWORKS)
@torch.no_grad()
def test_a_member_is_a_function_of_its_input_alone(kind: str) -> None:
    q, x = posterior(kind, rate=0.4)
    ensemble = q.sample(6, seed=3)
    logits = ensemble(x)
    assert logits.shape == (6, 11, 3)
    assert len(torch.unique(logits[:, 0], dim=0)) > 1, "members differ"
    order = torch.randperm(11)
    close = {"rtol": 1e-5, "atol": 1e-5}
    torch.testing.assert_close(ensemble(x[order]), logits[:, order], **close)
    torch.testing.assert_close(torch.cat([ensemble(row[None]) for row in x], 1), logits, **close)
    torch.testing.assert_close(ensemble.predict(torch.split(x, 4)).logits, logits, **close)
    again = q.eval().sample(6, seed=3)
    assert torch.equal(again(x), logits), "a seed names the members"
    assert torch.equal(q.sample(2, seed=3)(x), logits[:2]), "a smaller ensemble is the beginning of a larger one"
    assert not torch.equal(q.sample(6, seed=4)(x), logits)
    for k in range(6):
        torch.testing.assert_close(ensemble.member(k)(x), logits[k], **close)
        torch.testing.assert_close(ensemble.as_callable(k)(x)[0], logits[k], **close)


@torch.no_grad()
def test_the_members_equal_the_network_written_out_with_their_masks() -> None:
    q, x = posterior("table")
    ensemble, (first, _, _, last) = q.sample(5, seed=7), q.module
    for k in range(5):
        mask = draw_mask(16, 0.3, seed=7, k=k, name="2")
        expected = (x @ first.weight.T + first.bias).clamp(min=0) * mask @ last.weight.T + last.bias
        torch.testing.assert_close(ensemble(x)[k], expected)
    q, x = posterior("images")
    ensemble, conv, last = q.sample(3, seed=1), q.module[0], q.module[6]
    for k in range(3):
        elements, channels = draw_mask(6, 0.3, 1, k, "1"), draw_mask(6, 0.2, 1, k, "3")
        hidden = conv(x) * (elements * channels)[None, :, None, None]
        expected = hidden.clamp(min=0).flatten(1) * draw_mask(96, 0.4, 1, k, "5") @ last.weight.T + last.bias
        torch.testing.assert_close(ensemble(x)[k], expected)


def test_masks_are_those_of_independent_units() -> None:
    rate, masks = 0.3, torch.stack([draw_mask(50, 0.3, 0, k, "layer") for k in range(2000)])
    torch.testing.assert_close(masks.unique(), torch.tensor([0.0, 1 / (1 - rate)]))
    dropped = (masks == 0).double()
    assert float(dropped.mean()) == pytest.approx(rate, abs=5 * (rate * (1 - rate) / dropped.numel()) ** 0.5)
    correlation = torch.corrcoef(dropped.T) - torch.eye(50)
    assert float(correlation.abs().max()) < 6 / 2000**0.5
    assert not torch.equal(masks[0], draw_mask(50, 0.3, 0, 0, "another layer"))


@torch.no_grad()
def test_the_mean_over_members_of_a_linear_network_is_its_expected_value() -> None:
    """E[W (mask * x) + b] = W x + b, with variance sum_u (w_u x_u)^2 rate / (1 - rate)."""
    linear, x, count, rate = nn.Linear(6, 3), torch.randn(5, 6), 4000, 0.25
    q = MCDropout(copy.deepcopy(linear), rate=rate)
    q(x)
    logits = q.sample(count)(x)
    variance = (linear.weight[None] * x[:, None]).square().sum(-1) * rate / (1 - rate)
    standard_error = (variance / count).sqrt()
    assert ((logits.mean(0) - linear(x)).abs() < 5 * standard_error).all()
    torch.testing.assert_close(logits.var(0), variance, rtol=0.15, atol=0.01)
    draws = q.logits(x, count)  # fresh noise for every example, with the same two moments
    assert ((draws.mean(0) - linear(x)).abs() < 5 * standard_error).all()
    torch.testing.assert_close(draws.var(0), variance, rtol=0.15, atol=0.01)


@pytest.mark.parametrize("kind", NETWORKS)
@torch.no_grad()
def test_with_rate_0_it_is_the_deterministic_network(kind: str) -> None:
    q, x = posterior(kind, rate=0.0)
    torch.manual_seed(0)
    expected = NETWORKS[kind][0]().eval()(x)
    for found in (q.eval()(x), *q.sample(2)(x)):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("training", [True, False])
def test_noise_is_fresh_at_every_call_and_for_every_example_in_both_modes(training: bool) -> None:
    q, _ = posterior("table")
    q.train(training)
    same = torch.ones(40, 4)
    assert len(torch.unique(q(same), dim=0)) > 10
    assert not torch.equal(q(same), q(same))
    logits = q.logits(same, 3)
    assert logits.shape == (3, 40, 3)
    assert not torch.equal(logits[0], logits[1])
    assert q.kl() is None


def test_an_inserted_layer_keeps_the_parameters_their_names_and_whole_features() -> None:
    network = MLP(4, 3, hidden=(8,))
    names, weight = list(network.state_dict()), network.layers[3].weight
    q = MCDropout(network, rate=0.5)
    assert isinstance(q.module.layers[3], DropoutLinear)
    assert q.module.layers[3].weight is weight
    assert list(q.module.state_dict()) == [*names, "layers.3.dropout.units"]
    x = torch.randn(5, 4)
    q(x)
    features = q.sample(3).predict([x]).features
    assert features is not None
    torch.testing.assert_close(features, q.module.layers[:3](x).detach().expand(3, -1, -1))


def test_what_has_no_units_to_drop_is_refused_in_one_sentence() -> None:
    with pytest.raises(ValueError, match=r"no dropout layer whose rate is above 0.* or set before_last"):
        MCDropout(nn.Linear(2, 2), before_last=False)
    with pytest.raises(ValueError, match=r"no dropout layer whose rate is above 0.*; add nn\.Dropout$"):
        MCDropout(nn.Conv2d(1, 1, 1))
    with pytest.raises(ValueError, match="dropout layer 1 is a AlphaDropout, but must be one of Dropout, Dropout1d"):
        MCDropout(nn.Sequential(nn.Linear(2, 2), nn.AlphaDropout(0.1)))
    with pytest.raises(ValueError, match=r"rate must lie in \[0, 1\), not 1"):
        MCDropout(plain(), rate=1)
    with pytest.raises(ValueError, match=r"dropout layer 0 has rate 1\.0"):
        MCDropout(nn.Sequential(nn.Dropout(1.0), nn.Linear(2, 2)))
    with pytest.raises(ValueError, match="run the posterior on a batch first"):
        MCDropout(plain()).sample(2)
    with pytest.raises(ValueError, match="n must be at least 1"):
        posterior("table")[0].sample(0)
    drop = nn.Dropout(0.5)
    shared = MCDropout(nn.Sequential(drop, nn.Linear(4, 8), drop, nn.Linear(8, 2)))
    with pytest.raises(ValueError, match="dropout layer 0 is given 4 units and then 8; use one layer for each"):
        shared(torch.randn(2, 4))


@torch.no_grad()
def test_a_layer_in_two_places_has_one_mask_and_one_that_never_runs_none() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.drop = self.alias = nn.Dropout(0.5)
            self.unused = nn.Dropout(0.5)
            self.head = nn.Linear(6, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.drop(x) + 10 * self.alias(x))

    torch.manual_seed(0)
    q, x = MCDropout(Twice()), torch.randn(3, 6)
    q(x)
    head, mask = q.module.head, draw_mask(6, 0.5, 0, 1, "drop")
    torch.testing.assert_close(q.sample(2)(x)[1], (11 * x * mask) @ head.weight.T + head.bias)
    assert not any(isinstance(layer, nn.Dropout) for layer in q.sample(2).module.modules())


@pytest.mark.parametrize("kind", NETWORKS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_saved_predictor_decides_the_same_to_the_bit(tmp_path: Path, kind: str, dtype: torch.dtype) -> None:
    q, x = posterior(kind)
    predictor = Predictor(q.to(dtype).sample(4, seed=5), threshold=0.4)
    decision = predictor(x)
    fresh = NETWORKS[kind][0]()
    found = load(predictor.save(tmp_path / "folder"), module=fresh)
    assert torch.equal(found(x).probabilities, decision.probabilities)
    assert torch.equal(found(x).accepted, decision.accepted)
    assert not any(isinstance(layer, UnitMask) for layer in fresh.modules()), "what is passed is not changed"
    again = load(found.save(tmp_path / "again"), module=NETWORKS[kind][0]())
    assert torch.equal(again(x).probabilities, decision.probabilities)
    with pytest.raises(ValueError, match="module does not fit the saved weights"):
        load(tmp_path / "folder", module=nn.Conv2d(2, 2, 2))


def test_a_backbone_is_rebuilt_with_its_masks(tmp_path: Path) -> None:
    backbone, x = Backbone("cnn-4", (1, 8, 8), 3), torch.randn(9, 1, 8, 8)
    q = MCDropout(backbone.build(), rate=0.4)
    q(x)
    predictor = Predictor(q.sample(3), backbone=backbone)
    found = load(predictor.save(tmp_path / "folder"))
    assert found.backbone == backbone
    assert torch.equal(found(x).probabilities, predictor(x).probabilities)


@pytest.mark.parametrize("kind", ["images", "without dropout"])
def test_exported_it_decides_the_same(tmp_path: Path, kind: str) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    q, x = posterior(kind)
    predictor = Predictor(q.sample(3), threshold=0.4)
    expected = predictor(x).probabilities
    predictor.export(tmp_path, x[:2])
    session = onnxruntime.InferenceSession(tmp_path / "decision.onnx", providers=["CPUExecutionProvider"])
    (found,) = session.run(["probabilities"], {"x": x.numpy()})
    torch.testing.assert_close(torch.from_numpy(found), expected, rtol=1e-4, atol=1e-5)
    program = torch.export.load(tmp_path / "decision.pt2").module()
    torch.testing.assert_close(program(x)[2], expected, rtol=1e-4, atol=1e-5)


def test_state_survives_and_knows_the_sizes() -> None:
    q, x = posterior("images")
    other = MCDropout(images())
    other.load_state_dict(q.state_dict())
    assert torch.equal(other.sample(2)(x), q.sample(2)(x))


@needs_compiler
def test_it_can_be_compiled() -> None:
    q, x = posterior("table")
    compiled = torch.compile(q, dynamic=False)
    assert compiled(x).shape == (11, 3)
    assert not torch.equal(compiled(x), compiled(x))


def test_it_is_known_by_name_with_its_options() -> None:
    assert {"deterministic", "mean_field", "mc_dropout"} <= set(slots.names("posterior"))
    assert slots.options_of("posterior", "mc_dropout") == {"rate": None, "before_last": True}
    q = slots.build("posterior", "mc_dropout", {"rate": 0.2}, nn.Linear(2, 2))
    assert isinstance(q, MCDropout)
