"""`python -m calibrant.experiments STUDY ...`: the same as `calibrant reproduce STUDY ...`."""

from __future__ import annotations

import argparse
import sys

from calibrant.experiments.reproduce import open_lab, redraw, reproduce
from calibrant.runs import RunError


def main(arguments: list[str] | None = None) -> int:
    """Run or redraw a study; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m calibrant.experiments", description=__doc__)
    parser.add_argument("study")
    parser.add_argument("--profile", default="embedded")
    parser.add_argument("--data", help="folder of the data sets")
    parser.add_argument("--out", help="folder of results; default results/PROFILE")
    parser.add_argument("--runs", help="run directory with the networks; default runs/PROFILE")
    parser.add_argument("--seeds", type=lambda text: [int(part) for part in text.split(",")])
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--from", dest="source", help="draw from the records in this folder, without training")
    parser.add_argument("-o", dest="overrides", action="append", default=[], metavar="KEY=VALUE")
    given = parser.parse_args(arguments)
    try:
        if given.source:
            written = redraw(given.source, given.study, given.out)
        else:
            lab = open_lab(
                given.profile,
                data=given.data,
                results=given.out,
                runs=given.runs,
                seeds=given.seeds,
                overrides=given.overrides,
            )
            written = reproduce(lab, given.study, workers=given.workers)
    except (ValueError, RunError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for folder in written:
        print(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
