"""Which answers can be trusted: rules on one network, with outliers of kinds that nothing was fitted to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from calibrant.metrics import Interval
from calibrant.studies.lab import Lab, MissingRecord, combine
from calibrant.studies.planning import Needs
from calibrant.studies.records import find_record, read_record, write_record
from calibrant.studies.study import Figures, Study, interval_note
from calibrant.studies.study_figures import reliability_grid, rule_points
from calibrant.studies.study_table import Cell, StudyTable
from calibrant.studies.trust_measuring import COVERAGES, SHARES, UNSEEN, measure_systems, stream_ece, wrong

BASELINE, DEFAULT = "temperature + confidence", "trust"
NAMES = (
    "confidence",
    BASELINE,
    "SFNN",
    "SCBNN-OCM",
    "SIRC",
    DEFAULT,
    "trust, 20 outliers",
    "trust, synthetic outliers",
    "trust, share estimated",
    "trust, 10 % assumed",
    "trust, 50 % assumed",
    "trust, confidence after OCM",
    "trust, smaller confidence",
    "trust, chosen confidence",
)


def record_path(lab: Lab, system: str) -> Path:
    """The file of the record of `system`."""
    slug = "".join(letter if letter.isalnum() else "-" for letter in system.partition(" (")[0].lower())
    return lab.results / "records" / f"trust_{slug}_seed-{lab.seeds[0]}.parquet"


def _prepare(lab: Lab) -> None:
    for name, content in measure_systems(lab):
        write_record(record_path(lab, name), content)


def _records(lab: Lab) -> dict[str, dict[str, Any]]:
    """The records by the name of the system, those that are there."""
    paths = {name: find_record(record_path(lab, name)) for name in NAMES}
    found = {name: read_record(path) for name, path in paths.items() if path is not None}
    if DEFAULT not in found or BASELINE not in found:
        raise MissingRecord(f"{record_path(lab, DEFAULT)} is missing: the study has not been run to its end")
    return {record["system"]: record for record in found.values()}


def _entry(record: Mapping[str, Any], coverage: float, measure: str) -> dict[str, Any]:
    at = next(one for one in record["at"] if abs(one["wanted"] - coverage) < 1e-9)
    return dict(at["measures"][measure])


def _interval(lab: Lab, record: Mapping[str, Any], coverage: float, measure: str) -> Interval:
    level = lab.settings.report.confidence_level
    return combine([_entry(record, coverage, measure)]).interval(level, (0.0, 1.0))


def _main_row(lab: Lab, name: str, record: Mapping[str, Any], coverage: float) -> dict[str, Cell]:
    row: dict[str, Cell] = {"system": name}
    for share in reversed(SHARES):
        label = f"wrong, {round(100 * share)} % outliers" if share else "wrong, no outliers"
        row[label] = _interval(lab, record, coverage, wrong(share, UNSEEN))
    for share in reversed(SHARES):
        label = f"ECE, {round(100 * share)} % outliers" if share else "ECE, no outliers"
        row[label] = _interval(lab, record, 1.0, stream_ece(share, UNSEEN))
    row["ID coverage"] = _interval(lab, record, coverage, "coverage")
    at = next(one for one in record["at"] if one["wanted"] == coverage)
    for ood, size in record["sizes"].items():
        if ood != "test":
            row[f"accepted of {size} {ood}"] = at["accepted"][ood]
    return row


def _every_row(lab: Lab, name: str, record: Mapping[str, Any]) -> list[dict[str, Cell]]:
    rows = []
    kinds = [*(ood for ood in record["sizes"] if ood != "test"), UNSEEN]
    for coverage in COVERAGES:
        for share in SHARES:
            for kind in kinds if share else [UNSEEN]:
                row: dict[str, Cell] = {"system": name, "coverage": coverage, "share": share}
                row["outliers"] = kind if share else "none"
                row["wrong"] = _interval(lab, record, coverage, wrong(share, kind))
                row["stream ECE"] = _interval(lab, record, 1.0, stream_ece(share, kind))
                rows.append(row)
    return rows


def _goal_rows(lab: Lab, records: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Cell]]:
    """The goals for the default at coverage 0.8, each with its paired interval and whether it is met."""
    level = lab.settings.report.confidence_level
    rows: list[dict[str, Cell]] = []
    for name in (DEFAULT, "trust, 20 outliers", "trust, synthetic outliers", "trust, share estimated"):
        if name not in records:
            continue
        ours, base = records[name], records[BASELINE]
        for share in reversed(SHARES):
            pair = [combine([_entry(one, 0.8, wrong(share, UNSEEN))]) for one in (ours, base)]
            ratio = (pair[0] / pair[1]).interval(level, (0.0, np.inf))
            difference = (pair[0] - pair[1]).interval(level, (-1.0, 1.0))
            met = ratio.estimate <= 0.75 if share == 0.5 else difference.low <= 0
            ece = _interval(lab, ours, 1.0, stream_ece(share, UNSEEN))
            goal = "at most 0.75 of the baseline's, ECE under 5 %" if share == 0.5 else "not worse beyond the interval"
            met = met and (share != 0.5 or ece.estimate < 0.05)
            row: dict[str, Cell] = {"system": name, "outliers": f"{round(100 * share)} %", "goal": goal}
            row["ratio of wrong answers"] = f"{ratio.estimate:.2f} [{ratio.low:.2f}, {ratio.high:.2f}]"
            row["difference"], row["stream ECE"], row["met"] = difference, ece, "yes" if met else "no"
            rows.append(row)
    return rows


def _tables(lab: Lab) -> list[StudyTable]:
    records = _records(lab)
    first = records[DEFAULT]
    note = (
        f"Wrong answers among those given at an ID coverage of 80 % (threshold from validation data), and the ECE of"
        f" all inputs together, in streams with that share of outliers; an answer to an outlier is wrong. Outliers are"
        f" of kinds that nothing was fitted to, in equal parts: {', '.join(first['unseen'])}. Trust assumes the true"
        f" share unless said otherwise. {interval_note(lab)}"
    )
    shares = [
        {"stream": row["stream"], "true share": row["share"], "estimated": row["estimate"]}
        for row in first["estimates"]
    ]
    return [
        StudyTable([_main_row(lab, name, record, 0.8) for name, record in records.items()], note=note),
        StudyTable(_goal_rows(lab, records), "goals", "Against temperature scaling and a threshold on the confidence."),
        StudyTable([row for name, record in records.items() for row in _every_row(lab, name, record)], "all"),
        StudyTable(shares, "shares", "The share of outliers, estimated from the stream without labels by trust."),
    ]


def _figures(lab: Lab) -> Figures:
    records = _records(lab)
    shown: Sequence[str] = (BASELINE, DEFAULT)
    diagrams = {name: records[name]["diagram"] for name in shown}
    return {
        "figure": rule_points({name: records[name]["points"] for name in shown}),
        "reliability": reliability_grid(
            diagrams,
            {name: records[name]["diagram"]["right"] for name in shown},
            lab.settings.report.min_bin_count,
            width=3.7,
        ),
    }


def _needs(lab: Lab) -> Needs:
    return {}


STUDY = Study(
    "trust",
    "Which answers can be trusted",
    "Rules on one network at equal coverage of the ID data, in streams with outliers that nothing was fitted to:"
    " where each accepts, at 80 % coverage, and reliability in a stream of which half are such outliers.",
    _needs,
    _tables,
    _figures,
    lambda lab: [],
    _prepare,
)
