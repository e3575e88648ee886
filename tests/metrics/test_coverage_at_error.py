"""Coverage at a tolerated error, against trying every threshold."""

import numpy as np
import pytest

from calibrant import metrics


@pytest.mark.parametrize("error", [0.001, 0.05, 0.2, 1.0])
@pytest.mark.parametrize("seed", range(4))
def test_it_is_the_best_of_all_thresholds(error: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    acceptance = np.round(rng.random(80), 1 + seed % 2)
    correct = rng.random(80) < acceptance
    best = 0.0
    for threshold in acceptance:
        kept = acceptance >= threshold
        if (~correct[kept]).mean() <= error:
            best = max(best, kept.mean())
    assert metrics.coverage_at_error(acceptance, correct, error=error) == pytest.approx(best)


def test_it_inverts_the_error_at_a_coverage() -> None:
    rng = np.random.default_rng(0)
    acceptance = rng.random(200)
    correct = rng.random(200) < acceptance
    covered = metrics.coverage_at_error(acceptance, correct, error=0.15)
    curve = metrics.risk_coverage(acceptance, correct)
    assert metrics.selective_risk(acceptance, correct, [covered])[0] <= 0.15
    assert (curve.risk[curve.coverage > covered + 1e-9] > 0.15).all()


def test_nothing_and_bad_input() -> None:
    assert metrics.coverage_at_error([0.9, 0.1], [0, 1], error=0.1) == 0
    with pytest.raises(ValueError, match="error must lie in"):
        metrics.coverage_at_error([0.9], [1], error=2)
