from __future__ import annotations

import copy

import pytest
import torch
from modules import convolutional, examples
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from calibrant.posteriors.ensemble import Ensemble
from calibrant.posteriors.mean_field import MeanField
from calibrant.predictions import Predictions


@pytest.fixture
def posterior() -> MeanField:
    return MeanField(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)), init_std=0.3)


@pytest.fixture
def loader() -> DataLoader[tuple[Tensor, ...]]:
    return DataLoader(TensorDataset(torch.randn(10, 4), torch.arange(10) % 3), batch_size=4)


def test_members_are_fixed_by_the_seed_and_differ_from_each_other(posterior: MeanField) -> None:
    x = torch.randn(5, 4)
    ensemble = posterior.sample(3, seed=1)
    logits = ensemble(x)
    assert logits.shape == (3, 5, 3)
    assert torch.equal(logits, ensemble(x))
    assert torch.equal(logits, posterior.sample(3, seed=1)(x))
    assert torch.equal(logits[:2], posterior.sample(2, seed=1)(x)), "a smaller ensemble is a part of a larger one"
    assert not torch.equal(logits, posterior.sample(3, seed=2)(x))
    assert not torch.equal(logits[0], logits[1])
    torch.testing.assert_close(logits, torch.stack([ensemble.member(k)(x) for k in range(3)]))
    torch.testing.assert_close(logits, ensemble.stored()(x))
    torch.testing.assert_close(ensemble.mean_probabilities(x), logits.softmax(-1).mean(0))


def test_members_have_the_spread_of_the_posterior(posterior: MeanField) -> None:
    ensemble = posterior.sample(400, seed=0)
    weights = torch.stack([ensemble._weights(k)["0.weight"] for k in range(400)])
    mean = posterior.module[0].weight
    torch.testing.assert_close(weights.mean(0), mean, atol=5 * 0.3 / 20, rtol=0)
    assert weights.std(0).mean().item() == pytest.approx(0.3, rel=0.02)


def test_later_training_does_not_change_what_was_sampled(posterior: MeanField) -> None:
    x = torch.randn(2, 4)
    ensemble, single = posterior.sample(2), Ensemble.of(posterior.module)
    before, alone = ensemble(x), single(x)
    with torch.no_grad():
        for parameter in posterior.parameters():
            parameter.add_(1.0)
    assert torch.equal(before, ensemble(x))
    assert torch.equal(alone, single(x))


def test_a_deterministic_network_is_an_ensemble_of_one() -> None:
    net, x = convolutional().eval(), torch.randn(4, 3, 6, 6)
    single = Ensemble.of(net)
    assert len(single) == 1
    torch.testing.assert_close(single(x)[0], net(x))


def test_several_networks_stack_with_their_buffers() -> None:
    nets = [convolutional() for _ in range(3)]
    x = torch.randn(8, 3, 6, 6)
    for net in nets:
        net.train()(x * (1 + torch.rand(1)))
        net.eval()
    torch.testing.assert_close(Ensemble.stack(nets)(x), torch.stack([net(x) for net in nets]))
    module, tokens = examples()["tied"]
    tied = [module, copy.deepcopy(module)]
    torch.testing.assert_close(Ensemble.stack(tied)(tokens), torch.stack([net(tokens) for net in tied]))
    with pytest.raises(ValueError, match="one architecture"):
        Ensemble.stack([nn.Linear(2, 2), nn.Linear(3, 2)])
    with pytest.raises(ValueError, match="one architecture: their parameters differ in name, shape or type"):
        Ensemble.stack([nn.Linear(2, 2), nn.Linear(2, 2).double()])
    with pytest.raises(ValueError, match="modules is empty"):
        Ensemble.stack([])


@pytest.mark.parametrize("stored", [False, True])
def test_streaming_a_loader_equals_one_call_with_features_from_the_same_pass(
    posterior: MeanField, loader: DataLoader[tuple[Tensor, ...]], stored: bool
) -> None:
    ensemble = posterior.sample(3).stored() if stored else posterior.sample(3)
    seen: list[int] = []
    predictions = ensemble.predict(loader, progress=seen.append)
    x, y = loader.dataset.tensors  # type: ignore[attr-defined]
    torch.testing.assert_close(predictions.logits, ensemble(x))
    assert predictions.labels is not None
    assert torch.equal(predictions.labels, y)
    assert predictions.features is not None
    for k in range(3):
        torch.testing.assert_close(predictions.features[k], ensemble.member(k)[:2](x))
    assert sum(seen) == 3 * 10
    named = ensemble.predict(loader, feature_layer="0").features
    assert named is not None
    torch.testing.assert_close(named, x.expand(3, -1, -1))


def test_only_one_drawn_member_is_in_memory_while_streaming(posterior: MeanField, loader: object) -> None:
    ensemble, order = posterior.sample(4), []
    draw = ensemble.members.weights
    ensemble.members.weights = lambda k, module: order.append(k) or draw(k, module)  # type: ignore[method-assign]
    ensemble.predict(loader)  # type: ignore[arg-type]
    assert order == [0, 1, 2, 3], "each member is drawn once, for the whole loader"


@pytest.mark.parametrize("kind", sorted(examples()))
def test_every_kind_of_module_can_be_sampled_and_predicted(kind: str) -> None:
    module, x = examples()[kind]
    predictions = MeanField(module, init_std=0.2).sample(2).predict([x, x])
    assert predictions.logits.shape[:2] == (2, 2 * len(x))
    assert predictions.labels is None
    assert (predictions.features is None) == (kind == "unusual"), "no linear layer is called there"


def test_loaders_that_cannot_be_repeated_are_refused(posterior: MeanField) -> None:
    data = TensorDataset(torch.randn(10, 4), torch.arange(10) % 3)
    ensemble = posterior.sample(2)
    with pytest.raises(ValueError, match="shuffle=False"):
        ensemble.predict(DataLoader(data, batch_size=4, shuffle=True))
    with pytest.raises(ValueError, match="read only once"):
        ensemble.predict(iter([torch.randn(2, 4)]))
    with pytest.raises(ValueError, match="loader is empty"):
        ensemble.predict([])
    with pytest.raises(ValueError, match="feature_layer 'nowhere'"):
        ensemble.predict([torch.randn(2, 4)], feature_layer="nowhere")
    with pytest.raises(ValueError, match="n must be at least 1"):
        posterior.sample(0)

    class Moving(list[tuple[Tensor, Tensor]]):
        def __iter__(self):  # type: ignore[no-untyped-def]
            return iter([(torch.randn(3, 4), torch.randint(1000, (3,)))])

    with pytest.raises(ValueError, match="changes its order"):
        ensemble.predict(Moving())


def test_moving_and_copying_keep_the_members(posterior: MeanField) -> None:
    x = torch.randn(3, 4)
    ensemble = posterior.sample(2, seed=4)
    torch.testing.assert_close(copy.deepcopy(ensemble)(x), ensemble(x))
    torch.testing.assert_close(copy.deepcopy(ensemble).double()(x.double()).float(), ensemble(x))


def test_predictions_read_off_the_mean_of_the_probabilities() -> None:
    logits = torch.tensor([[[2.0, 0.0], [0.0, 1.0]], [[-1.0, 3.0], [0.0, 1.0]]])
    predictions = Predictions.from_logits(logits, labels=torch.tensor([1, 0]))
    expected = logits.softmax(-1).mean(0)
    torch.testing.assert_close(predictions.probabilities, expected)
    assert predictions.predicted.tolist() == [1, 1]
    assert predictions.correct.tolist() == [True, False]
    torch.testing.assert_close(predictions.confidence, expected.amax(-1))
    assert len(predictions) == 2
    with pytest.raises(ValueError, match="labels are missing"):
        Predictions.from_logits(logits).correct  # noqa: B018
