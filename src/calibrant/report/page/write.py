"""Putting the page together: numbers, charts, template, one file."""

from __future__ import annotations

import importlib.metadata
import json
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from calibrant.evaluation import Evaluation, Row, by_system, summarize
from calibrant.evaluation.summary import MISSING
from calibrant.metrics.declarations import catalogue
from calibrant.report.page.charts import chart_specs, javascript
from calibrant.report.page.examples import Example
from calibrant.report.page.payload import page_payload
from calibrant.report.style import line_styles

LARGEST = 5_000_000
LONGEST_TEXT = 100_000
PAPER_CHOICE = ("FNN", "CFNN", "BNN", "CBNN", "SFNN", "SBNN-OCM", "SCBNN-OCM")
MOST_SHOWN = 8
RISK = {"name": "risk", "title": "Error rate of the accepted (risk)", "unit": "percent", "ood": False}


def write_page(
    path: str | Path,
    evaluations: Sequence[Evaluation],
    *,
    title: str = "Calibration report",
    notes: Sequence[str] = (),
    settings: Mapping[str, Any] | None = None,
    commands: Sequence[str] = (),
    images: Mapping[str, Any] | None = None,
    classes: Sequence[str] | None = None,
    examples: Mapping[str, Sequence[Example]] | None = None,
    summary: Sequence[Row] | None = None,
    bins: int = 15,
) -> Path:
    """Write one HTML file, under 5 MB, that shows the evaluations; returns its path.

    `notes`: sentences for the top. `settings` (JSON values) and `commands`: how the results came about. `images`: by
    "id" or the name of an OOD set, an array or data set whose entry i is the image of row i. `classes`: names of the
    classes. `examples`: by system, inputs to show instead of those that the page picks itself. `summary`: the rows of
    `summarize`, if they are at hand.
    """
    rows = list(summarize(evaluations, bins=bins) if summary is None else summary)
    styles = line_styles(list(by_system(evaluations)))
    payload = page_payload(evaluations, styles, bins=bins, images=images or {}, classes=classes, rows=examples)
    payload["table"] = [row.flat() for row in rows]
    drawn = [one for one in payload["measures"] if one["slides"] and one["counted"] != "id"]  # coverage is the x-axis
    payload["curves"] = [*drawn, RISK]
    payload["charts"] = chart_specs(styles, payload["curves"], ood=bool(payload["ood"]))
    payload["shown"] = _shown(list(styles))
    content = _render(
        title=title,
        notes=list(notes),
        rows=[_table_row(row, payload["measures"]) for row in rows],
        payload=payload,
        facts=_facts(evaluations),
        settings=_text(settings),
        commands=list(commands),
        versions=_versions(),
    )
    from calibrant.files import write_bytes

    encoded = content.encode()
    if len(encoded) > LARGEST:
        raise ValueError(f"the page would have {len(encoded):,} bytes, more than 5 MB; give fewer systems or OOD sets")
    write_bytes(Path(path), encoded)
    return Path(path)


def _render(*, payload: Mapping[str, Any], **context: Any) -> str:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    folder = Path(__file__).parent
    environment = Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("template.html").render(
        **context,
        payload=payload,
        data=_json(payload),
        style=(folder / "page.css").read_text(encoding="utf-8"),
        script=(folder / "page.js").read_text(encoding="utf-8"),
        vega=javascript(),
    )


def _json(value: Any) -> str:
    """JSON that cannot end the script element it stands in."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"), ensure_ascii=True)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _table_row(row: Row, columns: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    known, cells = catalogue(), []
    for column in columns:
        interval, text = row.measures.get(column["name"], MISSING), known[column["name"]].text
        limits = f"{text(interval.low)} to {text(interval.high)}" if interval.low < interval.high else ""
        count = f"{row.accepted_ood:,} of {row.n_ood:,}" if column["counted"] == "ood" and row.ood else ""
        value = "" if interval.estimate != interval.estimate else repr(interval.estimate)
        cells.append({"value": value, "text": text(interval.shown), "limits": limits, "count": count})
    return {"system": row.system, "coverage": row.wanted_coverage, "ood": row.ood or "", "cells": cells}


def _shown(names: list[str]) -> list[str]:
    """The systems drawn at first: all, or of many the paper's choice, or the first few."""
    if len(names) <= MOST_SHOWN:
        return names
    chosen = [name for name in names if name in PAPER_CHOICE]
    return chosen if len(chosen) > 2 else names[:MOST_SHOWN]


def _facts(evaluations: Sequence[Evaluation]) -> list[tuple[str, str]]:
    """What the numbers are of: name and value."""
    first = evaluations[0]
    seeds = sorted({one.seed for one in evaluations})
    facts = [("Systems", f"{len(by_system(evaluations))}"), ("Seeds", ", ".join(map(str, seeds)))]
    facts.append(("ID test inputs", f"{first.id.total:,}"))
    facts += [(f"OOD inputs, {name}", f"{outcome.total:,}") for name, outcome in first.ood.items()]
    if first.validation is not None:
        facts.append(("Validation inputs, which set the thresholds", f"{first.validation.total:,}"))
    else:
        facts.append(("Thresholds", "set on the ID test inputs themselves"))
    facts += [(str(key), str(value)) for key, value in first.metadata.items() if isinstance(value, str | int | float)]
    return facts


def _text(settings: Mapping[str, Any] | None) -> str:
    if not settings:
        return ""
    import yaml

    text = str(yaml.safe_dump(dict(settings), sort_keys=False, allow_unicode=True))
    return text if len(text) <= LONGEST_TEXT else text[:LONGEST_TEXT] + "\n(cut here: more than 100,000 characters)"


def _versions() -> list[tuple[str, str]]:
    packages = ("calibrant", "torch", "numpy", "scikit-learn", "altair")
    installed = {one.metadata["Name"]: one.version for one in importlib.metadata.distributions(name=None)}
    return [("Python", platform.python_version()), *((name, installed[name]) for name in packages if name in installed)]
