"""LoRA with a posterior: Bayesian over the adapter's weights alone, and trust in its answers.

    python examples/lora.py

A small transformer from a configuration is adapted by PEFT; adapter and posterior are saved and loaded together.
"""

import copy
import random
import sys
import tempfile

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import BertConfig, BertForSequenceClassification

from calibrant import MeanField, Objective, Predictor, Trust, calibrators, detectors

PHRASES = (
    ("play {} by {}", "put on {} from {}", "i want to hear {} of {}"),
    ("wake me at {} on {}", "set an alarm for {} {}", "ring at {} every {}"),
    ("send {} to {}", "transfer {} over to {}", "pay {} back to {}"),
)
STRANGE = ("ring {} back to {}", "transfer me at {} by {}", "play an alarm from {} {}", "put {} over every {}")
FILLERS = ("noon", "seven", "jazz", "monday", "rent", "blues", "anna", "friday", "rock", "tom", "dinner", "ten")
WORDS = sorted({word for group in (*PHRASES, STRANGE) for phrase in group for word in phrase.split()} | {*FILLERS})


def requests(count: int, seed: int, strange: bool = False) -> list[dict[str, Tensor]]:
    """Batches of tokens (B, 8) and labels; strange requests, whose labels mean nothing, are made of the same words."""
    rng, rows = random.Random(seed), []
    for _ in range(count):
        label = rng.randrange(len(PHRASES))
        text = rng.choice(STRANGE if strange else PHRASES[label]).format(rng.choice(FILLERS), rng.choice(FILLERS))
        tokens = [1 + WORDS.index(word) for word in text.split()]
        rows.append((tokens + [0] * (8 - len(tokens)), label))
    ids, labels = torch.tensor([row for row, _ in rows]), torch.tensor([label for _, label in rows])
    parts = zip(ids.split(32), (ids > 0).long().split(32), labels.split(32), strict=True)
    return [dict(zip(("input_ids", "attention_mask", "labels"), part, strict=True)) for part in parts]


def is_lora(name: str, owner: torch.nn.Module) -> bool:
    """Which parameters are Bayesian."""
    return "lora_" in name


def main(short: bool = False) -> None:
    """Adapt, save, load, decide."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    base = BertForSequenceClassification(BertConfig(vocab_size=len(WORDS) + 1, num_labels=len(PHRASES), **sizes))
    fresh = copy.deepcopy(base)
    adapted = get_peft_model(base, LoraConfig(task_type="SEQ_CLS", r=4, target_modules=["query", "value", "dense"]))
    posterior = MeanField(adapted, bayesian=is_lora, prior_std=0.3, init_std=0.02).train()
    count = sum(mean.numel() for name, mean in adapted.named_parameters() if "lora_" in name)
    print(f"{count} weights are Bayesian, beside {sum(p.numel() for p in fresh.parameters())} of the base model")

    train = requests(400 if short else 2000, seed=0)
    objective = Objective(num_data=sum(len(batch["labels"]) for batch in train))
    optimizer = torch.optim.Adam((p for p in posterior.parameters() if p.requires_grad), 0.01)
    for epoch in range(2 if short else 10):
        for batch in random.Random(epoch).sample(train, len(train)):
            terms = objective(posterior(batch), batch["labels"], kl=posterior.kl())
            optimizer.zero_grad()
            terms["loss"].backward()
            optimizer.step()
    print("last step:", ", ".join(f"{name} {float(term.detach()):.3f}" for name, term in terms.items()))

    with tempfile.TemporaryDirectory() as folder:
        adapted.save_pretrained(folder)
        save_file(posterior.trained_state(), f"{folder}/posterior.safetensors")
        again = PeftModel.from_pretrained(fresh, folder, is_trainable=True)
        loaded = MeanField(again, bayesian=is_lora, prior_std=0.3)
        loaded.load_trained_state(load_file(f"{folder}/posterior.safetensors"))
    ensemble = loaded.sample(10)
    test, strange = requests(500, seed=1), requests(500, seed=2, strange=True)
    same = torch.equal(ensemble.predict(test).probabilities, posterior.sample(10).predict(test).probabilities)
    print(f"the loaded posterior answers {'as before' if same else 'differently'}")

    seen, validation = ensemble.predict(train), ensemble.predict(requests(300, seed=3))
    outliers = ensemble.predict(requests(50, seed=4, strange=True))
    scores = detectors.OutlierScores(["knn", "energy", "gen"]).fit(seen)
    temperature = calibrators.TemperatureScaling().fit(validation.logits, validation.labels)
    trust = Trust(share=0.1).fit(*(temperature.calibrate(part.with_scores(scores)) for part in (validation, outliers)))
    trust.threshold(coverage=0.9)
    predictor = Predictor(ensemble, calibrator=temperature, outliers=scores, selector=trust)
    inside, outside = predictor.predict(test), predictor.predict(strange)
    right = inside.predicted == torch.cat([batch["labels"] for batch in test])
    print(f"accuracy {100 * right.double().mean():.1f} % of {len(inside)} requests")
    tau = temperature.calibrate(validation).confidence.quantile(0.1)  # the same part of the validation data
    accepted = {"confidence": (inside.confidence >= tau, outside.confidence >= tau)}
    for name, parts in {**accepted, "trust": (inside.accepted, outside.accepted)}.items():
        shares = [100 * float(part.double().mean()) for part in parts]
        print("{:10} accepts {:.1f} % of them, and {:.1f} % of strange ones".format(name, *shares))


if __name__ == "__main__":
    main(short="--short" in sys.argv)
