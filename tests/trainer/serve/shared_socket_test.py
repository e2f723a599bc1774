"""Connections are spread over the processes that share a listening socket."""

import socket

import pytest

pytest.importorskip("uvicorn")

from cohort_gnn.trainer.serve import shared_socket
from cohort_gnn.trainer.serve.shared_socket import MOST_PATIENCE, PATIENCE, SharedSocket


@pytest.fixture
def waits(monkeypatch):
    """The seconds that accept() waits, which pass at once; what was accepted stays recent on a slow machine."""
    seconds = []
    monkeypatch.setattr(shared_socket.time, "sleep", seconds.append)
    monkeypatch.setattr(shared_socket, "RECENT", 600.0)
    return seconds


@pytest.fixture
def shared():
    """shared(N): the socket as a process with N connections has it; four clients wait to be accepted."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        clients = [socket.create_connection(listening.getsockname()) for _ in range(4)]
        made = []

        def make(connections: int) -> SharedSocket:
            made.append(SharedSocket(listening.dup().detach(), lambda: connections))
            made[-1].setblocking(False)
            return made[-1]

        yield make
        for each in (*clients, *made):
            each.close()


def test_a_process_waits_the_longer_the_more_it_has(shared, waits):
    idle = shared(0)
    for process in (idle, idle, shared(3), shared(1000)):
        process.accept()[0].close()
    assert waits == [0, PATIENCE, 3 * PATIENCE, MOST_PATIENCE]
    with pytest.raises(BlockingIOError):
        idle.accept()


def test_others_accept_while_it_waits(shared, monkeypatch):
    busy, idle = shared(1), shared(0)

    def others(seconds: float) -> None:
        for _ in range(4 if seconds else 0):
            socket.socket.accept(idle)[0].close()

    monkeypatch.setattr(shared_socket.time, "sleep", others)
    with pytest.raises(BlockingIOError):
        busy.accept()
