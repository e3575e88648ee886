"""`calibrant train`."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated

import typer

from calibrant.cli import options, output
from calibrant.cli.errors import is_main_process, resumable
from calibrant.slots import names, plugin_options

EXAMPLES = """
calibrant train --data embedded --scheme SCBNN-OCM --out run
calibrant train --data cifar100:/data --uncertainty imagenet-resize:/data \\
    --scheme SCBNN-OCM --scheme FNN --backbone wrn-16-1 --out run
calibrant train --data 'folder:photos?size=32' --scheme SCBNN -o fit.epochs=50 --out run
calibrant train --profile cifar10 -o data.root=/data --scheme FNN --scheme CBNN-OCM --out run
calibrant train --scheme FNN --calibrator temperature --rule trust --out run
calibrant train --plugin my_ideas --scheme SCBNN -o selector.objective=mine --out run
calibrant train --resume --out run                               # after Ctrl-C or a crash
torchrun --nproc-per-node 2 -m calibrant train --out run         # two processes
"""


def command(
    out: Annotated[Path, typer.Option("--out", metavar="RUN", help="The run directory.")],
    data: Annotated[str | None, typer.Option("--data", metavar="SPEC", help="ID data; `calibrant data` lists.")] = None,
    uncertainty: Annotated[
        str | None, typer.Option("--uncertainty", metavar="SPEC", help="Unlabeled outliers for the -OCM schemes.")
    ] = None,
    ood: Annotated[
        list[str] | None,
        typer.Option("--ood", metavar="SPEC", help="OOD test data that training never sees; repeatable."),
    ] = None,
    scheme: options.Schemes = None,
    backbone: Annotated[
        str | None, typer.Option("--backbone", metavar="NAME", help="wrn-16-1, resnet-18, cnn-16, mlp-128-128, ...")
    ] = None,
    weights: options.WeightsFile = None,
    calibrator: Annotated[
        str | None,
        typer.Option("--calibrator", metavar="NAME", help=f"Fitted after training: {', '.join(names('calibrator'))}."),
    ] = None,
    rule: Annotated[
        str | None,
        typer.Option("--rule", metavar="NAME", help="Accepts answers without a selector: trust, sirc, confidence."),
    ] = None,
    profile: options.Profile = None,
    settings: options.SettingsFile = None,
    override: options.Overrides = None,
    device: options.Device = None,
    seed: options.Seed = None,
    resume: options.Resume = False,
    json: options.Json = False,
) -> None:
    """Train schemes, evaluate them, and save predictors to deploy.

    Settings come from the profile, then the YAML file, then -o, then the other options; later ones win. Stages that are
    finished in RUN are not run again; other settings need another RUN.
    """
    named = {"data__source": data, "data__uncertainty": uncertainty, "data__ood": ood}
    named |= {"backbone__name": backbone, "backbone__weights": weights}
    named |= {"calibrator__name": calibrator, "rule__name": rule}
    from calibrant.runs.run import Run

    run = Run(out)
    if resume:
        options.refuse_beside_resume(profile, settings, override, scheme, seed, *named.values())
        chosen, schemes, asked = options.on_device(run.settings, device), list(run.schemes), str(run.record["command"])
    else:
        chosen = options.read_settings(profile, settings, override or (), engine__device=device, seed=seed, **named)
        schemes, asked = options.parse_schemes(scheme, "SCBNN-OCM"), options.command_line()
    from calibrant.deploy.pipeline import train_run
    from calibrant.deploy.reporting import table_of, write_table

    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)  # it would greet from every rank
    with resumable(lambda: options.after_stop(run.exists, options.resume_command("train", out))):
        evaluations = train_run(
            chosen, schemes, out, command=asked, on_step=lambda name, done, n: output.log(f"{done}/{n} {name}")
        )
        if not is_main_process():
            return
        rows = table_of(evaluations, chosen.report)
        write_table(out / "table.csv", rows)
    if json:
        predictors = {str(one): str(run.predictor_path(one)) for one in schemes}
        output.print_json({"run": str(out), "predictors": predictors, "rows": [row.flat() for row in rows]})
        return
    output.print_results(rows, chosen.report.confidence_level)
    choice = f" --scheme {schemes[-1]}" if len(run.schemes) > 1 else ""
    output.print_lines(
        "Next:",
        f"  calibrant report {out}{plugin_options()}",
        f"  calibrant evaluate {out} --data SPEC --ood SPEC{plugin_options()}",
        f"  calibrant predict {out} INPUT --out predictions.csv{choice}{plugin_options()}",
    )
