"""All settings: a profile, then a YAML file, then `key.sub=value` overrides, each laid over the one before."""

from __future__ import annotations

import copy
import difflib
from collections.abc import Iterable, Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, Field, ValidationError, model_validator

from calibrant import InputError
from calibrant.config.bounded_yaml import MOST_CHARACTERS, parse_yaml
from calibrant.config.dependence import renamed
from calibrant.config.groups import (
    AugmentationSettings,
    BackboneSettings,
    CalibrationSettings,
    CalibratorSettings,
    DataSettings,
    EngineSettings,
    FinetuneSettings,
    FitSettings,
    OutlierSettings,
    PosteriorSettings,
    ReportSettings,
    SelectorSettings,
)
from calibrant.config.rule_settings import RuleSettings
from calibrant.config.values import Group
from calibrant.files import open_regular
from calibrant.slots import is_loaded

_NAMING = ("regularizer", "scores", "name", "family", "objective")  # the settings that `options` beside them belong to


class Settings(Group):
    """Everything that a run can be told."""

    profile: str = Field(default="paper", description="the profile that these settings started from")
    plugins: tuple[str, ...] = Field(
        default=(),
        description="modules that register what these settings name; --plugin imports them, nothing else does",
    )
    # scikit-learn takes no larger seed.
    seed: int = Field(
        default=0, ge=0, lt=2**32, description="of everything random: splits, weights, order, augmentation"
    )
    data: DataSettings = DataSettings()
    augmentation: AugmentationSettings = AugmentationSettings()
    backbone: BackboneSettings = BackboneSettings()
    posterior: PosteriorSettings = PosteriorSettings()
    calibration: CalibrationSettings = CalibrationSettings()
    fit: FitSettings = FitSettings()
    finetune: FinetuneSettings = FinetuneSettings()
    calibrator: CalibratorSettings = CalibratorSettings()
    outliers: OutlierSettings = OutlierSettings()
    selector: SelectorSettings = SelectorSettings()
    rule: RuleSettings = RuleSettings()
    report: ReportSettings = ReportSettings()
    engine: EngineSettings = EngineSettings()

    @model_validator(mode="before")
    @classmethod
    def _renamed(cls, values: Any) -> Any:
        if not isinstance(values, Mapping):
            return values
        named = values.get("plugins")
        missing = [one for one in (named if isinstance(named, (list, tuple)) else ()) if not is_loaded(str(one))]
        if missing:
            remedy = f"add --plugin {missing[0]} to the command, or import {missing[0]} first"
            raise InputError(f"the plugin {missing[0]} is needed, but not loaded: {remedy}")
        return renamed(values)

    def to_yaml(self) -> str:
        """All settings, as the YAML that `load_settings` reads back."""
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False)

    def changed(self, changes: Mapping[str, Any]) -> Settings:
        """A copy with nested `changes`.

        >>> Settings().changed({"fit": {"rate": 0.05}}).fit.rate
        0.05
        """
        return _lay_over(self, changes, "settings")

    def with_(self, *overrides: str) -> Settings:
        """A copy with `key.sub=value` overrides.

        >>> Settings().with_("fit.rate=0.05").fit.rate
        0.05
        """
        return _lay_over(self, parse_overrides(overrides), "override")


def profiles() -> tuple[str, ...]:
    """Names of the profiles that are shipped.

    >>> profiles()
    ('cifar10', 'cifar100', 'clinc150', 'embedded', 'micro', 'own-network', 'paper', 'paper-code', 'pretrained',
    'small', 'small-cifar10')
    """
    folder = resources.files("calibrant.config") / "profiles"
    return tuple(sorted(entry.name[:-5] for entry in folder.iterdir() if entry.name.endswith(".yaml")))


def load_settings(profile: str = "embedded", file: str | Path | None = None, overrides: Iterable[str] = ()) -> Settings:
    """The settings of `profile`, then those of the YAML `file`, then `overrides` such as `"fit.rate=0.05"`.

    A file may name the profile it starts from (`profile: small`); that wins over `profile`.
    """
    changes = {} if file is None else read_yaml(Path(file))
    profile = str(changes.get("profile", profile))
    if profile not in profiles():
        raise InputError(f"profile {profile!r} does not exist{_hint(profile, profiles())}")
    text = (resources.files("calibrant.config") / "profiles" / f"{profile}.yaml").read_text(encoding="utf-8")
    settings = _lay_over(Settings(), {**(parse_yaml(text) or {}), "profile": profile}, f"profile {profile}")
    settings = _lay_over(settings, changes, str(file))
    return settings.with_(*overrides)


def setting_names(model: type[BaseModel] = Settings, prefix: str = "") -> Iterator[str]:
    """All dotted names, depth first."""
    for name, field in model.model_fields.items():
        yield prefix + name
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from setting_names(field.annotation, f"{prefix}{name}.")


def read_yaml(path: Path, kind: str = "settings") -> dict[str, Any]:
    """The `key: value` pairs in a YAML file; a wrong one is refused in one sentence that calls it a `kind` file."""
    try:
        with open_regular(path) as file:
            content = parse_yaml(file.read(4 * MOST_CHARACTERS + 4).decode())
    except OSError as error:
        raise InputError(f"{kind} file {path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise InputError(f"{kind} file {path} is not YAML that can be read: {error}") from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise InputError(f"{kind} file {path} must hold `key: value` pairs, not a {type(content).__name__}")
    return content


def parse_overrides(
    overrides: Iterable[str], onto: Mapping[str, Any] | None = None, example: str = "fit.rate=0.05"
) -> dict[str, Any]:
    """Overrides `group.name=value`, whose values are YAML, as nested mappings; laid over those of `onto`.

    >>> parse_overrides(["a.b=1"], {"a": {"c": 2}})
    {'a': {'c': 2, 'b': 1}}
    """
    result = copy.deepcopy(dict(onto or {}))
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals or not key.strip():
            raise InputError(f"override {override!r} must look like {example}")
        *groups, name = key.strip().split(".")
        node = result
        for group in groups:
            node = node.setdefault(group, {})
            if not isinstance(node, dict):
                raise InputError(f"override {override!r} looks into {group!r}, which is set to a value")
        try:
            node[name] = parse_yaml(text)
        except ValueError:
            raise InputError(f"override {override!r} has a value that is not YAML; quote it") from None
    return result


def _lay_over(settings: Settings, changes: Mapping[str, Any], where: str) -> Settings:
    try:
        return Settings.model_validate(_merge(settings.model_dump(), changes, Settings))
    except ValidationError as error:
        raise InputError(f"{where}: {sentence(error)}") from None


def _merge(base: dict[str, Any], changes: Mapping[str, Any], model: type[BaseModel]) -> dict[str, Any]:
    """`changes` over `base`, group by group; anything else is replaced whole, and another choice drops its options."""
    merged = dict(base)
    if (
        "options" in base
        and "options" not in changes
        and any(base.get(k) != v for k, v in changes.items() if k in _NAMING)
    ):
        merged["options"] = {}
    for key, value in changes.items():
        field = model.model_fields.get(str(key))
        kind = field.annotation if field else None
        nested = isinstance(kind, type) and issubclass(kind, BaseModel)
        if nested and isinstance(value, Mapping) and isinstance(merged.get(key), dict):
            merged[key] = _merge(merged[key], value, kind)  # type: ignore[arg-type]
        else:
            merged[str(key)] = value
    return merged


def sentence(error: ValidationError, model: type[BaseModel] = Settings, prefix: str = "") -> str:
    """The first complaint of pydantic about a `model` as one sentence that names the setting and the nearest right one.

    `prefix` is what the names of its settings begin with.
    """
    first = error.errors(include_url=False)[0]
    parts = [str(part) for part in first["loc"] if isinstance(part, (str, int))]
    name = prefix + ".".join(part for part in parts if not part.startswith("constrained-"))  # one kind of several
    if first["type"] == "extra_forbidden":
        return f"setting {name} does not exist{_hint(name, tuple(setting_names(model, prefix)))}"
    if first["type"] == "literal_error":
        allowed = _choices(model, name.removeprefix(prefix))
        return f"setting {name} cannot be {first['input']!r}{_hint(str(first['input']), allowed)}"
    if first["type"] == "value_error":
        return f"setting {name}: {first['ctx']['error']}" if name else str(first["ctx"]["error"])
    complaint = first["msg"][0].lower() + first["msg"][1:]
    return f"setting {name} cannot be {first['input']!r}: {complaint}"


def _choices(model: Any, name: str) -> tuple[str, ...]:
    for part in name.split("."):
        model = get_args(model)[0] if part.isdigit() else model.model_fields[part].annotation
    return tuple(str(choice) for choice in get_args(model))


def _hint(wrong: str, right: tuple[str, ...]) -> str:
    """`"; did you mean X?"` with the most similar name, compared as a whole and by its last part."""

    def similarity(name: str) -> float:
        whole = difflib.SequenceMatcher(None, wrong, name).ratio()
        return max(whole, difflib.SequenceMatcher(None, wrong.split(".")[-1], name.split(".")[-1]).ratio() - 0.01)

    near = max(right, key=similarity)
    listing = f" (there are {', '.join(right)})" if len(right) < 12 else ""
    return f"; did you mean {near}?{listing}" if similarity(near) > 0.5 else listing or "; `calibrant info` lists them"
