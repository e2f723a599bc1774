"""``cohort bench sample`` and ``bench fetch``: time of the sampler's two parts, without a trainer.

The sampler is that of any run, but nothing is trained. Batches are requested first one at a time, so that the sampler
does nothing else ("beside nothing"), then without pauses, so that a GPU samples the next batch during the fetch
("beside next").
"""

import argparse
import contextlib
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from cohort.base.files import demand_writable
from cohort.base.tables import Table, print_tables
from cohort.base.units import format_bytes
from cohort.launch.options.arguments import add_dataset, kind
from cohort.launch.options.parser import add_options, spec_of
from cohort.launch.run.job import check_sampler_sms, open_dataset, sampler_members
from cohort.launch.run.programs import run_programs
from cohort.spec.results import TIERS
from cohort.spec.run import RunSpec, SamplerSpec
from cohort.spec.types import Compress, NotNegative, Positive, Ratios

BATCH_SIZE = 8192


def register(benches) -> None:
    """Adds the two commands to those of ``cohort bench``."""
    sample = benches.add_parser("sample", help="time drawing and relabelling", description=__doc__)
    _add_options(sample)
    sample.set_defaults(func=sample_batches)
    fetch = benches.add_parser("fetch", help="time fetching feature rows, by source", description=__doc__)
    _add_options(
        fetch,
        compress=None,
        cache_ratio=None,
        fetch_sms=None,
        reuse="copy rows of earlier batches, as cohort train (default off)",
    )
    several = {
        "compress": (list[Compress], ["auto"], "values of --compress to try (default auto)"),
        "cache-ratio": (Ratios, [0.0], "values of --cache-ratio to try (default 0)"),
        "fetch-sms": (list[Positive], [None], "numbers of SMs for the fetch, to try (default: the sampler's choice)"),
    }
    for name, (of, default, text) in several.items():
        dest = f"tried_{name.replace('-', '_')}"
        fetch.add_argument(f"--{name}", dest=dest, type=kind(of), default=default, metavar="A[,B...]", help=text)
    fetch.set_defaults(func=fetch_batches)


def _add_options(parser: argparse.ArgumentParser, **texts: str | None) -> None:
    add_dataset(parser)
    batch_size = f"seeds a batch (default {BATCH_SIZE})"
    add_options(parser, SamplerSpec, edge_weights=None, partition=None, batch_size=batch_size, **texts)
    parser.add_argument(
        "--batches", type=kind(Positive), default=50, help="number of batches to measure in each way (default 50)"
    )
    parser.add_argument(
        "--sampler-sms",
        dest="tried_sampler_sms",
        type=kind(list[NotNegative]),
        default=[0],
        metavar="A[,B...]",
        help="GPU: numbers of SMs of the sampler, to try (default 0: all)",
    )
    parser.add_argument(
        "--out", type=Path, default=Path("bench.jsonl"), help="file to which lines are appended (default bench.jsonl)"
    )


def sample_batches(args: argparse.Namespace) -> int:
    """Runs ``bench sample``: 0 when its batches were taken."""
    code, lines = _measure(args, [{"sampler_sms": sms} for sms in args.tried_sampler_sms])
    if lines:
        _print_samples(args, lines)
    return code


def fetch_batches(args: argparse.Namespace) -> int:
    """Runs ``bench fetch``: 0 when the batches of all options to try were taken."""
    tried = [
        {"compress": compress, "cache_ratio": ratio, "fetch_sms": fetch_sms, "sampler_sms": sms}
        for compress in args.tried_compress
        for ratio in args.tried_cache_ratio
        for fetch_sms in args.tried_fetch_sms
        for sms in args.tried_sampler_sms
    ]
    code, lines = _measure(args, tried)
    if lines:
        _print_fetches(args, lines)
    return code


def _measure(args: argparse.Namespace, tried: list[dict]) -> tuple[int, list[dict]]:
    """(exit code, a line of each kind of batches for each of the options to try); the lines are in --out then."""
    dataset = open_dataset(args.dataset).path
    is_fetch = args.func is fetch_batches
    spec = spec_of(args, SamplerSpec, batch_size=BATCH_SIZE, **({"reuse": False} if is_fetch else {}))
    lines = []
    with appending(args.out) as append, tempfile.TemporaryDirectory(prefix="cohort-bench-") as root:
        folders = [Path(root) / str(number) for number in range(len(tried))]
        # All counting and planning comes first: between runs, signals are ignored.
        runs = [_run_of(spec, args.batches, dataset, *each) for each in zip(tried, folders, strict=True)]
        for options, run, folder in zip(tried, runs, folders, strict=True):
            folder.mkdir()
            num_ranks = run["sampler"]["num_ranks"]
            code = run_programs(folder, run, show_output=True, num_trainers=num_ranks, is_kept=False)
            if code:
                return code, lines
            found = [_told_by(spec, is_fetch, dataset, run) | options | each for each in summarise(folder)]
            append(found)
            lines += found
    return 0, lines


@contextlib.contextmanager
def appending(path: Path) -> Iterator[Callable[[list[dict]], None]]:
    """Yields what appends lines to a file of results, which is opened before anything is measured.

    Raises:
        CohortError: the file cannot be written.
    """
    with demand_writable(path, "a file that can be appended to"):
        file = open(path, "a")

    def append(lines: list[dict]) -> None:
        with demand_writable(path, "a file that can be appended to"):
            file.writelines(json.dumps(line) + "\n" for line in lines)
            file.flush()

    try:
        with file:
            yield append
    finally:
        if path.is_file() and path.stat().st_size == 0:  # nothing was measured
            path.unlink()


def _run_of(spec: SamplerSpec, num_batches: int, dataset: Path, options: dict, folder: Path) -> dict:
    """What becomes run.json; `options` are those that are tried."""
    ratio = {"cache_ratio": [options["cache_ratio"]]} if "cache_ratio" in options else {}
    tried = RunSpec(**vars(spec) | options | ratio)
    check_sampler_sms(tried)
    trainer = {"task": "batches", "num_batches": num_batches}
    trainer |= {name: getattr(tried, name) for name in ("fanout", "batch_size", "seed", "sampler_sms")}
    return {
        "mps": tried.mps,
        "sampler": sampler_members(tried, dataset, plan_file=folder / "plan.json"),
        "trainer": trainer,
    }


def _told_by(spec: SamplerSpec, is_fetch: bool, dataset: Path, run: dict) -> dict:
    """What a line says of its making."""
    return {
        "bench": "fetch" if is_fetch else "sample",
        "dataset": dataset.name,
        "device": run["sampler"]["device"],
        "ranks": run["sampler"]["num_ranks"],
        "topology": spec.topology,
        "cache_ratio": spec.cache_ratio,
        "reuse": spec.reuse,
        "fanout": spec.fanout,
        "batch_size": spec.batch_size,
        "time": time.strftime("%Y-%m-%dT%H:%M:%S"),
    }


def summarise(folder: Path) -> list[dict]:
    """Medians of times in ms, and else means, of the batches of all ranks; one for each kind of batches."""
    paths = sorted(folder.glob("batches-*.jsonl"))
    batches = [json.loads(line) for path in paths for line in path.read_text().splitlines()]
    kinds = dict.fromkeys(batch["beside"] for batch in batches)
    return [_summary(kind, [batch for batch in batches if batch["beside"] == kind]) for kind in kinds]


def _summary(beside: str, batches: list[dict]) -> dict:
    names = ("seeds", "nodes", "edges", "sample_ms", "fetch_ms")
    least = {f"least_{name}": min(batch[name] for batch in batches) for name in ("sample_ms", "fetch_ms")}
    rows = {tier: _typical([batch["rows"][tier] for batch in batches], ("reads", "bytes", "ms")) for tier in TIERS}
    lists = {tier: _typical([batch["lists"][tier] for batch in batches], ("reads", "bytes")) for tier in TIERS}
    typical = _typical(batches, names) | least | {"rows": rows, "lists": lists}
    return {"beside": beside, "batches": len(batches)} | typical


def _typical(records: list[dict], names: tuple[str, ...]) -> dict:
    """Medians of times, means of counts."""
    kinds = {name: statistics.median if name.endswith("ms") else statistics.fmean for name in names}
    return {name: typical(record[name] for record in records) for name, typical in kinds.items()}


def _print_samples(args: argparse.Namespace, lines: list[dict]) -> None:
    columns = ["SMs", "beside", "ms", "least ms", "nodes", "edges", "M edges/s", "bytes"]
    note = f"bytes: of neighbour lists, a batch; ms: the median; appended to {args.out}"
    table = _table(lines[0], columns, note)
    for line in lines:
        times = [f"{line['sample_ms']:.3f}", f"{line['least_sample_ms']:.3f}"]
        sizes = [f"{line['nodes']:,.0f}", f"{line['edges']:,.0f}", f"{line['edges'] / line['sample_ms'] / 1e3:.1f}"]
        read = format_bytes(sum(tier["bytes"] for tier in line["lists"].values()))
        table.rows.append([_all_or(line["sampler_sms"]), line["beside"], *times, *sizes, read])
    print_tables(table)


def _print_fetches(args: argparse.Namespace, lines: list[dict]) -> None:
    columns = ["compress", "cache", "SMs", "fetch", "beside", "rows of", "rows %", "bytes", "ms", "GB/s"]
    told = "ms: the median, of whole fetches and of tiers, which are read side by side"
    table = _table(lines[0], columns, f"bytes: as stored, a batch; {told}; appended to {args.out}")
    for line in lines:
        sms = [_all_or(line["sampler_sms"]), str(line["fetch_sms"] or "-")]
        options = [line["compress"], f"{line['cache_ratio']:g}", *sms, line["beside"]]
        total = {name: sum(tier[name] for tier in line["rows"].values()) for name in ("reads", "bytes")}
        parts = {"all": total | {"ms": line["fetch_ms"]}} | line["rows"]
        for tier, numbers in parts.items():
            if tier == "all" or numbers["reads"]:
                table.rows.append([*options, tier, *_told_of_tier(numbers, total["reads"])])
                options = [""] * len(options)
    print_tables(table)


def _all_or(sampler_sms: int) -> str:
    return str(sampler_sms or "all")


def _told_of_tier(numbers: dict, num_rows: float) -> list[str]:
    """Cells: share of the rows, bytes, ms, GB/s."""
    rate = f"{numbers['bytes'] / numbers['ms'] / 1e6:.2f}" if numbers["ms"] else "-"
    share = f"{100 * numbers['reads'] / num_rows:.2f}"
    return [share, format_bytes(numbers["bytes"]), f"{numbers['ms']:.3f}" if numbers["ms"] else "-", rate]


def _table(line: dict, columns: list[str], note: str) -> Table:
    fanout = ",".join(map(str, line["fanout"]))
    batches = f"{line['batches']} batches of {line['seeds']:,.0f} seeds"
    return Table(f"{line['dataset']}, {line['device']}: {batches}, fanout {fanout}", columns, note=note)
