"""A predictor with a transform: uint8 and float images of any size, saved, exported, and on folders."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from calibrant import Ensemble, Predictor, load
from calibrant.backbones.normalization import Normalize
from calibrant.data import ImageTransform
from calibrant.deploy import Backbone
from calibrant.deploy.evaluating import _open
from calibrant.deploy.prediction_tables import predict_table
from calibrant.deploy.saving import describe

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
TRANSFORM = ImageTransform(size=8, crop=0.8, mean=MEAN, std=STD, interpolation="bicubic", channels=3)


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)).eval()


def images(side: int = 20, count: int = 6) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(256, (count, 3, side, side), dtype=torch.uint8, generator=generator)


def test_uint8_and_float_images_of_any_size_are_resized_and_normalized() -> None:
    own = network()
    predictor = Predictor(Ensemble.of(own), transform=TRANSFORM)
    for x in (images(), images() / 255, images(8), images(33).numpy()):
        expected = own(TRANSFORM(x)).softmax(-1)
        torch.testing.assert_close(predictor(x).probabilities, expected)
    near = predictor(images()).probabilities, predictor(images() / 255).probabilities
    torch.testing.assert_close(*near, atol=0.02, rtol=0)
    whole = predictor.predict([(images()[:4], torch.zeros(4)), images()[4:]])
    torch.testing.assert_close(whole.probabilities, predictor(images()).probabilities)


def test_uint8_images_without_a_transform_get_a_sentence() -> None:
    with pytest.raises(ValueError, match=r"uint8 images.*transform=ImageTransform\(mean=\.\.\., std=\.\.\.\)"):
        Predictor(Ensemble.of(network()))(images())
    with pytest.raises(ValueError, match="transform must be an ImageTransform or another callable"):
        Predictor(Ensemble.of(network()), transform=3)  # type: ignore[arg-type]


def test_the_transform_is_saved_and_loaded(tmp_path: Path) -> None:
    predictor = Predictor(Ensemble.of(network()), transform=TRANSFORM, factory="nets:small?width=4")
    folder = predictor.save(tmp_path / "predictor")
    found = load(folder, network())
    assert found.transform == TRANSFORM
    assert found.factory == "nets:small?width=4"
    assert torch.equal(found(images()).probabilities, predictor(images()).probabilities)
    assert found._with(None, 0.5).transform == TRANSFORM
    assert json.loads((folder / "predictor.json").read_text())["version"] == 3  # which earlier versions refuse
    assert "crop 0.8" in describe(folder)["transform"]
    assert describe(folder)["network"] == "nets:small?width=4"
    with pytest.raises(ValueError, match=r"nets:small\?width=4 made it: add --module 'nets:small\?width=4'"):
        load(folder)


def test_a_function_is_used_but_not_saved(tmp_path: Path) -> None:
    def halved(x: Tensor) -> Tensor:
        return x[..., ::2, ::2] / 255

    predictor = Predictor(Ensemble.of(network()), transform=halved)
    torch.testing.assert_close(predictor(images()).probabilities, network()(halved(images())).softmax(-1))
    folder = predictor.save(tmp_path / "predictor")
    with pytest.raises(ValueError, match=r"transform must be given: .*halved, which is code and therefore not saved"):
        load(folder, network())
    found = load(folder, network(), transform=halved)
    assert torch.equal(found(images()).probabilities, predictor(images()).probabilities)


@pytest.mark.parametrize("kind", ["uint8", "float"])
def test_exported_programs_normalize_and_leave_resizing_to_the_caller(tmp_path: Path, kind: str) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    predictor = Predictor(Ensemble.of(network()), transform=TRANSFORM, threshold=0.4)
    x = TRANSFORM.shaped(images()) if kind == "uint8" else TRANSFORM.shaped(images()) / 255
    expected = predictor(x)
    program, file = predictor.export(tmp_path, images() if kind == "uint8" else images() / 255)
    names = ("predicted", "confidence", "probabilities", "accepted")
    found = dict(zip(names, torch.export.load(program).module()(x)))
    torch.testing.assert_close(found["probabilities"], expected.probabilities)
    session = onnxruntime.InferenceSession(str(file))
    (confidence,) = session.run(["confidence"], {"x": x.numpy()})
    np.testing.assert_allclose(confidence, expected.confidence, rtol=1e-5)
    about = session.get_modelmeta().custom_metadata_map
    assert ImageTransform.from_dict(json.loads(about["transform"])) == TRANSFORM


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "new").mkdir()
    for number, image in enumerate(images(64)):
        sides = (64, 40 + number)  # no two alike
        Image.fromarray(image.permute(1, 2, 0).numpy()).resize(sides).save(tmp_path / "new" / f"{number}.png")
    return tmp_path / "new"


def test_a_folder_of_images_of_any_sizes_is_decoded_by_the_transform(folder: Path, tmp_path: Path) -> None:
    predictor = Predictor(Ensemble.of(network()), transform=TRANSFORM)
    predict_table(predictor, str(folder), tmp_path / "out.csv", batch_rows=4)
    rows = [line.split(",") for line in (tmp_path / "out.csv").read_text().splitlines()]
    expected = predictor([Image.open(folder / f"{number}.png") for number in range(6)])
    assert [row[0] for row in rows[1:]] == [f"{number}.png" for number in range(6)]
    confidence = torch.tensor([float(row[rows[0].index("confidence")]) for row in rows[1:]])
    torch.testing.assert_close(confidence, expected.confidence)
    assert _open(str(folder), predictor).inputs.shape == (6, 3, 8, 8)


def test_the_size_of_a_backbone_applies_to_a_folder(folder: Path, tmp_path: Path) -> None:
    """As for predictors that were saved before there were transforms."""
    backbone = Backbone("cnn-4", (3, 16, 16), 3)
    normalized = Normalize(backbone.build(), torch.zeros(3), torch.ones(3))
    predictor = Predictor(Ensemble.of(normalized), backbone=backbone)
    assert predict_table(predictor, str(folder), tmp_path / "out.csv").inputs == 6
    with pytest.raises(ValueError, match=r"has inputs of shape \(3, 20, 20\), but the model was trained on"):
        predict_table(predictor, f"{folder}?size=20", tmp_path / "out.csv")
