"""Images as networks want them, against Pillow: what torchvision and timm do with the same settings."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from PIL import Image

from calibrant.data import ImageTransform, iter_batches, open_source, with_defaults
from calibrant.data.images import ImageForm, pil_to_tensor

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
WAYS = {"bilinear": Image.BILINEAR, "bicubic": Image.BICUBIC}


def photo(height: int, width: int, seed: int = 0) -> Image.Image:
    rng = np.random.default_rng(seed)
    small = Image.fromarray(rng.integers(0, 256, (5, 7, 3), dtype=np.uint8))
    return small.resize((width, height), Image.BICUBIC)


def resized_and_cropped(image: Image.Image, shorter: int, size: int, way: str) -> torch.Tensor:
    """`Resize(shorter)`, `CenterCrop(size)`, `ToTensor()`, `Normalize(MEAN, STD)`, step by step."""
    short, long = sorted(image.size)
    sides = (shorter, int(shorter * long / short)) if image.width == short else (int(shorter * long / short), shorter)
    image = image.resize(sides, WAYS[way])
    left, top = round((image.width - size) / 2), round((image.height - size) / 2)
    pixels = np.asarray(image.crop((left, top, left + size, top + size)), dtype=np.float64) / 255
    return torch.from_numpy((pixels - MEAN) / STD).permute(2, 0, 1)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("sides", [(60, 90), (90, 61), (40, 40), (25, 30)])
def test_a_pil_image_is_what_torchvision_makes_of_it(sides: tuple[int, int], way: str) -> None:
    transform = ImageTransform(size=28, crop=0.875, mean=MEAN, std=STD, interpolation=way)
    expected = resized_and_cropped(photo(*sides), 32, 28, way)
    torch.testing.assert_close(transform(photo(*sides)).double(), expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("crop", [None, 0.875, 1.0])
def test_tensors_and_files_agree_to_a_gray_level(crop: float | None, way: str) -> None:
    form = ImageForm((20, 24), crop=crop, interpolation=way)
    image = photo(60, 90)
    pixels = torch.from_numpy(np.asarray(image).copy()).permute(2, 0, 1)[None]
    transform = ImageTransform(size=(20, 24), crop=crop, interpolation=way)
    found = transform.shaped(pixels)
    assert found.dtype == torch.uint8
    assert int((found[0].int() - pil_to_tensor(image, form).int()).abs().max()) <= 1
    torch.testing.assert_close(transform(pixels), found / 255)
    floats = ImageTransform(size=(20, 24), crop=crop, interpolation=way)(pixels / 255)
    assert float((floats - found / 255).abs().max()) < 0.004 + 0.1 * (way == "bicubic")  # floats are not clamped


def test_a_list_of_images_of_any_sizes_is_a_batch() -> None:
    transform = ImageTransform(size=16, mean=MEAN, std=STD)
    images = [photo(20, 30), photo(40, 17, seed=1)]
    batch = transform(images)
    assert batch.shape == (2, 3, 16, 16)
    torch.testing.assert_close(batch[1], transform(images[1]))
    tensors = [torch.randint(256, (3, 9, 9), dtype=torch.uint8), torch.randint(256, (3, 16, 16), dtype=torch.uint8)]
    torch.testing.assert_close(transform(tensors)[1], transform(tensors[1][None])[0])


def test_images_of_the_right_size_are_only_normalized() -> None:
    pixels = torch.randint(256, (2, 3, 16, 16), dtype=torch.uint8)
    found = ImageTransform(size=16, crop=0.5, mean=MEAN, std=STD)(pixels)
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (MEAN, STD))
    torch.testing.assert_close(found, (pixels / 255 - mean) / std)


def test_channels_follow_pillow() -> None:
    pixels = torch.randint(256, (1, 3, 8, 8), dtype=torch.uint8)
    gray = Image.fromarray(pixels[0].permute(1, 2, 0).numpy()).convert("L")
    found = ImageTransform(channels=1).shaped(pixels)
    assert int((found[0, 0].int() - torch.from_numpy(np.array(gray)).int()).abs().max()) <= 1
    assert torch.equal(ImageTransform(channels=3).shaped(found), found.expand(-1, 3, -1, -1))
    with pytest.raises(ValueError, match="images have 8 channels, but the network takes 3; is the channel first"):
        ImageTransform(channels=3)(torch.zeros(1, 8, 8, 3))


def test_it_is_plain_data() -> None:
    transform = ImageTransform(size=(20, 24), crop=0.9, mean=MEAN, std=STD, interpolation="bicubic", channels=3)
    assert ImageTransform.from_dict(json.loads(json.dumps(transform.to_dict()))) == transform
    assert ImageTransform(size=32) == ImageTransform(size=(32, 32))
    for wrong in ({}, {"size": 3}, {"size": [4, 4], "crop": "x"}, {"size": None, "code": "import os"}):
        with pytest.raises(ValueError, match=r"transform|crop|size"):
            ImageTransform.from_dict(wrong)


def test_the_configuration_of_timm() -> None:
    config = {"input_size": (3, 224, 200), "mean": MEAN, "std": STD, "interpolation": "bicubic", "crop_pct": 0.95}
    found = ImageTransform.from_timm({**config, "crop_mode": "center"})
    assert found == ImageTransform((224, 200), 0.95, MEAN, STD, "bicubic", 3)
    assert ImageTransform.from_timm({**config, "crop_mode": "squash"}).crop is None
    with pytest.raises(ValueError, match="config has no mean"):
        ImageTransform.from_timm({"input_size": (3, 8, 8)})
    with pytest.raises(ValueError, match="crop_mode 'border' of timm is not supported"):
        ImageTransform.from_timm({**config, "crop_mode": "border"})


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"size": 0}, "size must be one or two positive numbers"),
        ({"size": 8, "crop": 1.5}, r"crop must be a fraction in \(0, 1\]"),
        ({"crop": 0.5}, "crop needs a size"),
        ({"mean": MEAN}, "mean and std must be given together"),
        ({"mean": (0.5,), "std": (0.0,)}, "std must be positive"),
        ({"mean": (0.5, 0.5), "std": (1, 1), "channels": 3}, "mean has 2 numbers, but there are 3 channels"),
        ({"interpolation": "cubic"}, "interpolation must be one of bilinear, bicubic"),
        ({"channels": 4}, "channels must be 1, 3 or None"),
    ],
)
def test_what_makes_no_sense_is_refused(wrong: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        ImageTransform(**wrong)  # type: ignore[arg-type]


def test_a_folder_takes_the_options_of_a_transform(tmp_path) -> None:
    for name, sides in {"a": (40, 60), "b": (64, 64), "c": (90, 50)}.items():
        photo(*sides).save(tmp_path / f"{name}.png")
    transform = ImageTransform(size=28, crop=0.875, mean=MEAN, std=STD, interpolation="bicubic", channels=3)
    spec = with_defaults(str(tmp_path), transform.options())
    assert spec == f"{tmp_path}?size=28x28&color=rgb&crop=0.875&interpolation=bicubic"
    expected = torch.stack([transform(photo(*sides)) for sides in ((40, 60), (64, 64), (90, 50))])
    torch.testing.assert_close(transform(open_source(spec).inputs), expected)
    ((_, inputs),) = iter_batches(spec)
    torch.testing.assert_close(transform(inputs), expected)
    assert with_defaults(f"{tmp_path}?size=9", {"size": "28"}) == f"{tmp_path}?size=9"
    with pytest.raises(ValueError, match=r"crop must be a fraction such as 0\.875, not 'half'"):
        open_source(f"{tmp_path}?size=8&crop=half")


@pytest.mark.parametrize("size", ["9" * 5000, "²", "0", "-1", "8x", "1" * 10])
def test_a_size_in_a_spec_that_is_no_number_of_pixels(size: str) -> None:
    with pytest.raises(ValueError, match="size must be a number of pixels"):
        ImageForm.parse(size)


def test_a_long_thin_image_is_not_enlarged_beyond_all_memory() -> None:
    """To 256 pixels of height, it would have 2 GB."""
    with pytest.raises(ValueError, match="1 x 3000000 pixels become 256 x 768000000 before they are cropped"):
        ImageForm((224, 224), crop=0.875).scaled(1, 3_000_000)
