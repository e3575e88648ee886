"""Batches, outputs and modules of every form that people have, without any other library."""

from __future__ import annotations

import copy
import json
from collections import UserDict, namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from commands import Caller, call
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import calibrant
from calibrant import (
    CalibratedClassifier,
    Ensemble,
    MeanField,
    Objective,
    Predictions,
    Predictor,
    calibrators,
    detectors,
    losses,
)
from calibrant.adapters.calling import arguments
from calibrant.adapters.features import FeatureTap
from calibrant.adapters.outputs import logits_of
from calibrant.adapters.trees import join_rows, map_tensors, move_to, row_count, tensors_in
from calibrant.adapters.unpacking import split_batch
from calibrant.posteriors import Deterministic, MCDropout
from calibrant.posteriors.deterministic import as_posterior

__all__ = ["call"]

Pair = namedtuple("Pair", ["loss", "logits"])


@dataclass
class Output:
    logits: Tensor
    hidden_states: Any = None


class Text(nn.Module):
    """As a Hugging Face classifier: keyword arguments, and an output of the form `wrap` makes."""

    def __init__(self, wrap: Callable[[Tensor], Any] = Output, outputs: int = 3) -> None:
        super().__init__()
        self.embedding, self.head, self.wrap = nn.Embedding(20, 8), nn.Linear(8, outputs), wrap

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, labels: Tensor | None = None, **kwargs: Any
    ) -> Any:
        assert labels is None, "labels are not passed on"
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        hidden = self.embedding(input_ids) * mask[..., None]
        return self.wrap(self.head(hidden.sum(1) / mask.sum(1, keepdim=True)))


def tokens(rows: int = 6, length: int = 5, seed: int = 0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(1, 20, (rows, length), generator=generator)
    mask = (torch.arange(length) < torch.randint(2, length + 1, (rows, 1), generator=generator)).long()
    return {"input_ids": ids * mask, "attention_mask": mask, "labels": ids[:, 0] % 3}


WRAPS: dict[str, Callable[[Tensor], Any]] = {
    "tensor": lambda logits: logits,
    "tuple": lambda logits: (logits, [torch.zeros(1)]),
    "loss first": lambda logits: (logits.sum(), logits),
    "dict": lambda logits: {"logits": logits, "other": torch.zeros(len(logits), 9)},
    "only entry": lambda logits: {"scores": logits, "loss": logits.sum()},
    "data class": Output,
    "named tuple": lambda logits: Pair(logits.sum(), logits),
}


@pytest.mark.parametrize("form", WRAPS)
def test_the_logits_are_found_in_outputs_of_every_form(form: str) -> None:
    torch.manual_seed(0)
    module, batch = Text(WRAPS[form]), tokens()
    expected = logits_of(module(batch["input_ids"], batch["attention_mask"]))
    assert expected.shape == (6, 3)
    assert torch.equal(Ensemble.of(module)(batch)[0], expected)
    for posterior in (
        Deterministic(module),
        MeanField(copy.deepcopy(module), init_std=1e-6),
        MCDropout(copy.deepcopy(module)),
    ):
        assert posterior.logits(batch, draws=2).shape[1:] == (6, 3)
    predicted = Ensemble.of(module).predict([batch, batch])
    assert torch.equal(predicted.labels, torch.cat([batch["labels"]] * 2))
    assert predicted.features is not None
    torch.testing.assert_close(predicted.features[0, :6] @ module.head.weight.T + module.head.bias, expected)
    decision = Predictor(Ensemble.of(module))(batch)
    torch.testing.assert_close(decision.probabilities, expected.softmax(-1))
    loss = Objective(10)(module(batch["input_ids"], batch["attention_mask"]), batch["labels"])["loss"]
    torch.testing.assert_close(loss, F.cross_entropy(expected, batch["labels"]))


@pytest.mark.parametrize("output", [{"a": torch.ones(2, 2), "b": torch.ones(2, 2)}, "text", (torch.ones(()),)])
def test_other_outputs_are_refused_in_one_sentence(output: Any) -> None:
    class Other(nn.Linear):
        def forward(self, x: Tensor) -> Any:
            return output

    with pytest.raises(ValueError, match=r"wrap it in a module whose forward returns logits \(B, C\)"):
        Predictor(Ensemble.of(Other(2, 2)))(torch.ones(2, 2))


def test_what_a_batch_is() -> None:
    x, y = torch.ones(2, 3), torch.tensor([0, 1])
    assert split_batch(x) == (x, None)
    assert split_batch((x, y)) == split_batch([x, y, "more"]) == (x, y)
    assert split_batch((x,)) == (x, None)
    encoding = UserDict({"input_ids": x, "label": y, "text": ["a", "b"], "nothing": None})
    inputs, labels = split_batch(encoding)
    assert inputs == {"input_ids": x}
    assert labels is y
    assert split_batch(Output(x, y))[0] == {"logits": x, "hidden_states": y}


def test_how_a_module_takes_its_inputs() -> None:
    class Two(nn.Module):
        def forward(self, left: Tensor, right: Tensor) -> Tensor:
            return left + right

    class Whole(nn.Module):
        def forward(self, batch: Any) -> Tensor:
            return batch["left"]

    assert arguments(Two(), (1, 2)) == arguments(Two(), [1, 2]) == ((1, 2), {})
    assert arguments(Two(), {"left": 1, "right": 2}) == ((), {"left": 1, "right": 2})
    assert arguments(Whole(), {"left": 1, "right": 2}) == (({"left": 1, "right": 2},), {})
    assert arguments(nn.Linear(1, 1), {"image": 1, "id": 7, "label": 1}) == ((1,), {})
    assert arguments(nn.Linear(1, 1), (1, 2)) == (((1, 2),), {})
    with pytest.raises(ValueError, match="entry 'other', which the forward of Two does not take; leave it out"):
        arguments(Two(), {"left": 1, "right": 2, "other": 3})


def test_trees_are_moved_and_counted() -> None:
    batch = {"a": [torch.ones(3, 2), Pair(torch.ones(3), torch.ones(3, 1))], "b": "text", "c": Output(torch.ones(3, 4))}
    moved = move_to(batch, "meta")
    assert {tensor.device.type for tensor in tensors_in(moved)} == {"meta"}
    assert isinstance(moved["a"][1], Pair)
    assert isinstance(moved["c"], Output)
    assert moved["b"] == "text"
    assert row_count(batch) == 3
    assert len(tensors_in(map_tensors(batch, torch.neg))) == 4
    with pytest.raises(ValueError, match="one row per example"):
        row_count({"a": torch.ones(3), "b": torch.ones(2)})
    with pytest.raises(ValueError, match="one row per example"):
        Predictor(Ensemble.of(Text()))({"input_ids": torch.ones(3, 2).long(), "attention_mask": torch.ones(2, 2)})


@pytest.mark.parametrize("squeezed", [False, True])
def test_one_logit_is_two_classes_everywhere(squeezed: bool, tmp_path: Path, call: Caller) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1), *([nn.Flatten(0)] if squeezed else []))
    x, y = torch.randn(30, 4), torch.arange(30) % 2
    positive = module(x).reshape(-1).sigmoid().detach()
    expected = torch.stack([1 - positive, positive], 1)
    predictor = Predictor(Ensemble.of(module), threshold=0.6)
    decision = predictor(x)
    torch.testing.assert_close(decision.probabilities, expected)
    assert torch.equal(decision.predicted, (positive > 0.5).long())
    assert torch.equal(decision.accepted, expected.amax(1) >= 0.6)
    predicted = Ensemble.of(module).predict(DataLoader(TensorDataset(x, y[:, None].float()), batch_size=7))
    torch.testing.assert_close(predicted.probabilities, expected)
    assert torch.equal(predicted.labels, y)
    assert MeanField(copy.deepcopy(module)).sample(3)(x).shape == (3, 30, 2)
    for labels in (y, y.float(), y[:, None].float()):
        terms = Objective(30, regularizer=losses.WeightedMMCE(), calibration_weight=0.5, ocm_weight=0.5)(
            module(x), labels, outlier_logits=module(x)
        )
        torch.testing.assert_close(terms["cross_entropy"], F.binary_cross_entropy(positive, y.float()))
        torch.testing.assert_close(terms["ocm"], -expected.log().mean())
        torch.testing.assert_close(terms["calibration"], losses.WeightedMMCE()(expected.log(), y))
    predictor.save(tmp_path / "saved")
    torch.testing.assert_close(calibrant.load(tmp_path / "saved", module)(x).probabilities, expected)
    told = json.loads(call("info", "predictor", tmp_path / "saved", "--json").out)
    assert told["outputs"].startswith("one logit, read as two classes")
    with pytest.raises(ValueError, match=r"0\.0 and 1\.0 for a network with one logit"):
        Objective(30)(module(x), torch.full((30,), 0.5))


def test_a_network_with_one_logit_is_exported_for_any_size_of_batch(tmp_path: Path) -> None:
    predictor, x = Predictor(Ensemble.of(nn.Linear(4, 1))), torch.randn(7, 4)
    (file,) = predictor.export(tmp_path / "decision.pt2", x[:3])
    probabilities = torch.export.load(file).module()(x)[2]
    torch.testing.assert_close(probabilities, predictor(x).probabilities)


def test_logits_of_one_column_are_two_classes_wherever_they_are_given() -> None:
    one, labels = torch.randn(50, 1), torch.arange(50) % 2
    two = torch.cat([torch.zeros(50, 1), one], 1)
    torch.testing.assert_close(
        Predictions.from_logits(one[None]).probabilities, Predictions.from_logits(two[None]).probabilities
    )
    temperature = [calibrators.TemperatureScaling().fit(logits, labels) for logits in (one, two)]
    assert temperature[0].state_dict() == temperature[1].state_dict()
    for score in (detectors.logits.energy, detectors.logits.msp):
        torch.testing.assert_close(score(one), score(two))
    torch.testing.assert_close(losses.confidence_minimization(one), losses.confidence_minimization(two))


def test_entries_in_another_order_are_joined_by_name() -> None:
    first, second = {"a": torch.zeros(1, 2), "b": torch.ones(1, 2)}, {"b": torch.ones(1, 2), "a": torch.zeros(1, 2)}
    assert torch.equal(join_rows([first, second])["a"], torch.zeros(2, 2))


def test_inputs_in_several_tensors_and_lists_of_rows() -> None:
    class Two(nn.Linear):
        def forward(self, left: Tensor, right: Tensor) -> Tensor:
            return super().forward(left + right)

    x = torch.randn(2, 3)
    module = Two(3, 2)
    predictor = Predictor(Ensemble.of(module))
    torch.testing.assert_close(predictor((x, x)).probabilities, module(x, x).softmax(-1))
    torch.testing.assert_close(predictor.predict([[[x, x], torch.zeros(2)]]).probabilities, module(x, x).softmax(-1))
    plain = nn.Linear(3, 2)
    rows = Predictor(Ensemble.of(plain))(list(x)).probabilities
    torch.testing.assert_close(rows, plain(x).softmax(-1))
    with pytest.raises(ValueError, match="example must be one tensor"):
        predictor.export("decision.pt2", {"left": x, "right": x})


def test_a_network_that_drops_the_batch_is_refused() -> None:
    class Squeezed(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x).squeeze()

    with pytest.raises(ValueError, match="squeeze the batch away"):
        Predictor(Ensemble.of(Squeezed(2, 3)))(torch.ones(1, 2))


def test_a_classifier_of_one_logit_is_trained() -> None:
    x = torch.randn(200, 4, generator=torch.Generator().manual_seed(0))
    y = (x[:, 0] > 0).long()
    classifier = CalibratedClassifier(nn.Linear(4, 1), epochs=5).fit(x, y)
    assert classifier.score(x, y) > 0.9
    assert classifier.predict_proba(x).shape == (200, 2)
    assert classifier.predictor_.ensemble.one_logit


@pytest.mark.parametrize("form", ["mapping", "loader", "data set"])
def test_a_classifier_is_trained_on_several_inputs_by_name(form: str) -> None:
    torch.manual_seed(0)
    batch = tokens(200, 6)
    labels = batch.pop("labels")
    rows = [{**{name: value[i] for name, value in batch.items()}, "label": int(labels[i])} for i in range(200)]
    X: Any = {"mapping": batch, "loader": DataLoader(rows, batch_size=50), "data set": Rows(rows)}[form]  # type: ignore[arg-type]
    overrides = ("fit.optimizer=adam", "fit.rate=0.05")
    classifier = CalibratedClassifier(Text(), epochs=8, batch_size=20, overrides=overrides)
    classifier.fit(X, labels if form == "mapping" else None)
    assert (torch.from_numpy(classifier.predict(batch)) == labels).float().mean() > 0.5
    decision = classifier.predictor_(batch)
    assert decision.trust is not None, "outliers are made from the tokens"
    changed = {**batch, "attention_mask": torch.ones_like(batch["attention_mask"])}
    assert not torch.equal(classifier.predictor_(changed).probabilities, decision.probabilities), "the mask is used"
    with pytest.raises(ValueError, match="was fitted on"):
        classifier.predict({name: value[:, :3] for name, value in batch.items()})


class Rows(torch.utils.data.Dataset[Any]):
    def __init__(self, rows: list[Any]) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Any:
        return self.rows[index]


def test_bayesian_schemes_with_outliers_take_several_inputs() -> None:
    torch.manual_seed(0)
    batch = tokens(60, 6)
    outliers = tokens(40, 6, seed=1)
    outliers.pop("labels")
    classifier = CalibratedClassifier(Text(), "CBNN-OCM", epochs=1, members=2).fit(batch, uncertainty=outliers)
    assert classifier.predict_proba({k: v for k, v in batch.items() if k != "labels"}).shape == (60, 3)


def test_heads_that_run_at_every_position() -> None:
    class Decoder(nn.Module):
        def __init__(self, pool: str) -> None:
            super().__init__()
            self.head, self.pool = nn.Linear(4, 3), pool

        def forward(self, x: Tensor) -> Tensor:
            scores: Tensor = self.head(x)
            return scores.mean(1) if self.pool == "mean" else scores[torch.arange(len(x)), [0, 2, 1]]

    x = torch.randn(3, 5, 4)
    for pool, expected in {"mean": x.mean(1), "one": x[torch.arange(3), [0, 2, 1]]}.items():
        features = Ensemble.of(Decoder(pool)).predict([x]).features
        assert features is not None
        torch.testing.assert_close(features[0], expected)


def test_an_adapted_layer_counts_as_one() -> None:
    class Adapted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.base_layer, self.down, self.up = nn.Linear(4, 3), nn.Linear(4, 1), nn.Linear(1, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.base_layer(x) + self.up(self.down(x))

    x = torch.randn(2, 4)
    for module in (Adapted(), nn.Sequential(nn.Linear(4, 4), Adapted())):
        with FeatureTap(module) as tap:
            module(x)
            taken = tap.take()
        assert taken is not None
        assert taken.shape == (2, 4)


def test_compiled_modules_are_taken_apart(tmp_path: Path) -> None:
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    compiled: nn.Module = torch.compile(plain)  # type: ignore[assignment]
    x, y = torch.randn(250, 4), torch.arange(250) % 2
    ensemble = Ensemble.of(compiled)
    features = ensemble.predict([x]).features
    assert features is not None
    assert features.shape == (1, 250, 8)
    assert list(MeanField(compiled).rho) == [name.replace(".", "/") for name in plain.state_dict()]
    assert as_posterior(torch.compile(MeanField(plain))).kl() is not None  # type: ignore[arg-type]
    assert len(Ensemble.stack([compiled, compiled])) == len(Ensemble.separate([compiled, plain])) == 2
    Predictor(ensemble).save(tmp_path / "saved")
    for module in (plain, compiled):
        loaded = calibrant.load(tmp_path / "saved", module)
        assert torch.equal(loaded(x).probabilities, Predictor(ensemble)(x).probabilities)
    classifier = CalibratedClassifier(compiled, epochs=1).fit(x, y)
    assert classifier.predict(x).shape == (250,)


@pytest.mark.parametrize("take", [Ensemble.of, Deterministic, MeanField, MCDropout, lambda m: Ensemble.stack([m])])
def test_lazy_modules_are_refused_in_one_sentence(take: Callable[[nn.Module], Any], tmp_path: Path) -> None:
    lazy = nn.Sequential(nn.LazyLinear(8), nn.Dropout(0.5), nn.LazyLinear(2))
    with pytest.raises(ValueError, match=r"lazy parameter 0\.weight: run it once on a batch"):
        take(lazy)
    lazy(torch.ones(2, 3))
    take(lazy)
    Predictor(Ensemble.of(lazy)).save(tmp_path / "saved")


def test_what_was_trained_is_kept_apart() -> None:
    def network() -> nn.Module:
        torch.manual_seed(0)
        module = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
        module[0].requires_grad_(False)
        return module

    trained, fresh = (MeanField(network(), prior_mean="init", init_std=0.1) for _ in range(2))
    with torch.no_grad():
        for parameter in (*trained.module[2].parameters(), *trained.rho.parameters()):
            parameter.add_(torch.randn_like(parameter))
    trained(torch.randn(5, 3))
    state = trained.trained_state()
    assert not any(name.startswith("module.0.") for name in state)
    fresh.load_trained_state(state)
    for name, value in trained.state_dict().items():
        assert torch.equal(fresh.state_dict()[name], value), name
    with pytest.raises(ValueError, match=r"does not fit this posterior: module\.1\.bias is not in the state"):
        fresh.load_trained_state({name: value for name, value in state.items() if name != "module.1.bias"})
