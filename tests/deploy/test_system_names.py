"""The page of several systems says what their names mean, and that of one system says nothing about several."""

from __future__ import annotations

from calibrant.config.schemes import Scheme
from calibrant.deploy.reporting import SYSTEM_NAMES, system_names


def test_the_parts_of_the_names_are_explained_as_far_as_there_are_such() -> None:
    (section,) = system_names(["FNN + trust", "FNN + temperature", *map(str, Scheme.all())])
    assert [sentence.partition(": ")[0] for sentence in section.sentences] == [part for part, _ in SYSTEM_NAMES]
    (section,) = system_names(["CBNN-OCM", "BNN"])
    assert [sentence.partition(": ")[0] for sentence in section.sentences] == ["BNN", "C...", "...-OCM"]
    assert section.folded


def test_nothing_is_said_of_one_system_or_of_names_that_are_not_ours() -> None:
    assert system_names(["SCBNN-OCM"]) == []
    assert system_names(["forest", "boosting"]) == []
