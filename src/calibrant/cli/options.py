"""Options that several commands share, and the settings they add up to."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from calibrant import InputError
from calibrant.slots import loaded_plugins, plugin_options

if TYPE_CHECKING:
    from calibrant.config.loading import Settings
    from calibrant.config.schemes import Scheme

Profile = Annotated[
    str | None,
    typer.Option("--profile", metavar="NAME", help="Settings to start from: embedded (default), small, paper, ..."),
]
SettingsFile = Annotated[
    Path | None, typer.Option("--settings", metavar="FILE.yaml", help="Settings that override the profile's.")
]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "-o", "--set", metavar="KEY=VALUE", help="One setting, which overrides both; `info settings` lists them."
    ),
]
WeightsFile = Annotated[
    str | None,
    typer.Option(
        "--weights", metavar="FILE", help="Start from a checkpoint; with -o fit.epochs=0 it is not trained further."
    ),
]
Device = Annotated[str | None, typer.Option("--device", help="auto, cpu, cuda, cuda:1, mps.", metavar="NAME")]
Seed = Annotated[int | None, typer.Option("--seed", min=0, help="Random seed.", metavar="N")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables; progress goes to standard error.")]
Resume = Annotated[
    bool,
    typer.Option("--resume", help="Resume the run in --out with its own settings; no other option is needed."),
]
Schemes = Annotated[
    list[str] | None,
    typer.Option("--scheme", "-s", metavar="NAME", help="FNN, CBNN, SCBNN-OCM, ..., or `all`; repeatable."),
]


def read_settings(
    profile: str | None, file: Path | None, overrides: Sequence[str], **named: str | int | Sequence[str] | None
) -> Settings:
    """A profile, then a file, then overrides, then options of their own (`data__source="embedded"`), if given."""
    from calibrant.config.loading import load_settings

    settings = load_settings(profile or "embedded", file, overrides)
    if loaded_plugins():
        settings = settings.changed({"plugins": loaded_plugins()})
    for name, value in named.items():
        if value is not None:
            group, _, field = name.rpartition("__")
            settings = settings.changed({group: {field: value}} if group else {field: value})
    check_device(settings.engine.device)
    return settings


def refuse_beside_resume(*given: object) -> None:
    """Refuse options that would be ignored, because a run resumes with the settings it was begun with."""
    if any(one is not None for one in given):
        raise InputError("--resume takes all settings from the run in --out; leave the other options out")


def on_device(settings: Settings, device: str | None) -> Settings:
    """`settings` on another device, if one is named: that may change from one sitting to the next."""
    chosen = settings if device is None else settings.changed({"engine": {"device": device}})
    check_device(chosen.engine.device)
    return chosen


def check_device(name: str) -> None:
    """Refuse a device that is not there, before anything else is done."""
    if name not in ("auto", "cpu"):
        from calibrant.adapters.devices import choose_device

        choose_device(name)


def parse_schemes(names: Sequence[str] | None, default: str) -> list[Scheme]:
    """The schemes by name, in the order of `Scheme.all`; `all` means all sixteen."""
    from calibrant.config.schemes import Scheme

    wanted = names or [default]
    if any(name.lower() == "all" for name in wanted):
        return list(Scheme.all())
    chosen = {Scheme.parse(name) for name in wanted}
    return [scheme for scheme in Scheme.all() if scheme in chosen]


def resume_command(command: str, out: Path, more: str = "") -> str:
    """What resumes that `command` in the folder `out`.

    >>> resume_command("train", Path("my run"))
    "calibrant train --resume --out 'my run'"
    """
    return f"calibrant {command} --resume --out {shlex.quote(str(out))}{more}{plugin_options()}"


def after_stop(begun: bool, command: str) -> str:
    """What to say after Ctrl-C: the `command` that resumes, if there is anything to resume."""
    return f"stopped; to resume: {command}" if begun else "stopped before anything was kept; start the command again"


def command_line() -> str:
    """The command as it was given, to be written into what it makes."""
    return shlex.join(["calibrant", *sys.argv[1:]])
