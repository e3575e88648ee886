"""`calibrant reproduce`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from calibrant import InputError
from calibrant.cli import options, output
from calibrant.cli.errors import resumable

EXAMPLES = """
calibrant reproduce reliability                                  # on the embedded data, in a minute
calibrant reproduce all --profile micro --data /data --workers 2
calibrant reproduce regularizers --profile micro --data /data --seeds 0,1,2 --workers 2
calibrant reproduce all --from results/micro                     # draw again from the records
calibrant reproduce claims --from results                        # the paper's claims, held against the records
"""


def command(
    study: Annotated[
        str,
        typer.Argument(
            metavar="STUDY",
            help="reliability, lambda-pareto, ood-histograms, gamma-tradeoff, coverage, cost, ablation-lambda,"
            " ablation-gamma, ablation-eta, backbone, regularizers, ood-scores, trust, posteriors, all; or claims.",
        ),
    ],
    profile: options.Profile = None,
    data: Annotated[
        Path | None, typer.Option("--data", metavar="DIR", help="Folder of the data sets that the profile names.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Folder of results (default: results/PROFILE).")
    ] = None,
    runs: Annotated[
        Path | None, typer.Option("--runs", metavar="RUN", help="Run directory of networks (default: runs/PROFILE).")
    ] = None,
    weights: options.WeightsFile = None,
    seeds: Annotated[
        str | None, typer.Option("--seeds", metavar="0,1,2", help="Seeds; the first one chooses lambda.")
    ] = None,
    workers: Annotated[int, typer.Option("--workers", min=1, help="Processes, one thread each.", metavar="N")] = 1,
    override: options.Overrides = None,
    source: Annotated[
        Path | None, typer.Option("--from", metavar="DIR", help="Draw from the records in DIR; nothing is trained.")
    ] = None,
    json: options.Json = False,
) -> None:
    """Reproduce a figure or table of the paper.

    Studies share one run directory, so nothing is trained twice; a run that was stopped resumes when it is started
    again. Settings of the studies themselves (grids, seeds) are overridden with -o study.KEY=VALUE.
    """
    from calibrant.studies import open_lab, redraw, reproduce, write_claims

    if study == "claims":
        folder = source or out or Path("results")
        written = [write_claims(folder)]
    elif source is not None:
        written = redraw(source, study, out)
    else:
        lab = open_lab(
            profile or "embedded",
            data=None if data is None else str(data),
            results=out,
            runs=runs,
            seeds=None if seeds is None else parse_seeds(seeds),
            overrides=[*(override or ()), *([f"backbone.weights={weights}"] if weights else [])],
        )
        with resumable(lambda: "stopped; the same command resumes it"):
            written = reproduce(lab, study, workers=workers)
    if json:
        output.print_json({"written": [str(path) for path in written]})
    else:
        output.print_lines(*map(str, written))


def parse_seeds(text: str) -> list[int]:
    """`"0,1,2"` as numbers.

    >>> parse_seeds("0,2")
    [0, 2]
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise InputError(f"--seeds must be whole numbers with commas between them, such as 0,1,2, not {text!r}")
    return [int(part) for part in parts]
