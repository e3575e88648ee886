"""Where everything that goes wrong becomes one sentence on standard error and an exit code.

0  done
1  it failed: a disk is full, training diverged, a file is damaged, something unexpected
2  a usage error: a wrong option, path, setting, file, column
3  a gate failed: what was measured meets a condition of --fail-if
130, 143  stopped by Ctrl-C or SIGTERM; the sentence says how to resume
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, NoReturn

FAILED, USAGE, GATE, INTERRUPTED, TERMINATED = 1, 2, 3, 128 + signal.SIGINT, 128 + signal.SIGTERM
DEBUG = "CALIBRANT_DEBUG"
# By name, so that nothing is imported for them.
_FAILURES = {"RunError", "BuildError", "OutOfMemoryError", "MemoryError"}


class Stopped(Exception):  # noqa: N818  (it is no error)
    """Ctrl-C or SIGTERM; the message says how to resume."""

    def __init__(self, how: str, code: int = INTERRUPTED) -> None:
        super().__init__(how)
        self.code = code


class GateFailed(Exception):  # noqa: N818  (all went well, but for what was measured)
    """What was measured meets a condition of `--fail-if`; the message says which, and what was measured."""


@contextlib.contextmanager
def resumable(how: Callable[[], str]) -> Iterator[None]:
    """Inside, a stop by the user ends with the sentence `how()`."""
    try:
        yield
    except KeyboardInterrupt:
        raise Stopped(how()) from None
    except SystemExit as error:
        if error.code != TERMINATED:
            raise
        raise Stopped(how(), TERMINATED) from None


def show_tracebacks() -> None:
    """Show where errors arise, as the environment variable CALIBRANT_DEBUG does."""
    os.environ[DEBUG] = "1"


def is_main_process() -> bool:
    """Whether this is the one process that speaks: rank 0 under torchrun."""
    return os.environ.get("RANK", "0") == "0"


def run(app: Callable[..., Any]) -> NoReturn:
    """Run the typer `app` on the arguments of this process and exit."""
    signal.signal(signal.SIGTERM, _terminate)
    warnings.showwarning = _one_line
    try:
        code = app(standalone_mode=False, prog_name="calibrant")
    except (Exception, KeyboardInterrupt) as error:
        if os.environ.get(DEBUG):
            traceback.print_exc()
        message, code = explain(error)
        say(message, code)
    sys.exit(code if isinstance(code, int) else 0)


def explain(error: BaseException) -> tuple[str, int]:
    """The sentence and the exit code for `error`.

    >>> explain(ValueError("data: no such file"))
    ('data: no such file', 2)
    >>> explain(ZeroDivisionError("division by zero"))
    ('unexpected ZeroDivisionError: division by zero (CALIBRANT_DEBUG=1 shows where)', 1)
    """
    text = " ".join(str(error).split())
    if isinstance(error, Stopped):
        return text, error.code
    if isinstance(error, GateFailed):
        return text, GATE
    if isinstance(error, KeyboardInterrupt) or type(error).__name__ == "Abort":
        return "stopped", INTERRUPTED
    if hasattr(error, "format_message"):  # typer's own: a wrong option or command
        return _usage(error), USAGE
    if isinstance(error, ValueError):
        return text, USAGE
    if isinstance(error, ModuleNotFoundError):
        return f"{text}; install what this needs with: pip install 'calibrant[all]'", FAILED
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror or text}", FAILED
    if _FAILURES & {kind.__name__ for kind in type(error).__mro__}:
        return text or "out of memory", FAILED
    return f"unexpected {type(error).__name__}: {text} ({DEBUG}=1 shows where)", FAILED


def say(message: str, code: int) -> None:
    """Print one sentence; of what all ranks of a run complain about alike, rank 0 speaks for all."""
    if is_main_process():
        print(f"calibrant: {message}", file=sys.stderr)
    elif code == FAILED:
        print(f"calibrant (rank {os.environ['RANK']}): {message}", file=sys.stderr)


def _usage(error: Any) -> str:
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "calibrant"
    message = " ".join(error.format_message().split()).rstrip(".")
    return f"{message} ({command} --help has examples)"


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(TERMINATED)


def _one_line(message: Any, category: Any, filename: Any, lineno: Any, file: Any = None, line: Any = None) -> None:
    if is_main_process():
        print(f"calibrant: warning: {' '.join(str(message).split())}", file=sys.stderr)
