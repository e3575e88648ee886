"""Rendered letters: outliers for images of things, drawn by the fonts that matplotlib ships."""

from __future__ import annotations

import string
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.data.drawn import DrawnSource
from calibrant.slots import register

_FONTS = ("DejaVuSans", "DejaVuSans-Bold", "DejaVuSansMono", "DejaVuSerif", "STIXGeneral", "cmr10", "cmss10")
_COUNT = 5000


@register("source", "letters")
class LettersSource(DrawnSource):
    """One letter per image, of random face, size, turn, place and colors; the same images every time."""

    name = "letters"
    spec = "letters?size=32"
    about = "rendered letters on plain ground, 5,000 outliers of any size"
    obtain = "nothing to do: drawn with the fonts of matplotlib"

    def draw(self, rng: np.random.Generator, size: tuple[int, int], color: str) -> NDArray[np.uint8]:
        """One letter after another."""
        return np.stack([_draw(rng, size, color) for _ in range(_COUNT)])


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
