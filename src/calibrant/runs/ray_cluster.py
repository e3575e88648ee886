"""The way to a Ray cluster, and everything that can be wrong with it in one sentence each."""

from __future__ import annotations

import contextlib
import logging
import platform
import socket
from collections.abc import Iterator, Mapping
from importlib import metadata
from typing import Any
from urllib.parse import urlsplit

from calibrant import InputError, __version__
from calibrant.files import RunError
from calibrant.runs.resources import cores, environment

_PATIENCE = 5.0  # seconds in which a cluster must answer at all
_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # whoever asked for no GPU uses none: nothing need be hidden
}


def require_ray() -> Any:
    """The package, or one sentence where it is not installed."""
    try:
        import ray
    except ModuleNotFoundError:
        raise InputError("engine ray needs Ray, which is not installed: pip install 'calibrant[ray]'") from None
    return ray


@contextlib.contextmanager
def cluster(address: str | None) -> Iterator[Any]:
    """Connected to the cluster at `address` ("auto": the one that runs here); None starts one on this machine.

    Inside, `ray` can be used; a connection that was open before is used as it is and left open.
    """
    with environment(_QUIET):
        ray = require_ray()
        if ray.is_initialized():
            _check_versions(ray)
            yield ray
            return
        _connect(ray, address)
        try:
            _check_versions(ray)
            yield ray
        finally:
            ray.shutdown()


def _connect(ray: Any, address: str | None) -> None:
    common: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR, "configure_logging": True}
    if address is None:
        ray.init(address="local", num_cpus=cores(), include_dashboard=False, **common)
        return
    _check_reachable(address)
    try:
        ray.init(address=address, **common)
    except ConnectionError:
        raise InputError(
            f"address {address}: there is no Ray cluster; start one with `ray start --head`, or leave the address out"
        ) from None
    except RuntimeError as error:
        text = " ".join(str(error).split())
        if "ersion mismatch" not in text:
            raise RunError(f"address {address}: the Ray cluster refused the connection ({text})") from None
        raise InputError(
            f"address {address}: the cluster runs another version of Ray or Python than this process ({_mine(ray)});"
            f" install the same on both ({text})"
        ) from None


def _check_reachable(address: str) -> None:
    """Refuse a host and port where nothing listens; Ray itself would try for minutes."""
    if address == "auto":
        return
    try:
        parts = urlsplit(address if "://" in address else f"//{address}")
        host, port = parts.hostname, parts.port or 6379
    except ValueError:
        host, port = None, 0
    if not host:
        raise InputError(f"address {address!r} must be auto, HOST:PORT or ray://HOST:PORT")
    try:
        socket.create_connection((host, port), timeout=_PATIENCE).close()
    except OSError as error:
        raise InputError(
            f"address {address}: no Ray cluster answers there ({error.strerror or error}); check it with `ray status`"
        ) from None


def versions() -> dict[str, str]:
    """What must be the same everywhere for results to be the same."""
    found = {name: metadata.version(name) for name in ("torch", "numpy")}
    return {"calibrant": __version__, "python": platform.python_version(), **found}


def _node_versions() -> dict[str, str]:
    return versions()


def _check_versions(ray: Any) -> None:
    """Refuse a cluster of whose nodes one has other versions than this process."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    asked = {}
    for node in ray.nodes():
        if node["Alive"]:
            place = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            task = ray.remote(num_cpus=0, scheduling_strategy=place)(_node_versions)
            asked[node["NodeManagerHostname"], node["NodeID"]] = task.remote()
    here = versions()
    for (host, _), answer in asked.items():
        there = _answered(ray, host, answer)
        other = next((name for name in here if there.get(name) != here[name]), None)
        if other is not None:
            raise InputError(
                f"node {host} has {other} {there.get(other)}, this process {here[other]}: results would differ;"
                " install the same version on both"
            )


def _answered(ray: Any, host: str, answer: Any) -> Mapping[str, str]:
    try:
        found: Mapping[str, str] = ray.get(answer)
    except ray.exceptions.RayError as error:
        reason = str(error).strip().splitlines()[-1]
        raise RunError(f"node {host} cannot run calibrant ({reason}); install it there") from None
    return found


def _mine(ray: Any) -> str:
    return f"Ray {ray.__version__}, Python {platform.python_version()}"
