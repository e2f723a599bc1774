"""``python -m cohort_gnn.trainer.serve JOB``: the program of ``cohort serve``; JOB is JSON.

The job: ``run`` and ``dataset`` (folders), ``device``, ``num_neighbors`` (or null), ``seed``, ``max_edges``,
``limits`` (see app.py), ``threads``, ``waiting`` (requests), ``host``, ``port``, ``token_file``, ``unix_socket``,
``certificate``, ``key``, ``client_ca`` (or null). Tokens are in no argument, which other users could read.
"""

import functools
import json
import logging
import ssl
import sys
from pathlib import Path
from typing import Any

import torch
import uvicorn

from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.log import shown
from cohort_gnn.trainer.predict.scorer import Scorer
from cohort_gnn.trainer.serve.app import Limits, Service
from cohort_gnn.trainer.serve.worker import Worker

LOG = logging.getLogger("cohort_gnn.trainer.serve")  # __name__ is that of the program
LEAST_TOKEN = 16


class Server(uvicorn.Server):
    """Says where it listens, once it does."""

    async def startup(self, sockets=None) -> None:
        await super().startup(sockets)
        if self.started:
            config = self.config
            ports = (
                [own.getsockname()[1] for server in self.servers for own in server.sockets] if not config.uds else []
            )
            scheme = "https" if config.is_ssl else "http"
            where = config.uds or f"{scheme}://{config.host}:{ports[0]}"
            LOG.info(f"answers requests at {where}")


def serve(job: dict[str, Any]) -> int:
    """Answers requests until it is told to stop; those that are under way get their answers."""
    token = None if job["token_file"] is None else _token_in(Path(job["token_file"]))
    torch.set_num_threads(job["threads"])
    options = {name: job[name] for name in ("device", "num_neighbors", "seed", "max_edges")}
    make = functools.partial(Scorer, job["run"], job["dataset"], **options)
    worker = Worker(make, Path(job["dataset"]) / "meta.json", job["waiting"])
    limits = Limits(**job["limits"])
    service = Service(worker, limits, token, lambda: len(server.server_state.connections))
    secured: dict[str, Any] = (
        {"ssl_certfile": job["certificate"], "ssl_keyfile": job["key"]} if job["certificate"] else {}
    )
    if job["client_ca"]:
        secured |= {"ssl_ca_certs": job["client_ca"], "ssl_cert_reqs": ssl.CERT_REQUIRED}
    where: dict[str, Any] = (
        {"uds": job["unix_socket"]} if job["unix_socket"] else {"host": job["host"], "port": job["port"]}
    )
    quiet: dict[str, Any] = {"log_level": "warning", "access_log": False, "server_header": False}
    server = Server(uvicorn.Config(service.app, timeout_keep_alive=10, lifespan="off", **where, **secured, **quiet))
    worker.start()
    try:
        server.run()
    finally:
        worker.stop()
    return 0 if server.started else 1


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
    except KeyboardInterrupt:
        return 130
    except OSError as error:  # a port that is taken, a certificate that is not there
        print(f"cohort: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
