def test_every_measure_is_missing_and_none_fails_where_nothing_is_accepted() -> None:
    """A threshold from validation data may lie above everything that is tested."""
    from calibrant.evaluation import Evaluation, coverage_curves
    from calibrant.predictions import Predictions

    sure = Predictions([0.99] * 20, [0] * 20, [0] * 20).numpy()
    unsure = Predictions([0.4 + 0.01 * k for k in range(20)], [0] * 20, [k % 2 for k in range(20)]).numpy()
    (curve,) = coverage_curves([Evaluation("a", 0, unsure, {"far": unsure}, validation=sure)], [0.5, 1.0], bins=5)
    assert len(curve.coverages) == 2
