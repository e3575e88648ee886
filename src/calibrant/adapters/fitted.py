"""A module that is fitted once: its buffers get their shapes from the data, or from the state it is loaded from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from calibrant import InputError

Fitted = TypeVar("Fitted", bound="FittedModule")


class FittedModule(nn.Module):
    """A module whose buffers get their shapes when it is fitted, or from the state it is loaded from."""

    def config(self) -> dict[str, Any]:
        """What `from_state` needs beside the tensors: the constructor's arguments, as JSON can hold them."""
        return {}

    @classmethod
    def from_state(cls: type[Fitted], config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Fitted:
        """Rebuild a fitted module from what `config()` and `state_dict()` returned."""
        return cls(**config)._restore(tensors)

    def _restore(self: Fitted, tensors: Mapping[str, Tensor]) -> Fitted:
        try:
            self.load_state_dict(dict(tensors))
        except RuntimeError as error:
            reason = " ".join(str(error).split())
            raise InputError(f"tensors do not belong to a {type(self).__name__}: {reason}") from None
        return self

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        for name, buffer in self._buffers.items():
            value = state_dict.get(prefix + name)
            if buffer is not None and value is not None and value.dim() == buffer.dim():
                self._buffers[name] = torch.empty_like(value, device=buffer.device)
        super()._load_from_state_dict(state_dict, prefix, *args)
