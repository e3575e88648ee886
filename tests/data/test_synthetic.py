"""Synthetic outliers keep what they should keep, and destroy the rest."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from calibrant import slots
from calibrant.data import DataError, Synthesizer, kind_of, open_source, synthesize
from calibrant.data.synthetic import DEFAULT_MIXTURES
from calibrant.data.synthetic.inversion import Inversion
from calibrant.data.synthetic.patch_shuffle import PatchShuffle
from calibrant.data.synthetic.permuted_columns import PermutedColumns
from calibrant.data.synthetic.random_phase import RandomPhase
from calibrant.data.synthetic.shuffled_tokens import ShuffledTokens
from calibrant.data.synthetic.spliced_tokens import SplicedTokens, other_examples

DOCS = Path(__file__).parents[2] / "docs" / "synthetic.md"


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def images(n: int = 6, side: int = 32, seed: int = 0) -> Tensor:
    return torch.randint(0, 256, (n, 3, side, side), generator=generator(seed), dtype=torch.uint8)


def patches(image: Tensor, height: int, width: int) -> Counter[bytes]:
    """The patches of an image (C, H, W), cut by loops."""
    rows, columns = image.shape[1] // height, image.shape[2] // width
    cells = [(row * height, column * width) for row in range(rows) for column in range(columns)]
    return Counter(image[:, y : y + height, x : x + width].numpy().tobytes() for y, x in cells)


@pytest.mark.parametrize(("side", "patch", "size"), [(32, None, 8), (8, None, 2), (32, 16, 16), (30, None, 7)])
def test_patch_shuffle_keeps_the_patches_of_each_image(side: int, patch: int | None, size: int) -> None:
    before = images(side=side)
    after = PatchShuffle(patch)(before, generator())
    for one, other in zip(before, after):
        assert patches(one, size, size) == patches(other, size, size)
    assert not torch.equal(before, after)
    rest = side - side % size
    assert torch.equal(before[:, :, rest:], after[:, :, rest:])
    assert torch.equal(before[..., rest:], after[..., rest:])


def test_patch_shuffle_of_oblong_images_and_every_permutation() -> None:
    oblong = torch.rand(4, 1, 8, 16, generator=generator())
    after = PatchShuffle()(oblong, generator())
    assert all(patches(one, 2, 4) == patches(other, 2, 4) for one, other in zip(oblong, after))
    small = torch.arange(4.0).repeat_interleave(2).view(1, 1, 2, 4).repeat_interleave(2, 2)  # four patches: 0 1 / 2 3
    corners = PatchShuffle(2)(small.expand(4000, 1, 4, 4), generator())[:, 0, ::2, ::2].flatten(1)
    seen = Counter(map(tuple, corners.tolist()))
    assert len(seen) == 24
    assert min(seen.values()) > 4000 / 24 / 2


def test_random_phase_keeps_the_amplitude_spectrum_and_the_mean() -> None:
    smooth = torch.nn.functional.avg_pool2d(torch.rand(5, 3, 34, 35, generator=generator()), 3, 1)
    centered = smooth - smooth.mean((2, 3), keepdim=True)
    before = torch.cat([centered, torch.full((1, 3, 32, 33), 9.0), torch.full((1, 3, 32, 33), -9.0)])  # a wide range
    after = RandomPhase()(before, generator())
    assert after.dtype == before.dtype
    spectra = [np.abs(np.fft.fft2(x[:5].double().numpy())) for x in (before, after)]
    np.testing.assert_allclose(spectra[1], spectra[0], atol=2e-4)
    torch.testing.assert_close(after.mean((2, 3)), before.mean((2, 3)), atol=1e-5, rtol=0)
    phases = [np.angle(np.fft.fft2(x[:5].double().numpy())) for x in (before, after)]
    turned = np.exp(1j * (phases[1] - phases[0]))
    np.testing.assert_allclose(turned[:, 0, 1:9, 1:9], turned[:, 2, 1:9, 1:9], atol=0.05)  # shared by the channels
    assert abs(turned[:, 0, 1:9, 1:9].mean()) < 0.15  # and uniform
    correlation = np.corrcoef(before[:5].flatten(), after[:5].flatten())[0, 1]
    assert abs(correlation) < 0.2


def test_random_phase_of_bytes_is_in_range_and_near_the_spectrum() -> None:
    digits = open_source("embedded").inputs[:50]
    after = RandomPhase()(digits, generator())
    assert after.dtype == torch.uint8
    gray = (0.25 * images().float() + 96).to(torch.uint8)  # far from the limits: only rounding is left
    spectra = [np.abs(np.fft.fft2(x.double().numpy())) for x in (gray, RandomPhase()(gray, generator()))]
    assert np.abs(spectra[1] - spectra[0]).mean() < 0.02 * spectra[0].mean()
    unit = torch.rand(4, 1, 8, 8, generator=generator())
    clipped = RandomPhase()(unit, generator())
    assert clipped.min() >= 0
    assert clipped.max() <= 1


def test_inversion() -> None:
    before = images()
    assert torch.equal(Inversion()(before, generator()).int(), 255 - before.int())
    unit = torch.rand(3, 3, 8, 8, generator=generator())
    torch.testing.assert_close(Inversion()(unit, generator()), 1 - unit)
    mean, std = torch.tensor([0.5, 0.4, 0.3]).view(3, 1, 1), torch.tensor([0.2, 0.3, 0.25]).view(3, 1, 1)
    extremes = torch.cat([unit, torch.zeros(1, 3, 8, 8), torch.ones(1, 3, 8, 8)])
    normalized = Inversion()((extremes - mean) / std, generator())
    torch.testing.assert_close(normalized * std + mean, 1 - extremes, atol=1e-5, rtol=0)


def test_permuted_columns_keep_marginals_and_lose_the_joint_distribution() -> None:
    x = torch.randn(2000, 1, generator=generator())
    table = torch.cat([x, 2 * x + 0.1 * torch.randn(2000, 1, generator=generator(1)), x.square()], 1)
    after = PermutedColumns()(table, generator())
    assert torch.equal(after.sort(0).values, table.sort(0).values)
    assert float(torch.corrcoef(table.T)[0, 1]) > 0.99
    off_diagonal = torch.corrcoef(after.T)[~torch.eye(3, dtype=torch.bool)]
    assert float(off_diagonal.abs().max()) < 4 / 2000**0.5


def texts(n: int = 200, length: int = 12, seed: int = 0, frame: bool = False) -> Tensor:
    """Token ids of 3 and more, of different lengths, padding 0 behind them; in a frame of 1 and 2, if asked."""
    rng, rows = np.random.default_rng(seed), []
    for _ in range(n):
        words = rng.integers(3, 50, rng.integers(4, length - 1)).tolist()
        words = [1, *words, 2] if frame else words
        rows.append(words + [0] * (length - len(words)))
    return torch.tensor(rows)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_shuffled_tokens_keep_words_and_padding(dtype: torch.dtype) -> None:
    before = texts().to(dtype)
    after = ShuffledTokens()(before, generator())
    assert after.dtype == dtype
    assert torch.equal(before == 0, after == 0)
    assert torch.equal(before.sort(1).values, after.sort(1).values)
    assert (before != after).any(1).float().mean() > 0.95
    left = before.flip(1)
    assert torch.equal(ShuffledTokens()(left, generator()) == 0, left == 0)
    other = torch.where(before == 0, torch.full_like(before, 99), before)
    assert torch.equal(ShuffledTokens(padding=99)(other, generator()) == 99, other == 99)


def test_shuffled_tokens_leave_what_frames_every_text() -> None:
    before = texts(frame=True)
    after = ShuffledTokens()(before, generator())
    for mark in (0, 1, 2):
        assert torch.equal(before == mark, after == mark)
    assert torch.equal(before.sort(1).values, after.sort(1).values)
    assert not torch.equal(before, after)


@pytest.mark.parametrize("left", [False, True])
def test_spliced_tokens_join_two_halves(left: bool) -> None:
    before = texts()
    labels = torch.arange(len(before)) % 4
    given = before.flip(1) if left else before
    after = SplicedTokens()(given, generator(3), labels)
    after = after.flip(1) if left else after
    partner = other_examples(len(before), labels, generator(3))
    for row, words, other in zip(after.tolist(), before.tolist(), before[partner].tolist()):
        words, other = [w for w in words if w], [w for w in other if w]
        joined = words[: len(words) // 2] + other[len(other) // 2 :]
        assert row == joined + [0] * (len(row) - len(joined))


def test_partners_are_others_of_another_class() -> None:
    labels = torch.randint(0, 3, (300,), generator=generator())
    partner = other_examples(300, labels, generator())
    assert sorted(partner.tolist()) == list(range(300))
    assert not bool((labels[partner] == labels).any())
    assert not bool((other_examples(7, None, generator()) == torch.arange(7)).any())
    assert not bool((other_examples(7, torch.zeros(7).long(), generator()) == torch.arange(7)).any())


INPUTS = {"images": images(40, 16), "table": torch.rand(40, 5, generator=generator()), "tokens": texts(40)}


@pytest.mark.parametrize("name", slots.names("synthesizer"))
def test_a_synthesizer_is_a_pure_function_of_inputs_and_generator(name: str) -> None:
    made = slots.build("synthesizer", name)
    before = INPUTS[made.kind]
    kept, state = before.clone(), torch.random.get_rng_state()
    once, again = (made(before, generator(5)) for _ in range(2))
    assert torch.equal(once, again)
    assert (once.shape, once.dtype) == (before.shape, before.dtype)
    assert torch.equal(before, kept)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert name == "inversion" or not torch.equal(once, made(before, generator(6)))


@pytest.mark.parametrize("kind", INPUTS)
def test_the_mixture_is_chosen_by_the_kind_of_data(kind: str) -> None:
    before = INPUTS[kind]
    assert kind_of(before) == kind
    labels = torch.arange(40) % 4
    after = synthesize(before, labels)
    assert (after.shape, after.dtype) == (before.shape, before.dtype)
    assert torch.equal(after, synthesize(before, labels, DEFAULT_MIXTURES[kind]))  # type: ignore[index]
    assert not torch.equal(after, synthesize(before, labels, seed=1))
    assert synthesize(before, count=7).shape[0] == 7
    assert synthesize(before, count=101).shape[0] == 101
    for name in DEFAULT_MIXTURES[kind]:  # type: ignore[index]
        assert slots.lookup("synthesizer", name).kind == kind


def test_every_example_is_used_once_and_shares_are_equal() -> None:
    flat = torch.arange(60, dtype=torch.uint8).view(60, 1, 1, 1).expand(60, 1, 4, 4)
    assert sorted(synthesize(flat, kinds="patch_shuffle")[:, 0, 0, 0].tolist()) == list(range(60))
    levels = synthesize(flat, kinds=["inversion", "patch_shuffle"])[:, 0, 0, 0]
    assert int((levels > 150).sum()) == 30
    assert sorted(torch.where(levels > 150, 255 - levels, levels).tolist()) == list(range(60))


def test_options_and_a_synthesizer_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    class Constant(Synthesizer):
        def __init__(self, value: float = 0.0) -> None:
            self.value = value

        def __call__(self, inputs: Tensor, generator: torch.Generator, labels: Tensor | None = None) -> Tensor:
            return torch.full_like(inputs, self.value)

    made = slots.Registration(Constant, Constant.__module__)
    monkeypatch.setitem(slots._registered, ("synthesizer", "constant"), made)
    assert synthesize(torch.rand(3, 5, 7), kinds={"constant": {"value": 2}}).unique().tolist() == [2]
    before = images(2)
    after = synthesize(before, kinds={"patch_shuffle": {"patch": 16}})
    assert {frozenset(patches(x, 16, 16)) for x in before} == {frozenset(patches(x, 16, 16)) for x in after}


@pytest.mark.parametrize(
    ("inputs", "more", "message"),
    [
        (torch.rand(5), {}, r"no outliers can be made from inputs of shape \(5,\) .* take SIRC"),
        (torch.rand(5, 3, 8), {}, "no outliers can be made from inputs of shape .* take SIRC"),
        (torch.rand(5, 1), {}, "permuted_columns cannot make outliers .* two columns; .* take SIRC"),
        (torch.rand(1, 3), {}, "permuted_columns cannot make outliers .* two examples; .* take SIRC"),
        (torch.rand(5, 1, 2, 2), {}, "cannot make outliers .* 2 x 2 pixels are too small; .* take SIRC"),
        (torch.rand(5, 3), {"kinds": "inversion"}, "inversion cannot make outliers .* it takes images"),
        (images(), {"kinds": {"patch_shuffle": {"patch": 20}}}, "do not hold two patches of 20"),
        (images(), {"kinds": {"patch_shuffle": {"patch": 0}}}, "patch must be a positive number"),
        (images(), {"kinds": {"patch_shuffle": {"size": 3}}}, "patch_shuffle has no option 'size'; it has patch"),
        (images(), {"kinds": "patch_shuffel"}, "no synthesizer 'patch_shuffel'; did you mean patch_shuffle"),
        (images(), {"kinds": []}, "at least one synthesizer"),
        (images(), {"count": 0}, "count must be positive"),
        (images(), {"labels": torch.zeros(3)}, "labels"),
    ],
)
def test_what_cannot_be_made_is_said_in_one_sentence(inputs: Tensor, more: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        synthesize(inputs, **more)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, (DataError, ValueError))


@pytest.mark.skipif(not DOCS.exists(), reason="the source distribution has no docs")
def test_the_docs_name_every_synthesizer_and_their_example_works() -> None:
    text = DOCS.read_text()
    assert all(f"| `{name}` |" in text for name in slots.names("synthesizer"))
    assert all(
        f"**{', '.join(f'`{name}`' for name in names)}** (default)" in text for names in DEFAULT_MIXTURES.values()
    )
    example = next(block for block in re.findall(r"```python\n(.*?)```", text, re.S) if "class Faded" in block)
    try:
        exec(example, {"__name__": "faded"})
        faded = synthesize(images(), kinds={"faded": {"strength": 1.0}})
        assert all(len(image.unique()) == 1 for image in faded)
    finally:
        slots._registered.pop(("synthesizer", "faded"), None)
