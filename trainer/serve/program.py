"""The program of ``cohort serve``, ``python -m cohort_gnn.trainer.serve JOB``; JOB is JSON.

The job: ``run`` and ``dataset`` (folders), ``device``, ``num_neighbors`` (or null), ``seed``, ``max_edges``,
``limits`` (see app.py), ``threads``, ``waiting`` (requests), ``sockets`` (descriptors, bound), ``is_shared`` (whether
other processes listen at them, too), ``announces`` (whether it says where it answers), ``ready`` (a descriptor to write
to then, or null), ``token_file``, ``certificate``, ``key``, ``client_ca`` (or null). Tokens are in no argument, which
other users could read.
"""

import functools
import json
import logging
import os
import socket
import ssl
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import uvicorn

from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.log import shown
from cohort_gnn.trainer.predict.scorer import Scorer
from cohort_gnn.trainer.serve.app import Limits, Service
from cohort_gnn.trainer.serve.shared_socket import SharedSocket
from cohort_gnn.trainer.serve.worker import Worker

LOG = logging.getLogger(__name__)
LEAST_TOKEN = 16


class Server(uvicorn.Server):
    """Calls ``begins`` once it listens."""

    begins: Callable[[], None]

    async def startup(self, sockets=None) -> None:
        await super().startup(sockets)
        if self.started:
            self.begins()


def serve(job: dict[str, Any]) -> int:
    """Answers requests until it is told to stop; those that are under way get their answers."""
    token = None if job["token_file"] is None else _token_in(Path(job["token_file"]))
    torch.set_num_threads(job["threads"])
    options = {name: job[name] for name in ("device", "num_neighbors", "seed", "max_edges")}
    make = functools.partial(Scorer, job["run"], job["dataset"], **options)
    is_lost = threading.Event()

    def lost() -> None:
        is_lost.set()
        server.should_exit = True

    worker = Worker(make, Path(job["dataset"]) / "meta.json", job["waiting"], lost)
    limits = Limits(**job["limits"])

    def num_connections() -> int:
        return len(server.server_state.connections)

    service = Service(worker, limits, token, num_connections)
    secured: dict[str, Any] = (
        {"ssl_certfile": job["certificate"], "ssl_keyfile": job["key"]} if job["certificate"] else {}
    )
    if job["client_ca"]:
        secured |= {"ssl_ca_certs": job["client_ca"], "ssl_cert_reqs": ssl.CERT_REQUIRED}
    quiet: dict[str, Any] = {"log_level": "warning", "access_log": False, "server_header": False}
    server = Server(
        uvicorn.Config(service.app, timeout_keep_alive=10, lifespan="off", loop="asyncio", **secured, **quiet)
    )
    sockets = [
        SharedSocket(number, num_connections) if job["is_shared"] else socket.socket(fileno=number)
        for number in job["sockets"]
    ]
    server.begins = functools.partial(_begin, job, sockets)
    worker.start()
    try:
        server.run(sockets)
    finally:
        worker.stop()
    return 0 if server.started and not is_lost.is_set() else 1


def _begin(job: dict[str, Any], sockets: list[socket.socket]) -> None:
    """Says that requests are answered, and where."""
    name = sockets[0].getsockname()
    if job["announces"]:
        scheme = "https" if job["certificate"] else "http"
        where = (
            name if isinstance(name, str) else f"{scheme}://{f'[{name[0]}]' if ':' in name[0] else name[0]}:{name[1]}"
        )
        LOG.info(f"answers requests at {where}")
    if job["ready"] is not None:
        os.write(job["ready"], b"1")
        os.close(job["ready"])


def _token_in(file: Path) -> str:
    token = file.read_text().strip()
    if len(token) < LEAST_TOKEN or not token.isascii() or not token.isprintable():
        hint = "python -c 'import secrets; print(secrets.token_urlsafe())' > FILE"
        raise CohortError(f"--token-file {file}", f"at least {LEAST_TOKEN} ASCII characters", "another token", hint)
    return token


def main(job: str) -> int:
    try:
        with shown("stdout"):
            return serve(json.loads(job))
    except CohortError as error:
        print(f"cohort: {error}", file=sys.stderr)
        return 1
    except OSError as error:  # a certificate that is not there
        print(f"cohort: {error}", file=sys.stderr)
        return 1
