from __future__ import annotations

import pytest
import torch
from torch import nn

from calibrant.backbones import build, cost, resnet18, resnet20
from calibrant.posteriors.mean_field import MeanField


def conv_macs(module: nn.Module, x: torch.Tensor) -> int:
    """Multiply-adds by hand: kernel volume times output size of every convolution, and every linear weight."""
    total = 0

    def count(layer: nn.Module, _: object, out: torch.Tensor) -> None:
        nonlocal total
        if isinstance(layer, nn.Conv2d):
            total += layer.weight[0].numel() * out[0].numel()
        elif isinstance(layer, nn.Linear):
            total += layer.weight.numel()

    handles = [m.register_forward_hook(count) for m in module.modules()]
    module.eval()(x.unsqueeze(0))
    for handle in handles:
        handle.remove()
    return total


@pytest.mark.parametrize(
    ("name", "shape", "classes"),
    [
        ("wrn-16-1", (3, 32, 32), 100),
        ("wrn-10-2", (1, 8, 8), 10),
        ("resnet-18-8", (3, 32, 32), 10),
        ("resnet-20", (3, 16, 16), 10),
        ("cnn-16", (1, 8, 8), 10),
        ("cnn-8-3", (3, 32, 32), 2),
        ("mlp-64-64", (20,), 1000),
        ("mlp", (1, 8, 8), 10),
    ],
)
def test_every_backbone_gives_logits_and_its_cost_is_counted_right(
    name: str, shape: tuple[int, ...], classes: int
) -> None:
    module, x = build(name, shape, classes), torch.randn(2, *shape)
    assert module(x).shape == (2, classes)
    assert cost(module, x[0]).multiply_adds == conv_macs(module, x[0])
    q = MeanField(module)
    (q(x).square().sum() + q.kl()).backward()
    assert all(p.grad is not None for p in q.parameters())


def test_the_papers_cost_table() -> None:
    wrn = build("wrn-40-2", (3, 32, 32), 100)
    parameters, macs = cost(wrn, torch.zeros(3, 32, 32))
    assert round(parameters / 1e6, 2) == 2.26, "the table prints 2.25 M"
    assert round(macs / 1e9, 2) == 0.33, "the table prints 0.3 G"
    assert sum(p.numel() for p in MeanField(wrn).parameters()) == pytest.approx(4.5e6, rel=0.01)


def test_reference_sizes_of_the_resnets() -> None:
    assert sum(p.numel() for p in resnet18(10).parameters()) == 11_173_962
    assert sum(p.numel() for p in resnet20(10).parameters()) == pytest.approx(0.27e6, rel=0.03)


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("wrm-16-1", (3, 8, 8), "did you mean wrn-DEPTH-WIDTH"),
        ("wrn-16", (3, 8, 8), "must be written wrn-DEPTH-WIDTH"),
        ("wrn-17-1", (3, 8, 8), "depth must be 6 n"),
        ("resnet-19", (3, 8, 8), "depth must be 6 n"),
        ("cnn-0", (3, 8, 8), "must be written cnn"),
        ("cnn-16", (20,), "needs images"),
    ],
)
def test_wrong_names_are_explained(name: str, shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build(name, shape, 10)
