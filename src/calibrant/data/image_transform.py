"""What stands between an image and a network, as data: size, crop, channels, mean and standard deviation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from calibrant import InputError
from calibrant.data.arrays import DataError
from calibrant.data.images import ImageForm, looks_like_image, pil_to_tensor, shape_images

COLORS = {1: "gray", 3: "rgb"}
_LUMA = (0.299, 0.587, 0.114)  # of red, green and blue in gray, as Pillow has it


@dataclass(frozen=True)
class ImageTransform:
    """Images as a network wants them: resized, cropped and normalized.

    Called with a batch of images (B, C, H, W), uint8 or floating point, with one PIL image, or with a list of images of
    any sizes. uint8 images are brought to the scale 0 to 1; floating-point ones must be on the scale that `mean` and
    `std` are on.

    Args:
        size: height and width, or one number for both; None keeps those of the images.
        crop: None resizes without regard to proportions. A fraction resizes in proportion to size / crop and cuts out
            the middle: `size=224, crop=0.875` is the usual "resize to 256, center crop 224". Images that have the size
            already are left as they are.
        mean, std: of each channel; x becomes (x - mean) / std. None: x stays on the scale 0 to 1.
        interpolation: bilinear or bicubic; both average where images shrink.
        channels: 3, or 1 for gray images; None keeps those of the images.

    >>> transform = ImageTransform(size=2, mean=(0.5,), std=(0.25,))
    >>> transform(torch.full((1, 1, 4, 4), 255, dtype=torch.uint8))
    tensor([[[[2., 2.], [2., 2.]]]])
    """

    size: int | tuple[int, int] | None = None
    crop: float | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    interpolation: str = "bilinear"
    channels: int | None = None

    def __post_init__(self) -> None:
        sides = (self.size, self.size) if isinstance(self.size, int) else self.size
        if sides is not None and (len(sides) != 2 or not all(isinstance(s, int) and s > 0 for s in sides)):
            raise InputError(f"size must be one or two positive numbers of pixels, not {self.size}")
        object.__setattr__(self, "size", None if sides is None else tuple(sides))
        for name in ("mean", "std"):
            value = getattr(self, name)
            try:
                object.__setattr__(self, name, None if value is None else tuple(float(one) for one in value))
            except (TypeError, ValueError, OverflowError):
                raise InputError(f"{name} must be one number for each channel, not {value!r}") from None
        if self.channels not in (None, 1, 3):
            raise InputError(f"channels must be 1, 3 or None, not {self.channels}")
        if (self.mean is None) != (self.std is None) or len(self.mean or ()) != len(self.std or ()):
            raise InputError("mean and std must be given together, one number for each channel")
        if self.std is not None and min(self.std, default=0.0) <= 0:
            raise InputError(f"std must be positive, not {self.std}")
        if self.mean is not None and self.channels is not None and len(self.mean) not in (1, self.channels):
            raise InputError(f"mean has {len(self.mean)} numbers, but there are {self.channels} channels")
        _ = self.form  # refuses a wrong crop or interpolation

    @classmethod
    def from_timm(cls, config: Mapping[str, Any]) -> ImageTransform:
        """From timm's description of a network: `timm.data.resolve_model_data_config(network)`.

        >>> config = {"input_size": (3, 224, 224), "crop_pct": 0.95, "interpolation": "bicubic"}
        >>> ImageTransform.from_timm({**config, "mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5)}).crop
        0.95
        """
        missing = [name for name in ("input_size", "mean", "std") if name not in config]
        if missing:
            raise InputError(f"config has no {missing[0]}: give what timm.data.resolve_model_data_config returns")
        channels, *sides = config["input_size"]
        mode = config.get("crop_mode") or "center"
        if mode not in ("center", "squash"):
            raise InputError(f"crop_mode {mode!r} of timm is not supported: give timm's own transform as a callable")
        way = config.get("interpolation") or "bilinear"
        return cls(
            (int(sides[0]), int(sides[-1])),
            float(config.get("crop_pct") or 0.875) if mode == "center" else None,
            tuple(config["mean"]),
            tuple(config["std"]),
            "bilinear" if way == "random" else str(way),
            int(channels),
        )

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> ImageTransform:
        """What `to_dict` returned, read back; nothing in it is trusted."""
        try:
            size = content["size"]
            return cls(**{**content, "size": None if size is None else tuple(size)})
        except (TypeError, KeyError, AttributeError) as error:
            raise InputError(f"this is not an image transform: {error}") from None

    def to_dict(self) -> dict[str, Any]:
        """All fields, as JSON can hold them."""
        return {name: list(v) if isinstance(v, tuple) else v for name, v in asdict(self).items()}

    @property
    def form(self) -> ImageForm:
        """Size, color and crop: what a source of image files does when it decodes them."""
        size = None if self.size is None else (self.size[0], self.size[1])  # type: ignore[index]
        return ImageForm(size, COLORS.get(self.channels or 3, "rgb"), self.crop, self.interpolation)

    def options(self) -> dict[str, str]:
        """The same as options of a source of image files, `size=224x224&crop=0.875`; those that say something."""
        form, found = self.form, dict[str, str]()
        if form.size is not None:
            found["size"] = f"{form.size[0]}x{form.size[1]}"
        if self.channels is not None:
            found["color"] = form.color
        if form.crop is not None:
            found["crop"] = repr(form.crop)
        if form.interpolation != "bilinear":
            found["interpolation"] = form.interpolation
        return found

    def __call__(self, images: Any) -> Tensor:
        """The images as the network wants them: (B, C, H, W) of a batch or list, (C, H, W) of one PIL image."""
        if looks_like_image(images):
            return self.normalized(pil_to_tensor(images, self.form)[None])[0]
        if isinstance(images, (list, tuple)):
            return torch.cat([self(image)[None] if looks_like_image(image) else self(image[None]) for image in images])
        return self.normalized(self.shaped(images))

    def shaped(self, images: Any) -> Tensor:
        """`images` (B, C, H, W) at the right size, with the right channels, their values as they were."""
        values = images if isinstance(images, Tensor) else torch.as_tensor(np.asarray(images))
        if values.dim() != 4:
            raise DataError(f"images must have the shape (batch, channels, height, width), not {tuple(values.shape)}")
        return shape_images(self._colored(values), self.form)

    def normalized(self, images: Tensor) -> Tensor:
        """(x - mean) / std of `images` (B, C, H, W), uint8 ones first brought to the scale 0 to 1."""
        if not images.is_floating_point():
            images = images.to(torch.get_default_dtype()) / 255
        if self.mean is None or self.std is None:
            return images
        if len(self.mean) not in (1, images.shape[1]):
            raise DataError(f"images have {images.shape[1]} channels, but mean has {len(self.mean)} numbers")
        mean, std = (images.new_tensor(values).view(-1, 1, 1) for values in (self.mean, self.std))
        return (images - mean) / std

    def _colored(self, images: Tensor) -> Tensor:
        """Gray images as three equal channels, or colored ones as gray, where `channels` asks for that."""
        have = images.shape[1]
        if self.channels in (None, have):
            return images
        if (have, self.channels) == (1, 3):
            return images.expand(-1, 3, -1, -1)
        if (have, self.channels) == (3, 1):
            values = images if images.is_floating_point() else images.float()
            gray = torch.einsum("bchw,c->bhw", values, values.new_tensor(_LUMA))[:, None]
            return gray if images.is_floating_point() else gray.round().to(images.dtype)
        raise DataError(f"images have {have} channels, but the network takes {self.channels}; is the channel first?")
