"""SWAG: moments against brute force over stored iterates, when they are collected, BatchNorm, saving and export."""

from __future__ import annotations

import copy
import math
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import update_bn

from calibrant import Ensemble
from calibrant.deploy import Predictor, load
from calibrant.posteriors import SWAG, MeanField, TrainingContext
from calibrant.posteriors.batch_statistics import with_batch_statistics


def small(dtype: torch.dtype = torch.float64) -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).to(dtype)


def normalized() -> nn.Sequential:
    torch.manual_seed(0)
    layers = (nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Dropout(0.5), nn.Linear(64, 3))
    return nn.Sequential(*layers)


def flat(module: nn.Module) -> Tensor:
    return nn.utils.parameters_to_vector(p for p in module.parameters() if p.requires_grad).detach().clone()


def wander(q: SWAG, steps: int, *, after: bool = True, std: float = 0.1) -> list[Tensor]:
    """Move the weights `steps` times at random; returns all iterates."""
    generator, iterates = torch.Generator().manual_seed(5), []
    for _ in range(steps):
        with torch.no_grad():
            for parameter in q.module.parameters():
                parameter += std * torch.randn(parameter.shape, generator=generator).to(parameter)
        iterates.append(flat(q.module))
        q.after_step() if after else q.collect()
    return iterates


def covariance(iterates: list[Tensor], rank: int, scale: float = 1.0) -> Tensor:
    """By brute force: scale (S + D D^T / (R - 1)) / 2, or scale S."""
    theta = torch.stack(iterates)
    diagonal = (theta.square().mean(0) - theta.mean(0).square()).diag()
    if rank == 0:
        return scale * diagonal
    columns = [theta[t] - theta[: t + 1].mean(0) for t in range(len(theta))][-rank:]
    deviations = torch.stack(columns, 1)
    return scale * (diagonal + deviations @ deviations.T / (len(columns) - 1)) / 2


@pytest.mark.parametrize(("rank", "count", "scale"), [(0, 6, 1.0), (4, 3, 1.0), (4, 9, 0.5)])
def test_moments_and_members_are_those_of_the_stored_iterates(rank: int, count: int, scale: float) -> None:
    q = SWAG(small(), rank=rank, scale=scale)
    iterates = wander(q, count, after=False)
    torch.testing.assert_close(q.mean.detach(), torch.stack(iterates).mean(0))
    variances = torch.cat([value.flatten() for value in q.variances().values()])
    torch.testing.assert_close(variances, torch.stack(iterates).var(0, unbiased=False))
    assert torch.equal(q.means()["0.weight"], q.mean[:12].reshape(4, 3))
    n = 3000
    stacked = q.sample(n, seed=3).stacked()
    drawn = torch.cat([value.reshape(n, -1) for value in stacked.values()], 1)
    expected = covariance(iterates, rank, scale)
    unit = expected.diagonal().sqrt()
    error = (torch.cov(drawn.T) - expected) / torch.outer(unit, unit)
    assert drawn.dtype == torch.float64
    assert float(error.abs().max()) < 6 / math.sqrt(n) * math.sqrt(2)
    assert float(((drawn.mean(0) - q.mean) / unit).abs().max()) < 5 / math.sqrt(n)


def test_independent_iterates_give_back_the_gaussian_they_are_from() -> None:
    torch.manual_seed(0)
    q, std = SWAG(nn.Linear(3, 1, dtype=torch.float64), rank=400), torch.tensor([0.1, 1.0, 3.0, 0.5]).double()
    mean = torch.tensor([1.0, -2.0, 0.0, 4.0]).double()
    for _ in range(2000):
        nn.utils.vector_to_parameters(mean + std * torch.randn(4).double(), q.module.parameters())
        q.collect()
    assert float(((q.mean - mean) / std).abs().max()) < 0.1
    columns = q.deviations.detach()
    found = (q.squares.detach() / 2000).diag() / 2 + columns.T @ columns / (2 * 399)
    torch.testing.assert_close(found / torch.outer(std, std), torch.eye(4).double(), atol=0.15, rtol=0)


@pytest.mark.parametrize(
    ("steps", "start", "iterates", "expected"),
    [
        (10, 0.5, 5, [6, 7, 8, 9, 10]),
        (10, 0.5, 99, [6, 7, 8, 9, 10]),
        (20, 0.5, 2, [15, 20]),
        (7, 0.0, 3, [3, 5, 7]),
        (9, 0.3, 2, [6, 9]),
    ],
)
def test_iterates_are_collected_evenly_from_the_start_to_the_end(
    steps: int, start: float, iterates: int, expected: list[int]
) -> None:
    q, at = SWAG(small(), start=start, iterates=iterates), list[int]()
    q.begin(steps)
    for step in range(1, steps + 3):
        before = int(q.progress[2])
        q.after_step()
        at += [step] * (int(q.progress[2]) - before)
    assert at == expected


def test_a_new_training_collects_anew_and_a_loaded_state_goes_on() -> None:
    q = SWAG(small(), rank=3)
    q.begin(8)
    wander(q, 8)
    assert int(q.progress[2]) == 4
    q.begin(8)
    assert torch.equal(q.sample(2)(torch.ones(1, 3).double())[0], q(torch.ones(1, 3).double())), "nothing yet"
    first = wander(q, 6)
    other = SWAG(small(), rank=3)
    wander(other, 3, after=False)
    other.load_state_dict(q.state_dict())
    rest = [wander(each, 2) for each in (q, other)]
    assert all(torch.equal(a, b) for a, b in zip(*rest))
    torch.testing.assert_close(q.mean.detach(), torch.stack([*first[4:], *rest[0]]).mean(0))
    assert all(torch.equal(value, other.state_dict()[name]) for name, value in q.state_dict().items())


@torch.no_grad()
def test_members_are_fixed_by_the_seed_and_differ() -> None:
    q, x = SWAG(small()), torch.randn(5, 3).double()
    wander(q, 4, after=False)
    logits = q.sample(4, seed=1)(x)
    assert torch.equal(q.sample(2, seed=1)(x), logits[:2]), "a smaller ensemble is the beginning of a larger one"
    assert not torch.equal(logits[0], logits[1])
    assert not torch.equal(q.sample(4, seed=2)(x), logits)
    assert q.kl() is None
    assert q.logits(x, 3).shape == (1, 5, 2)


@torch.no_grad()
def test_batch_statistics_of_every_member_are_those_that_pytorch_measures() -> None:
    q, batches = SWAG(normalized()), list(torch.randn(4, 16, 1, 6, 6).unbind())
    wander(q, 5, after=False)
    drawn = q.sample(3)
    state = torch.random.get_rng_state()
    ensemble = q.refresh(drawn, [(x, torch.zeros(len(x))) for x in [*batches, batches[0][:1]]])
    assert torch.equal(torch.random.get_rng_state(), state), "dropout is off"
    assert {"1.running_mean", "1.running_var", "0.weight"} <= set(ensemble.stacked())
    for k in range(3):
        member = drawn.member(k)
        member[4].p = 0.0
        update_bn(batches, member)
        torch.testing.assert_close(ensemble.stacked()["1.running_mean"][k], member[1].running_mean)
        torch.testing.assert_close(ensemble.stacked()["1.running_var"][k], member[1].running_var)
        torch.testing.assert_close(ensemble.as_callable(k)(batches[0])[0], member.eval()(batches[0]))
    some = with_batch_statistics(drawn, batches, examples=17)
    two = with_batch_statistics(drawn, batches[:2])
    assert torch.equal(some.stacked()["1.running_var"], two.stacked()["1.running_var"])


def test_what_needs_no_statistics_is_left_as_it_is() -> None:
    q = SWAG(normalized())
    drawn = q.sample(2)
    assert q.refresh(drawn, ()) is drawn, "before the first iterate"
    q.collect()
    with pytest.raises(ValueError, match="batches must hold training inputs"):
        q.refresh(q.sample(2), ())
    plain = SWAG(small())
    plain.collect()
    drawn = plain.sample(2)
    assert plain.refresh(drawn, ()) is drawn
    with pytest.raises(ValueError, match="members that run one module"):
        with_batch_statistics(Ensemble.separate([small()]), ())
    around = MeanField(normalized()).sample(2)
    measured = with_batch_statistics(around, [torch.randn(8, 1, 6, 6)])
    assert torch.equal(measured.stacked()["0.weight"], around.stacked()["0.weight"])


def test_frozen_parameters_are_shared_and_the_moments_belong_to_the_trained_state() -> None:
    module = small()
    module[0].requires_grad_(False)
    q = SWAG(module)
    q.collect()
    wander(q, 2, after=False)
    assert list(q.sample(2).stacked()) == ["2.weight", "2.bias"]
    state = q.trained_state()
    assert "mean" in state
    assert "module.0.weight" not in state
    other = SWAG(copy.deepcopy(module))
    other.load_trained_state(state)
    x = torch.randn(2, 3).double()
    assert torch.equal(other.sample(3)(x), q.sample(3)(x))
    (group,) = q.parameter_groups(TrainingContext(rate=0.1))
    assert [len(p) for p in group["params"]] == [2, 2]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rank": 1}, "rank must be 0, for the diagonal alone, or at least 2, not 1"),
        ({"start": 1.0}, r"start must lie in \[0, 1\), not 1.0"),
        ({"scale": 0.0}, "scale must be"),
        ({"iterates": 1}, "iterates must be at least 2"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SWAG(small(), **options)  # type: ignore[arg-type]


def test_what_cannot_be_collected_is_refused() -> None:
    with pytest.raises(ValueError, match="nothing to collect"):
        SWAG(small().requires_grad_(False))
    with pytest.raises(ValueError, match="steps must be finite"):
        SWAG(small()).begin(math.inf)  # type: ignore[arg-type]


@torch.no_grad()
def test_saved_and_exported_it_decides_the_same(tmp_path: Path) -> None:
    q, x = SWAG(normalized()), torch.randn(6, 1, 6, 6)
    wander(q, 4, after=False)
    predictor = Predictor(q.refresh(q.sample(3), [torch.randn(16, 1, 6, 6)]), threshold=0.5)
    decision = predictor(x)
    found = load(predictor.save(tmp_path / "folder"), module=normalized())
    assert torch.equal(found(x).probabilities, decision.probabilities)
    predictor.export(tmp_path / "p.pt2", x)
    torch.testing.assert_close(torch.export.load(tmp_path / "p.pt2").module()(x)[2], decision.probabilities)
