"""Batches that need no memory, and augmentation."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from calibrant.data import ArrayData, Augmentation, Batches, DataError


def numbered(n: int) -> ArrayData:
    return ArrayData(torch.arange(n, dtype=torch.float32)[:, None], torch.arange(n))


def flat(lists: list[list[int]]) -> list[int]:
    return [value for values in lists for value in values]


def seen(batches: Batches, epoch: int = 0, start: int = 0) -> list[list[int]]:
    return [indices.tolist() for indices in batches.indices(epoch, start)]


@settings(deadline=None, max_examples=50)
@given(n=st.integers(1, 200), size=st.integers(1, 40), seed=st.integers(0, 2**40), epoch=st.integers(0, 9))
def test_an_epoch_goes_once_through_the_data(n: int, size: int, seed: int, epoch: int) -> None:
    batches = Batches(numbered(n), size, seed=seed)
    epoch_indices = seen(batches, epoch)
    assert sorted(flat(epoch_indices)) == list(range(n))
    assert [len(batch) for batch in epoch_indices[:-1]] == [size] * (len(batches) - 1)


@settings(deadline=None, max_examples=50)
@given(
    n=st.integers(8, 100),
    size=st.integers(1, 8),
    start=st.integers(0, 20),
    replacement=st.booleans(),
    world=st.integers(1, 3),
)
def test_resumed_anywhere_a_fresh_object_gives_the_same(
    n: int, size: int, start: int, replacement: bool, world: int
) -> None:
    def make() -> Batches:
        return Batches(numbered(n), size, seed=5, replacement=replacement, rank=world - 1, world_size=world)

    start = min(start, len(make()))
    assert seen(make(), 3, start) == seen(make(), 3)[start:]


def test_inputs_and_labels_belong_together() -> None:
    for inputs, labels in Batches(numbered(37), 8, seed=1).epoch(2):
        assert labels is not None
        assert torch.equal(inputs.flatten().long(), labels)
    assert next(Batches(ArrayData(torch.zeros(3, 1)), 2).epoch(0))[1] is None


def test_epochs_and_seeds_differ() -> None:
    orders = {str(seen(Batches(numbered(50), 50, seed=seed), epoch)) for seed in (0, 1) for epoch in (0, 1)}
    assert len(orders) == 4
    assert seen(Batches(numbered(5), 2, shuffle=False)) == [[0, 1], [2, 3], [4]]
    assert seen(Batches(numbered(5), 2, shuffle=False, drop_last=True)) == [[0, 1], [2, 3]]


@settings(deadline=None, max_examples=50)
@given(n=st.integers(12, 120), size=st.integers(1, 3), world=st.integers(1, 4), drop_last=st.booleans())
def test_ranks_share_nothing_and_keep_step(n: int, size: int, world: int, drop_last: bool) -> None:
    ranks = [
        seen(Batches(numbered(n), size, seed=2, drop_last=drop_last, rank=rank, world_size=world))
        for rank in range(world)
    ]
    everything = [index for rank in ranks for batch in rank for index in batch]
    assert len(everything) == len(set(everything))
    assert len({tuple(len(batch) for batch in rank) for rank in ranks}) == 1
    if not drop_last:
        assert len(everything) == n - n % world
    ordered = [
        flat(seen(Batches(numbered(n), size, shuffle=False, rank=rank, world_size=world))) for rank in range(world)
    ]
    assert sorted(flat(ordered)) == list(range(n))


def test_part_of_the_data_an_epoch_without_replacement() -> None:
    batches = Batches(numbered(45_000), 32, seed=0, samples=9_000)
    first, second = (flat(seen(batches, epoch)) for epoch in (0, 1))
    assert len(batches) == 282
    assert len(set(first)) == len(first) == 9_000
    assert set(first) != set(second)


def test_replacement_draws_evenly_from_all() -> None:
    batches = Batches(numbered(100), 64, seed=0, replacement=True, samples=64 * 500)
    drawn = seen(batches)
    assert len(drawn) == 500
    assert any(len(set(batch)) < 64 for batch in drawn)
    counts = np.bincount(flat(drawn), minlength=100)
    chi_square = ((counts - 320) ** 2 / 320).sum()
    assert 60 < chi_square < 150  # 99 degrees of freedom
    other = Batches(numbered(100), 64, seed=0, replacement=True, samples=64 * 500, rank=1, world_size=2)
    assert seen(other)[0] != drawn[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size"),
        ({"batch_size": 2, "rank": 2, "world_size": 2}, "rank"),
        ({"batch_size": 2, "samples": 11}, "samples"),
        ({"batch_size": 11, "drop_last": True}, "do not fill one batch"),
        ({"batch_size": 2, "replacement": True, "shuffle": False}, "replacement"),
    ],
)
def test_bad_options(options: dict[str, int], message: str) -> None:
    with pytest.raises(DataError, match=message):
        Batches(numbered(10), **options)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="start"):
        list(Batches(numbered(10), 5).epoch(0, start=3))


def crop_by_loops(images: torch.Tensor, padding: int, flip: bool, generator: torch.Generator) -> torch.Tensor:
    """Image by image and pixel by pixel, from the same draws."""
    count, _, height, width = images.shape
    top, left = (
        torch.randint(2 * padding + 1, (count,), generator=generator) if padding else [0] * count for _ in "tl"
    )
    toss = torch.randint(2, (count,), generator=generator) if flip else [0] * count
    result = torch.zeros_like(images)
    for n in range(count):
        for y in range(height):
            for x in range(width):
                row, column = int(top[n]) + y - padding, int(left[n]) + x - padding
                if 0 <= row < height and 0 <= column < width:
                    result[n, :, y, width - 1 - x if toss[n] else x] = images[n, :, row, column]
    return result


@pytest.mark.parametrize(("padding", "flip"), [(4, True), (4, False), (0, True), (1, False), (0, False)])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float64])
def test_crop_and_flip_pixel_by_pixel(padding: int, flip: bool, dtype: torch.dtype) -> None:
    images = torch.randint(1, 256, (16, 3, 7, 5)).to(dtype)
    result = Augmentation(padding, flip)(images, torch.Generator().manual_seed(4))
    assert result.dtype == dtype
    assert torch.equal(result, crop_by_loops(images, padding, flip, torch.Generator().manual_seed(4)))


def test_draws_are_per_image_uniform_and_from_the_generator_alone() -> None:
    image = torch.zeros(1, 1, 9, 9, dtype=torch.uint8)
    image[..., 4, 4] = 255
    images = image.expand(4050, 1, 9, 9)
    state = torch.get_rng_state()
    result = Augmentation(4, False)(images, torch.Generator().manual_seed(0))
    counts = (result[:, 0] > 0).sum(0).flatten()
    assert counts.sum() == 4050
    assert 45 < float(((counts - 50.0) ** 2 / 50).sum()) < 125  # chi-square, 80 degrees of freedom
    assert torch.equal(torch.get_rng_state(), state)
    left_half = torch.zeros(4000, 1, 2, 2)
    left_half[..., 0] = 1
    flipped = Augmentation(0, True)(left_half, torch.Generator().manual_seed(0))[:, 0, 0, 1].mean()
    assert 0.46 < float(flipped) < 0.54
    assert torch.equal(images[0], image[0])


def test_only_images_can_be_augmented() -> None:
    with pytest.raises(DataError, match=r"only images \(B, C, H, W\)"):
        Augmentation()(torch.zeros(3, 4), torch.Generator())
    with pytest.raises(DataError, match="padding"):
        Augmentation(padding=-1)
