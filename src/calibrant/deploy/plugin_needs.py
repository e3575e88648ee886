"""What a saved predictor needs of plugins: named when it is saved, asked for in one sentence when it is read.

A calibrator is recorded with its own entry. A posterior family is not needed: the members are saved in full.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from calibrant.slots import names, recorded, registration, required


def plugin_needs(record: Mapping[str, Any]) -> dict[str, Any]:
    """`{"plugins": [...]}`: kind, name and module of what the `record` of a predictor names; {} where all is ours."""
    scores = (record["outliers"] or {}).get("scores", ())
    named = [("detector", name) for name in (*scores, record["ood_score"]) if name in names("detector")]
    objective = (record["selector"] or {}).get("objective")
    named += [("objective", objective)] if objective is not None else []
    found = {(kind, name): registration(kind, name) for kind, name in named}
    entries = [{"kind": key[0], **recorded(key[0], known.item)} for key, known in found.items() if known.plugin]
    return {"plugins": entries} if entries else {}


def check_plugins(record: Mapping[str, Any]) -> None:
    """Refuse a predictor whose plugins are not loaded; nothing is imported."""
    for entry in record.get("plugins", ()):
        required(str(entry["kind"]), str(entry["name"]), str(entry["module"]))
