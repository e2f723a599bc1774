"""``--feature-placement``: whether each machine has all feature rows in memory, or keeps a part and asks for others."""

import socket
from pathlib import Path
from typing import Any

from cohort_gnn.cache.budget import available_host_bytes
from cohort_gnn.dataset import open as open_folder

BACKLOG = 1024  # connections of other machines that come before the sampler is ready for them


def features_here(run: dict) -> str:
    """What this machine is for: "partitioned" or "replicated"; auto: replicated where its memory holds the rows."""
    wanted = run["trainer"]["feature_placement"]
    if wanted != "auto":
        return wanted
    files = [table.encoded_rows for table in open_folder(Path(run["sampler"]["dataset"])).feature_tables]
    if run["sampler"]["compress"] in ("none", "cache") or not all(files):
        return "replicated"  # only encoded rows travel
    limit = run["sampler"].get("host_bytes", available_host_bytes())
    return "partitioned" if sum(Path(file).stat().st_size for file in files if file) > limit else "replicated"


def row_listener() -> socket.socket:
    """A socket on which this machine's sampler will be asked for rows, on a free port of all addresses."""
    dual = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if dual else socket.AF_INET
    return socket.create_server(("", 0), family=family, backlog=BACKLOG, dualstack_ipv6=dual)


def row_owners(facts: list[dict], own: int, listener: socket.socket, key: str, seconds: float, store_host: str) -> dict:
    """The member "row_owners" of run.json's "sampler", from the facts of all machines by rank.

    Args:
        key: of this attempt of the run; samplers refuse others.
        seconds: in which a machine must answer.
        store_host: where all reach the machine that keeps the store, which knows itself by its loopback.
    """

    def host_of(theirs: dict[str, Any]) -> str:
        if theirs["address"].startswith("127."):
            return store_host
        return theirs["address"] or theirs["host"]

    return {
        "names": [f"machine {rank} ({theirs['host']})" for rank, theirs in enumerate(facts)],
        "hosts": [host_of(theirs) for theirs in facts],
        "ports": [theirs["row_port"] for theirs in facts],
        "own": own,
        "listener": listener.fileno(),
        "key": key,
        "seconds": seconds,
    }
