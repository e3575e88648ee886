"""The embedded data: digits, and outliers near to and far from them, made from what other packages ship.

All are gray images of 8 x 8 pixels with 17 levels of gray, as uint8 (N, 1, 8, 8):

- `digits`: scikit-learn's handwritten digits, ten classes, with a fixed stratified split into 1,297 and 500.
- `near`: letters in the fonts that matplotlib ships, drawn as the digits were (a bitmap of 32 x 32, counted in
  blocks of 4 x 4). Training and test letters differ in letter and in typeface.
- `far`: patches of scikit-learn's two photographs, one for training and one for the test.
"""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from calibrant.data.arrays import ArrayData, DataError, concatenate
from calibrant.data.augmentation import Augmentation
from calibrant.data.base import Source
from calibrant.slots import register

COUNT = 1000  # images in each part of the outliers
CELLS, LEVELS = 8, 16

# Letters that pass for a digit at this size are left out: B C D G I J O Q S Z, and most lower-case letters.
LETTERS = {"train": "AFKMPTVXkmtvx", "test": "EHLNRUWYnruw"}
FONTS = {
    "train": ("DejaVuSans", "DejaVuSans-Bold", "DejaVuSans-Oblique", "DejaVuSansMono", "DejaVuSerif"),
    "test": ("STIXGeneral", "STIXGeneralBol", "STIXGeneralItalic", "cmr10", "cmss10", "cmtt10"),
}
PHOTOGRAPHS = {"train": "china.jpg", "test": "flower.jpg"}


def _pixels(levels: NDArray[Any]) -> torch.Tensor:
    """Levels 0 to 16 (N, 8, 8) as uint8 (N, 1, 8, 8), 16 being white."""
    return torch.from_numpy(np.rint(levels * (255 / LEVELS)).astype(np.uint8)[:, None])


@cache
def digits(part: str) -> ArrayData:
    """scikit-learn's handwritten digits."""
    from sklearn.datasets import load_digits

    images, labels = load_digits().images, load_digits().target
    test = json.loads(resources.files("calibrant.data").joinpath("digits_test.json").read_text())
    is_test = np.isin(np.arange(len(labels)), test)
    chosen = is_test if part == "test" else ~is_test
    names = tuple(str(digit) for digit in range(10))
    return ArrayData(_pixels(images[chosen]), torch.from_numpy(labels[chosen]), names, f"digits {part}")


def _glyph(letter: str, font: Any, stroke: int) -> Any:
    """The letter in white on black, its strokes widened to those of a pen, cut to its ink."""
    from PIL import Image, ImageDraw

    image = Image.new("L", (200, 200))
    ImageDraw.Draw(image).text((50, 40), letter, fill=255, font=font, stroke_width=stroke)
    return image.crop(image.getbbox())


def _draw(glyph: Any, rng: np.random.Generator) -> NDArray[np.float64]:
    """One letter as levels (8, 8): rotated, slanted, stretched and moved a little, as written digits are."""
    from PIL import Image

    side = CELLS * 4
    turned = glyph.rotate(rng.uniform(-12, 12), resample=Image.Resampling.BILINEAR, expand=True)
    width, height = int(rng.integers(17, 27)), int(rng.integers(28, 33))
    slant = rng.uniform(-0.2, 0.2)
    reach = turned.width + abs(slant) * turned.height
    slanted = turned.transform(
        (int(reach), turned.height),
        Image.Transform.AFFINE,
        (1, slant, -max(slant, 0) * turned.height, 0, 1, 0),
        resample=Image.Resampling.BILINEAR,
    )
    ink = slanted.crop(slanted.getbbox()).resize((width, height), Image.Resampling.BOX)
    canvas = Image.new("L", (side, side))
    left = (side - width) // 2 + int(rng.integers(-2, 3))
    canvas.paste(ink, (left, (side - height) // 2))
    bitmap = np.asarray(canvas) > 127
    levels: NDArray[np.float64] = bitmap.reshape(CELLS, 4, CELLS, 4).sum((1, 3), dtype=np.float64)
    return levels


@cache
def letters(part: str) -> ArrayData:
    """Letters rendered in the fonts of matplotlib."""
    import matplotlib
    from PIL import ImageFont

    rng = np.random.default_rng([8, part == "test"])
    folder = f"{matplotlib.get_data_path()}/fonts/ttf"
    fonts = [ImageFont.truetype(f"{folder}/{name}.ttf", 96) for name in FONTS[part]]
    glyphs = [_glyph(letter, font, stroke) for font in fonts for letter in LETTERS[part] for stroke in (1, 3, 5)]
    levels = [_draw(glyphs[rng.integers(len(glyphs))], rng) for _ in range(COUNT)]
    return ArrayData(_pixels(np.stack(levels)), None, None, f"letters {part}")


@cache
def patches(part: str) -> ArrayData:
    """Square patches of 8 to 64 pixels of a photograph, in gray, averaged down to 8 x 8; flat ones are passed over."""
    from PIL import Image
    from sklearn.datasets import load_sample_image

    rng = np.random.default_rng([64, part == "test"])
    photograph = Image.fromarray(load_sample_image(PHOTOGRAPHS[part])).convert("L")
    levels: list[NDArray[np.float64]] = []
    while len(levels) < COUNT:
        side = CELLS * int(rng.integers(1, 9))
        left, top = int(rng.integers(photograph.width - side)), int(rng.integers(photograph.height - side))
        patch = photograph.crop((left, top, left + side, top + side)).resize((CELLS, CELLS), Image.Resampling.BOX)
        gray = np.rint(np.asarray(patch) * (LEVELS / 255))
        if np.ptp(gray) >= 4:
            levels.append(gray)
    return ArrayData(_pixels(np.stack(levels)), None, None, f"patches {part}")


def read(which: str, part: str) -> ArrayData:
    """`which` of the embedded sets: digits (or nothing), near, far, or ood, which is near and far together."""
    if which in ("", "digits"):
        return digits(part)
    if which == "near":
        return letters(part)
    if which == "far":
        return patches(part)
    if which == "ood":
        return concatenate([letters(part), patches(part)], f"letters and patches {part}")
    raise DataError(
        f"there is no embedded set {which!r}; choose from embedded, embedded:near, embedded:far, embedded:ood"
    )


@register("source", "embedded")
class EmbeddedSource(Source):
    """The embedded sets; the path says which."""

    spec = "embedded | embedded:near | embedded:far | embedded:ood"
    about = "digits (8 x 8); letters, photograph patches, both together as outliers"
    obtain = "nothing to do: made from scikit-learn and matplotlib"
    parts = "train and test"
    augmentation = Augmentation(padding=1, flip=False)

    def __init__(self, path: str) -> None:
        self.which = path

    @classmethod
    def where(cls, folder: Path) -> str:
        """It need not be got."""
        return "always"

    def has_parts(self) -> bool:
        """It has."""
        return True

    def read(self, part: str | None) -> ArrayData:
        """One part; the training part where none is named."""
        return read(self.which, part or "train")
