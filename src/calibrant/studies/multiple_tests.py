"""Several hypotheses at once: p-values that keep the probability of any false rejection."""

from __future__ import annotations

from collections.abc import Sequence


def holm(p_values: Sequence[float]) -> list[float]:
    """The p-values adjusted by the method of Holm 1979.

    The k-th smallest of m is multiplied by m - k + 1; none is then below the one before it, or above 1.

    Rejecting what is at most alpha falsely rejects any true hypothesis with a probability of at most alpha, however
    the p-values depend on each other.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    adjusted, largest = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted
