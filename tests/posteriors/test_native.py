"""The kernels in C."""

from __future__ import annotations

import ctypes
import hashlib
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from compilers import needs_compiler
from scipy import stats

from calibrant import MeanField
from calibrant.posteriors.native import BuildError, available, library, private_cache
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


@pytest.fixture(autouse=True)
def empty_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """The kernels of this process stay loaded, but what a test builds is its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("pathlib.Path.home", lambda: tmp_path)
    yield private_cache.folder()
    forget()


def forget() -> None:
    """As in a new process."""
    library.cache_clear()
    available.cache_clear()


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def expected_noise(n: int, seed: int) -> np.ndarray:
    every, blocks = lanes_from(seed, 16 * math.ceil(n / 32768)), []
    for block in range(math.ceil(n / 1024)):
        lanes = every[16 * (block // 32) :][:16]
        bits = np.array([xoshiro(lane) for _ in range(64) for lane in lanes])
        radius = np.sqrt(-2 * np.log((bits[:512] >> 1) * 2.0**-31 + 2.0**-32))
        angle = math.pi * 2.0**-31 * bits[512:].astype(np.uint32).view(np.int32)
        blocks += [radius * np.cos(angle), radius * np.sin(angle)]
    return np.concatenate(blocks)[:n]


def test_one_generator_gives_the_published_numbers() -> None:
    state = [1, 2, 3, 4]  # the first outputs of the authors' program from this state
    assert [xoshiro(state) for _ in range(4)] == [641, 1573767, 3222811527, 3517856514]


@pytest.mark.parametrize("n", [1, 1023, 2500, 66_000])
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
        for lag in (1, 16, 512, 1024, 32768):
            assert abs(np.corrcoef(noise[:-lag], noise[lag:])[0, 1]) < 5 / np.sqrt(n)
            assert abs(np.corrcoef(noise[:-lag] ** 2, noise[lag:] ** 2)[0, 1]) < 5 / np.sqrt(n)
    assert abs(np.corrcoef(*drawn)[0, 1]) < 5 / np.sqrt(n)


def test_loading_leaves_the_arithmetic_of_the_process_alone() -> None:
    library()
    assert np.float32(1e-40) * np.float32(1) != 0  # denormal numbers are still numbers


def draw_and_gradients(n: int, centered: bool = False) -> list[torch.Tensor]:
    """Of numbers that are the same everywhere."""
    steps = torch.arange(n, dtype=torch.float64)
    mean, rho, grad = ((steps * k % 257 / 128 - 1).float().requires_grad_() for k in (3, 5, 7))
    prior = (steps % 13 / 16).float() if centered else 0.25
    theta, kl = NativeDrawWithKL.apply(mean, rho, prior, 0.5, 17)
    torch.autograd.backward([theta, kl], [grad.detach(), torch.tensor(0.5)])
    return [theta.detach(), kl.detach(), mean.grad, rho.grad]


@pytest.mark.parametrize("centered", [False, True])
@pytest.mark.parametrize("openmp", [True, False])
def test_the_result_does_not_depend_on_the_threads(
    monkeypatch: pytest.MonkeyPatch, centered: bool, openmp: bool
) -> None:
    expected = draw_and_gradients(300_001, centered)
    if not openmp:  # threads of our own
        monkeypatch.setattr("calibrant.posteriors.native.kernel_arguments.parallel", lambda: None)
    try:
        for threads in (2, 3, 300):
            monkeypatch.setattr("torch.get_num_threads", lambda threads=threads: threads)
            assert all(map(torch.equal, draw_and_gradients(300_001, centered), expected))
    finally:
        torch.set_num_threads(1)


def test_every_compiler_and_processor_gives_the_same_bits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    expected = draw_and_gradients(5000)
    text = b"".join(tensor.numpy().tobytes() for tensor in expected)
    assert hashlib.sha256(text).hexdigest()[:16] == "2d53bdc942521564"
    command = 'for a do shift; case $a in -march*|-O3) ;; *) set -- "$@" "$a";; esac; done\nexec cc -O0 "$@"'
    monkeypatch.setenv("CC", script(tmp_path / "slow", command))
    forget()
    assert all(map(torch.equal, draw_and_gradients(5000), expected))


def test_extreme_variances_and_what_is_not_a_number() -> None:
    rho = torch.tensor([-1e30, -150.0, -80.0, 80.0, 150.0, math.nan])
    theta, kl = NativeDrawWithKL.apply(torch.zeros(6), rho, 0.0, 1.0, 4)
    noise = torch.from_numpy(expected_noise(6, 4))
    torch.testing.assert_close(theta[1:5].double(), (0.5 * rho.double()).exp()[1:5] * noise[1:5], rtol=1e-5, atol=0.0)
    assert abs(theta[0]) < 1e-36
    assert theta[5].isnan()
    assert kl.isnan()
    assert NativeDrawWithKL.apply(torch.zeros(1), torch.tensor([100.0]), 0.0, 1.0, 4)[1] == math.inf


def test_an_empty_tensor() -> None:
    theta, kl = NativeDrawWithKL.apply(torch.zeros(0), torch.zeros(0), 0.0, 1.0, 4)
    assert theta.shape == (0,)
    assert kl == 0


def test_without_a_kl_term_a_gradient_that_is_held_elsewhere_is_left_alone() -> None:
    mean, rho, grad = torch.zeros(5, requires_grad=True), torch.zeros(5, requires_grad=True), torch.ones(5)
    for _ in range(2):
        NativeDrawWithKL.apply(mean, rho, 0.0, 1.0, 4)[0].backward(grad)
    assert torch.equal(mean.grad, torch.full((5,), 2.0))
    assert torch.equal(grad, torch.ones(5))


@pytest.mark.parametrize(
    ("compiler", "message"),
    [
        ("no-such-compiler", "cannot be run"),
        ("false", "failed"),
        ("cc 'O2", "is no command"),
        (r"""sh -c "printf 'error \\377' >&2; false" """, "failed .error"),
    ],
)
def test_without_a_compiler_the_error_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, compiler: str, message: str
) -> None:
    monkeypatch.setenv("CC", compiler)
    forget()
    with pytest.raises(BuildError, match=f"{message}.*set CC to another"):
        library()
    monkeypatch.delenv("CC")
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(BuildError, match="install gcc or clang, or leave fuse out"):
        library()


def test_by_default_the_kernel_is_used_where_it_can_be_built(monkeypatch: pytest.MonkeyPatch) -> None:
    def drawn(fuse: bool | None) -> torch.Tensor:
        torch.manual_seed(1)
        module = torch.nn.Linear(40, 30)
        torch.nn.init.zeros_(module.weight)
        output: torch.Tensor = MeanField(module, fuse=fuse)(torch.ones(2, 40))
        return output

    with_kernel, without = drawn(True), drawn(False)
    assert not torch.equal(with_kernel, without)
    assert torch.equal(drawn(None), with_kernel)
    monkeypatch.setenv("CC", "no-such-compiler")
    forget()
    assert torch.equal(drawn(None), without)  # warnings are errors here
    with pytest.raises(BuildError, match="set CC to another"):
        drawn(True)


def test_it_is_built_once_per_machine(monkeypatch: pytest.MonkeyPatch, empty_cache: Path) -> None:
    forget()
    expected = draw_and_gradients(3000)
    (kept,) = empty_cache.iterdir()
    monkeypatch.setattr("shutil.which", lambda name: None)
    forget()
    assert all(map(torch.equal, draw_and_gradients(3000), expected))
    kept.chmod(0o644)  # as if somebody else had written it
    forget()
    with pytest.raises(BuildError, match="install gcc or clang"):
        library()


def test_what_cannot_be_loaded_is_built_anew(empty_cache: Path) -> None:
    forget()
    library()
    (kept,) = empty_cache.iterdir()
    private_cache.write(kept.name, b"the library of another system")
    forget()
    library()
    assert b"calibrant_draw" in (private_cache.read(kept.name) or b"")


def test_a_cache_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file, where the cache should be")
    forget()
    library()
    assert (tmp_path / "cache").is_file()


def test_a_compiler_that_never_ends(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("calibrant.posteriors.native.compiling._PATIENCE", 0.1)
    monkeypatch.setenv("CC", script(tmp_path / "slow", "exec sleep 60"))
    forget()
    with pytest.raises(BuildError, match="does not end"):
        library()


def test_a_compiler_that_does_not_know_this_processor_will_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    picky = script(tmp_path / "picky", 'case "$*" in *-march*) exit 1;; esac\nexec cc "$@"')
    monkeypatch.setenv("CC", picky)
    forget()
    theta, _ = NativeDrawWithKL.apply(torch.zeros(9), torch.zeros(9), 0.0, 1.0, 1)
    torch.testing.assert_close(theta, torch.from_numpy(expected_noise(9, 1)).float(), rtol=1e-5, atol=2e-6)


def test_a_folder_that_nothing_may_be_loaded_from(monkeypatch: pytest.MonkeyPatch, empty_cache: Path) -> None:
    load = ctypes.CDLL

    def refuse(path: str) -> ctypes.CDLL:
        if not path.startswith(str(empty_cache)):
            raise OSError("failed to map segment from shared object")
        return load(path)

    monkeypatch.setattr("ctypes.CDLL", refuse)
    forget()
    with pytest.raises(BuildError, match="set TMPDIR"):
        library()
    private_cache.write("anything", b"")  # from now on there is a folder of ours
    library()
    assert {path.name for path in empty_cache.iterdir()} > {"anything"}
