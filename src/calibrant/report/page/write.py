"""Putting the page together: numbers, template, style and scripts in one file.

The charts are drawn by `charts.js`, which is our own: no library is needed to write or to read a page.
"""

from __future__ import annotations

import importlib.metadata
import json
import math
import platform
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from calibrant import InputError
from calibrant.evaluation import Evaluation, Row, by_system, summarize
from calibrant.metrics.declarations import catalogue
from calibrant.report.page.examples import Example
from calibrant.report.page.payload import page_payload
from calibrant.report.page.sections import Certified, Section, not_known
from calibrant.report.style import line_styles

SCRIPTS = ("charts.js", "numbers.js", "verdict.js", "tables.js", "page.js")  # one scope, in this order
LARGEST = 5_000_000
LONGEST_TEXT = 100_000
LONGEST_LEAD = 72
PACKAGES = {"calibrant": "calibrant", "torch": "torch", "numpy": "numpy", "scikit-learn": "sklearn"}
"""What a page may have been made with, and the module that is loaded if it was."""


def write_page(
    path: str | Path,
    evaluations: Sequence[Evaluation],
    *,
    title: str = "Calibration report",
    lead: str = "",
    notes: Sequence[str] = (),
    sections: Sequence[Section] = (),
    certificates: Mapping[str, Sequence[Certified]] | None = None,
    first: Sequence[str] = (),
    names: Mapping[str, str] | None = None,
    coverage: float = 0.8,
    tolerated_error: float | None = None,
    threshold_note: str = "",
    settings: Mapping[str, Any] | None = None,
    commands: Sequence[str] = (),
    images: Mapping[str, Any] | None = None,
    classes: Sequence[str] | None = None,
    examples: Mapping[str, Sequence[Example]] | None = None,
    summary: Sequence[Row] | None = None,
    bins: int = 15,
) -> Path:
    """Write one HTML file, under 5 MB, that shows the evaluations; returns its path.

    Args:
        path: the file.
        evaluations: what is shown.
        title: its heading.
        lead: one sentence below the title that says what was done.
        notes: findings in sentences, shown behind the verdict.
        sections: more sections, such as remedies, slices and classes.
        certificates: by system, what was certified, one entry per seed.
        first: the systems that are compared at first, the one that the page is about before its baselines; by
            default the last system of `evaluations` and the first.
        names: what to call the data sets, by "id" or the name of an OOD set, as `{"id": "digits"}`; OOD sets are shown
            in this order.
        coverage: the page opens at the threshold that was certified; if there is none at the largest coverage with at
            most `tolerated_error` wrong answers, where that is given; else at this coverage.
        tolerated_error: see `coverage`.
        threshold_note: what the threshold of the verdict is for, in a sentence below it.
        settings: JSON values: how the results came about.
        commands: the same, as command lines.
        images: by "id" or the name of an OOD set, an array or data set whose entry i is the image of row i.
        classes: names of the classes.
        examples: by system, inputs to show instead of those that the page picks itself.
        summary: the rows of `summarize`, if they are at hand.
        bins: number of confidence bins.
    """
    rows = list(summarize(evaluations, bins=bins) if summary is None else summary)
    called = {"id": "inputs", **(names or {})}
    chosen = _first(list(by_system(evaluations)), first)
    ordered = sorted(evaluations, key=lambda one: chosen.index(one.system) if one.system in chosen else len(chosen))
    styles = line_styles(list(by_system(ordered)))
    payload = page_payload(ordered, styles, bins=bins, images=images or {}, classes=classes, rows=examples, names=names)
    payload |= {"table": [row.flat() for row in rows], "shown": chosen, "names": called}
    payload |= {"start": {"coverage": coverage, "error": tolerated_error}, "certificates": _promises(certificates)}
    content = _render(
        title=title,
        lead=lead,
        threshold_note=threshold_note,
        notes=list(notes),
        sections=[section.described() for section in sections],
        unknown=not_known(evaluations, called),
        rows=[_table_row(row, payload["measures"]) for row in payload["table"]],
        payload=payload,
        facts=_facts(evaluations, called),
        settings=_text(settings),
        commands=list(commands),
        versions=_versions(),
    )
    from calibrant.files import write_bytes

    encoded = content.encode()
    if len(encoded) > LARGEST:
        raise InputError(f"the page would have {len(encoded):,} bytes, more than 5 MB; give fewer systems or OOD sets")
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
    environment.filters |= {"tied": _tied, "led": _led}
    return environment.get_template("template.html").render(
        **context,
        payload=payload,
        data=_json(payload),
        style=(folder / "page.css").read_text(encoding="utf-8"),
        script="".join((folder / name).read_text(encoding="utf-8") for name in SCRIPTS),
    )


def _tied(text: str) -> str:
    """`text`, in which no line begins with the percent sign of a number."""
    return re.sub(r"(?<=\d) (?=%)", "\u00a0", text)


def _led(text: str) -> Any:
    """`text` as HTML, where what stands before a colon near its beginning, the point of the sentence, is bold.

    >>> print(_led("Recalibrate <b>: the ECE falls"))
    <b>Recalibrate &lt;b&gt;:</b> the ECE falls
    """
    from markupsafe import Markup

    head, colon, rest = _tied(text).partition(": ")
    return Markup("<b>{}:</b> {}").format(head, rest) if colon and len(head) <= LONGEST_LEAD else _tied(text)


def _json(value: Any) -> str:
    """JSON that cannot end the script element it stands in."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"), ensure_ascii=True)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _first(systems: list[str], wanted: Sequence[str]) -> list[str]:
    """The systems that are compared at first."""
    unknown = [name for name in wanted if name not in systems]
    if unknown:
        raise InputError(f"first names {unknown[0]!r}, of which there is no evaluation; there are {', '.join(systems)}")
    return list(dict.fromkeys(wanted or (systems[-1], systems[0])))


def _promises(certificates: Mapping[str, Sequence[Certified]] | None) -> dict[str, list[dict[str, Any]]]:
    return {name: [one.described() for one in some] for name, some in (certificates or {}).items()}


def _table_row(row: Mapping[str, Any], columns: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One line of the table for browsers without scripts."""
    known, cells = catalogue(), []
    for column in columns:
        text, limits = known[column["name"]].text, [row[f"{column['name']}_{end}"] for end in ("low", "high")]
        value = row[column["name"]]
        wide = None not in limits and limits[0] < limits[1]
        small = f"{text(limits[0])} to {text(limits[1])}" if wide else ""
        if value is not None and None not in limits:
            value = min(max(value, limits[0]), limits[1])
        cells.append({"text": text(math.nan if value is None else value), "small": small})
    return {"system": row["system"], "coverage": row["wanted_coverage"], "ood": row["ood"] or "", "cells": cells}


def _facts(evaluations: Sequence[Evaluation], names: Mapping[str, str]) -> list[tuple[str, str]]:
    """What the numbers are of: name and value; of one system or one seed nothing is counted."""
    first = evaluations[0]
    systems, seeds = len(by_system(evaluations)), sorted({one.seed for one in evaluations})
    facts = [("Systems", f"{systems}")] if systems > 1 else []
    facts += [("Seeds", ", ".join(map(str, seeds)))] if len(seeds) > 1 else []
    facts.append(("Test inputs", f"{first.id.total:,}"))
    facts += [(f"Outliers, {names.get(name, name)}", f"{outcome.total:,}") for name, outcome in first.ood.items()]
    if first.validation is not None:
        facts.append(("Validation inputs, which set the thresholds", f"{first.validation.total:,}"))
    else:
        facts.append(("Thresholds", "set on the test inputs themselves"))
    known = [(str(key), value) for key, value in first.metadata.items() if isinstance(value, str | int | float)]
    facts += [(key[:1].upper() + key[1:], str(value)) for key, value in known]
    return facts


def _text(settings: Mapping[str, Any] | None) -> str:
    if not settings:
        return ""
    import yaml

    text = str(yaml.safe_dump(dict(settings), sort_keys=False, allow_unicode=True))
    return text if len(text) <= LONGEST_TEXT else text[:LONGEST_TEXT] + "\n(cut here: more than 100,000 characters)"


def _versions() -> list[tuple[str, str]]:
    found = [(name, _version(name)) for name, module in PACKAGES.items() if module in sys.modules]
    return [("Python", platform.python_version()), *((name, version) for name, version in found if version)]


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""
