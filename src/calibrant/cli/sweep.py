"""`calibrant sweep`."""

from __future__ import annotations

from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from calibrant import InputError
from calibrant.cli import options, output
from calibrant.cli.engines import Where
from calibrant.cli.errors import resumable
from calibrant.cli.groups import grouped

if TYPE_CHECKING:
    from rich.table import Table

    from calibrant.config.loading import Settings
    from calibrant.runs.executor import Executor
    from calibrant.training.sweeps.grid import Sweep
    from calibrant.training.sweeps.record import SweepResult, TrialRow

EXAMPLES = """
calibrant sweep --param lambda=0.2,0.4,...,1,2,...,10 --scheme CBNN --data embedded --out sweep
calibrant sweep --param gamma=0.1,0.5,1 --param finetune.epochs=2,4 --scheme BNN-OCM --out sweep
calibrant sweep --param lambda=0.5,1,2 --scheme CFNN --out sweep --engine ray --address auto --asha
calibrant sweep --resume --out sweep                           # after Ctrl-C or a crash
"""


@dataclass(frozen=True)
class What:
    """What is trained, as for `train`."""

    data: Annotated[str | None, typer.Option("--data", metavar="SPEC", help="ID data; `calibrant data` lists.")] = None
    uncertainty: Annotated[
        str | None, typer.Option("--uncertainty", metavar="SPEC", help="Unlabeled outliers for the -OCM schemes.")
    ] = None
    backbone: Annotated[str | None, typer.Option("--backbone", metavar="NAME", help="wrn-16-1, cnn-16, ...")] = None
    profile: options.Profile = None
    settings: options.SettingsFile = None
    override: options.Overrides = None
    device: options.Device = None
    seed: options.Seed = None

    def read(self) -> Settings:
        """The settings they add up to."""
        own = {"data__source": self.data, "data__uncertainty": self.uncertainty, "backbone__name": self.backbone}
        more = {"engine__device": self.device, "seed": self.seed}
        return options.read_settings(self.profile, self.settings, self.override or (), **own, **more)


@grouped
def command(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Run directory; with many nodes, one they share.")],
    what: What,
    where: Where,
    param: Annotated[
        list[str] | None,
        typer.Option("--param", "-p", metavar="NAME=V,V,...", help="lambda, gamma, or any setting; repeat for a grid."),
    ] = None,
    scheme: Annotated[
        str | None, typer.Option("--scheme", "-s", metavar="NAME", help="CBNN (default), FNN, CBNN-OCM, ...")
    ] = None,
    asha: Annotated[
        bool, typer.Option("--asha", help="Stop trials early that fall behind in validation cross-entropy.")
    ] = False,
    retries: Annotated[
        int, typer.Option("--retries", min=0, metavar="N", help="How often a trial that dies is restarted.")
    ] = 2,
    resume: options.Resume = False,
    json: options.Json = False,
) -> None:
    """Try values of settings and choose by the paper's rule.

    The winner has the lowest validation ECE of those whose accuracy is at most 1.5 points (or
    calibration.max_accuracy_drop) below the baseline: lambda = 0 where the regularizer is swept, else the settings as
    they are. Trials are fits in the run cache of DIR, so finished ones are reused, and interrupted ones resume. Writes
    sweep.json, sweep.csv and pareto.png.
    """
    from calibrant.training.sweeps.record import RECORD, SweepResult
    from calibrant.training.sweeps.sweep import check_finished, run_sweep

    executor = _executor(where, asha, retries)
    if resume:
        options.refuse_beside_resume(param, scheme, *astuple(replace(what, device=None)))
        sweep = SweepResult.load(out).sweep
        sweep = replace(sweep, settings=options.on_device(sweep.settings, what.device))
    else:
        sweep = _sweep(what.read(), scheme or "CBNN", param or [])
    again = options.resume_command("sweep", out, f"{where}{' --asha' if asha else ''}")
    with resumable(lambda: options.after_stop((out / RECORD).exists(), again)):
        result = run_sweep(sweep, out, executor, on_trial=_say)
    if json:
        output.print_json(_record(result, out))
    else:
        output.print_table(_table(result))
        output.print_lines(*_next(result, out))
    check_finished(result, again)


def _executor(where: Where, asha: bool, retries: int) -> Executor:
    from calibrant.runs.executor import Serial
    from calibrant.runs.ray_tune import RayTune

    wanted = where.parsed()
    if where.on_ray(asha=asha):
        return RayTune(where.address, wanted, retries, asha)
    if wanted.gpu or wanted.custom:
        raise InputError("--resources other than cpu need --engine ray; here, --device names the accelerator")
    return Serial(wanted.cpu, retries)


def _sweep(settings: Settings, scheme: str, params: list[str]) -> Sweep:
    from calibrant.config.schemes import Scheme
    from calibrant.training.sweeps.grid import Parameter, Sweep

    return Sweep(settings, Scheme.parse(scheme), tuple(Parameter.parse(text) for text in params))


def _say(row: TrialRow, done: int, total: int) -> None:
    found = (
        f"accuracy {row.accuracy:.4f}, ECE {row.ece:.4f}" if row.state == "finished" else f"{row.state} {row.reason}"
    )
    output.log(f"{done}/{total} {row.name}: {found}")


def _table(result: SweepResult) -> Table:
    table = output.plain_table("", "trial", "accuracy", "ECE", "cross-entropy", "state")
    for row in result.rows():
        measures = (row.accuracy, row.ece)
        cells = ["–" if value is None else f"{100 * value:.2f}" for value in measures]
        cells.append("–" if row.cross_entropy is None else f"{row.cross_entropy:.4f}")
        table.add_row("*" if row == result.winner else "", row.name, *cells, f"{row.state} {row.reason}".strip())
    drop = 100 * result.sweep.settings.calibration.max_accuracy_drop
    table.caption = (
        f"On validation data; accuracy and ECE in percent. *: lowest ECE within {drop:g} points of accuracy."
    )
    table.caption_justify = "left"
    return table


def _record(result: SweepResult, out: Path) -> dict[str, Any]:
    names = [one.name for one in result.sweep.parameters]
    winner = None if result.winner is None else result.winner.name
    rows = [row.flat(names) for row in result.rows()]
    return {"out": str(out), "winner": winner, "overrides": list(result.overrides), "trials": rows}


def _next(result: SweepResult, out: Path) -> list[str]:
    lines = [f"{out / 'sweep.csv'} and {out / 'pareto.png'} are written."]
    if result.overrides:
        chosen = " ".join(f"-o {one}" for one in result.overrides)
        lines.append(f"Train it whole with the same options, reusing the fit: calibrant train {chosen} --out {out} ...")
    return lines
