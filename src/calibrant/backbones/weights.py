"""Weights that somebody else trained, from a checkpoint file into a network."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor, nn

from calibrant import InputError
from calibrant.files import open_regular
from calibrant.files.packing import check_packing
from calibrant.files.pickle_bounds import check_pickle

_PICKLES_BEFORE_ZIP = 5  # in one file: a mark, a version, sizes of numbers, the weights, the names of their storages


def load_weights(network: nn.Module, path: str | Path) -> nn.Module:
    """Put the weights in the checkpoint `path` into `network`, and return it.

    The file is a safetensors file, or one that `torch.save` wrote. That is a pickle; it is read with
    `weights_only=True`, so that no code in it runs, after a check that it is neither large nor nested out of
    proportion. The weights may lie under the entry `state_dict` or `model`, and their names may begin with `module.`.
    Where the names are not those of `network`, they are matched by position, and refused unless all shapes agree.
    """
    given, own = _without_counters(read_weights(path)), _without_counters(network.state_dict())
    if given.keys() != own.keys():
        if [value.shape for value in given.values()] != [value.shape for value in own.values()]:
            kind = type(network).__name__
            raise InputError(
                f"{path} holds {len(given)} tensors that do not fit this {kind}, which has {len(own)}:"
                " name the backbone that it was trained with"
            )
        given = dict(zip(own, given.values()))
    wrong = next((name for name, value in given.items() if value.shape != own[name].shape), None)
    if wrong is not None:
        raise InputError(
            f"{path} has {wrong} of shape {tuple(given[wrong].shape)}, but the network needs {tuple(own[wrong].shape)}"
        )
    network.load_state_dict(given, strict=False)
    return network


def read_weights(path: str | Path) -> dict[str, Tensor]:
    """The tensors in a checkpoint by name, without the prefix `module.`."""
    content: Any = _read(Path(path))
    for entry in ("state_dict", "model"):
        if isinstance(content, Mapping) and isinstance(content.get(entry), Mapping):
            content = content[entry]
    if not isinstance(content, Mapping) or not content or not all(isinstance(v, Tensor) for v in content.values()):
        raise InputError(f"{path} holds no weights by name; save them with torch.save(network.state_dict(), path)")
    return {str(name).removeprefix("module."): value for name, value in content.items()}


def _without_counters(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Without the numbers of batches that BatchNorm has seen, which older checkpoints lack."""
    return {name: value for name, value in state.items() if value.dim() or value.is_floating_point()}


def _read(path: Path) -> Any:
    if not path.is_file():
        raise InputError(f"weights {path} do not exist; check the path")
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            return load_file(path)
        with open_regular(path) as file:
            _check_checkpoint(file, path)
            file.seek(0)
            return torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file can raise almost anything from the readers of both formats
        reason = str(error).strip().partition("\n")[0]
        raise InputError(f"{path} cannot be read as weights: {reason}") from None


def _check_checkpoint(file: IO[bytes], path: Path) -> None:
    """Refuse a checkpoint that would overflow the stack of the machine, take forever or unpack to a large one."""
    if file.read(4) != b"PK\x03\x04":  # as torch.load tells the two formats apart
        file.seek(0)
        for _ in range(_PICKLES_BEFORE_ZIP):
            check_pickle(file)
        return
    file.seek(0)
    archive = torch._C.PyTorchFileReader(file)  # what torch.load reads with, so that both see the same pickle
    unpacked = sum(archive.get_record_size(name) for name in archive.get_all_records())
    check_packing(path, path.stat().st_size, unpacked, "save it with torch.save")
    check_pickle(archive.get_record("data.pkl"))
