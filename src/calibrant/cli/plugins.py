"""`--plugin MODULE`, which every command has: what lives outside the package is imported before the command runs."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from calibrant.slots import load_plugins

Plugin = Annotated[
    list[str] | None,
    typer.Option(
        "--plugin",
        metavar="MODULE",
        help="Import MODULE first, from this folder or an installed package: it registers posteriors, regularizers,"
        " calibrators, detectors, objectives, sources, synthesizers or measures of your own. Repeatable.",
    ),
]


def with_plugins(command: Callable[..., None]) -> Callable[..., None]:
    """`command` for typer with the option `--plugin`."""
    kinds = get_type_hints(command, include_extras=True)
    own = [
        parameter.replace(kind=Parameter.KEYWORD_ONLY, annotation=kinds[name])
        for name, parameter in signature(command).parameters.items()
    ]
    last = Parameter("plugin", Parameter.KEYWORD_ONLY, default=None, annotation=Plugin)

    @functools.wraps(command)
    def run(*, plugin: list[str] | None = None, **given: Any) -> None:
        if plugin:
            sys.path.insert(0, str(Path.cwd()))
            load_plugins(plugin)
        command(**given)

    run.__signature__ = Signature([*own, last])  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in (*own, last)}
    del run.__wrapped__
    return run
