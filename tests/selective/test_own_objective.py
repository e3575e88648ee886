"""An objective from outside: registered in one place, built by name, fitted, saved, and used by a run."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from calibrant import slots
from calibrant.config.dependence import identity
from calibrant.config.groups import SelectorSettings
from calibrant.config.loading import Settings
from calibrant.selective import SelectiveClassification, Selector, Training
from calibrant.selective.objectives import SelectorExamples, SelectorObjective, describe_objective
from calibrant.training.selecting import build_selector


@dataclass(frozen=True)
class SelectiveBrier(SelectorObjective):
    """sum_i g_i (c_i - r_i)^2 / sum_i g_i + weight (target - mean g)^2."""

    weight: float = 32.0
    target: float = 0.5

    def __call__(self, logits: Tensor, examples: SelectorExamples) -> Tensor:
        gate = logits.sigmoid()
        loss = (examples.correct - examples.confidence).square()
        return (gate * loss).sum() / gate.sum() + self.weight * (self.target - gate.mean()).square()


def brier(target: float = 0.5) -> SelectiveBrier:
    return SelectiveBrier(target=target)


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "_registered", dict(slots._registered))
    slots.register("objective", "selective_brier", version="2")(SelectiveBrier)
    slots.register("objective", "brier_made")(brier)


def draw(n: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    confidence = 0.5 + 0.5 * torch.rand(n, generator=generator)
    return confidence, torch.randn(n, 2, generator=generator), torch.rand(n, generator=generator) < confidence


@pytest.mark.parametrize("name", ["selective_brier", "brier_made"])
def test_it_is_built_by_name_fitted_and_restored(name: str) -> None:
    selector = Selector(name, target=0.4, training=Training(steps=30)).fit(*draw(300))
    assert selector.threshold(coverage=0.5).achieved == 0.5
    config = json.loads(json.dumps(selector.config()))
    assert (config["objective"], config["target"]) == (name, 0.4)
    rebuilt = Selector.from_state(config, selector.state_dict())
    fresh = draw(50, 1)[:2]
    assert torch.equal(rebuilt.ranked(*fresh), selector.ranked(*fresh))
    assert torch.equal(rebuilt.accept(*fresh), selector.accept(*fresh))
    assert rebuilt.objective == selector.objective


def test_a_run_takes_it_with_its_options() -> None:
    settings = SelectorSettings(objective="selective_brier", options={"weight": 8.0}, optimizer="lbfgs", hidden=16)
    selector = build_selector(settings, seed=3)
    assert selector.objective == SelectiveBrier(weight=8.0)
    assert (selector.hidden, selector.seed, selector.training_settings.optimizer) == (16, 3, "lbfgs")
    counted = identity(Settings(selector=settings))["selector"]
    assert counted["objective"] == "selective_brier@2"
    assert counted["options"] == {"weight": 8.0}


def test_the_settings_of_our_own_objectives_are_theirs_as_before() -> None:
    paper = build_selector(SelectorSettings(eta=0.5, width=0.3, group=8), seed=0)
    assert paper.config()["objective"] == "calibration"
    assert [paper.config()[name] for name in ("eta", "width", "variant", "group", "zeta")] == [0.5, 0.3, "paper", 8, 0]
    assert paper.training_settings == Training(weight_decay=1e-5)
    other = build_selector(SelectorSettings(objective="classification", target_coverage=0.7, penalty=2.0), seed=0)
    assert other.objective == SelectiveClassification(coverage=0.7, penalty=2.0)
    assert not {"options", "optimizer"} & set(identity(Settings())["selector"])


def test_what_does_not_fit_is_refused_in_one_sentence() -> None:
    with pytest.raises(ValueError, match="there is no objective 'calibratoin'; did you mean calibration"):
        SelectorSettings(objective="calibratoin")
    with pytest.raises(ValueError, match="objective selective_brier has no option 'eta'; it has weight, target"):
        build_selector(SelectorSettings(objective="selective_brier", options={"eta": 1.0}), seed=0)
    with pytest.raises(ValueError, match=r"options repeats coverage: set selector.target_coverage"):
        build_selector(SelectorSettings(objective="classification", options={"coverage": 0.1}), seed=0)
    with pytest.raises(ValueError, match=r"options repeats hidden: set selector.hidden"):
        build_selector(SelectorSettings(objective="selective_brier", options={"hidden": 3}), seed=0)
    with pytest.raises(ValueError, match=r"options repeats zeta: set selector.zeta"):
        build_selector(SelectorSettings(options={"zeta": 1.0}), seed=0)
    with pytest.raises(ValueError, match="so set 'eta' where it is made"):
        Selector(SelectiveBrier(), eta=0.1)

    class Nameless(SelectiveBrier):
        pass

    with pytest.raises(ValueError, match="Nameless, which has no name: register it"):
        describe_objective(Nameless())
    config = Selector("selective_brier").config()
    del slots._registered["objective", "selective_brier"]
    with pytest.raises(ValueError, match=r"there is no objective 'selective_brier'.*--plugin MODULE"):
        Selector.from_state(config, {})
