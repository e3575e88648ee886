"""`calibrant calibrate` and `--module`: a pretrained classifier and a folder of images, from the command line."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
import torch
from commands import TINY_OPTIONS, Caller, call, read_rows
from vision_networks import MEAN, STD, TorchvisionResNet, trained_state, write_noise, write_photos

__all__ = ["call"]
NUMBERS = ["--mean", ",".join(map(str, MEAN)), "--std", ",".join(map(str, STD))]
QUICK = ["-o", "report.resamples=20"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as a user has it: images, a checkpoint as DataParallel leaves it, and a module with the network."""
    root = tmp_path_factory.mktemp("user")
    write_photos(root / "photos")
    write_photos(root / "new", 12, side=16)
    write_noise(root / "others", 60)
    state = {f"module.{name}": value for name, value in trained_state(TorchvisionResNet).items()}
    torch.save({"state_dict": state, "epoch": 3}, root / "checkpoint.th")
    (root / "own_nets.py").write_text(
        "from vision_networks import TorchvisionResNet\n\n\ndef make(width=8, num_classes=3):\n"
        "    return TorchvisionResNet(num_classes, width)\n"
    )
    return root


@pytest.fixture
def here(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(place)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "own_nets", raising=False)
    return place


def arguments(out: str, module: str = "own_nets:make") -> list[str]:
    weights = ["--weights", "checkpoint.th"]
    return ["calibrate", module, *weights, "--data", "folder:photos", "--out", out, *NUMBERS, *QUICK]


def test_from_weights_and_images_to_a_predictor_and_back(here: Path, call: Caller) -> None:
    more = ["--outliers", "folder:others", "--max-error", "0.6", "--max-outliers", "0.9", "--delta", "0.2"]
    printed = call(*arguments("run"), *more, "--json")
    found = json.loads(printed.out)
    assert "1/5 fit temperature and trust" in printed.err
    assert found["accuracy"] > 0.6
    assert set(found["deployed"]["outliers_accepted"]) == {"others"}
    assert found["certificate"].startswith("With probability at least 80 %")
    assert {row["system"] for row in found["rows"]} == {"network", "network + temperature", "network + trust"}
    assert (here / "run" / "report.html").is_file()

    call("predict", "run", "folder:new", "--module", "own_nets:make", "--out", "answers.csv")
    rows = read_rows(here / "answers.csv")
    assert len(rows) == 12
    assert {row["predicted"] for row in rows} <= {"blue", "green", "red"}
    assert "trust" in rows[0]

    sentence = call.refused("predict", "run", "folder:new", "--out", "other.csv")
    assert "own_nets:make made it: add --module 'own_nets:make' to the command" in sentence
    assert not (here / "other.csv").exists()
    assert re.search(r"^network +own_nets:make$", call("info", "predictor", "run").out, re.MULTILINE)
    measured = call("evaluate", "run", "--data", "folder:new", "--module", "own_nets:make", "--json")
    assert {row["n_id"] for row in json.loads(measured.out)["rows"]} == {12}


def test_the_table_and_what_comes_next_are_printed(here: Path, call: Caller) -> None:
    printed = call(*arguments("plain", "own_nets:make?width=8&num_classes=3")).out
    assert "network + temperature" in printed
    assert "The predictor, at its own threshold of" in printed
    assert "calibrant predict plain INPUT --module 'own_nets:make?width=8&num_classes=3'" in printed


def test_class_names_from_a_file(here: Path, call: Caller) -> None:
    (here / "names.txt").write_text("blue\ngreen\n\nred\nviolet\n")
    wanted = ["--classes", "names.txt"]
    assert "module has 3 outputs, but the training data has 4 classes" in call.refused(*arguments("x"), *wanted)
    (here / "names.txt").write_text("blue\nblue\n")
    assert "must hold different names, one per line" in call.refused(*arguments("x"), *wanted)
    assert "--classes none.txt cannot be read: No such file" in call.refused(*arguments("x"), "--classes", "none.txt")


@pytest.mark.parametrize(
    ("module", "sentence"),
    [
        ("resnet20", "must read package.module:function"),
        ("no_such_nets:make", "there is no module no_such_nets; is it on PYTHONPATH, or in this folder?"),
        ("own_nets:missing", "module own_nets has no missing"),
        ("own_nets:make?depth=3", "module own_nets:make?depth=3 cannot be made"),
        ("builtins:dict", "dict returns a dict, no nn.Module"),
        ("own_nets:make?num_classes=5", "has fc.weight of shape (3, 8), but the network needs (5, 8)"),
    ],
)
def test_a_wrong_module_gets_a_sentence_and_nothing_is_written(
    here: Path, call: Caller, module: str, sentence: str
) -> None:
    assert sentence in call.refused(*arguments("wrong", module))
    assert not (here / "wrong").exists()


@pytest.mark.parametrize(
    ("module", "sentence"),
    [
        ("own_nets:make?num_classes=-1", "num_classes=-1 cannot be made: RuntimeError: Trying to create"),
        ("broken_nets:make", "module broken_nets cannot be imported: ZeroDivisionError: division by zero"),
        ("torn_nets:make", "module torn_nets cannot be imported: SyntaxError: "),
    ],
)
def test_code_of_ones_own_that_fails_is_no_bug_of_ours(here: Path, call: Caller, module: str, sentence: str) -> None:
    (here / "broken_nets.py").write_text("1 / 0\n")
    (here / "torn_nets.py").write_text("def make(\n")
    said = call.refused(*arguments("wrong", module))
    assert sentence in said
    assert not (here / "wrong").exists()
    assert "Traceback" in Path(said.rpartition("its traceback is in ")[2]).read_text()


def test_other_wrong_options_get_a_sentence(here: Path, call: Caller) -> None:
    assert "--mean must be numbers such as" in call.refused(*arguments("wrong"), "--mean", "a,b,c")
    assert "crop needs a size" in call.refused(*arguments("wrong"), "--crop", "0.8")
    assert "needs both rule.max_error and rule.max_outliers" in call.refused(*arguments("wrong"), "--max-error", "0.1")
    assert "weights none.pt do not exist" in call.refused(*arguments("wrong"), "--weights", "none.pt")
    (here / "full").mkdir()
    (here / "full" / "mine.txt").write_text("precious")
    assert "full is not empty; choose another output folder" in call.refused(*arguments("full"))


def test_the_size_of_a_training_applies_to_a_folder_at_prediction(here: Path, call: Caller) -> None:
    tiny = [*TINY_OPTIONS, "-o", "data.train=null", "-o", "data.validation=0.3", "-o", "rule.name=confidence"]
    call("train", "--data", "folder:photos?size=6&color=gray", "--scheme", "FNN", *tiny, "--out", "small")
    call("predict", "small", "folder:new", "--out", "small.csv")  # 16 x 16 and in color
    assert len(read_rows(here / "small.csv")) == 12
    call("predict", "small", "folder:new?size=6&color=gray", "--out", "said.csv")
    assert (here / "small.csv").read_text() == (here / "said.csv").read_text()
    assert "size [6, 6]" in call("info", "predictor", "small").out
