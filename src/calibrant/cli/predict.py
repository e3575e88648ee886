"""`calibrant predict`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from calibrant import InputError
from calibrant.cli import options, output
from calibrant.cli.engines import Where
from calibrant.cli.errors import resumable
from calibrant.cli.groups import grouped
from calibrant.cli.modules import Module, network_of

if TYPE_CHECKING:
    from calibrant.deploy.prediction_tables import PredictionCount


EXAMPLES = """
calibrant predict run photos/ --out predictions.csv
calibrant predict run 'parquet:big.parquet?id=key' --out predictions.parquet --device cuda
calibrant predict demo/seed-0 embedded:near --scheme SCBNN-OCM --coverage 0.8 --early --out letters.csv
calibrant predict photos-run folder:new --module my_nets:resnet20 --out predictions.csv
calibrant predict run 's3://bucket/big?id=key' --engine ray --address auto --out s3://bucket/answers
"""


@grouped
def command(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory, or a saved predictor.")],
    source: Annotated[str, typer.Argument(metavar="INPUT", help="Image folder, NPZ or Parquet file, or a spec.")],
    out: Annotated[
        str,
        typer.Option("--out", metavar="FILE", help="FILE.csv or FILE.parquet; with Ray, a folder of parts."),
    ],
    where: Where,
    scheme: Annotated[
        str | None, typer.Option("--scheme", "-s", metavar="NAME", help="Which scheme, where RUN holds several.")
    ] = None,
    module: Module = None,
    coverage: Annotated[
        float | None,
        typer.Option(
            "--coverage", min=0, max=1, metavar="SHARE", help="Answer this share of inputs like the validation data."
        ),
    ] = None,
    error: Annotated[
        float | None,
        typer.Option(
            "--error", min=0, max=1, metavar="SHARE", help="Answer where trust is at least 1 - SHARE; rule trust only."
        ),
    ] = None,
    early: Annotated[
        bool, typer.Option("--early", help="Evaluate members one by one, and stop once the decision is settled.")
    ] = False,
    probabilities: Annotated[bool, typer.Option("--probabilities", help="Add one column per class.")] = False,
    batch: Annotated[int, typer.Option("--batch", min=1, metavar="N", help="Inputs in memory at a time.")] = 256,
    device: options.Device = None,
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, metavar="N", help="With Ray: how many; default: as many as fit.")
    ] = None,
    json: options.Json = False,
) -> None:
    """Write labels, confidences, and which answers to trust.

    Columns: id (file name or row number), predicted (the class), confidence, trust (where the rule is trust), accepted,
    ood_score, acceptance (what is compared with the threshold), members (how many were evaluated), outlier_... (larger
    is more outlying). Inputs are raw: normalization is part of the model, and images are resized to its training size.
    The file appears once it is complete.
    """
    from calibrant.adapters.devices import choose_device
    from calibrant.deploy import EarlyStopping, load
    from calibrant.runs.run import predictor_folder

    if coverage is not None and error is not None:
        raise InputError("give either --coverage or --error, not both")
    engine, local = _engine(where, device, workers), where.engine == "local"
    network = None if module is None else network_of(module)
    target = choose_device(device or "auto") if local else "cpu"
    predictor = load(predictor_folder(run, scheme), network, target)
    if coverage is not None:
        predictor = predictor.at_coverage(coverage)
    elif error is not None:
        predictor = predictor.at_error(error)
    how = "nothing was written: start again" if local else "start again to resume: what is written is kept"
    with resumable(lambda: f"stopped; {how}"), _counter() as show:
        count = engine(
            predictor,
            source,
            out,
            batch_rows=batch,
            probabilities=probabilities,
            early=EarlyStopping() if early else None,
            on_batch=show,
        )
    if json:
        found: dict[str, Any] = {"inputs": count.inputs, "accepted": count.accepted, "mean_members": count.members}
        output.print_json({"out": str(out), **found})
        return
    members = f", {count.members:.1f} members per input" if early else ""
    output.print_lines(f"{count.inputs:,} inputs, {count.accepted:,} accepted{members}: {out}")


def _engine(where: Where, device: str | None, workers: int | None) -> Callable[..., PredictionCount]:
    """What predicts: this process, or a Ray cluster."""
    if not where.on_ray(workers=workers):
        from calibrant.deploy.prediction_tables import predict_table

        if where.resources is not None:
            raise InputError("--resources needs --engine ray; here, OMP_NUM_THREADS is the number of threads")
        return predict_table
    from calibrant.deploy.spread.ray_predict import RayPrediction

    if device is not None:
        raise InputError("--device is for the local engine; with --engine ray, --resources gpu=1 asks for accelerators")
    return RayPrediction(where.address, workers, where.parsed()).run


@contextmanager
def _counter() -> Iterator[Callable[[PredictionCount], None] | None]:
    """How many inputs are done and how fast, on a terminal; nothing elsewhere."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.fields[count]}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("predict", total=None, count="starting")

        def show(count: PredictionCount) -> None:
            elapsed = progress.tasks[task].elapsed or 1e-9
            progress.update(task, count=f"{count.inputs:,} inputs, {count.inputs / elapsed:,.0f} a second")

        yield show
