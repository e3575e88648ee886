"""A measure is declared once: what the catalogue says of it, what it refuses, and what the docs list."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import calibrant
from calibrant.metrics import declarations
from calibrant.metrics.declarations import catalogue

DOCS = Path(__file__).resolve().parents[2] / "docs" / "measures.md"
OF_0_1_0 = ["coverage", "accuracy", "ece", "aurc", "ood_acceptance", "detection", "detection_corrected"]
OF_0_1_0 += ["system_rate", "system_rate_corrected", "auroc", "fpr95"]


@pytest.fixture
def declared(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test declares is forgotten after it."""
    catalogue()
    monkeypatch.setattr(declarations, "_declared", dict(declarations._declared))


def test_the_columns_of_0_1_0_come_first_in_their_order() -> None:
    assert list(catalogue())[: len(OF_0_1_0)] == OF_0_1_0


def test_every_measure_is_described() -> None:
    for measure in catalogue().values():
        assert measure.label
        assert measure.sentence
        assert measure.weighted
        assert measure.bounds == (0.0, 1.0)
        assert set(measure.described()) >= {"name", "label", "direction", "unit", "sentence", "of"}
    labels = [(measure.label, measure.ood) for measure in catalogue().values()]
    assert len(set(labels)) == len(labels)


def test_the_docs_list_what_is_declared() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.+?) \| (.+?) \| (.+?) \| (.+?) \|$", DOCS.read_text(), re.MULTILINE)
    arrows = {"higher": "higher", "lower": "lower", "neither": "–"}
    expected = [(m.name, m.label, arrows[m.direction], m.of, m.sentence) for m in catalogue().values()]
    assert rows == expected


@pytest.mark.usefixtures("declared")
def test_a_measure_from_outside_is_appended() -> None:
    @calibrant.measure("median", "higher", "number", "median confidence of the accepted ID inputs", name="middle")
    def median(confidence: np.ndarray) -> float:
        return float(np.median(confidence))

    assert list(catalogue())[-1] == "middle"
    found = catalogue()["middle"]
    assert (found.weighted, found.at_coverage, found.ood, found.text(1.23456)) == (False, True, False, "1.235")
    assert median(np.array([1.0, 2.0, 4.0])) == 2.0


@pytest.mark.usefixtures("declared")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"direction": "up"}, "direction must be one of higher, lower, neither, not 'up'"),
        ({"unit": "%"}, "unit must be one of percent, number"),
        ({"of": "ID"}, "of must be one of accepted ID, all ID"),
        ({"show": "never"}, "show must be one of terminal"),
        ({"name": "ece"}, "measure 'ece' is declared by calibrant.metrics.calibration; choose another name"),
        ({"name": "accepted_ood"}, "name must be an identifier that no table uses itself"),
        ({"of": "all ID and OOD"}, "a measure of all ID and OOD has no argument 'confidence'; there are id_confidence"),
    ],
)
def test_wrong_declarations_are_refused_in_one_sentence(change: dict[str, str], message: str) -> None:
    given = {"label": "x", "direction": "lower", "unit": "percent", "sentence": "x", "name": "x", **change}
    with pytest.raises(ValueError, match=re.escape(message)):
        calibrant.measure(**given)(lambda confidence: 0.0)  # type: ignore[arg-type]


@pytest.mark.usefixtures("declared")
def test_a_function_that_takes_what_nobody_has_is_refused() -> None:
    with pytest.raises(ValueError, match="has no argument 'weather'"):

        @calibrant.measure("x", "lower", "percent", "x")
        def wet(confidence: np.ndarray, weather: np.ndarray) -> float:
            return 0.0

    with pytest.raises(ValueError, match="needs an argument"):

        @calibrant.measure("x", "lower", "percent", "x")
        def empty() -> float:
            return 0.0
