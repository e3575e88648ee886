"""`calibrant report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from calibrant.cli import options, output

EXAMPLES = """
calibrant report run
calibrant report run-0 run-1 run-2 --out paper.html
calibrant report demo --title "Digits, letters, photographs"
"""


def command(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders that train or demo made.")],
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE.html", help="The page; default: report.html in the first RUN.")
    ] = None,
    title: Annotated[str | None, typer.Option("--title", metavar="TEXT", help="The title of the page.")] = None,
    json: options.Json = False,
) -> None:
    """Write the page of one or more runs: one HTML file, offline.

    It opens with a verdict: which answers to trust, and what becomes of outliers. Runs of the same scheme with
    different seeds are averaged, with intervals over inputs and seeds.
    """
    from calibrant.deploy.reporting import report_page
    from calibrant.files import writable_file
    from calibrant.runs.run import open_runs

    opened = [run for path in runs for run in open_runs(path)]
    target = runs[0] / "report.html" if out is None else out
    writable_file(target)
    page = report_page(opened, target, title=title)
    if json:
        output.print_json({"page": str(page)})
    else:
        output.print_lines(f"The page: {page.resolve().as_uri()}")
