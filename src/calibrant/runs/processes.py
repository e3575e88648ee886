"""Tasks side by side, each in a process of its own with one thread, that report and can be stopped."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from calibrant.files import RunError

Send = Callable[[Any], None]
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
_PATIENCE = 60.0  # seconds that a worker gets to write its checkpoint


@dataclass
class _Worker:
    process: BaseProcess
    connection: Connection
    started: bool = False
    finished: bool = False


def run_all(
    function: Callable[[Any, Send], None], tasks: Sequence[Any], workers: int, on_message: Callable[[int, Any], None]
) -> None:
    """Run `function(task, send)` for every task, at most `workers` at a time.

    `function` must be importable by name. Whatever it sends arrives as `on_message(number of the task, message)`. The
    first failure stops all others, and so does Ctrl-C: each then stops as after its own Ctrl-C.
    """
    waiting = list(enumerate(tasks))
    active: dict[int, _Worker] = {}
    try:
        while waiting or active:
            while waiting and len(active) < workers:
                number, task = waiting.pop(0)
                active[number] = _start(function, task)
            by_connection = {worker.connection: number for number, worker in active.items()}
            for connection in wait(list(by_connection)):
                number = by_connection[connection]  # type: ignore[index]
                _receive(number, active[number], on_message)
                if active[number].finished:
                    active.pop(number).process.join()
    finally:
        _stop(list(active.values()))


def _receive(number: int, worker: _Worker, on_message: Callable[[int, Any], None]) -> None:
    try:
        kind, content = worker.connection.recv()
    except EOFError:
        worker.process.join()
        code = worker.process.exitcode
        worker.finished = True
        raise RunError(f"a worker process ended with exit code {code}; start again to go on where it was") from None
    if kind == "error":
        worker.finished = True
        raise content
    worker.started, worker.finished = True, kind == "done"
    if kind == "message":
        on_message(number, content)


def _start(function: Callable[[Any, Send], None], task: Any) -> _Worker:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(theirs, function, task), daemon=True)
    with _environment(_ONE_THREAD):
        process.start()
    theirs.close()
    return _Worker(process, ours)


def _work(connection: Connection, function: Callable[[Any, Send], None], task: Any) -> None:
    """The worker's side; in a session of its own it hears of Ctrl-C from the parent alone, and so only once."""
    if hasattr(os, "setsid"):
        os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    import torch

    torch.set_num_threads(1)
    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):
        try:
            connection.send(("started", None))
            function(task, lambda message: connection.send(("message", message)))
            connection.send(("done", None))
        except Exception as error:
            connection.send(("error", _portable(error)))
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # there is nothing left to stop


def _portable(error: Exception) -> Exception:
    """`error` as one that can be sent: of our kinds with the same sentence, all others as a failure."""
    kind = ValueError if isinstance(error, ValueError) else RunError
    named = isinstance(error, (ValueError, RunError, OSError))
    return kind(str(error) if named else f"{type(error).__name__}: {error}")


def _stop(workers: Sequence[_Worker]) -> None:
    """Ask those that work to stop, end those that have not begun, and wait for them."""
    for worker in workers:
        if not worker.finished and worker.process.is_alive() and worker.process.pid is not None:
            os.kill(worker.process.pid, signal.SIGINT if worker.started else signal.SIGTERM)
    for worker in workers:
        worker.process.join(_PATIENCE)
        if worker.process.is_alive():
            worker.process.kill()
        worker.connection.close()


@contextlib.contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    """Inside, what is started has these environment variables, and does not hear Ctrl-C before it is ready."""
    before = {name: os.environ.get(name) for name in values}
    main = threading.current_thread() is threading.main_thread()
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN) if main else None
    os.environ.update(values)
    try:
        yield
    finally:
        if main:
            signal.signal(signal.SIGINT, handler)
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.__setitem__(name, value)
