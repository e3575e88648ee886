"""`calibrant info`."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Annotated, Any

import typer

from calibrant import InputError, slots
from calibrant.cli import options, output


class Topic(str, Enum):
    """What to tell."""

    machine = "machine"
    settings = "settings"
    profiles = "profiles"
    schemes = "schemes"
    slots = "slots"
    predictor = "predictor"


EXAMPLES = """
calibrant info
calibrant info settings                      # all of them
calibrant info settings fit --profile paper  # those of one group, as the profile has them
calibrant info profiles
calibrant info profiles cifar10 > mine.yaml  # a file to change and use with --settings
calibrant info schemes
calibrant info slots detector                # the detectors that settings can name, and their options
calibrant info slots --plugin my_ideas       # with those of a module of your own
calibrant info predictor run                 # what a run or a saved predictor deploys
"""


def command(
    topic: Annotated[
        Topic,
        typer.Argument(metavar="TOPIC", help="machine, settings, profiles, schemes, slots or predictor."),
    ] = Topic.machine,
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="A group of settings, profile, scheme or kind of slot; or a folder."),
    ] = None,
    profile: Annotated[
        str | None, typer.Option("--profile", metavar="NAME", help="Show the settings of this profile.")
    ] = None,
    scheme: Annotated[
        str | None, typer.Option("--scheme", "-s", metavar="NAME", help="Which predictor, where a run holds several.")
    ] = None,
    json: options.Json = False,
) -> None:
    """Show versions, settings, schemes, plug-ins, predictors.

    Without a topic: versions, devices and threads.
    """
    tell = {
        Topic.machine: _machine,
        Topic.settings: _settings,
        Topic.profiles: _profiles,
        Topic.schemes: _schemes,
        Topic.slots: _slots,
    }
    if topic is Topic.predictor:
        _predictor(name, scheme, json)
    else:
        tell[topic](name, profile, json)


def _machine(name: str | None, profile: str | None, as_json: bool) -> None:
    import os
    import platform
    from importlib.metadata import distributions

    import torch

    from calibrant.adapters.devices import choose_device

    packages = ("calibrant", "torch", "numpy", "scikit-learn", "lightning-fabric", "pydantic", "ray", "onnxruntime")
    installed = {str(one.metadata["Name"]).lower().replace("_", "-"): one.version for one in distributions()}
    versions = {"python": platform.python_version(), **{one: installed.get(one, "not installed") for one in packages}}
    devices = ["cpu"]
    if torch.accelerator.is_available():
        kind = str(torch.accelerator.current_accelerator())
        devices += [f"{kind}:{index}" for index in range(torch.accelerator.device_count())]
    found = {
        "versions": versions,
        "platform": platform.platform(),
        "devices": devices,
        "auto": str(choose_device()),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS"),
    }
    if as_json:
        output.print_json(found)
        return
    output.print_lines(*(f"{package:18}{version}" for package, version in versions.items()))
    output.print_lines(*(f"{key:18}{_text(value)}" for key, value in found.items() if key != "versions"))


def _settings(name: str | None, profile: str | None, as_json: bool) -> None:
    from calibrant.config.loading import Settings, load_settings

    chosen = Settings() if profile is None else load_settings(profile)
    rows = [row for row in _fields(chosen) if name is None or (row["name"] + ".").startswith(name + ".")]
    if not rows:
        try:
            load_settings(overrides=[f"{name}=0"])  # says which name is the nearest
        except InputError as error:
            raise InputError(str(error).removeprefix("override: ")) from None
    if as_json:
        output.print_json(rows)
        return
    table = output.plain_table("setting", "default" if profile is None else profile, "what it is")
    for row in rows:
        table.add_row(row["name"], _text(row["value"]), row["description"])
    output.print_table(table)


def _fields(model: Any, prefix: str = "") -> Iterator[dict[str, Any]]:
    """Name, value and description of every group and setting, depth first."""
    from pydantic import BaseModel

    for key, field in type(model).model_fields.items():
        value = getattr(model, key)
        if isinstance(value, BaseModel) and not hasattr(value, "of"):  # a number by family is one setting
            yield {"name": prefix + key, "value": "", "description": type(value).__doc__ or ""}
            yield from _fields(value, f"{prefix}{key}.")
        else:
            plain = value.model_dump() if isinstance(value, BaseModel) else value
            yield {"name": prefix + key, "value": plain, "description": field.description or ""}


def _profiles(name: str | None, profile: str | None, as_json: bool) -> None:
    from importlib import resources

    from calibrant.config.loading import load_settings, profiles

    if name is not None:
        settings = load_settings(name)  # says which name is the nearest
        if as_json:
            output.print_json(settings.model_dump(mode="json"))
            return
        text = (resources.files("calibrant.config") / "profiles" / f"{name}.yaml").read_text(encoding="utf-8")
        output.print_lines(f"profile: {name}", text.rstrip())
        return
    found = {one: load_settings(one) for one in profiles()}
    rows = {n: {"data": s.data.source, "backbone": s.backbone.name, "epochs": s.fit.epochs} for n, s in found.items()}
    if as_json:
        output.print_json(rows)
        return
    table = output.plain_table("profile", "data", "backbone", "epochs")
    for one, row in rows.items():
        table.add_row(one, *(str(value) for value in row.values()))
    output.print_table(table)


def _schemes(name: str | None, profile: str | None, as_json: bool) -> None:
    from calibrant.config.schemes import Scheme

    rows = {
        str(one): [str(link) for link in one.chain] for one in Scheme.all() if name is None or one == Scheme.parse(name)
    }
    if as_json:
        output.print_json(rows)
    else:
        output.print_lines(*(f"{one:12}{' -> '.join(chain)}" for one, chain in rows.items()))


def _slots(name: str | None, profile: str | None, as_json: bool) -> None:
    if name is not None and name not in slots.ROOMS:
        raise InputError(f"there is no slot {name!r}; there are {', '.join(slots.ROOMS)}")
    rows = [_slot_row(kind, one) for kind in slots.ROOMS if name in (None, kind) for one in slots.names(kind)]
    if as_json:
        output.print_json(rows)
        return
    table = output.plain_table("kind", "name", "options", "what it is")
    for row in rows:
        table.add_row(row["kind"], row["name"], _text(row["options"]), row["description"])
    output.print_table(table)


def _slot_row(kind: str, name: str) -> dict[str, Any]:
    made = slots.registration(kind, name)
    about = (made.item.__doc__ or "").strip().partition("\n")[0]
    values = {option: _plain(value) for option, value in slots.options_of(kind, name).items()}
    return {"kind": kind, "name": name, "options": values, "description": about, "module": made.module}


def _plain(value: Any) -> Any:
    if callable(value):
        return getattr(value, "__name__", type(value).__name__)
    return value if isinstance(value, (bool, int, float, str, type(None))) else str(value)


def _predictor(name: str | None, scheme: str | None, as_json: bool) -> None:
    from calibrant.deploy.saving import describe
    from calibrant.runs.run import predictor_folder

    if name is None:
        raise InputError("info predictor needs a folder: calibrant info predictor RUN")
    found = describe(predictor_folder(name, scheme))
    if as_json:
        output.print_json(found)
    else:
        width = max(map(len, found))
        output.print_lines(*(f"{key:{width}} {_text(value)}" for key, value in found.items()))


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_text(one)}" for key, one in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_text, value)) or "none"
    if isinstance(value, float):
        return f"{value:.6g}"
    return "null" if value is None else str(value)
