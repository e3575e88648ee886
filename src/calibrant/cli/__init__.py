"""The command line: parses, calls, prints. One file per command; torch and pydantic are imported when a command runs.

A new command is a file here with a function `command` and its `EXAMPLES`, listed in `COMMANDS` under its name.

May import: files, slots, adapters, metrics, data, backbones, config, evaluation, audit, runs, training, deploy,
studies.
"""

from __future__ import annotations

import inspect
import textwrap
from types import ModuleType
from typing import Annotated

import typer

from calibrant import __version__
from calibrant.cli import audit, calibrate, data, demo, errors, evaluate, info, predict, report, reproduce, sweep, train
from calibrant.cli.plugins import with_plugins

COMMANDS: dict[str, ModuleType] = {
    "demo": demo,
    "train": train,
    "evaluate": evaluate,
    "calibrate": calibrate,
    "predict": predict,
    "sweep": sweep,
    "audit": audit,
    "report": report,
    "reproduce": reproduce,
    "data": data,
    "info": info,
}
_EXAMPLES = """
calibrant demo                    # trust, and the paper at toy scale, in two minutes
calibrant audit predictions.csv   # is a model calibrated? a table of its predictions is enough
calibrant calibrate nets:make ... # turn your trained network and labeled images into a predictor
calibrant train --out run         # train any of the paper's sixteen schemes
calibrant predict run photos/     # labels, confidences, and which answers to trust
"""


def _help(text: str | None, examples: str) -> str:
    """The docstring `text`, then the examples, whose lines are left as they are."""
    return f"{inspect.cleandoc(text or '')}\n\n\b\nExamples:\n{textwrap.indent(examples.strip(), '  ')}"


app = typer.Typer(
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,  # plain help: a third faster to start, and the same on a pipe and for a screen reader
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"calibrant {__version__}")
        raise typer.Exit


@app.callback(help=_help("Classifiers that know when they don't know.", _EXAMPLES))
def _calibrant(
    debug: Annotated[bool, typer.Option("--debug", help="Show where in the code an error arose.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """What all commands share."""
    if debug:
        errors.show_tracebacks()


for name, module in COMMANDS.items():
    app.command(name, help=_help(module.command.__doc__, module.EXAMPLES))(with_plugins(module.command))


def main() -> None:
    """Run the command line and exit."""
    errors.run(app)
