"""SIRC: the published formula, its parameters from ID data alone, and the selector's contract."""

import json
import math

import pytest
import torch
from safetensors.torch import load, save
from torch.export import Dim, export

from calibrant.predictions import Predictions
from calibrant.selective import SIRC


def draw(size=300, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    confidence = torch.rand(size, generator=generator, dtype=dtype)
    score = 5 + 2 * torch.randn(size, generator=generator, dtype=dtype)
    return Predictions(confidence, None, scores={"knn": score, "energy": -score})


def published(confidence, second, a, b):
    """-(S1max - S1)(1 + exp(-b (S2 - a))), one input at a time."""
    return [-(1 - c) * (1 + math.exp(-b * (s - a))) for c, s in zip(confidence.tolist(), second.tolist())]


def test_it_is_an_increasing_function_of_the_published_formula():
    validation, fresh = draw(), draw(200, 1)
    sirc = SIRC("knn").fit(validation)
    second = -validation.scores["knn"]
    mean = sum(second.tolist()) / 300
    std = math.sqrt(sum((value - mean) ** 2 for value in second.tolist()) / 300)
    expected = published(fresh.confidence, -fresh.scores["knn"], mean - 3 * std, 1 / std)
    found = sirc.relaxed(fresh.confidence, fresh.columns(sirc.names))
    torch.testing.assert_close(found, torch.tensor([1 / (1 - value) for value in expected], dtype=torch.float64))
    assert found.argsort().tolist() == sorted(range(200), key=expected.__getitem__)


def test_it_rises_with_confidence_and_falls_with_the_score():
    sirc = SIRC("knn").fit(draw())
    grid = torch.linspace(0, 0.999, 50, dtype=torch.float64)
    assert bool((sirc(grid, torch.full((50, 1), 4.0).double()).diff() > 0).all())
    far = torch.linspace(-100, 1000, 50, dtype=torch.float64)[:, None]
    assert bool((sirc(torch.full((50,), 0.9).double(), far).diff() <= 0).all())
    assert float(sirc(torch.tensor([1.0]).double(), torch.tensor([[1e6]]).double())) == 1.0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_it_is_saved_loaded_and_exported(dtype):
    sirc, fresh = SIRC("knn").fit(draw(dtype=dtype)), draw(33, 1, dtype)
    assert sirc.threshold(0.5).achieved == 0.5
    rebuilt = SIRC.from_state(json.loads(json.dumps(sirc.config())), load(save(sirc.state_dict())))
    columns = fresh.columns(rebuilt.names)
    assert torch.equal(rebuilt.accept(fresh.confidence, columns), sirc.accept(fresh.confidence, columns))
    batch = Dim("batch", min=2, max=4096)
    example = (torch.rand(5, dtype=dtype), torch.randn(5, 1, dtype=dtype))
    program = export(sirc, example, dynamic_shapes={"confidence": {0: batch}, "scores": {0: batch}})
    torch.testing.assert_close(program.module()(fresh.confidence, columns), sirc.relaxed(fresh.confidence, columns))


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="detector must name one of the scores of validation \\(knn, energy\\)"):
        SIRC().fit(draw())
    with pytest.raises(ValueError, match="the same for all"):
        SIRC().fit_arrays([0.5, 0.6], [1.0, 1.0])
    with pytest.raises(ValueError, match=r"call fit\(validation\) first"):
        SIRC("knn").threshold(0.5)
    with pytest.raises(ValueError, match="SIRC reads one, knn"):
        SIRC("knn").fit(draw()).relaxed([0.5], [[1.0, 2.0]])
