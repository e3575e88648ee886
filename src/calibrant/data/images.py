"""Image files and image bytes as uint8 tensors of one size."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import interpolate

from calibrant.data.arrays import DataError

if TYPE_CHECKING:
    from PIL import Image

SUFFIXES = frozenset((".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"))


@dataclass(frozen=True)
class ImageForm:
    """What decoded images should look like: `size` (height, width) to resize to, or None to keep; rgb or gray."""

    size: tuple[int, int] | None = None
    color: str = "rgb"

    @classmethod
    def parse(cls, size: str | None = None, color: str | None = None) -> ImageForm:
        """From spec options: size=32 or size=HEIGHTxWIDTH, color=rgb or color=gray.

        >>> ImageForm.parse("32x48", "gray")
        ImageForm(size=(32, 48), color='gray')
        """
        if color not in (None, "rgb", "gray"):
            raise DataError(f"color must be rgb or gray, not {color!r}")
        if size is None:
            return cls(None, color or "rgb")
        sides = size.split("x")
        if len(sides) > 2 or not all(side.isdigit() and int(side) > 0 for side in sides):
            raise DataError(f"size must be a number of pixels or HEIGHTxWIDTH, not {size!r}")
        return cls((int(sides[0]), int(sides[-1])), color or "rgb")


def pil_to_tensor(image: Image.Image, form: ImageForm | None = None) -> Tensor:
    """A PIL image as uint8 (C, H, W); without a form, gray images keep one channel and all others become RGB."""
    if image.mode.startswith("I") or image.mode == "F":
        raise DataError(f"it has more than 8 bits a channel (mode {image.mode}); convert it to 8 bits first")
    gray = image.mode in ("1", "L") if form is None else form.color == "gray"
    image = image.convert("L" if gray else "RGB")
    if form is not None and form.size is not None and (image.height, image.width) != form.size:
        image = image.resize((form.size[1], form.size[0]), resample=2)  # bilinear, averaging when it shrinks
    pixels = np.array(image)
    return torch.from_numpy(pixels[None] if gray else np.ascontiguousarray(pixels.transpose(2, 0, 1)))


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
        with Image.open(io.BytesIO(content) if isinstance(content, bytes) else content) as image:
            return pil_to_tensor(image, form)
    except FileNotFoundError:
        raise DataError(f"image {name} does not exist; check the path") from None
    except DataError as error:
        raise DataError(f"image {name} cannot be used: {error}") from None
    except (OSError, ValueError, SyntaxError, EOFError, Image.DecompressionBombError) as error:
        reason = str(error).split("<")[0].strip()
        raise DataError(f"image {name} cannot be decoded ({reason}); replace or remove it") from None


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
