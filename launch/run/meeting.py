"""``python -m cohort_gnn.launch.run.meeting``: what joins a launcher to those of the other machines of its run.

It speaks through the store of torch.distributed, a process of its own so that the launcher need not import torch. Dicts
go both ways. From the launcher: its facts, then any of {"channels": [...]}, {"ends": reason}, {"done": True}. To it:
{"round": ..., "facts": [...]} when all machines have met; then one of {"all_done": True}, {"lost": reason}, and the
process ends.
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
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from torch.distributed import PrefixStore, Store, TCPStore

from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.programs import describe_channel

BEAT_SECONDS = 0.5
FAREWELL_SECONDS = 3 * BEAT_SECONDS  # in which the other machines read in the store here why the run ends
LOOK_SECONDS = 1.0  # between two looks at what the processes of this machine do
POLL_SECONDS = 0.05
TRY_SECONDS = 3.0  # of one try to reach the store


class Late(Exception):
    """The store or a machine is not there within the limit; its text says which."""


def join_store(host: str, port: int, keeps_store: bool, limit_seconds: float) -> TCPStore:
    """The store at this address, as soon as it is there.

    One try of torch takes up to twice its timeout (IPv6, then IPv4), so there are several short ones.

    Raises:
        Late: it is not there within the limit.
        RuntimeError: this machine cannot keep it, because the port is taken, for instance.
    """
    deadline = time.monotonic() + limit_seconds
    while (left := deadline - time.monotonic()) > 0:
        how = {"is_master": keeps_store, "wait_for_workers": False}
        try:
            store = TCPStore(host, port, timeout=timedelta(seconds=min(TRY_SECONDS, left)), **how)
        except RuntimeError as error:
            if "timed out" not in str(error):
                raise
            continue
        store.set_timeout(timedelta(seconds=limit_seconds))
        return store
    try:
        socket.getaddrinfo(host, port)
    except OSError as error:
        raise Late(f"{host} has had no address for {limit_seconds:g} s: {error.strerror}") from None
    raise Late(f"machine 0 has not answered there for {limit_seconds:g} s")


def meet(store: Store, rank: int, size: int, facts: dict[str, Any], limit_seconds: float) -> tuple[str, list[dict]]:
    """(a name new to this meeting, the facts of every machine by rank).

    A store outlives the processes that meet in it: torchrun's next attempt finds what the last one has left. So each
    machine comes with a token; machine 0 proposes a round of the tokens that it sees, and machines that are there
    agree. A token of a machine that has gone is agreed by nobody, and is replaced when that machine comes again.
    Machine 0 leaves last, as it may keep the store.
    """
    token, deadline = uuid.uuid4().hex, time.monotonic() + limit_seconds
    own = json.dumps({"token": token, "facts": facts})
    store.set(f"come/{rank}", own)
    proposed: list[str] = []
    name = ""
    while time.monotonic() < deadline:
        if rank == 0:
            come = [f"come/{other}" for other in range(size)]
            words = [_get(store, key) for key in come]
            if all(words) and words != proposed:
                proposed, name = words, uuid.uuid4().hex
                for word in words:
                    store.set(f"round/{json.loads(word)['token']}", json.dumps({"name": name, "words": words}))
        if said := _get(store, f"round/{token}"):
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
        hosts: names of the machines, by rank.
        silent_seconds: after which a machine counts as gone.
    """

    def __init__(self, store: Store, rank: int, hosts: list[str], silent_seconds: float, address: str):
        self._store, self._rank, self._hosts = store, rank, hosts
        self._silent_seconds, self._address = silent_seconds, address
        self._own: dict[str, Any] = {"beat": 0, "words": "starting"}
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
                words = words_of(channels)
                with self._lock:
                    self._own["words"] = words
            time.sleep(LOOK_SECONDS)

    def beat(self) -> None:
        """Until all are done or one is lost."""
        others = [other for other in range(len(self._hosts)) if other != self._rank]
        heard = {other: (time.monotonic(), "") for other in others}
        try:
            while self._result is None:
                with self._lock:
                    self._own["beat"] += 1
                    own = json.dumps(self._own)
                self._store.set(str(self._rank), own)
                done = "done" in json.loads(own)
                for other in others:
                    said = _get(self._store, str(other)) or ""
                    if said != heard[other][1]:
                        heard[other] = time.monotonic(), said
                    word = json.loads(said) if said else {}
                    done = done and "done" in word
                    if "ends" in word:
                        self._result = {"lost": f"{self._name(other)}: {word['ends']}"}
                    elif "done" not in word and time.monotonic() - heard[other][0] > self._silent_seconds:
                        words = word.get("words", "none")
                        silent = f"{self._name(other)}: silent for {self._silent_seconds:g} s"
                        self._result = {"lost": f"{silent}; its last words: {words}"}
                self._answered = time.monotonic()
                if done:
                    self._result = {"all_done": True}
                time.sleep(BEAT_SECONDS)
        except RuntimeError as error:  # torch's errors of a store are of this class
            with self._lock:
                own_is_done = "done" in self._own
            lost = f"the rendezvous at {self._address} is gone: {str(error).splitlines()[0]}"
            self._result = {"all_done": True} if own_is_done else {"lost": lost}

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


def words_of(channels: list[Path]) -> str:
    """The last stage and batch of each process of a machine."""
    try:
        said = [describe_channel(folder) for folder in channels]
    except CohortError:  # the sampler has not announced them yet
        return "starting"
    parties = {"sampler": said[0]["sampler"]}
    parties |= {f"trainer {rank}": of_rank["trainer"] for rank, of_rank in enumerate(said)}
    return "; ".join(f"{name} {party['stage']}, batch {party['batch']}" for name, party in parties.items())


def main(about: dict[str, Any], launcher: Connection) -> dict[str, Any]:
    """Meets, then watches; its last word to the launcher, see the top of this file."""
    rank, size, limit = about["rank"], about["size"], about["start_seconds"]
    address = f"{about['host']}:{about['port']}"
    facts = launcher.recv()
    try:
        store = join_store(about["host"], about["port"], about["keeps_store"], limit)
    except (Late, RuntimeError) as error:
        return {"lost": f"no meeting at {address}: {str(error).splitlines()[0]}"}
    try:
        name, all_facts = meet(PrefixStore("cohort", store), rank, size, facts, limit)
    except Late as late:
        return {"lost": f"{late} did not come to {address} within {limit:g} s"}
    except RuntimeError as error:
        return {"lost": f"no meeting at {address}: {str(error).splitlines()[0]}"}
    launcher.send({"round": name, "facts": all_facts})
    hosts = [each["host"] for each in all_facts]
    watch = Watch(PrefixStore(f"cohort/{name}/watch", store), rank, hosts, about["silent_seconds"], address)
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
