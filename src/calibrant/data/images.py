"""Image files and image bytes as uint8 tensors of one size."""

from __future__ import annotations

import io
import math
import re
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import interpolate

from calibrant.data.arrays import DataError
from calibrant.files import open_regular

if TYPE_CHECKING:
    from PIL import Image

FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
"""The decoders of Pillow that are used; of the others, some start programs (EPS) or fail in ways of their own."""
SUFFIXES = frozenset((".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"))

MOST_PIXELS = 2**26
_TOO_LARGE = f"it has more than {MOST_PIXELS:,} pixels; make it smaller"
_SIDE = re.compile(r"0*[1-9]\d{0,8}", re.ASCII)
INTERPOLATIONS = {"bilinear": 2, "bicubic": 3}  # by name, with Pillow's number


class _DamagedError(Exception):
    """A file that no decoder reads."""


@dataclass(frozen=True)
class ImageForm:
    """What decoded images should look like: `size` (height, width), or None to keep theirs; rgb or gray.

    Without `crop`, images are resized without regard to proportions. With `crop`, a fraction, they are resized in
    proportion until they just cover size / crop, and the middle is cut out: a size of 224 with a crop of 0.875 is the
    usual "resize to 256, center crop 224". Images that have the size already are left as they are.
    """

    size: tuple[int, int] | None = None
    color: str = "rgb"
    crop: float | None = None
    interpolation: str = "bilinear"

    def __post_init__(self) -> None:
        if self.color not in ("rgb", "gray"):
            raise DataError(f"color must be rgb or gray, not {self.color!r}")
        if self.interpolation not in INTERPOLATIONS:
            raise DataError(f"interpolation must be one of {', '.join(INTERPOLATIONS)}, not {self.interpolation!r}")
        if self.crop is not None and not 0 < self.crop <= 1:
            raise DataError(f"crop must be a fraction in (0, 1], the part of each side that is kept, not {self.crop}")
        if self.crop is not None and self.size is None:
            raise DataError("crop needs a size: the height and width that are cut out")
        if self.size is not None and math.prod(self.size) > MOST_PIXELS * (self.crop or 1) ** 2:
            what = "size" if self.crop is None else "size / crop"
            raise DataError(f"{what} must be at most {MOST_PIXELS:,} pixels, which {self.size} is not; make it smaller")

    @classmethod
    def parse(
        cls,
        size: str | None = None,
        color: str | None = None,
        crop: str | None = None,
        interpolation: str | None = None,
    ) -> ImageForm:
        """From spec options: size=32 or size=HEIGHTxWIDTH, color=rgb or color=gray, crop=0.875, interpolation=bicubic.

        >>> ImageForm.parse("32x48", "gray")
        ImageForm(size=(32, 48), color='gray', crop=None, interpolation='bilinear')
        """
        sides = None if size is None else size.split("x")
        if sides is not None and (len(sides) > 2 or not all(map(_SIDE.fullmatch, sides))):
            raise DataError(f"size must be a number of pixels or HEIGHTxWIDTH, not {size!r}")
        try:
            part = None if crop is None else float(crop)
        except ValueError:
            raise DataError(f"crop must be a fraction such as 0.875, not {crop!r}") from None
        shape = None if sides is None else (int(sides[0]), int(sides[-1]))
        return cls(shape, color or "rgb", part, interpolation or "bilinear")

    def scaled(self, height: int, width: int) -> tuple[int, int]:
        """What an image of `height` x `width` is resized to, before anything is cut off.

        >>> ImageForm((224, 224), crop=0.875).scaled(300, 400)
        (256, 341)
        """
        if self.size is None or (height, width) == self.size:
            return height, width
        if self.crop is None:
            return self.size
        tall, wide = (int(side / self.crop) for side in self.size)
        if tall * width >= wide * height:
            wide = max(wide, tall * width // height)
        else:
            tall = max(tall, wide * height // width)
        if tall * wide > MOST_PIXELS:  # of an image that is long and thin
            raise DataError(f"{height} x {width} pixels become {tall} x {wide} before they are cropped; crop it first")
        return tall, wide

    def corner(self, height: int, width: int) -> tuple[int, int]:
        """Top and left of the middle of an image of `height` x `width` that is kept."""
        kept = self.size or (height, width)
        return round((height - kept[0]) / 2), round((width - kept[1]) / 2)


def pil_to_tensor(image: Image.Image, form: ImageForm | None = None) -> Tensor:
    """A PIL image as uint8 (C, H, W); without a form, gray images keep one channel and all others become RGB."""
    if image.mode.startswith("I") or image.mode == "F":
        raise DataError(f"it has more than 8 bits a channel (mode {image.mode}); convert it to 8 bits first")
    gray = image.mode in ("1", "L") if form is None else form.color == "gray"
    image = image.convert("L" if gray else "RGB")
    if form is not None and form.size is not None:
        height, width = form.scaled(image.height, image.width)
        if (height, width) != (image.height, image.width):  # averaging where it shrinks
            image = image.resize((width, height), resample=INTERPOLATIONS[form.interpolation])
        top, left = form.corner(height, width)
        image = image.crop((left, top, left + form.size[1], top + form.size[0]))
    pixels = np.array(image)
    return torch.from_numpy(pixels[None] if gray else np.ascontiguousarray(pixels.transpose(2, 0, 1)))


def shape_images(images: Tensor, form: ImageForm) -> Tensor:
    """Images (N, C, H, W), uint8 or floating point, at the size of `form`, as `pil_to_tensor` does it."""
    if form.size is None or tuple(images.shape[2:]) == form.size:
        return images
    sides = form.scaled(*images.shape[2:])
    values = images if images.is_floating_point() else images.float()
    values = interpolate(values, sides, mode=form.interpolation, antialias=True)
    top, left = form.corner(*sides)
    values = values[..., top : top + form.size[0], left : left + form.size[1]]
    return values if images.is_floating_point() else values.round().clamp(0, 255).to(images.dtype)


def resize(images: Tensor, size: tuple[int, int]) -> Tensor:
    """uint8 images (N, C, H, W) at another size, bilinear and averaging where they shrink, as `pil_to_tensor` does.

    >>> resize(torch.tensor([[[[0, 100], [100, 200]]]], dtype=torch.uint8), (1, 1))
    tensor([[[[100]]]], dtype=torch.uint8)
    """
    blocks = [interpolate(block, size, mode="bilinear", antialias=True) for block in torch.split(images, 1024)]
    return torch.cat(blocks)


def decode(content: bytes | Path, name: str, form: ImageForm) -> Tensor:
    """An encoded image (bytes, or the file that holds them) as uint8 (C, H, W); errors name the image."""
    from PIL import Image

    try:
        with warnings.catch_warnings(), _opened(content) as file:
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            return pil_to_tensor(_decoded(file), form)
    except FileNotFoundError:
        raise DataError(f"image {name} does not exist; check the path") from None
    except DataError as error:
        raise DataError(f"image {name} cannot be used: {error}") from None
    except (Image.DecompressionBombWarning, Image.DecompressionBombError):
        raise DataError(f"image {name} cannot be used: {_TOO_LARGE}") from None
    except (OSError, ValueError, _DamagedError) as error:
        reason = str(error).split("<")[0].strip()
        raise DataError(f"image {name} cannot be decoded ({reason}); replace or remove it") from None


def _opened(content: bytes | Path) -> IO[bytes]:
    return io.BytesIO(content) if isinstance(content, bytes) else open_regular(content)


def _decoded(file: IO[bytes]) -> Image.Image:
    """The image in `file`, of one of `FORMATS` whatever its name says, with its pixels in memory."""
    from PIL import Image

    bombs = (Image.DecompressionBombWarning, Image.DecompressionBombError)
    try:
        image = Image.open(file, formats=FORMATS)
        _check_pixels(image)
        image.load()
    except (DataError, MemoryError, *bombs):
        raise
    except Exception as error:  # of a damaged file, a decoder can raise almost anything
        raise _DamagedError(str(error) or type(error).__name__) from None
    return image


def _check_pixels(image: Image.Image) -> None:
    """Refuse a large image before it is decoded."""
    if image.width * image.height > MOST_PIXELS:
        raise DataError(_TOO_LARGE)


def stack(images: list[Tensor], names: list[str], like: tuple[int, ...] | None = None) -> Tensor:
    """Images of one shape as (N, C, H, W); `like` is a shape that they must have, if given."""
    first = tuple(images[0].shape) if like is None else like
    for image, name in zip(images, names):
        if tuple(image.shape) != first:
            height, width = image.shape[1:]
            raise DataError(
                f"image {name} is {height} x {width} pixels, but those before it are {first[1]} x {first[2]};"
                " give size= to resize all to one size"
            )
    return torch.stack(images)


def looks_like_image(value: Any) -> bool:
    """Whether `value` is a PIL image, without importing PIL."""
    return any(base.__module__ == "PIL.Image" and base.__name__ == "Image" for base in type(value).__mro__)
