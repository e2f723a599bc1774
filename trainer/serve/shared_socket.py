"""A listening socket that several processes share."""

import socket
import time
from collections.abc import Callable

PATIENCE, MOST_PATIENCE = 0.0005, 0.003  # seconds: for each connection that a process has, and at most
RECENT = 0.05  # seconds: connections accepted since may not be counted yet


class SharedSocket(socket.socket):
    """Accepts the later, the more connections its process has: others mostly have theirs first.

    Whichever process runs next would accept all that wait: asyncio does so without a pause, and a client that opens its
    connections together would have one process answer them all.

    Args:
        number: the descriptor, which this object owns.
        num_connections: how many connections the process has.
    """

    def __init__(self, number: int, num_connections: Callable[[], int]):
        super().__init__(fileno=number)
        self._num_connections, self._accepted_at, self._accepted = num_connections, 0.0, 0

    def accept(self) -> tuple[socket.socket, object]:
        """As a socket's, after a short wait: BlockingIOError where another process has accepted meanwhile."""
        if time.monotonic() - self._accepted_at > RECENT:
            self._accepted = 0
        time.sleep(min(PATIENCE * max(self._num_connections(), self._accepted), MOST_PATIENCE))
        accepted = super().accept()
        self._accepted_at, self._accepted = time.monotonic(), self._accepted + 1
        return accepted
