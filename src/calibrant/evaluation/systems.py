"""A system on its test data: the one record that runs write and that tables, figures and pages read."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant import InputError
from calibrant.files import write_bytes
from calibrant.predictions import Predictions

FORMAT = 1
# Name in the file, and of the attribute.
_ARRAYS = {
    "confidence": "confidence",
    "predicted": "predicted",
    "label": "labels",
    "selection": "selection",
    "trust": "trust",
    "ood_score": "ood_score",
    "count": "count",
}


@dataclass(frozen=True, eq=False)
class Evaluation:
    """One trained system on its test data: `id`, any number of `ood` sets by name, and where there is one `validation`.

    `system` is its name, for a scheme the scheme's ("SCBNN-OCM"); systems that differ only in `seed` are averaged.
    Thresholds for a coverage come from `validation` if it is given, else from `id`. `metadata` holds JSON values.
    """

    system: str
    seed: int
    id: Predictions
    ood: Mapping[str, Predictions] = field(default_factory=dict)
    validation: Predictions | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.id.labels is None:
            raise InputError("id must have labels: without them nothing can be said about accuracy or calibration")
        object.__setattr__(self, "id", self.id.numpy())
        object.__setattr__(self, "ood", {name: part.numpy() for name, part in self.ood.items()})
        object.__setattr__(self, "validation", None if self.validation is None else self.validation.numpy())

    @classmethod
    def of(
        cls, system: str, seed: int, sets: Mapping[str, Predictions], threshold: str = "validation", **metadata: Any
    ) -> Evaluation:
        """From predictions by set, `"test"` and `"validation"` among them, the others being OOD.

        `threshold` says which of the two sets thresholds.
        """
        if "test" not in sets:
            raise InputError("there is no test set, without which nothing can be measured; name one, or hold one out")
        ood = {name: part for name, part in sets.items() if name not in ("validation", "test")}
        return cls(system, seed, sets["test"], ood, sets["validation"] if threshold == "validation" else None, metadata)

    def save(self, path: str | Path) -> str:
        """Write everything to one NPZ file, whole or not at all, without pickle; returns its SHA-256."""
        parts = {"id": self.id, "validation": self.validation}
        parts.update({f"ood{number}": part for number, part in enumerate(self.ood.values())})
        given = {part: predictions for part, predictions in parts.items() if predictions is not None}
        header = {
            "format": FORMAT,
            "system": self.system,
            "seed": self.seed,
            "ood": list(self.ood),
            "score_names": {part: list(predictions.scores) for part, predictions in given.items()},
            "metadata": dict(self.metadata),
            **({} if self.id.calibrator == "none" else {"calibrator": self.id.calibrator}),
        }
        arrays: Any = {name: array for part, predictions in given.items() for name, array in _arrays(part, predictions)}
        content = io.BytesIO()
        np.savez_compressed(content, header=np.array(json.dumps(header, allow_nan=False)), **arrays)
        return write_bytes(Path(path), content.getvalue())

    @classmethod
    def load(cls, path: str | Path) -> Evaluation:
        """Read what `save` wrote."""
        try:
            with np.load(path, allow_pickle=False) as archive:
                arrays = {name: archive[name] for name in archive.files}
            header = json.loads(str(arrays["header"]))
            if header["format"] != FORMAT:
                raise InputError(f"its format is {header['format']}, this version reads {FORMAT}")
        except FileNotFoundError:
            raise InputError(f"{path} does not exist; check the path") from None
        except (ValueError, KeyError, EOFError, OSError, zipfile.BadZipFile) as error:
            raise InputError(f"{path} is not a saved evaluation ({error}); evaluate the system again") from None

        def part(name: str) -> Predictions:
            read = _read(name, arrays, header["score_names"][name])
            return replace(read, calibrator=header.get("calibrator", "none"))

        return cls(
            header["system"],
            header["seed"],
            part("id"),
            {name: part(f"ood{number}") for number, name in enumerate(header["ood"])},
            part("validation") if "validation.confidence" in arrays else None,
            header["metadata"],
        )


def _arrays(part: str, predictions: Predictions) -> Iterator[tuple[str, NDArray[Any]]]:
    """Everything of `predictions` that is kept, under its name in the file."""
    for name, attribute in _ARRAYS.items():
        if getattr(predictions, attribute) is not None:
            yield f"{part}.{name}", getattr(predictions, attribute)
    if predictions.scores:
        yield f"{part}.scores", np.stack([*predictions.scores.values()], axis=1)


def _read(part: str, arrays: Mapping[str, NDArray[Any]], names: Sequence[str]) -> Predictions:
    values: dict[str, Any] = {attribute: arrays.get(f"{part}.{name}") for name, attribute in _ARRAYS.items()}
    scores = arrays[f"{part}.scores"].T if names else ()
    if len(names) != len(scores):
        raise InputError(f"{part} has {len(scores)} scores, but {len(names)} names of scores")
    return Predictions(**values, scores=dict(zip(names, scores)))


def by_system(evaluations: Sequence[Evaluation]) -> dict[str, list[Evaluation]]:
    """The evaluations of each system, in the order of their first appearance; refused if they are of different data."""
    groups: dict[str, list[Evaluation]] = {}
    for evaluation in evaluations:
        groups.setdefault(evaluation.system, []).append(evaluation)
    if not groups:
        raise InputError("evaluations is empty: there is nothing to report")
    for system, group in groups.items():
        first = group[0]
        for other in group[1:]:
            same = np.array_equal(first.id.labels, other.id.labels) and list(first.ood) == list(other.ood)
            if not (same and all(len(first.ood[name]) == len(other.ood[name]) for name in first.ood)):
                raise InputError(
                    f"evaluations of {system} with seeds {first.seed} and {other.seed} are of different data;"
                    " give each its own system name"
                )
    return groups
