"""Tiny text classifiers of `transformers` from their configurations, and batches of tokens."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

WORDS, PADDING = 40, 0


def bert(labels: int = 3, **settings: Any) -> Any:
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    return BertForSequenceClassification(BertConfig(vocab_size=WORDS, **sizes, num_labels=labels, **settings)).eval()


def gpt2(labels: int = 3) -> Any:
    from transformers import GPT2Config, GPT2ForSequenceClassification

    torch.manual_seed(0)
    ends = {"bos_token_id": 1, "eos_token_id": 1, "pad_token_id": PADDING}
    sizes = {"vocab_size": WORDS, "n_positions": 16, "n_embd": 16, "n_layer": 1, "n_head": 2}
    config = GPT2Config(**sizes, num_labels=labels, **ends)
    return GPT2ForSequenceClassification(config).eval()


def lora(**settings: Any) -> Any:
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(0)
    chosen = {"task_type": "SEQ_CLS", "r": 2, "target_modules": ["query", "value"], **settings}
    return get_peft_model(bert(), LoraConfig(**chosen))


def texts(rows: int, length: int = 8, seed: int = 0) -> dict[str, Tensor]:
    """Tokens of different lengths with their class, which the first token tells."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(2, WORDS, (rows, length), generator=generator)
    mask = (torch.arange(length) < torch.randint(3, length + 1, (rows, 1), generator=generator)).long()
    return {"input_ids": torch.where(mask == 1, ids, PADDING), "attention_mask": mask, "labels": ids[:, 0] % 3}


def rows_of(batch: dict[str, Tensor]) -> list[dict[str, Any]]:
    return [{name: value[i] for name, value in batch.items()} for i in range(len(batch["labels"]))]
