"""Connections are spread over the processes that share a listening socket."""

import socket

import pytest

pytest.importorskip("uvicorn")

from cohort_gnn.trainer.serve import shared_socket
from cohort_gnn.trainer.serve.shared_socket import SharedSocket


@pytest.fixture
def shared(monkeypatch):
    """shared(N): the socket as a process with N connections has it; clients wait to be accepted. None is accepted late
    because the machine is slow."""
    for name in ("PATIENCE", "MOST_PATIENCE", "WAVE"):
        monkeypatch.setattr(shared_socket, name, 600.0)
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


def test_one_that_has_accepted_lets_others_come_first(shared):
    first, second = shared(0), shared(0)
    for process in (first, second):
        process.accept()[0].close()
        with pytest.raises(BlockingIOError, match="another process"):
            process.accept()


def test_one_with_connections_comes_later_but_comes(shared, monkeypatch):
    busy, idle = shared(3), shared(0)
    with pytest.raises(BlockingIOError, match="another process"):
        busy.accept()
    idle.accept()[0].close()
    monkeypatch.setattr(shared_socket, "MOST_PATIENCE", 0.0)
    for process in (busy, busy, idle):
        process.accept()[0].close()
    with pytest.raises(BlockingIOError, match="unavailable"):
        busy.accept()
