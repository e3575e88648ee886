"""Rendered letters: outliers for images of things, drawn by the fonts that matplotlib ships."""

from __future__ import annotations

import string
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from calibrant.data.arrays import ArrayData
from calibrant.data.base import Source
from calibrant.data.images import ImageForm
from calibrant.slots import register

_FONTS = ("DejaVuSans", "DejaVuSans-Bold", "DejaVuSansMono", "DejaVuSerif", "STIXGeneral", "cmr10", "cmss10")
_COUNT = 5000


@register("source", "letters")
class LettersSource(Source):
    """One letter per image, of random face, size, turn, place and colors; the same images every time."""

    spec = "letters?size=32"
    about = "rendered letters on plain ground, 5,000 outliers of any size"
    obtain = "nothing to do: drawn with the fonts of matplotlib"

    def __init__(self, path: str, *, size: str = "32", color: str = "rgb") -> None:
        self.form = ImageForm.parse(size, color)

    @classmethod
    def where(cls, folder: Path) -> str | None:
        """They are drawn when they are needed."""
        return "always"

    def read(self, part: str | None) -> ArrayData:
        """All of them."""
        assert self.form.size is not None
        rng = np.random.default_rng(0)
        images = np.stack([_draw(rng, self.form.size, self.form.color) for _ in range(_COUNT)])
        return ArrayData(torch.from_numpy(images), None, None, "letters")


@cache
def _font(name: str, size: int) -> Any:
    from matplotlib import get_data_path
    from PIL import ImageFont

    return ImageFont.truetype(str(Path(get_data_path()) / "fonts" / "ttf" / f"{name}.ttf"), size)


def _draw(rng: np.random.Generator, size: tuple[int, int], color: str) -> Any:
    """One letter as uint8 (C, H, W)."""
    from PIL import Image, ImageDraw

    height, width = size
    letter = string.ascii_letters[rng.integers(len(string.ascii_letters))]
    font = _font(_FONTS[rng.integers(len(_FONTS))], int(rng.integers(max(1, height // 2), max(2, height))))
    ground, ink = (tuple(int(x) for x in rng.integers(0, 256, 3)) for _ in range(2))
    mask = Image.new("L", (width, height))
    place = width / 2 + rng.uniform(-width / 8, width / 8), height / 2 + rng.uniform(-height / 8, height / 8)
    ImageDraw.Draw(mask).text(place, letter, fill=255, font=font, anchor="mm")
    mask = mask.rotate(float(rng.uniform(-20, 20)), resample=Image.Resampling.BILINEAR)
    image = Image.composite(Image.new("RGB", (width, height), ink), Image.new("RGB", (width, height), ground), mask)
    pixels = np.array(image.convert("L" if color == "gray" else "RGB"))
    return pixels[None] if color == "gray" else np.ascontiguousarray(pixels.transpose(2, 0, 1))
