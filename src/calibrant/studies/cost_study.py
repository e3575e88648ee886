"""Parameters and multiply-adds of every row of the paper's table, and of the profile's own network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from calibrant.backbones import build, cost
from calibrant.files import read_entries
from calibrant.studies.lab import AGAIN, Lab, write_compact
from calibrant.studies.plan import BASES
from calibrant.studies.planning import Needs
from calibrant.studies.study import OCM, Figures, Study
from calibrant.studies.study_figures import bars
from calibrant.studies.study_table import Cell, StudyTable

# The paper's table: parameters in millions, "FLOPs" (multiply-adds) in billions, and the digits after the point.
PRINTED: dict[str, tuple[float, int, float, int]] = {
    **dict.fromkeys(("FNN", "CFNN", "FNN-OCM", "CFNN-OCM"), (2.25, 2, 0.3, 1)),
    **dict.fromkeys(("BNN", "CBNN", "BNN-OCM", "CBNN-OCM"), (4.5, 1, 0.34, 2)),
    "Selector": (0.005, 3, 0.001, 3),
}
PAPER_NETWORK = ("wrn-40-2", (3, 32, 32), 100)


def _network(name: str, shape: tuple[int, ...], classes: int) -> dict[str, Any]:
    """Costs of a backbone as FNN, as BNN, and of the selector behind it."""
    from calibrant.posteriors.mean_field import MeanField
    from calibrant.selective.network import SelectorNetwork

    network = build(name, shape, classes)
    plain = cost(network, torch.zeros(shape))
    bayesian = MeanField(network)
    own = sum(p.numel() for p in bayesian.parameters())
    selector = SelectorNetwork(5)
    selector.standard.fit(torch.randn(8, 5, generator=torch.Generator().manual_seed(0)))
    small = cost(selector, torch.zeros(5))
    drawn = own - plain.parameters  # one mean and one variance for each, so as many draws as the difference
    return {
        "network": f"{name} on {'x'.join(map(str, shape))}, {classes} classes",
        "F": {"parameters": plain.parameters, "multiply_adds": plain.multiply_adds},
        "B": {"parameters": own, "multiply_adds": plain.multiply_adds + drawn, "draw": drawn},
        "Selector": {"parameters": small.parameters, "multiply_adds": small.multiply_adds},
    }


def _path(lab: Lab) -> Path:
    return lab.results / "records" / "cost.json"


def _read(lab: Lab) -> dict[str, Any]:
    """Costs of the paper's network and of the profile's own."""
    counts = {"parameters": int, "multiply_adds": int}
    network = {"network": str, "F": counts, "B": {**counts, "draw": int}, "Selector": counts}
    return read_entries(_path(lab), {"paper": network, "own": network}, AGAIN)


def _prepare(lab: Lab) -> None:
    from calibrant.training.training_data import class_count, open_data

    data = open_data(lab.settings.data, lab.seeds[0])
    shape = tuple(data.train.take(torch.tensor([0]))[0].shape[1:])
    own = _network(lab.settings.backbone.name, shape, class_count(data.train))
    write_compact(_path(lab), {"paper": _network(*PAPER_NETWORK), "own": own})


def _rows(found: dict[str, Any], *, compare: bool) -> list[dict[str, Cell]]:
    rows = []
    for name in (*BASES, *OCM, "Selector"):
        part = found["Selector" if name == "Selector" else "B" if "BNN" in name else "F"]
        millions, billions = part["parameters"] / 1e6, part["multiply_adds"] / 1e9
        row: dict[str, Cell] = {"model": name, "parameters (M)": millions, "multiply-adds / member (G)": billions}
        if compare:
            p, p_digits, f, f_digits = PRINTED[name]
            row["printed parameters (M)"], row["printed FLOPs / member (G)"] = p, f
            wrong = [w for w, ok in (("parameters", agrees(millions, p, p_digits)),
                                     ("FLOPs", agrees(billions, f, f_digits))) if not ok]  # fmt: skip
            row["reproduces"] = "yes" if not wrong else f"no: {', '.join(wrong)}"
        rows.append(row)
    return rows


def agrees(value: float, printed: float, digits: int) -> bool:
    """Whether `value` is within 2 %, or within half a unit of the last printed digit.

    >>> agrees(0.327, 0.3, 1), agrees(0.329, 0.34, 2)
    (True, False)
    """
    return abs(value - printed) <= max(0.02 * printed, 0.5 * 10.0**-digits)


def _tables(lab: Lab) -> list[StudyTable]:
    record = _read(lab)
    draw = record["paper"]["B"]["draw"] / 1e9
    note = (
        f"{record['paper']['network']}. Multiply-adds by PyTorch's counter (which counts each as two operations), for"
        f" one member; drawing theta adds one for each Bayesian parameter ({draw:.4f} G), far from the"
        " 0.04 G between the printed rows of FNN and BNN. The selector's network needs thousands of multiply-adds, not"
        " the printed 0.001 G. Rows agree within 2 % or half a unit of the last printed digit."
    )
    own = StudyTable(_rows(record["own"], compare=False), "own-network", f"{record['own']['network']}.")
    return [StudyTable(_rows(record["paper"], compare=True), note=note), own]


def _figures(lab: Lab) -> Figures:
    record = _read(lab)["paper"]
    shown = {"FNN": record["F"], "BNN": record["B"], "Selector": record["Selector"]}
    return {
        "figure": bars(
            {
                "Parameters (millions)": {name: part["parameters"] / 1e6 for name, part in shown.items()},
                "Multiply-adds per member (billions)": {n: part["multiply_adds"] / 1e9 for n, part in shown.items()},
            }
        )
    }


def _needs(lab: Lab) -> Needs:
    return {}


STUDY = Study(
    "cost",
    "Parameters and multiply-adds",
    "Number of parameters and of multiply-adds per member of the ensemble, counted, beside the numbers in the paper.",
    _needs,
    _tables,
    _figures,
    lambda lab: [],
    _prepare,
)
