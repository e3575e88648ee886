"""The small parts of the training stages, each against an independent computation."""

import contextlib
import math
import os
import signal

import numpy as np
import pytest
import torch
from compilers import needs_compiler
from torch import nn

from calibrant.backbones.normalization import Normalize
from calibrant.config.groups import AugmentationSettings, EngineSettings, FinetuneSettings, FitSettings
from calibrant.config.loading import load_settings
from calibrant.data import ArrayData
from calibrant.files import RunError
from calibrant.posteriors.mean_field import MeanField
from calibrant.training import Workspace, open_data
from calibrant.training.batching import BatchSource, disjoint_part
from calibrant.training.checkpoints import Checkpoint, CheckpointStore, pack_optimizer, unpack_optimizer
from calibrant.training.distributed import make_fabric
from calibrant.training.interrupts import deferred_stop
from calibrant.training.optimizers import build_optimizer, rate_factor, set_rate
from calibrant.training.progress import TrainingBar
from calibrant.training.randomness import derive, seeded
from calibrant.training.snapshots import Saver


@pytest.fixture(scope="module")
def fabric():
    return make_fabric(EngineSettings(device="cpu"))


def table(n, columns=3, labels=True):
    generator = torch.Generator().manual_seed(n)
    inputs = torch.randn(n, columns, generator=generator)
    inputs[:, 0] = torch.arange(n)
    return ArrayData(inputs, torch.arange(n) % 2 if labels else None)


class TestSchedules:
    def factors(self, settings, steps=1, examples=1000):
        return [rate_factor(settings, e, s, steps, examples) for e in range(settings.epochs) for s in range(steps)]

    def test_step_divides_by_five_every_thirty_epochs(self):
        factors = self.factors(FitSettings(schedule="step"))
        assert np.allclose(factors, [1] * 30 + [1 / 5] * 30 + [1 / 25] * 30 + [1 / 125] * 10)

    def test_extra_step_is_the_published_multistep_stepped_before_each_epoch(self):
        optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
        scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [30, 60, 90], gamma=0.2)
        optimizer.step()
        expected = []
        for _ in range(100):
            scheduler.step()
            expected.append(optimizer.param_groups[0]["lr"])
        assert np.allclose(self.factors(FitSettings(schedule="step", extra_step=True)), expected)

    def test_extra_step_is_the_published_cosine_stepped_once_more_an_epoch(self):
        settings = FinetuneSettings(extra_step=True)
        position, expected = 0, []
        for _ in range(10):
            position += 1
            for _ in range(282):
                position += 1
                part = position / (10 * 9000 // 32)
                expected.append(1e-3 + (1 - 1e-3) * 0.5 * (1 + math.cos(math.pi * part)))
        assert np.allclose(self.factors(settings, 282, 9000), expected)

    def test_cosine_goes_from_one_to_its_end(self):
        factors = self.factors(FinetuneSettings(), 282, 9000)
        assert factors[0] == 1
        assert factors == sorted(factors, reverse=True)
        assert factors[-1] == pytest.approx(1e-3, rel=0.01)

    def test_one_cycle_is_pytorchs(self):
        optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0, momentum=0.9)
        scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1.0, total_steps=101, pct_start=31 / 101)
        optimizer.step()
        expected = []
        for _ in range(100):
            expected.append(optimizer.param_groups[0]["lr"])
            scheduler.step()
        settings = FitSettings(epochs=10, schedule="one-cycle")
        assert np.allclose(self.factors(settings, 10), expected, atol=1e-5)
        assert max(self.factors(settings, 10)) == 1

    def test_constant(self):
        assert set(self.factors(FitSettings(schedule="constant"))) == {1.0}


class TestNormalize:
    def test_raw_images_are_standardized_inside_the_model(self):
        images = torch.randint(0, 256, (7, 3, 4, 4), dtype=torch.uint8)
        mean, std = torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0.5, 0.6, 0.7])
        expected = (images.double() / 255 - mean.double().view(1, 3, 1, 1)) / std.double().view(1, 3, 1, 1)
        assert torch.allclose(Normalize(nn.Identity(), mean, std)(images).double(), expected, atol=1e-6)

    def test_tables_and_double_precision(self):
        model = Normalize(nn.Identity(), torch.ones(2), torch.full((2,), 2.0)).double()
        assert model(torch.full((1, 2), 5.0, dtype=torch.float64)).dtype == torch.float64
        assert torch.equal(model(torch.full((1, 2), 5.0, dtype=torch.float64)), torch.full((1, 2), 2.0).double())

    def test_statistics_are_saved_with_the_model(self):
        assert {"mean", "std"} <= set(Normalize(nn.Linear(2, 2), torch.zeros(2), torch.ones(2)).state_dict())

    def test_wrong_statistics(self):
        with pytest.raises(ValueError, match="mean and std"):
            Normalize(nn.Identity(), torch.zeros(1, 3), torch.ones(1, 3))


class TestRandomness:
    def test_seeds_differ_by_purpose(self):
        assert len({derive(s, p, i) for s in range(10) for p in ("a", "b") for i in range(10)}) == 200

    def test_the_callers_state_is_untouched(self):
        before = torch.get_rng_state()
        with seeded(5):
            first = torch.rand(3)
        with contextlib.suppress(KeyError), seeded(5):
            assert torch.equal(torch.rand(3), first)
            raise KeyError
        assert torch.equal(torch.get_rng_state(), before)


class TestOptimizer:
    def test_log_variances_have_their_own_rate_and_no_decay(self):
        model = MeanField(nn.Linear(3, 2))
        settings = FitSettings(rate=0.1, rho_rate=2.0, weight_decay=0.01)
        optimizer = build_optimizer(model, settings)
        set_rate(optimizer, 0.5)
        others, rhos = optimizer.param_groups
        assert {id(p) for p in rhos["params"]} == {id(p) for p in model.rho.parameters()}
        assert (others["lr"], others["weight_decay"]) == (0.05, 0.01)
        assert (rhos["lr"], rhos["weight_decay"]) == (1.0, 0.0)

    def test_a_deterministic_network_has_one_group_and_frozen_parameters_none(self):
        model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).requires_grad_(False))
        optimizer = build_optimizer(model, FitSettings(optimizer="adam"))
        assert [len(group["params"]) for group in optimizer.param_groups] == [2]

    @pytest.mark.parametrize("kind", ["sgd", "adam"])
    def test_state_survives_packing(self, kind, tmp_path):
        def trained(steps, optimizer, model):
            for _ in range(steps):
                optimizer.zero_grad()
                model(torch.ones(1, 2)).square().sum().backward()
                optimizer.step()

        with seeded(0):
            model, other = nn.Linear(2, 2), nn.Linear(2, 2)
        settings = FitSettings(optimizer=kind)
        optimizer = build_optimizer(model, settings)
        trained(3, optimizer, model)
        store = CheckpointStore(tmp_path)
        packed = pack_optimizer(optimizer)
        store.save(packed)
        other.load_state_dict(model.state_dict())
        second = build_optimizer(other, settings)
        unpack_optimizer(second, store.load())
        trained(3, optimizer, model)
        trained(3, second, other)
        assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters()))


class TestCheckpoints:
    def saved(self, folder, count):
        store = CheckpointStore(folder)
        for number in range(count):
            store.save(Checkpoint({"x": torch.full((100,), float(number))}, {"number": number}))
        return store

    def test_the_newest_is_loaded_also_by_another_process(self, tmp_path):
        self.saved(tmp_path, 5)
        assert CheckpointStore(tmp_path).load().values["number"] == 4
        CheckpointStore(tmp_path).save(Checkpoint({}, {"number": 5}))
        assert CheckpointStore(tmp_path).load().values["number"] == 5
        assert len(list(tmp_path.iterdir())) == 4

    def test_a_clock_that_was_set_back_makes_none_newer(self, tmp_path):
        self.saved(tmp_path, 5)
        for number, name in enumerate(("checkpoint-0", "checkpoint-1")):
            for suffix in ("safetensors", "json"):
                os.utime(tmp_path / f"{name}.{suffix}", (10**9 + number, 10**9 + number))
        assert CheckpointStore(tmp_path).load().values["number"] == 4
        CheckpointStore(tmp_path).save(Checkpoint({}, {"number": 5}))
        assert CheckpointStore(tmp_path).load().values["number"] == 5

    @pytest.mark.parametrize("suffix", ["safetensors", "json"])
    @pytest.mark.parametrize("damage", [lambda b: b[: len(b) // 2], lambda b: b[:-3] + b"000", lambda b: b""])
    def test_a_damaged_one_gives_way_to_the_one_before(self, tmp_path, suffix, damage):
        self.saved(tmp_path, 5)
        newest = tmp_path / f"checkpoint-0.{suffix}"
        newest.write_bytes(damage(newest.read_bytes()))
        with pytest.warns(UserWarning, match="damaged"):
            loaded = CheckpointStore(tmp_path).load()
        assert loaded.values["number"] == 3
        assert torch.equal(loaded.tensors["x"], torch.full((100,), 3.0))

    def test_two_damaged_ones_are_refused(self, tmp_path):
        self.saved(tmp_path, 5)
        for file in tmp_path.glob("*.safetensors"):
            file.write_bytes(b"")
        with pytest.raises(RunError, match=r"every checkpoint in .* is damaged; delete the folder"):
            CheckpointStore(tmp_path).load()

    def test_a_full_disk_keeps_the_last_checkpoint(self, tmp_path, monkeypatch):
        store = self.saved(tmp_path, 3)

        def full(_):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(RunError, match="no space is left"):
            store.save(Checkpoint({"x": torch.zeros(5)}, {"number": 3}))
        assert store.load().values["number"] == 2

    def test_none_at_first_and_after_clearing(self, tmp_path):
        assert CheckpointStore(tmp_path).load() is None
        store = self.saved(tmp_path, 2)
        store.clear()
        assert CheckpointStore(tmp_path).load() is None


class TestBatches:
    def test_an_epoch_takes_examples_without_replacement_and_outliers_with(self, fabric):
        source = BatchSource(table(100), 32, fabric, seed=0, samples=70, outliers=(table(10, labels=False), 64))
        batches = list(source(0, 0))
        seen = torch.cat([batch.inputs[:, 0] for batch in batches])
        assert [len(batch.labels) for batch in batches] == [32, 32, 6]
        assert len(seen.unique()) == 70
        assert all(len(batch.outliers) == 64 for batch in batches)
        assert all(len(batch.outliers[:, 0].unique()) <= 10 for batch in batches)
        assert torch.equal(batches[0].together(), torch.cat([batches[0].inputs, batches[0].outliers]))

    def test_any_batch_can_be_drawn_again(self, fabric):
        images = ArrayData(torch.randint(0, 256, (50, 1, 6, 6), dtype=torch.uint8), torch.arange(50) % 2)
        source = BatchSource(
            images, 16, fabric, seed=3, outliers=(images, 8), augmentation=AugmentationSettings(padding=2)
        )
        later = list(source(4, 2))
        for one, other in zip(list(source(4, 0))[2:], later, strict=True):
            assert torch.equal(one.inputs, other.inputs)
            assert torch.equal(one.outliers, other.outliers)
        assert not torch.equal(next(source(4, 0)).inputs, next(source(5, 0)).inputs)

    def test_a_single_leftover_is_not_a_batch(self, fabric):
        assert [len(b.labels) for b in BatchSource(table(33), 16, fabric, seed=0)(0, 0)] == [16, 16]
        assert [len(b.labels) for b in BatchSource(table(34), 16, fabric, seed=0)(0, 0)] == [16, 16, 2]

    def test_the_regularizers_part_is_disjoint(self):
        train, extra = disjoint_part(table(100), 0.25, seed=1)
        assert (len(train), len(extra)) == (75, 25)
        assert not set(train.inputs[:, 0].tolist()) & set(extra.inputs[:, 0].tolist())
        assert disjoint_part(table(10), 0.0, seed=1)[1] is None


def test_a_stop_signal_waits_and_a_second_one_does_not():
    with deferred_stop() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.signal == signal.SIGINT
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    with deferred_stop() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(SystemExit) as end:
            stop.obey()
    assert end.value.code == 143


def test_the_bar_asks_for_numbers_only_where_it_is_seen(capsys):
    asked = []
    with TrainingBar("fit", 10, enabled=False) as bar:
        bar.advance(lambda: asked.append(1) or {})
    assert not asked
    assert capsys.readouterr() == ("", "")
    with TrainingBar("fit", 10, enabled=True) as bar:
        bar.advance(lambda: {"loss": 0.25})
    assert "loss 0.25" in capsys.readouterr().err
    with TrainingBar("predict", 10, enabled=True, unit="images") as bar:
        bar.advance(count=10)
    assert "10/10" in capsys.readouterr().err


@pytest.mark.parametrize(
    "device",
    ["nonsense", pytest.param("cuda", marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is one"))],
)
def test_a_device_that_is_not_there(device):
    with pytest.raises(ValueError, match=rf"engine\.device '{device}' cannot be used"):
        make_fabric(EngineSettings(device=device))


def test_channels_last_changes_the_layout_and_not_the_result_of_a_network_without_noise():
    settings = load_settings("embedded", overrides=["fit.epochs=1", "engine.device=cpu"])
    data = open_data(settings.data, settings.seed)
    plain = Workspace(data, settings, progress=False)
    other = Workspace(data, settings.with_("engine.channels_last=true"), progress=False)
    model = other.model("FNN")
    assert any(p.dim() == 4 and p.is_contiguous(memory_format=torch.channels_last) for p in model.parameters())
    for ours, theirs in zip(model.state_dict().values(), plain.model("FNN").state_dict().values()):
        torch.testing.assert_close(ours.contiguous(), theirs, rtol=1e-3, atol=1e-4)


@needs_compiler
def test_the_kernel_in_c_trains_the_same_stage():
    settings = load_settings("embedded", overrides=["fit.epochs=2", "engine.device=cpu"])
    data = open_data(settings.data, settings.seed)
    default, plain, fused = (
        Workspace(data, settings.with_(f"engine.fuse={fuse}"), progress=False) for fuse in ("null", "false", "true")
    )
    assert settings.engine.fuse is None
    assert default.stage("BNN").key == fused.stage("BNN").key == plain.stage("BNN").key
    assert [space.model("BNN").fuse for space in (default, plain, fused)] == [None, False, True]
    ours, theirs = (space.history("BNN")[-1]["train_cross_entropy"] for space in (fused, plain))
    assert default.history("BNN")[-1]["train_cross_entropy"] == ours
    assert ours == pytest.approx(theirs, rel=0.1)  # another noise of the same distribution
    assert ours != theirs


def test_a_checkpoint_of_another_version_is_refused_in_one_sentence(tmp_path):
    store = CheckpointStore(tmp_path)
    store.save(Checkpoint({"model:weight": torch.zeros(1)}, {"ranks": 1}))
    net = nn.Linear(1, 1)
    with pytest.raises(RunError, match="another version of calibrant"):
        Saver(store, seconds=1.0).load(
            net, torch.optim.SGD(net.parameters()), make_fabric(EngineSettings(device="cpu"))
        )
