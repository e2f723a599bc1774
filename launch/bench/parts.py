"""``cohort bench sample`` and ``bench fetch``: time of the sampler's two parts, without a trainer.

The sampler works as in a run, but nothing is trained. Batches are requested first one at a time, so that the sampler
does nothing else ("beside nothing"), then without pauses, so that a GPU samples the next batch during the fetch
("beside next").
"""

import argparse
import contextlib
import functools
import itertools
import json
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, make_dataclass
from pathlib import Path

from cohort_gnn.base.files import demand_writable, scratch_folder
from cohort_gnn.base.tables import TextTable, print_tables
from cohort_gnn.base.units import format_bytes
from cohort_gnn.launch.options.effects import say_what_has_no_effect
from cohort_gnn.launch.options.parser import add_dataset, add_options, spec_of
from cohort_gnn.launch.run.job import check_sampler_sms, demand_train_nodes, open_to_train, sampler_members
from cohort_gnn.launch.run.programs import run_programs
from cohort_gnn.spec.options import Needs, option, options_of
from cohort_gnn.spec.results import TIERS
from cohort_gnn.spec.run import RunSpec, SamplerSpec
from cohort_gnn.spec.types import Compress, NotNegative, Positive, Ratios


@dataclass(kw_only=True)
class SampleSpec(SamplerSpec):
    """Options of ``bench sample``; lists are tried in turn."""

    batch_size: Positive = option(8192, "seeds per batch", group="Sampling")
    batches: Positive = option(50, "number of batches to measure in each way", group="Sampling")
    sampler_sms: list[NotNegative] = option(
        [0], "GPU: numbers of SMs to try for the sampler; 0: all", group="Devices", metavar="A[,B...]"
    )
    out: Path = option(Path("bench.jsonl"), "file to which lines are appended", group="Output")


@dataclass(kw_only=True)
class FetchSpec:
    """Options of ``bench fetch`` in place of those of SampleSpec, or beside them; lists are tried in turn."""

    compress: list[Compress] = option(["auto"], "values of --compress to try", group="Cache", metavar="A[,B...]")
    cache_ratio: Ratios = option([0.0], "values of --cache-ratio to try", group="Cache", metavar="A[,B...]")
    fetch_sms: list[Positive] | None = option(
        None, "numbers of SMs to try for the fetch (default: the sampler's choice)", metavar="A[,B...]", needs=Needs.GPU
    )
    reuse: bool = option(
        False,
        "find rows of earlier batches in the pool, as cohort train does (default off)",
        group="Cache",
        needs=Needs.GPU,
    )


FETCH_OPTIONS = make_dataclass("FetchOptions", [], bases=(FetchSpec, SampleSpec), kw_only=True)


def register(benches) -> None:
    """Adds the two commands to those of ``cohort bench``."""
    commands = (
        ("sample", "time drawing and relabelling", SampleSpec, _print_samples),
        ("fetch", "time fetching feature rows, by source", FETCH_OPTIONS, _print_fetches),
    )
    for name, text, spec, show in commands:
        parser = benches.add_parser(name, help=text, description=__doc__)
        add_dataset(parser)
        add_options(parser, spec, use_edge_weights=None, partition=None)
        parser.set_defaults(func=functools.partial(_bench, name, spec, show))


def _bench(name: str, spec_type: type, show: Callable[[Path, list[dict]], None], args: argparse.Namespace) -> int:
    """Runs a command; returns 0 when the batches of all options to try were measured."""
    spec, data = spec_of(args, spec_type), open_to_train(args.dataset)
    demand_train_nodes(data)
    say_what_has_no_effect(spec)
    names = (
        ("compress", "cache_ratio", "fetch_sms", "sampler_sms")
        if issubclass(spec_type, FetchSpec)
        else ("sampler_sms",)
    )
    values = itertools.product(*(getattr(spec, option) or [None] for option in names))
    tried = [dict(zip(names, combination, strict=True)) for combination in values]
    lines, code = [], 0
    with appending(spec.out) as append, scratch_folder("bench") as root:
        folders = [root / str(number) for number in range(len(tried))]
        # All counting and planning comes first: between runs, signals are ignored.
        runs = [_run_of(spec, data.path, *pair) for pair in zip(tried, folders, strict=True)]
        for options, run, folder in zip(tried, runs, folders, strict=True):
            folder.mkdir()
            num_ranks = run["sampler"]["num_ranks"]
            code = run_programs(folder, run, show_output=True, is_kept=False)
            if code:
                break
            common = {"bench": name, "dataset": data.path.name, "device": run["sampler"]["device"], "ranks": num_ranks}
            shown = ("topology", "cache_ratio", "reuse", "fanout", "batch_size")
            common |= {option: getattr(spec, option) for option in shown}
            common |= {"time": time.strftime("%Y-%m-%dT%H:%M:%S")} | options
            records = [common | summary for summary in summarise(folder)]
            append(records)
            lines += records
    if lines:
        show(spec.out, lines)
    return code


@contextlib.contextmanager
def appending(path: Path) -> Iterator[Callable[[list[dict]], None]]:
    """Yields a function that appends lines to a file of results; the file is opened before anything is measured.

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


def _run_of(spec: SampleSpec, dataset: Path, options: dict, folder: Path) -> dict:
    """The content of run.json; `options` are those being tried."""
    ratio = {"cache_ratio": [options["cache_ratio"]]} if "cache_ratio" in options else {}
    sampler_options = {option.name: getattr(spec, option.name) for option in options_of(SamplerSpec)}
    tried = RunSpec(**sampler_options | options | ratio)
    check_sampler_sms(tried)
    trainer = {"task": "batches", "num_batches": spec.batches}
    trainer |= {name: getattr(tried, name) for name in ("fanout", "batch_size", "seed", "sampler_sms")}
    return {
        "mps": tried.mps,
        "sampler": sampler_members(tried, dataset, plan_file=folder / "plan.json"),
        "trainer": trainer,
    }


def summarise(folder: Path) -> list[dict]:
    """Medians of times in ms, and else means, of the batches of all ranks; one for each kind of batches."""
    paths = sorted(folder.glob("batches-*.jsonl"))
    batches = [json.loads(line) for path in paths for line in path.read_text().splitlines()]
    summaries, names = [], ("seeds", "nodes", "edges", "sample_ms", "fetch_ms")
    for beside in dict.fromkeys(batch["beside"] for batch in batches):
        some = [batch for batch in batches if batch["beside"] == beside]
        least = {f"least_{name}": min(batch[name] for batch in some) for name in ("sample_ms", "fetch_ms")}
        rows = {tier: _typical([batch["rows"][tier] for batch in some], ("reads", "bytes", "ms")) for tier in TIERS}
        lists = {tier: _typical([batch["lists"][tier] for batch in some], ("reads", "bytes")) for tier in TIERS}
        typical = _typical(some, names) | least | {"rows": rows, "lists": lists}
        summaries.append({"beside": beside, "batches": len(some)} | typical)
    return summaries


def _typical(records: list[dict], names: tuple[str, ...]) -> dict:
    """Medians of times, means of counts."""
    kinds = {name: statistics.median if name.endswith("ms") else statistics.fmean for name in names}
    return {name: typical(record[name] for record in records) for name, typical in kinds.items()}


def _print_samples(out: Path, lines: list[dict]) -> None:
    columns = ["SMs", "beside", "ms", "least ms", "nodes", "edges", "M edges/s", "bytes"]
    note = f"bytes: of neighbour lists, a batch; ms: the median; appended to {out}"
    table = _table(lines[0], columns, note)
    for line in lines:
        times = [f"{line['sample_ms']:.3f}", f"{line['least_sample_ms']:.3f}"]
        sizes = [f"{line['nodes']:,.0f}", f"{line['edges']:,.0f}", f"{line['edges'] / line['sample_ms'] / 1e3:.1f}"]
        read = format_bytes(sum(tier["bytes"] for tier in line["lists"].values()))
        table.rows.append([str(line["sampler_sms"] or "all"), line["beside"], *times, *sizes, read])
    print_tables(table)


def _print_fetches(out: Path, lines: list[dict]) -> None:
    columns = ["compress", "cache", "SMs", "fetch", "beside", "rows of", "rows %", "bytes", "ms", "GB/s"]
    ms_note = "ms: the median, of whole fetches and of tiers, which are read side by side"
    if lines[0]["device"] == "cpu" and any(line["cache_ratio"] for line in lines):
        ms_note += "; on the CPU, a cache is planned but has no effect"
    table = _table(lines[0], columns, f"bytes: as stored, a batch; {ms_note}; appended to {out}")
    for line in lines:
        sms = [str(line["sampler_sms"] or "all"), str(line["fetch_sms"] or "-")]
        options = [line["compress"], f"{line['cache_ratio']:g}", *sms, line["beside"]]
        total = {name: sum(tier[name] for tier in line["rows"].values()) for name in ("reads", "bytes")}
        parts = {"all": total | {"ms": line["fetch_ms"]}} | line["rows"]
        for tier, numbers in parts.items():
            if tier == "all" or numbers["reads"]:
                cells = [f"{100 * numbers['reads'] / total['reads']:.2f}", format_bytes(numbers["bytes"])]
                rate = f"{numbers['bytes'] / numbers['ms'] / 1e6:.2f}" if numbers["ms"] else "-"
                cells += [f"{numbers['ms']:.3f}" if numbers["ms"] else "-", rate]
                table.rows.append([*options, tier, *cells])
                options = [""] * len(options)
    print_tables(table)


def _table(line: dict, columns: list[str], note: str) -> TextTable:
    fanout = ",".join(map(str, line["fanout"]))
    batches = f"{line['batches']} batches of {line['seeds']:,.0f} seeds"
    return TextTable(f"{line['dataset']}, {line['device']}: {batches}, fanout {fanout}", columns, note=note)
