"""Everything that reads a file from outside, by name: what is fuzzed, and what is given damaged files."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from calibrant.audit import audit
from calibrant.backbones import build
from calibrant.backbones.weights import load_weights
from calibrant.calibrators import saved as calibrator_file
from calibrant.cli import errors
from calibrant.config.loading import load_settings, read_yaml
from calibrant.config.schemes import Scheme
from calibrant.data.archives import read_files
from calibrant.data.image_transform import ImageTransform
from calibrant.data.sources import Spec, open_source
from calibrant.data.splits import Splits
from calibrant.data.unpickle import read_arrays
from calibrant.deploy.frame_encoder import COLUMNS, FrameEncoder
from calibrant.deploy.saving import describe, load
from calibrant.evaluation import Evaluation, Resampling
from calibrant.files import RunError, checksum, read_csv, read_json
from calibrant.runs.run import Run
from calibrant.runs.stages import StoredStage
from calibrant.selective import Certificate
from calibrant.studies.lab import Lab
from calibrant.studies.plan import parse_plan
from calibrant.studies.records import read_record
from calibrant.training.checkpoints import Checkpoint, CheckpointStore
from calibrant.training.sweeps.record import SweepResult

CORPUS = Path(__file__).parent / "corpus"
SAVED = Path(__file__).parents[1] / "deploy" / "predictor_of_0.1.0"
PREDICTORS = Path(__file__).parent / "predictors"  # with a calibrator, a transform and a certificate
SHAPE = (1, 4, 4)
SENTENCES = (errors.USERS, RunError)
"""The errors that are ours: one sentence for the user. Any other error is a fault of the reader."""
STAGE_INPUTS = {"rate": 0.1}
CHECKPOINT = Checkpoint({"w": torch.zeros(2)}, {"epoch": 1, "step": 20})


@dataclass(frozen=True)
class Reader:
    """Reads a file that ends in `suffix`; its folder holds nothing else and may be written to."""

    name: str
    suffix: str
    read: Callable[[Path], Any]

    @property
    def seeds(self) -> list[Path]:
        """Whole files, which are read without complaint."""
        return sorted((CORPUS / self.name).iterdir())


def _audit(path: Path) -> Any:
    return audit(path, resampling=Resampling(resamples=5)).rows


def _predictor_record(saved: Path) -> Callable[[Path], Any]:
    """A hostile record beside whole tensors, whose own checksum is right."""

    def read(path: Path) -> Any:
        folder = _beside(path, saved)
        _put(path, folder / "predictor.json")
        _reseal(folder / "predictor.json", "checksum")
        return _used(folder)

    return read


def _used(folder: Path) -> Any:
    """What is in a predictor, and, if it takes images of `SHAPE`, what it says of two of them."""
    about, predictor = describe(folder), load(folder)
    fits = predictor.backbone is not None and predictor.backbone.shape == SHAPE
    return about, predictor(torch.rand(2, *SHAPE)) if fits else predictor


def _reseal(path: Path, entry: str) -> None:
    """Make the checksum that a JSON object has under `entry` right, if it is an object."""
    with contextlib.suppress(ValueError, RecursionError, IsADirectoryError):
        record = json.loads(path.read_bytes())
        if isinstance(record, dict):
            record.pop(entry, None)
            path.write_text(json.dumps({**record, entry: checksum(record)}))


def _predictor_tensors(part: str, saved: Path = SAVED) -> Callable[[Path], Any]:
    """Hostile tensors, whose checksums are right."""

    def read(path: Path) -> Any:
        folder = _beside(path, saved)
        _put(path, folder / f"{part}.safetensors")
        record = json.loads((saved / "predictor.json").read_bytes())
        if path.is_file():
            record["files"][f"{part}.safetensors"] = hashlib.sha256(path.read_bytes()).hexdigest()
        del record["checksum"]
        (folder / "predictor.json").write_text(json.dumps({**record, "checksum": checksum(record)}))
        return _used(folder)

    return read


def _put(path: Path, target: Path) -> None:
    """A copy of `path`, which may be a folder where a file belongs."""
    target.unlink(missing_ok=True) if not target.is_dir() else shutil.rmtree(target)
    shutil.copytree(path, target) if path.is_dir() else shutil.copy(path, target)


def _beside(path: Path, whole: Path) -> Path:
    """A copy of the folder `whole` beside `path`."""
    folder = path.parent / whole.name
    shutil.rmtree(folder, ignore_errors=True)
    return Path(shutil.copytree(whole, folder))


def _stage(path: Path) -> Any:
    stage = StoredStage(path.parent / "stages", "fit-FNN", STAGE_INPUTS)
    stage.path.mkdir(parents=True, exist_ok=True)
    _put(path, stage.path / "result.json")
    return stage.result, stage.tensors("missing.safetensors") if "missing" in stage.result else None


def _run(name: str) -> Callable[[Path], Any]:
    def read(path: Path) -> Any:
        folder = path.parent / "run"
        folder.mkdir(exist_ok=True)
        (folder / "run.json").write_text('{"schemes": ["FNN"], "command": "calibrant train"}')
        _put(path, folder / name)
        run = Run(folder)
        return run.schemes, run.products, run.resume_command, run.settings if name == "settings.yaml" else None

    return read


def _checkpoint(path: Path) -> Any:
    """A hostile record beside whole tensors, whose own checksum is right."""
    folder = path.parent / "checkpoints"
    shutil.rmtree(folder, ignore_errors=True)
    CheckpointStore(folder).save(CHECKPOINT)
    _put(path, folder / "checkpoint-0.json")
    _reseal(folder / "checkpoint-0.json", "self")
    return CheckpointStore(folder).load()


def _sweep(path: Path) -> Any:
    folder = path.parent / "sweep"
    folder.mkdir(exist_ok=True)
    _put(path, folder / "sweep.json")
    return SweepResult.load(folder).winner


def _images(path: Path) -> Any:
    folder = path.parent / "images" / "class"
    folder.mkdir(parents=True, exist_ok=True)
    _put(path, folder / f"image{path.suffix}")
    return open_source(f"folder:{folder.parent}?size=8").inputs


def _spec(path: Path) -> Any:
    """A source, a scheme and an override, as one would write them on the command line."""
    text = path.read_bytes().decode("utf-8", "replace")
    found: list[Any] = []
    calls: list[Callable[[], Any]] = [
        lambda: Spec.parse(text).source(),
        lambda: Scheme.parse(text),
        lambda: load_settings(overrides=[text]),
    ]
    for call in calls:
        with contextlib.suppress(*SENTENCES):
            found.append(call())
    return found


def _choice(path: Path) -> Any:
    lab = Lab(load_settings(), parse_plan({}), path.parent / "results")
    lab.choice_path("CBNN").parent.mkdir(parents=True, exist_ok=True)
    _put(path, lab.choice_path("CBNN"))
    return lab.chosen("CBNN")


def _columns(path: Path) -> Any:
    folder = path.parent / "columns"
    folder.mkdir(exist_ok=True)
    _put(path, folder / COLUMNS)
    return FrameEncoder.load(folder).names


def _weights(path: Path) -> Any:
    return load_weights(build("mlp-4", (3,), 2), path)


READERS = {
    reader.name: reader
    for reader in (
        Reader("audit-csv", ".csv", _audit),
        Reader("audit-tsv", ".tsv", _audit),
        Reader("audit-parquet", ".parquet", _audit),
        Reader("audit-npz", ".npz", _audit),
        Reader("settings", ".yaml", lambda path: load_settings(file=path)),
        Reader("run-record", ".json", _run("run.json")),
        Reader("run-settings", ".yaml", _run("settings.yaml")),
        Reader("stage-result", ".json", _stage),
        Reader("checkpoint", ".json", _checkpoint),
        Reader("metrics-csv", ".csv", read_csv),
        Reader("predictor-record", ".json", _predictor_record(SAVED)),
        Reader("trust-record", ".json", _predictor_record(PREDICTORS / "trust")),
        Reader("trust-selector", ".safetensors", _predictor_tensors("selector", PREDICTORS / "trust")),
        Reader("trust-calibrator", ".safetensors", _predictor_tensors("calibrator", PREDICTORS / "trust")),
        Reader("trust-ensemble", ".safetensors", _predictor_tensors("ensemble", PREDICTORS / "trust")),
        Reader("sirc-record", ".json", _predictor_record(PREDICTORS / "sirc")),
        Reader("sirc-selector", ".safetensors", _predictor_tensors("selector", PREDICTORS / "sirc")),
        Reader("predictor-ensemble", ".safetensors", _predictor_tensors("ensemble")),
        Reader("predictor-outliers", ".safetensors", _predictor_tensors("outliers")),
        Reader("predictor-selector", ".safetensors", _predictor_tensors("selector")),
        Reader("evaluation", ".npz", Evaluation.load),
        Reader("cifar-pickle", ".bin", lambda path: read_arrays(path.read_bytes(), path.name)),
        Reader("archive", ".tar", lambda path: read_files(path, ("a.bin",))),
        Reader("image", ".png", _images),
        Reader("data-csv", ".csv", lambda path: open_source(str(path)).inputs),
        Reader("data-npz", ".npz", lambda path: open_source(str(path)).inputs),
        Reader("data-parquet", ".parquet", lambda path: open_source(str(path)).inputs),
        Reader("spec", ".txt", _spec),
        Reader("certificate", ".json", lambda path: Certificate.from_dict(read_json(path))),
        Reader("calibrator", ".json", calibrator_file.load),
        Reader("transform", ".json", lambda path: ImageTransform.from_dict(read_json(path))),
        Reader("splits", ".json", Splits.load),
        Reader("sweep", ".json", _sweep),
        Reader("study-record", ".parquet", read_record),
        Reader("study", ".yaml", lambda path: parse_plan(read_yaml(path, "study"))),
        Reader("choice", ".json", _choice),
        Reader("columns", ".json", _columns),
        Reader("weights", ".safetensors", _weights),
        Reader("weights-torch", ".pt", _weights),
    )
}
torch.set_num_threads(1)
