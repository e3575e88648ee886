"""The objective in a real LightningModule."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from calibrant import MeanField, Objective, losses
from calibrant.losses.lightning import ObjectiveStep
from calibrant.posteriors import SWAG, Deterministic, EpochEnd, Laplace

pytest.importorskip("lightning")
pytestmark = pytest.mark.filterwarnings("ignore:.*does not have many workers.*", "ignore:.*LeafSpec.*")
GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(48, 4, generator=GENERATOR)
LOADER = DataLoader(TensorDataset(X, (X[:, 0] > 0).long()), batch_size=16)
OUTLIERS = DataLoader(TensorDataset(5 * torch.randn(20, 4, generator=GENERATOR)), batch_size=10)


def fit(network: nn.Module, objective: Objective, loaders: Any, folder: Path, epochs: int = 2) -> Any:
    from lightning import LightningModule, Trainer
    from lightning.pytorch.loggers import CSVLogger

    class Classifier(ObjectiveStep, LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.network, self.objective = network, objective

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), 0.1)

    quiet: dict[str, Any] = {"enable_progress_bar": False, "enable_model_summary": False, "log_every_n_steps": 1}
    quiet |= {"enable_checkpointing": False, "default_root_dir": folder, "accelerator": "cpu"}
    trainer = Trainer(max_epochs=epochs, logger=CSVLogger(folder), **quiet)
    trainer.fit(Classifier(), loaders)
    return trainer


def test_the_terms_are_trained_and_logged(tmp_path: Path) -> None:
    posterior = MeanField(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), init_std=0.01)
    objective = Objective(48, regularizer=losses.WeightedMMCE(), calibration_weight=0.5, ocm_weight=0.5)
    before = [value.detach().clone() for value in posterior.parameters()]
    trainer = fit(posterior, objective, {"train": LOADER, "outliers": OUTLIERS}, tmp_path)
    logged = {name: float(value) for name, value in trainer.logged_metrics.items()}
    weights = {"cross_entropy": 1, "calibration": 0.5, "kl": objective.beta / 48, "ocm": 0.5}
    total = sum(weight * logged[f"train_{name}"] for name, weight in weights.items())
    assert logged["train_loss"] == pytest.approx(total, rel=1e-4)
    assert all(not torch.equal(a, b) for a, b in zip(before, posterior.parameters()))
    assert "train_kl" in (Path(trainer.logger.log_dir) / "metrics.csv").read_text()


def test_an_ordinary_network_and_the_hooks_of_a_posterior(tmp_path: Path) -> None:
    class Counting(Deterministic):
        steps = 0
        rows = ()

        def after_step(self) -> None:
            self.steps += 1

        def after_epoch(self, end: EpochEnd) -> None:
            self.rows = (*self.rows, (end.epoch, end.epochs, sum(len(labels) for _, labels in end.batches())))

    fit(nn.Linear(4, 2), Objective(48), LOADER, tmp_path, epochs=1)
    counting = Counting(nn.Linear(4, 2))
    fit(counting, Objective(48), LOADER, tmp_path)
    assert counting.steps == 6
    assert counting.rows == ((1, 2, 48), (2, 2, 48))


def test_swag_collects_and_laplace_is_fitted(tmp_path: Path) -> None:
    swag = SWAG(nn.Linear(4, 2), start=0.0, iterates=3)
    fit(swag, Objective(48), LOADER, tmp_path)
    assert swag.progress.tolist() == [6, 6, 3]
    laplace = Laplace(nn.Linear(4, 2))
    fit(laplace, Objective(48), LOADER, tmp_path)
    assert float(laplace.std.min()) > 0
