from __future__ import annotations

import pickletools
import zipfile
from pathlib import Path
from typing import BinaryIO

import pytest
import torch
from torch import nn

from calibrant.backbones import build, cost, load_weights, resnet18, resnet20
from calibrant.posteriors.mean_field import MeanField


def conv_macs(module: nn.Module, x: torch.Tensor) -> int:
    """Multiply-adds by hand: kernel volume times output size of every convolution, and every linear weight."""
    total = 0

    def count(layer: nn.Module, _: object, out: torch.Tensor) -> None:
        nonlocal total
        if isinstance(layer, nn.Conv2d):
            total += layer.weight[0].numel() * out[0].numel()
        elif isinstance(layer, nn.Linear):
            total += layer.weight.numel()

    handles = [m.register_forward_hook(count) for m in module.modules()]
    module.eval()(x.unsqueeze(0))
    for handle in handles:
        handle.remove()
    return total


@pytest.mark.parametrize(
    ("name", "shape", "classes"),
    [
        ("wrn-16-1", (3, 32, 32), 100),
        ("wrn-10-2", (1, 8, 8), 10),
        ("resnet-18-8", (3, 32, 32), 10),
        ("resnet-20", (3, 16, 16), 10),
        ("cnn-16", (1, 8, 8), 10),
        ("cnn-8-3", (3, 32, 32), 2),
        ("mlp-64-64", (20,), 1000),
        ("mlp", (1, 8, 8), 10),
    ],
)
def test_every_backbone_gives_logits_and_its_cost_is_counted_right(
    name: str, shape: tuple[int, ...], classes: int
) -> None:
    module, x = build(name, shape, classes), torch.randn(2, *shape)
    assert module(x).shape == (2, classes)
    assert cost(module, x[0]).multiply_adds == conv_macs(module, x[0])
    q = MeanField(module)
    (q(x).square().sum() + q.kl()).backward()
    assert all(p.grad is not None for p in q.parameters())


def test_the_papers_cost_table() -> None:
    wrn = build("wrn-40-2", (3, 32, 32), 100)
    parameters, macs = cost(wrn, torch.zeros(3, 32, 32))
    assert round(parameters / 1e6, 2) == 2.26, "the table prints 2.25 M"
    assert round(macs / 1e9, 2) == 0.33, "the table prints 0.3 G"
    assert sum(p.numel() for p in MeanField(wrn).parameters()) == pytest.approx(4.5e6, rel=0.01)


def test_reference_sizes_of_the_resnets() -> None:
    assert sum(p.numel() for p in resnet18(10).parameters()) == 11_173_962
    assert sum(p.numel() for p in resnet20(10).parameters()) == pytest.approx(0.27e6, rel=0.03)


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("wrm-16-1", (3, 8, 8), "did you mean wrn-DEPTH-WIDTH"),
        ("wrn-16", (3, 8, 8), "must be written wrn-DEPTH-WIDTH"),
        ("wrn-17-1", (3, 8, 8), "depth must be 6 n"),
        ("resnet-19", (3, 8, 8), "depth must be 6 n"),
        ("cnn-0", (3, 8, 8), "must be written cnn"),
        ("cnn-16", (20,), "needs images"),
    ],
)
def test_wrong_names_are_explained(name: str, shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build(name, shape, 10)


def option_a(x: torch.Tensor, channels: int) -> torch.Tensor:
    """The shortcut of option A, pixel by pixel."""
    result = torch.zeros(len(x), channels, x.shape[2] // 2, x.shape[3] // 2)
    start = (channels - x.shape[1]) // 2
    for row in range(result.shape[2]):
        for column in range(result.shape[3]):
            result[:, start : start + x.shape[1], row, column] = x[:, :, 2 * row, 2 * column]
    return result


def test_a_padded_shortcut_takes_every_second_pixel_and_has_no_weights() -> None:
    network = build("resneta-20", (3, 32, 32), 10)
    assert sum(p.numel() for p in network.parameters()) == 269_722  # ResNet-20 in Table 6 of He et al.: 0.27 M
    x = torch.randn(2, 16, 8, 8)
    torch.testing.assert_close(network.groups[3].shortcut(x), option_a(x, 32))


@pytest.fixture
def checkpoint(tmp_path: Path) -> tuple[nn.Module, Path]:
    """A checkpoint as people share it: other names, a prefix, and more beside the weights."""
    network = build("resneta-8-4", (3, 8, 8), 5)
    state = {f"module.layer{i}": value for i, value in enumerate(network.state_dict().values())}
    torch.save({"state_dict": state, "best_prec1": 91.7}, tmp_path / "net.th")
    return network, tmp_path / "net.th"


def test_weights_of_other_names_are_matched_by_position(checkpoint: tuple[nn.Module, Path]) -> None:
    network, path = checkpoint
    loaded = load_weights(build("resneta-8-4", (3, 8, 8), 5), path)
    x = torch.randn(2, 3, 8, 8)
    assert torch.equal(loaded.eval()(x), network.eval()(x))


def test_weights_that_do_not_fit_are_refused(checkpoint: tuple[nn.Module, Path], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="do not fit this ResNet"):
        load_weights(build("resneta-14-4", (3, 8, 8), 5), checkpoint[1])
    with pytest.raises(ValueError, match="do not exist; check the path"):
        load_weights(checkpoint[0], tmp_path / "none.th")
    (tmp_path / "text.th").write_text("weights")
    with pytest.raises(ValueError, match="cannot be read as weights"):
        load_weights(checkpoint[0], tmp_path / "text.th")
    torch.save([1, 2], tmp_path / "list.th")
    with pytest.raises(ValueError, match="holds no weights by name"):
        load_weights(checkpoint[0], tmp_path / "list.th")


def test_a_checkpoint_that_would_run_code_is_refused(checkpoint: tuple[nn.Module, Path], tmp_path: Path) -> None:
    class Harm:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return Path.touch, (tmp_path / "harmed",)  # type: ignore[return-value]

    torch.save({"state_dict": Harm()}, tmp_path / "harm.th")
    with pytest.raises(ValueError, match="cannot be read as weights"):
        load_weights(checkpoint[0], tmp_path / "harm.th")
    assert not (tmp_path / "harmed").exists()


KEYS = {"nested a million times": b"N" + b"\x85" * 10**6, "holding itself 60 times over": b"N" + b"q\x00h\x00\x86" * 60}


def hostile_checkpoint(kind: str, content: bytes, path: Path) -> Path:
    """A checkpoint of either format of `torch.save`, with `content` where the pickle of the weights was."""
    torch.save({"w": torch.zeros(2)}, path, _use_new_zipfile_serialization=kind == "zip")
    if kind == "zip":
        with zipfile.ZipFile(path) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, member in members.items():
                archive.writestr(name, content if name.endswith("data.pkl") else member)
        return path
    with path.open("rb") as file:
        parts = [pickletools.optimize(read_pickle(file)) for _ in range(5)]
    parts[["mark", "version", "sizes", "weights", "storages"].index(kind)] = content
    path.write_bytes(b"".join(parts))
    return path


def read_pickle(file: BinaryIO) -> bytes:
    start = file.tell()
    list(pickletools.genops(file))
    end = file.tell()
    file.seek(start)
    return file.read(end - start)


@pytest.mark.parametrize("kind", ["zip", "mark", "sizes", "weights", "storages"])
@pytest.mark.parametrize("key", KEYS)
def test_a_checkpoint_whose_pickle_has_a_hostile_key_is_refused(key: str, kind: str, tmp_path: Path) -> None:
    """To hash the key would end the process or take years; in the older format, five pickles follow each other."""
    path = hostile_checkpoint(kind, b"\x80\x02}" + KEYS[key] + b"K\x01s.", tmp_path / "deep.pt")
    with pytest.raises(ValueError, match=r"deep\.pt cannot be read as weights: tuples more than 100 levels"):
        load_weights(build("mlp-4", (3,), 2), path)


def test_a_checkpoint_that_unpacks_to_far_more_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calibrant.files.packing.WHOLE_BYTES", 2**16)
    path = hostile_checkpoint(
        "zip", b"\x80\x02}X" + (2**22).to_bytes(4, "little") + bytes(2**22) + b"Ns.", tmp_path / "b.pt"
    )
    with pytest.raises(ValueError, match=r"which is not believed; save it with torch\.save"):
        load_weights(build("mlp-4", (3,), 2), path)


@pytest.mark.parametrize("zipped", [True, False])
def test_checkpoints_of_both_formats_are_read(zipped: bool, tmp_path: Path) -> None:
    network = build("mlp-4", (3,), 2)
    torch.save(network.state_dict(), tmp_path / "w.pt", _use_new_zipfile_serialization=zipped)
    loaded = load_weights(build("mlp-4", (3,), 2), tmp_path / "w.pt")
    x = torch.randn(5, 3)
    assert torch.equal(loaded(x), network(x))
