"""The objective in the real `transformers.Trainer`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader
from transformer_models import bert, rows_of, texts

from calibrant import MeanField, Objective, losses
from calibrant.losses.trainer import ObjectiveLoss
from calibrant.posteriors import Deterministic, Posterior

pytest.importorskip("transformers")


def trainer(model: nn.Module, folder: Path, objective: Objective, **more: Any) -> Any:
    from transformers import Trainer, TrainingArguments

    class Mine(ObjectiveLoss, Trainer):
        pass

    settings: dict[str, Any] = {"max_steps": 4, "per_device_train_batch_size": 8, "logging_steps": 2}
    settings |= {"report_to": [], "save_strategy": "no", "learning_rate": 1e-2, "disable_tqdm": True, "use_cpu": True}
    settings |= {"remove_unused_columns": False, "label_names": ["labels"], "dataloader_pin_memory": False}
    arguments = TrainingArguments(str(folder), **settings, **more.pop("arguments", {}))
    data = rows_of(texts(32))
    return Mine(model, arguments, train_dataset=data, eval_dataset=data, objective=objective, **more)


def test_the_terms_are_trained_and_logged(tmp_path: Path) -> None:
    posterior = MeanField(bert(), init_std=0.01)
    outliers = DataLoader([{"input_ids": row["input_ids"]} for row in rows_of(texts(8, 5, seed=1))], batch_size=4)  # type: ignore[arg-type]
    objective = Objective(32, regularizer=losses.WeightedMMCE(), calibration_weight=0.5, ocm_weight=0.5)
    training = trainer(posterior, tmp_path, objective, outliers=outliers)
    before = {name: value.clone() for name, value in posterior.state_dict().items()}
    training.train()
    logged = [row for row in training.state.log_history if "train_kl" in row]
    assert len(logged) == 2
    for row in logged:
        weights = {"cross_entropy": 1, "calibration": 0.5, "kl": objective.beta / 32, "ocm": 0.5}
        total = sum(weight * row[f"train_{name}"] for name, weight in weights.items())
        assert row["train_loss"] == pytest.approx(total, rel=1e-4)
        assert row["loss"] == pytest.approx(row["train_loss"], rel=1e-3)
    moved = [name for name, value in posterior.state_dict().items() if not torch.equal(value, before[name])]
    assert any(name.startswith("rho.") for name in moved)
    assert any(name.startswith("module.") for name in moved)
    evaluated = training.evaluate()
    assert 0 < evaluated["eval_loss"] < 5
    assert training.predict(training.eval_dataset).predictions.shape == (32, 3)


def test_gradients_that_are_accumulated_are_those_of_the_mean(tmp_path: Path) -> None:
    grown: list[torch.Tensor] = []
    for size, steps in ((16, 1), (8, 2)):
        arguments = {"gradient_accumulation_steps": steps, "optim": "sgd", "lr_scheduler_type": "constant"}
        model = bert(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
        training = trainer(model, tmp_path, Objective(32), arguments=arguments)
        training.args.max_steps, training.args.per_device_train_batch_size = 1, size
        training._train_batch_size = size
        training.args.max_grad_norm = 0.0
        training.train()
        grown.append(model.classifier.weight.detach().clone())
    torch.testing.assert_close(*grown)


def test_a_posterior_with_hooks_is_refused(tmp_path: Path) -> None:
    class Hooked(Deterministic):
        def after_epoch(self, end: Any) -> None: ...

    assert issubclass(Hooked, Posterior)
    with pytest.raises(ValueError, match="Hooked has hooks, which Trainer does not call"):
        trainer(Hooked(bert()), tmp_path, Objective(32))


class Kept:
    """What `ObjectiveLoss` needs of a Trainer: it has a model, and keeps what it is told to log."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.rows: list[dict[str, float]] = []

    def log(self, logs: dict[str, float]) -> None:
        self.rows.append(dict(logs))


def test_what_is_logged_between_two_means_neither_has_the_terms_nor_ends_them() -> None:
    class Mine(ObjectiveLoss, Kept):
        pass

    model = nn.Linear(3, 2)
    batches = [(torch.randn(n, 3), torch.arange(n) % 2) for n in (4, 6)]
    means = [float(F.cross_entropy(model(x), y).detach()) for x, y in batches]
    training = Mine(model, objective=Objective(10))
    training.compute_loss(model, batches[0])
    training.log({"eval_loss": 0.5})
    training.compute_loss(model, batches[1])
    training.log({"loss": 1.0})
    training.log({"loss": 2.0})
    between, terms, later = training.rows
    assert between == {"eval_loss": 0.5}
    assert terms["train_cross_entropy"] == pytest.approx(sum(means) / 2, rel=1e-6)
    assert later == {"loss": 2.0}
