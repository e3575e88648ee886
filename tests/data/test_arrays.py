"""Data in memory, what users bring, and normalization."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.preprocessing import StandardScaler
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from calibrant.data import ArrayData, DataError, DatasetData, as_data, channel_statistics, concatenate, loader_batches


def test_is_a_torch_dataset_with_and_without_labels() -> None:
    labeled = ArrayData(torch.arange(12.0).reshape(4, 3), torch.tensor([0, 1, 0, 1]))
    inputs, labels = next(iter(DataLoader(labeled, batch_size=4)))
    assert torch.equal(inputs, labeled.inputs)
    assert torch.equal(labels, torch.tensor([0, 1, 0, 1]))
    assert torch.equal(next(iter(DataLoader(ArrayData(labeled.inputs), batch_size=4))), labeled.inputs)


def test_subset_keeps_pairs_together() -> None:
    data = ArrayData(torch.arange(5.0)[:, None], torch.arange(5), tuple("abcde"), "five")
    part = data.subset([4, 1])
    assert part.inputs.flatten().tolist() == [4, 1]
    assert part.labels is not None
    assert part.labels.tolist() == [4, 1]
    assert (part.classes, part.name, part.num_classes) == (tuple("abcde"), "five", 5)


@pytest.mark.parametrize(
    ("inputs", "labels", "classes", "message"),
    [
        (torch.zeros(3), None, None, "a row per example"),
        (torch.zeros(0, 3), None, None, "inputs is empty"),
        (torch.zeros(3, 2), torch.zeros(2, dtype=torch.long), None, "labels has 2 entries, but inputs has 3"),
        (torch.zeros(3, 2), torch.tensor([0, 1, -1]), None, "labels hold -1"),
        (torch.zeros(3, 2), torch.tensor([0, 1, 2]), ("a", "b"), "labels holds 2"),
        (torch.zeros(3, 2), torch.zeros(3), None, "labels must be integer"),
    ],
)
def test_inconsistent_data_is_refused(inputs: torch.Tensor, labels: object, classes: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ArrayData(inputs, labels, classes)  # type: ignore[arg-type]


def test_fingerprint_sees_values_order_and_labels() -> None:
    data = ArrayData(torch.arange(6, dtype=torch.uint8).reshape(3, 2), torch.tensor([0, 1, 2]))
    same = ArrayData(data.inputs.clone(), torch.tensor([0, 1, 2]))
    assert data.fingerprint == same.fingerprint
    assert len({data.fingerprint, data.subset([1, 0, 2]).fingerprint, ArrayData(data.inputs).fingerprint}) == 3


def test_concatenate_keeps_labels_only_where_all_have_them() -> None:
    one, two = ArrayData(torch.zeros(1, 2), torch.tensor([0])), ArrayData(torch.ones(2, 2), torch.tensor([1, 0]))
    joined = concatenate([one, two])
    assert joined.labels is not None
    assert joined.labels.tolist() == [0, 1, 0]
    assert concatenate([one, ArrayData(torch.ones(2, 2))]).labels is None


def test_statistics_of_images_are_per_channel_on_the_unit_scale() -> None:
    images = torch.randint(0, 256, (1500, 3, 5, 4), dtype=torch.uint8)
    images[:, 2] = 51
    mean, std = channel_statistics(images)
    pixels = images.numpy().astype(np.float64) / 255
    np.testing.assert_allclose(mean.numpy(), pixels.mean((0, 2, 3)), rtol=1e-6)
    np.testing.assert_allclose(std.numpy()[:2], pixels.std((0, 2, 3))[:2], rtol=1e-6)
    assert std[2] == 1


def test_statistics_of_tables_agree_with_scikit_learn() -> None:
    table = torch.randn(3000, 4) * torch.tensor([1.0, 1e-3, 1e3, 5.0]) + torch.tensor([0.0, 100.0, -1e4, 3.0])
    mean, std = channel_statistics(table)
    scaler = StandardScaler().fit(table.double().numpy())
    np.testing.assert_allclose(mean.numpy(), scaler.mean_, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(std.numpy(), scaler.scale_, rtol=1e-5)
    assert channel_statistics(torch.full((10, 1), 0.1))[1] == 1


def test_statistics_of_tokens_are_refused() -> None:
    with pytest.raises(DataError, match="tokens"):
        channel_statistics(torch.zeros(3, 4, dtype=torch.long))


@pytest.mark.parametrize(
    ("given", "shape", "dtype"),
    [
        (np.zeros((5, 32, 30, 3), np.uint8), (5, 3, 32, 30), torch.uint8),
        (np.zeros((5, 3, 32, 30), np.uint8), (5, 3, 32, 30), torch.uint8),
        (np.zeros((5, 8, 8), np.uint8), (5, 1, 8, 8), torch.uint8),
        (np.zeros((5, 8, 8, 1), np.int64), (5, 1, 8, 8), torch.uint8),
        (np.zeros((5, 8, 8, 3), np.float64), (5, 3, 8, 8), torch.float32),
        (np.zeros((5, 7), np.float64), (5, 7), torch.float32),
        (np.zeros((5, 7), np.int32), (5, 7), torch.int64),
        (np.zeros((5, 7), np.uint8), (5, 7), torch.float32),
        (np.zeros(5, ">f8"), (5, 1), torch.float32),
        (np.zeros((5, 7, 2), np.float32), (5, 7, 2), torch.float32),
    ],
)
def test_arrays_become_images_tables_or_tokens(given: object, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    data = as_data(given)
    assert isinstance(data, ArrayData)
    assert (tuple(data.inputs.shape), data.inputs.dtype) == (shape, dtype)


def test_channels_last_pixels_land_in_their_place() -> None:
    image = np.random.default_rng(0).integers(0, 256, (2, 4, 5, 3)).astype(np.uint8)
    data = as_data(image)
    assert isinstance(data, ArrayData)
    assert data.inputs[1, 2, 3, 4] == image[1, 3, 4, 2]


def test_pairs_names_and_frames() -> None:
    import pandas as pd

    frame = pd.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0]})
    data = as_data((frame, pd.Series(["no", "yes"])))
    assert isinstance(data, ArrayData)
    assert data.inputs.tolist() == [[1, 3], [2, 4]]
    assert data.labels is not None
    assert (data.labels.tolist(), data.classes) == ([0, 1], ("no", "yes"))


def test_images_of_pil() -> None:
    data = as_data([Image.new("L", (4, 6), 9), Image.new("L", (4, 6), 7)], [0, 1])
    assert isinstance(data, ArrayData)
    assert data.inputs[:, 0, 0, 0].tolist() == [9, 7]
    assert data.inputs.shape == (2, 1, 6, 4)


class Pictures(Dataset):  # type: ignore[type-arg]
    """As torchvision's: a list of classes, PIL images and integer labels, a transform."""

    classes = ("dark", "bright")

    def __init__(self, n: int = 20, transform: object = None) -> None:
        self.n, self.transform = n, transform

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> object:
        image = Image.new("RGB", (5, 3), (index, 0, 255))
        return (self.transform(image) if callable(self.transform) else image), index % 2


def test_small_datasets_are_read_once() -> None:
    data = as_data(Pictures())
    assert isinstance(data, ArrayData)
    assert data.inputs.shape == (20, 3, 3, 5)
    assert data.inputs[7, :, 0, 0].tolist() == [7, 0, 255]
    assert data.classes == ("dark", "bright")
    assert data.labels is not None
    assert data.labels.tolist() == [0, 1] * 10


def test_random_datasets_stay_random() -> None:
    state = torch.get_rng_state()
    data = as_data(Pictures(transform=lambda image: torch.rand(2, dtype=torch.float64)))
    assert torch.equal(torch.get_rng_state(), state)
    assert isinstance(data, DatasetData)
    part = data.subset([3, 4, 8]).subset([2, 0])
    inputs, labels = part.take(torch.tensor([0, 1]))
    assert (inputs.shape, inputs.dtype) == ((2, 2), torch.float32)
    assert labels is not None
    assert labels.tolist() == [0, 1]
    assert len(part) == 2
    assert not torch.equal(part.take(torch.tensor([0, 1]))[0], inputs)


def test_large_datasets_are_not_read_into_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calibrant.data.adapt.IN_MEMORY_BYTES", 20 * 45 - 1)
    assert isinstance(as_data(Pictures()), DatasetData)
    monkeypatch.setattr("calibrant.data.adapt.IN_MEMORY_BYTES", 20 * 45)
    assert isinstance(as_data(Pictures()), ArrayData)


def test_datasets_of_tensors_dictionaries_and_single_inputs() -> None:
    x, y = torch.randn(6, 2), torch.arange(6)
    whole = as_data(TensorDataset(x, y))
    assert isinstance(whole, ArrayData)
    assert torch.equal(whole.inputs, x)
    rows = as_data(torch.utils.data.Subset(TensorDataset(x), [1, 2]))
    assert isinstance(rows, ArrayData)
    assert torch.equal(rows.inputs, x[1:3])
    assert rows.labels is None

    class Rows(Pictures):
        classes = ()

        def __getitem__(self, index: int) -> object:
            return {"image": np.full((2, 2), index), "label": index % 3}

    named = as_data(Rows())
    assert isinstance(named, ArrayData)
    assert named.inputs[5, 0, 0] == 5
    assert named.num_classes == 3


def test_loaders_stay_loaders() -> None:
    x, y = torch.randn(6, 2), torch.arange(6)
    loader = DataLoader(TensorDataset(x, y), batch_size=4)
    assert as_data(loader) is loader
    batches = list(loader_batches(loader))
    assert torch.equal(torch.cat([inputs for inputs, _ in batches]), x)
    assert [labels.tolist() for _, labels in batches if labels is not None] == [[0, 1, 2, 3], [4, 5]]
    assert next(loader_batches([x]))[1] is None


class Endless(IterableDataset):  # type: ignore[type-arg]
    def __iter__(self) -> object:
        return iter(())


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        ([[1.0, 2.0], [3.0]], None, "rectangular"),
        (np.array([["a", "b"]]), None, "X must hold numbers"),
        (np.array([[0.0, np.nan]]), None, "row 0"),
        (torch.tensor([[float("inf")]]), None, "NaN or infinity"),
        (np.full((1, 8, 8, 3), 300), None, "beyond 0 to 255"),
        (np.zeros((2, 2)), np.array([0.5, 1.0]), "class indices or class names"),
        (np.zeros((2, 2)), np.zeros((2, 2), int), "one label per row"),
        (np.zeros((2, 2)), [0, 1, 1], "labels has 3 entries"),
        (Endless(), None, "without a length"),
        (Pictures(0), None, "empty"),
        (Pictures(), [1], "y must not be given"),
        (Pictures(transform=lambda image: torch.rand(image.getpixel((0, 0))[0])), None, "shapes"),
    ],
)
def test_bad_input_is_one_sentence(X: object, y: object, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        as_data(X, y)
    assert "\n" not in str(caught.value)
