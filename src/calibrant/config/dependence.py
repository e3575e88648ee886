"""What a result depends on: one answer for the keys of stages, the records of studies, runs that resume, and sweeps.

Finished results are found again by the hash of what they depend on, so growing the library must not change it:

- A setting of 0.1.0 (`FIRST`) always counts.
- A setting that was added later counts only where its value is not the one that it was introduced with: its default
  or, if that has changed since, the value in `INTRODUCED`. Adding a setting therefore needs no entry here.
- A renamed value counts under the name it had before (`RENAMED`), and is read under either name.
- A plugin counts by name, options and version (`NAMED`).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Mapping
from typing import Any

from pydantic import BaseModel

from calibrant.slots import counted

FORMAT = 1
_OPTIMIZER = (
    "epochs batch_size optimizer rate rho_rate momentum nesterov weight_decay clip_norm schedule step_every step_factor"
    " final_fraction warmup extra_step validate_every"
)
FIRST: Mapping[str, Collection[str]] = {
    group: frozenset(names.split())
    for group, names in {
        "": "profile seed",
        "data": "source uncertainty ood root train validation test uncertainty_size splits uncertainty_splits"
        " normalize",
        "augmentation": "padding flip",
        "backbone": "name feature_layer",
        "posterior": "beta prior_std init_std draws members validation_members",
        "calibration": "regularizer options weight replaces_cross_entropy share gather grid max_accuracy_drop",
        "fit": _OPTIMIZER,
        "finetune": f"{_OPTIMIZER} gamma outlier_batch_size examples_per_epoch beta_factor kl_examples",
        "outliers": "scores neighbors trees max_points average",
        "selector": "objective variant eta width group target_coverage penalty hidden rate weight_decay steps"
        " batch_size holdout views coverage threshold",
        "report": "bins min_bin_count confidence_level resamples",
        "engine": "device precision compile fuse channels_last checkpoint_seconds checkpoint_steps predict_batch_size"
        " tensorboard",
    }.items()
}
INTRODUCED: Mapping[str, Any] = {}
# Settings that name something in a slot, and the kind of the slot: a plugin counts with its version.
NAMED: Mapping[str, str] = {
    "calibration.regularizer": "regularizer",
    "calibrator.name": "calibrator",
    "outliers.scores": "detector",
    "posterior.family": "posterior",
    "rule.detectors": "detector",
    "rule.synthesizers": "synthesizer",
    "selector.objective": "objective",
}
# Which name a source: NAME, NAME:PATH, NAME?OPTION=VALUE.
SPECS = ("data.source", "data.uncertainty", "data.ood", "data.test_source")
# Setting: {value now: value before}.
RENAMED: Mapping[str, Mapping[Any, Any]] = {"selector.variant": {"paper": "printed", "authors_code": "published"}}


def identity(settings: BaseModel) -> dict[str, Any]:
    """All that counts of `settings`, group by group, as JSON values.

    >>> from calibrant.config.loading import Settings
    >>> counted = identity(Settings())
    >>> counted["augmentation"], counted["selector"]["variant"]
    ({'padding': 4, 'flip': True}, 'printed')
    >>> "bandwidth" in counted["outliers"]  # it came after 0.1.0, and has its default
    False
    """
    content = _counted(settings, "")
    content.pop("plugins", None)  # what a plugin brings counts where it is named
    for name in type(settings).model_fields:
        group = getattr(settings, name)
        if isinstance(group, BaseModel):
            content[name] = _counted(group, name)
    return {name: value for name, value in content.items() if value != {} or name in FIRST}


def _counted(group: BaseModel, path: str) -> dict[str, Any]:
    """The settings of one group; those that are groups themselves are left to the caller at the top."""
    content = {}
    for name, value in group.model_dump(mode="json").items():
        dotted = f"{path}.{name}".lstrip(".")
        if not path and isinstance(getattr(group, name), BaseModel):
            continue
        default = type(group).model_fields[name].get_default(call_default_factory=True)
        if name in FIRST.get(path, ()) or value != INTRODUCED.get(dotted, _plain(default)):
            content[name] = _before(dotted, value)
    return content


def _before(dotted: str, value: Any) -> Any:
    if dotted in NAMED:
        kind = NAMED[dotted]
        if isinstance(value, list):
            return [counted(kind, name) for name in value]
        return None if value is None else counted(kind, value)
    if dotted in SPECS:
        return [_spec(one) for one in value] if isinstance(value, list) else _spec(value)
    names = RENAMED.get(dotted)
    return names.get(value, value) if names else value


def _spec(spec: str | None) -> str | None:
    """`spec` with the version of the plugin that its source is from, if it is from one."""
    if spec is None:
        return None
    name = re.split("[:?]", spec, maxsplit=1)[0]
    return counted("source", name) + spec[len(name) :]


def _plain(value: Any) -> Any:
    """`value` as JSON would read it back."""
    value = value.model_dump(mode="json") if isinstance(value, BaseModel) else value
    return json.loads(json.dumps(value))


def renamed(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as they were written (`{"selector": {"variant": "printed"}}`) with the values' names of today."""
    result = dict(changes)
    for dotted, names in RENAMED.items():
        group, _, name = dotted.partition(".")
        written = result.get(group)
        if isinstance(written, Mapping) and name in written:
            now = {before: value for value, before in names.items()}
            result[group] = {**written, name: now.get(written[name], written[name])}
    return result


def key(content: Mapping[str, Any]) -> str:
    """The hash of what determines a result: equal content, equal key, whatever the order.

    >>> key({"a": 1, "b": 2}) == key({"b": 2, "a": 1}) != key({"a": 1, "b": 3})
    True
    """
    text = json.dumps({"format": FORMAT, **content}, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def first_difference(here: Mapping[str, Any], there: Mapping[str, Any]) -> tuple[str, Any, Any] | None:
    """The first setting, by its dotted name, that differs, and its values here and there; None where all are equal.

    >>> first_difference({"fit": {"rate": 0.1, "epochs": 3}}, {"fit": {"rate": 0.2, "epochs": 3}})
    ('fit.rate', 0.1, 0.2)
    """
    for name in dict.fromkeys([*here, *there]):
        one, other = here.get(name), there.get(name)
        if isinstance(one, Mapping) or isinstance(other, Mapping):  # a group without anything that counts is left out
            one, other = one or {}, other or {}
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            inner = first_difference(one, other)
            if inner is not None:
                return f"{name}.{inner[0]}", *inner[1:]
        elif one != other:
            return name, one, other
    return None
