"""Saved predictors: a folder of safetensors and JSON, read without running anything from it.

FOLDER/predictor.json            format version, architecture, settings, checksums of the files and of itself
FOLDER/ensemble.safetensors      the network: shared.NAME, and members.NAME with the K members first
FOLDER/calibrator.safetensors    the calibrator, if there is one
FOLDER/outliers.safetensors      the fitted outlier scores, if there are any
FOLDER/selector.safetensors      the selector, if there is one
"""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from calibrant import InputError, __version__
from calibrant.adapters.compiled import uncompiled, usable
from calibrant.backbones.normalization import Normalize
from calibrant.calibrators import Calibrator
from calibrant.calibrators.base import NONE
from calibrant.deploy.backbone import Backbone
from calibrant.deploy.plugin_needs import check_plugins, plugin_needs
from calibrant.deploy.predictor import Predictor
from calibrant.deploy.saved_transform import saved_transform, transform_record
from calibrant.detectors import OutlierScores
from calibrant.files import RunError, checksum, leftovers, read_json, read_tensors, whole, write_json, write_tensors
from calibrant.posteriors.dropout_layers import mask_names, with_masks
from calibrant.posteriors.ensemble import Ensemble
from calibrant.posteriors.members import SeparateMembers, StoredMembers
from calibrant.selective import SIRC, BaseSelector, Certificate, ConfidenceSelector, Selector, Trust
from calibrant.slots import recorded, required

# 3 has a transform and 2 a calibrator, which earlier versions would overlook; 1 has neither.
FORMAT, VERSION = "calibrant.predictor", 3
RECORD = "predictor.json"
# What values of wrong types and sizes lead to.
_WRONG = (KeyError, TypeError, AttributeError, IndexError, ArithmeticError, RuntimeError, MemoryError, ValueError)
_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
ONE_LOGIT = "one logit, read as two classes: the probability of the second is its sigmoid"
SELECTORS: dict[str, type[BaseSelector]] = {kind.__name__: kind for kind in (Selector, ConfidenceSelector, Trust, SIRC)}


def save(predictor: Predictor, folder: str | Path) -> Path:
    """Write `predictor` to `folder`, whole or not at all; an older predictor there is replaced, nothing else is.

    The members are stored in full, so that they are the same on every machine and version.
    """
    target = Path(folder)
    _check_target(target)
    record = _record(predictor)
    try:
        with whole(target, folder=True) as temporary:
            files = {name: write_tensors(temporary / name, tensors) for name, tensors in _tensors(predictor).items()}
            content = {**record, **plugin_needs(record), "files": files}
            write_json(temporary / RECORD, {**content, "checksum": checksum(content)})
    except (OSError, RunError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InputError(f"folder {target} cannot be written: {reason}") from error
    return target


def load(
    folder: str | Path,
    module: nn.Module | Sequence[nn.Module] | None = None,
    device: torch.device | str | None = None,
    *,
    transform: Callable[[Any], Any] | None = None,
) -> Predictor:
    """The predictor saved in `folder`, on `device`.

    `module` is an instance of the network it was saved with, needed where that is not one of `calibrant.backbones`;
    its weights are not used, and it is not changed. Where the members are networks of their own
    (`Ensemble.separate`), it is the list of them. `transform` takes the place of the saved one; it must be given where
    that was a function of your own. No code is read from the folder.
    """
    path = Path(folder)
    record = _read_record(path)
    if module is None and record["backbone"] is None:
        made = record.get("factory")
        hint = f"; {made} made it: add --module '{made}' to the command, or pass module=" if made else ""
        raise InputError(
            f"module must be given: {path} holds an architecture of your own, of which only the weights are saved{hint}"
        )
    with _refusing(path):
        network = module if module is None or isinstance(module, nn.Module) else nn.ModuleList(map(uncompiled, module))
        predictor = _rebuild(path, record, network, transform)
    return predictor if device is None else predictor.to(device)


@contextlib.contextmanager
def _refusing(path: Path) -> Iterator[None]:
    """Answer a record of the predictor in `path` whose content is damaged or wrong in one sentence."""
    try:
        yield
    except RunError as error:
        raise InputError(f"{path} is damaged: {str(error).partition(';')[0]}; copy or save it again") from None
    except InputError:
        raise
    except _WRONG as error:
        raise InputError(
            f"{path} is not a predictor of this format: its {RECORD} has wrong content ({error})"
        ) from None


def describe(folder: str | Path) -> dict[str, Any]:
    """What is in the predictor saved in `folder`, in plain values, without its networks: for `calibrant info`."""
    path = Path(folder)
    record = _read_record(path)
    with _refusing(path):
        check_plugins(record)
        entry, calibrator = record.get("calibrator"), _calibrator(path, record)
        selector, outliers = record["selector"] or {}, record["outliers"] or {}
        about: dict[str, Any] = {"calibrator": NONE if entry is None else str(entry["name"])}
        about |= {} if calibrator is None else calibrator.facts()
        about |= {"selector": selector.get("kind"), "threshold": _threshold(path, record), **_about(selector)}
        about |= {"ood_score": record["ood_score"]}
        if record.get("certificate") is not None:
            about["certificate"] = Certificate.from_dict(record["certificate"]).sentence()
        about |= {"outlier scores": list(outliers.get("scores", ())), "members": record["members"]}
        about |= {"outputs": ONE_LOGIT} if record.get("one_logit") else {}
        network = (record["backbone"] or {}).get("name") or record.get("factory") or "your own"
        if record.get("transform") is not None:
            about["transform"] = ", ".join(f"{name} {value}" for name, value in record["transform"].items() if value)
        return {"network": network, "classes": record["classes"], **about, "made by calibrant": record["calibrant"]}


def certificate_of(folder: str | Path) -> Certificate | None:
    """What was certified of the predictor saved in `folder`."""
    return _certificate(_read_record(Path(folder)))


def _threshold(folder: Path, record: Mapping[str, Any]) -> Any:
    """The threshold in force: the predictor's own, or the selector's."""
    if record["threshold"] is not None or record["selector"] is None:
        return record["threshold"]
    return float(_read_part(folder, record, "selector")["tau"])


def _about(selector: Mapping[str, Any]) -> dict[str, Any]:
    shown = {"objective": "objective", "share": "assumed share of outliers"}
    return {title: selector[name] for name, title in shown.items() if name in selector}


def _record(predictor: Predictor) -> dict[str, Any]:
    """Everything but the tensors."""
    selector, own = predictor.selector, predictor.rule.own_threshold
    if selector is not None and type(selector) not in SELECTORS.values():
        raise InputError(f"selector is a {type(selector).__name__}; only {', '.join(SELECTORS)} can be saved")
    network, normalized = _network(predictor.ensemble.module)
    if predictor.backbone is not None and _shapes(network) != _shapes(predictor.backbone.build()):
        raise InputError(f"backbone {predictor.backbone.name!r} is not the network of the ensemble: its weights differ")
    return {
        "format": FORMAT,
        "version": VERSION if predictor.transform is not None else 1 if predictor.calibrator is None else 2,
        "calibrant": __version__,
        "backbone": None if predictor.backbone is None else asdict(predictor.backbone),
        "normalized": normalized,
        "members": len(predictor.ensemble),
        **({} if predictor.ensemble.shared is not None else {"separate": True}),
        **({"one_logit": True} if predictor.ensemble.one_logit else {}),
        "feature_layer": predictor.feature_layer,
        "classes": predictor.classes,
        "threshold": own if own is None or math.isfinite(own) else str(own),
        "ood_score": predictor.rule.ood_score,
        "calibrator": None if predictor.calibrator is None else _calibrator_record(predictor.calibrator),
        "outliers": None if predictor.outliers is None else predictor.outliers.config(),
        "selector": None if selector is None else {"kind": type(selector).__name__, **selector.config()},
        **({} if predictor.certificate is None else {"certificate": predictor.certificate.to_dict()}),
        **({} if predictor.transform is None else {"transform": transform_record(predictor.transform)}),
        **({} if predictor.factory is None else {"factory": predictor.factory}),
    }


def _tensors(predictor: Predictor) -> dict[str, dict[str, Tensor]]:
    """The tensors by file and name."""
    ensemble = predictor.ensemble
    stacked = ensemble.stacked()
    shared = {name: value for name, value in ensemble.module.state_dict().items() if name not in stacked}
    named = [(f"members.{name}", value) for name, value in stacked.items()]
    files = {"ensemble": dict(named + [(f"shared.{name}", value) for name, value in shared.items()])}
    parts = {"calibrator": predictor.calibrator, "outliers": predictor.outliers, "selector": predictor.selector}
    for name, part in parts.items():
        if part is not None:
            files[name] = part.state_dict()
    return {f"{name}.safetensors": tensors for name, tensors in files.items()}


def _read_record(folder: Path) -> dict[str, Any]:
    """The checked content of the JSON."""
    leftovers.clear(folder)  # a kill while it was replaced may have left it under another name
    if not (folder / RECORD).is_file():
        raise InputError(f"{folder} is not a saved predictor: it has no {RECORD}")
    try:
        record = read_json(folder / RECORD)
    except RunError:
        raise InputError(f"{folder} is damaged: its {RECORD} cannot be read") from None
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise InputError(f"{folder} is not a saved predictor: its {RECORD} is of another program")
    version = record.get("version")
    if type(version) is not int or version < 1:
        raise InputError(f"{folder} is not a saved predictor: its format version is {version!r}")
    if version > VERSION:
        raise InputError(f"{folder} has format version {version}, but this calibrant reads up to {VERSION}: upgrade it")
    if record.pop("checksum", None) != checksum(record):
        raise InputError(f"{folder} is damaged: its {RECORD} was altered")
    return record


def _rebuild(
    folder: Path, record: Mapping[str, Any], module: nn.Module | None, transform: Callable[[Any], Any] | None
) -> Predictor:
    check_plugins(record)
    backbone = None if record["backbone"] is None else Backbone.from_dict(record["backbone"])
    outliers, selector, names = record["outliers"], dict(record["selector"] or {}), record["classes"]
    kind = SELECTORS[selector.pop("kind")] if selector else None

    tensors = partial(_read_part, folder, record)
    weights = tensors("ensemble")
    _check_weights(weights, record["members"])
    _check_one_dtype(weights, everywhere=module is None)
    network = _built(backbone, weights) if module is None else copy.deepcopy(usable(module))
    return Predictor(
        _ensemble(network, weights, record),
        calibrator=_calibrator(folder, record),
        outliers=None if outliers is None else OutlierScores.from_state(outliers, tensors("outliers")),
        selector=None if kind is None else kind.from_state(selector, tensors("selector")),
        threshold=None if record["threshold"] is None else float(record["threshold"]),
        certificate=_certificate(record),
        ood_score=record["ood_score"],
        classes=None if names is None else tuple(names),
        feature_layer=record["feature_layer"],
        backbone=backbone if module is None else None,
        transform=saved_transform(folder, record, transform),
        factory=record.get("factory"),
    )


def _check_weights(weights: Mapping[str, Tensor], members: int) -> None:
    """Refuse what cannot be the weights of `members` members, before anything is made of them."""
    for name, value in weights.items():
        if value.is_complex() or not value.numel() or (value.is_floating_point() and value.dtype not in _FLOATS):
            raise InputError(f"the saved weights cannot be used: {name} is {value.dtype} of shape {tuple(value.shape)}")
        if name.startswith("members.") and (not value.dim() or value.shape[0] != members):
            raise InputError(f"the saved weights are not of {members} members: {name} has shape {tuple(value.shape)}")


def _check_one_dtype(weights: Mapping[str, Tensor], *, everywhere: bool) -> None:
    """Refuse floating-point weights of several types: of one layer, or `everywhere` in the network."""
    first: dict[str, tuple[str, torch.dtype]] = {}
    for name, value in weights.items():
        if value.is_floating_point():
            layer = "" if everywhere else name.partition(".")[2].rpartition(".")[0]
            other, dtype = first.setdefault(layer, (name, value.dtype))
            if value.dtype != dtype:
                raise InputError(
                    f"the saved weights cannot be used together: {name} is {value.dtype}, but {other} is {dtype}"
                )


def _built(backbone: Backbone | None, weights: Mapping[str, Tensor]) -> nn.Module:
    """The network of `backbone`, if it is no larger than the saved `weights`."""
    if backbone is None:
        return nn.Identity()
    with torch.device("meta"):
        size = sum(value.numel() for value in backbone.build().state_dict().values())
    if size > sum(value.numel() for value in weights.values()):
        raise InputError(f"backbone {backbone.name!r} does not fit the saved weights: it has {size:,} of them")
    return backbone.build()


def _certificate(record: Mapping[str, Any]) -> Certificate | None:
    content = record.get("certificate")
    return None if content is None else Certificate.from_dict(content)


def _read_part(folder: Path, record: Mapping[str, Any], part: str) -> dict[str, Tensor]:
    name = f"{part}.safetensors"
    return read_tensors(folder / name, record["files"][name])


def _calibrator_record(calibrator: Calibrator) -> dict[str, Any]:
    """Name and module of its class, and its configuration."""
    return {**recorded("calibrator", type(calibrator)), "config": calibrator.config()}


def _calibrator(folder: Path, record: Mapping[str, Any]) -> Calibrator | None:
    """The calibrator; a predictor of 0.1.0 has none, and one of a plugin that is not loaded is refused."""
    entry = record.get("calibrator")
    if entry is None:
        return None
    kind = required("calibrator", str(entry["name"]), str(entry["module"]))
    found: Calibrator = kind.from_state(entry["config"], _read_part(folder, record, "calibrator"))
    return found


def _ensemble(network: nn.Module, tensors: Mapping[str, Tensor], record: Mapping[str, Any]) -> Ensemble:
    stacked = {name[len("members.") :]: value for name, value in tensors.items() if name.startswith("members.")}
    state = {name[len("shared.") :]: value for name, value in tensors.items() if name.startswith("shared.")}
    state.update({name: value[0] for name, value in stacked.items()})
    if record["normalized"]:
        network = _normalize(network, state)
    network = with_masks(network, stacked)
    for name, value in [*network.named_parameters(), *network.named_buffers()]:
        if name in state:  # in place, because weights may be tied
            if value.is_floating_point() != state[name].is_floating_point():
                raise InputError(f"module does not fit the saved weights: {name} is saved as {state[name].dtype}")
            value.data = value.data.to(state[name].dtype)
    try:
        network.load_state_dict(state)
    except RuntimeError as error:
        raise InputError(f"module does not fit the saved weights: {' '.join(str(error).split())}") from None
    count, separate = record["members"], bool(record.get("separate"))
    if separate and len(list(network.children())) != count:
        raise InputError(f"module must be a list of {count} networks: the members were saved as networks of their own")
    ensemble = Ensemble(network, SeparateMembers(count) if separate else StoredMembers(stacked, count))
    ensemble.one_logit = True if record.get("one_logit") else None
    return ensemble


def _normalize(network: nn.Module, state: Mapping[str, Tensor]) -> Normalize:
    """`network` behind the input normalization that it was saved with, unless it brings its own."""
    if isinstance(network, Normalize):
        return network
    if not (state["mean"].is_floating_point() and state["std"].is_floating_point()):
        raise InputError(f"the saved weights cannot be used: the normalization is {state['mean'].dtype}")
    return Normalize(network, torch.zeros_like(state["mean"]), torch.ones_like(state["std"]))


def _network(module: nn.Module) -> tuple[nn.Module, bool]:
    """The network without its input normalization, and whether it had one."""
    return (module.module, True) if isinstance(module, Normalize) else (module, False)


def _shapes(module: nn.Module) -> dict[str, torch.Size]:
    """The shapes of all tensors but the masks, which come after the network was built."""
    masks = mask_names(module)
    return {name: value.shape for name, value in module.state_dict().items() if name not in masks}


def _check_target(target: Path) -> None:
    """Refuse to write over anything that is not a predictor."""
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return
    try:
        found = read_json(target / RECORD)
    except RunError:
        found = None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise InputError(f"folder {target} holds something that is not a predictor; choose another one")
