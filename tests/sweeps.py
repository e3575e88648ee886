"""What the engines are tested with: a small sweep of six trials, a small predictor, Parquet files to decide on."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from calibrant import MeanField
from calibrant.backbones import build
from calibrant.config.loading import load_settings
from calibrant.config.schemes import Scheme
from calibrant.deploy import Backbone, Predictor
from calibrant.runs.resources import environment
from calibrant.training.sweeps.grid import Parameter, Sweep

# Ray leaves sockets and log files to the garbage collector, and uses what others have deprecated.
RAY = [
    pytest.mark.cluster,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:ray.*"),
    pytest.mark.filterwarnings("ignore:.*use_push_based_shuffle.*:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning:ray.*"),
]


@contextlib.contextmanager
def two_nodes():
    """A Ray cluster of two nodes of one worker each, whose processes can import the tests; with the second node."""
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    path = os.pathsep.join(filter(None, (str(Path(__file__).parent), os.environ.get("PYTHONPATH"))))
    quiet = {"RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "PYTHONPATH": path}
    with environment(quiet):
        node = {"num_cpus": 1, "object_store_memory": 100 * 2**20, "include_dashboard": False}
        cluster = Cluster(initialize_head=True, head_node_args=node)
        second = cluster.add_node(num_cpus=1, object_store_memory=100 * 2**20)
        cluster.wait_for_nodes()
        yield cluster, second
        ray.shutdown()
        cluster.shutdown()


@pytest.fixture(scope="module")
def address():
    """Two nodes that nobody takes away."""
    with two_nodes() as (cluster, _):
        yield cluster.address


FAST = (
    "data.train=96",
    "data.validation=64",
    "backbone.name=mlp-8",
    "posterior.members=2",
    "engine.device=cpu",
    "engine.checkpoint_steps=4",
)


def settings(*overrides):
    return load_settings("embedded", overrides=(*FAST, *overrides))


def six_trials(*overrides):
    """lambda in six steps; with the baseline seven fits."""
    return Sweep(settings("fit.epochs=2", *overrides), Scheme.parse("CBNN"), (Parameter.parse("lambda=0.5,1,...,3"),))


def predictor(name="mlp-16", members=3):
    torch.manual_seed(0)
    ensemble = MeanField(build(name, (64,), 10), init_std=0.3).sample(members, seed=1).stored()
    return Predictor(ensemble, threshold=0.5, backbone=Backbone(name, (64,), 10))


def write_rows(path, rows, *, seed=0, row_group=300):
    """A Parquet file of vectors, a label that is not to be read, and keys."""
    x = np.random.default_rng(seed).normal(size=(rows, 64)).astype(np.float32)
    vectors = pa.FixedSizeListArray.from_arrays(x.reshape(-1), 64)
    keys = [f"key-{seed}-{row}" for row in range(rows)]
    pq.write_table(pa.table({"key": keys, "x": vectors, "label": [0] * rows}), path, row_group_size=row_group)
    return path
