"""The options of commands that plan or use a cache."""

import argparse
from pathlib import Path

from cohort.base.units import byte_count
from cohort.cache.plan.budget import slot_edge_bytes
from cohort.cache.plan.links import machine_bandwidth
from cohort.cache.plan.options import POLICIES, CacheOptions, sampler_members, say_aloud
from cohort.launch.options.arguments import byte_counts, group, positive, ratios, three
from cohort.launch.options.devices import devices


def add_row_options(parser) -> None:
    """Adds, to a parser or a group of one, the options of where topology and feature rows are, and in what form."""
    parser.add_argument(
        "--topology",
        choices=["auto", "gpu", "host"],
        default="auto",
        help="where the GPU reads the graph: gpu: all of it in its memory; host: in host memory, but for lists in the"
        " cache; auto (default): gpu where that takes at most half of what the cache leaves",
    )
    parser.add_argument(
        "--compress",
        choices=["auto", "none", "cache", "host", "both"],
        default="auto",
        help="where feature rows stay encoded; auto (default): when the data set is prepared, in host memory, and in"
        " the cache unless that of each GPU has room for all of them raw; else nowhere",
    )
    parser.add_argument(
        "--reuse",
        choices=["on", "off"],
        default="on",
        help="on (default): a GPU copies feature rows that earlier batches left in the shared buffer, and does not"
        " fetch them again",
    )


def add_cache_options(parser: argparse.ArgumentParser, without: str) -> None:
    """Adds them; `without` says what is cached when neither ratio nor bytes are given."""
    cache, experts = group(parser, "Cache"), group(parser, "Experts")
    cache.add_argument(
        "--cache-ratio",
        type=ratios,
        metavar="R[,R...]|auto",
        help=f"cache of each GPU as a share of all raw feature bytes, index included; auto: what slots and trainer"
        f" leave (default: {without})",
    )
    cache.add_argument("--cache-bytes", type=byte_counts, metavar="B[,B...]", help="cache of each GPU in bytes: 20GB")
    cache.add_argument(
        "--cache-policy",
        choices=POLICIES,
        default="plan",
        help="what to cache: plan (default): what a short run of the sampler reads most; degree, random: stand-ins to"
        " compare with; none: nothing",
    )
    cache.add_argument(
        "--cliques",
        default="auto",
        metavar="none|all|2x4|3+5|auto",
        help="which GPUs read each other's memory, and so share a cache (default auto: as the machine says)",
    )
    experts.add_argument(
        "--presample-batches",
        type=positive,
        default=200,
        help="most batches of the short run that counts what is read, for --cache-policy plan (default 200, or two"
        " epochs)",
    )
    experts.add_argument(
        "--bandwidth",
        type=three,
        metavar="LOCAL,PEER,HOST",
        help="GB/s at which a GPU reads its own, a peer's and host memory, for the planner (default: as this machine's"
        " GPUs are measured, once; without a GPU 1500,360,51)",
    )
    experts.add_argument(
        "--line-ns",
        type=three,
        default=(0.0, 0.0, 0.0),
        metavar="LOCAL,PEER,HOST",
        help="added latency in ns for each 128-byte line read from LOCAL, PEER, HOST memory, for the planner (default"
        " 0,0,0)",
    )
    experts.add_argument(
        "--gpu-memory",
        type=byte_count,
        help="memory of each GPU, for the planner (default: the smallest visible one's)",
    )
    experts.add_argument(
        "--trainer-bytes",
        type=byte_count,
        help="memory that a GPU needs beside slots and cache, for --cache-ratio auto (default: measured by a short run,"
        " once)",
    )


def cache_members(
    args: argparse.Namespace, dataset: Path, num_ranks: int, on_gpu: bool, clique_seeds: list | None = None
) -> dict:
    """The members of run.json's "sampler" that the options make; says on standard error what it counts and measures."""
    options = CacheOptions(
        args.cache_ratio,
        args.cache_bytes,
        args.cache_policy,
        args.cliques,
        args.presample_batches,
        args.bandwidth,
        args.line_ns,
        gpu_memory(args) if args.cache_ratio == "auto" else None,
        args.trainer_bytes,
        slot_edge_bytes(ids=False, weights=getattr(args, "edge_weights", False)),
    )
    shape = (args.fanout, args.batch_size, args.slots, num_ranks, on_gpu)
    return sampler_members(options, dataset, *shape, clique_seeds=clique_seeds, gpus=args.gpus or [0])


def link_rates(args: argparse.Namespace) -> list[float]:
    """Bytes a second of (local, peer, host): as given, or as the GPUs of the run are measured, once."""
    return [1e9 * rate for rate in args.bandwidth or machine_bandwidth(say_aloud, gpus=args.gpus or [0])]


def wants_auto_cache(args: argparse.Namespace) -> bool:
    """Whether the cache of a run is to be what slots and trainer leave."""
    return args.cache_ratio == "auto" and args.cache_bytes is None and args.cache_policy != "none"


def gpu_memory(args: argparse.Namespace, machine: dict | None = None) -> int | None:
    """Bytes of each GPU: as given, or of the smallest that is used, or visible in ``machine``; None: there is none."""
    if args.gpu_memory is not None:
        return args.gpu_memory
    gpus = machine["gpus"] if machine else [gpu for gpu in devices()["gpus"] if gpu["ordinal"] in (args.gpus or [0])]
    return min((gpu["bytes"] for gpu in gpus), default=None)
