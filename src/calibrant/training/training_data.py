"""The data of a run: training, validation and test examples, D_u, OOD test sets, and how they were split."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, RandomSampler, SequentialSampler, default_collate

from calibrant import InputError
from calibrant.adapters.trees import join_rows, row_shape
from calibrant.config.groups import DataSettings
from calibrant.config.schemes import Scheme
from calibrant.data import (
    ArrayData,
    DataError,
    DatasetData,
    Spec,
    Splits,
    as_data,
    has_parts,
    is_own,
    loader_batches,
    open_source,
    outlier_parts,
)

Examples = ArrayData | DatasetData


@dataclass(frozen=True)
class TrainingData:
    """All that a run reads. `uncertainty` is D_u; `splits` says by index which example went where.

    `weights` (N,) are those of the training examples in the cross-entropy; None gives all the weight 1.
    """

    train: Examples
    validation: Examples
    test: Examples | None = None
    uncertainty: Examples | None = None
    ood: Mapping[str, Examples] = field(default_factory=dict)
    splits: Mapping[str, Splits] = field(default_factory=dict)
    weights: Tensor | None = None

    def __post_init__(self) -> None:
        shape = input_shape(self.train)
        others = {"validation": self.validation, "test": self.test, "uncertainty": self.uncertainty, **self.ood}
        for name, data in others.items():
            if data is not None and (found := input_shape(data)) != shape:
                raise InputError(f"{name} has inputs of shape {found}, but the training data of {shape}")

    def outliers_for(self, scheme: Scheme) -> Examples:
        """D_u, which `scheme` is fine-tuned on."""
        if self.uncertainty is None:
            raise InputError(f"uncertainty data (D_u) is missing: {scheme} needs unlabeled outliers to fine-tune on")
        return self.uncertainty

    def splits_json(self) -> str:
        """All splits as JSON text."""
        return json.dumps({name: json.loads(splits.to_json()) for name, splits in self.splits.items()}) + "\n"


def open_data(settings: DataSettings, seed: int) -> TrainingData:
    """What the settings name, split by `seed`.

    A D_u source without parts of its own is split into D_u and an OOD test set; of one with parts, D_u is the training
    part. With the embedded source D_u and the OOD test sets are its own unless others are named.
    """
    source = _located(settings.source, settings.root)
    _refuse_shared(settings)
    splits: dict[str, Splits] = {}
    whole, test = (_ordered(part, settings.classes) for part in _with_test(source, settings, seed, splits))
    assert whole is not None
    if settings.validation_from == "test":
        held_out, test = _halved(test, settings, seed, splits)
        parts = {"train": whole, "validation": held_out}
    else:
        splits["train"] = _split(
            whole, settings.splits, {"validation": settings.validation, "train": settings.train}, seed, stratify=True
        )
        parts = splits["train"].apply(whole)
    own = settings.uncertainty is None and source == "embedded"
    uncertainty: ArrayData | None = None
    ood: dict[str, Examples] = {}
    if own or settings.uncertainty is not None:
        spec = "embedded:ood" if settings.uncertainty is None else _located(settings.uncertainty, settings.root)
        uncertainty, ood = _uncertainty(spec, settings, seed, splits)
    for spec in settings.ood or (("embedded:near", "embedded:far") if own else ()):
        located = _located(spec, settings.root)
        ood[_unused(_short(spec), ood)] = open_source(located, split="test" if has_parts(located) else "all")
    return TrainingData(parts["train"], parts["validation"], test, uncertainty, ood, splits)


def _with_test(
    source: str, settings: DataSettings, seed: int, splits: dict[str, Splits]
) -> tuple[ArrayData, ArrayData | None]:
    if settings.test_source is not None:
        given = _located(settings.test_source, settings.root)
        test = open_source(given, split="test" if has_parts(given) else "all")
        return _same_classes(open_source(source, split="train"), test)
    if has_parts(source):
        test = open_source(source, split="test")
        if settings.test is not None:
            splits["test"] = _split(test, None, {"test": settings.test}, seed)
            test = splits["test"].apply(test)["test"]
        return open_source(source), test
    whole = open_source(source, split="all")
    splits["test"] = _split(whole, None, {"test": settings.test or 0.2, "rest": None}, seed, stratify=True)
    return splits["test"].apply(whole)["rest"], splits["test"].apply(whole)["test"]


def _ordered(data: ArrayData | None, classes: Sequence[str] | None) -> ArrayData | None:
    """`data` with its classes numbered as in `classes`, which may name more of them."""
    if data is None or classes is None or data.labels is None:
        return data
    if data.classes is None:
        return replace(data, classes=tuple(classes))
    unknown = next((name for name in data.classes if name not in classes), None)
    if unknown is not None:
        raise DataError(f"{data.name} has the class {unknown!r}, which is not among the {len(classes)} that were named")
    numbers = torch.tensor([list(classes).index(name) for name in data.classes])
    return replace(data, labels=numbers[data.labels], classes=tuple(classes))


def _same_classes(data: ArrayData, test: ArrayData) -> tuple[ArrayData, ArrayData]:
    """Both, the classes of `test` numbered as in `data`."""
    if data.labels is None or test.labels is None:
        name = (data if data.labels is None else test).name
        raise DataError(f"{name} has no labels, without which nothing can be fitted or measured")
    return data, _ordered(test, data.classes) or test


def _halved(
    test: ArrayData | None, settings: DataSettings, seed: int, splits: dict[str, Splits]
) -> tuple[ArrayData, ArrayData]:
    """Validation and test examples, both from the test part."""
    if test is None or settings.splits is not None or settings.train is not None:
        raise InputError("data.validation_from=test needs a source with a test part, and neither splits nor train")
    splits["validation"] = _split(test, None, {"validation": settings.validation, "test": None}, seed, stratify=True)
    parts = splits["validation"].apply(test)
    return parts["validation"], parts["test"]


def _uncertainty(
    spec: str, settings: DataSettings, seed: int, splits: dict[str, Splits]
) -> tuple[ArrayData, dict[str, Examples]]:
    given = None if settings.uncertainty_splits is None else Splits.load(Path(settings.uncertainty_splits))
    uncertainty, test, drawn = outlier_parts(spec, uncertainty_size=settings.uncertainty_size, splits=given, seed=seed)
    if drawn is not None:
        splits["uncertainty"] = drawn
    return uncertainty, {} if spec == "embedded:ood" else {_short(spec): test}


def _refuse_shared(settings: DataSettings) -> None:
    """Refuse an OOD test set that holds the examples of D_u; only a source with parts of its own gives others."""
    if settings.uncertainty is None or has_parts(_located(settings.uncertainty, settings.root)):
        return
    for spec in settings.ood:
        if _examples(spec, settings.root) == _examples(settings.uncertainty, settings.root):
            raise InputError(
                f"data.ood names {spec}, and data.uncertainty {settings.uncertainty}: tests would be on the examples of"
                " D_u; leave it out of data.ood, as what D_u does not take of it is an OOD test set already"
            )


def _examples(spec: str, root: str | None) -> tuple[str, Path, dict[str, str]]:
    """Equal for equal examples, whatever the size and the colors of their images."""
    parsed = Spec.parse(_located(spec, root))
    options = {name: value for name, value in parsed.options.items() if name not in ("size", "color")}
    return parsed.kind, Path(parsed.path).resolve(), options


def _split(
    data: ArrayData, file: str | None, sizes: dict[str, int | float | None], seed: int, *, stratify: bool = False
) -> Splits:
    if file is not None:
        splits = Splits.load(Path(file))
        for name in sizes:
            _ = splits[name]
        return splits
    return Splits.draw(len(data), sizes, seed, data.labels if stratify else None)


def _located(spec: str, root: str | None) -> str:
    """`spec` with `root` as its path, if it is a published set without one; else below `root`, if it is only there."""
    parsed = Spec.parse(spec)
    below = Path(root or "", parsed.path)
    if (
        root is None
        or parsed.kind == "embedded"
        or (parsed.path and (Path(parsed.path).exists() or not below.exists()))
    ):
        return spec
    query = spec.partition("?")[2]
    return f"{parsed.kind}:{below}" + (f"?{query}" if query else "")


def _short(spec: str) -> str:
    """A name for tables: near, far, lsun-resize, or the file's own."""
    parsed = Spec.parse(spec)
    if parsed.kind == "embedded":
        return parsed.path or "digits"
    return Path(parsed.path).stem if is_own(parsed.kind) else parsed.kind


def _unused(name: str, taken: Mapping[str, Any]) -> str:
    """`name`, with a number behind it if another set has it.

    >>> _unused("x", {"x": 1, "x (2)": 2})
    'x (3)'
    """
    numbered = (f"{name} ({number})" for number in count(2))
    return name if name not in taken else next(one for one in numbered if one not in taken)


def varying_test(settings: DataSettings) -> str | None:
    """The setting by which the seed decides what is tested on; None if all seeds are tested on the same examples."""
    if settings.validation_from == "test":
        return "data.validation_from=test"
    if settings.test_source is not None:
        return None
    if not has_parts(_located(settings.source, settings.root)):
        return f"data.source={settings.source}"
    return None if settings.test is None else f"data.test={settings.test}"


def as_examples(X: object, y: object = None) -> Examples:
    """`X` (and `y`) of any form that users have, as examples that can be taken by index.

    A loader in plain random or sequential order with the usual collation stands for its data set; any other one is
    read once, and what it yields is kept.
    """
    data = as_data(X, y)
    if not isinstance(data, DataLoader):
        return data
    plain = data.batch_sampler is not None and type(data.sampler) in (RandomSampler, SequentialSampler)
    if plain and data.collate_fn is default_collate and hasattr(data.dataset, "__len__"):
        return as_examples(data.dataset)
    batches = list(loader_batches(data))
    if not batches:
        raise DataError("the loader is empty")
    labels = [target for _, target in batches if target is not None]
    shapes = {str(row_shape(inputs)) for inputs, _ in batches}
    if len(shapes) > 1:
        raise DataError(f"the loader yields inputs of shapes {', '.join(sorted(shapes))}; resize or pad them to one")
    return ArrayData(join_rows([inputs for inputs, _ in batches]), torch.cat(labels) if labels else None)


def input_shape(data: Examples) -> Any:
    """The shape of one input of `data`; of inputs by name, a `dict` of them."""
    return row_shape(data.take(torch.tensor([0]))[0])


def fingerprint(data: Examples | None) -> str | None:
    """What identifies `data` in the key of a stage.

    Data in memory: the hash of its values. A data set that is read when needed: its type, length and selection, so a
    change within its files is not noticed.
    """
    if data is None or isinstance(data, ArrayData):
        return None if data is None else data.fingerprint
    text = json.dumps([type(data.dataset).__qualname__, len(data.dataset), list(data.indices or ())])
    return "lazy-" + hashlib.sha256(text.encode()).hexdigest()


def class_count(data: Examples) -> int:
    """The number of classes; for a data set that is read when needed, by its class names or by reading its labels."""
    if isinstance(data, ArrayData):
        return data.num_classes
    if data.classes is not None:
        return len(data.classes)
    return 1 + max(int(data.take(torch.tensor([index]))[1]) for index in range(len(data)))  # type: ignore[arg-type]
