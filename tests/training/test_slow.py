"""Training that takes minutes: compiled, and on the paper's data where it is to be found."""

import os

import pytest
import torch

from calibrant.config.loading import load_settings
from calibrant.config.schemes import Scheme
from calibrant.training import TrainingData, Workspace, open_data

pytestmark = pytest.mark.slow
ROOT = os.environ.get("CALIBRANT_DATA", "")


def test_compiled_training_equals_eager_training_within_rounding():
    fast = ("fit.epochs=2", "finetune.epochs=1", "backbone.name=mlp-16", "data.train=100")
    data = open_data(load_settings("embedded", overrides=fast).data, seed=0)
    found = []
    for compiled in ("false", "true"):
        settings = load_settings("embedded", overrides=(*fast, f"engine.compile={compiled}"))
        found.append(Workspace(data, settings).model("CFNN-OCM").state_dict())
    for name, value in found[0].items():
        assert torch.allclose(value, found[1][name], atol=1e-4, rtol=1e-3), name


@pytest.mark.skipif(not ROOT, reason="CALIBRANT_DATA must name a folder with CIFAR-100 and TinyImageNet (resized)")
def test_every_scheme_runs_on_cifar_100_against_tiny_imagenet():
    overrides = (
        f"data.root={ROOT}",
        "data.ood=[]",
        "data.train=300",
        "data.validation=200",
        "data.test=200",
        "backbone.name=wrn-10-1",
        "fit.epochs=1",
        "finetune.epochs=1",
        "finetune.examples_per_epoch=96",
        "posterior.members=2",
        "outliers.max_points=100",
        "selector.views=2",
        "selector.steps=20",
        "engine.compile=false",
    )
    settings = load_settings("small", overrides=overrides)
    data = open_data(settings.data, settings.seed)
    few = {name: part.subset(torch.arange(200)) for name, part in data.ood.items()}
    data = TrainingData(data.train, data.validation, data.test, data.uncertainty, few, data.splits)
    outputs = Workspace(data, settings).train(*Scheme.all())
    for name, found in outputs.items():
        assert set(found) == {"validation", "test", "imagenet-resize"}, name
        assert found["test"].probabilities.shape == (200, 100)
        assert torch.allclose(found["test"].probabilities.sum(1), torch.ones(200), atol=1e-4)
