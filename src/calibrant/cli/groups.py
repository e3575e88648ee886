"""Options in groups: a command takes a dataclass, and each of its fields is an option."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from inspect import Parameter, Signature, signature
from typing import Any, get_type_hints


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """`command` for typer, every argument that is a dataclass spelled out as its fields.

    >>> from dataclasses import dataclass
    >>> Point = dataclass(type("Point", (), {"__annotations__": {"x": int, "y": int}, "x": 1, "y": 2}))
    >>> def show(at: Point, name: str = "P"): print(name, at.x, at.y)
    >>> show.__annotations__ = {"at": Point, "name": str}
    >>> list(signature(grouped(show)).parameters)
    ['x', 'y', 'name']
    >>> grouped(show)(x=3, y=4, name="Q")
    Q 3 4
    """
    kinds = get_type_hints(command, include_extras=True)
    groups = {name: kind for name, kind in kinds.items() if is_dataclass(kind) and isinstance(kind, type)}
    spelled: list[Parameter] = []
    for name, parameter in signature(command).parameters.items():
        if name not in groups:
            spelled.append(parameter.replace(kind=Parameter.KEYWORD_ONLY, annotation=kinds[name]))
            continue
        inner = get_type_hints(groups[name], include_extras=True)
        spelled += [
            Parameter(field.name, Parameter.KEYWORD_ONLY, default=field.default, annotation=inner[field.name])
            for field in fields(groups[name])
        ]

    @functools.wraps(command)
    def run(**given: Any) -> None:
        for name, kind in groups.items():
            given[name] = kind(**{field.name: given.pop(field.name) for field in fields(kind)})
        command(**given)

    run.__signature__ = Signature(spelled)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in spelled}
    del run.__wrapped__
    return run
