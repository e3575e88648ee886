"""Options that say where work runs, for the commands that can leave this machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from calibrant import InputError

if TYPE_CHECKING:
    from calibrant.runs.resources import Resources

Engine = Annotated[str, typer.Option("--engine", metavar="NAME", help="local, or ray: distributed over a Ray cluster.")]
Address = Annotated[
    str | None,
    typer.Option(
        "--address",
        metavar="HOST:PORT",
        help="Address of the Ray cluster; auto: that of this node; default: start one.",
    ),
]
ResourcesText = Annotated[
    str | None,
    typer.Option(
        "--resources", metavar="cpu=N,gpu=X", help="Resources of each trial or worker; cpu is the number of threads."
    ),
]


@dataclass(frozen=True)
class Where:
    """Where work runs, and with what."""

    engine: Engine = "local"
    address: Address = None
    resources: ResourcesText = None

    def on_ray(self, **only_ray: object) -> bool:
        """Whether the engine is Ray; an option that only Ray understands is refused without it."""
        if self.engine not in ("local", "ray"):
            raise InputError(f"engine {self.engine!r} does not exist; there are local and ray")
        options = {"address": self.address, **only_ray}
        given = next((name for name, value in options.items() if value not in (None, False)), None)
        if self.engine == "local" and given is not None:
            raise InputError(f"--{given} needs --engine ray")
        return self.engine == "ray"

    def parsed(self) -> Resources:
        """The resources."""
        from calibrant.runs.resources import Resources

        return Resources.parse(self.resources)

    def __str__(self) -> str:
        given = {"engine": self.engine, "address": self.address, "resources": self.resources}
        defaults = {"engine": "local"}
        return "".join(f" --{name} {value}" for name, value in given.items() if value not in (None, defaults.get(name)))
