"""Images with random phases: the amplitude spectrum is kept, edges and shapes are lost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from calibrant.data.synthetic.base import DataKind, Synthesizer, as_pixels
from calibrant.slots import register

BLOCK = 256  # images transformed at a time, to bound the memory


def _spectrum_factors(count: int, size: tuple[int, int], generator: torch.Generator) -> Tensor:
    """Complex numbers of modulus 1, (count, 1, H, W // 2 + 1), which keep an image real and its mean as it is.

    They are the phases of the Fourier transform of white noise, so that they are uniform and have its symmetry.
    """
    noise = torch.randn((count, 1, *size), generator=generator, device=generator.device, dtype=torch.float64)
    factors = torch.sgn(torch.fft.rfft2(noise))
    factors[..., 0, 0] = 1
    return factors


@register("synthesizer", "random_phase")
@dataclass(frozen=True)
class RandomPhase(Synthesizer):
    """Add a random phase to every frequency of each image, the same one in all channels (Galerne et al. 2011).

    With the discrete Fourier transform F of an image, the outlier is the inverse transform of F(u, v) exp(i phi(u, v)),
    phi uniform with phi(-u, -v) = -phi(u, v) and phi(0, 0) = 0, clipped to the range of the pixels. Adding one phase to
    all channels keeps their relative phases, and so the colors.

    References: Galerne, Gousseau and Morel, Random Phase Textures: Theory and Synthesis, IEEE Transactions on Image
    Processing 20(1), 2011.
    """

    kind: ClassVar[DataKind] = "images"

    def __call__(self, inputs: Tensor, generator: torch.Generator, labels: Tensor | None = None) -> Tensor:
        """Images (N, C, H, W) with random phases."""
        size = (inputs.shape[2], inputs.shape[3])
        blocks = []
        for block in torch.split(inputs, BLOCK):
            factors = _spectrum_factors(len(block), size, generator).to(inputs.device, torch.complex64)
            blocks.append(torch.fft.irfft2(torch.fft.rfft2(block.float()) * factors, s=size))
        return as_pixels(torch.cat(blocks), inputs)
