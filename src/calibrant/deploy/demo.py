"""Trust and the paper at toy scale: the baseline, our default and all sixteen schemes, one table and one page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calibrant import InputError
from calibrant.config.loading import Settings
from calibrant.config.schemes import Scheme
from calibrant.deploy.pipeline import PRODUCTS, train_run
from calibrant.deploy.reporting import report_page, table_of, write_table
from calibrant.evaluation import Evaluation, Row, coverage_curves
from calibrant.runs.executor import Listener, Processes, Send, Task
from calibrant.runs.run import Run
from calibrant.training.training_data import varying_test

TITLE = "What a network trained on digits does when it is shown photographs"
LIMITS = (
    "The demo is small, and its settings were found by trials that showed test accuracy too: it demonstrates, and does"
    " not prove. Results on larger data, with kinds of outliers that nothing was fitted to, are in the README."
)
COVERAGE = 0.8
OnSeed = Callable[[int, str, int, int], None]  # the seed, what comes next, steps done, steps in all


@dataclass(frozen=True)
class Demo:
    """What the demo made: the table, and where the page is."""

    rows: list[Row]
    page: Path
    table: Path


def run_demo(
    settings: Settings,
    out: str | Path,
    *,
    seeds: Sequence[int] = (0, 1),
    workers: int | None = None,
    command: str = "",
    on_step: OnSeed | None = None,
) -> Demo:
    """Train and evaluate all schemes for every seed in `out`, then make the table and the page.

    Seeds run side by side, a process each, as many as there are cores, or `workers`. What is in `out` already is
    reused, so after a stop the same call resumes.
    """
    root, schemes = Run(out), Scheme.all()
    if len(set(seeds)) != len(seeds) or not seeds or min(seeds) < 0:
        raise InputError(f"seeds must be different numbers from 0 on, not {list(seeds)}")
    varying = varying_test(settings.data) if len(seeds) > 1 else None
    if varying is not None:
        raise InputError(
            f"seeds cannot be averaged with {varying}, by which each is tested on other examples: give --seeds 1, or"
            " data with a test set of its own, whole"
        )
    root.check(settings)
    root.begin(settings, schemes, command, seeds=list(seeds))
    tasks = [
        Task(f"seed {seed}", _train_seed, (settings.with_(f"seed={seed}"), _folder(root, seed), command))
        for seed in seeds
    ]

    def on_message(task: Task, message: Any) -> None:
        if on_step is not None:
            on_step(task.argument[0].seed, *message)

    Processes(workers).run(tasks, Listener(on_message=on_message), stop_on_failure=True)
    runs = [Run(_folder(root, seed)) for seed in seeds]
    rows = table_of([one for run in runs for one in run.evaluations()], settings.report)
    table = root.root / "table.csv"
    write_table(table, rows)
    return Demo(rows, demo_page(runs, root.root / "report.html", rows), table)


def demo_page(runs: Sequence[Run], out: str | Path, rows: Sequence[Row] | None = None) -> Path:
    """Write the demo's page, whose first sentence says what became of the photographs."""
    from calibrant.report.page import Section

    lead = _lead([one for run in runs for one in run.evaluations()])
    limits = [Section("About the demo", [LIMITS], place="unknown")] if lead else []
    return report_page(runs, out, rows=rows, title=TITLE if lead else None, lead=lead, sections=limits)


def _lead(evaluations: Sequence[Evaluation]) -> str:
    """How many photographs are answered at the same coverage, with a threshold on the confidence and on trust.

    Nothing if the data were changed to some without photographs.
    """
    chosen = [one for one in evaluations if one.system in PRODUCTS]
    curves = {curve.system: curve for curve in coverage_curves(chosen, [COVERAGE])}
    if not all("far" in curve.ood for curve in curves.values()):
        return ""
    plain, ours = (_share(float(curves[name].ood["far"]["ood_acceptance"].mean())) for name in PRODUCTS)
    return (
        f"Asked to answer {_share(COVERAGE)} of the digits, which it was trained for, a plain network with temperature"
        f" scaling also answers {plain} of the photographs; the same network with trust answers {ours} of them."
    )


def _share(share: float) -> str:
    if share in (0, 1):
        return "all" if share else "none"
    return f"{100 * share:.{0 if share >= 0.1 else 1}f} %" if share >= 0.0005 else "less than 0.1 %"


def _folder(root: Run, seed: int) -> Path:
    return root.root / f"seed-{seed}"


def _train_seed(argument: tuple[Settings, Path, str], send: Send) -> None:
    settings, out, command = argument

    def tell(*step: Any) -> None:
        send(step)

    train_run(settings, Scheme.all(), out, command=command, products=tuple(PRODUCTS), progress=False, on_step=tell)
