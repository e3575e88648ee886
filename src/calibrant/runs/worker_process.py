"""A worker process: it serves tasks one by one with one thread, reports, and can be stopped."""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection

from calibrant import InputError
from calibrant.runs.executor import Ended, Listener, Task, perform
from calibrant.runs.failures import WorkerError
from calibrant.runs.resources import environment

# On few cores one thread per process is fastest, and it does not oversubscribe them.
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
_ONE_THREAD["OMP_WAIT_POLICY"] = "PASSIVE"
_PATIENCE = 60.0  # seconds that a worker gets to write its checkpoint


class Worker:
    """The parent's side of a worker process: `task` is what it works on."""

    task: Task

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self._process = context.Process(target=_work, args=(theirs,), daemon=True)
        self._started, self._busy = False, False
        with environment(_ONE_THREAD), _deaf_to_interrupts():
            self._process.start()
        theirs.close()

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process.is_alive()

    def give(self, task: Task) -> None:
        """Let it do `task`."""
        self.task, self._busy = task, True
        with contextlib.suppress(BrokenPipeError):  # it died; `receive` tells
            self.connection.send(task)

    def receive(self, listener: Listener) -> Ended | None:
        """Read one message of the worker, which must be there; returns how the task ended, if it did."""
        try:
            kind, content = self.connection.recv()
        except (EOFError, ConnectionResetError):
            return self._died()
        self._started = True
        if kind == "message":
            listener.on_message(self.task, content)
        if kind != "ended":
            return None
        self._busy = False
        ended: Ended = content
        return ended

    def _died(self) -> Ended:
        self._process.join()
        self._busy = False
        code = self._process.exitcode
        return Ended(error=WorkerError(f"a worker process ended with exit code {code}; start again to resume"))

    @staticmethod
    def stop_all(workers: Sequence[Worker]) -> None:
        """Interrupt those that work, end those that have not begun, and wait for all."""
        for worker in workers:
            if worker._busy and worker.alive and worker._process.pid is not None:
                os.kill(worker._process.pid, signal.SIGINT if worker._started else signal.SIGTERM)
            else:
                worker.connection.close()
        for worker in workers:
            worker._process.join(_PATIENCE)
            if worker.alive:
                worker._process.kill()
            worker.connection.close()


def _work(connection: Connection) -> None:
    """The worker's side; in a session of its own it hears of Ctrl-C from the parent alone, and so only once."""
    if hasattr(os, "setsid"):
        os.setsid()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    import torch

    torch.set_num_threads(1)
    with contextlib.suppress(KeyboardInterrupt, EOFError, BrokenPipeError, ConnectionResetError):
        try:
            connection.send(("started", None))
            while True:
                _serve(connection, connection.recv())
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # there is nothing left to stop


def _serve(connection: Connection, task: Task) -> None:
    ended = perform(task, lambda message: connection.send(("message", message)))
    try:
        connection.send(("ended", ended.portable()))
    except (AttributeError, TypeError, ValueError) as error:  # the value cannot be pickled
        connection.send(("ended", Ended(error=InputError(f"the result of {task.name} cannot be sent: {error}"))))


def _end_with_parent() -> None:
    """A worker whose parent was killed must not continue unseen, holding the locks of its stages."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)


@contextlib.contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Inside, what is started does not hear Ctrl-C before it is ready."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
