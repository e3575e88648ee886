"""Records that keep the draws of some measures only."""

from __future__ import annotations

from calibrant.studies.measuring import lightened

CONTENT = {
    "at": [
        {"wanted": 1.0, "measures": {name: {"value": 0.5, "draws": [1, 2]} for name in ("ece", "auroc:a", "fpr95:a")}}
    ],
    "detectors": {"energy": {"auroc:a": {"value": 0.9, "draws": [3]}}},
}


def test_only_the_measures_that_are_named_keep_their_draws_and_all_keep_their_values() -> None:
    light = lightened(CONTENT, ("ece", "auroc"))
    measures = light["at"][0]["measures"]
    assert {name: found["draws"] for name, found in measures.items()} == {
        "ece": [1, 2],
        "auroc:a": [1, 2],
        "fpr95:a": [],
    }
    assert {found["value"] for found in measures.values()} == {0.5}
    assert light["detectors"] == {"energy": {"auroc:a": {"value": 0.9, "draws": []}}}


def test_without_names_everything_is_kept() -> None:
    assert lightened(CONTENT, None) is CONTENT
