"""The transform of a saved predictor: data that is saved, or code that is not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from calibrant import InputError
from calibrant.data import ImageTransform


def transform_record(transform: Callable[[Any], Any]) -> dict[str, Any]:
    """An image transform in full; of any other callable, which is code, the name alone."""
    if isinstance(transform, ImageTransform):
        return transform.to_dict()
    return {"callable": str(getattr(transform, "__qualname__", type(transform).__qualname__))}


def saved_transform(folder: Path, record: Mapping[str, Any], given: Callable[[Any], Any] | None) -> Any:
    """The transform: the one given, or the saved one."""
    content = record.get("transform")
    if given is not None or content is None:
        return given
    if "callable" in content:
        raise InputError(
            f"transform must be given: {folder} was saved with the function {content['callable']}, which is code and"
            " therefore not saved; an ImageTransform would be"
        )
    return ImageTransform.from_dict(content)
