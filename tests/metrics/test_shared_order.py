"""Measures of the same arrays share what they sum up, and give what they give alone."""

from __future__ import annotations

import numpy as np

from calibrant.metrics import auroc, fpr_at_tpr
from calibrant.metrics.functional import Array, functional_of
from calibrant.metrics.ordering import MOST_SHARED, Ordered, shared


def test_the_last_result_is_given_again_for_the_same_weights_only() -> None:
    made, called = [], []

    @shared
    def total(values: Array) -> Ordered:
        made.append(len(values))

        def under(weights: Array) -> tuple[Array, ...]:
            called.append(len(weights))
            return (weights @ values,)

        return under

    values, weights = np.arange(5.0), np.ones((2, 5))
    first = total(values)(weights)
    assert total(values.copy())(weights)[0] is first[0]
    assert (made, called) == ([5], [2])
    np.testing.assert_array_equal(total(values)(weights.copy())[0], first[0])
    assert called == [2, 2]
    assert total(values + 1)(weights)[0].tolist() == [15, 15]
    long = np.zeros(MOST_SHARED + 1)
    assert total(long) is not total(long)


def test_two_measures_of_the_same_scores_are_what_each_is_alone() -> None:
    rng = np.random.default_rng(0)
    inside, outside = rng.normal(size=300).round(1), rng.normal(1, size=200).round(1)
    weights = rng.integers(0, 3, (9, 300)).astype(float), rng.integers(0, 3, (9, 200)).astype(float)
    together = [functional_of(measure, inside, outside).under(*weights) for measure in (auroc, fpr_at_tpr)]
    for measure, values in zip((auroc, fpr_at_tpr), together):
        alone = [measure(np.repeat(inside, w.astype(int)), np.repeat(outside, v.astype(int))) for w, v in zip(*weights)]
        np.testing.assert_allclose(values, alone)
