"""Everything that can be wrong with a cluster before it works, in one sentence each; no cluster is started."""

import os
import socket
import sys
from types import SimpleNamespace

import pytest
from sweeps import predictor, six_trials, write_rows

from calibrant.deploy.spread.ray_predict import RayPrediction, _room
from calibrant.files import RunError
from calibrant.runs.ray_cluster import cluster
from calibrant.runs.ray_tune import RayTune
from calibrant.runs.resources import Resources, environment
from calibrant.training.sweeps.sweep import run_sweep


def test_no_ray_installed(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ValueError, match=r"not installed: pip install 'calibrant\[ray\]'"):
        run_sweep(six_trials(), tmp_path, RayTune())
    write_rows(tmp_path / "in.parquet", 10)
    with pytest.raises(ValueError, match="engine ray needs Ray"):
        RayPrediction().run(predictor(), str(tmp_path / "in.parquet"), str(tmp_path / "out"))


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def enter(address):
    with cluster(address):
        raise AssertionError("there is no such cluster")


@pytest.mark.parametrize("form", ["127.0.0.1:{}", "ray://127.0.0.1:{}"])
def test_a_cluster_that_is_not_there(form):
    with pytest.raises(ValueError, match="no Ray cluster answers there"):
        enter(form.format(free_port()))


@pytest.mark.parametrize("address", ["", ":6379", "host:port"])
def test_an_address_that_is_none(address):
    with pytest.raises(ValueError, match="must be auto, HOST:PORT or ray://HOST:PORT"):
        enter(address)


def refusing(monkeypatch, error):
    import ray

    def init(**options):
        raise error

    monkeypatch.setattr(ray, "init", init)


def test_no_cluster_on_this_node(monkeypatch):
    refusing(monkeypatch, ConnectionError("Could not find any running Ray instance."))
    with pytest.raises(ValueError, match="address auto: there is no Ray cluster; start one with `ray start --head`"):
        enter("auto")


def test_a_cluster_that_refuses(monkeypatch):
    refusing(monkeypatch, RuntimeError("the session\nis over"))
    with pytest.raises(RunError, match=r"refused the connection \(the session is over\)"):
        enter("auto")


def test_the_environment_is_put_back(monkeypatch):
    monkeypatch.setenv("A_VARIABLE", "before")
    monkeypatch.delenv("ANOTHER_VARIABLE", raising=False)
    with environment({"A_VARIABLE": "inside", "ANOTHER_VARIABLE": "inside"}):
        assert os.environ["ANOTHER_VARIABLE"] == "inside"
    assert os.environ["A_VARIABLE"] == "before"
    assert "ANOTHER_VARIABLE" not in os.environ


NODES = [{"Alive": True, "Resources": {"CPU": 4.0}}, {"Alive": True, "Resources": {"CPU": 1.0, "GPU": 1.0}}]
RAY = SimpleNamespace(nodes=lambda: NODES, cluster_resources=lambda: {"CPU": 5.0, "GPU": 1.0})


def test_resources_that_no_node_has_are_refused():
    RayTune(resources=Resources(cpu=4))._check_room(RAY)
    RayTune(resources=Resources(cpu=1, gpu=0.5))._check_room(RAY)
    with pytest.raises(ValueError, match="more than any node of the cluster has"):
        RayTune(resources=Resources(cpu=4, gpu=1))._check_room(RAY)


def test_workers_fill_the_cluster():
    assert _room(RAY, Resources()) == 5
    assert _room(RAY, Resources(cpu=2)) == 2
    assert _room(RAY, Resources(gpu=0.5)) == 2
    with pytest.raises(ValueError, match="more than the cluster has"):
        _room(RAY, Resources(cpu=8))
