"""The contract of calibrators: state, fingerprints, what becomes of predictions; also where the class changes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from calibrant.calibrators import AutoCalibrator, Calibrator, TemperatureScaling, Uncalibrated, fingerprint_of
from calibrant.calibrators.base import log_probabilities, pooled
from calibrant.predictions import Predictions
from calibrant.slots import lookup, names


class ClassBias(Calibrator):
    """softmax(z + b), the simplest calibrator that can change the predicted class: b matches the class frequencies."""

    keeps_class = False
    bias: Tensor

    def __init__(self, steps: int = 200) -> None:
        super().__init__()
        self.steps = steps
        self.register_buffer("bias", torch.empty(0))

    def config(self) -> dict[str, int]:
        return {"steps": self.steps}

    def fit_logits(self, z: Tensor, labels: Tensor) -> None:
        frequency = functional.one_hot(labels, z.shape[1]).double().mean(0)
        bias = torch.zeros(z.shape[1], dtype=z.dtype)
        for _ in range(self.steps):
            bias += (frequency / (z + bias).softmax(-1).mean(0)).log()
        self.bias = bias

    def forward(self, z: Tensor) -> Tensor:
        return z + self.bias.to(z.dtype)


def drawn(n: int = 500, classes: int = 4, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits = 4 * torch.randn(n, classes, generator=generator)
    return logits, (logits / 2).softmax(1).multinomial(1, generator=generator).squeeze(1)


def test_ours_are_known_by_name() -> None:
    assert {"none", "temperature"} <= set(names("calibrator"))
    assert lookup("calibrator", "temperature") is TemperatureScaling
    assert lookup("calibrator", "none") is Uncalibrated


def test_none_changes_nothing_to_the_bit() -> None:
    logits, labels = drawn()
    raw = Predictions.from_logits(logits[None], labels=labels)
    for calibrator in (Uncalibrated(), Uncalibrated().fit(logits, labels)):
        same = calibrator.calibrate(raw)
        assert torch.equal(same.probabilities, raw.probabilities)
        assert torch.equal(same.confidence, raw.confidence)
        assert torch.equal(calibrator.transform(logits), logits)
        assert same.calibrator == "none" == fingerprint_of(None)


@pytest.mark.parametrize("kind", [TemperatureScaling, ClassBias])
@pytest.mark.parametrize("members", [1, 3])
def test_mean_probabilities_and_members_logits_give_the_same(kind: type[Calibrator], members: int) -> None:
    logits = torch.stack([drawn(seed=k)[0] for k in range(members)])
    labels = drawn()[1]
    mean = logits.softmax(-1).mean(0)
    by_logits, by_mean = kind().fit(logits, labels), kind().fit(log_probabilities(mean), labels)
    torch.testing.assert_close(by_mean.of_mean(mean), by_logits.probabilities(logits))
    calibrated = by_logits.calibrate(Predictions.from_logits(logits.clone(), labels=labels))
    torch.testing.assert_close(calibrated.probabilities, by_logits.probabilities(logits))
    torch.testing.assert_close(calibrated.confidence, by_logits.probabilities(logits).amax(1))
    assert torch.equal(calibrated.predicted, by_logits.probabilities(logits).argmax(1))
    assert torch.equal(calibrated.predicted, mean.argmax(1)) == kind.keeps_class
    assert calibrated.labels is labels


def test_the_temperature_keeps_the_class_where_rounding_makes_a_tie() -> None:
    scaling = TemperatureScaling().fit(2 * torch.eye(3), [1, 2, 0])
    close = Predictions.from_probabilities(torch.tensor([[0.3, 0.34999996, 0.35]]))
    assert scaling.temperature_ == pytest.approx(100)
    assert int(scaling.calibrate(close).predicted) == 2


@pytest.mark.parametrize("kind", [TemperatureScaling, ClassBias])
def test_state_and_config_are_the_whole(kind: type[Calibrator]) -> None:
    logits, labels = drawn()
    fitted = kind().fit(logits, labels)
    again = kind.from_state(fitted.config(), fitted.state_dict())
    assert torch.equal(again.transform(logits), fitted.transform(logits))
    assert again.fingerprint() == fitted.fingerprint() != kind().fit(logits[:50], labels[:50]).fingerprint()
    with pytest.raises(ValueError, match="tensors do not belong to"):
        kind.from_state(fitted.config(), {"other": torch.zeros(1)})


def test_casting_a_predictor_rounds_no_fitted_value() -> None:
    scaling = TemperatureScaling().fit(*drawn())
    temperature, fingerprint = scaling.temperature_, scaling.fingerprint()
    assert scaling.half().temperature_ == temperature
    assert scaling.to(torch.bfloat16).double().fingerprint() == fingerprint
    assert scaling.to("meta").temperature.device.type == "meta"


def test_bad_input_gets_a_sentence() -> None:
    logits, labels = drawn()
    scaling = TemperatureScaling().fit(logits, labels)
    raw = Predictions.from_logits(logits[None])
    with pytest.raises(ValueError, match="logits have 3 columns, but the calibrator was fitted to 4"):
        scaling.transform(logits[:, :3])
    with pytest.raises(ValueError, match="logits have 3 columns"):
        scaling.calibrate(Predictions.from_logits(logits[None, :, :3]))
    with pytest.raises(ValueError, match=r"went through the calibrator temperature:\w+ already; take the raw ones"):
        scaling.calibrate(scaling.calibrate(raw))
    with pytest.raises(ValueError, match="predictions have no probabilities"):
        scaling.calibrate(Predictions(torch.ones(2), torch.zeros(2)))
    with pytest.raises(ValueError, match="this TemperatureScaling is not fitted"):
        TemperatureScaling().calibrate(raw)
    with pytest.raises(ValueError, match="parts went through different calibrators"):
        Predictions.concatenate([raw, scaling.calibrate(raw)])


def test_what_was_calibrated_says_so_wherever_it_goes() -> None:
    logits, labels = drawn()
    scaling = TemperatureScaling().fit(logits, labels)
    raw = Predictions.from_probabilities(logits.softmax(-1), labels, selection=torch.ones(len(labels)))
    calibrated = scaling.calibrate(raw)
    assert calibrated.selection is None
    for part in (calibrated[:5], calibrated.numpy(), Predictions.concatenate([calibrated, calibrated])):
        assert part.calibrator == scaling.fingerprint()


def test_members_are_pooled_to_the_log_of_their_mean_probabilities() -> None:
    members = torch.tensor([[[0.0, 0.0]], [[3.0, 0.0]], [[0.0, 1.0]]]).double().log1p()  # 1/2, 4/5 and 1/3
    torch.testing.assert_close(pooled(members).exp(), torch.tensor([[49 / 90, 41 / 90]]).double())


def test_probabilities_in_place_of_logits_are_noticed() -> None:
    labels = torch.tensor([1, 2, 0])
    with pytest.warns(UserWarning, match="the logits are probabilities.*softmax layer"):
        TemperatureScaling().fit(torch.eye(3), labels)
    one_row, below_0 = torch.eye(3)[:1], torch.tensor([[2.0, -1.0, 0.0]]).expand(3, 3)
    off = torch.eye(3) + torch.tensor([0.0, 0.0, 0.002])
    for logits in (one_row, below_0, off):
        TemperatureScaling().fit(logits, labels[: len(logits)])  # without a warning, which would be an error


def test_a_fingerprint_does_not_depend_on_the_order_in_which_a_file_lists_settings() -> None:
    logits, labels = drawn(20)
    fitted = AutoCalibrator(candidates=("none", "temperature")).fit(logits, labels)
    config = dict(reversed(fitted.config().items()))
    config["losses"] = dict(reversed(config["losses"].items()))
    again = AutoCalibrator.from_state(config, fitted.state_dict())
    assert list(again.losses) == ["temperature", "none"]
    assert again.fingerprint() == fitted.fingerprint()
