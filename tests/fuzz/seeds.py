"""Writes the corpus: one or two small whole files for every reader. Run as `python tests/fuzz/seeds.py`."""

from __future__ import annotations

import io
import json
import pickle
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from PIL import Image
from readers import CHECKPOINT, CORPUS, PREDICTORS, READERS, SAVED, SHAPE, STAGE_INPUTS
from safetensors.torch import save_file

from calibrant.backbones import build
from calibrant.calibrators import TemperatureScaling
from calibrant.calibrators.saved import save as save_calibrator
from calibrant.config.loading import load_settings
from calibrant.config.schemes import Scheme
from calibrant.data import ImageTransform
from calibrant.data.splits import Splits
from calibrant.deploy import Backbone, Predictor
from calibrant.deploy.frame_encoder import FrameEncoder
from calibrant.detectors import OutlierScores
from calibrant.evaluation import Evaluation
from calibrant.posteriors.mean_field import MeanField
from calibrant.predictions import Predictions
from calibrant.runs.stages import StoredStage
from calibrant.selective import SIRC, Certificate, Trust
from calibrant.studies.lab import Lab, write_compact
from calibrant.studies.plan import parse_plan
from calibrant.studies.records import write_record
from calibrant.training.checkpoints import CheckpointStore
from calibrant.training.sweeps.grid import Parameter, Sweep
from calibrant.training.sweeps.record import SweepResult, TrialRow

CERTIFICATE = Certificate(0.05, 0.1, 0.7, 0.1, "digits", 0.8, 760, 1000, 21, 70, 1000)
TABLE = {"confidence": [0.9, 0.6, 0.8, 0.7, 0.95, 0.55], "label": [0, 1, 1, 0, 2, 2], "predicted": [0, 1, 0, 0, 2, 1]}
CLASSES = {f"p_{c}": [0.7, 0.2, 0.1, 0.5] if c == 0 else [0.3, 0.8, 0.9, 0.5] for c in (0, 1)} | {"label": [0, 1, 1, 0]}


def write_tables(folder: Path) -> None:
    for separator, kind in ((",", "csv"), ("\t", "tsv")):
        for name, table in (("confidence", TABLE), ("classes", CLASSES)):
            rows = [separator.join(map(str, row)) for row in zip(*table.values())]
            (folder / f"audit-{kind}" / f"{name}.{kind}").write_text("\n".join([separator.join(table), *rows]) + "\n")
    pq.write_table(pa.table(TABLE), folder / "audit-parquet" / "confidence.parquet")
    lists = {"probabilities": [[0.7, 0.3], [0.2, 0.8]] * 2, "label": [0, 1] * 2}
    pq.write_table(pa.table(lists), folder / "audit-parquet" / "lists.parquet", compression="none")
    np.savez(folder / "audit-npz" / "confidence.npz", **TABLE)
    np.savez_compressed(folder / "audit-npz" / "logits.npz", logits=np.eye(3, dtype=np.float32), label=[0, 1, 1])


def write_data(folder: Path) -> None:
    (folder / "data-csv" / "rows.csv").write_text("a,b,label\n1,2.5,cat\n3,-1,dog\n0,0,cat\n")
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    np.savez(folder / "data-npz" / "rows.npz", x=x, y=[0, 1, 0, 1])
    vectors = pa.FixedSizeListArray.from_arrays(x.reshape(-1), 3)
    pq.write_table(pa.table({"x": vectors, "label": [0, 1, 0, 1]}), folder / "data-parquet" / "rows.parquet")
    image = Image.fromarray(np.arange(48, dtype=np.uint8).reshape(4, 4, 3))
    for suffix in ("bmp", "gif", "jpg", "png", "ppm", "tif", "webp"):
        image.save(folder / "image" / f"small.{suffix}")
    image.save(folder / "image" / "packed.tif", compression="tiff_adobe_deflate")
    encoded = [(folder / "image" / f"small.{suffix}").read_bytes() for suffix in ("png", "jpg")]
    table = pa.table({"image": [{"bytes": one, "path": "x"} for one in encoded], "label": [0, 1]})
    pq.write_table(table, folder / "data-parquet" / "images.parquet", compression="none")
    batch = {"data": np.arange(24, dtype=np.uint8).reshape(2, 12), "labels": [3, 7], b"batch_label": b"one of one"}
    for protocol in (0, 2, 4):
        (folder / "cifar-pickle" / f"{protocol}.bin").write_bytes(pickle.dumps(batch, protocol=protocol))
    for name, kind in (("ustar", tarfile.USTAR_FORMAT), ("pax", tarfile.PAX_FORMAT), ("gnu", tarfile.GNU_FORMAT)):
        with tarfile.open(folder / "archive" / f"{name}.tar", "w", format=kind) as archive:
            for path, more in (
                ("a.bin", {}),
                (f"{'long-' * 30}b.bin" if name != "ustar" else "b.bin", {"comment": "x"}),
            ):
                member = tarfile.TarInfo(path)
                member.size, member.pax_headers = 20, more
                archive.addfile(member, io.BytesIO(bytes(range(20))))
    for name, text in {"source": "folder:photos?size=8&color=gray", "table": "rows.csv?label=y", "scheme": "SCBNN-OCM",
                       "override": "data.ood=['embedded:near']"}.items():  # fmt: skip
        (folder / "spec" / f"{name}.txt").write_text(text)
    (folder / "transform" / "small.json").write_text(
        json.dumps(ImageTransform((8, 8), mean=(0.5,) * 3, std=(0.2,) * 3).to_dict())
    )
    Splits.draw(10, {"train": 6, "validation": None}, 0).save(folder / "splits" / "drawn.json")


def write_runs(folder: Path, scratch: Path) -> None:
    settings = load_settings("embedded", overrides=["data.train=200"])
    (folder / "settings" / "short.yaml").write_text("profile: embedded\nfit: {rate: 0.05, epochs: 2}\nseed: 3\n")
    (folder / "run-settings" / "all.yaml").write_text(settings.to_yaml())
    (folder / "run-record" / "run.json").write_text('{"schemes": ["FNN", "SCBNN-OCM"], "command": "calibrant train"}')
    stage = StoredStage(scratch, "fit-FNN", STAGE_INPUTS)
    stage.finish({"epochs": 3, "loss": 0.5}, {"model.safetensors": {"w": torch.zeros(2)}}, [{"epoch": 1, "loss": 0.5}])
    shutil.copy(stage.path / "result.json", folder / "stage-result")
    shutil.copy(stage.path / "metrics.csv", folder / "metrics-csv")
    CheckpointStore(scratch).save(CHECKPOINT)
    shutil.copy(scratch / "checkpoint-0.json", folder / "checkpoint")
    sweep = Sweep(settings, Scheme.parse("CBNN"), (Parameter.parse("lambda=1,2"),))
    rows = [TrialRow(name, {}, f"key of {name}") for name in ("baseline", "lambda=1", "lambda=2")]
    SweepResult(sweep, rows[0], tuple(rows[1:])).save(scratch)
    shutil.copy(scratch / "sweep.json", folder / "sweep")
    measures = {"ece": {"value": 0.1, "draws": [1, 2]}}
    record = {"system": "FNN", "seed": 0, "sizes": {"id": 3}, "at": [{"wanted": 1.0, "measures": measures}]}
    write_record(folder / "study-record" / "one.parquet", record)
    lab = Lab(settings, parse_plan({}), scratch)
    (folder / "study" / "plan.yaml").write_text(lab.plan_yaml())
    tried = [{"weight": weight, "accuracy": 0.9 - weight / 10, "ece": 0.1 * weight} for weight in (0.0, 0.5, 1.0)]
    choice = {"digest": "177a04ef9f22", "scheme": "CBNN", "seed": 0, "epochs": 4, "weight": 0.5, "validation": tried}
    write_compact(folder / "choice" / "CBNN.json", choice)


def write_models(folder: Path) -> None:
    shutil.copy(SAVED / "predictor.json", folder / "predictor-record")
    for part in ("ensemble", "outliers", "selector"):
        shutil.copy(SAVED / f"{part}.safetensors", folder / f"predictor-{part}")
    one = Predictions(*(np.array(values) for values in TABLE.values()))
    ordered = Predictions(one.confidence, np.array(TABLE["predicted"]), np.array(TABLE["label"]))
    Evaluation("FNN", 0, ordered.numpy(), {"near": ordered.numpy()}).save(folder / "evaluation" / "one.npz")
    (folder / "certificate" / "made.json").write_text(json.dumps(CERTIFICATE.to_dict()))
    logits = torch.tensor([[2.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.5, 0.0]])
    save_calibrator(TemperatureScaling().fit(logits, torch.tensor([0, 1, 1, 0])), folder / "calibrator" / "t.json")
    weights = build("mlp-4", (3,), 2).state_dict()
    save_file(weights, folder / "weights" / "mlp.safetensors")
    torch.save(weights, folder / "weights-torch" / "mlp.pt")
    torch.save(weights, folder / "weights-torch" / "older.pt", _use_new_zipfile_serialization=False)


def write_predictors(folder: Path) -> None:
    """With a calibrator, a transform and a certificate, and trust or SIRC as the selector."""
    generator = torch.Generator().manual_seed(0)
    x, y = torch.rand(120, *SHAPE, generator=generator), torch.randint(3, (120,), generator=generator)
    ensemble = MeanField(build("mlp-4", SHAPE, 3)).sample(2, seed=1).stored()
    known, unknown = ensemble.predict([(x, y)]), ensemble.predict([x + 2])
    outliers = OutlierScores(("energy", "knn"), max_points=20).fit(known.features, known.logits)
    scaling = TemperatureScaling().fit(known.logits, known.labels)
    calibrated, beyond = (scaling.calibrate(part.with_scores(outliers)) for part in (known, unknown))
    for name, selector in {"trust": Trust(0.2).fit(calibrated, beyond), "sirc": SIRC("knn").fit(calibrated)}.items():
        predictor = Predictor(
            ensemble,
            calibrator=scaling,
            outliers=outliers,
            selector=selector,
            certificate=CERTIFICATE,
            transform=ImageTransform((4, 4), mean=(0.5,), std=(0.2,), channels=1),
            backbone=Backbone("mlp-4", SHAPE, 3),
            classes=("a", "b", "c"),
        )
        predictor.save(PREDICTORS / name)
        shutil.copy(PREDICTORS / name / "predictor.json", folder / f"{name}-record")
        for part in ("selector", "calibrator", "ensemble"):
            if f"{name}-{part}" in READERS:
                shutil.copy(PREDICTORS / name / f"{part}.safetensors", folder / f"{name}-{part}")
    FrameEncoder({"age": None, "plan": ("free", "paid")}).save(folder / "columns")


def main() -> None:
    shutil.rmtree(CORPUS, ignore_errors=True)
    for name in READERS:
        (CORPUS / name).mkdir(parents=True)
    scratch = CORPUS / "scratch"
    scratch.mkdir()
    torch.manual_seed(0)
    write_tables(CORPUS)
    write_data(CORPUS)
    write_runs(CORPUS, scratch)
    write_models(CORPUS)
    write_predictors(CORPUS)
    shutil.rmtree(scratch)


if __name__ == "__main__":
    main()
