from __future__ import annotations

import numpy as np
import pytest

from calibrant.audit import AuditResult, audit
from calibrant.audit.gate import Condition
from calibrant.evaluation import Resampling


@pytest.fixture(scope="module")
def found() -> AuditResult:
    """Overconfident by about ten points, with OOD data that look alike, and a few that do not suffice."""
    rng = np.random.default_rng(0)
    sure = rng.uniform(0.6, 1, 500)
    table = {"confidence": sure, "correct": rng.random(500) < sure - 0.1}
    ood = {"far": {"confidence": sure[:200] - 0.3}, "few": {"confidence": sure[:5]}}
    return audit(table, ood, resampling=Resampling(resamples=50))


def test_conditions_are_compared_with_what_was_measured(found: AuditResult) -> None:
    ece = found.rows[0].ece.estimate
    assert found.failures(["ece > 0.5", "accuracy < 10%", f"ece > {ece!r}"]) == []
    (sentence,) = found.failures(["ece  >  0.05"])
    assert sentence.startswith(f"ece > 0.05: ece is {ece:.4g} (")
    assert found.failures([f"ece >= {ece!r}"])
    assert found.failures(["error > 1%", "accuracy<=100 %"])[1].startswith("accuracy<=100 %: accuracy is")


def test_a_coverage_that_was_not_measured_is(found: AuditResult) -> None:
    evaluation = found.evaluation
    cut = np.sort(evaluation.id.confidence)[::-1][449]
    wrong = 1 - evaluation.id.correct[evaluation.id.confidence >= cut].mean()
    (sentence,) = found.failures(["error@0.9 > 0.02"])
    assert f"is {wrong:.4g} (" in sentence
    assert sentence.endswith("at coverage 0.9")
    assert found.failures(["error@90% > 0.02"])[0].split(": ")[1] == sentence.split(": ")[1]


def test_the_interval_decides_on_request(found: AuditResult) -> None:
    value = found.rows[0].ece
    assert value.low < value.estimate < value.high
    above, below = f"ece > {(value.estimate + value.high) / 2}", f"ece > {(value.low + value.estimate) / 2}"
    assert [bool(found.failures([above], by)) for by in ("estimate", "any", "all")] == [False, True, False]
    assert [bool(found.failures([below], by)) for by in ("estimate", "any", "all")] == [True, True, False]
    assert found.failures([f"ece > {value.low / 2}"], "all")
    with pytest.raises(ValueError, match="by must be one of estimate, any, all, not 'bound'"):
        found.failures(["ece > 0"], "bound")  # type: ignore[arg-type]


def test_every_ood_set_counts_and_what_cannot_be_told_fails(found: AuditResult) -> None:
    failed = found.failures(["auroc < 0.2"])
    assert failed == ["auroc < 0.2: auroc is undefined against few, so the condition cannot be checked"]
    assert len(found.failures(["auroc > 0.2"])) == 2
    with pytest.raises(ValueError, match="is about OOD data; give some with --ood"):
        audit({"confidence": [0.7, 0.8], "correct": [1, 0]}).failures(["auroc < 0.9"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ece", "must read MEASURE > NUMBER.*measures are coverage, accuracy, ece"),
        ("ece > high", "must read"),
        ("ece = 0.05", "must read"),
        ("0.05 < ece", "must read"),
        ("ecce > 0.05", "there is no measure 'ecce'; did you mean ece.; there are"),
        ("error@0 > 0.05", "coverage after @"),
        ("error@90 > 0.05", "coverage after @"),
        ("", "must read"),
    ],
)
def test_a_condition_that_is_none_is_refused_in_one_sentence(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        Condition.parse(text)
    assert "\n" not in str(caught.value)
