"""What all regularizers share: contract, precision, compilation, bad input; and confidence minimization."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from calibrant.config.loading import load_settings
from calibrant.losses import ConfidenceMinimization, confidence_minimization
from calibrant.slots import build, names

every = pytest.mark.parametrize("name", names("regularizer"))


def batch(n: int = 32, classes: int = 6, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(n, classes, generator=generator, dtype=torch.float64)
    labels = torch.where(torch.arange(n) % 2 == 0, logits.argmax(1), torch.randint(classes, (n,), generator=generator))
    return logits.to(dtype).requires_grad_(), labels


def test_the_settings_take_every_regularizer() -> None:
    for name in names("regularizer"):
        assert load_settings(overrides=[f"calibration.regularizer={name}"]).calibration.regularizer == name


@every
def test_a_module_gives_a_scalar_with_a_gradient(name: str) -> None:
    regularizer = build("regularizer", name)
    assert isinstance(regularizer, nn.Module)
    assert not list(regularizer.parameters())
    logits, labels = batch()
    value = regularizer(logits, labels)
    assert value.shape == ()
    gradient = torch.autograd.grad(value, logits)[0]
    assert torch.isfinite(gradient).all()
    assert gradient.abs().max() > 0


@every
def test_order_does_not_matter(name: str) -> None:
    logits, labels = batch(dtype=torch.float64)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(1))
    regularizer = build("regularizer", name)
    torch.testing.assert_close(regularizer(logits[order], labels[order]), regularizer(logits, labels))


@every
def test_a_common_shift_of_the_logits_does_not_matter(name: str) -> None:
    logits, labels = batch(dtype=torch.float64)
    regularizer = build("regularizer", name)
    torch.testing.assert_close(regularizer(logits + 7, labels), regularizer(logits, labels))


@every
@pytest.mark.parametrize("n", [1, 2])
def test_tiny_batches_are_finite_with_their_gradients(name: str, n: int) -> None:
    logits, labels = batch()
    for target in (labels, logits.argmax(1), (logits.argmax(1) + 1) % 6):
        value = build("regularizer", name)(logits[:n], target[:n])
        assert torch.isfinite(value)
        assert torch.isfinite(torch.autograd.grad(value, logits)[0]).all()


@every
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_widened(name: str, dtype: torch.dtype) -> None:
    logits, labels = batch(dtype=dtype)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = build("regularizer", name)(logits, labels)
    assert value.dtype == torch.float32
    torch.testing.assert_close(value, build("regularizer", name)(logits.detach().float(), labels), rtol=1e-4, atol=1e-5)
    assert torch.isfinite(torch.autograd.grad(value, logits)[0]).all()


@every
def test_float64_stays_float64(name: str) -> None:
    assert build("regularizer", name)(*batch(dtype=torch.float64)).dtype == torch.float64


@every
def test_compiles_without_a_graph_break(name: str) -> None:
    logits, labels = batch()
    regularizer = build("regularizer", name)
    compiled = torch.compile(regularizer, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(logits, labels), regularizer(logits, labels))
    ours = torch.autograd.grad(compiled(logits, labels), logits)
    torch.testing.assert_close(ours, torch.autograd.grad(regularizer(logits, labels), logits), rtol=1e-4, atol=1e-6)


@every
@pytest.mark.parametrize(
    ("logits", "labels", "message"),
    [
        (torch.zeros(3, 4, 2), torch.zeros(4).long(), "logits must have 2 dimensions"),
        (torch.zeros(4), torch.zeros(4).long(), "logits must have 2 dimensions"),
        (torch.zeros(4, 2), torch.zeros(3).long(), "labels has 3 entries, but logits has 4"),
        (torch.zeros(2, 2), torch.tensor([0, 2]), "labels holds 2"),
        (torch.zeros(2, 2), torch.tensor([0.0, 1.0]), "labels must be integer"),
        (torch.full((2, 2), math.nan), torch.tensor([0, 1]), "logits hold NaN"),
        (torch.zeros(0, 2), torch.zeros(0).long(), "logits is empty"),
    ],
)
def test_bad_input(name: str, logits: Tensor, labels: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build("regularizer", name)(logits, labels)


def test_confidence_minimization_is_the_cross_entropy_to_uniform() -> None:
    logits, _ = batch(dtype=torch.float64)
    uniform = torch.full((32, 6), 1 / 6, dtype=torch.float64)
    torch.testing.assert_close(ConfidenceMinimization()(logits), F.cross_entropy(logits, uniform))
    divergence = F.kl_div(F.log_softmax(logits, 1), uniform, reduction="batchmean")
    torch.testing.assert_close(confidence_minimization(logits), divergence + math.log(6))


def test_confidence_minimization_is_least_at_uniform_logits() -> None:
    flat = torch.zeros(3, 5, requires_grad=True)
    value = confidence_minimization(flat)
    assert value.item() == pytest.approx(math.log(5))
    assert torch.autograd.grad(value, flat)[0].abs().max().item() < 1e-7
    assert confidence_minimization(torch.randn(3, 5, generator=torch.Generator().manual_seed(0))) > value


@pytest.mark.parametrize(
    ("logits", "message"),
    [
        (torch.zeros(2, 3, 4), "logits must have 2 dimensions"),
        (torch.zeros(0, 3), "logits is empty"),
        (torch.zeros(2, 3).long(), "logits must be floating point"),
        (torch.full((2, 3), math.nan), "logits hold NaN"),
    ],
)
def test_confidence_minimization_refuses_bad_logits(logits: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        confidence_minimization(logits)
