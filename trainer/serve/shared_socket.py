"""A listening socket that several processes share."""

import socket
import time
from collections.abc import Callable

PATIENCE, MOST_PATIENCE = 0.001, 0.005  # seconds: for each connection that a process has, and at most
PAUSE = 0.0002  # seconds: in which other processes accept
WAVE = 0.05  # seconds without a call: what comes then is a connection that nobody has waited for


class SharedSocket(socket.socket):
    """Accepts the later, the more connections its process has: the others have theirs first.

    Whichever process runs next would accept all that wait: asyncio does so without a pause, and a client that opens its
    connections together would have one process answer them all.

    Args:
        number: the descriptor, which this object owns.
        num_connections: how many connections the process has.
    """

    def __init__(self, number: int, num_connections: Callable[[], int]):
        super().__init__(fileno=number)
        self._num_connections, self._began, self._accepted = num_connections, 0.0, 0

    def accept(self) -> tuple[socket.socket, object]:
        """
        Raises:
            BlockingIOError: it is the turn of others, or nothing waits; asyncio asks again.
        """
        now = time.monotonic()
        if now - self._began > WAVE:
            self._began, self._accepted = now, 0
        if now - self._began < min(PATIENCE * max(self._num_connections(), self._accepted), MOST_PATIENCE):
            time.sleep(PAUSE)
            raise BlockingIOError("another process may accept")
        accepted = super().accept()
        self._began, self._accepted = now, self._accepted + 1
        return accepted
