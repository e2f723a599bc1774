"""The machines of a run meet to measure the network between them, for ``cohort doctor --machines``."""

import json
import os
import subprocess
import tempfile
import time
from typing import Any

from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.machine import devices
from cohort_gnn.base.programs import end_processes, python
from cohort_gnn.launch.run.machines import Machine, Meeting, address_towards, interface_of, meeting_of
from cohort_gnn.launch.run.supervise import OTHERS_SECONDS, POLL_SECONDS, STOP_SECONDS, begin_child

PAIR_SECONDS = 10.0  # that a pair of machines may take, on a network of 10 MB/s


def rates_between(machine: Machine, silent_seconds: float) -> dict[str, Any]:
    """{"hosts", "addresses" by machine, "interface" of this one for gloo, "gloo", "nccl"}: see rates.py.

    Args:
        silent_seconds: in which every machine comes, and after which one counts as gone.

    Raises:
        CohortError: one does not come, goes, or cannot be reached.
    """
    with meeting_of(machine, silent_seconds, silent_seconds) as meeting:
        own = {"address": address_towards(machine), "num_gpus": len(devices()["gpus"])}
        name, facts = meeting.exchange(own)
        addresses = [theirs["address"] for theirs in facts]
        interface = os.environ.get("GLOO_SOCKET_IFNAME") or interface_of(addresses, machine.rank)
        hosts = [theirs["host"] for theirs in facts]
        seconds = silent_seconds + PAIR_SECONDS * (len(hosts) - 1)
        store = {"host": machine.host, "port": machine.port, "prefix": f"cohort/{name}/rates", "seconds": seconds}
        on_gpus = all(theirs["num_gpus"] for theirs in facts)
        about = {"rank": machine.rank, "hosts": hosts, "store": store, "on_gpus": on_gpus}
        rates = _measured(about, interface, meeting)
        if lost := meeting.waits_for_all():
            raise _gone(lost)
    return {"hosts": hosts, "addresses": addresses, "interface": interface} | rates


def _measured(about: dict[str, Any], interface: str, meeting: Meeting) -> dict[str, Any]:
    """What the process that measures has found here."""
    env = os.environ | ({"GLOO_SOCKET_IFNAME": interface} if interface else {})
    command = python("-m", "cohort_gnn.launch.run.rates", json.dumps(about))
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=said, text=True, env=env, preexec_fn=begin_child
        )
        try:
            _wait(process, meeting, about["store"]["seconds"])
        finally:
            end_processes([process], STOP_SECONDS)
        if process.returncode != 0:
            said.seek(0)
            reason = (said.read().strip().splitlines() or [f"exit code {process.returncode}"])[-1]
            meeting.announce_end(reason)
            raise CohortError("the network", "messages between all machines", reason, "see the other machines")
    return json.loads(process.communicate()[0])


def _wait(process: subprocess.Popen, meeting: Meeting, seconds: float) -> None:
    """For its end; a failure here may follow from another machine's, which is then said."""
    deadline = time.monotonic() + seconds
    while process.poll() is None:
        if lost := meeting.looks():
            raise _gone(lost)
        if time.monotonic() > deadline:
            meeting.announce_end(f"no end of the measurement within {seconds:g} s")
            raise CohortError("the network", f"a measurement within {seconds:g} s", "none", "see the other machines")
        time.sleep(POLL_SECONDS)
    deadline = time.monotonic() + OTHERS_SECONDS
    while process.returncode and time.monotonic() < deadline:
        if lost := meeting.looks():
            raise _gone(lost)
        time.sleep(POLL_SECONDS)


def _gone(lost: str) -> CohortError:
    return CohortError("the network", "all machines until the end", lost, "see that machine")
