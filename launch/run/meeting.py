"""``python -m cohort_gnn.launch.run.meeting``: what joins a launcher to those of the other machines of its run.

It speaks through the store of torch.distributed, a process of its own so that the launcher need not import torch. Dicts
go both ways. From the launcher: its facts, then any of {"channels": [...]}, {"stopped": process}, {"ends": reason},
{"done": True}. To it: {"round": ..., "facts": [...]} when all machines have met; then one of {"all_done": True},
{"lost": reason}, and the process ends.
"""

import contextlib
import functools
import json
import os
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from torch.distributed import PrefixStore, Store, TCPStore

from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.programs import describe_channel, is_stopped

BEAT_SECONDS = 0.5
FAREWELL_SECONDS = 3 * BEAT_SECONDS  # in which the other machines read in the store here why the run ends
LOOK_SECONDS = 1.0  # between two looks at what the processes of this machine do
POLL_SECONDS = 0.05
TRY_SECONDS = 3.0  # of one try to reach the store
SLACK_SECONDS = 1.0  # of torch's timeouts
NO_ANSWER = "machine 0 has not answered there"
NO_STORE = "another program than machine 0 has answered there"
_kept: list[TCPStore] = []  # till the process ends: others may still have to read in it why the run ends


class Late(Exception):
    """The store or a machine is not there within the limit; its text says which."""


class CallInThread(Future):
    """The result of a call in a thread that nothing waits for."""

    def __init__(self, call: Callable[[], Any]):
        super().__init__()
        threading.Thread(target=self._run, args=(call,), daemon=True).start()

    def _run(self, call: Callable[[], Any]) -> None:
        try:
            self.set_result(call())
        except Exception as error:
            self.set_exception(error)


class Twice(Exception):
    """Two machines have the same number; its text says which number, and which machines."""


def _takes_connections(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), TRY_SECONDS).close()
    except OSError:
        return False
    return True


class Number:
    """The number of this machine in a store, under which it leaves its word.

    A store outlives the processes that meet in it: torchrun's next attempt finds what the last one has left. So each
    machine comes with a token. The word of a machine that has gone is replaced when that machine comes again. A machine
    that is there and finds its word replaced has met another one with the same number.

    Args:
        store: in which all machines meet.
        facts: what the others hear of this machine.
        is_sole: torchrun has given the number, so no other machine has it.
    """

    def __init__(self, store: Store, rank: int, facts: dict[str, Any], is_sole: bool):
        self.store, self.rank, self.token = store, rank, uuid.uuid4().hex
        self._is_sole, self._word = is_sole, json.dumps({"token": self.token, "facts": facts})
        store.set(f"come/{rank}", self._word)

    def replaced(self) -> str:
        """The error if another machine has come with this number, which gets the same error; "": none has."""
        word = _get(self.store, f"come/{self.rank}") or self._word
        if self._is_sole or word == self._word:
            return ""
        hosts = [json.loads(entry)["facts"]["host"] for entry in (self._word, word)]
        twice = f"number {self.rank} twice, at {hosts[0]} and at {hosts[1]}"
        self.store.set("twice", twice)
        return twice

    def demand_sole(self) -> None:
        """Raises Twice if two machines have come with the same number, this one's or another."""
        twice = self.replaced() or (not self._is_sole and _get(self.store, "twice"))
        if twice:
            raise Twice(twice)


def join_store(host: str, port: int, keeps_store: bool, limit_seconds: float) -> TCPStore:
    """The store at this address, as soon as it is there.

    One try of torch takes up to twice its timeout (IPv6, then IPv4), so there are several short ones. A try that lasts
    longer has met a program that takes connections and says nothing, for which torch has no timeout.

    Raises:
        Late: it is not there within the limit.
        RuntimeError: this machine cannot keep it, because the port is taken, for instance.
    """
    deadline, missing = time.monotonic() + limit_seconds, NO_ANSWER
    while (left := deadline - time.monotonic()) > 0:
        seconds = min(TRY_SECONDS, left)
        how = {"is_master": keeps_store, "wait_for_workers": False, "timeout": timedelta(seconds=seconds)}
        trial = CallInThread(functools.partial(TCPStore, host, port, **how))
        try:
            store = trial.result(2 * seconds + SLACK_SECONDS)
        except TimeoutError:
            missing = NO_STORE if _takes_connections(host, port) else NO_ANSWER
            continue
        except RuntimeError as error:
            missing = NO_STORE if "Ping failed" in str(error) else NO_ANSWER
            if "timed out" in str(error) or missing == NO_STORE:
                time.sleep(POLL_SECONDS)
                continue
            raise
        store.set_timeout(timedelta(seconds=limit_seconds))
        _kept.append(store)
        return store
    try:
        socket.getaddrinfo(host, port)
    except OSError as error:
        raise Late(f"{host} has had no address for {limit_seconds:g} s: {error.strerror}") from None
    raise Late(f"{missing} for {limit_seconds:g} s")


def meet(number: Number, size: int, limit_seconds: float) -> tuple[str, list[dict]]:
    """(a name new to this meeting, the facts of every machine by rank).

    Machine 0 proposes a round of the tokens that it sees, and machines that are there agree. A token of a machine that
    has gone gets no agreement. Machine 0 leaves last, as it may keep the store.

    Raises:
        Late: not all machines come within the limit.
        Twice: two machines have the same number.
    """
    store, rank, deadline = number.store, number.rank, time.monotonic() + limit_seconds
    proposed: list[str] = []
    name = ""
    while time.monotonic() < deadline:
        number.demand_sole()
        if rank == 0:
            words = [word for other in range(size) if (word := _get(store, f"come/{other}"))]
            if len(words) == size and words != proposed:
                proposed, name = words, uuid.uuid4().hex
                for word in words:
                    store.set(f"round/{json.loads(word)['token']}", json.dumps({"name": name, "words": words}))
        if said := _get(store, f"round/{number.token}"):
            offer = json.loads(said)
            store.set(f"agreed/{offer['name']}/{rank}", "")
            if rank == 0 and all(_get(store, f"agreed/{name}/{other}") is not None for other in range(size)):
                store.set(f"begun/{name}", "")
            if _get(store, f"begun/{offer['name']}") is not None:
                store.set(f"read/{offer['name']}/{rank}", "")
                if rank > 0 or all(_get(store, f"read/{name}/{other}") is not None for other in range(size)):
                    return offer["name"], [json.loads(word)["facts"] for word in offer["words"]]
        time.sleep(POLL_SECONDS)
    missing = [str(other) for other in range(size) if _get(store, f"come/{other}") is None]
    raise Late(f"machine{'s' * (len(missing) > 1)} {', '.join(missing)}" if missing else "an agreement of all machines")


def _get(store: Store, key: str) -> str | None:
    return store.get(key).decode() if store.check([key]) else None


class Watch:
    """Tells the other machines that this one lives, and what it does last; hears the same of them.

    Args:
        store: of this round alone.
        number: of this machine; a machine that comes with the same hears that.
        hosts: names of the machines, by rank.
        silent_seconds: after which a machine counts as gone.
    """

    def __init__(self, store: Store, number: Number, hosts: list[str], silent_seconds: float, address: str):
        self._store, self._number, self._hosts = store, number, hosts
        self._silent_seconds, self._address = silent_seconds, address
        self._own: dict[str, Any] = {"beat": 0, "words": "starting", "stopped": ""}
        self._channels: list[Path] = []
        self._lock = threading.Lock()
        self._answered = time.monotonic()  # when the store last did
        self._result: dict[str, Any] | None = None

    def hear_launcher(self, launcher: Connection) -> None:
        """Takes its words; ends the process with the launcher."""
        with contextlib.suppress(EOFError, OSError):
            while True:
                said = launcher.recv()
                with self._lock:
                    self._channels = [Path(folder) for folder in said.pop("channels", [])] or self._channels
                    self._own |= said
        os._exit(0)

    def look(self) -> None:
        """Keeps what the processes of this machine say of themselves."""
        while True:
            with self._lock:
                channels = self._channels
            if channels:
                words = last_words(channels)
                with self._lock:
                    self._own["words"] = words
            time.sleep(LOOK_SECONDS)

    def beat(self) -> None:
        """Until all are done or one is lost; this machine is, too, if one of its processes is stopped."""
        machines = range(len(self._hosts))
        heard = {machine: (time.monotonic(), 0) for machine in machines}
        try:
            while self._result is None:
                own = self._own_word()
                self._store.set(str(self._number.rank), own)
                self._number.replaced()
                done = True
                for machine in machines:
                    is_own = machine == self._number.rank
                    word = json.loads((own if is_own else _get(self._store, str(machine))) or "{}")
                    if word.get("beat", 0) != heard[machine][1]:
                        heard[machine] = time.monotonic(), word["beat"]
                    done = done and "done" in word
                    if "ends" in word and not is_own:
                        self._result = {"lost": f"{self._name(machine)}: {word['ends']}"}
                    elif "done" not in word and time.monotonic() - heard[machine][0] > self._silent_seconds:
                        self._result = {"lost": self._silence(machine, word)}
                self._answered = time.monotonic()
                if done:
                    self._result = {"all_done": True}
                time.sleep(BEAT_SECONDS)
        except RuntimeError as error:  # torch's errors of a store are of this class
            with self._lock:
                own_is_done = "done" in self._own
            lost = f"the rendezvous at {self._address} is gone: {str(error).splitlines()[0]}"
            self._result = {"all_done": True} if own_is_done else {"lost": lost}

    def _own_word(self) -> str:
        with self._lock:
            launcher = {"stopped": f"the launcher (process {os.getppid()})"} if self._launcher_is_stopped() else {}
            word = self._own | launcher
            self._own["beat"] = word["beat"] = self._own["beat"] + (not word["stopped"])
        return json.dumps(word)

    def _launcher_is_stopped(self) -> bool:
        return is_stopped(os.getppid())

    def _silence(self, machine: int, word: dict[str, Any]) -> str:
        stopped, words, seconds = word.get("stopped"), word.get("words", "none"), self._silent_seconds
        if stopped:
            what = f"{stopped} has been stopped (SIGSTOP) for {seconds:g} s; its last words: {words}"
        else:
            what = f"silent for {seconds:g} s; its last words: {words}"
        return f"{self._name(machine)}: {what}"

    def wait(self) -> dict[str, Any]:
        """How it ended; a store that does not answer counts as gone."""
        while self._result is None:
            if time.monotonic() - self._answered > self._silent_seconds:
                silent = f"has not answered for {self._silent_seconds:g} s"
                return {"lost": f"the rendezvous at {self._address} {silent}: its machine or the network is gone"}
            time.sleep(POLL_SECONDS)
        return self._result

    def _name(self, other: int) -> str:
        return f"machine {other} ({self._hosts[other]})"


def last_words(channels: list[Path]) -> str:
    """The last stage and batch of each process of a machine."""
    try:
        said = [describe_channel(folder) for folder in channels]
    except CohortError:  # the sampler has not announced them yet
        return "starting"
    parties = {"sampler": said[0]["sampler"]}
    parties |= {f"trainer {rank}": by_rank["trainer"] for rank, by_rank in enumerate(said)}
    return "; ".join(f"{name} {party['stage']}, batch {party['batch']}" for name, party in parties.items())


def _twice(twice: Twice) -> dict[str, Any]:
    hint = "RANK must differ from machine to machine; another run at the same time needs another MASTER_PORT"
    return {"lost": str(twice), "expected": "a number of its own for each machine", "hint": hint}


def _port_in_use(about: dict[str, Any], facts: dict[str, Any]) -> dict[str, Any]:
    """Asks the program at the port of machine 0's store: it may be another machine 0, which then learns of this one."""
    with contextlib.suppress(Late, RuntimeError):  # no answer, or not that of a store
        store = join_store(about["host"], about["port"], False, TRY_SECONDS)
        number, deadline = (
            Number(PrefixStore("cohort", store), about["rank"], facts, False),
            time.monotonic() + TRY_SECONDS,
        )
        while time.monotonic() < deadline:
            try:
                number.demand_sole()
            except Twice as twice:
                return _twice(twice)
            time.sleep(POLL_SECONDS)
    expected = f"port {about['port']} of this machine for the meeting (MASTER_PORT)"
    return {"lost": "it in use by another program", "expected": expected, "hint": "choose another MASTER_PORT"}


def main(about: dict[str, Any], launcher: Connection) -> dict[str, Any]:
    """Meets, then watches; returns the last message to the launcher, see the top of this file."""
    rank, size, limit = about["rank"], about["size"], about["start_seconds"]
    address = f"{about['host']}:{about['port']}"
    facts = launcher.recv()
    try:
        store = join_store(about["host"], about["port"], about["keeps_store"], limit)
    except (Late, RuntimeError) as error:
        if "EADDRINUSE" in str(error):
            return _port_in_use(about, facts)
        return {"lost": f"no meeting at {address}: {str(error).splitlines()[0]}"}
    try:
        number = Number(PrefixStore("cohort", store), rank, facts, bool(about["agent"]))
        name, all_facts = meet(number, size, limit)
    except Twice as twice:
        return _twice(twice)
    except Late as late:
        return {"lost": f"{late} did not come to {address} within {limit:g} s"}
    except RuntimeError as error:
        return {"lost": f"no meeting at {address}: {str(error).splitlines()[0]}"}
    launcher.send({"round": name, "facts": all_facts})
    hosts = [machine_facts["host"] for machine_facts in all_facts]
    watch = Watch(PrefixStore(f"cohort/{name}/watch", store), number, hosts, about["silent_seconds"], address)
    for work in (functools.partial(watch.hear_launcher, launcher), watch.look, watch.beat):
        threading.Thread(target=work, daemon=True).start()
    return watch.wait()


if __name__ == "__main__":
    launcher = Connection(int(sys.argv[2]))
    about = json.loads(sys.argv[1])
    with contextlib.suppress(EOFError, OSError):  # the launcher has ended
        result = main(about, launcher)
        launcher.send(result)
        if about["keeps_store"] and "lost" in result:
            time.sleep(FAREWELL_SECONDS)
    # Without destructors: threads may wait for a machine that is gone. A store kept here ends with this process.
    os._exit(0)
