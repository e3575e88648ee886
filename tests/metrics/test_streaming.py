"""Streaming classes against the pure functions; merging across batches, copies and processes."""

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from calibrant import metrics
from calibrant.metrics.streaming import StreamingCalibrationError, StreamingReliability, StreamingTotalVariation


def _data(n=1000, seed=0):
    generator = torch.Generator().manual_seed(seed)
    confidence = torch.rand(n, generator=generator)
    confidence[::7] = 1.0
    confidence[::11] = 0.0
    return confidence, torch.rand(n, generator=generator) < confidence**2


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_stream_gives_what_the_whole_gives(dtype):
    confidence, correct = _data()
    confidence = confidence.to(dtype)
    error, diagram, variation = StreamingCalibrationError(), StreamingReliability(), StreamingTotalVariation()
    for part, right in zip(confidence.split(64), correct.split(64)):
        error.update(part, right)
        diagram.update(part, right)
        variation.update(part, right)
    assert float(error.compute()) == pytest.approx(metrics.expected_calibration_error(confidence, correct), abs=1e-7)
    whole, streamed = metrics.reliability_diagram(confidence, correct), diagram.compute()
    for name in ("edges", "confidence", "accuracy", "count"):
        np.testing.assert_allclose(streamed[name], getattr(whole, name), atol=1e-7)
    expected = metrics.total_variation(confidence[~correct], confidence[correct])
    assert float(variation.compute()) == pytest.approx(expected, abs=1e-7)


def test_the_corrected_variation_streams_too():
    confidence, is_ood = _data()
    metric = StreamingTotalVariation(5, corrected=True)
    metric.update(confidence, is_ood)
    expected = metrics.total_variation(confidence[~is_ood], confidence[is_ood], 5, corrected=True)
    assert float(metric.compute()) == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize("kind", [StreamingCalibrationError, StreamingTotalVariation])
def test_two_instances_merged_equal_one_bit_for_bit(kind):
    confidence, second = _data()
    one, left, right = kind(), kind(), kind()
    one.update(confidence, second)
    left.update(confidence[600:], second[600:])
    right.update(confidence[:600], second[:600])
    left.merge_state(right)
    assert torch.equal(left.compute(), one.compute())


def test_the_state_does_not_grow():
    metric = StreamingCalibrationError(bins=10)
    for _ in range(3):
        metric.update(*_data())
    assert sum(state.numel() for state in metric.metric_state.values()) == 30


def _worker(rank, store, results):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    confidence, second = _data()
    own = slice(rank, None, 2)
    values = []
    for kind in (StreamingCalibrationError, StreamingTotalVariation):
        metric = kind()
        metric.update(confidence[own], second[own])
        values.append(metric.compute())
    torch.save(torch.stack(values), Path(results) / f"{rank}.pt")
    dist.destroy_process_group()


def test_two_processes_give_what_one_gives(tmp_path):
    mp.spawn(_worker, (str(tmp_path / "store"), str(tmp_path)), nprocs=2)
    confidence, second = _data()
    expected = []
    for kind in (StreamingCalibrationError, StreamingTotalVariation):
        metric = kind()
        metric.update(confidence, second)
        expected.append(metric.compute())
    for rank in range(2):
        assert torch.equal(torch.load(tmp_path / f"{rank}.pt", weights_only=True), torch.stack(expected))


def test_nothing_of_one_kind_is_undefined():
    metric = StreamingTotalVariation()
    metric.update(torch.tensor([0.5]), torch.tensor([True]))
    assert torch.isnan(metric.compute())


def test_bad_input_is_named():
    metric = StreamingCalibrationError()
    with pytest.raises(ValueError, match="confidence must lie"):
        metric.update(torch.tensor([1.5]), torch.tensor([1]))
    with pytest.raises(ValueError, match="correct has 2"):
        metric.update(torch.tensor([0.5]), torch.tensor([1, 0]))
    with pytest.raises(ValueError, match="is_ood must be bool"):
        StreamingTotalVariation().update(torch.tensor([0.5]), torch.tensor([1]))
    with pytest.raises(ValueError, match="bins"):
        StreamingTotalVariation(0)


def test_without_torchmetrics_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchmetrics", None)
    monkeypatch.delitem(sys.modules, "calibrant.metrics.streaming")
    with pytest.raises(ImportError, match=r"pip install 'calibrant\[torchmetrics\]'"):
        importlib.import_module("calibrant.metrics.streaming")
