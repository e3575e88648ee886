"""MMCE and weighted MMCE against double loops over the printed formulas, with gradients."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from calibrant.losses import MMCE, WeightedMMCE, mmce, weighted_mmce

confidences = st.floats(0, 1, allow_nan=False)
samples = st.lists(st.tuples(confidences, st.integers(0, 1)), min_size=1, max_size=25)


def looped_mmce(r: list[float], c: list[int], width: float) -> float:
    n = len(r)
    total = 0.0
    for i in range(n):
        for j in range(n):
            total += (c[i] - r[i]) * (c[j] - r[j]) * math.exp(-abs(r[i] - r[j]) / width) / n**2
    return math.sqrt(max(total, 0.0))


def looped_weighted_mmce(r: list[float], c: list[int], width: float) -> float:
    n, n_c = len(r), sum(c)
    total = 0.0
    for i in range(n):
        for j in range(n):
            kernel = math.exp(-abs(r[i] - r[j]) / width)
            if c[i] == c[j] == 0:
                total += r[i] * r[j] * kernel / ((n - n_c) * (n - n_c))
            elif c[i] == c[j] == 1:
                total += (1 - r[i]) * (1 - r[j]) * kernel / n_c**2
            elif c[i] == 1 and c[j] == 0:
                total -= 2 * (1 - r[i]) * r[j] * kernel / ((n - n_c) * n_c)
    return math.sqrt(max(total, 0.0))


def published_weighted_mmce(r: np.ndarray, c: np.ndarray, width: float) -> float:
    """Means over the three kinds of pairs, each divided by the number of its pairs once more."""
    right, wrong = r[c == 1], r[c == 0]
    m, n = len(right), len(wrong)
    if m == 0 or n == 0:
        return 0.0

    def mean(a: np.ndarray, x: np.ndarray, b: np.ndarray, y: np.ndarray) -> float:
        return float(np.mean(np.outer(a, b) * np.exp(-np.abs(x[:, None] - y[None, :]) / width)))

    squared = mean(1 - right, right, 1 - right, right) / (m * m + 1e-5)
    squared += mean(wrong, wrong, wrong, wrong) / (n * n + 1e-5)
    squared -= 2 * mean(1 - right, right, wrong, wrong) / (m * n + 1e-5)
    return math.sqrt(squared + 1e-10)


def matrix_weighted(r: Tensor, c: Tensor, width: float) -> Tensor:
    right, wrong = r[c == 1], r[c == 0]

    def mean(a: Tensor, x: Tensor, b: Tensor, y: Tensor) -> Tensor:
        return (a[:, None] * b[None, :] * torch.exp(-(x[:, None] - y[None, :]).abs() / width)).mean()

    terms = [r.sum() * 0]
    if len(right):
        terms.append(mean(1 - right, right, 1 - right, right))
    if len(wrong):
        terms.append(mean(wrong, wrong, wrong, wrong))
    if len(right) and len(wrong):
        terms.append(-2 * mean(1 - right, right, wrong, wrong))
    return torch.stack(terms).sum()


def tensors(sample: list[tuple[float, int]]) -> tuple[Tensor, Tensor]:
    r, c = zip(*sample, strict=True)
    return torch.tensor(r, dtype=torch.float64), torch.tensor(c)


def batch(n: int, classes: int = 4, scale: float = 2.0, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(n, classes, generator=generator, dtype=torch.float64)
    return logits.requires_grad_(), torch.randint(classes, (n,), generator=generator)


@settings(deadline=None, max_examples=60)
@given(samples, st.sampled_from([0.005, 0.2, 0.4]))
def test_mmce_is_the_printed_double_sum(sample: list[tuple[float, int]], width: float) -> None:
    r, c = tensors(sample)
    expected = looped_mmce(r.tolist(), c.tolist(), width)
    assert mmce(r, c, width).item() == pytest.approx(expected, rel=1e-9, abs=1e-8)
    assert mmce(r, c, width, squared=True).item() == pytest.approx(expected**2, rel=1e-9, abs=1e-14)


@settings(deadline=None, max_examples=60)
@given(samples, st.sampled_from([0.005, 0.2, 0.4]))
def test_weighted_mmce_is_the_printed_sum_without_the_terms_of_empty_groups(
    sample: list[tuple[float, int]], width: float
) -> None:
    r, c = tensors(sample)
    expected = looped_weighted_mmce(r.tolist(), c.tolist(), width)
    assert weighted_mmce(r, c, width).item() == pytest.approx(expected, rel=1e-9, abs=1e-8)
    assert weighted_mmce(r, c, width, squared=True).item() == pytest.approx(expected**2, rel=1e-9, abs=1e-14)


@settings(deadline=None, max_examples=40)
@given(samples)
def test_the_published_variant_divides_twice(sample: list[tuple[float, int]]) -> None:
    r, c = tensors(sample)
    expected = published_weighted_mmce(r.numpy(), c.numpy(), 0.4)
    value = weighted_mmce(r, c, normalization="authors_code").item()
    assert value == pytest.approx(expected, rel=1e-4, abs=5e-3)  # its constants 1e-5 and 1e-10 are not ours


def test_the_published_variant_by_hand() -> None:
    """Two right at 0.6 and 0.9, one wrong at 0.7, as in the docstring, term by term."""
    k = {gap: math.exp(-gap / 0.4) for gap in (0.1, 0.2, 0.3)}
    squared = (
        (0.4**2 + 0.1**2 + 2 * 0.4 * 0.1 * k[0.3]) / 16 + 0.7**2 - 2 * (0.4 * 0.7 * k[0.1] + 0.1 * 0.7 * k[0.2]) / 4
    )
    r, c = torch.tensor([0.6, 0.9, 0.7], dtype=torch.float64), torch.tensor([1, 1, 0])
    value = weighted_mmce(r, c, normalization="authors_code")
    assert value.item() == pytest.approx(math.sqrt(squared), rel=1e-12)


@pytest.mark.parametrize("right", range(1, 10))
def test_of_a_calibrated_network_mmce_is_zero_and_weighted_mmce_only_at_one_half(right: int) -> None:
    r, c = torch.full((10,), right / 10, dtype=torch.float64, requires_grad=True), torch.arange(10) < right
    assert mmce(r, c).item() == pytest.approx(0, abs=1e-7)
    weighted = weighted_mmce(r, c)
    assert weighted.item() == pytest.approx(abs(1 - 2 * right / 10), abs=1e-7)
    slope = torch.autograd.grad(weighted, r)[0].sum().item()
    assert np.sign(round(slope, 6)) == np.sign(right - 5)  # above one half it asks for less confidence


@settings(deadline=None, max_examples=30)
@given(samples, st.randoms(use_true_random=False))
def test_order_does_not_matter(sample: list[tuple[float, int]], random: object) -> None:
    r, c = tensors(sample)
    order = list(range(len(r)))
    random.shuffle(order)  # type: ignore[attr-defined]
    for measure in (mmce, weighted_mmce):
        torch.testing.assert_close(measure(r[order], c[order]), measure(r, c), rtol=1e-9, atol=1e-8)


@pytest.mark.parametrize(("r", "c", "expected"), [(0.3, 1, 0.7), (0.3, 0, 0.3), (1.0, 1, 0.0), (0.0, 0, 0.0)])
def test_a_single_example(r: float, c: int, expected: float) -> None:
    """The other group is empty: what remains is |c - r|, with slope -1 or 1 in r, and 0 where it is 0."""
    for measure in (mmce, weighted_mmce):
        point = torch.tensor([r], dtype=torch.float64, requires_grad=True)
        value = measure(point, torch.tensor([c]))
        assert value.item() == pytest.approx(expected, abs=1e-12)
        slope = torch.autograd.grad(value, point)[0].item()
        assert slope == pytest.approx(0.0 if expected == 0 else 1 - 2 * c, abs=1e-9)


@pytest.mark.parametrize("c", [0, 1])
def test_an_empty_group_is_dropped_with_its_gradient(c: int) -> None:
    r = torch.tensor([0.2, 0.5, 0.5, 0.9], dtype=torch.float64, requires_grad=True)
    correct = torch.full((4,), c)
    value, reference = weighted_mmce(r, correct, squared=True), matrix_weighted(r, correct, 0.4)
    torch.testing.assert_close(value, reference)
    torch.testing.assert_close(torch.autograd.grad(value, r), torch.autograd.grad(reference, r))
    published = weighted_mmce(r, correct, normalization="authors_code")
    assert published.item() == 0
    assert torch.autograd.grad(published, r)[0].tolist() == [0.0] * 4


@pytest.mark.parametrize("c", [[1, 1, 0, 0, 1], [0, 0, 1, 1, 0]])
def test_ties_and_the_ends_of_the_interval_have_the_gradient_of_the_matrix(c: list[int]) -> None:
    r = torch.tensor([1.0, 1.0, 1.0, 0.0, 0.7], dtype=torch.float64, requires_grad=True)
    correct = torch.tensor(c)
    value, reference = weighted_mmce(r, correct, squared=True), matrix_weighted(r, correct, 0.4)
    torch.testing.assert_close(value, reference)
    torch.testing.assert_close(torch.autograd.grad(value, r), torch.autograd.grad(reference, r))


@pytest.mark.parametrize(
    "module", [MMCE(), MMCE(squared=True), WeightedMMCE(), WeightedMMCE(normalization="authors_code")]
)
def test_gradcheck_through_the_logits(module: torch.nn.Module) -> None:
    logits, labels = batch(12)
    assert torch.autograd.gradcheck(lambda x: module(x, labels), (logits,))


def test_the_gradient_is_finite_at_perfection() -> None:
    """Saturated and right everywhere: MMCE is 0 and so is its gradient."""
    logits = torch.tensor([[200.0, 0.0], [0.0, 300.0]], requires_grad=True)
    for module in (MMCE(), WeightedMMCE()):
        value = module(logits, torch.tensor([0, 1]))
        assert value.item() == 0
        assert torch.autograd.grad(value, logits)[0].abs().max().item() == 0


def calibrated(n: int, gap: float = 0.0, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    r = 0.5 + 0.5 * torch.rand(n, generator=generator, dtype=torch.float64)
    return r, (torch.rand(n, generator=generator, dtype=torch.float64) < r - gap).long()


def test_a_calibrated_sample_tends_to_zero() -> None:
    means = [np.mean([mmce(*calibrated(n, seed=s)).item() for s in range(20)]) for n in (100, 1600, 25600)]
    assert means[1] == pytest.approx(means[0] / 4, rel=0.5)  # as 1 / sqrt(n)
    assert means[2] == pytest.approx(means[1] / 4, rel=0.5)
    assert mmce(*calibrated(1_000_000)).item() < 1e-3


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 10_000))
def test_it_grows_with_miscalibration(seed: int) -> None:
    values = [mmce(*calibrated(20_000, gap, seed)).item() for gap in (0.0, 0.1, 0.2, 0.3)]
    assert values == sorted(values)
    assert values[-1] > 0.2


def test_float32_agrees_with_float64_at_the_smallest_width() -> None:
    r, c = calibrated(200_000, gap=0.01)
    for measure in (mmce, weighted_mmce):
        single, double = measure(r.float(), c, 0.005), measure(r.float().double(), c, 0.005)
        assert single.dtype == torch.float32
        torch.testing.assert_close(single.double(), double, rtol=1e-5, atol=0)


def test_arrays_are_taken() -> None:
    assert mmce(np.array([0.5, 0.9]), np.array([True, False])).item() == pytest.approx(
        looped_mmce([0.5, 0.9], [1, 0], 0.4)
    )


@pytest.mark.parametrize("measure", [mmce, weighted_mmce])
@pytest.mark.parametrize(
    ("confidence", "correct", "message"),
    [
        ([0.5, 0.9], [1], "correct has 1 entries, but confidence has 2"),
        ([0.5, 1.2], [1, 0], "confidence must lie in"),
        ([0.5, math.nan], [1, 0], "confidence holds NaN"),
        ([0.5, 0.9], [1, 2], "correct must hold only 0"),
        ([1, 0], [1, 0], "confidence must be floating point"),
        (torch.rand(2, 3), [1, 0], "confidence must have 1 dimension"),
        (torch.rand(0), torch.rand(0), "confidence is empty"),
    ],
)
def test_bad_input(measure: object, confidence: object, correct: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        measure(confidence, correct)  # type: ignore[operator]


def test_bad_settings() -> None:
    with pytest.raises(ValueError, match="width must be positive"):
        MMCE(width=0)
    with pytest.raises(ValueError, match="width must be positive"):
        WeightedMMCE(width=-1)
    with pytest.raises(ValueError, match="normalization must be"):
        WeightedMMCE(normalization="twice")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="normalization must be"):
        weighted_mmce([0.5], [1], normalization="twice")  # type: ignore[arg-type]
