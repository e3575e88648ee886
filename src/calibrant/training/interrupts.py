"""Ctrl-C, SIGTERM and SIGHUP wait for the end of a training step, so that the state which is saved is whole."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class StopRequest:
    """Whether, and by which signal, the process was asked to stop."""

    signal: int | None = None

    def obey(self) -> None:
        """Raise what the signal would have raised."""
        if self.signal == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(128 + int(self.signal or 0))


@contextmanager
def deferred_stop(enabled: bool = True) -> Iterator[StopRequest]:
    """Inside, the first SIGINT, SIGTERM or SIGHUP is noted, and a second one acts at once.

    Only the main thread may set handlers; in others, and where not `enabled`, signals act as ever.
    """
    request = StopRequest()
    if not enabled or threading.current_thread() is not threading.main_thread():
        yield request
        return
    numbers = (signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM))
    before = {number: handler for number in numbers if (handler := signal.getsignal(number)) != signal.SIG_IGN}

    def note(number: int, frame: FrameType | None) -> None:
        request.signal = number
        for each, handler in before.items():
            signal.signal(each, handler)

    for number in before:
        signal.signal(number, note)
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
