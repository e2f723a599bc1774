"""What machines say to each other through a store: here threads of one process, with a store in its memory."""

import contextlib
import socket
import threading
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from processes import free_port
from torch.distributed import HashStore, PrefixStore, TCPStore

from cohort_gnn.base.errors import CohortError
from cohort_gnn.launch.run import machines, meeting
from cohort_gnn.launch.run.machines import Machine
from cohort_gnn.launch.run.meeting import Late, Number, Twice, Watch, join_store, meet

SECONDS = 60.0  # more than any of these meetings takes
HOSTS = ["a", "b", "c"]


def meets(pool: ThreadPoolExecutor, store, rank: int, size: int, host: str, is_sole: bool = False) -> Future:
    """A machine that has come: its word is in the store."""
    return pool.submit(meet, Number(store, rank, {"host": host}, is_sole), size, SECONDS)


def test_two_machines_with_one_number_and_all_others_hear_of_it():
    store = HashStore()
    with ThreadPoolExecutor() as pool:
        came = [meets(pool, store, rank, 3, host) for rank, host in ((0, "a"), (1, "b"), (1, "c"))]
        for each in came:
            with pytest.raises(Twice, match="^number 1 twice, at b and at c$"):
                each.result(SECONDS)


def test_a_number_of_machines_that_have_met_is_refused():
    store = HashStore()
    with ThreadPoolExecutor() as pool:
        numbers = [Number(store, rank, {"host": HOSTS[rank]}, False) for rank in range(2)]
        met = [pool.submit(meet, number, 2, SECONDS) for number in numbers]
        name, _ = met[0].result(SECONDS)
        assert met[1].result(SECONDS)[0] == name
        late = meets(pool, store, 1, 2, "c")
        while not late.done():
            numbers[1].replaced()
        with pytest.raises(Twice, match="at b and at c"):
            late.result()


def test_torchrun_gives_the_number_of_a_machine_that_has_gone_again():
    store = HashStore()
    with ThreadPoolExecutor() as pool:
        for _ in range(2):  # attempts
            met = [meets(pool, store, rank, 2, HOSTS[rank], is_sole=True) for rank in range(2)]
            assert met[0].result(SECONDS) == met[1].result(SECONDS)


def test_who_has_the_port_of_machine_0(monkeypatch):
    """Another program, or another machine 0: that one hears of the second."""
    monkeypatch.setattr(meeting, "TRY_SECONDS", 0.2)
    about = {"rank": 0, "host": "127.0.0.1", "port": free_port()}
    store = TCPStore("127.0.0.1", about["port"], is_master=True, wait_for_workers=False)
    assert meeting._port_in_use(about, {"host": "b"})["lost"] == "it in use by another program"
    monkeypatch.setattr(meeting, "TRY_SECONDS", SECONDS)
    with ThreadPoolExecutor() as pool:
        first = meets(pool, PrefixStore("cohort", store), 0, 2, "a")
        assert meeting._port_in_use(about, {"host": "b"})["lost"] == "number 0 twice, at a and at b"
        with pytest.raises(Twice, match="number 0 twice, at a and at b"):
            first.result(SECONDS)


def test_the_hint_for_a_number_that_occurs_twice(monkeypatch):
    port = free_port()
    store = TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False)
    with ThreadPoolExecutor() as pool:
        first = meets(pool, PrefixStore("cohort", store), 1, 2, "a")
        with (
            pytest.raises(CohortError) as error,
            machines.meeting_of(Machine(1, 2, "127.0.0.1", port, False, ""), 1.0, SECONDS) as second,
        ):
            second.exchange({})
        assert error.value.expected == "a number of its own for each machine" and "MASTER_PORT" in error.value.hint
        assert first.exception(SECONDS)


@pytest.mark.parametrize("process", ["the trainer (process 7)", "the launcher"])
def test_a_machine_with_a_stopped_process_is_named_everywhere(monkeypatch, process):
    monkeypatch.setattr(meeting, "BEAT_SECONDS", 0.01)
    store = HashStore()
    watches = [Watch(store, Number(store, rank, {"host": HOSTS[rank]}, False), HOSTS, 0.5, "here") for rank in range(3)]
    if process == "the launcher":
        watches[1]._launcher_is_stopped = lambda: True
    else:
        watches[1]._own["stopped"] = process
    threads = [threading.Thread(target=watch.beat) for watch in watches]
    for thread in threads:
        thread.start()
    for watch, thread in zip(watches, threads, strict=True):
        lost = watch.wait()["lost"]
        assert lost.startswith(f"machine 1 (b): {process}"), lost
        assert "has been stopped (SIGSTOP) for 0.5 s" in lost
        thread.join()


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_a_program_that_is_no_store_does_not_hold_the_meeting(monkeypatch, answer):
    monkeypatch.setattr(meeting, "TRY_SECONDS", 0.5)
    monkeypatch.setattr(meeting, "SLACK_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as server, pytest.raises(Late) as late:
        callers = []

        def serve() -> None:
            with contextlib.suppress(OSError):  # it is closed
                while True:
                    callers.append(server.accept()[0])
                    callers[-1].sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        join_store("127.0.0.1", server.getsockname()[1], False, 1.0)
    assert str(late.value) == "another program than machine 0 has answered there for 1 s"
