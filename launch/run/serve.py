"""``cohort serve``: answers requests for scores over HTTP, by a trained model and a data set."""

import argparse
import importlib.util
import ipaddress
import os
import resource
import signal
import sys
from pathlib import Path

from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.programs import POLITE
from cohort_gnn.launch.options.devices import resolve_device
from cohort_gnn.launch.options.parser import add_options, kind, spec_of
from cohort_gnn.launch.run.serve_workers import command_of, listening, supervise
from cohort_gnn.spec.run import SamplerSpec
from cohort_gnn.spec.run_file import not_a_run
from cohort_gnn.spec.types import Bytes, Positive

PACKAGES = {"uvicorn": "uvicorn", "starlette": "starlette", "prometheus_client": "prometheus-client"}
OWN_FILES = 64  # that a process has open beside connections: of the data set, sockets, those that it refuses


def register(parser) -> None:
    """Adds the arguments of the command."""
    parser.description = __doc__
    parser.add_argument("run", type=Path, metavar="RUN", help="folder of a run of cohort train")
    parser.add_argument("dataset", type=Path, metavar="DIR", help="folder of a data set, the run's or another")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen at (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, default=8000, help="port to listen at; 0: any that is free (default: 8000)")
    parser.add_argument("--unix-socket", type=Path, metavar="PATH", help="listen at this Unix socket instead")
    parser.add_argument("--token-file", type=Path, metavar="FILE", help="requests must bear the token in this file")
    parser.add_argument("--tls-certificate", type=Path, metavar="PEM", help="speak TLS, with this certificate")
    parser.add_argument("--tls-key", type=Path, metavar="PEM", help="the key of the certificate")
    parser.add_argument("--tls-client-ca", type=Path, metavar="PEM", help="clients must have a certificate of this CA")
    add_options(
        parser,
        SamplerSpec,
        only=("device", "fanout", "seed"),
        fanout="in-neighbours of a node that count, by hop; from longer lists they are drawn, by --seed and the node"
        " (default: all count)",
        seed="of what is drawn (default: 0)",
    )
    parser.add_argument("--max-body", type=kind(Bytes), default=16 << 20, help="of a request (default: 16 MiB)")
    parser.add_argument(
        "--max-nodes", type=kind(Positive), default=10_000, metavar="N", help="in a request (default: 10000)"
    )
    parser.add_argument(
        "--max-edges",
        type=kind(Positive),
        default=10_000_000,
        metavar="N",
        help="that a hop of a request may read (default: 10000000)",
    )
    parser.add_argument(
        "--max-connections",
        type=kind(Positive),
        default=100,
        metavar="N",
        help="at once, of each process (default: 100)",
    )
    parser.add_argument(
        "--workers",
        type=kind(Positive),
        default=1,
        metavar="N",
        help="processes that answer side by side, each with the model (default: 1)",
    )
    parser.add_argument(
        "--threads",
        type=kind(Positive),
        help="that score a request, of each process (default: the cores shared by the processes; of one, all but one)",
    )
    parser.set_defaults(func=serve)


def serve(args: argparse.Namespace) -> int:
    """Becomes the program that serves: it gets the signals, and a supervisor sees its exit code. Or starts several."""
    if not (args.run / "run.json").is_file():
        raise not_a_run(args.run)
    if lacking := [name for module, name in PACKAGES.items() if importlib.util.find_spec(module) is None]:
        raise CohortError(
            "cohort serve", ", ".join(PACKAGES.values()), f"no {lacking[0]}", "pip install 'cohort-gnn[serve]'"
        )
    if bool(args.tls_certificate) != bool(args.tls_key):
        raise CohortError("--tls-certificate, --tls-key", "both", "one of them")
    if args.tls_client_ca and not args.tls_certificate:
        raise CohortError("--tls-client-ca", "--tls-certificate and --tls-key beside it", "neither")
    if not args.unix_socket and not _is_loopback(args.host) and args.token_file is None and not args.tls_client_ca:
        hint = "add --token-file FILE, or --tls-certificate, --tls-key and --tls-client-ca"
        raise CohortError(
            f"--host {args.host}", "a token or certificates of clients, as others reach it", "neither", hint
        )
    _allow_connections(args.max_connections)
    limits = {
        "body_bytes": args.max_body,
        "nodes": args.max_nodes,
        "body_seconds": 10.0,
        "answer_seconds": 30.0,
        "connections": args.max_connections,
    }
    files = {"token_file": args.token_file, "certificate": args.tls_certificate}
    files |= {"key": args.tls_key, "client_ca": args.tls_client_ca}
    sockets = listening(args.host, args.port, args.unix_socket)
    job = {
        "run": str(args.run),
        "dataset": str(args.dataset),
        "device": resolve_device(spec_of(args, SamplerSpec).device),
        "num_neighbors": getattr(args, "fanout", None),
        "seed": getattr(args, "seed", 0),
        "max_edges": args.max_edges,
        "limits": limits,
        "threads": args.threads or max(1, len(os.sched_getaffinity(0)) // args.workers - (args.workers == 1)),
        "waiting": 2 * args.max_connections,
        "sockets": [bound.fileno() for bound in sockets],
        "is_shared": args.workers > 1,
        "announces": True,
        "ready": None,
    }
    job |= {name: None if path is None else str(path) for name, path in files.items()}
    sys.stdout.flush()
    if args.workers > 1:
        return supervise(job, args.workers)
    command = command_of(job)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # until the program has no handler that raises
    os.execve(command[0], command, POLITE | os.environ)


def _allow_connections(count: int) -> None:
    """Raises the limit of open files, each connection being one.

    Raises:
        CohortError: it cannot be raised so far.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY and count > most - OWN_FILES:
        hint = "raise the limit of open files (ulimit -n), or serve fewer connections"
        expected = f"at most {max(0, most - OWN_FILES)}, as {most} files may be open"
        raise CohortError("--max-connections", expected, str(count), hint)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
