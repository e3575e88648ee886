"""A run, as a whole: what was asked for, its stages, and what came out of it.

    RUN/run.json                the schemes that were asked for, and the command
    RUN/settings.yaml           all settings
    RUN/splits.json             which example went where, by index
    RUN/stages/                 what was computed, stage by stage: see `calibrant.runs.stages`
    RUN/evaluations/SCHEME.npz  what the scheme said of validation, test and OOD data
    RUN/predictors/SCHEME/      the scheme, ready to be deployed
    RUN/table.csv               the measures with their intervals
    RUN/report.html             the page

The demo, whose seeds are runs of their own, holds those as RUN/seed-0, RUN/seed-1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calibrant import InputError
from calibrant.config.dependence import first_difference, identity
from calibrant.config.loading import Settings, load_settings
from calibrant.config.schemes import Scheme
from calibrant.files import RunError, read_entries, writable, write_bytes, write_json
from calibrant.files.leftovers import clear
from calibrant.runs.stages import MemoryStage, Stage, StoredStage
from calibrant.slots import plugin_options

if TYPE_CHECKING:
    from calibrant.evaluation import Evaluation

RECORD = "run.json"


class Run:
    """The run in the folder `root`, which may not be there yet.

    >>> Run("RUN").stage("fit-CBNN", {"rate": 0.1}).path.parent
    PosixPath('RUN/stages')
    """

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)

    def stage(self, name: str, inputs: Mapping[str, Any]) -> Stage:
        """The stage `name` that `inputs` (JSON values) determine, run or not."""
        return StoredStage(self.root / "stages", name, inputs)

    @property
    def exists(self) -> bool:
        """Whether a run was begun here."""
        return (self.root / RECORD).is_file()

    @property
    def record(self) -> dict[str, Any]:
        """What was asked for."""
        if not self.exists:
            raise InputError(f"{self.root} is not a run: it has no {RECORD}; `calibrant train --out` makes one")
        elsewhere = "start the run again in another folder"
        record = read_entries(self.root / RECORD, {"schemes": list, "command": str}, elsewhere)
        names, seeds = [record["schemes"], record.get("products", [])], record.get("seeds", [0])
        whole = all(isinstance(one, list) and all(_is_name(name) for name in one) for one in names)
        if not whole or not isinstance(seeds, list) or not seeds or not all(type(seed) is int for seed in seeds):
            raise RunError(f"{self.root / RECORD} was altered (its schemes or seeds are none); {elsewhere}")
        return record

    @property
    def schemes(self) -> tuple[Scheme, ...]:
        """The schemes that were asked for so far."""
        return tuple(Scheme.parse(name) for name in self.record["schemes"])

    @property
    def settings(self) -> Settings:
        """All settings of the run."""
        _ = self.record
        return load_settings(file=self.root / "settings.yaml")

    def check(self, settings: Settings) -> None:
        """Refuse a folder that cannot be written, or that holds a run with other settings."""
        writable(self.root)
        if not self.exists:
            return
        different = first_difference(_fixed(settings), _fixed(self.settings))
        if different is not None:
            name, asked, found = different
            raise InputError(
                f"{self.root} holds a run with {name}={found}, not {asked}; choose another --out, or resume it:"
                f" {self.resume_command}"
            )

    def describe(self, settings: Settings, splits: str | None = None) -> None:
        """Write down all settings and, as JSON text, which example went where."""
        write_bytes(self.root / "settings.yaml", settings.to_yaml().encode())
        if splits is not None:
            write_bytes(self.root / "splits.json", splits.encode())

    def begin(
        self, settings: Settings, schemes: Sequence[Scheme], command: str, splits: str | None = None, **more: Any
    ) -> None:
        """Note what is asked for; schemes that were asked for before stay."""
        known = [str(scheme) for scheme in self.schemes] if self.exists else []
        names = [str(scheme) for scheme in Scheme.all() if str(scheme) in {*known, *map(str, schemes)}]
        products = [*(self.products if self.exists else ()), *more.pop("products", ())]
        more |= {"products": list(dict.fromkeys(products))} if products else {}
        self.describe(settings, splits)
        write_json(self.root / RECORD, {"schemes": names, "command": command, **more})

    def evaluation_path(self, system: Scheme | str) -> Path:
        """Where the evaluation of `system`, a scheme or a product, is."""
        return self.root / "evaluations" / f"{_file_name(system)}.npz"

    def predictor_path(self, system: Scheme | str) -> Path:
        """Where the predictor of `system`, a scheme or a product, is."""
        return self.root / "predictors" / _file_name(system)

    @property
    def products(self) -> tuple[str, ...]:
        """Systems beside the schemes, such as "FNN + trust"."""
        return tuple(str(name) for name in self.record.get("products", ()))

    def evaluations(self, schemes: Sequence[Scheme] = ()) -> list[Evaluation]:
        """Those of `schemes`, or of all systems that are finished."""
        systems: tuple[Scheme | str, ...] = (*self.schemes, *self.products)
        wanted: Sequence[Scheme | str] = schemes or [one for one in systems if self.evaluation_path(one).exists()]
        missing = [scheme for scheme in wanted if not self.evaluation_path(scheme).exists()]
        if missing or not wanted:
            name = f"{missing[0]} in it" if missing else "it"
            raise InputError(f"{self.root} has no evaluation of {name}; train it: {self.resume_command}")
        from calibrant.evaluation import Evaluation

        return [Evaluation.load(self.evaluation_path(scheme)) for scheme in wanted]

    @property
    def resume_command(self) -> str:
        """The command that resumes the run."""
        command = "demo" if "seeds" in self.record else "train"
        return f"calibrant {command} --resume --out {self.root}{plugin_options()}"


class MemoryRun:
    """A run of which nothing is written: its stages are kept as long as this object is."""

    def __init__(self) -> None:
        self._stages: dict[tuple[str, str], MemoryStage] = {}

    def stage(self, name: str, inputs: Mapping[str, Any]) -> Stage:
        """The stage `name` that `inputs` determine, run or not."""
        stage = MemoryStage(name, dict(inputs))
        return self._stages.setdefault((name, stage.key), stage)

    def describe(self, settings: Settings, splits: str | None = None) -> None:
        """Nobody will ask later."""


def _file_name(system: Scheme | str) -> str:
    """The name of a system as that of a file or folder.

    >>> _file_name("FNN + trust")
    'FNN+trust'
    """
    return str(system).replace(" ", "")


def _is_name(system: Any) -> bool:
    """Whether it names a file or folder in the run, and none elsewhere."""
    return isinstance(system, str) and not set(system) & set("/\\\0") and _file_name(system) not in ("", ".", "..")


def _fixed(settings: Settings) -> dict[str, Any]:
    """What a run cannot change on resume: all but where it is computed and how it is drawn."""
    counted = identity(settings)
    return {**counted, "engine": {"precision": counted["engine"]["precision"]}, "report": {}}


def open_runs(path: str | Path) -> list[Run]:
    """The run in `path`, or those in its folders seed-0, seed-1, ..."""
    root = Path(path)
    if not root.is_dir():
        verb = "is no folder" if root.exists() else "does not exist"
        raise InputError(f"{root} {verb}; give the folder that `calibrant train --out` or the demo made")
    inner = [Run(folder) for folder in sorted(root.glob("seed-*")) if Run(folder).exists]
    if not inner:
        _ = Run(root).record
    return inner or [Run(root)]


def predictor_folder(path: str | Path, scheme: str | None = None) -> Path:
    """The saved predictor in `path`: that folder itself, or the one of `scheme` in the run that it holds."""
    root = Path(path)
    if (root / "predictor.json").is_file():
        if scheme is not None:
            raise InputError(f"{root} is one predictor, not a run; leave --scheme out")
        return root
    runs = open_runs(root)
    if len(runs) > 1:
        raise InputError(f"{root} holds {len(runs)} runs; give one of them, such as {runs[0].root}")
    systems = (*map(str, runs[0].schemes), *runs[0].products)
    for one in systems:
        clear(runs[0].predictor_path(one))  # which puts back what a kill left aside
    there = [one for one in systems if runs[0].predictor_path(one).is_dir()]
    wanted = scheme if scheme in there else None
    if wanted is None:
        wanted = str(Scheme.parse(scheme)) if scheme is not None else there[0] if len(there) == 1 else None
    if not there:
        raise InputError(f"{root} has no predictor yet; finish it: {runs[0].resume_command}")
    if wanted not in there:
        verb = "choose one with --scheme" if wanted is None else f"there is no {wanted}"
        raise InputError(f"{root} holds predictors of {', '.join(there)}; {verb}")
    return runs[0].predictor_path(wanted)
