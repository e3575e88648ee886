"""Real text classifiers of `transformers`, with and without PEFT."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader
from transformer_models import bert, gpt2, lora, rows_of, texts

import calibrant
from calibrant import CalibratedClassifier, Ensemble, MeanField, Objective, Predictor, calibrators, detectors

pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing.*:FutureWarning")  # PEFT asks so


@pytest.mark.parametrize("make", [bert, gpt2])
def test_a_text_classifier_goes_the_whole_way(make: Any, tmp_path: Path) -> None:
    model, batch = make(), texts(40)
    with torch.no_grad():
        expected = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
    from transformers import BatchEncoding

    loader = DataLoader(rows_of(batch), batch_size=16)  # type: ignore[arg-type]
    ensemble = Ensemble.of(model)
    predicted = ensemble.predict(loader)
    torch.testing.assert_close(predicted.logits[0], expected)
    assert torch.equal(predicted.labels, batch["labels"])
    head = model.score if make is gpt2 else model.classifier
    assert predicted.features is not None
    assert predicted.features.shape == (1, 40, 16)
    torch.testing.assert_close(F.linear(predicted.features[0], head.weight, head.bias), expected)
    scores = detectors.OutlierScores(["knn", "energy"]).fit(predicted)
    temperature = calibrators.TemperatureScaling().fit(predicted.logits, predicted.labels)
    predictor = Predictor(ensemble, calibrator=temperature, outliers=scores, classes=["a", "b", "c"])
    decision = predictor(BatchEncoding(batch))
    assert torch.equal(decision.predicted, expected.argmax(1))
    assert torch.equal(predictor.predict(loader).predicted, decision.predicted)
    predictor.save(tmp_path / "saved")
    loaded = calibrant.load(tmp_path / "saved", make())
    torch.testing.assert_close(loaded(batch).probabilities, decision.probabilities)


def test_the_loss_in_a_plain_loop_is_that_of_the_model() -> None:
    batch = texts(12)
    posterior = MeanField(bert(hidden_dropout_prob=0.0), init_std=1e-4)
    terms = Objective(12)(posterior(batch), batch["labels"], kl=posterior.kl())
    own = posterior.module(**batch)
    torch.testing.assert_close(terms["cross_entropy"], own.loss, rtol=0.01, atol=0.01)
    terms["loss"].backward()
    assert all(rho.grad is not None for name, rho in posterior.rho.items() if "classifier" in name)
    ensemble = posterior.sample(4, seed=1)
    assert torch.equal(ensemble(batch), ensemble.stored()(batch))


def test_one_logit_of_a_transformer_is_two_classes() -> None:
    batch = texts(6)
    model = bert(labels=1)
    with torch.no_grad():
        z = model(batch["input_ids"], batch["attention_mask"]).logits[:, 0]
    torch.testing.assert_close(Predictor(Ensemble.of(model))(batch).probabilities[:, 1], z.sigmoid())


def test_the_estimator_trains_a_transformer() -> None:
    batch = texts(300)
    labels = batch.pop("labels")
    settings = ("fit.optimizer=adam", "fit.rate=0.01")
    classifier = CalibratedClassifier(bert(), epochs=6, batch_size=50, overrides=settings).fit(batch, labels)
    assert (torch.from_numpy(classifier.predict(batch)) == labels).float().mean() > 0.6
    assert classifier.trust(batch).shape == (300,)


def test_lora_weights_alone_are_bayesian_and_saved_with_the_adapter(tmp_path: Path) -> None:
    from peft import PeftModel
    from safetensors.torch import load_file, save_file

    def only_lora(name: str, owner: object) -> bool:
        return "lora_" in name

    batch, adapted = texts(30), lora()
    base = copy.deepcopy(adapted.get_base_model().bert.encoder.layer[0].attention.self.query.base_layer.weight)
    posterior = MeanField(adapted, bayesian=only_lora, prior_std=0.1, init_std=0.02)
    assert len(posterior.rho) == 4, "A and B of query and value"
    assert all("lora_" in name for name in posterior.rho)
    objective, optimizer = Objective(30), torch.optim.Adam(posterior.parameters(), 0.01)
    for _ in range(3):
        loss = objective(posterior(batch), batch["labels"], kl=posterior.kl())["loss"]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    query = adapted.get_base_model().bert.encoder.layer[0].attention.self.query
    assert torch.equal(query.base_layer.weight, base), "the base model stays as it is"
    posterior.eval()
    members = posterior.sample(5, seed=3)
    predicted = members.predict([batch])
    assert predicted.features is not None
    assert predicted.features.shape == (5, 30, 16)
    assert predicted.logits.std(0).max() > 0

    adapted.save_pretrained(tmp_path)
    save_file(posterior.trained_state(), tmp_path / "posterior.safetensors")
    assert (tmp_path / "posterior.safetensors").stat().st_size < 20_000, "only what was trained"

    again = PeftModel.from_pretrained(bert(), tmp_path, is_trainable=True)
    loaded = MeanField(again, bayesian=only_lora, prior_std=0.1)
    loaded.load_trained_state(load_file(tmp_path / "posterior.safetensors"))
    torch.testing.assert_close(loaded.eval().sample(5, seed=3).predict([batch]).logits, predicted.logits)

    Predictor(members).save(tmp_path / "predictor")
    whole = calibrant.load(tmp_path / "predictor", lora())
    torch.testing.assert_close(whole(batch).probabilities, Predictor(members)(batch).probabilities)


def test_features_of_an_adapted_head_are_what_enters_it() -> None:
    model = lora(target_modules=["classifier", "query"], task_type="FEATURE_EXTRACTION")
    features = Ensemble.of(model).predict([texts(5)]).features
    assert features is not None
    assert features.shape == (1, 5, 16)
