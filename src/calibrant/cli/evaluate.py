"""`calibrant evaluate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from calibrant.cli import options, output
from calibrant.cli.modules import Module, network_of

EXAMPLES = """
calibrant evaluate run
calibrant evaluate demo --scheme FNN --scheme SCBNN-OCM --json
calibrant evaluate run --data npz:hospital-b.npz --ood 'folder:scans?size=32'
"""


def command(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A folder that train or demo made.")],
    data: Annotated[
        str | None, typer.Option("--data", metavar="SPEC", help="Labeled data in place of the run's test set.")
    ] = None,
    ood: Annotated[
        list[str] | None, typer.Option("--ood", metavar="SPEC", help="OOD data in place of the run's; repeatable.")
    ] = None,
    scheme: options.Schemes = None,
    module: Module = None,
    device: options.Device = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE.csv", help="The table as CSV, too.")] = None,
    json: options.Json = False,
) -> None:
    """Measure a trained run on its own data or on yours.

    Thresholds are those of the run's validation data, on any data.
    """
    from calibrant.deploy.evaluating import evaluate_run
    from calibrant.deploy.prediction_tables import files_read
    from calibrant.deploy.reporting import table_of, write_table
    from calibrant.files import writable_file
    from calibrant.runs.run import open_runs

    runs = open_runs(run)
    if out is not None:
        writable_file(out, files_read(*([data] if data else []), *(ood or ())))
    wanted = options.parse_schemes(scheme, "all") if scheme else []
    given: dict[str, Any] = {"data": data, "ood": ood or (), "device": device or "auto"}
    given["module"] = None if module is None else network_of(module)
    evaluations = [found for one in runs for found in evaluate_run(one, wanted, **given)]
    settings = runs[0].settings.report
    rows = table_of(evaluations, settings)
    if out is not None:
        write_table(out, rows)
    if json:
        output.print_json({"rows": [row.flat() for row in rows]})
    else:
        output.print_results(rows, settings.confidence_level)
