"""The whole decision as one program: `torch.export` and ONNX."""

from __future__ import annotations

import copy
import importlib.util
import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from calibrant import InputError, checks
from calibrant.adapters.unpacking import as_mapping
from calibrant.data import ImageTransform
from calibrant.deploy.member_loop import MemberLoop, can_loop
from calibrant.files import leftovers
from calibrant.posteriors.members import Member
from calibrant.predictions import Decision

if TYPE_CHECKING:
    from calibrant.deploy.predictor import Predictor

OUTPUTS = ("predicted", "confidence", "probabilities", "accepted", "outlier_scores", "ood_score", "acceptance", "trust")
FORMATS = (".pt2", ".onnx")
logger = logging.getLogger(__name__)


class SeparateNetworks(nn.Module):
    """x (B, ...) -> logits (K, B, C), and what else is averaged (K, B, E): the members as networks of their own."""

    def __init__(self, predictor: Predictor) -> None:
        super().__init__()
        self.networks = nn.ModuleList(predictor.ensemble.member(k) for k in range(len(predictor.ensemble)))
        self.rule, self.layer = predictor.rule, predictor.feature_layer

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Logits and what else is averaged."""
        logits, extra = zip(*(self._run(k, network, x) for k, network in enumerate(self.networks)))
        return torch.stack(logits), torch.stack(extra)

    def _run(self, k: int, network: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
        logits, features = Member(network, feature_layer=self.layer)(x)
        return self.rule.member_outputs(k, logits, features)


class DecisionProgram(nn.Module):
    """x (B, ...) -> the tensors named in `outputs`: the members, then the rule.

    Of an `ImageTransform`, normalization is part of the program; x has the right size already.
    """

    def __init__(self, predictor: Predictor, example: Tensor, *, loop: bool) -> None:
        super().__init__()
        self.rule, self.threshold, own = predictor.rule, predictor.threshold, predictor.transform
        self.transform = own if isinstance(own, ImageTransform) else None
        self.members = MemberLoop(predictor, self._entering(example)) if loop else SeparateNetworks(predictor)
        selector = self.rule.selector
        known = {"outlier_scores": bool(self.rule.score_names), "trust": selector is not None and selector.probability}
        self.outputs = [name for name in OUTPUTS if known.get(name, True)]
        self.eval()

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """The outputs in their order."""
        logits, extra = self.members(self._entering(x))
        decision = self.rule.decide(logits, extra, self.threshold)
        return tuple(self._output(decision, name) for name in self.outputs)

    def _entering(self, x: Tensor) -> Tensor:
        return x if self.transform is None else self.transform.normalized(x)

    def _output(self, decision: Decision, name: str) -> Tensor:
        if name == "outlier_scores":
            return decision.predictions.columns(self.rule.score_names)
        value: Tensor = getattr(decision, name)
        return value


def export(predictor: Predictor, path: str | Path, example: Any) -> list[Path]:
    """Write the decision of `predictor` for use without it, and return the paths written.

    Normalization by an `ImageTransform` is in the program, resizing is not: its input are images of the right size, of
    the type of `example` (uint8, or floating point from 0 to 1). A transform that is another callable is not in it.

    Members that run one module are one loop over their tensors: how many there are hardly changes the time it takes.

    `path` ends in .pt2 (a `torch.export` program), in .onnx, or is a folder, which gets decision.pt2 and
    decision.onnx. `example` is a batch of inputs (B, ...); the size of the batch stays free. The outputs are named in
    `OUTPUTS`, outlier scores and trust where there are any; the ONNX file carries the threshold and the names of
    classes and scores as metadata.
    """
    target = Path(path)
    files = [target] if target.suffix in FORMATS else [target / f"decision{suffix}" for suffix in FORMATS]
    if any(file.suffix == ".onnx" for file in files):
        _check_onnx()
    if as_mapping(example) is not None:
        raise InputError("example must be one tensor: a predictor of several inputs by name cannot be exported")
    batch = checks.shaped("example", checks.tensor("example", example))
    folder = files[0].absolute().parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
        leftovers.clear(files[0])  # of a process that was killed while it exported
        with leftovers.temporary(files[0], folder=True) as scratch:
            _write(predictor, batch, [scratch / file.name for file in files])
            for written in sorted(scratch.iterdir()):
                written.replace(folder / written.name)
    except OSError as error:
        raise InputError(f"path {path} cannot be written: {error.strerror}") from error
    return files


@torch.no_grad()
def _write(predictor: Predictor, example: Tensor, files: list[Path]) -> None:
    own, transform = copy.deepcopy(predictor).cpu().requires_grad_(False), predictor.transform
    batch = (transform.shaped(example) if isinstance(transform, ImageTransform) else predictor.inputs(example)).cpu()
    batch = batch if len(batch) > 1 else torch.cat([batch, batch])  # a batch of one would be taken for a constant
    for loop in (True, False) if can_loop(own) else (False,):
        try:
            _write_program(own, batch, files, loop=loop)
            break
        except Exception as error:  # operations that cannot be in the body of a loop: the members follow each other
            if not loop:
                raise
            logger.debug("the members cannot be exported as a loop: %s", error)


def _write_program(predictor: Predictor, example: Tensor, files: list[Path], *, loop: bool) -> None:
    with _quiet():
        program = DecisionProgram(predictor, example, loop=loop)
        traced = torch.export.export(program, (example,), dynamic_shapes=({0: torch.export.Dim("batch")},))
    for file in files:
        if file.suffix == ".pt2":
            torch.export.save(traced, file)
        else:
            _write_onnx(program, traced, file)


def _write_onnx(program: DecisionProgram, traced: torch.export.ExportedProgram, file: Path) -> None:
    with _quiet():
        converted = torch.onnx.export(
            traced,
            dynamo=True,
            input_names=["x"],
            output_names=program.outputs,
            dynamic_shapes={"x": {0: "batch"}},
            verbose=False,
        )
    assert converted is not None
    _without_unused(converted.model)
    rule = program.rule
    facts: dict[str, Any] = {
        "classes": rule.classes,
        "outlier_scores": rule.score_names,
        "threshold": str(program.threshold),
    }
    facts["calibrator"] = rule.calibrated_by
    if program.transform is not None:
        facts["transform"] = program.transform.to_dict()
    converted.model.metadata_props.update({name: json.dumps(value) for name, value in facts.items()})
    converted.save(file)


def _without_unused(model: Any) -> None:
    """Remove constants that nothing reads, of which onnxruntime would warn."""
    from onnx_ir.passes.common import RemoveUnusedNodesPass

    RemoveUnusedNodesPass()(model)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without PyTorch's own deprecations, and its log that torchvision, which is not needed, is not there."""
    registration = logging.getLogger("torch.onnx._internal.exporter._registration")
    level = registration.level
    registration.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*isinstance.treespec, LeafSpec.*", category=FutureWarning)
            yield
    finally:
        registration.setLevel(level)


def _check_onnx() -> None:
    missing = [name for name in ("onnx", "onnxscript") if importlib.util.find_spec(name) is None]
    if missing:
        raise InputError(f"ONNX export needs {' and '.join(missing)}: pip install 'calibrant[onnx]', or export to .pt2")
