"""`--module package.module:function`: a network of the user's own, imported because the user says so."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from torch import nn

HELP = "What builds the network: 'package.module:function?option=value', in this folder or an installed package."
Module = Annotated[
    str | None, typer.Option("--module", metavar="SPEC", help=f"{HELP} For runs with a network of your own.")
]


def network_of(spec: str) -> nn.Module:
    """The network that `spec` names; modules in the current folder are found, too."""
    from calibrant.backbones import build_module

    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    return build_module(spec)
