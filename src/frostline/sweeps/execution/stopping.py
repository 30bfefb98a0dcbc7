"""A request to stop training after the current step, so that a long run leaves a checkpoint.

Signals make the request. Forked workers ignore signals, so they read it from shared memory.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from mmap import mmap
from time import monotonic
from typing import NoReturn

LONGEST_STEP = 20.0  # seconds that the current step may still take when training is asked to stop


class Stopped(BaseException):
    """Training has stopped because it was asked to."""


class StopRequest:
    """Whether training is asked to stop. One byte of shared memory says so to forked workers.

    Attributes:
        since: When the oldest training under way began, or left its last checkpoint; None: nothing is trained.
        leaving_at_once: What a signal has raised, which now ends the program.
    """

    WORTH_KEEPING = 30.0  # seconds of training: shorter runs stop at once, and start again

    def __init__(self) -> None:
        self._byte = mmap(-1, 1)
        self._leaving: BaseException | None = None
        self.since: float | None = None
        self.leaving_at_once: BaseException | None = None

    @property
    def made(self) -> bool:
        """Whether training is asked to stop."""
        return self._byte[0] != 0

    def make(self, leaving: BaseException) -> bool:
        """Ask training to stop.

        Args:
            leaving: What :meth:`heeded` raises when it has stopped.

        Returns:
            Whether it will stop soon. If not, there is no training worth a checkpoint, or it was already asked: stop at once.
        """
        if self.made or self.since is None or monotonic() - self.since < self.WORTH_KEEPING:
            return False
        self._leaving, self._byte[0] = leaving, 1
        _alarm_in(LONGEST_STEP)
        return True

    def give_up(self) -> None:
        """Leave although training has not stopped, because its step does not end."""
        if self._leaving is not None:
            self.leave(self._leaving)

    def leave(self, leaving: BaseException) -> NoReturn:
        """Leave from wherever the program is."""
        self.leaving_at_once = leaving
        raise leaving

    def stop_if_made(self) -> None:
        """Raise :class:`Stopped` if training is asked to stop."""
        if self.made:
            raise Stopped

    @contextmanager
    def heeded(self) -> Iterator[None]:
        """While the context is open, training heeds requests, and :class:`Stopped` becomes what was given with the request."""
        try:
            yield
            if self._leaving is not None:  # the request came after the last step
                raise self._leaving
        except Stopped:
            assert self._leaving is not None
            raise self._leaving from None
        finally:
            if self._leaving is not None:
                _alarm_in(0)
            self.since, self._leaving, self._byte[0] = None, None, 0


def _alarm_in(seconds: float) -> None:
    """Let the system send SIGALRM after this time; 0 cancels that. Not every system can."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, seconds)


STOP = StopRequest()
