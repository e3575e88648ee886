"""`calibrant demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from calibrant import InputError
from calibrant.cli import options, output
from calibrant.cli.errors import resumable

EXAMPLES = """
calibrant demo
calibrant demo --seeds 5 --out demo5
calibrant demo -o fit.epochs=30 --out longer
calibrant demo --resume                 # after Ctrl-C
"""


def command(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The output folder.")] = Path("demo"),
    seeds: Annotated[int, typer.Option("--seeds", min=1, metavar="N", help="How many seeds.")] = 2,
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, metavar="N", help="Seeds side by side; default: as many as cores.")
    ] = None,
    profile: options.Profile = None,
    settings: options.SettingsFile = None,
    override: options.Overrides = None,
    device: options.Device = None,
    seed: options.Seed = None,
    resume: options.Resume = False,
    json: options.Json = False,
) -> None:
    """Show trust and the paper's schemes on embedded data.

    Trains a network for digits, plain, temperature-scaled and with trust, and the paper's sixteen schemes (four fits,
    four fine-tunes and eight selectors per seed), on data that come with the installation. Tests them on digits, and on
    letters (near) and photographs (far) that training never saw. Writes a table and a page. Takes about two minutes on
    two cores.
    """
    from calibrant.runs.run import Run

    if resume:
        options.refuse_beside_resume(profile, settings, override, seed)
        record = Run(out).record
        chosen, numbers = options.on_device(Run(out).settings, device), record.get("seeds", [])
        if not numbers:
            raise InputError(f"{out} is not a demo; resume it: {Run(out).resume_command}")
        asked = str(record["command"])
    else:
        chosen = options.read_settings(profile, settings, override or (), engine__device=device, seed=seed)
        numbers, asked = list(range(chosen.seed, chosen.seed + seeds)), options.command_line()
    from calibrant.deploy.demo import run_demo

    labels = {number: f"seed {number}" for number in numbers}
    stopped = resumable(lambda: options.after_stop(Run(out).exists, options.resume_command("demo", out)))
    with stopped, output.step_display(list(labels.values())) as show:
        made = run_demo(
            chosen,
            out,
            seeds=numbers,
            workers=workers,
            command=asked,
            on_step=lambda number, *step: show(labels[number], *step),
        )
    if json:
        output.print_json({"page": str(made.page), "table": str(made.table), "rows": [r.flat() for r in made.rows]})
        return
    output.print_results(made.rows, chosen.report.confidence_level)
    output.print_lines(f"The table: {made.table}", f"The page:  {made.page.resolve().as_uri()}")
