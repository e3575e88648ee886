"""The kernels in C."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from compilers import needs_compiler
from scipy import stats

from calibrant.posteriors.native import BuildError, library
from calibrant.posteriors.native.draw import NativeDrawWithKL
from calibrant.posteriors.reparametrization import gaussian_kl

pytestmark = needs_compiler
MASK32, MASK64 = 2**32 - 1, 2**64 - 1


def lanes_from(seed: int, count: int = 16) -> list[list[int]]:
    """splitmix64, two words of 64 bits a lane, low halves first."""
    lanes = []
    for _ in range(count):
        words = []
        for _ in range(2):
            seed = (seed + 0x9E3779B97F4A7C15) & MASK64
            z = ((seed ^ (seed >> 30)) * 0xBF58476D1CE4E5B9) & MASK64
            z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK64
            z ^= z >> 31
            words += [z & MASK32, z >> 32]
        lanes.append(words)
    return lanes


def xoshiro(s: list[int]) -> int:
    """The next number of xoshiro128++, as its authors print it."""

    def rotate(x: int, k: int) -> int:
        return ((x << k) | (x >> (32 - k))) & MASK32

    result = (rotate((s[0] + s[3]) & MASK32, 7) + s[0]) & MASK32
    t = (s[1] << 9) & MASK32
    s[2] ^= s[0]
    s[3] ^= s[1]
    s[1] ^= s[2]
    s[0] ^= s[3]
    s[2] ^= t
    s[3] = rotate(s[3], 11)
    return result


def expected_noise(n: int, seed: int) -> np.ndarray:
    lanes, blocks = lanes_from(seed), []
    for _ in range(0, n, 1024):
        bits = np.array([xoshiro(lane) for _ in range(64) for lane in lanes])
        radius = np.sqrt(-2 * np.log((bits[:512] >> 1) * 2.0**-31 + 2.0**-32))
        angle = math.pi * 2.0**-31 * bits[512:].astype(np.uint32).view(np.int32)
        blocks += [radius * np.cos(angle), radius * np.sin(angle)]
    return np.concatenate(blocks)[:n]


def test_one_generator_gives_the_published_numbers() -> None:
    state = [1, 2, 3, 4]  # the first outputs of the authors' program from this state
    assert [xoshiro(state) for _ in range(4)] == [641, 1573767, 3222811527, 3517856514]


@pytest.mark.parametrize("n", [1, 1023, 2500])
@pytest.mark.parametrize("centered", [False, True])
def test_draw_and_kl_against_the_same_in_float64(n: int, centered: bool) -> None:
    mean, rho = torch.randn(n), torch.randn(n) - 3
    prior = torch.randn(n) if centered else 0.25
    theta, kl = NativeDrawWithKL.apply(mean, rho, prior, 0.4, 2**63 - 5)
    noise = torch.from_numpy(expected_noise(n, 2**63 - 5))
    expected = mean.double() + torch.exp(0.5 * rho.double()) * noise
    torch.testing.assert_close(theta.double(), expected, rtol=1e-5, atol=2e-6)
    wide = prior.double() if isinstance(prior, torch.Tensor) else prior
    assert kl.item() == pytest.approx(gaussian_kl(mean.double(), rho.double(), wide, 0.4).item(), rel=1e-5)


def test_the_noise_is_standard_normal_to_its_tails() -> None:
    n = 2_000_001
    drawn = [
        NativeDrawWithKL.apply(torch.zeros(n), torch.zeros(n), 0.0, 1.0, seed)[0].double().numpy() for seed in (0, 1)
    ]
    for noise in drawn:
        assert np.isfinite(noise).all()
        assert stats.kstest(noise, "norm").pvalue > 1e-4
        for z in (2.0, 3.0, 4.0):
            expected = 2 * n * stats.norm.sf(z)
            assert abs((np.abs(noise) > z).sum() - expected) < 5 * np.sqrt(expected)
        for lag in (1, 16, 512, 1024):
            assert abs(np.corrcoef(noise[:-lag], noise[lag:])[0, 1]) < 5 / np.sqrt(n)
            assert abs(np.corrcoef(noise[:-lag] ** 2, noise[lag:] ** 2)[0, 1]) < 5 / np.sqrt(n)
    assert abs(np.corrcoef(*drawn)[0, 1]) < 5 / np.sqrt(n)


def test_loading_leaves_the_arithmetic_of_the_process_alone() -> None:
    library()
    assert np.float32(1e-40) * np.float32(1) != 0  # denormal numbers are still numbers


@pytest.mark.parametrize(("compiler", "message"), [("no-such-compiler", "cannot be run"), ("false", "failed")])
def test_without_a_compiler_the_error_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, compiler: str, message: str
) -> None:
    monkeypatch.setenv("CC", compiler)
    library.cache_clear()
    with pytest.raises(BuildError, match=f"{message}.*set CC to another"):
        library()
    library.cache_clear()
    monkeypatch.delenv("CC")
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(BuildError, match="install gcc or clang, or leave fuse out"):
        library()
    library.cache_clear()


def test_a_compiler_that_does_not_know_this_processor_will_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    picky = tmp_path / "picky"
    picky.write_text('#!/bin/sh\ncase "$*" in *-march*) exit 1;; esac\nexec cc "$@"\n')
    picky.chmod(0o755)
    monkeypatch.setenv("CC", str(picky))
    library.cache_clear()
    theta, _ = NativeDrawWithKL.apply(torch.zeros(9), torch.zeros(9), 0.0, 1.0, 1)
    library.cache_clear()
    torch.testing.assert_close(theta, torch.from_numpy(expected_noise(9, 1)).float(), rtol=1e-5, atol=2e-6)


def test_a_folder_that_nothing_may_be_loaded_from(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str) -> None:
        raise OSError("failed to map segment from shared object")

    monkeypatch.setattr("ctypes.CDLL", refuse)
    library.cache_clear()
    with pytest.raises(BuildError, match="set TMPDIR"):
        library()
    library.cache_clear()
