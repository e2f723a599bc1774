"""``cohort plan``: what each GPU would cache and what that saves; a dry run that allocates nothing large."""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from cohort.base.errors import CohortError
from cohort.base.programs import program
from cohort.base.units import format_bytes, parse_bytes
from cohort.launch.devices import devices
from cohort.launch.plan_table import as_json, print_plan
from cohort.launch.train import fanout, open_dataset, positive

# Local, peer and host, measured on H200 with NVLink 4 and PCIe 5: GB/s.
MEASURED_BANDWIDTH = (1500.0, 360.0, 51.0)


def register(commands) -> None:
    """Adds the command."""
    parser = commands.add_parser("plan", help="what each GPU would cache, before a run", description=__doc__)
    parser._negative_number_matcher = re.compile(r"-\d+(,-?\d+)*$")  # "--fanout -1,-1" gives a value, not an option
    parser.add_argument("dataset", type=Path, metavar="DIR", help="folder of a data set")
    parser.add_argument("--fanout", type=fanout, default=[25, 10], help="neighbours a hop; -1: all (default 25,10)")
    parser.add_argument("--batch-size", type=positive, default=1024, help="seeds a batch (default 1024)")
    parser.add_argument("--slots", type=positive, default=3, help="batches that the shared buffer holds (default 3)")
    _add_cache_options(parser)
    _add_machine_options(parser)
    parser.add_argument("--json", action="store_true", help="the plan as JSON")
    parser.set_defaults(func=plan)


def _add_cache_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--cache-ratio",
        type=ratios,
        metavar="R[,R...]|auto",
        help="cache of each GPU as a share of all raw feature bytes, index included (default auto: what is left)",
    )
    parser.add_argument("--cache-bytes", type=byte_counts, metavar="B[,B...]", help="the same in bytes: 20GB")
    parser.add_argument(
        "--cache-policy",
        choices=["plan", "degree", "random", "none"],
        default="plan",
        help="cache what a short run of the sampler read most; or (stand-ins) by out-degree, or by chance; or nothing",
    )
    parser.add_argument("--split", choices=["train", "val", "test"], default="train", help="seeds of that short run")
    parser.add_argument("--presample-batches", type=positive, default=200, help="its bound (default 200, or an epoch)")
    parser.add_argument("--refresh", action="store_true", help="count again though the data set has the counts")
    parser.add_argument("--row-bytes", type=parse_bytes, help="of a stored, compressed row (default: not compressed)")


def _add_machine_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--gpus", type=positive, help="how many (default: the visible ones, at least 1)")
    parser.add_argument(
        "--cliques",
        default="auto",
        metavar="none|all|2x4|3+5|auto",
        help="GPUs that read each other's memory (auto: as the machine says)",
    )
    parser.add_argument(
        "--bandwidth", type=three, default=MEASURED_BANDWIDTH, metavar="LOCAL,PEER,HOST", help="GB/s (1500,360,51)"
    )
    parser.add_argument(
        "--line-ns", type=three, default=(0.0, 0.0, 0.0), metavar="LOCAL,PEER,HOST", help="a line of 128 bytes, on top"
    )
    parser.add_argument("--gpu-memory", type=parse_bytes, help="of each GPU (default: the smallest visible one's)")
    parser.add_argument("--trainer-bytes", type=parse_bytes, help="measured peak of the trainer on a GPU")


def plan(args: argparse.Namespace) -> int:
    """Runs the command: 0 when all fits, 1 when not, with what to change on standard error."""
    from cohort import cache
    from cohort.cache import budget
    from cohort.dataset import open as open_folder

    open_dataset(args.dataset)
    data = open_folder(args.dataset)
    machine = devices()
    num_gpus = args.gpus or max(1, len(machine["gpus"]))
    counts, source = _counts(args, data)
    raw_row_bytes = data.x.itemsize * data.feature_dim
    row_bytes = args.row_bytes or raw_row_bytes
    largest = (counts.max_batch_nodes or data.num_nodes, counts.max_batch_edges or data.num_edges)
    slot_bytes = budget.slot_bytes(data.num_nodes, raw_row_bytes, args.batch_size, args.fanout, *largest)
    needs = cache.MemoryNeeds(_gpu_memory(args, machine), args.slots * slot_bytes, args.trainer_bytes)
    if args.cache_policy == "none":
        args.cache_ratio, args.cache_bytes = None, [0]
    budgets = cache.budgets(num_gpus, data.num_nodes * raw_row_bytes, args.cache_ratio, args.cache_bytes, needs)
    placed = cache.plan(
        data.indptr,
        counts,
        index_bytes=data.indices.itemsize,
        row_bytes=row_bytes,
        cliques=_cliques(args.cliques, num_gpus, machine),
        budget_bytes=budgets,
        links=cache.Links(
            tuple(1e9 * rate for rate in args.bandwidth), tuple(1e-9 * nanoseconds for nanoseconds in args.line_ns)
        ),
    )
    host_needed = data.num_nodes * row_bytes + data.indptr.nbytes + data.indices.nbytes
    host_present = budget.available_host_bytes()
    wrong = _caches_nothing(placed, budgets) + budget.misfits(budgets, needs, host_needed, host_present)
    memory = {"slots_bytes": needs.slots_bytes, "host_needed_bytes": host_needed, "host_present_bytes": host_present}
    if args.json:
        print(json.dumps(as_json(placed) | memory | {"counts": source, "wrong": wrong}, indent=2))
    else:
        print_plan(placed, source, memory)
    for line in wrong:
        print(f"cohort: will not fit: {line}", file=sys.stderr)
    return 1 if wrong else 0


def _counts(args: argparse.Namespace, data) -> tuple:
    """(counts, where they come from)."""
    from cohort import cache

    if args.cache_policy in ("degree", "random"):
        picks = -1 if min(args.fanout) < 0 else max(args.fanout)
        counts = cache.Counts.stand_in(args.cache_policy, data.indptr, data.indices, picks)
        return counts, {"policy": args.cache_policy}
    options = {
        "dataset": str(args.dataset.absolute()),
        "fanout": args.fanout,
        "batch_size": args.batch_size,
        "split": args.split,
        "max_batches": args.presample_batches,
        "refresh": args.refresh,
    }
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(options, file)
        file.flush()
        command = [program("cohort-sampler"), "--presample", file.name]
        result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        raise CohortError.from_text(result.stderr.strip().removeprefix("cohort-sampler: "))
    source = json.loads(result.stdout)
    return cache.load_counts(Path(source["file"])), {"policy": args.cache_policy} | source


def _gpu_memory(args: argparse.Namespace, machine: dict) -> int | None:
    if args.gpu_memory:
        return args.gpu_memory
    return min((gpu["bytes"] for gpu in machine["gpus"]), default=None)


def _cliques(text: str, num_gpus: int, machine: dict) -> list[list[int]]:
    from cohort.cache import cliques_named

    if text != "auto":
        return cliques_named(text, num_gpus)
    if num_gpus == 1:
        return [[0]]
    known = machine.get("cliques")
    if known is None or sum(map(len, known)) != num_gpus:
        hint = "say which GPUs read each other's memory: none, all, 2x4, 3+5"
        raise CohortError("--cliques auto", f"{num_gpus} GPUs to ask", f"{len(machine['gpus'])} here", hint)
    return known


def _caches_nothing(placed, budgets: list[int]) -> list[str]:
    return [
        f"GPU {i}: a cache of {format_bytes(budget)} cannot even hold its index; use a larger --cache-ratio or 0"
        for i, budget in enumerate(budgets)
        if budget > 0 and placed.gpu(i).used_bytes == 0
    ]


def ratios(text: str) -> list[float] | None:
    """ "0.05", "0.1,0.2" or "auto" (None)."""
    if text == "auto":
        return None
    numbers = [float(part) for part in text.split(",")]
    if not all(0 <= number <= 1e6 for number in numbers):
        raise argparse.ArgumentTypeError(f"expected numbers of at least 0, or auto, found {text}")
    return numbers


def byte_counts(text: str) -> list[int]:
    """ "20GB" or "20GB,10GB"."""
    return [parse_bytes(part) for part in text.split(",")]


def three(text: str) -> tuple[float, float, float]:
    """ "1500,360,51" """
    numbers = tuple(float(part) for part in text.split(","))
    if len(numbers) != 3 or not all(0 <= number < 1e9 for number in numbers):
        raise argparse.ArgumentTypeError(f"expected three numbers for local, peer and host, found {text}")
    return numbers
