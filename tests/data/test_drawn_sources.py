"""Outliers that are drawn when they are needed: letters and noise."""

from __future__ import annotations

import hashlib

import pytest
import torch

from calibrant.data import DataError, Spec, has_parts, open_source, outlier_parts
from calibrant.data import letters as letters_module

COUNTS = {"letters": 5000, "noise": 2000}


@pytest.fixture(autouse=True)
def _few_letters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rendering takes most of the time: 200 letters will do."""
    monkeypatch.setattr(letters_module, "_COUNT", 200)
    monkeypatch.setitem(COUNTS, "letters", 200)


def digest(spec: str) -> str:
    return hashlib.sha256(open_source(spec).inputs.numpy().tobytes()).hexdigest()


@pytest.mark.parametrize("kind", ["letters", "noise"])
def test_the_same_bytes_every_time_whatever_the_global_seeds(kind: str) -> None:
    first = digest(f"{kind}?size=12")
    torch.manual_seed(5)
    assert digest(f"{kind}?size=12") == first
    assert digest(f"{kind}?size=12x12") == first
    assert digest(f"{kind}?size=13") != first


@pytest.mark.parametrize("kind", ["letters", "noise"])
@pytest.mark.parametrize(
    ("query", "shape"),
    [
        ("", (3, 32, 32)),
        ("?size=8", (3, 8, 8)),
        ("?size=8x20", (3, 8, 20)),
        ("?size=1", (3, 1, 1)),
        ("?size=28&color=gray", (1, 28, 28)),
        ("?color=gray", (1, 32, 32)),
    ],
)
def test_shapes_are_as_asked(kind: str, query: str, shape: tuple[int, ...]) -> None:
    data = open_source(kind + query)
    assert data.inputs.shape == (COUNTS[kind], *shape)
    assert data.inputs.dtype == torch.uint8
    assert data.labels is None
    assert data.name == kind


def test_noise_is_half_uniform_and_half_gaussian() -> None:
    images = open_source("noise?size=16").inputs.double()
    uniform, gaussian = images[:1000], images[1000:]
    # The mean over n = 768,000 pixels lies within 5 standard errors; the variance of 0, ..., 255 is (256^2 - 1) / 12.
    assert float(uniform.mean()) == pytest.approx(127.5, abs=5 * 73.9 / 768_000**0.5)
    assert float(uniform.var()) == pytest.approx((256**2 - 1) / 12, rel=0.01)
    # P(|z| > 127.5 / 64) = 0.0463 of a normal are beyond the range; integers are rounded down.
    outside = ((gaussian == 0) | (gaussian == 255)).double().mean()
    assert float(gaussian.mean()) == pytest.approx(127.0, abs=0.5)
    assert 0.045 < float(outside) < 0.053
    neighbors = torch.corrcoef(torch.stack([images[..., :-1].flatten(), images[..., 1:].flatten()]))[0, 1]
    channels = torch.corrcoef(torch.stack([images[:, 0].flatten(), images[:, 1].flatten()]))[0, 1]
    assert abs(float(neighbors)) < 0.01
    assert abs(float(channels)) < 0.01


def test_a_letter_has_ground_and_ink() -> None:
    images = open_source("letters?size=32").inputs
    corners = images[:, :, [0, 0, -1, -1], [0, -1, 0, -1]]
    plain = (corners == corners[..., :1]).all(-1).all(-1)
    assert plain.double().mean() > 0.5  # most letters leave the corners free; turning fills some with the ground
    drawn = (images != images[:, :, :1, :1]).any(1).double().mean((1, 2))
    assert drawn.median() > 0.05
    assert len({image.numpy().tobytes() for image in images}) == len(images)


@pytest.mark.parametrize("kind", ["letters", "noise"])
def test_they_have_no_parts_and_refuse_what_they_do_not_know(kind: str) -> None:
    assert not has_parts(kind)
    fit, test, _ = outlier_parts(f"{kind}?size=4")
    assert len(fit) + len(test) == COUNTS[kind]
    for spec, sentence in {
        f"{kind}?size=0": "size must be a number of pixels or HEIGHTxWIDTH, not '0'",
        f"{kind}?color=red": "color must be rgb or gray, not 'red'",
        f"{kind}?path=here": f"{kind} has no option 'path'; it has size, color",
    }.items():
        with pytest.raises(DataError, match=sentence):
            Spec.parse(spec).source()
