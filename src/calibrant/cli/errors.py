"""Where everything that goes wrong becomes one sentence on standard error and an exit code.

0  done
1  a bug of ours, whose traceback is in a file that is named
2  a usage error or bad input: a wrong option, path, setting, file or column, a damaged file of a run, a full disk, too
   little memory, a package that is not installed, or a plugin that fails, whose traceback is in a file that is named
3  a gate failed: what was measured meets a condition of --fail-if
4  training diverged
129, 130, 143  stopped by SIGHUP (the terminal was closed), Ctrl-C or SIGTERM; the sentence says how to resume
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any, NoReturn

from calibrant import InputError, __version__, install_line
from calibrant.files import DivergedError, is_text
from calibrant.runs.failures import UnexpectedError, is_expected
from calibrant.slots import PluginError

FAILED, USAGE, GATE, DIVERGED, INTERRUPTED = 1, 2, 3, 4, 128 + signal.SIGINT
DEBUG = "CALIBRANT_DEBUG"
USERS = InputError
"""The errors that are the user's; an error that is nobody's is a bug of ours."""
_ENDING = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]


class GateFailed(Exception):  # noqa: N818  (nothing went wrong: the answer is no)
    """A measure is worse than what was asked for; the message says which, and by how much."""


class Stopped(Exception):  # noqa: N818  (it is no error)
    """Ctrl-C, SIGTERM or SIGHUP; the message says how to resume."""

    def __init__(self, how: str, code: int = INTERRUPTED) -> None:
        super().__init__(how)
        self.code = code


@contextlib.contextmanager
def resumable(how: Callable[[], str]) -> Iterator[None]:
    """Inside, a stop by the user ends with the sentence `how()`."""
    try:
        yield
    except KeyboardInterrupt:
        raise Stopped(how()) from None
    except SystemExit as error:
        number = next((number for number in _ENDING if error.code == 128 + number), None)
        if number is None:
            raise
        raise Stopped(how(), 128 + number) from None


def show_tracebacks() -> None:
    """Show where errors arise, as the environment variable CALIBRANT_DEBUG does."""
    os.environ[DEBUG] = "1"


def is_main_process() -> bool:
    """Whether this is the one process that speaks: rank 0 under torchrun."""
    return os.environ.get("RANK", "0") == "0"


def run(app: Callable[..., Any]) -> NoReturn:
    """Run the typer `app` on the arguments of this process and exit."""
    for number in _ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
            signal.signal(number, _end)
    warnings.showwarning = _one_line
    sys.stdout, sys.stderr = _lasting(sys.stdout, 1), _lasting(sys.stderr, 2)
    try:
        _check_text(sys.argv[1:])
        with resumable(lambda: "stopped"):
            code = app(standalone_mode=False, prog_name="calibrant")
            sys.stdout.flush()
        if code == INTERRUPTED:  # typer makes an exit code of Ctrl-C
            raise KeyboardInterrupt
    except (Exception, KeyboardInterrupt) as error:
        if os.environ.get(DEBUG):
            traceback.print_exc()
        message, code = explain(error)
        alike = isinstance(error, (InputError, DivergedError, GateFailed, Stopped, KeyboardInterrupt))
        say(message, alike=alike or hasattr(error, "format_message"))
    sys.exit(code if isinstance(code, int) else 0)


class _Pipe(io.FileIO):
    """Output that nobody may be reading any more: after `| head -1`, the exit code is still the command's own.

    Where it cannot be written for another reason, that is an error once.
    """

    lost = False

    def write(self, content: Any) -> int:
        try:
            return len(content) if self.lost else super().write(content)
        except OSError as error:
            self.lost = True
            if isinstance(error, BrokenPipeError):
                return len(content)
            error.filename = "standard output" if self.fileno() == 1 else "standard error"
            raise


def _lasting(stream: Any, number: int) -> Any:
    """`stream`, which outlives its reader; nowhere if it was closed from the start, as by `>&-`."""
    if stream is None:
        return open(os.devnull, "w")  # noqa: PTH123  (as long as the process lives)
    if not any(stream is own for own in (sys.__stdout__, sys.__stderr__)):
        return stream
    buffer = io.BufferedWriter(_Pipe(number, "w", closefd=False))
    line = number == 2 or stream.isatty()
    return io.TextIOWrapper(buffer, stream.encoding, stream.errors, line_buffering=line)


def _check_text(arguments: Sequence[str]) -> None:
    """Refuse a path whose bytes are no text, before it fails where it is written or printed."""
    for argument in arguments:
        if not is_text(argument):
            raise InputError(f"argument {argument!a} is no text in UTF-8; rename the file, or set LC_ALL=C.UTF-8")


def explain(error: BaseException) -> tuple[str, int]:
    """The sentence and the exit code for `error`; the traceback of one that nobody foresaw is written to a file.

    >>> explain(InputError("data: no such file"))
    ('data: no such file', 2)
    >>> explain(ZeroDivisionError("division by zero"))
    ('unexpected ZeroDivisionError: division by zero; this is a bug of calibrant: please report it with ....txt', 1)
    """
    text = " ".join(str(error).split())
    if isinstance(error, Stopped):
        return text, error.code
    if isinstance(error, KeyboardInterrupt) or type(error).__name__ == "Abort":
        return "stopped", INTERRUPTED
    if hasattr(error, "format_message"):  # typer's own: a wrong option or command
        return _usage(error), USAGE
    if isinstance(error, GateFailed) or is_expected(error):
        return _expected(error, text)
    return _bug(error)


def _expected(error: BaseException, text: str) -> tuple[str, int]:
    if isinstance(error, GateFailed):
        return text, GATE
    if isinstance(error, DivergedError):
        return text, DIVERGED
    if isinstance(error, PluginError):
        return f"{text}; its traceback is in {_kept(''.join(traceback.format_exception(error)))}", USAGE
    if isinstance(error, ModuleNotFoundError):
        line = install_line(error.name) or "pip install"
        return text if line in text else f"{text}; install what this needs with: {line}", USAGE
    if isinstance(error, UnicodeEncodeError):
        about = ascii(error.object[max(0, error.start - 20) : error.end + 20])
        return f"a name holds what is no text in UTF-8, in {about}; rename it", USAGE
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror or text}", USAGE
    return text or "out of memory", USAGE


def _bug(error: BaseException) -> tuple[str, int]:
    """The sentence for an `error` that nobody foresaw, after its traceback was written to a file, and the code."""
    bug = UnexpectedError.of(error)
    about = f"unexpected {bug}" if bug is not error else str(bug)
    if bug.plugin:
        return f"{about}; this is a bug of the plugin {bug.plugin}: its traceback is in {_kept(bug.details)}", USAGE
    return f"{about}; this is a bug of calibrant: please report it with {_kept(bug.details)}", FAILED


def _kept(details: str) -> str:
    """The name of a file with the traceback `details`; if none can be written, how to see it."""
    try:
        number, path = tempfile.mkstemp(prefix="calibrant-", suffix=".txt")
        with os.fdopen(number, "w", encoding="utf-8") as file:
            file.write(f"calibrant {__version__}, Python {sys.version}\n{sys.argv}\n{details}")
    except OSError:
        return f"what {DEBUG}=1 shows"
    return path


def say(message: str, *, alike: bool = True) -> None:
    """Print one sentence; of what all ranks of a run complain about `alike`, rank 0 speaks for all."""
    with contextlib.suppress(OSError):  # the terminal was closed
        if is_main_process():
            print(f"calibrant: {message}", file=sys.stderr)
        elif not alike:
            print(f"calibrant (rank {os.environ['RANK']}): {message}", file=sys.stderr)


def _usage(error: Any) -> str:
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "calibrant"
    message = " ".join(error.format_message().split()).rstrip(".").replace("Value error, ", "")
    return f"{message} ({command} --help has examples)"


def _end(number: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)


def _one_line(message: Any, category: Any, filename: Any, lineno: Any, file: Any = None, line: Any = None) -> None:
    if is_main_process():
        print(f"calibrant: warning: {' '.join(str(message).split())}", file=sys.stderr)
