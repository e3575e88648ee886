"""Members on fewer and fewer rows of one batch, as early stopping runs them, with what they share run once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from calibrant.adapters.trees import row_count, take_rows, tensors_in

if TYPE_CHECKING:
    from calibrant.posteriors.ensemble import Ensemble


class OpenRows:
    """`run(k, rows)` gives logits and features of member `k` for `rows` of the batch, each among the last.

    Layers that members share are run for all rows, and again for those that are left each time that half are gone: for
    fewer than twice the rows of the batch, and no member for more than twice its rows. Members that share nothing are
    run for their rows only.

    Args:
        ensemble: the members.
        x: inputs (B, ...).
        feature_layer: the layer whose input the features are.

    `all_rows` are the numbers of all rows of the batch.
    """

    def __init__(self, ensemble: Ensemble, x: Any, feature_layer: str | None = None) -> None:
        self._ensemble, self._member, self._x = ensemble, ensemble.callables(feature_layer), x
        self.all_rows = torch.arange(row_count(x), device=tensors_in(x)[0].device)
        self._hold(x, self.all_rows)

    def __call__(self, k: int, rows: Tensor) -> tuple[Tensor, Tensor | None]:
        """Logits (b, C) and features (b, D) or None."""
        shares = self._shared is not None and self._shared.useful is not False
        if len(rows) < len(self._rows) and (not shares or 2 * len(rows) <= len(self._rows)):
            self._hold(take_rows(self._x, rows), rows)
        logits, features = self._member(k)(self._inputs, self._shared)
        self._ensemble.learn(self._shared)
        if len(rows) < len(self._rows):
            places = torch.searchsorted(self._rows, rows)
            logits, features = logits[places], None if features is None else features[places]
        return logits, features

    def _hold(self, inputs: Any, rows: Tensor) -> None:
        """Run members on `inputs`, which are these rows, from now on."""
        self._inputs, self._rows, self._shared = inputs, rows, self._ensemble.shared_run(inputs)
