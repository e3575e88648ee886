"""How a task can fail, whichever process it ran in, and which of many failures a command ends with."""

from __future__ import annotations

import traceback
from collections.abc import Sequence

from calibrant import InputError
from calibrant.files import DivergedError, RunError
from calibrant.slots import plugin_at_fault

# Of torch and of our own kernels, by name, so that nothing is imported for them.
_SURROUNDINGS = {"OutOfMemoryError", "BuildError"}


class WorkerError(RunError):
    """A worker died, or failed in a way that was not expected: another attempt may succeed."""


class UnexpectedError(WorkerError):
    """An error that nobody foresaw, and so a bug: `details` is its traceback, and `plugin` the one that it arose in.

    >>> import pickle
    >>> error = pickle.loads(pickle.dumps(UnexpectedError("KeyError: 'x'", "Traceback ...")))
    >>> str(error), error.details, error.plugin
    ("KeyError: 'x'", 'Traceback ...', '')
    """

    def __init__(self, sentence: str, details: str = "", plugin: str = "") -> None:
        super().__init__(sentence, details, plugin)
        self.sentence, self.details, self.plugin = sentence, details, plugin

    def __str__(self) -> str:
        return self.sentence

    @classmethod
    def of(cls, error: BaseException) -> UnexpectedError:
        """`error` as one of these, unless it is already."""
        if isinstance(error, UnexpectedError):
            return error
        details = "".join(traceback.format_exception(error))
        return cls(described(error), details, plugin_at_fault(error))


def described(error: BaseException) -> str:
    """`error` in one line, with its kind unless it is one of ours.

    >>> described(InputError("no such file")), described(KeyError("x"))
    ('no such file', "KeyError: 'x'")
    """
    kind = "" if isinstance(error, (InputError, RunError)) else f"{type(error).__name__}: "
    return " ".join(f"{kind}{error}".split())


def is_expected(error: BaseException) -> bool:
    """Whether `error` is no bug: one of our sentences, or the fault of a disk, of memory or of a missing package.

    So is a name from outside that is no text: bytes that are not UTF-8 are read as surrogates, which cannot be written.

    >>> is_expected(OSError(28, "No space left on device")), is_expected(IndexError("off by one"))
    (True, False)
    """
    if isinstance(error, ModuleNotFoundError):
        return not str(error.name).startswith("calibrant")
    if isinstance(error, UnicodeEncodeError):
        return error.reason == "surrogates not allowed"
    if isinstance(error, (InputError, RunError, OSError, MemoryError)):
        return not isinstance(error, UnexpectedError)
    return bool(_SURROUNDINGS & {kind.__name__ for kind in type(error).__mro__})


def portable(error: Exception) -> Exception:
    """`error` as one that any process can read: of our kinds with its sentence, a bug with its traceback."""
    if not is_expected(error):
        return UnexpectedError.of(error)
    kinds = (DivergedError, InputError, WorkerError, RunError)
    kind = next((kind for kind in kinds if isinstance(error, kind)), WorkerError)
    return kind(described(error))


def worst(errors: Sequence[Exception], sentence: str) -> Exception:
    """An error that says `sentence`, of the worst kind among `errors`: a bug, a training that diverged, or bad input.

    >>> worst([InputError("x"), DivergedError("y")], "2 of 3 jobs failed")
    DivergedError('2 of 3 jobs failed')
    """
    bugs = [UnexpectedError.of(error) for error in errors if not is_expected(error)]
    if bugs:
        plugin = "" if any(not bug.plugin for bug in bugs) else bugs[0].plugin
        return UnexpectedError(sentence, "\n".join(bug.details for bug in bugs), plugin)
    kinds = (DivergedError, InputError)
    return next((kind for kind in kinds if any(isinstance(one, kind) for one in errors)), RunError)(sentence)
