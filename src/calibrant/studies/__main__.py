"""`python -m calibrant.studies STUDY ...`: the same as `calibrant reproduce STUDY ...`."""

from __future__ import annotations

import typer

from calibrant.cli import errors
from calibrant.cli.reproduce import command

if __name__ == "__main__":  # worker processes import this file anew
    app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    app.command()(command)
    errors.run(app)
